//! What can be said on the command line.

use std::ffi::OsString;
#[cfg(feature = "metrics")]
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use clap_complete::Shell;
#[cfg(feature = "migrate")]
use leasehold::migrate::Phase;
use leasehold::{FencingToken, Guarantees, Mode};

/// Locks that hold across processes and hosts: one command on every store.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version = VERSION.as_str(), max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Write results and errors as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Tell on standard error what happens to the lock; twice, everything. RUST_LOG says it finer.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Say nothing but errors on standard error.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the locks are.
#[derive(Args, Debug)]
pub(crate) struct Store {
    /// The store: file:///DIR, redis://HOST, etcd://HOST,HOST, zk://HOST,HOST, with its options.
    /// Without it, that of LEASEHOLD_URL; without that, a directory of the user on this host. A URL
    /// with a password is better given in a file or in the environment, where other users do not see it.
    #[arg(long, global = true, value_name = "URL", conflicts_with = "url_file")]
    pub(crate) url: Option<String>,
    /// Read the URL from a file.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) url_file: Option<PathBuf>,
    /// Refuse a store that does not promise this: fenced, fifo, leased, cross_process, cross_host,
    /// survives_failover, survives_restart, … (`doctor` lists them).
    #[arg(long, global = true, env = "LEASEHOLD_REQUIRE", value_name = "FLAG,FLAG",
          value_delimiter = ',', value_parser = promise)]
    pub(crate) require: Vec<Guarantees>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Hold a lock while a command runs.
    #[command(after_help = RUN_HELP)]
    Run(Run),
    /// Hold a lock until standard input closes or a signal comes; one JSON line per change.
    #[command(after_help = HOLD_HELP)]
    Hold(Hold),
    /// Show who holds a lock and how many wait.
    Inspect {
        /// The lock.
        name: String,
        /// Answer by the exit code: 0 held, 1 free.
        #[arg(long)]
        exit_code: bool,
    },
    /// List the locks that are held or waited for.
    Ls {
        /// Only names that begin with this.
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Tell who holds a lock, and again whenever that has changed, until a signal comes; one JSON line each.
    #[command(after_help = WATCH_HELP)]
    Watch {
        /// The lock.
        name: String,
    },
    /// Ask the holder of a lock to give it up, or take it away.
    #[command(after_help = REVOKE_HELP)]
    Revoke(Revoke),
    /// Check the store: what is guaranteed there, and what breaks a guarantee.
    #[command(after_help = DOCTOR_HELP)]
    Doctor {
        /// Say of this lock, too, who holds it, and under which key it is kept if other libraries share it.
        #[arg(long)]
        name: Option<String>,
    },
    /// Load the scripts of the Redis store into the server, for users who may not bring them.
    #[cfg(feature = "redis")]
    #[command(after_help = REDIS_SCRIPTS_HELP)]
    RedisScripts,
    /// Show or raise what the namespace adds to its tokens, so that they grow across a change of store.
    #[command(after_help = TOKEN_BASE_HELP)]
    TokenBase {
        #[command(subcommand)]
        action: TokenBase,
    },
    /// Move the locks to another store while they are in use, as --url says by `migrate_to`.
    #[cfg(feature = "migrate")]
    #[command(after_help = MIGRATE_HELP)]
    Migrate {
        #[command(subcommand)]
        action: Migrate,
    },
    /// Compare stores, their floors and other libraries on real servers, in a checkout of the sources.
    #[command(after_help = COMPARE_HELP)]
    Compare(Compare),
    /// Write completions for a shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

/// How a lock is waited for and held.
#[derive(Args, Debug)]
pub(crate) struct Terms {
    /// Wait at most this long: `30s`, `1m30s`, or seconds as a number. That covers a store that is not
    /// there yet. Default: without end for the lock, not at all for the store (see `connect_wait`).
    #[arg(short, long, visible_alias = "timeout", value_name = "D", value_parser = leasehold::span)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: give up at once if the lock is held.
    #[arg(short = 'n', long = "try", visible_alias = "nonblock", conflicts_with = "wait")]
    pub(crate) attempt: bool,
    /// Exit with this code instead of 75 when the lock is not granted in time.
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Share the lock with all who do, as readers, on stores that promise `shared`.
    #[arg(short, long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Take W of C permits of the lock, such as 2/8, on stores that promise `permits`; 1/1 is the
    /// exclusive lock. Where holders disagree on C, the smallest counts.
    #[arg(long, value_name = "W/C", value_parser = permits)]
    pub(crate) permits: Option<Mode>,
    /// How long the lock outlives its holder, on stores with leases. Default: the URL's, or 15s.
    #[arg(long, value_name = "D", value_parser = leasehold::span)]
    pub(crate) ttl: Option<Duration>,
    /// Hold the lock for this long at most, then stop and exit with 76.
    #[arg(long, value_name = "D", value_parser = leasehold::span)]
    pub(crate) max_hold: Option<Duration>,
    /// What others see as holder. Default: the URL's, or the host's name and the process id.
    #[arg(long, value_name = "LABEL")]
    pub(crate) owner: Option<String>,
    /// A text that `inspect` shows while the lock is held.
    #[arg(long, value_name = "TEXT")]
    pub(crate) metadata: Option<String>,
    /// Serve metrics for Prometheus there, such as 127.0.0.1:9187; without a password.
    #[cfg(feature = "metrics")]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) metrics_addr: Option<SocketAddr>,
}

impl Terms {
    /// How the lock is to be held.
    pub(crate) fn mode(&self) -> Mode {
        if self.shared { Mode::SHARED } else { self.permits.unwrap_or_default() }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// Release the lock when CMD itself has ended, although processes it started still run.
    #[arg(long)]
    pub(crate) leave_running: bool,
    /// Send SIGKILL this long after CMD was asked to end, by a signal to us or by --max-hold.
    /// Default: 10s after --max-hold, else never.
    #[arg(long, value_name = "D", value_parser = leasehold::span)]
    pub(crate) kill_after: Option<Duration>,
    /// Do not let CMD know the store's URL: it finds `hidden:` as LEASEHOLD_URL, which every
    /// `leasehold` refuses.
    #[arg(long)]
    pub(crate) hide_url: bool,
    /// Hold every lock that is named, or none; taken in the order of their names.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// The lock; with --all, the locks.
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// The command, and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Hold {
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// Hold until a signal, whatever standard input is.
    #[arg(long)]
    pub(crate) ignore_stdin: bool,
    /// The lock.
    pub(crate) name: String,
}

#[derive(Args, Debug)]
pub(crate) struct Revoke {
    /// Let the holder go on for this long, to finish its work: `30s`, `5m`.
    #[arg(long, value_name = "D", default_value = "0s", hide_default_value = true, value_parser = leasehold::span)]
    pub(crate) grace: Duration,
    /// Take the lock away without the holder's consent.
    #[arg(long, conflicts_with = "grace")]
    pub(crate) force: bool,
    /// Do not ask before taking it away.
    #[arg(long, requires = "force")]
    pub(crate) yes: bool,
    /// The lock.
    pub(crate) name: String,
}

/// What the comparison is told. A URL has another meaning there than for the other commands.
#[derive(Args, Debug)]
pub(crate) struct Compare {
    /// A server to compare on instead of one that is started, such as redis=redis://10.0.0.1:6379; may be
    /// repeated.
    #[arg(long, value_name = "STORE=URL")]
    pub(crate) url: Vec<String>,
    /// What else the comparison is told, such as --quick or --store redis,etcd.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub(crate) options: Vec<OsString>,
}

/// An address and a port; a name such as `localhost` is looked up.
#[cfg(feature = "metrics")]
fn address(text: &str) -> Result<SocketAddr, String> {
    let found =
        text.to_socket_addrs().map_err(|error| format!("not an address such as 127.0.0.1:9187: {error}"))?;
    found.into_iter().next().ok_or_else(|| "no address of that name".to_owned())
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenBase {
    /// Show the base, what the store's own numbers begin at, and how many other sessions live.
    Get,
    /// Raise the base, if need be, so that every later token is larger than one.
    Set {
        /// The largest token that a resource has seen: what `inspect` shows at the store that is left.
        #[arg(long, value_name = "TOKEN", value_parser = token)]
        at_least: FencingToken,
        /// Do it although the store cannot tell whether other sessions live, which grant smaller tokens
        /// until they end.
        #[arg(long)]
        yes: bool,
    },
}

#[cfg(feature = "migrate")]
#[derive(Debug, Subcommand)]
pub(crate) enum Migrate {
    /// Show how far the move is, who takes part, what comes next and what stands in its way.
    Status,
    /// Go on toward the new store: one phase, or up to one.
    Advance {
        #[command(flatten)]
        steps: Steps,
        /// How long `drain` must have lasted without a foreign client in the old store before `new` begins.
        #[arg(long, value_name = "D", default_value = "24h", value_parser = leasehold::span)]
        quiet_for: Duration,
    },
    /// Go back toward the old store: one phase, or down to one.
    Rollback {
        #[command(flatten)]
        steps: Steps,
    },
    /// Write the records anew after a store has lost its data, or is dead for good. Everything must be stopped.
    Repair {
        /// Everything that uses these locks is stopped, and a store that cannot be reached is dead for good.
        #[arg(long)]
        yes: bool,
        /// Wait at most this long for a store that cannot be reached, before it is taken for dead.
        #[arg(long, value_name = "D", default_value = "30s", value_parser = leasehold::span)]
        wait: Duration,
    },
    /// End a move that has come to `new`, or back to `old`, when no process takes part any more.
    Clean {
        /// The old store is to be used for other locks from now on: it does not refuse URLs without
        /// `migrate_to` any more.
        #[arg(long)]
        old: bool,
    },
}

/// How far, and how long that may take.
#[cfg(feature = "migrate")]
#[derive(Args, Debug)]
pub(crate) struct Steps {
    /// The phase to go to: old, shadow, both, drain or new. Default: the next one.
    #[arg(long, value_name = "PHASE", value_parser = phase)]
    pub(crate) to: Option<Phase>,
    /// Wait at most this long for processes that lag, and for stores that cannot be reached.
    #[arg(long, value_name = "D", default_value = "30s", value_parser = leasehold::span)]
    pub(crate) wait: Duration,
    /// Go on although so many sessions without `migrate_to` are seen: you know that they take no locks.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) strangers: usize,
}

#[cfg(feature = "migrate")]
fn phase(text: &str) -> Result<Phase, String> {
    let known = || Phase::ALL.map(Phase::word).join(", ");
    Phase::of_word(text).ok_or_else(|| format!("no phase of that name; known: {}", known()))
}

fn permits(text: &str) -> Result<Mode, String> {
    let numbers = text.split_once('/').and_then(|(weight, capacity)| {
        let number = |text: &str| text.parse::<u32>().ok();
        Some((number(weight)?, number(capacity)?))
    });
    let (weight, capacity) =
        numbers.ok_or("not a share of permits such as 2/8: two whole numbers below 2^32")?;
    Mode::permits(weight, capacity).map_err(|error| error.to_string())
}

fn token(text: &str) -> Result<FencingToken, String> {
    let number = text.parse::<u64>().ok();
    let token = number.and_then(|number| {
        let index = u16::try_from(number & u64::from(FencingToken::MAX_INDEX)).ok()?;
        FencingToken::new(number >> FencingToken::INDEX_BITS, index)
    });
    token.ok_or_else(|| "not a token: a whole number below 2^63".to_owned())
}

/// A promise by its name in lower case; none of an empty variable.
fn promise(text: &str) -> Result<Guarantees, String> {
    if text.is_empty() {
        return Ok(Guarantees::empty());
    }
    let named = Guarantees::from_name(&text.to_ascii_uppercase());
    named.ok_or_else(|| format!("no promise of that name; known: {}", promises(Guarantees::all())))
}

/// Promises as they are said on the command line.
pub(crate) fn promises(flags: Guarantees) -> String {
    let names: Vec<_> = flags.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.join(", ")
}

/// The version, and the stores of this build.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let registry = crate::store::registry();
    let stores: Vec<_> = registry.schemes().filter(|scheme| *scheme != "memory").collect();
    format!("{}\nstores: {}", env!("CARGO_PKG_VERSION"), stores.join(", "))
});

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    doctor: something breaks a guarantee; revoke: nobody held the lock; inspect --exit-code: free
  64   the command line, the URL or the lock's name is wrong, or the store lacks what is required
  69   the store is unavailable
  70   the store answered what it never should
  71   the system refused something
  75   the lock was not granted in time; revoke: the holder did not answer
  76   the lock was lost, or the command was stopped because it was about to be, or by --max-hold
  77   the store denies access
  128+n  ended by signal n while waiting
`run` ends as its command does: its exit code, 128+n if signal n ended it, 126 if it cannot be
run, 127 if it is not found.";

const RUN_HELP: &str = "\
CMD finds LEASEHOLD_NAME, LEASEHOLD_TOKEN and LEASEHOLD_HELD in its environment; with --all instead of the first two
LEASEHOLD_TOKENS, with a line NAME TOKEN for each lock. It runs in a process group of its own. When a renewal is overdue, or somebody asks for the lock (`revoke --grace`), the group gets SIGTERM,
and SIGKILL before anybody else can hold the lock; when the lock is lost, SIGKILL at once. The lock is released when the whole group has ended.

Exit codes: CMD's own; 75 busy or timed out, 76 lost, 69 store unavailable, 64 usage, 77 access
denied, 126 and 127 CMD cannot be run or is not found, 128+n ended by signal n.

Example:
  leasehold run --wait 30s backup -- pg_dump -f /backup/db.sql mydb
  leasehold run --all account/7 account/9 -- ./transfer";

const HOLD_HELP: &str = "\
A line is {\"state\":\"waiting|held|at_risk|asked|lost|released\",\"name\",\"token\",\"remaining_ms\"}; a line that
says lost has a \"reason\".

Exit codes: 0 released, 75 busy or timed out, 76 lost, 69 store unavailable, 64 usage, 77 access
denied, 128+n ended by signal n while waiting.";

const WATCH_HELP: &str = "\
The first line is the state by now. A line is what `inspect --json` shows, or {\"name\",\"error\"} when the store cannot be
reached: then the next line is the state by the time that it can. The store is looked at four times per `op_timeout`;
whoever holds the lock for less may not be shown.

Exit codes: 0 ended by a signal, 69 store unavailable at the start, 64 usage, 77 access denied.";

const REVOKE_HELP: &str = "\
Without --force the holder's process is asked. It loses the lock, releases it, and cannot refuse;
this waits for at most the grace and the holder's ttl. With --grace it may finish its work before: a
command under `run` gets SIGTERM, and SIGKILL when the grace is nearly over.

With --force the entry is deleted at once. Until the former holder has heard of it, two may believe
they hold the lock, and only the fencing token keeps them apart.

Exit codes: 0 the lock is released, 1 nobody held it, 75 the holder did not answer, 69 store
unavailable, 64 usage, 77 access denied.";

const TOKEN_BASE_HELP: &str = "\
A session reads the base once, when it is opened. So `set` refuses while another session of the
namespace lives (75), and where the store cannot tell, it wants --yes: a session that lives on grants
smaller tokens, which resources refuse.

Exit codes: 0 done, 75 other sessions live, 64 usage, or a store that keeps no base, 69 store
unavailable, 77 access denied.

Example, from one store to another:
  leasehold --url redis://old/0 inspect --json report | jq .holder.token
  leasehold --url etcd://new token-base set --at-least 1838383168220346368";

#[cfg(feature = "migrate")]
const MIGRATE_HELP: &str = "\
The URL is that of the processes: the old store's with the option migrate_to=URL of the new one, in which
& # + % and @ are percent-encoded. Each phase is a step, which waits until every process acts by the one before:

  old -> shadow -> both -> drain -> new

A step that was left halfway, or given up by --wait, is gone on with by the same command.

Exit codes: 0 done, 75 not yet (what stands in the way is said), 69 store unavailable, 64 usage, or not
these two stores, 70 a store has lost its data, 77 access denied.

Example:
  leasehold --url-file move.url migrate advance --to drain --wait 1h
  leasehold --url-file move.url migrate status";

const DOCTOR_HELP: &str = "\
Exit codes: 0 nothing breaks a guarantee, 1 something does, 69 store unavailable, 64 usage.";

const COMPARE_HELP: &str = "\
Starts comparison/compare of the checkout it is called in, at the checkout's root. Its options are shown
by comparison/compare --help.

Exit codes: the comparison's own; 64 there is no checkout here.

Example:
  leasehold compare --quick --store redis,etcd";

#[cfg(feature = "redis")]
const REDIS_SCRIPTS_HELP: &str = "\
Needed once per start of the server and version of leasehold, where those who lock have no +eval.
The URL's user needs +script|load and nothing else.

Exit codes: 0 loaded, 69 store unavailable, 64 usage, 77 access denied.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Names, short options and help do not contradict each other.
    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    /// A share of permits is what the library takes for one; anything else is refused with the rule.
    #[test]
    fn permits_are_some_of_some() {
        assert_eq!(permits("2/8"), Ok(Mode::permits(2, 8).unwrap()));
        assert_eq!(permits("1/1"), Ok(Mode::EXCLUSIVE));
        for (text, rule) in [
            ("2", "such as 2/8"),
            ("/", "such as 2/8"),
            ("2/8/9", "such as 2/8"),
            ("-1/8", "such as 2/8"),
            ("1/4294967296", "below 2^32"),
            ("0/8", "0 of 8 permits: neither may be zero"),
            ("1/0", "neither may be zero"),
            ("9/8", "9 of 8 permits: the weight is above the capacity"),
            ("1/4294967295", "that of shared locks"),
        ] {
            let refused = permits(text).unwrap_err();
            assert!(refused.contains(rule), "{text}: {refused}");
        }
    }

    /// Promises are named in any case, unknown ones are refused with those there are.
    #[test]
    fn promises_are_read_by_name() {
        assert_eq!(promise("cross_host"), Ok(Guarantees::CROSS_HOST));
        assert_eq!(promise("FENCED"), Ok(Guarantees::FENCED));
        assert_eq!(promise(""), Ok(Guarantees::empty()));
        assert!(promise("fast").unwrap_err().contains("fenced, fifo"));
    }
}
