//! Locks in etcd: a free one, and a hot key, beside etcd's own lock service, Redis and PostgreSQL.
//!
//! The lock service is asked through etcd's HTTP gateway, with a connection and a lease for each
//! task, which it needs only once.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use lockmacro_etcd::EtcdOptions;
use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::{Etcd, Postgres, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Failure;
use crate::measure::Spread;

const TTL: Duration = Duration::from_secs(30);
/// Free pairs of one kind in one round.
const PAIRS: u32 = 100;
const TASKS: usize = 8;
const LASTS: Duration = Duration::from_millis(1_000);
/// `hot` and `free` in base 64.
const HOT: &str = "aG90";
const FREE: &str = "ZnJlZQ==";

/// A connection to etcd's lock service.
struct Service {
    node: TcpStream,
    lease: String,
}

impl Service {
    async fn connect(port: u16) -> Result<Self, Failure> {
        let node = TcpStream::connect(("127.0.0.1", port)).await?;
        node.set_nodelay(true)?;
        let mut this = Self { node, lease: String::new() };
        let granted = this.ask("/v3/lease/grant", "{\"TTL\": 60}").await?;
        this.lease = field(&granted, "ID")?.to_owned();
        Ok(this)
    }

    /// Acquires a lock and releases it.
    async fn pair(&mut self, name: &str) -> Result<(), Failure> {
        let ask = format!("{{\"name\": \"{name}\", \"lease\": {}}}", self.lease);
        let locked = self.ask("/v3/lock/lock", &ask).await?;
        let release = format!("{{\"key\": \"{}\"}}", field(&locked, "key")?);
        self.ask("/v3/lock/unlock", &release).await.map(drop)
    }

    async fn ask(&mut self, path: &str, body: &str) -> Result<String, Failure> {
        let length = body.len();
        let ask = format!("POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {length}\r\n\r\n");
        self.node.write_all(format!("{ask}{body}").as_bytes()).await?;
        let (mut answer, mut bytes) = (Vec::new(), [0; 4096]);
        loop {
            let length = self.node.read(&mut bytes).await?;
            answer.extend_from_slice(&bytes[..length]);
            let text = std::str::from_utf8(&answer)?;
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                if length.ok_or("no length")?.parse::<usize>()? == body.len() {
                    return Ok(body.to_owned());
                }
            }
            if length == 0 {
                return Err("the connection has ended".into());
            }
        }
    }
}

/// A text in a flat map of JSON.
fn field<'a>(answer: &'a str, name: &str) -> Result<&'a str, Failure> {
    let (_, value) = answer.split_once(&format!("\"{name}\":\"")).ok_or(answer)?;
    Ok(value.split('"').next().unwrap_or_default())
}

/// What is measured.
enum Kind {
    Ours(LockManager),
    Service(u16),
}

impl Kind {
    /// Milliseconds of a free pair.
    async fn free(&self) -> Result<f64, Failure> {
        let mut times = Vec::new();
        let mut service = match self {
            Kind::Ours(_) => None,
            Kind::Service(port) => Some(Service::connect(*port).await?),
        };
        for nth in 0..PAIRS {
            let began = Instant::now();
            match (self, &mut service) {
                (Kind::Ours(locks), _) => {
                    let lock = Lock::new(format!("bench:free:{nth}")).ttl(TTL).manager(locks);
                    lock.run(async { Ok::<_, LockError>(()) }).await?;
                }
                (Kind::Service(_), Some(service)) => service.pair(FREE).await?,
                (Kind::Service(_), None) => unreachable!("it was connected"),
            }
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        Ok(Spread::of(times).median)
    }

    /// Bodies a second of some tasks that all want one key.
    async fn hot(&self) -> Result<f64, Failure> {
        let mut tasks = Vec::new();
        let until = Instant::now() + LASTS;
        for _ in 0..TASKS {
            match self {
                Kind::Ours(locks) => {
                    let lock = Lock::new("bench:hot").ttl(TTL).wait_forever().manager(locks);
                    tasks.push(tokio::spawn(async move {
                        let mut bodies = 0_u32;
                        while Instant::now() < until {
                            lock.clone().run(async { Ok::<_, LockError>(()) }).await?;
                            bodies += 1;
                        }
                        Ok::<_, Failure>(bodies)
                    }));
                }
                Kind::Service(port) => {
                    let mut service = Service::connect(*port).await?;
                    tasks.push(tokio::spawn(async move {
                        let mut bodies = 0_u32;
                        while Instant::now() < until {
                            service.pair(HOT).await?;
                            bodies += 1;
                        }
                        Ok::<_, Failure>(bodies)
                    }));
                }
            }
        }
        let bodies: Result<Vec<_>, _> = try_join_all(tasks).await?.into_iter().collect();
        Ok(f64::from(bodies?.into_iter().sum::<u32>()) / LASTS.as_secs_f64())
    }
}

pub async fn run(rounds: u32) -> Result<(), Failure> {
    let one = Etcd::start().await;
    let three = Etcd::cluster().await;
    let redis = Server::start();
    let postgres = Postgres::start().await;
    let etcd =
        async |etcd: &Etcd| lockmacro_etcd::connect(etcd.endpoints(), EtcdOptions::default()).await;
    let kinds = [
        ("lockmacro, etcd with one node", Kind::Ours(etcd(&one).await?)),
        ("lockmacro, etcd with three nodes", Kind::Ours(etcd(&three).await?)),
        ("`v3lock` of etcd, one node", Kind::Service(one.port(0))),
        ("`v3lock` of etcd, three nodes", Kind::Service(three.port(0))),
        ("lockmacro, Redis", Kind::Ours(LockManager::connect(&redis.url()).await?)),
        ("lockmacro, PostgreSQL", Kind::Ours(LockManager::connect(&postgres.url()).await?)),
    ];
    let mut free = [const { Vec::new() }; 6];
    let mut hot = [const { Vec::new() }; 6];
    for _ in 0..rounds {
        for (nth, (_, kind)) in kinds.iter().enumerate() {
            free[nth].push(kind.free().await?);
            hot[nth].push(kind.hot().await?);
        }
    }
    println!("\n| | ms a free pair | bodies/s, {TASKS} tasks of one key | × `v3lock`, one node |");
    println!("|:--|---:|---:|---:|");
    for (nth, (name, _)) in kinds.iter().enumerate() {
        let ratio = Spread::of(hot[nth].iter().zip(&hot[2]).map(|(of, to)| of / to));
        let bodies = Spread::of(hot[nth].iter().copied()).median;
        println!("| {name} | {} | {bodies:.0} | {ratio} |", Spread::of(free[nth].clone()));
    }
    Ok(())
}
