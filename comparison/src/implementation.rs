//! Who takes part on a store: our library, its floor, the libraries of others.

use std::env;
use std::path::Path;

use leasehold::Guarantees;
use testbed::Launch;

use crate::error::{Error, Result};
use crate::options::{Options, Scenario, Store};
use crate::peers::{PEERS, Peer};
use crate::servers::places;
use crate::worker;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Implementation {
    Ours,
    /// The least that a free lock can ask.
    Floor,
    /// The least that a lock with a queue can ask: it waits and hands over.
    QueueFloor,
    /// Our own scripts on Redis, sent raw.
    Scripts,
    /// One of those before, on tokio's default runtime.
    OnThreads(&'static Self),
    Peer(Peer),
    /// A library of others with a mutex of the process in front, as its users would write.
    Fronted(Peer),
    /// What is no lock, and must be found out.
    Broken(Broken),
}

/// How it is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Everybody holds at once.
    Null,
    /// Two may hold at once.
    Twice,
    /// Readers hold beside a writer.
    Beside,
    /// Permits are a number that goes down and up, whoever they were given to.
    Leaky,
}

impl Broken {
    pub(crate) const ALL: [Self; 4] = [Self::Null, Self::Twice, Self::Beside, Self::Leaky];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Twice => "twice",
            Self::Beside => "beside",
            Self::Leaky => "leaky",
        }
    }
}

impl Implementation {
    /// Everyone who may take part on `store`, of the libraries of others those that are wanted.
    pub(crate) fn of(store: Store, options: &Options) -> Vec<Self> {
        let floors = match store {
            Store::Memory => &[][..],
            // Servers that know nothing of each other have no queue in common.
            Store::RedisQuorum => &[Self::Floor],
            Store::Redis => &[Self::Floor, Self::QueueFloor, Self::Scripts],
            _ => &[Self::Floor, Self::QueueFloor],
        };
        let others = PEERS.iter().filter(|peer| peer.stores.contains(&store) && options.wants(peer));
        let others = others.copied().map(Self::Peer);
        [Self::Ours].into_iter().chain(floors.iter().copied()).chain(others).collect()
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ours => "leasehold",
            Self::Floor => "floor",
            Self::QueueFloor => QUEUE_FLOOR,
            Self::Scripts => SCRIPTS,
            Self::OnThreads(who) => who.name(),
            Self::Peer(peer) => peer.name,
            Self::Fronted(peer) => peer.fronted.unwrap_or(peer.name),
            Self::Broken(how) => how.name(),
        }
    }

    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Self::Ours | Self::OnThreads(Self::Ours))
    }

    /// The same on tokio's default runtime, of those that want many names at a time.
    pub(crate) fn on_threads(&self) -> Option<Self> {
        match self {
            Self::Ours => Some(Self::OnThreads(&Self::Ours)),
            Self::Floor => Some(Self::OnThreads(&Self::Floor)),
            Self::Scripts => Some(Self::OnThreads(&Self::Scripts)),
            _ => None,
        }
    }

    pub(crate) fn is_on_threads(&self) -> bool {
        matches!(self, Self::OnThreads(_))
    }

    pub(crate) fn is_floor(&self) -> bool {
        self.name().starts_with("floor")
    }

    /// Which locks it has that several hold; `ours` is what our store promises.
    pub(crate) fn kinds(&self, ours: Guarantees) -> Guarantees {
        let known = match self {
            Self::Ours => ours,
            Self::Peer(peer) => peer.kinds,
            _ => Guarantees::empty(),
        };
        known & (Guarantees::SHARED | Guarantees::PERMITS)
    }

    /// Whether it is asked at all there: some have no lock that one holds alone.
    pub(crate) fn takes_part_in(&self, scenario: Scenario) -> bool {
        scenario == Scenario::Kinds || !matches!(self, Self::Peer(peer) if !peer.excludes)
    }

    /// The same with a mutex in front, if its program has one.
    pub(crate) fn fronted(&self) -> Option<Self> {
        match self {
            Self::Peer(peer) if peer.fronted.is_some() => Some(Self::Fronted(*peer)),
            _ => None,
        }
    }

    /// Whether contenders of a session go through a mutex first.
    pub(crate) fn is_fronted(&self) -> bool {
        matches!(self, Self::Fronted(_))
    }

    /// Whether it is slow to start, or takes much memory for a process.
    pub(crate) fn is_heavy(&self) -> bool {
        matches!(self, Self::Peer(peer) | Self::Fronted(peer) if peer.is_heavy)
    }

    /// With how many contenders it takes part at most.
    pub(crate) fn most_contenders(&self) -> u64 {
        match self {
            Self::Floor => 1,
            Self::Peer(peer) | Self::Fronted(peer) => peer.contenders,
            _ => u64::MAX,
        }
    }

    /// How a process of it is started, on the stores at `urls`.
    pub(crate) fn launch(&self, urls: &[String], room: &Path) -> Result<Launch> {
        let launch = match self {
            Self::Peer(peer) | Self::Fronted(peer) => {
                let program = peer.program().map_err(Error::new)?;
                Launch::new(program, room).args([peer.name]).args(urls.iter().flat_map(|url| places(url)))
            }
            _ => {
                let program = env::current_exe().map_err(Error::during("looking for this program"))?;
                let runtime = if self.is_on_threads() { worker::ON_THREADS } else { worker::ON_ONE };
                let role = format!("{runtime} {} {}", self.name(), urls.join(" "));
                Launch::new(program, room).env(worker::ROLE, role)
            }
        };
        Ok(launch.piped_lines())
    }
}

/// As the report calls it.
pub(crate) const QUEUE_FLOOR: &str = "floor+queue";

/// And our own scripts without our library.
pub(crate) const SCRIPTS: &str = "floor+scripts";
