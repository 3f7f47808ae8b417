//! Ports that no two tests have, in however many processes they run.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the range of ports the system gives to outgoing connections, so that a server that is
/// down for a moment gets its port back.
const FIRST: u16 = 20_000;
const PORTS: u16 = 6_000;

/// A port of 127.0.0.1 that is no other test's for as long as this lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Of the port so many further on: whoever looks for a port tries this one first.
    _claim: TcpListener,
}

impl Port {
    /// One that is free.
    pub(crate) fn free() -> Port {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // Test processes that run at once start at different places.
        let start = std::process::id() % u32::from(PORTS) * 37;
        loop {
            let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
            let number = FIRST + ((start + step) % u32::from(PORTS)) as u16;
            let Ok(claim) = TcpListener::bind(("127.0.0.1", number + PORTS)) else { continue };
            if TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Port { number, _claim: claim };
            }
        }
    }

    /// What it is called in an address.
    pub fn number(&self) -> u16 {
        self.number
    }
}
