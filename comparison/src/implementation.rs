//! Who takes part on a store: our library, its floor, the libraries of others.

use std::env;
use std::path::Path;

use testbed::Launch;

use crate::error::{Error, Result};
use crate::options::Store;
use crate::peers::{PEERS, Peer};
use crate::worker;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Implementation {
    Ours,
    Floor,
    Peer(Peer),
}

impl Implementation {
    /// Everyone who may take part on `store`; `peers` are names, or `all`.
    pub(crate) fn of(store: Store, peers: &[String]) -> Vec<Self> {
        let chosen = |peer: &&Peer| peers.iter().any(|name| name == "all" || name == peer.name);
        let floor = (store != Store::Memory).then_some(Self::Floor);
        let others = PEERS.iter().filter(|peer| peer.store == store).filter(chosen);
        let others = others.copied().map(Self::Peer);
        [Self::Ours].into_iter().chain(floor).chain(others).collect()
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ours => "leasehold",
            Self::Floor => "floor",
            Self::Peer(peer) => peer.name,
        }
    }

    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Self::Ours)
    }

    pub(crate) fn is_floor(&self) -> bool {
        matches!(self, Self::Floor)
    }

    /// Whether it is slow to start, or takes much memory for a process.
    pub(crate) fn is_heavy(&self) -> bool {
        matches!(self, Self::Peer(peer) if peer.is_heavy)
    }

    /// In how many processes it takes part at most.
    pub(crate) fn most_processes(&self) -> usize {
        match self {
            Self::Ours => usize::MAX,
            Self::Floor => 1,
            Self::Peer(peer) if peer.is_heavy => 8,
            Self::Peer(_) => 16,
        }
    }

    /// With how many contenders it takes part at most. A floor does not wait.
    pub(crate) fn most_contenders(&self) -> u64 {
        match self {
            Self::Ours => u64::MAX,
            Self::Floor => 1,
            Self::Peer(peer) => peer.contenders,
        }
    }

    /// How a process of it is started, on the stores at `urls`.
    pub(crate) fn launch(&self, urls: &[String], room: &Path) -> Result<Launch> {
        let launch = match self {
            Self::Ours | Self::Floor => {
                let program = env::current_exe().map_err(Error::during("looking for this program"))?;
                let role = format!("{} {}", self.name(), urls.join(" "));
                Launch::new(program, room).env(worker::ROLE, role)
            }
            Self::Peer(peer) => {
                let program = peer.program().map_err(Error::new)?;
                // What follows are options of our own stores.
                let places = urls.iter().map(|url| url.split('?').next().unwrap_or_default());
                Launch::new(program, room).args([peer.name]).args(places)
            }
        };
        Ok(launch.piped_lines())
    }
}
