//! A proxy that can give clients that reconnect a new session, as some servers of the same protocol do.

use std::net::SocketAddr;

use testbed::Port;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(crate) struct Switch {
    addr: SocketAddr,
    forgets: watch::Sender<bool>,
    _port: Port,
    _acceptor: JoinSet<()>,
}

impl Switch {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let port = Port::reserve().unwrap();
        let listener = port.listen().unwrap();
        let forgets = watch::Sender::new(false);
        let turns = forgets.subscribe();
        let mut acceptor = JoinSet::new();
        acceptor.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                connections.spawn(serve(client, to, turns.clone()));
            }
        });
        Self { addr: port.addr(), forgets, _port: port, _acceptor: acceptor }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Breaks all connections; a client that reconnects gets a new session.
    pub(crate) fn forget_sessions(&self) {
        self.forgets.send_replace(true);
    }
}

/// Ends with either side, or at the next turn.
async fn serve(mut client: TcpStream, to: SocketAddr, mut turns: watch::Receiver<bool>) {
    let forgets = *turns.borrow_and_update();
    let carried = async {
        let mut server = TcpStream::connect(to).await?;
        if forgets {
            let length = client.read_u32().await?;
            let mut hello = vec![0; length as usize];
            client.read_exact(&mut hello).await?;
            // The session's id, and after the length of it its password.
            hello[16..24].fill(0);
            hello[28..44].fill(0);
            server.write_u32(length).await?;
            server.write_all(&hello).await?;
        }
        tokio::io::copy_bidirectional(&mut client, &mut server).await
    };
    tokio::select! {
        _ended = carried => {}
        _turned = turns.changed() => {}
    }
}
