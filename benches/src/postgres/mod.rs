//! Locks in PostgreSQL: free ones beside their bare statements, one hot key beside the usual locks
//! of that server, and what waiters and renewed leases cost it.

mod free;
mod hot;
mod load;

use std::array::from_fn;

use lockmacro_tests::{Postgres, Server};
use tokio_postgres::{Client, Row};

use crate::Failure;
use crate::measure::Spread;

pub async fn run(rounds: u32) -> Result<(), Failure> {
    // It waits for its disk. Autovacuum would add commits to those that are counted, and remove the
    // dead rows that are.
    let (server, redis) = (Postgres::with(&["-c", "autovacuum=off"]).await, Server::start());
    free::run(&server, rounds).await?;
    hot::run(&server, &redis, rounds).await?;
    load::run(&server).await
}

/// Measures all kinds in turn in every round. Each of them has its samples, one of each round.
async fn in_turn<const KINDS: usize, S>(
    rounds: u32,
    measure: impl AsyncFn(usize) -> Result<S, Failure>,
) -> Result<[Vec<S>; KINDS], Failure> {
    let mut samples = from_fn(|_| Vec::new());
    for round in 0..=rounds {
        for turn in 0..KINDS {
            // Each kind is the first in some of the rounds.
            let which = (turn + round as usize) % KINDS;
            let sample = measure(which).await?;
            // The first round only warms up.
            samples[which].extend((round > 0).then_some(sample));
        }
    }
    Ok(samples)
}

/// The ratios to what is measured in the same round.
fn ratio(samples: impl Iterator<Item = f64>, base: impl Iterator<Item = f64>) -> String {
    let ratio = Spread::of(samples.zip(base).map(|(sample, base)| sample / base));
    if ratio.low == 1.0 && ratio.high == 1.0 { "1".to_owned() } else { ratio.to_string() }
}

/// The row of a statement without values.
async fn row(client: &Client, statement: &str) -> Result<Row, Failure> {
    Ok(client.query_one(statement, &[]).await?)
}

/// Plain connections.
async fn connections(server: &Postgres, number: usize) -> Vec<Client> {
    let mut connections = Vec::new();
    for _ in 0..number {
        connections.push(server.connect().await);
    }
    connections
}
