//! A server on another machine, simulated by a delay in both directions.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// Delay in each direction.
const WAY: Duration = Duration::from_millis(1);

/// Adds the delay to the server at `port`, and returns the port at which the delayed server is
/// reached. The threads that carry the bytes end with their connections.
pub fn moved_away(port: u16) -> io::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let away = listener.local_addr()?.port();
    spawn(move || {
        for near in listener.incoming() {
            let far = TcpStream::connect(("127.0.0.1", port))?;
            let near = near?;
            carry(near.try_clone()?, far.try_clone()?)?;
            carry(far, near)?;
        }
        io::Result::Ok(())
    });
    Ok(away)
}

fn carry(mut from: TcpStream, mut to: TcpStream) -> io::Result<()> {
    to.set_nodelay(true)?;
    let (sent, underway) = mpsc::channel::<(Instant, Vec<u8>)>();
    spawn(move || {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            if sent.send((Instant::now() + WAY, bytes[..length].to_vec())).is_err() {
                return;
            }
        }
    });
    spawn(move || {
        for (due, bytes) in underway {
            sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
        // Fails when the connection is closed already, which does not matter.
        let _ = to.shutdown(Shutdown::Both);
    });
    Ok(())
}
