//! How a process opens a connection.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use lockmacro_runtime::simulation::{Opening, Stream};
use tokio::time::{sleep, timeout};

use crate::processes::sim::sim;
use crate::processes::stream::StreamOf;

/// How long a system tries to open a connection to a machine that is silent.
const OPENING_MAX: Duration = Duration::from_secs(20);

/// Opens a connection.
pub(crate) fn open(address: &str) -> Opening {
    let host = address.strip_prefix('s').and_then(|rest| rest.split(':').next());
    let host: Option<usize> = host.and_then(|nth| nth.parse().ok());
    Box::pin(async move {
        let process = sim().current().expect("a process opens it").nth;
        let opened = timeout(OPENING_MAX, reach(process, host)).await;
        opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    })
}

/// Opens a connection to a host, or to the primary.
async fn reach(process: usize, host: Option<usize>) -> io::Result<Pin<Box<dyn Stream>>> {
    let primary = || sim().network.replicas.primary.get();
    // There and back.
    for _ in 0..2 {
        let delay = {
            let sim = sim();
            let host = host.unwrap_or_else(primary);
            let until = sim.network.blocked_until(process, host).saturating_sub(sim.now());
            until.max(sim.network.delay())
        };
        sleep(delay).await;
    }
    let host = host.unwrap_or_else(primary);
    let nth = sim().network.accept(process, host)?;
    trace!("#{nth} to s{host}");
    Ok(Box::pin(StreamOf::new(nth)))
}
