//! The network between the nodes of etcd.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// The way to one node, on a runtime of its own. It knows from which other node a connection
/// comes, because nodes say so in their requests.
pub(crate) struct Partition {
    address: SocketAddr,
    cuts: watch::Sender<Cuts>,
    runtime: Option<Runtime>,
}

/// From whom nothing is let through.
#[derive(Default, Clone)]
struct Cuts {
    all: bool,
    from: HashSet<String>,
}

impl Partition {
    /// A way to `127.0.0.1:port` that lets everything through.
    pub(crate) fn to(port: u16) -> Partition {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port for a network");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let address = listener.local_addr().expect("a bound address");
        let cuts = watch::Sender::new(Cuts::default());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("partition")
            .enable_all()
            .build()
            .expect("a runtime for a network");
        runtime.spawn(serve(listener, port, cuts.subscribe()));
        Partition { address, cuts, runtime: Some(runtime) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Cuts all connections, or no longer.
    pub(crate) fn cut_all(&self, is_cut: bool) {
        self.cuts.send_modify(|cuts| cuts.all = is_cut);
    }

    /// Cuts those that come from the node with this number, or no longer.
    pub(crate) fn cut_from(&self, id: &str, is_cut: bool) {
        self.cuts.send_modify(|cuts| {
            if is_cut {
                cuts.from.insert(id.to_owned())
            } else {
                cuts.from.remove(id)
            };
        });
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(
    listener: std::net::TcpListener,
    port: u16,
    cuts: watch::Receiver<Cuts>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (client, _) = listener.accept().await?;
        tokio::spawn(connect(client, port, cuts.clone()));
    }
}

async fn connect(
    mut client: TcpStream,
    port: u16,
    mut cuts: watch::Receiver<Cuts>,
) -> io::Result<()> {
    let mut head = vec![0; 8 * 1024];
    let length = client.read(&mut head).await?;
    head.truncate(length);
    let text = String::from_utf8_lossy(&head);
    let from = text.lines().find_map(|line| line.strip_prefix("X-Server-From: "));
    let from = from.unwrap_or_default().trim().to_owned();
    let is_cut = move |cuts: &Cuts| cuts.all || cuts.from.contains(&from);
    if is_cut(&cuts.borrow()) {
        return Ok(());
    }
    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    server.write_all(&head).await?;
    tokio::select! {
        _ = cuts.wait_for(is_cut) => Ok(()),
        end = copy_bidirectional(&mut client, &mut server) => end.map(drop),
    }
}
