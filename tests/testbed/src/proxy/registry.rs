//! The connections, and the orders to their pumps.
//!
//! # Invariants
//! - **testbed.registry-1** A connection enters with the modes of that instant and is sent every later order: both
//!   happen inside the registry's one lock (testbed.proxy-1).
//! - **testbed.registry-2** A connection leaves when its sockets are closed, whatever ended it.

use std::{collections::BTreeMap, convert::Infallible, net::SocketAddr, sync::Arc};

use tokio::sync::{mpsc, watch};

use super::{
    mode::Mode,
    traffic::{Direction, Traffic},
};

/// Says where the first frame ends; see [`Proxy::start_framed`](super::Proxy::start_framed).
pub(super) type Framer = dyn Fn(&[u8]) -> Option<usize> + Send + Sync;

/// Dropped once an order is carried out.
pub(super) type Done = mpsc::Sender<Infallible>;

pub(super) type Orders = mpsc::UnboundedReceiver<(Order, Done)>;

/// An order to a pump.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Close,
    Release,
    Reset,
    Set(Mode),
}

/// What the proxy's handle and all its tasks have in common.
pub(super) struct Shared {
    pub(super) framer: Box<Framer>,
    pub(super) registry: watch::Sender<Registry>,
    pub(super) traffic: [watch::Sender<Traffic>; 2],
}

impl Shared {
    pub(super) fn new(upstreams: [SocketAddr; 2], framer: Box<Framer>) -> Self {
        Self {
            framer,
            registry: watch::Sender::new(Registry {
                upstreams,
                modes: [Mode::Pass, Mode::Pass],
                live: BTreeMap::new(),
                entered: 0,
            }),
            traffic: Default::default(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Registry {
    /// Connections go to them in turn.
    pub(super) upstreams: [SocketAddr; 2],
    modes: [Mode; 2],
    pub(super) live: BTreeMap<u64, [mpsc::UnboundedSender<(Order, Done)>; 2]>,
    entered: u64,
}

impl Registry {
    pub(super) fn send(&mut self, direction: Direction, order: &Order, done: &Done) {
        if let Order::Set(mode) = order {
            self.modes[direction as usize] = mode.clone();
        }
        for pumps in self.live.values() {
            // A pump that has ended has nothing to carry out.
            let _ended = pumps[direction as usize].send((order.clone(), done.clone()));
        }
    }
}

/// A connection's entry, removed when dropped.
pub(super) struct Entry {
    shared: Arc<Shared>,
    id: u64,
}

impl Entry {
    /// Enters a connection; returns what its two pumps start with.
    pub(super) fn new(shared: Arc<Shared>) -> (Self, [(Mode, Orders); 2]) {
        let (to_up, up) = mpsc::unbounded_channel();
        let (to_down, down) = mpsc::unbounded_channel();
        let mut entered = None;
        shared.registry.send_modify(|registry| {
            registry.entered += 1;
            registry.live.insert(registry.entered, [to_up, to_down]);
            entered = Some((registry.entered, registry.modes.clone()));
        });
        let (id, [up_mode, down_mode]) = entered.expect("send_modify has run");
        (Self { shared, id }, [(up_mode, up), (down_mode, down)])
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.shared.registry.send_modify(|registry| {
            registry.live.remove(&self.id);
        });
    }
}
