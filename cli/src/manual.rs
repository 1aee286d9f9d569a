//! `leasehold man`: the manual, which is the long form of the help, and the version.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::LazyLock;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::arguments::Cli;
use crate::failure::{Exit, Failure};

/// Writes a page for the command and for each command of it.
pub(crate) fn write(directory: &Path) -> Result<Exit, Failure> {
    let mut command = Cli::command();
    // Gives the commands their whole names, and the options of all.
    command.build();
    let written = fs::create_dir_all(directory).and_then(|()| page(&command, directory));
    let written = written.map_err(|error| {
        Failure::system(format_args!("cannot write man pages into {}", directory.display()), error)
    });
    written.map(|()| Exit::SUCCESS)
}

fn page(command: &clap::Command, directory: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let man = Man::new(command.clone()).title(name.to_uppercase()).date(DATE).manual("leasehold");
    let mut text = Vec::new();
    man.source(concat!("leasehold ", env!("CARGO_PKG_VERSION"))).render(&mut text)?;
    fs::write(directory.join(format!("{name}.1")), folded(&String::from_utf8_lossy(&text)))?;
    let commands = command.get_subcommands().filter(|command| command.get_name() != "help");
    commands.filter(|command| !command.is_hide_set()).try_for_each(|command| page(command, directory))
}

/// Lines of text as short as `mandoc` asks for; in a paragraph a line break is a space.
fn folded(page: &str) -> String {
    let mut text = String::new();
    for line in page.lines() {
        let mut length = 0;
        for (at, word) in line.trim_end().split(' ').enumerate() {
            // A line that begins with one of these is a request, or is not filled.
            let may_begin = !line.starts_with('.') && !word.is_empty() && !word.starts_with(['.', '\'']);
            if at > 0 && length + 1 + word.len() > LONGEST && may_begin {
                text.push('\n');
                length = 0;
            } else if at > 0 {
                text.push(' ');
                length += 1;
            }
            text.push_str(word);
            length += word.len();
        }
        text.push('\n');
    }
    text
}

/// Bytes of a line.
const LONGEST: usize = 78;
/// When the manual was last changed.
const DATE: &str = "2026-11-25";

/// The version, and the stores of this build.
pub(crate) static VERSION: LazyLock<String> = LazyLock::new(|| {
    let registry = crate::store::registry();
    let stores: Vec<_> = registry.schemes().filter(|scheme| *scheme != "memory").collect();
    format!("{}\nstores: {}", env!("CARGO_PKG_VERSION"), stores.join(", "))
});

/// The exit codes in the short help.
pub(crate) const SHORT: &str = "\
Exit codes: 0 done, 1 no, 64 usage, 69 store unavailable, 75 busy, 76 lost,
77 access denied, 128+n ended by signal n.
`leasehold help COMMAND` and the man pages show everything.";

pub(crate) const CODES: &str = "\
Exit codes: 0 done, 64 usage, 69 store unavailable, 75 busy, 76 lost, 77 denied,
128+n ended by signal n. `leasehold help COMMAND` shows everything.";

pub(crate) const EXIT_CODES: &str = "\
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

pub(crate) const RUN: &str = "\
CMD has LEASEHOLD_NAME, LEASEHOLD_TOKEN and LEASEHOLD_HELD in its environment; with --all
LEASEHOLD_TOKENS replaces the first two, with a line NAME TOKEN for each lock. CMD runs in a process
group of its own. When a renewal is overdue, or a revocation is requested (`revoke --grace`), the group
gets SIGTERM, and SIGKILL before another client can hold the lock. When the lock is lost, it gets SIGKILL
at once. The lock is released when the whole group has ended.

With --at-least the lock stays held for that long from the grant on: a host whose clock is late by less does
not run CMD again. A signal, while CMD runs or after it, leaves the lock to its lease.

Exit codes: CMD's own; 75 busy or timed out, 76 lost, 69 store unavailable, 64 usage, 77 access
denied, 126 and 127 CMD cannot be run or is not found, 128+n ended by signal n.

Example:
  leasehold run --wait 30s backup -- pg_dump -f /backup/db.sql mydb
  leasehold run --all account/7 account/9 -- ./transfer
  leasehold run --try -E 0 --at-least 1m hourly -- ./report";

pub(crate) const HOLD: &str = "\
A line is {\"state\":\"waiting|held|at_risk|revocation_requested|lost|released\",\"name\",\"token\",\"remaining_ms\"};
the state lost has a \"reason\", too.

Exit codes: 0 released, 75 busy or timed out, 76 lost, 69 store unavailable, 64 usage, 77 access
denied, 128+n ended by signal n while waiting.";

#[cfg(feature = "top")]
pub(crate) const TOP: &str = "\
The columns are those of `ls`, and: TTL, how long the lease lasts without a renewal, or its rest where the
store knows only that; GRANTS/MIN, the grants that were seen within the last minute. A grant between two readings that was followed by another one
is not seen. A list reads every lock, so a store with many of them is given a prefix or a longer interval.

Exit codes: 0 ended by a key or a signal, 69 store unavailable at the start, 64 usage, 77 access denied.";

pub(crate) const WATCH: &str = "\
The first line is the present state. A line is the same as that of `inspect --json`, or {\"name\",\"error\"} when the
store cannot be reached; the next line then follows when it can be reached. The store is read four times per
`op_timeout`; a shorter hold may not be shown.

Exit codes: 0 ended by a signal, 69 store unavailable at the start, 64 usage, 77 access denied.";

pub(crate) const REVOKE: &str = "\
Without --force the holder's process is notified. It loses the lock, releases it, and cannot refuse;
this command waits for at most the grace period and the holder's ttl. With --grace the holder may
finish its work: a command under `run` gets SIGTERM, and SIGKILL when the grace period is nearly over.

With --force the entry is deleted at once. Until the former holder is notified, two clients may believe
that they hold the lock, and only the fencing token protects the resource.

Exit codes: 0 the lock is released, 1 it was free, 75 the holder did not answer, 69 store
unavailable, 64 usage, 77 access denied.";

pub(crate) const TOKEN_BASE: &str = "\
A session reads the base once, when it is opened. So `set` refuses while another session of the
namespace is open (75). A store that cannot detect other sessions needs --yes: an open session grants
smaller tokens, which resources refuse.

Exit codes: 0 done, 75 other sessions are open, 64 usage, or a store without a base, 69 store
unavailable, 77 access denied.

Example, from one store to another:
  leasehold --url redis://old/0 inspect --json report | jq .holder.token
  leasehold --url etcd://new token-base set --at-least 1838383168220346368";

#[cfg(feature = "migrate")]
pub(crate) const MIGRATE: &str = "\
Use the URL of the processes: that of the old store with the option migrate_to=URL of the new store, in which
& # + % and @ are percent-encoded. Each step waits until every process follows the phase before it:

  old -> shadow -> both -> drain -> new

To continue an interrupted step, or one that --wait ended, use the same command.

Exit codes: 0 done, 75 blocked (the blockers are listed), 69 store unavailable, 64 usage, or these two
stores cannot be moved, 70 a store has lost its data, 77 access denied.

Example:
  leasehold --url-file move.url migrate advance --to drain --wait 1h
  leasehold --url-file move.url migrate status";

pub(crate) const DOCTOR: &str = "\
Exit codes: 0 no finding breaks a guarantee, 1 a finding breaks one, 69 store unavailable, 64 usage.";

pub(crate) const COMPARE: &str = "\
Starts comparison/compare at the root of the current checkout. comparison/compare --help shows its options.

Exit codes: the comparison's own; 64 no checkout here.

Example:
  leasehold compare --quick --store redis,etcd";

#[cfg(feature = "redis")]
pub(crate) const REDIS_SCRIPTS: &str = "\
Needed once per server start and version of leasehold if the users that lock have no right +eval.
The URL's user needs only +script|load.

Exit codes: 0 loaded, 69 store unavailable, 64 usage, 77 access denied.";

#[cfg(feature = "postgres")]
pub(crate) const POSTGRES_SCHEMA: &str = "\
It creates the tables and functions. Needed once per database if the users that lock may not create a schema: run the output in one transaction, as in
  leasehold postgres-schema | psql --single-transaction DATABASE

Exit codes: 0 written.";
