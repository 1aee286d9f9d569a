//! A client in a hunt: it holds the lock again and again, for a moment or as long as a lease, writes to a resource with a
//! fence while it does, and logs all of that.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::os::unix::process::parent_id;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{ErrorKind, FencingToken, Guarantees, LockManager, Mode, Result};
use leasehold_conformance::Dice;

use super::journal::{Journal, NAME, until};

/// Goes on until it is killed, or its parent is. `number` is its own in the hunt, `seed` that of the hunt.
pub(crate) async fn run(
    locks: &LockManager,
    actor: &str,
    number: u64,
    seed: u64,
    ttl: Duration,
) -> Result<()> {
    let (parent, clock, mut dice) = (parent_id(), BootClock::new(), Dice::new(seed ^ number << 32));
    let (mut journal, resource) = (Journal::open("journal", actor), Resource::open());
    let shares = locks.guarantees().contains(Guarantees::SHARED);
    let mut attempt = number << 32;
    while parent_id() == parent {
        attempt += 1;
        let mode = if shares && dice.chance(250) { Mode::SHARED } else { Mode::EXCLUSIVE };
        let lock = locks.lock(NAME)?;
        let lock = if mode == Mode::SHARED { lock.shared() } else { lock };
        journal.write(clock.now(), attempt, &format!("asks {mode}"));
        let guard = match lock.acquire().await {
            Ok(guard) => guard,
            Err(error) => {
                assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error:#}");
                journal.write(clock.now(), attempt, &format!("refused {error}").replace('\n', " "));
                tokio::time::sleep(WORK).await; // what a client does before it tries again
                continue;
            }
        };
        let (granted, token) = (clock.now(), guard.token());
        journal.write(granted, attempt, &format!("granted {token} {}", until(granted, &guard)));
        let longest = if dice.chance(50) { ttl } else { 2 * WORK };
        let end = granted + dice.span(longest);
        let lost = loop {
            let now = clock.now();
            if let Err(error) = guard.ensure_held() {
                break error.lost_reason();
            }
            journal.write(now, attempt, &format!("held {}", until(now, &guard)));
            if mode == Mode::EXCLUSIVE {
                let accepted = resource.write(token, |accepted| {
                    journal.write(clock.now(), attempt, &format!("wrote {token} {accepted}"));
                });
                accepted.unwrap();
            }
            if end <= now {
                break None;
            }
            if let Ok(reason) = tokio::time::timeout(WORK, guard.lost()).await {
                break Some(reason);
            }
        };
        let over = lost.map_or_else(|| "releases".to_owned(), |reason| format!("lost {reason:?}"));
        journal.write(clock.now(), attempt, &over);
        // The store may be away: a lease ends the hold.
        let _ = guard.release().await;
    }
    Ok(())
}

/// How long a step of the work under the lock takes.
const WORK: Duration = Duration::from_millis(10);

/// A file that remembers the largest token and refuses smaller ones.
struct Resource(File);

impl Resource {
    fn open() -> Self {
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open("resource");
        Self(options.unwrap())
    }

    /// Writes with `token`, and logs whether that is accepted, in one step for all processes.
    fn write(&self, token: FencingToken, log: impl FnOnce(bool)) -> std::io::Result<()> {
        self.0.lock()?;
        let mut largest = [0; 8];
        let _empty = self.0.read_at(&mut largest, 0)?;
        let accepted = token.get() >= u64::from_be_bytes(largest);
        if accepted {
            self.0.write_all_at(&token.get().to_be_bytes(), 0)?;
        }
        log(accepted);
        self.0.unlock()
    }
}
