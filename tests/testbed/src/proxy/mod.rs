//! A TCP proxy on loopback that breaks the network on command.
//!
//! Clients connect to [`Proxy::addr`]; each connection gets its own to the upstream server and two
//! pumps, one per [`Direction`], that carry frames across. A [`Mode`] per direction decides about
//! each frame. It may change at any time, and what an earlier mode kept back is not lost: the new
//! one decides about it.
//!
//! # Invariants
//! - **testbed.proxy-1** A control call that has returned is in force on every live connection, and a mode on
//!   every later one. A call that is cancelled while it waits comes into force nonetheless, soon.
//! - **testbed.proxy-2** Bytes stay in order and, but for `DropFrames` and `CorruptNext`, unchanged.
//! - **testbed.proxy-3** A pump holds about 64 KiB at most and then stops reading, so that the sender feels the
//!   receiver's pace, or the fault.
//! - **testbed.proxy-4** Dropping the proxy ends the listener and all connections, once the runtime gets to it.
//!
//! Not promised: lost packets, which TCP repairs (loss is delay here); a failing handshake, as the
//! kernel completes it before we know (see [`Proxy::refuse_new`]). A panic in a predicate or framer
//! ends its connection and is printed, but fails no test. Checked by `tests/tools/proxy/`.

mod accept;
mod mode;
mod pump;
mod registry;
mod timer;
mod traffic;

use std::{convert::Infallible, fmt, io, net::SocketAddr, sync::Arc};

use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};

use crate::Port;
use accept::{Acceptor, Door};
use registry::{Order, Shared};

pub use mode::{Corruption, Mode, Predicate};
pub use traffic::{Direction, Traffic};

/// A running proxy. Every mode starts as [`Mode::Pass`].
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    doors: mpsc::UnboundedSender<(Door, oneshot::Sender<io::Result<()>>)>,
    /// The one task that accepts; it owns the tasks of the connections.
    _acceptor: JoinSet<()>,
}

impl Proxy {
    /// Starts a proxy to `upstream`. A frame is whatever one read returns.
    pub fn start(upstream: SocketAddr) -> io::Result<Self> {
        Self::start_framed(upstream, |bytes| Some(bytes.len()))
    }

    /// As [`start`](Self::start), but a frame is what `framer` says, in both directions: given the
    /// bytes that follow the last frame (never none), the length of the frame they begin with, or
    /// `None` if it is not complete. Only complete frames are carried across. A frame that outgrows
    /// the buffer or is cut off by the end of the stream counts as complete.
    pub fn start_framed(
        upstream: SocketAddr,
        framer: impl Fn(&[u8]) -> Option<usize> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::start_to([upstream; 2], framer)
    }

    /// Starts a proxy that sends the first connection, and every second one from there, to `first`, the others to `second`.
    pub fn start_between(first: SocketAddr, second: SocketAddr) -> io::Result<Self> {
        Self::start_to([first, second], |bytes| Some(bytes.len()))
    }

    fn start_to(
        upstreams: [SocketAddr; 2],
        framer: impl Fn(&[u8]) -> Option<usize> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let port = Port::reserve()?;
        let addr = port.addr();
        let shared = Arc::new(Shared::new(upstreams, Box::new(framer)));
        let (doors, knocks) = mpsc::unbounded_channel();
        let acceptor = Acceptor::new(port, Arc::clone(&shared))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(acceptor.run(knocks));
        Ok(Self { addr, shared, doors, _acceptor: tasks })
    }

    /// Leads to another server from now on; resets all live connections.
    pub async fn lead_to(&self, upstream: SocketAddr) {
        self.shared.registry.send_modify(|registry| registry.upstreams = [upstream; 2]);
        self.reset().await;
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sets the mode of one direction.
    pub async fn set(&self, direction: Direction, mode: Mode) {
        self.order(&[direction], Order::Set(mode)).await;
    }

    /// Sets the mode of both directions.
    pub async fn set_both(&self, mode: Mode) {
        self.order(&Direction::BOTH, Order::Set(mode)).await;
    }

    /// Lets the frames go that are held or delayed in `direction` now. Later ones, and the end of
    /// the stream, are kept back as before; in a blackhole nothing moves all the same.
    pub async fn release_held(&self, direction: Direction) {
        self.order(&[direction], Order::Release).await;
    }

    /// Closes all live connections. Both sides see the end of the stream (a reset, if they had sent
    /// what the proxy did not read); what was kept back is lost.
    pub async fn close(&self) {
        self.end(Order::Close).await;
    }

    /// Resets all live connections (RST on both sides); what was kept back is lost.
    pub async fn reset(&self) {
        self.end(Order::Reset).await;
    }

    /// Refuses new connections, as if no server ran. Live ones go on, and so do those that were
    /// accepted and are not counted yet.
    pub async fn refuse_new(&self) -> io::Result<()> {
        self.turn(Door::Closed).await
    }

    /// Accepts new connections again, on the same port.
    pub async fn accept_new(&self) -> io::Result<()> {
        self.turn(Door::Open).await
    }

    /// How many connections are live: accepted and connected to the upstream server. A client that
    /// has just connected may not be counted yet.
    pub fn connections(&self) -> usize {
        self.shared.registry.borrow().live.len()
    }

    /// Waits until at least `count` connections are live.
    pub async fn connected(&self, count: usize) {
        reach(&self.shared.registry, |registry| registry.live.len() >= count).await;
    }

    /// Waits until no connection is live.
    pub async fn idle(&self) {
        reach(&self.shared.registry, |registry| registry.live.is_empty()).await;
    }

    /// What has happened in `direction`.
    pub fn traffic(&self, direction: Direction) -> Traffic {
        *self.shared.traffic[direction as usize].borrow()
    }

    /// Waits until at least `bytes` bytes, since the start, were handed to the receivers.
    pub async fn forwarded(&self, direction: Direction, bytes: u64) {
        let traffic = &self.shared.traffic[direction as usize];
        reach(traffic, |traffic| traffic.forwarded >= bytes).await;
    }

    /// Waits until at least `frames` frames are held by [`Mode::Hold`] at once.
    pub async fn held(&self, direction: Direction, frames: usize) {
        let traffic = &self.shared.traffic[direction as usize];
        reach(traffic, |traffic| traffic.held >= frames).await;
    }

    /// Waits until at least `frames` frames, since the start, were dropped.
    pub async fn dropped(&self, direction: Direction, frames: u64) {
        let traffic = &self.shared.traffic[direction as usize];
        reach(traffic, |traffic| traffic.dropped >= frames).await;
    }

    /// Sends an order to the pumps and waits until each has carried it out or has ended. Returns
    /// whose pumps they were.
    async fn order(&self, directions: &[Direction], order: Order) -> Vec<u64> {
        let (done, mut carried_out) = mpsc::channel::<Infallible>(1);
        let mut connections = Vec::new();
        // RACE: in the lock that connections enter by, so that each one either starts with the new
        // mode or is sent the order.
        self.shared.registry.send_modify(|registry| {
            for &direction in directions {
                registry.send(direction, &order, &done);
            }
            connections.extend(registry.live.keys());
        });
        drop(done);
        // Nothing is ever sent: this returns when the last pump has dropped its `done`.
        carried_out.recv().await;
        connections
    }

    async fn end(&self, order: Order) {
        let ending = self.order(&Direction::BOTH, order).await;
        reach(&self.shared.registry, |registry| !ending.iter().any(|id| registry.live.contains_key(id)))
            .await;
    }

    async fn turn(&self, door: Door) -> io::Result<()> {
        let (reply, turned) = oneshot::channel();
        let sent = self.doors.send((door, reply));
        sent.map_err(|_ended| io::Error::other("the proxy cannot accept any more"))?;
        turned.await.map_err(io::Error::other)?
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("addr", &self.addr)
            .field("upstreams", &self.shared.registry.borrow().upstreams)
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}

async fn reach<T: Send + Sync>(state: &watch::Sender<T>, reached: impl FnMut(&T) -> bool + Send) {
    let mut watcher = state.subscribe();
    let value = watcher.wait_for(reached).await;
    debug_assert!(value.is_ok(), "the proxy owns the sender");
}
