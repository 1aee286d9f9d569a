//! What to compare, as it is said on the command line.

use std::fmt;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Parser, ValueEnum};

use crate::peers::{PEERS, Peer};

/// Compare stores, their floors and other libraries on real servers.
#[derive(Parser, Clone, Debug)]
#[command(name = "compare", version)]
pub(crate) struct Options {
    /// The stores to compare
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "memory,file,redis,redis-quorum,etcd,postgres,zk"
    )]
    pub(crate) store: Vec<Store>,

    /// The scenarios to run: all of them, or with --quick uncontended,names,processes,crowd,crash,churn,held,claims, if none
    /// is named
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    scenario: Vec<Scenario>,

    /// The other libraries to compare with: all, none, or a list of names. With --quick, all are those without a
    /// virtual machine or an interpreter
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all", value_parser = peers())]
    pub(crate) peers: Vec<String>,

    /// A server to use instead of one that is started for the comparison, such as
    /// redis=redis://10.0.0.1:6379. Floors and other libraries leave small entries there
    #[arg(long, value_name = "STORE=URL", value_parser = given)]
    pub(crate) url: Vec<(Store, String)>,

    /// How many servers etcd and ZooKeeper are started with, each beside the others on this machine
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = members)]
    pub(crate) members: usize,

    /// Under three minutes: fewer scenarios, libraries and contenders, three short runs of each
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,

    /// Longer runs, up to a thousand sessions and a million held locks, and what is slow to start everywhere
    #[arg(long)]
    pub(crate) full: bool,

    /// Where report.json, report.html and report.txt go; the servers keep their data on this file system
    #[arg(long, value_name = "DIR", default_value = "target/comparison")]
    pub(crate) out: PathBuf,

    /// Measure nothing: write report.html and report.txt anew from the report.json in --out
    #[arg(long)]
    pub(crate) redraw: bool,

    /// Print the report as JSON instead of one screen of it
    #[arg(long)]
    pub(crate) json: bool,

    /// Print every table, as report.txt has them
    #[arg(long, conflicts_with = "json")]
    pub(crate) tables: bool,

    /// Exit with 1 if any lock was violated, a budget is missed, or more than a tenth of the budgets are undecided
    #[arg(long)]
    pub(crate) strict: bool,
}

/// A store.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Store {
    /// In the process itself.
    Memory,
    /// A directory of one host.
    File,
    /// A Redis server.
    Redis,
    /// Three Redis servers, of which a majority decides.
    RedisQuorum,
    /// A Redis server that sentinels watch, and its replica. Only if it is named.
    RedisSentinel,
    /// A Redis Cluster. Only if it is named.
    RedisCluster,
    /// An etcd cluster.
    Etcd,
    /// A PostgreSQL server.
    Postgres,
    /// A ZooKeeper ensemble.
    Zk,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(self, f)
    }
}

/// A question that is put to every implementation.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Scenario {
    /// What taking and releasing a free lock costs.
    Uncontended,
    /// The same with servers a millisecond away.
    Distance,
    /// How fast a lock passes between two processes.
    HandOff,
    /// Many tasks of one process on one lock.
    Tasks,
    /// Many locks at a time by one client, on a runtime of one thread and on tokio's default one.
    Names,
    /// Many processes on one lock.
    Processes,
    /// From a few to hundreds in one process, each with a session of its own: how rate and cost change.
    Crowd,
    /// In which order eight processes are served, and how long the longest waits.
    Fairness,
    /// How long until the next one holds after a holder was killed.
    Crash,
    /// Clients that increment a number which only the lock protects.
    Counter,
    /// Locks that several hold: readers, permits, and what becomes of those.
    Kinds,
    /// Names that are wanted once each, ten thousand a second; in the full mode.
    Churn,
    /// What it costs to hold ten thousand locks. The servers are busy with their end for a while.
    Held,
    /// A namespace moves from Redis to etcd while processes want its locks; on servers of its own.
    Move,
    /// Published claims and our own budgets, as experiments.
    Claims,
}

impl Scenario {
    /// Whether it is run on each store by itself.
    pub(crate) fn is_of_a_store(self) -> bool {
        !matches!(self, Self::Held | Self::Move | Self::Claims)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(self, f)
    }
}

/// As the report calls many names on one client, by the runtime that it has.
pub(crate) const ONE_THREAD: &str = "names";
pub(crate) const ON_THREADS: &str = "names on the default runtime";
pub(crate) const IN_BLOCK_ON: &str = "names on the default runtime, in block_on";

/// As the command line and the report call it.
fn write_name(value: &impl ValueEnum, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    value.to_possible_value().map_or(Err(fmt::Error), |value| f.write_str(value.get_name()))
}

/// A server that runs already: `STORE=URL`.
fn given(text: &str) -> Result<(Store, String), String> {
    let split = text.split_once('=').filter(|(store, _)| !store.contains("://"));
    let (store, url) = split.ok_or("write STORE=URL, such as redis=redis://10.0.0.1:6379")?;
    if !url.contains("://") {
        return Err(format!("{url:?} is no URL; write it with its scheme, such as redis://10.0.0.1:6379"));
    }
    Ok((Store::from_str(store, false)?, url.to_owned()))
}

/// One, or so many that a majority is more than half: three.
fn members(text: &str) -> Result<usize, String> {
    [1, 3].into_iter().find(|count| count.to_string() == text).ok_or_else(|| "either 1 or 3".to_owned())
}

impl Options {
    /// Which scenarios there are, in the order in which they are run: claims come last, as some are answered by the results
    /// of the others.
    pub(crate) fn scenarios(&self) -> Vec<Scenario> {
        let passed_over = self.passed_over();
        let all = Scenario::value_variants().iter().copied();
        all.filter(|scenario| match &self.scenario[..] {
            [] => !passed_over.contains(scenario),
            named => named.contains(scenario),
        })
        .collect()
    }

    /// What a quick look does without, unless it is named.
    pub(crate) fn passed_over(&self) -> &'static [Scenario] {
        if self.quick && self.scenario.is_empty() { &PASSED_OVER } else { &[] }
    }

    /// Whether `peer` is wanted. What is slow to start is not for a quick look, and cold it would show nothing of itself.
    pub(crate) fn wants(&self, peer: &Peer) -> bool {
        let named = |name: &str| self.peers.iter().any(|named| named == name);
        named(peer.name) || (named("all") && !(self.quick && peer.is_heavy))
    }

    /// The server to use for `store`, if one was given.
    pub(crate) fn given(&self, store: Store) -> Option<&str> {
        self.url.iter().find(|(given, _)| *given == store).map(|(_, url)| url.as_str())
    }
}

/// By a quick look.
const PASSED_OVER: [Scenario; 7] = [
    Scenario::Distance,
    Scenario::HandOff,
    Scenario::Tasks,
    Scenario::Fairness,
    Scenario::Counter,
    Scenario::Kinds,
    Scenario::Move,
];

/// What `--peers` may name.
fn peers() -> PossibleValuesParser {
    ["all", "none"].into_iter().chain(PEERS.iter().map(|peer| peer.name)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(std::iter::once("compare").chain(line.split_whitespace()))
    }

    /// Without a word everything is compared, but for fleets.
    #[test]
    fn the_default_is_everything() {
        let options = parse("").unwrap();
        let is_fleet = |store: &Store| [Store::RedisSentinel, Store::RedisCluster].contains(store);
        let stores: Vec<_> =
            Store::value_variants().iter().copied().filter(|store| !is_fleet(store)).collect();
        assert_eq!(options.store, stores);
        assert_eq!(options.scenarios(), Scenario::value_variants());
        assert!(PEERS.iter().all(|peer| options.wants(peer)));
        assert_eq!(options.passed_over(), []);
    }

    /// A quick look does without what takes long, unless it is named, and help says which scenarios are left.
    #[test]
    fn a_quick_look_passes_over_what_is_not_named() {
        let options = parse("--quick").unwrap();
        let left: Vec<_> = options.scenarios().iter().map(ToString::to_string).collect();
        let help = <Options as clap::CommandFactory>::command().render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(&format!("with --quick {}, if none is named", left.join(","))), "{left:?}");
        let all = options.scenarios().len() + options.passed_over().len();
        assert_eq!(all, Scenario::value_variants().len(), "nothing is forgotten");
        assert!(PEERS.iter().all(|peer| options.wants(peer) != peer.is_heavy));

        let named = parse("--quick --scenario claims,kinds,distance,kinds --peers curator,rslock").unwrap();
        assert_eq!(named.scenarios(), [Scenario::Distance, Scenario::Kinds, Scenario::Claims]);
        assert_eq!(named.passed_over(), []);
        let wanted: Vec<_> = PEERS.iter().filter(|peer| named.wants(peer)).map(|peer| peer.name).collect();
        assert_eq!(wanted, ["rslock", "curator"]);
    }

    /// What cannot be is refused with a sentence that says what could.
    #[test]
    fn nonsense_is_refused() {
        let refusal = |line| parse(line).unwrap_err().to_string();
        assert!(refusal("--peers rslok").contains("rslock"));
        assert!(refusal("--url redis:6379").contains("STORE=URL"));
        assert!(refusal("--url redis=localhost").contains("scheme"));
        assert!(refusal("--store mysql").contains("redis"));
        assert!(refusal("--members 2").contains("either 1 or 3"));
        assert!(refusal("--quick --full").contains("cannot be used"));
        assert_eq!(parse("--peers rslock,kazoo").unwrap().peers, ["rslock", "kazoo"]);
        assert_eq!(parse("--store redis,zk").unwrap().store, [Store::Redis, Store::Zk]);
    }
}
