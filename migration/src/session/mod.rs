//! One process that takes part in a move.
//!
//! | part | does |
//! |---|---|
//! | `opening` | opens both stores, and begins the move if there is none |
//! | `members` | signs in both, reads the records, acknowledges |
//! | `book` | what the process knows and has, under one mutex; no I/O |
//! | `claim`, `pending_cleanup`, `signature` | one acquisition or hold in it; what is to be released; the entry in a list of members |
//! | `acquire` | asks for a lock until it is granted |
//! | `upgrade` | asks for what a hold needs in the next phase |
//! | `release` | releases what is not wanted any more, until that is confirmed |
//! | `leases`, `renewal` | the ids of both stores' leases as one; renewals |
//! | `events` | the events of the stores |
//! | `foreign` | foreign clients that hold a lock in the old store while that is drained |
//! | `read_only` | inspection, revocation and diagnosis of a lock |
//! | `watched` | values that tasks wait for |
//!
//! # Invariants
//! - **session-1** B1 holds towards both stores: no lock of a name is requested from a store while the process holds an earlier
//!   grant of that name there, or its release has not ended.
//! - **session-2** A view is acted on and acknowledged under one mutex ([`Book`]); the I/O comes after that.
//! - **session-3** *Bound*: no hold is trusted longer than any part of it that it needs, nor than the process's entry in
//!   that store.

mod acquire;
mod book;
mod claim;
mod events;
pub(crate) mod foreign;
mod leases;
mod members;
mod opening;
mod pending_cleanup;
mod read_only;
mod release;
mod renewal;
mod signature;
#[cfg(test)]
mod tests;
mod upgrade;
mod watched;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{Events, Inbox, StoreConfig, closed};
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Env, Error, ErrorKind, Guarantees, OwnerId, Result};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::config::Open;
use crate::protocol::{Pair, SIDES};
use book::{Book, Todo};
use watched::Watched;

pub(crate) struct Session {
    env: Env,
    /// The id of its entries.
    id: OwnerId,
    poll: Duration,
    stores: Pair<Store>,
    book: Mutex<Book>,
    looks: Watched<Pair<Looks>>,
    /// How many meetings with foreign clients are being written.
    noting: Arc<Watched<usize>>,
    promises: OnceLock<Guarantees>,
    pub(crate) inbox: Inbox,
    closing: CancellationToken,
}

/// How many readings of a store have begun, and have ended.
#[derive(Clone, Copy, Default)]
struct Looks {
    begun: u64,
    ended: u64,
}

struct Store {
    config: Arc<dyn StoreConfig>,
    open: OnceLock<Open>,
    poke: Notify,
}

impl Session {
    fn new(configs: &Pair<Arc<dyn StoreConfig>>, poll: Duration, env: Env) -> Arc<Self> {
        let (events, inbox) = Events::new();
        let stores = Pair::each(|side| Store {
            config: Arc::clone(&configs[side]),
            open: OnceLock::new(),
            poke: Notify::new(),
        });
        let noting = Arc::default();
        Arc::new(Self {
            id: env.owner_id(),
            poll,
            stores,
            book: Mutex::new(Book::new(events, Arc::clone(&noting))),
            looks: Watched::default(),
            noting,
            promises: OnceLock::new(),
            inbox,
            closing: CancellationToken::new(),
            env,
        })
    }

    /// Uses the book, and starts afterwards the I/O that is due.
    fn with<R>(self: &Arc<Self>, act: impl FnOnce(&mut Book, Moment) -> R) -> R {
        let now = self.env.now();
        let mut book = self.book.lock();
        book.pass_to(now);
        let result = act(&mut book, now);
        self.do_what_follows(book);
        result
    }

    fn do_what_follows(self: &Arc<Self>, mut book: MutexGuard<'_, Book>) {
        book.settle();
        // An empty list keeps its capacity.
        if book.todo.is_empty() {
            return;
        }
        let todo = std::mem::take(&mut book.todo);
        drop(book);
        for todo in todo {
            match todo {
                Todo::Wake(waiting) => waiting.notify_one(),
                Todo::Poke(side) => self.stores[side].poke.notify_one(),
                Todo::Settle(cleanup) => self.env.spawn(Arc::clone(self).clean_up(cleanup)),
                Todo::Upgrade(upgrade) => self.env.spawn(Arc::clone(self).upgrade(upgrade)),
                Todo::Note(name) => self.env.spawn(Arc::clone(self).note(name)),
                Todo::GiveUp(side, lease) => {
                    if let Ok(open) = self.open(side) {
                        open.backend.end_session(lease);
                    }
                }
            }
        }
    }

    fn open(&self, side: Side) -> Result<&Open> {
        self.refuse_closed()?;
        self.stores[side].open.get().ok_or_else(|| {
            let message = format!("the {} store is not open", side.word());
            Error::not_applied(ErrorKind::Unavailable, message)
        })
    }

    fn refuse_closed(&self) -> Result<()> {
        if self.closing.is_cancelled() { Err(closed()) } else { Ok(()) }
    }

    /// The promises of both stores that a lock in two stores can keep, fixed at the first call. A store that could not be
    /// reached yet counts with the promises of every store that locks can be moved to.
    pub(crate) fn guarantees(&self) -> Guarantees {
        let reach = Guarantees::CROSS_PROCESS | Guarantees::CROSS_HOST;
        let least = reach | Guarantees::FENCED | Guarantees::FIFO | Guarantees::LEASED;
        let of = |side: Side| self.stores[side].open.get().map_or(least, |open| open.backend.guarantees());
        let both = || of(Side::Old) & of(Side::New);
        let lacks = Guarantees::RUNTIME_FREE | Guarantees::SHARED | Guarantees::PERMITS;
        *self.promises.get_or_init(|| both().difference(lacks))
    }

    /// Ends everything that runs for it.
    pub(crate) fn stop(self: &Arc<Self>) {
        self.closing.cancel();
        self.with(|book, _| book.wake_all());
        self.looks.change(|_| ());
    }

    /// Leaves both lists, then ends both sessions and all that they hold.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<()> {
        self.until_noted().await;
        self.stop();
        let close = async |side: Side| {
            let Some(open) = self.stores[side].open.get() else {
                return Ok(());
            };
            let unsigned = self.env.bounded(open.ledger.unsign(self.id)).await;
            if let Err(error) = unsigned {
                tracing::debug!(error = ?format!("{error:#}"), "participant entry not deleted");
            }
            open.backend.close().await
        };
        let (old, new) = futures_util::future::join(close(Side::Old), close(Side::New)).await;
        old.and(new)
    }
}

fn silent(side: Side, bound: Duration) -> Error {
    let message = format!("the {} store did not answer within {bound:?}", side.word());
    Error::new(ErrorKind::Unavailable, Effect::Unknown, message)
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pair { old, new } = &self.stores;
        f.debug_struct("Session").field("old", &old.config).field("new", &new.config).finish_non_exhaustive()
    }
}
