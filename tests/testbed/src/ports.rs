//! Reserves loopback ports for servers that have to be told theirs before they start.
//!
//! A [`Port`] keeps a socket bound to its port, with `SO_REUSEADDR`, that never listens. Linux then
//! gives the port to nobody who asks for just any port: neither a bind to port 0 nor an outgoing
//! connection. A socket that names the port and sets `SO_REUSEADDR` may still listen on it, as
//! every server we start does, and so do std and tokio. So the reservation stays in place while the
//! server runs, and while it is down between two runs; there is no gap for another test to slip in.
//!
//! # Invariants
//! - **testbed.ports-1** While a `Port` lives, no other `Port`, in this process or another, has its number.
//! - **testbed.ports-2** While nobody listens on it, connecting is refused.
//!
//! Not promised: protection from a program that names the same number by itself; anything for a
//! server without `SO_REUSEADDR`, which needs [`Port::release`] first and races from then on; UDP.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use tokio::net::{TcpListener, TcpSocket};

/// A TCP port on 127.0.0.1, reserved until dropped.
#[derive(Debug)]
pub struct Port {
    guard: TcpSocket,
    addr: SocketAddr,
}

impl Port {
    /// Reserves a port that was free.
    ///
    /// # Errors
    ///
    /// When the system has no port or no file descriptor left.
    pub fn reserve() -> io::Result<Self> {
        let guard = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let addr = guard.local_addr()?;
        Ok(Self { guard, addr })
    }

    /// The address a server is told to listen on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The port's number alone.
    pub fn number(&self) -> u16 {
        self.addr.port()
    }

    /// Listens on the port; closing the listener leaves the reservation as it was.
    ///
    /// # Errors
    ///
    /// When somebody listens there already.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn listen(&self) -> io::Result<TcpListener> {
        bind(self.addr)?.listen(BACKLOG)
    }

    /// Gives the reservation up, for a server that does not set `SO_REUSEADDR`. From here on
    /// anybody may be given the port.
    pub fn release(self) -> u16 {
        drop(self.guard);
        self.addr.port()
    }
}

fn bind(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

/// What std uses, too.
const BACKLOG: u32 = 128;

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, net::TcpStream};

    use super::*;

    /// testbed.ports-1 within one process.
    #[test]
    fn reserved_ports_are_distinct() {
        let ports: Vec<Port> = (0..500).map(|_| Port::reserve().unwrap()).collect();

        let numbers: HashSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
    }

    /// A server starts, and starts again, on a port that stays reserved throughout.
    #[test]
    fn a_server_listens_while_the_reservation_holds() {
        let port = Port::reserve().unwrap();

        for _run in 0..2 {
            let server = std::net::TcpListener::bind(port.addr()).unwrap();
            let _client = TcpStream::connect(port.addr()).unwrap();
            server.accept().unwrap();
        }
    }

    /// What bind(0) and outgoing connections go by: to a socket that does not ask for sharing, the
    /// port is in use, until it is released.
    #[test]
    fn a_stranger_cannot_have_the_port_until_it_is_released() {
        let port = Port::reserve().unwrap();
        let addr = port.addr();

        let stranger = TcpSocket::new_v4().unwrap();
        let refused = stranger.bind(addr).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);

        port.release();
        stranger.bind(addr).unwrap();
    }

    /// testbed.ports-2: a reservation does not look like a server that hangs.
    #[test]
    fn connecting_to_a_reserved_port_is_refused() {
        let port = Port::reserve().unwrap();

        let refused = TcpStream::connect(port.addr()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
