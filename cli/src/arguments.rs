//! The options of the command line.

use std::ffi::OsString;
#[cfg(feature = "metrics")]
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, Args, Parser, Subcommand};
use clap_complete::Shell;
#[cfg(feature = "migrate")]
use leasehold::migrate::Phase;
use leasehold::{FencingToken, Guarantees, Mode};

use crate::manual;

/// Locks that hold across processes and hosts: one command on every store.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version = manual::VERSION.as_str(), max_term_width = 100, disable_help_flag = true, arg = help(),
          after_help = manual::SHORT, after_long_help = manual::EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Write results and errors as JSON
    #[arg(long, global = true, help_heading = OUTPUT)]
    pub(crate) json: bool,
    /// Do not fit tables to the terminal
    #[arg(long, global = true, help_heading = OUTPUT)]
    pub(crate) wide: bool,
    /// Log the events of the lock; -vv logs everything
    ///
    /// RUST_LOG is finer, such as RUST_LOG=leasehold=debug.
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = OUTPUT)]
    pub(crate) verbose: u8,
    /// Write only errors to standard error
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = OUTPUT)]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// `--help` has a line for each option; the manual has the rest.
fn help() -> Arg {
    let help = Arg::new("help").short('h').long("help").global(true).action(ArgAction::HelpShort);
    help.help("Print help").help_heading(OUTPUT)
}

/// The headings of the help.
const CONNECTION: &str = "Connection";
const WAITING: &str = "Waiting";
const RUNNING: &str = "While it runs";
const OUTPUT: &str = "Output";

/// Where the locks are.
#[derive(Args, Debug)]
#[command(next_help_heading = CONNECTION)]
pub(crate) struct Store {
    /// The store: file:///DIR, or redis://, postgres://, …
    ///
    /// `leasehold --version` lists the schemes. Options are part of the URL: redis://HOST/0?ttl=15s. Default:
    /// LEASEHOLD_URL. Put a URL with a password into a file or the environment, where no other user reads it.
    #[arg(long, global = true, value_name = "URL", conflicts_with = "url_file")]
    pub(crate) url: Option<String>,
    /// Read the URL from a file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) url_file: Option<PathBuf>,
    /// Lock on this host only, without a server
    ///
    /// The locks are in a directory of the user, so no other host and no other user is excluded.
    #[arg(long, global = true, conflicts_with_all = ["url", "url_file"])]
    pub(crate) local: bool,
    /// Refuse a store without these guarantees
    ///
    /// Known are fenced, fifo, leased, cross_process, cross_host, survives_failover, survives_restart and
    /// others, which `doctor` lists. Default: LEASEHOLD_REQUIRE.
    #[arg(long, global = true, env = "LEASEHOLD_REQUIRE", hide_env = true, value_name = "FLAG,FLAG",
          value_delimiter = ',', value_parser = promise)]
    pub(crate) require: Vec<Guarantees>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Hold a lock while a command runs
    #[command(after_help = manual::CODES, after_long_help = manual::RUN)]
    Run(Run),
    /// Hold a lock until standard input closes
    ///
    /// A signal ends the hold, too. Every change is a line of JSON.
    #[command(after_help = manual::CODES, after_long_help = manual::HOLD)]
    Hold(Hold),
    /// Show the holders and the waiters of a lock
    Inspect {
        /// The lock
        name: String,
        /// Exit with 0 if the lock is held, with 1 if free
        #[arg(long)]
        exit_code: bool,
    },
    /// List the locks that are held or waited for
    Ls {
        /// Only names that start with this prefix
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
    },
    /// Show the locks live on the whole terminal
    ///
    /// Keys: q quits, s sorts by name, since, waiting or grants, r reverses, / filters names and holders.
    #[cfg(feature = "top")]
    #[command(after_long_help = manual::TOP)]
    Top(crate::top::Top),
    /// Write the holders of a lock at every change
    ///
    /// The holders now, and at every change, are a line of JSON each, until a signal arrives.
    #[command(after_long_help = manual::WATCH)]
    Watch {
        /// The lock
        name: String,
    },
    /// Request the release of a lock, or force it
    #[command(after_help = manual::CODES, after_long_help = manual::REVOKE)]
    Revoke(Revoke),
    /// Check what the store can promise
    #[command(after_long_help = manual::DOCTOR)]
    Doctor {
        /// Also show the holder of this lock
        ///
        /// And its key, if other libraries share it.
        #[arg(long)]
        name: Option<String>,
    },
    /// Load the scripts of the Redis store
    ///
    /// The server then runs them for users without the right to load them.
    #[cfg(feature = "redis")]
    #[command(after_long_help = manual::REDIS_SCRIPTS)]
    RedisScripts,
    /// Write the SQL of the Postgres store
    #[cfg(feature = "postgres")]
    #[command(after_long_help = manual::POSTGRES_SCHEMA)]
    PostgresSchema(crate::postgres_schema::PostgresSchema),
    /// Show or raise the token base of the namespace
    ///
    /// With a larger base, tokens grow across a change of store.
    #[command(after_long_help = manual::TOKEN_BASE)]
    TokenBase {
        #[command(subcommand)]
        action: TokenBase,
    },
    /// Move the locks to another store while in use
    ///
    /// The other store is the `migrate_to` of the URL.
    #[cfg(feature = "migrate")]
    #[command(after_long_help = manual::MIGRATE)]
    Migrate {
        #[command(subcommand)]
        action: Migrate,
    },
    /// Compare stores on real servers, in a checkout
    #[command(after_long_help = manual::COMPARE)]
    Compare(Compare),
    /// Write completions for a shell
    Completions {
        /// One of bash, elvish, fish, powershell and zsh
        #[arg(hide_possible_values = true)]
        shell: Shell,
    },
    /// Write the man pages into a directory
    Man {
        /// The directory; it is made if it does not exist
        directory: PathBuf,
    },
}

/// How a lock is waited for and held.
#[derive(Args, Debug)]
pub(crate) struct Terms {
    /// Wait at most this long, such as 1m30s
    ///
    /// Or seconds as a number. This includes waiting for a store that is not reachable. Default: no limit for
    /// the lock, no wait for the store (see `connect_wait`). `--timeout` is the same.
    #[arg(short, long, alias = "timeout", value_name = "D", value_parser = leasehold::span, help_heading = WAITING)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: fail at once if it is held
    ///
    /// `--nonblock` is the same.
    #[arg(short = 'n', long = "try", alias = "nonblock", conflicts_with = "wait", help_heading = WAITING)]
    pub(crate) attempt: bool,
    /// Exit with N instead of 75 if not granted
    #[arg(short = 'E', long, value_name = "N", help_heading = WAITING)]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Hold it as a reader, beside other readers
    ///
    /// On stores that promise `shared`.
    #[arg(short, long, conflicts_with = "permits", help_heading = WAITING)]
    pub(crate) shared: bool,
    /// Acquire W of C permits, such as 2/8
    ///
    /// On stores that promise `permits`. 1/1 is the exclusive lock. If clients use different C, the smallest
    /// counts.
    #[arg(long, value_name = "W/C", value_parser = permits, help_heading = WAITING)]
    pub(crate) permits: Option<Mode>,
    /// How long the lock outlives a dead holder
    ///
    /// On stores with leases. Default: that of the URL, or 15s.
    #[arg(long, value_name = "D", value_parser = leasehold::span, help_heading = RUNNING)]
    pub(crate) ttl: Option<Duration>,
    /// Stop after this time and exit with 76
    #[arg(long, value_name = "D", value_parser = leasehold::span, help_heading = RUNNING)]
    pub(crate) max_hold: Option<Duration>,
    /// The label that other clients see
    ///
    /// Default: that of the URL, or the host name and the process id.
    #[arg(long, value_name = "LABEL", help_heading = RUNNING)]
    pub(crate) owner: Option<String>,
    /// A text that `inspect` shows
    #[arg(long, value_name = "TEXT", help_heading = RUNNING)]
    pub(crate) metadata: Option<String>,
    /// Serve metrics for Prometheus at this address
    ///
    /// Such as 127.0.0.1:9187. There is no password.
    #[cfg(feature = "metrics")]
    #[arg(long, value_name = "ADDR", value_parser = address, help_heading = RUNNING)]
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
    /// Hold the lock for at least this long
    ///
    /// Counted from the grant. If CMD ends earlier, `run` waits with the lock held, so that a host whose clock
    /// is late does not run CMD again. A signal ends the wait and leaves the lock to its lease.
    #[arg(long, value_name = "D", value_parser = leasehold::span, help_heading = RUNNING)]
    pub(crate) at_least: Option<Duration>,
    /// With --at-least: exit when CMD has ended
    ///
    /// A process in the background holds the lock for the rest of the time.
    #[arg(long, requires = "at_least", help_heading = RUNNING)]
    pub(crate) detach: bool,
    /// Release the lock when CMD itself has ended
    ///
    /// Even if processes that it started still run.
    #[arg(long, help_heading = RUNNING)]
    pub(crate) leave_running: bool,
    /// Send SIGKILL this long after a signal
    ///
    /// After a signal to `leasehold` or --max-hold told CMD to end. Default: 10s after --max-hold, else never.
    #[arg(long, value_name = "D", value_parser = leasehold::span, help_heading = RUNNING)]
    pub(crate) kill_after: Option<Duration>,
    /// Hide the store's URL from CMD
    ///
    /// LEASEHOLD_URL is `hidden:` there, which `leasehold` refuses.
    #[arg(long, help_heading = RUNNING)]
    pub(crate) hide_url: bool,
    /// Hold all of the named locks or none
    ///
    /// They are acquired in the order of their names.
    #[arg(short, long, help_heading = WAITING)]
    pub(crate) all: bool,
    /// The lock; with --all, the locks
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// The command, and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Hold {
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// Hold until a signal; leave standard input alone
    #[arg(long, help_heading = RUNNING)]
    pub(crate) ignore_stdin: bool,
    /// The lock
    pub(crate) name: String,
}

#[derive(Args, Debug)]
pub(crate) struct Revoke {
    /// How long the holder may finish its work: 30s, 5m
    #[arg(long, value_name = "D", default_value = "0s", hide_default_value = true, value_parser = leasehold::span)]
    pub(crate) grace: Duration,
    /// Delete the holder's entry at once
    ///
    /// Without its cooperation.
    #[arg(long, conflicts_with = "grace")]
    pub(crate) force: bool,
    /// Do not ask for confirmation
    #[arg(long, requires = "force")]
    pub(crate) yes: bool,
    /// The lock
    pub(crate) name: String,
}

/// The options of the comparison. A URL has another meaning there than for the other commands.
#[derive(Args, Debug)]
pub(crate) struct Compare {
    /// A server to compare on, such as redis=redis://HOST
    ///
    /// Instead of one that is started. May be repeated.
    #[arg(long, value_name = "STORE=URL")]
    pub(crate) url: Vec<String>,
    /// Further options, such as --quick or --store redis
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
    /// Show the base, the floor and the open sessions
    ///
    /// The floor is where the store's own numbers start.
    Get,
    /// Raise the base above a token
    ///
    /// So that every later token is larger. A base that is large enough is left.
    Set {
        /// The largest token that a resource has seen
        ///
        /// `inspect` shows it in the old store.
        #[arg(long, value_name = "TOKEN", value_parser = token)]
        at_least: FencingToken,
        /// Confirm that no other session is open
        ///
        /// For stores that cannot detect them; an open session would grant smaller tokens.
        #[arg(long)]
        yes: bool,
    },
}

#[cfg(feature = "migrate")]
#[derive(Debug, Subcommand)]
pub(crate) enum Migrate {
    /// Show the phase, the next step and its blockers
    Status,
    /// Move toward the new store, by one phase or up to one
    Advance {
        #[command(flatten)]
        steps: Steps,
        /// Time in `drain` without a foreign client (24h)
        ///
        /// How long `drain` must have lasted without a foreign client in the old store before `new`.
        #[arg(long, value_name = "D", default_value = "24h", hide_default_value = true, value_parser = leasehold::span)]
        quiet_for: Duration,
    },
    /// Move back toward the old store
    ///
    /// By one phase, or down to a given one.
    Rollback {
        #[command(flatten)]
        steps: Steps,
    },
    /// Rewrite the move records after a loss of data
    ///
    /// After a store lost its data or is permanently unavailable. Stop every process that uses the locks first.
    Repair {
        /// Confirm that every process is stopped
        ///
        /// And that a store that cannot be reached is permanently unavailable.
        #[arg(long)]
        yes: bool,
        /// Wait at most this long for a store (30s)
        ///
        /// A store that cannot be reached by then counts as permanently unavailable.
        #[arg(long, value_name = "D", default_value = "30s", hide_default_value = true, value_parser = leasehold::span)]
        wait: Duration,
    },
    /// End a move, once no process takes part
    ///
    /// A move that has reached `new`, or returned to `old`.
    Clean {
        /// Free the old namespace for other locks
        ///
        /// URLs of the old store without `migrate_to` are admitted again.
        #[arg(long)]
        old: bool,
    },
}

/// How far, and how long that may take.
#[cfg(feature = "migrate")]
#[derive(Args, Debug)]
pub(crate) struct Steps {
    /// The phase to go to; else the next one
    ///
    /// One of old, shadow, both, drain and new.
    #[arg(long, value_name = "PHASE", value_parser = phase)]
    pub(crate) to: Option<Phase>,
    /// Wait at most this long for processes (30s)
    ///
    /// For processes that have not followed, and for stores that cannot be reached.
    #[arg(long, value_name = "D", default_value = "30s", hide_default_value = true, value_parser = leasehold::span)]
    pub(crate) wait: Duration,
    /// Go on beside N sessions without `migrate_to`
    ///
    /// They must not acquire locks. N holds for each store and each step anew. From `drain` to `new`, nothing
    /// excludes those of the old store afterwards.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
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
