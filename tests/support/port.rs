//! Ports that nobody else gets, in this process or another.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::{LazyLock, Mutex};

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

/// A port of 127.0.0.1 that is kept, also while the server that listens there is down.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _socket: OwnedFd,
}

impl Port {
    /// One of the system's choice, which this process has not had before: a client of an earlier
    /// server may still try to connect there. Nothing listens there yet.
    pub(crate) fn any() -> Port {
        static HAD: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);
        loop {
            let port = Port::free();
            if HAD.lock().expect("no panic").insert(port.number) {
                return port;
            }
        }
    }

    fn free() -> Port {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
        let socket = socket.expect("a socket");
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        // Set after the port was given: a process that asks for any port does not get this one, and
        // a server that asks for it by its number does, unless another one listens there.
        set_socket_reuseaddr(&socket, true).expect("a port that can be used");
        let address = getsockname(&socket).expect("a bound address");
        let address = SocketAddrV4::try_from(address).expect("an address as it was asked for");
        Port { number: address.port(), _socket: socket }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}
