//! Who takes part on a store: our library, its floor, the libraries of others.

use std::env;
use std::path::Path;

use leasehold::Guarantees;
use testbed::Launch;

use crate::error::{Error, Result};
use crate::options::{IN_BLOCK_ON, ON_THREADS, ONE_THREAD, Options, Scenario, Store};
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
    /// Our own scripts on Redis, or functions on Postgres, sent raw.
    Scripts,
    /// Our own calls of the kernel on files, made bare.
    Calls,
    /// The floor of releases that wait for the disk, where ours do not by default, and ours when they do.
    DurableFloor,
    Durable,
    Peer(Peer),
    /// One of those before on tokio's default runtime.
    Threaded(&'static Self),
    ThreadedPeer(Peer),
    /// And not in a task there, but in what its `block_on` polls.
    InBlockOn(&'static Self),
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
            // Servers that know nothing of each other have no queue in common. Of a fleet the floor shows what the way costs.
            Store::RedisQuorum | Store::RedisSentinel | Store::RedisCluster => &[Self::Floor],
            Store::Redis => &[Self::Floor, Self::QueueFloor, Self::Scripts],
            Store::Postgres => &[Self::Floor, Self::Scripts, Self::DurableFloor, Self::Durable],
            Store::File => &[Self::Floor, Self::QueueFloor, Self::Calls],
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
            Self::Calls => CALLS,
            Self::DurableFloor => DURABLE_FLOOR,
            Self::Durable => DURABLE,
            Self::Threaded(who) | Self::InBlockOn(who) => who.name(),
            Self::Peer(peer) | Self::ThreadedPeer(peer) => peer.name,
            Self::Fronted(peer) => peer.fronted.unwrap_or(peer.name),
            Self::Broken(how) => how.name(),
        }
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.name() == "leasehold"
    }

    /// The same in all ways that many names are wanted at a time; nothing, of those that know no such contest.
    pub(crate) fn of_names(&self, names: u64) -> Vec<Self> {
        let who = match self {
            Self::Ours => &Self::Ours,
            Self::Floor => &Self::Floor,
            Self::Scripts => &Self::Scripts,
            Self::Peer(peer) if peer.knows_names() => return vec![*self, Self::ThreadedPeer(*peer)],
            _ => return Vec::new(),
        };
        let all = [*who, Self::Threaded(who), Self::InBlockOn(who)];
        all.into_iter().take(if names == 1 { 3 } else { 2 }).collect()
    }

    /// As the report calls many names on its runtime.
    fn names_on(&self) -> &'static str {
        match self {
            Self::Threaded(_) | Self::ThreadedPeer(_) => ON_THREADS,
            Self::InBlockOn(_) => IN_BLOCK_ON,
            _ => ONE_THREAD,
        }
    }

    /// As the report calls a scenario that it takes part in.
    pub(crate) fn calls(&self, scenario: Scenario) -> String {
        if scenario == Scenario::Names { self.names_on().to_owned() } else { scenario.to_string() }
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
        match self {
            Self::Calls | Self::DurableFloor | Self::Durable => scenario == Scenario::Uncontended,
            Self::Peer(peer) => scenario == Scenario::Kinds || peer.excludes,
            _ => true,
        }
    }

    /// The same with a mutex in front, if its program has one.
    pub(crate) fn fronted(&self) -> Option<Self> {
        match self {
            Self::Peer(peer) if peer.fronted.is_some() => Some(Self::Fronted(*peer)),
            _ => None,
        }
    }

    /// The protocol's word for how it goes for locks in a scenario, if not each by itself for the same lock.
    pub(crate) fn way(&self, scenario: Scenario) -> Option<&'static str> {
        match self {
            Self::Fronted(_) => Some("mutex"),
            Self::InBlockOn(_) => Some("block_on"),
            _ => (scenario == Scenario::Names).then_some("names"),
        }
    }

    /// Whether it is slow to start, or takes much memory for a process.
    pub(crate) fn is_heavy(&self) -> bool {
        matches!(self, Self::Peer(peer) | Self::Fronted(peer) if peer.is_heavy)
    }

    /// With how many contenders it takes part at most.
    pub(crate) fn most_contenders(&self) -> u64 {
        match self {
            Self::Floor | Self::Calls | Self::DurableFloor => 1,
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
            Self::ThreadedPeer(peer) => Self::Peer(*peer).launch(urls, room)?,
            _ => {
                let program = env::current_exe().map_err(Error::during("looking for this program"))?;
                let role = format!("{} {}", self.name(), urls.join(" "));
                Launch::new(program, room).env(worker::ROLE, role)
            }
        };
        let on_threads = self.names_on() != ONE_THREAD;
        let launch = if on_threads { launch.env(contender_protocol::ON_THREADS, "1") } else { launch };
        Ok(launch.piped_lines())
    }
}

/// As the report calls it.
pub(crate) const QUEUE_FLOOR: &str = "floor+queue";

/// And our own scripts without our library.
pub(crate) const SCRIPTS: &str = "floor+scripts";

/// And our own calls of the kernel.
pub(crate) const CALLS: &str = "floor+calls";

/// And where a release waits for the disk.
pub(crate) const DURABLE_FLOOR: &str = "floor+durable";
pub(crate) const DURABLE: &str = "leasehold+durable";
