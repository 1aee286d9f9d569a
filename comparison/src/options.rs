//! What to compare, as it is said on the command line.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};

/// What to compare, how long, and where to put the report.
#[derive(Args, Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The stores to compare
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "memory,file,redis,etcd,zk"
    )]
    pub store: Vec<Store>,

    /// The scenarios to run
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "uncontended,hand-off,tasks,processes,herd,fairness,crash,counter,held,claims"
    )]
    pub scenario: Vec<Scenario>,

    /// The other libraries to compare with: all, none, or a list of names
    #[arg(long, value_name = "all|none|LIST", default_value = "all")]
    pub peers: PeerChoice,

    /// A server to use instead of one that is started for the comparison, such as
    /// redis=redis://10.0.0.1:6379. Floors and other libraries leave small entries there
    #[arg(long, value_name = "STORE=URL", value_parser = given)]
    pub url: Vec<String>,

    /// Also compare on a second set of servers that keep their data in memory
    #[arg(long)]
    pub tmpfs: bool,

    /// Under three minutes: fewer contenders, one short run of each
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,

    /// More and longer runs, more contenders, and what is slow to start in processes of its own
    #[arg(long)]
    pub full: bool,

    /// Where report.json and report.html go; the servers keep their data on this file system
    #[arg(long, value_name = "DIR", default_value = "target/comparison")]
    pub out: PathBuf,

    /// Print the report as JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// A store.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "these are the stores")]
pub enum Store {
    /// In the process itself.
    Memory,
    /// A directory of one host.
    File,
    /// A Redis server.
    Redis,
    /// An etcd cluster.
    Etcd,
    /// A ZooKeeper ensemble.
    Zk,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::File => "file",
            Self::Redis => "redis",
            Self::Etcd => "etcd",
            Self::Zk => "zk",
        })
    }
}

/// A question that is put to every implementation.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Scenario {
    /// What taking and releasing a free lock costs.
    Uncontended,
    /// How fast a lock passes between two processes.
    HandOff,
    /// Many tasks of one process on one lock.
    Tasks,
    /// Many processes on one lock.
    Processes,
    /// What a release costs when many wait, each with a session of its own.
    Herd,
    /// In which order eight processes are served, and how long the longest waits.
    Fairness,
    /// How long until the next one holds after a holder was killed.
    Crash,
    /// Clients that increment a number which only the lock protects.
    Counter,
    /// What it costs to hold ten thousand locks. The servers are busy with their end for a while.
    Held,
    /// Published claims and our own budgets, as experiments.
    Claims,
}

impl Scenario {
    /// As the report calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Uncontended => "uncontended",
            Self::HandOff => "hand-off",
            Self::Tasks => "tasks",
            Self::Processes => "processes",
            Self::Herd => "herd",
            Self::Fairness => "fairness",
            Self::Crash => "crash",
            Self::Held => "held",
            Self::Counter => "counter",
            Self::Claims => "claims",
        }
    }
}

/// Which other libraries take part.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerChoice {
    /// Everyone whose program and runtime are there.
    All,
    /// Nobody.
    None,
    /// Those with these names.
    Named(Vec<String>),
}

impl PeerChoice {
    pub(crate) fn includes(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Named(names) => names.iter().any(|named| named == name),
        }
    }
}

impl FromStr for PeerChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || crate::peers::PEERS.iter().map(|peer| peer.name);
        match text {
            "all" => Ok(Self::All),
            "none" => Ok(Self::None),
            list => {
                let names: Vec<_> = list.split(',').map(str::to_owned).collect();
                match names.iter().find(|name| !known().any(|known| known == name.as_str())) {
                    None => Ok(Self::Named(names)),
                    Some(stranger) => Err(format!(
                        "no peer is called {stranger:?}; there are {}",
                        known().collect::<Vec<_>>().join(", ")
                    )),
                }
            }
        }
    }
}

/// A server that runs already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) store: Store,
    pub(crate) url: String,
}

impl FromStr for Given {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = text.split_once('=').filter(|(store, _)| !store.contains("://"));
        let (store, url) = split.ok_or("write STORE=URL, such as redis=redis://10.0.0.1:6379")?;
        let store = Store::from_str(store, false)?;
        if !url.contains("://") {
            return Err(format!(
                "{url:?} is no URL; write it with its scheme, such as redis://10.0.0.1:6379"
            ));
        }
        Ok(Self { store, url: url.to_owned() })
    }
}

fn given(text: &str) -> Result<String, String> {
    text.parse::<Given>().map(|_given| text.to_owned())
}

impl Options {
    /// The server to use for `store`, if one was given. What is no `STORE=URL` here was not said to the
    /// comparison: a command around it may have an option of the same name.
    pub(crate) fn given(&self, store: Store) -> Option<Given> {
        let given = self.url.iter().filter_map(|text| text.parse::<Given>().ok());
        given.into_iter().find(|given| given.store == store)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn parse(line: &str) -> Result<Options, clap::Error> {
        let words = std::iter::once("compare").chain(line.split_whitespace());
        Command::try_parse_from(words).map(|command| command.options)
    }

    /// Without a word everything is compared.
    #[test]
    fn the_default_is_everything() {
        let options = parse("").unwrap();
        assert_eq!(options.store, Store::value_variants());
        assert_eq!(options.scenario, Scenario::value_variants());
        assert_eq!(options.peers, PeerChoice::All);
    }

    /// Every name of the report is the word that selects it.
    #[test]
    fn scenarios_are_called_alike_everywhere() {
        for scenario in Scenario::value_variants() {
            assert_eq!(scenario.to_possible_value().unwrap().get_name(), scenario.name());
        }
        for store in Store::value_variants() {
            assert_eq!(store.to_possible_value().unwrap().get_name(), store.to_string());
        }
    }

    /// What cannot be is refused with a sentence that says what could.
    #[test]
    fn nonsense_is_refused() {
        let refusal = |line| parse(line).unwrap_err().to_string();
        assert!(refusal("--peers rslok").contains("rslock"));
        assert!(refusal("--url redis:6379").contains("STORE=URL"));
        assert!(refusal("--url redis=localhost").contains("scheme"));
        assert!(refusal("--store mysql").contains("redis"));
        assert!(refusal("--quick --full").contains("cannot be used"));
        assert_eq!(
            parse("--peers rslock,kazoo").unwrap().peers,
            PeerChoice::Named(vec!["rslock".into(), "kazoo".into()])
        );
        assert_eq!(parse("--store redis,zk").unwrap().store, [Store::Redis, Store::Zk]);
    }

    /// A command around it may have options of the same names for all of its commands.
    #[test]
    fn a_command_around_it_may_have_the_same_options() {
        #[derive(Parser)]
        struct Around {
            #[arg(long, global = true)]
            json: bool,
            #[arg(long, global = true)]
            url: Option<String>,
            #[command(subcommand)]
            command: Inner,
        }

        #[derive(clap::Subcommand)]
        enum Inner {
            Compare(Options),
        }

        let line = ["leasehold", "--url", "redis://h", "compare", "--json"];
        let Around { json, command: Inner::Compare(options), .. } = Around::try_parse_from(line).unwrap();
        assert!(json && options.json && options.given(Store::Redis).is_none());

        let line = ["leasehold", "compare", "--url", "redis=redis://h", "--url", "etcd=etcd://h"];
        let Around { url, command: Inner::Compare(options), .. } = Around::try_parse_from(line).unwrap();
        assert!(url.is_some(), "the outer option sees it, too");
        assert_eq!(options.given(Store::Etcd).unwrap().url, "etcd://h");
    }
}
