//! Reserves loopback ports for servers whose port must be known before they start.
//!
//! A [`Port`] keeps a socket bound to its port, with `SO_REUSEADDR`, that never listens. Linux then
//! gives the port to no socket that asks for any port: neither a bind to port 0 nor an outgoing
//! connection. A socket that names the port and sets `SO_REUSEADDR` may still listen on it, as
//! every server we start does, and so do std and tokio. So the reservation stays in place while the
//! server runs, and while it is down between two runs; there is no gap for another test to slip in.
//!
//! # Invariants
//! - **testbed.ports-1** While a `Port` lives, no other `Port`, in this process or another, has its number.
//! - **testbed.ports-2** While no server listens on it, connecting is refused.
//!
//! Not promised: protection from a program that names the same number by itself; anything for a
//! server without `SO_REUSEADDR`; UDP.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A TCP port on 127.0.0.1, reserved until dropped.
#[derive(Debug)]
pub struct Port {
    _guard: TcpSocket,
    addr: SocketAddr,
}

impl Port {
    /// Reserves a port that was free.
    pub fn reserve() -> io::Result<Self> {
        let guard = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let addr = guard.local_addr()?;
        Ok(Self { _guard: guard, addr })
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
    pub fn listen(&self) -> io::Result<TcpListener> {
        bind(self.addr)?.listen(BACKLOG)
    }
}

/// Sends a question, and reads until the answer ends with its connection.
pub(crate) async fn ask(addr: SocketAddr, question: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(question.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
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
    use std::net::TcpStream;

    use super::*;

    /// What bind(0) and outgoing connections go by: to a socket that does not ask for sharing, the
    /// port is in use, until it is released.
    #[test]
    fn foreign_socket_cannot_have_a_reserved_port() {
        let port = Port::reserve().unwrap();
        let addr = port.addr();

        let foreign = TcpSocket::new_v4().unwrap();
        let refused = foreign.bind(addr).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);

        drop(port);
        foreign.bind(addr).unwrap();
    }

    /// testbed.ports-2: a reservation does not look like a server that hangs.
    #[test]
    fn connecting_to_a_reserved_port_is_refused() {
        let port = Port::reserve().unwrap();

        let refused = TcpStream::connect(port.addr()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
