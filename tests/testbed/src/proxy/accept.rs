//! Accepts clients, connects each to the upstream server and runs its two pumps.

use std::{future, io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use super::{
    pump::{Cut, Pump},
    registry::{Entry, Shared},
    traffic::Direction,
};
use crate::{BOUND, Port, pass, within};

/// How long a process takes to run its program.
const A_MOMENT: Duration = Duration::from_millis(1);

/// Whether new connections are accepted.
#[derive(Debug)]
pub(super) enum Door {
    Closed,
    Open,
}

pub(super) struct Acceptor {
    port: Port,
    /// None while the door is closed. The kernel refuses clients then, and the reservation keeps
    /// the port.
    listener: Option<TcpListener>,
    shared: Arc<Shared>,
    accepted: usize,
    connections: JoinSet<()>,
}

impl Acceptor {
    pub(super) fn new(port: Port, shared: Arc<Shared>) -> io::Result<Self> {
        Ok(Self { listener: Some(port.listen()?), port, shared, accepted: 0, connections: JoinSet::new() })
    }

    pub(super) async fn run(
        mut self,
        mut doors: mpsc::UnboundedReceiver<(Door, oneshot::Sender<io::Result<()>>)>,
    ) {
        loop {
            tokio::select! {
                biased;
                knock = doors.recv() => {
                    let Some((door, reply)) = knock else { return };
                    // The caller may have gone; it is done all the same.
                    let _gone = reply.send(self.turn(door).await);
                }
                Some(_ended) = self.connections.join_next() => {}
                accepted = accept(self.listener.as_ref()) => {
                    let client = accepted.expect("a loopback listener accepts");
                    let upstream = self.shared.registry.borrow().upstreams[self.accepted % 2];
                    self.accepted += 1;
                    self.connections.spawn(serve(client, upstream, Arc::clone(&self.shared)));
                }
            }
        }
    }

    async fn turn(&mut self, door: Door) -> io::Result<()> {
        match door {
            Door::Closed => self.listener = None,
            Door::Open => {
                let opened = within(BOUND, "nobody else listens there", async {
                    while self.listener.is_none() {
                        match self.port.listen() {
                            // RACE: a process that another test starts has our sockets until it runs its
                            // program: the listener that was closed may live on in there.
                            Err(error) if error.kind() == io::ErrorKind::AddrInUse => pass(A_MOMENT).await,
                            listener => self.listener = Some(listener?),
                        }
                    }
                    Ok::<_, io::Error>(())
                });
                opened.await?;
            }
        }
        Ok(())
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => Ok(listener.accept().await?.0),
        None => future::pending().await,
    }
}

async fn serve(mut client: TcpStream, upstream: SocketAddr, shared: Arc<Shared>) {
    let Ok(mut server) = TcpStream::connect(upstream).await else {
        reset(&client);
        return;
    };
    for socket in [&client, &server] {
        socket.set_nodelay(true).expect("a fresh TCP socket");
    }

    let (entry, [up, down]) = Entry::new(Arc::clone(&shared));
    // RACE: it was led elsewhere before this connection entered, and was reset with all others.
    if !shared.registry.borrow().upstreams.contains(&upstream) {
        reset(&client);
        return;
    }
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let up = Pump::new(Direction::ClientToServer, from_client, to_server, up, &shared);
    let down = Pump::new(Direction::ServerToClient, from_server, to_client, down, &shared);
    if let Err(Cut::Reset) = tokio::try_join!(up.run(), down.run()) {
        reset(&client);
        reset(&server);
    }
    // INVARIANT(testbed.registry-2): a connection leaves after its sockets are closed.
    drop((client, server));
    drop(entry);
}

/// Makes the close to come a reset.
fn reset(socket: &TcpStream) {
    socket.set_zero_linger().expect("an open TCP socket");
}
