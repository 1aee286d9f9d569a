//! The options of the command line.

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
    /// Do not fit tables to the width of the terminal.
    #[arg(long, global = true)]
    pub(crate) wide: bool,
    /// Log the events of the lock to standard error; twice: log everything. RUST_LOG is finer.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Write only errors to standard error.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the locks are.
#[derive(Args, Debug)]
pub(crate) struct Store {
    /// The store: file:///DIR, redis://HOST, etcd://HOST,HOST, zk://HOST,HOST, with its options.
    /// Default: LEASEHOLD_URL. Put a URL with a password into a file or the environment, where other
    /// users cannot read it.
    #[arg(long, global = true, value_name = "URL", conflicts_with = "url_file")]
    pub(crate) url: Option<String>,
    /// Read the URL from a file.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) url_file: Option<PathBuf>,
    /// Lock on this host only, in a directory of the user. No other host and no other user is excluded.
    #[arg(long, global = true, conflicts_with_all = ["url", "url_file"])]
    pub(crate) local: bool,
    /// Refuse a store that does not promise these guarantees: fenced, fifo, leased, cross_process, cross_host,
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
    /// Hold a lock until standard input closes or a signal arrives; write a JSON line per change.
    #[command(after_help = HOLD_HELP)]
    Hold(Hold),
    /// Show the holders of a lock and the number of waiting clients.
    Inspect {
        /// The lock.
        name: String,
        /// Exit with 0 if the lock is held, with 1 if it is free.
        #[arg(long)]
        exit_code: bool,
    },
    /// List the locks that are held or waited for.
    Ls {
        /// Only names that start with this prefix.
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Write the holders of a lock as a JSON line now and at every change, until a signal arrives.
    #[command(after_help = WATCH_HELP)]
    Watch {
        /// The lock.
        name: String,
    },
    /// Request the release of a lock from its holder, or delete the holder's entry.
    #[command(after_help = REVOKE_HELP)]
    Revoke(Revoke),
    /// Check the store: list its guarantees and the findings that break one.
    #[command(after_help = DOCTOR_HELP)]
    Doctor {
        /// Also show the holder of this lock, and its key if other libraries share it.
        #[arg(long)]
        name: Option<String>,
    },
    /// Load the scripts of the Redis store into the server, for users without the right to.
    #[cfg(feature = "redis")]
    #[command(after_help = REDIS_SCRIPTS_HELP)]
    RedisScripts,
    /// Show or raise the token base of the namespace, so that tokens grow across a change of store.
    #[command(after_help = TOKEN_BASE_HELP)]
    TokenBase {
        #[command(subcommand)]
        action: TokenBase,
    },
    /// Move the locks to another store, the `migrate_to` of --url, while they are in use.
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
    /// Wait at most this long: `30s`, `1m30s`, or seconds as a number. This includes waiting for a store
    /// that is not reachable. Default: no limit for the lock, no wait for the store (see `connect_wait`).
    #[arg(short, long, visible_alias = "timeout", value_name = "D", value_parser = leasehold::span)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: fail at once if the lock is held.
    #[arg(short = 'n', long = "try", visible_alias = "nonblock", conflicts_with = "wait")]
    pub(crate) attempt: bool,
    /// Exit with this code instead of 75 when the lock is not granted in time.
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Hold the lock as a reader, together with other readers, on stores that promise `shared`.
    #[arg(short, long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Acquire W of C permits of the lock, such as 2/8, on stores that promise `permits`; 1/1 is the
    /// exclusive lock. If clients use different C, the smallest counts.
    #[arg(long, value_name = "W/C", value_parser = permits)]
    pub(crate) permits: Option<Mode>,
    /// How long the lock outlives a dead holder, on stores with leases. Default: the URL's, or 15s.
    #[arg(long, value_name = "D", value_parser = leasehold::span)]
    pub(crate) ttl: Option<Duration>,
    /// Hold the lock for at most this long, then stop and exit with 76.
    #[arg(long, value_name = "D", value_parser = leasehold::span)]
    pub(crate) max_hold: Option<Duration>,
    /// The label that other clients see. Default: the URL's, or the host name and the process id.
    #[arg(long, value_name = "LABEL")]
    pub(crate) owner: Option<String>,
    /// A text that `inspect` shows while the lock is held.
    #[arg(long, value_name = "TEXT")]
    pub(crate) metadata: Option<String>,
    /// Serve metrics for Prometheus at this address, such as 127.0.0.1:9187, without a password.
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
    /// Release the lock when CMD itself has ended, even if processes that it started still run.
    #[arg(long)]
    pub(crate) leave_running: bool,
    /// Send SIGKILL this long after a signal to `leasehold` or --max-hold told CMD to end.
    /// Default: 10s after --max-hold, else never.
    #[arg(long, value_name = "D", value_parser = leasehold::span)]
    pub(crate) kill_after: Option<Duration>,
    /// Hide the store's URL from CMD: LEASEHOLD_URL is `hidden:` there, which `leasehold` refuses.
    #[arg(long)]
    pub(crate) hide_url: bool,
    /// Hold all of the named locks or none; they are acquired in the order of their names.
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
    /// Hold until a signal arrives; do not read standard input.
    #[arg(long)]
    pub(crate) ignore_stdin: bool,
    /// The lock.
    pub(crate) name: String,
}

#[derive(Args, Debug)]
pub(crate) struct Revoke {
    /// The grace period in which the holder may finish its work: `30s`, `5m`.
    #[arg(long, value_name = "D", default_value = "0s", hide_default_value = true, value_parser = leasehold::span)]
    pub(crate) grace: Duration,
    /// Delete the holder's entry at once, without its cooperation.
    #[arg(long, conflicts_with = "grace")]
    pub(crate) force: bool,
    /// Do not ask for confirmation.
    #[arg(long, requires = "force")]
    pub(crate) yes: bool,
    /// The lock.
    pub(crate) name: String,
}

/// The options of the comparison. A URL has another meaning there than for the other commands.
#[derive(Args, Debug)]
pub(crate) struct Compare {
    /// A server to compare on instead of one that is started, such as redis=redis://10.0.0.1:6379; may be
    /// repeated.
    #[arg(long, value_name = "STORE=URL")]
    pub(crate) url: Vec<String>,
    /// Further options of the comparison, such as --quick or --store redis,etcd.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub(crate) options: Vec<OsString>,
}

/// An address and a port; a name such as `localhost` is looked up.
#[cfg(feature = "metrics")]
fn address(text: &str) -> Result<SocketAddr, String> {
    let found = text
        .to_socket_addrs()
        .map_err(|error| format!("expected an address such as 127.0.0.1:9187: {error}"))?;
    found.into_iter().next().ok_or_else(|| "this name has no address".to_owned())
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenBase {
    /// Show the base, the start of the store's own numbers, and the number of other open sessions.
    Get,
    /// Raise the base, if necessary, so that every later token is larger than TOKEN.
    Set {
        /// The largest token that a resource has seen; `inspect` shows it in the old store.
        #[arg(long, value_name = "TOKEN", value_parser = token)]
        at_least: FencingToken,
        /// Raise the base although the store cannot detect other open sessions, which would grant
        /// smaller tokens.
        #[arg(long)]
        yes: bool,
    },
}

#[cfg(feature = "migrate")]
#[derive(Debug, Subcommand)]
pub(crate) enum Migrate {
    /// Show the phase of the move, its participants, the next step and its blockers.
    Status,
    /// Move toward the new store: by one phase, or up to a given one.
    Advance {
        #[command(flatten)]
        steps: Steps,
        /// How long `drain` must have lasted without a foreign client in the old store before `new`.
        #[arg(long, value_name = "D", default_value = "24h", value_parser = leasehold::span)]
        quiet_for: Duration,
    },
    /// Move back toward the old store: by one phase, or down to a given one.
    Rollback {
        #[command(flatten)]
        steps: Steps,
    },
    /// Rewrite the move records after a store lost its data or is permanently unavailable.
    /// Stop every process that uses the locks first.
    Repair {
        /// Confirm that every process that uses these locks is stopped, and that a store that cannot be
        /// reached is permanently unavailable.
        #[arg(long)]
        yes: bool,
        /// Wait at most this long for a store that cannot be reached; then treat it as unavailable.
        #[arg(long, value_name = "D", default_value = "30s", value_parser = leasehold::span)]
        wait: Duration,
    },
    /// End a move that has reached `new`, or returned to `old`, once no process takes part.
    Clean {
        /// Allow URLs of the old store without `migrate_to` again, to use it for other locks.
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
    /// Wait at most this long for processes that have not followed, and for stores that cannot be reached.
    #[arg(long, value_name = "D", default_value = "30s", value_parser = leasehold::span)]
    pub(crate) wait: Duration,
    /// Continue although up to N sessions without `migrate_to` are open: they must not acquire locks.
    /// N holds for each store and each step anew. From `drain` to `new`, nothing excludes those of the
    /// old store afterwards.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) foreign_sessions: usize,
}

#[cfg(feature = "migrate")]
fn phase(text: &str) -> Result<Phase, String> {
    let known = || Phase::ALL.map(Phase::word).join(", ");
    Phase::of_word(text).ok_or_else(|| format!("unknown phase; known: {}", known()))
}

fn permits(text: &str) -> Result<Mode, String> {
    let numbers = text.split_once('/').and_then(|(weight, capacity)| {
        let number = |text: &str| text.parse::<u32>().ok();
        Some((number(weight)?, number(capacity)?))
    });
    let (weight, capacity) = numbers.ok_or("expected permits such as 2/8: two whole numbers below 2^32")?;
    Mode::permits(weight, capacity).map_err(|error| error.to_string())
}

fn token(text: &str) -> Result<FencingToken, String> {
    let number = text.parse::<u64>().ok();
    let token = number.and_then(|number| {
        let index = u16::try_from(number & u64::from(FencingToken::MAX_INDEX)).ok()?;
        FencingToken::new(number >> FencingToken::INDEX_BITS, index)
    });
    token.ok_or_else(|| "expected a token: a whole number below 2^63".to_owned())
}

/// A promise by its name in lower case; none of an empty variable.
fn promise(text: &str) -> Result<Guarantees, String> {
    if text.is_empty() {
        return Ok(Guarantees::empty());
    }
    let named = Guarantees::from_name(&text.to_ascii_uppercase());
    named.ok_or_else(|| format!("unknown guarantee; known: {}", promises(Guarantees::all())))
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
  1    doctor: a finding breaks a guarantee; revoke, inspect --exit-code: the lock is free
  64   the command line, the URL or the lock's name is invalid, or the store lacks a guarantee
  69   the store is unavailable
  70   the store sent an invalid reply
  71   the operating system refused a request
  75   the lock was not granted in time; revoke: the holder did not answer
  76   the lock was lost or about to be lost, or --max-hold was reached
  77   the store denies access
  128+n  ended by signal n while waiting
`run` exits as its command does: with its exit code, 128+n if signal n ended it, 126 if it cannot be
run, 127 if it is not found.";

const RUN_HELP: &str = "\
CMD has LEASEHOLD_NAME, LEASEHOLD_TOKEN and LEASEHOLD_HELD in its environment; with --all
LEASEHOLD_TOKENS replaces the first two, with a line NAME TOKEN for each lock. CMD runs in a process
group of its own. When a renewal is overdue, or a revocation is requested (`revoke --grace`), the group
gets SIGTERM, and SIGKILL before another client can hold the lock. When the lock is lost, it gets SIGKILL
at once. The lock is released when the whole group has ended.

Exit codes: CMD's own; 75 busy or timed out, 76 lost, 69 store unavailable, 64 usage, 77 access
denied, 126 and 127 CMD cannot be run or is not found, 128+n ended by signal n.

Example:
  leasehold run --wait 30s backup -- pg_dump -f /backup/db.sql mydb
  leasehold run --all account/7 account/9 -- ./transfer";

const HOLD_HELP: &str = "\
A line is {\"state\":\"waiting|held|at_risk|revocation_requested|lost|released\",\"name\",\"token\",\"remaining_ms\"};
the state lost has a \"reason\", too.

Exit codes: 0 released, 75 busy or timed out, 76 lost, 69 store unavailable, 64 usage, 77 access
denied, 128+n ended by signal n while waiting.";

const WATCH_HELP: &str = "\
The first line is the present state. A line is the same as that of `inspect --json`, or {\"name\",\"error\"} when the
store cannot be reached; the next line then follows when it can be reached. The store is read four times per
`op_timeout`; a shorter hold may not be shown.

Exit codes: 0 ended by a signal, 69 store unavailable at the start, 64 usage, 77 access denied.";

const REVOKE_HELP: &str = "\
Without --force the holder's process is notified. It loses the lock, releases it, and cannot refuse;
this command waits for at most the grace period and the holder's ttl. With --grace the holder may
finish its work: a command under `run` gets SIGTERM, and SIGKILL when the grace period is nearly over.

With --force the entry is deleted at once. Until the former holder is notified, two clients may believe
that they hold the lock, and only the fencing token protects the resource.

Exit codes: 0 the lock is released, 1 it was free, 75 the holder did not answer, 69 store
unavailable, 64 usage, 77 access denied.";

const TOKEN_BASE_HELP: &str = "\
A session reads the base once, when it is opened. So `set` refuses while another session of the
namespace is open (75). A store that cannot detect other sessions needs --yes: an open session grants
smaller tokens, which resources refuse.

Exit codes: 0 done, 75 other sessions are open, 64 usage, or a store without a base, 69 store
unavailable, 77 access denied.

Example, from one store to another:
  leasehold --url redis://old/0 inspect --json report | jq .holder.token
  leasehold --url etcd://new token-base set --at-least 1838383168220346368";

#[cfg(feature = "migrate")]
const MIGRATE_HELP: &str = "\
Use the URL of the processes: that of the old store with the option migrate_to=URL of the new store, in which
& # + % and @ are percent-encoded. Each step waits until every process follows the phase before it:

  old -> shadow -> both -> drain -> new

To continue an interrupted step, or one that --wait ended, use the same command.

Exit codes: 0 done, 75 blocked (the blockers are listed), 69 store unavailable, 64 usage, or these two
stores cannot be moved, 70 a store has lost its data, 77 access denied.

Example:
  leasehold --url-file move.url migrate advance --to drain --wait 1h
  leasehold --url-file move.url migrate status";

const DOCTOR_HELP: &str = "\
Exit codes: 0 no finding breaks a guarantee, 1 a finding breaks one, 69 store unavailable, 64 usage.";

const COMPARE_HELP: &str = "\
Starts comparison/compare at the root of the current checkout. comparison/compare --help shows its options.

Exit codes: the comparison's own; 64 no checkout here.

Example:
  leasehold compare --quick --store redis,etcd";

#[cfg(feature = "redis")]
const REDIS_SCRIPTS_HELP: &str = "\
Needed once per server start and version of leasehold if the users that lock have no right +eval.
The URL's user needs only +script|load.

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
            ("0/8", "0 of 8 permits is invalid: weight and capacity must be at least 1"),
            ("1/0", "must be at least 1"),
            ("9/8", "9 of 8 permits is invalid: the weight must not exceed the capacity"),
            ("1/4294967295", "below 2^32"),
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
