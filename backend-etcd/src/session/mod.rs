//! One session with the cluster: a lease, what hangs on it, and how its end is noticed.
//!
//! A session has one lease, one keepalive stream and one watch stream. Its key is attached to the
//! lease and watched, so that a lease that ends early is noticed within milliseconds, whatever the
//! keepalives say. It is over at its deadline, when its key is deleted, when the cluster is another
//! one, or when it is closed; all at once, and once.
//!
//! | file | says |
//! |---|---|
//! | `sessions` | which session is the current one |
//! | `opening` | how one begins |
//! | `requests` | the transactions on the wire |
//! | `bid` | carries out what the engine asks for |
//! | `keepalive` | renewals |
//! | `onlooker` | what administrators see and ask for |
//!
//! # Invariants
//! - **S1** An entry is in `book` from the answer that created it until it is confirmed gone, so that no
//!   deletion that the watch tells of goes unnoticed (G2).
//! - **S2** Per name at most one acquisition or clean-up is under way: the others wait for its end.
//! - **S3** A session that is over stays over; no grant names its lease (B3).

mod bid;
mod keepalive;
mod onlooker;
mod opening;
mod requests;
mod sessions;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockcore::backend::{Grant, Lease, LeaseId, LeaseScope, StoreEvent};
use lockcore::clock::{Deadline, Moment};
use lockcore::{Env, Error, ErrorKind, FencingToken, LockName, LostReason, OwnerId, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::endpoints::Pause;
use crate::keys::LockKeys;
use crate::protocol::Revision;
use crate::watch::{Change, Heard, Kind, Listener, Told, Watches};
use keepalive::Keepalive;

pub(crate) use bid::{Bidding, Outcome};
pub(crate) use sessions::Sessions;

pub(crate) struct Session {
    sessions: Arc<Sessions>,
    lease: i64,
    /// As granted.
    ttl: Duration,
    cluster: u64,
    key: Vec<u8>,
    /// When the key was created.
    created: Revision,
    /// How the keys of its entries end.
    suffix: Vec<u8>,
    token_base: u64,
    book: Mutex<Book>,
    /// A name is not busy any more.
    freed: Notify,
    /// Keys of ours whose watch began at that revision: what was before is not known.
    unread: Mutex<Vec<(Box<[u8]>, Revision)>>,
    has_unread: Notify,
    ended: CancellationToken,
    keepalive: tokio::sync::Mutex<Keepalive>,
    watches: Arc<Watches>,
}

struct Book {
    deadline: Deadline,
    epoch: Revision,
    over: Option<LostReason>,
    entries: HashMap<LockName, Entry>,
    busy: HashSet<LockName>,
    /// Entries that somebody asks us to give up, also such as are not held or not known yet.
    asked: HashSet<Revision>,
}

/// An entry of ours in the store.
#[derive(Debug)]
struct Entry {
    create: Revision,
    owner: OwnerId,
    phase: Phase,
    since: Moment,
    /// Its key has a watch of its own.
    is_watched: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Queued,
    Held,
    Releasing,
    /// The watch told of its end before it was held.
    Deleted,
}

/// The right to deal with a name, which one task has at a time.
#[derive(Debug)]
struct Claim {
    session: Arc<Session>,
    name: LockName,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.session.book.lock().busy.remove(&self.name);
        self.session.freed.notify_waiters();
    }
}

impl Session {
    fn env(&self) -> &Env {
        &self.sessions.env
    }

    fn id(&self) -> LeaseId {
        LeaseId::new(self.lease.unsigned_abs())
    }

    fn lease(&self) -> Lease {
        Lease { id: self.id(), scope: LeaseScope::Session, ttl: self.ttl, deadline: self.deadline() }
    }

    fn keys(&self, name: &LockName) -> LockKeys {
        self.sessions.keys.lock(name, self.lease)
    }

    /// Until when the session can be trusted; a session that is over, never.
    fn deadline(&self) -> Deadline {
        let book = self.book.lock();
        if book.over.is_some() { Deadline::At(Moment::from_nanos(0)) } else { book.deadline }
    }

    /// A renewal sent at `sent_at` was answered.
    fn extend(&self, sent_at: Moment, ttl: Duration) -> Deadline {
        let until = deadline(self.env(), sent_at, ttl);
        let mut book = self.book.lock();
        // One that comes too late revives nothing.
        if book.over.is_none() && !book.deadline.has_passed(self.env().now()) {
            book.deadline = book.deadline.max(until);
        }
        until
    }

    fn epoch(&self) -> Revision {
        self.book.lock().epoch
    }

    /// The session's key was seen with this revision.
    fn saw_epoch(&self, revision: Revision) {
        let mut book = self.book.lock();
        book.epoch = book.epoch.max(revision);
    }

    /// Whether it can be trusted now; one whose deadline has passed ends here.
    fn lives(self: &Arc<Self>) -> bool {
        let (over, deadline) = {
            let book = self.book.lock();
            (book.over, book.deadline)
        };
        if over.is_none() && deadline.has_passed(self.env().now()) {
            self.lose(LostReason::Expired);
            return false;
        }
        over.is_none()
    }

    /// The session is over: its guards are told, once, and its lease is ended at the store.
    fn lose(self: &Arc<Self>, reason: LostReason) {
        {
            let mut book = self.book.lock();
            if book.over.is_some() {
                return;
            }
            book.over = Some(reason);
            book.entries.clear();
        }
        if reason != LostReason::Shutdown {
            tracing::warn!(lease = format_args!("{:x}", self.lease), %reason, "the session with etcd is over");
            self.sessions.tell(StoreEvent::LeaseLost { lease: self.id(), reason });
        }
        self.ended.cancel();
        if reason != LostReason::Shutdown {
            let session = Arc::clone(self);
            self.env().spawn(async move { session.end_at_the_store().await });
        }
    }

    /// Ends the lease of a session that is lost, which frees what hangs on it earlier than its expiry.
    async fn end_at_the_store(&self) {
        let give_up_at = self.env().now() + self.ttl;
        let mut pause = Pause::new(self.env());
        while self.env().now() < give_up_at {
            if self.revoke_lease().await.is_ok() || self.sessions.closing.is_cancelled() {
                return;
            }
            pause.wait(self.env()).await;
        }
    }

    /// Waits until nobody else deals with `name`.
    async fn claim(self: &Arc<Self>, name: &LockName) -> Claim {
        loop {
            let freed = self.freed.notified();
            if self.book.lock().busy.insert(name.clone()) {
                return Claim { session: Arc::clone(self), name: name.clone() };
            }
            freed.await;
        }
    }

    /// S1
    fn enter(&self, name: &LockName, create: Revision, owner: OwnerId) {
        let mut book = self.book.lock();
        if book.entries.get(name).is_none_or(|entry| entry.create != create) && book.over.is_none() {
            let (since, phase) = (self.env().now(), Phase::Queued);
            let is_watched = book.entries.get(name).is_some_and(|entry| entry.is_watched);
            let entry = Entry { create, owner, phase, since, is_watched };
            book.entries.insert(name.clone(), entry);
        }
    }

    fn forget(&self, name: &LockName, create: Revision) {
        let mut book = self.book.lock();
        if book.entries.get(name).is_none_or(|entry| entry.create != create) {
            return;
        }
        let was_watched = book.entries.remove(name).is_some_and(|entry| entry.is_watched);
        drop(book);
        if was_watched {
            self.watches.unpin(&self.keys(name).own);
        }
    }

    /// The grant of an entry that came first; `None` if it, or the session, is over meanwhile.
    fn grant(&self, name: &LockName, create: Revision) -> Result<Option<Grant>> {
        let counter = self.counter(create)?;
        let mut book = self.book.lock();
        let deadline = book.deadline;
        if book.over.is_some() || deadline.has_passed(self.env().now()) {
            return Ok(None);
        }
        let Some(entry) = book.entries.get_mut(name).filter(|entry| entry.create == create) else {
            return Ok(None);
        };
        if entry.phase != Phase::Queued {
            return Ok(None);
        }
        (entry.phase, entry.since) = (Phase::Held, self.env().now());
        let owner = entry.owner;
        if book.asked.contains(&create) {
            let (name, reason) = (name.clone(), LostReason::Revoked);
            self.sessions.tell(StoreEvent::GrantLost { name, counter, reason });
        }
        let lease = Lease { id: self.id(), scope: LeaseScope::Session, ttl: self.ttl, deadline };
        Ok(Some(Grant { name: name.clone(), owner, lease, counter }))
    }

    /// The counter of an entry, with the namespace's base.
    fn counter(&self, create: Revision) -> Result<u64> {
        let counter = u64::try_from(create).ok().and_then(|create| create.checked_add(self.token_base));
        counter.filter(|counter| *counter <= FencingToken::MAX_COUNTER).ok_or_else(|| {
            Error::not_applied(
                ErrorKind::Protocol,
                format!(
                    "revision {create} with a token_base of {} is above what a token holds",
                    self.token_base
                ),
            )
        })
    }

    /// Lets go of a hold, fenced by its create revision.
    async fn release(self: &Arc<Self>, grant: &Grant) -> Result<()> {
        let (create, is_gone) = {
            let mut book = self.book.lock();
            if book.over.is_some() {
                return Err(Error::lost(LostReason::SessionLost));
            }
            let base = self.token_base;
            let ours = |entry: &&mut Entry| {
                entry.owner == grant.owner
                    && u64::try_from(entry.create).is_ok_and(|create| create + base == grant.counter)
            };
            match book.entries.get_mut(&grant.name).filter(ours) {
                Some(entry) if matches!(entry.phase, Phase::Held | Phase::Releasing) => {
                    entry.phase = Phase::Releasing;
                    (entry.create, false)
                }
                Some(entry) => (entry.create, true),
                None => return Err(Error::lost(LostReason::Gone)),
            }
        };
        if is_gone {
            self.forget(&grant.name, create);
            return Err(Error::lost(LostReason::Gone));
        }
        let deleted = self.delete(&self.keys(&grant.name).own, create).await?;
        self.forget(&grant.name, create);
        if deleted { Ok(()) } else { Err(Error::lost(LostReason::Gone)) }
    }

    /// What the watches tell: deletions of our entries, of the session's key, and what is asked of us.
    fn tap(self: &Arc<Self>, changes: &[Change]) {
        for change in changes {
            if change.key.as_ref() == self.key {
                if matches!(change.kind, Kind::Deleted(_)) && change.revision > self.created {
                    self.lose(LostReason::SessionLost);
                }
            } else if let Some(create) = self.sessions.keys.asked_for(self.lease, &change.key) {
                match change.kind {
                    Kind::Put => self.asked_to_let_go(create),
                    Kind::Deleted(_) => drop(self.book.lock().asked.remove(&create)),
                }
            } else if matches!(change.kind, Kind::Deleted(_)) && change.key.ends_with(&self.suffix) {
                self.entry_deleted(&change.key, change.revision);
            }
        }
    }

    fn hear(self: &Arc<Self>, heard: &Heard<'_>) {
        match *heard {
            Heard::Changes(changes) => self.tap(changes),
            Heard::Stands(key, since) => {
                self.unread.lock().push((key.into(), since));
                self.has_unread.notify_one();
            }
        }
    }

    /// The entry under `key` is gone, if it was created before `revision`.
    fn entry_deleted(&self, key: &[u8], revision: Revision) {
        let Some(name) = self.sessions.keys.name_of(key) else {
            return;
        };
        let mut book = self.book.lock();
        let Some(entry) = book.entries.get_mut(&name).filter(|entry| revision > entry.create) else {
            return;
        };
        let (create, was) = (entry.create, entry.phase);
        entry.phase = if was == Phase::Releasing { was } else { Phase::Deleted };
        drop(book);
        if was == Phase::Held {
            self.grant_lost(name, create, LostReason::Gone);
        }
    }

    /// Somebody wants the lock that the entry created at `create` holds, or is about to.
    fn asked_to_let_go(&self, create: Revision) {
        let mut book = self.book.lock();
        book.asked.insert(create);
        let held =
            book.entries.iter().find(|(_, entry)| entry.create == create && entry.phase == Phase::Held);
        let name = held.map(|(name, _)| name.clone());
        drop(book);
        if let Some(name) = name {
            self.grant_lost(name, create, LostReason::Revoked);
        }
    }

    fn grant_lost(&self, name: LockName, create: Revision, reason: LostReason) {
        if let Ok(counter) = self.counter(create) {
            self.sessions.tell(StoreEvent::GrantLost { name, counter, reason });
        }
    }

    /// Gives a watch of its own to every key that has been held for a while: somebody may delete it. A
    /// short hold needs none, and makes none.
    fn watch_what_is_held(&self) {
        let now = self.env().now();
        let mut names = Vec::new();
        for (name, entry) in &mut self.book.lock().entries {
            let is_new = !entry.is_watched && entry.phase == Phase::Held;
            if is_new && now.since(entry.since) >= self.ttl / 10 {
                entry.is_watched = true;
                names.push(name.clone());
            }
        }
        for name in names {
            let own = self.keys(&name).own;
            self.watches.pin(&own);
            // RACE: it was released before its watch was there to be let go of.
            if !self.book.lock().entries.contains_key(&name) {
                self.watches.unpin(&own);
            }
        }
    }

    /// Reads keys of ours whose watch has just begun, many at once.
    async fn read_what_was_missed(self: Arc<Self>) {
        let mut pause = Pause::new(self.env());
        loop {
            tokio::select! {
                biased;
                () = self.ended.cancelled() => return,
                () = self.has_unread.notified() => {}
            }
            loop {
                let mut batch = std::mem::take(&mut *self.unread.lock());
                let rest = batch.split_off(batch.len().min(READ_AT_ONCE));
                self.unread.lock().extend(rest);
                if batch.is_empty() || self.ended.is_cancelled() {
                    break;
                }
                let Some(read) = self.ended.run_until_cancelled(self.read_own(&batch)).await else {
                    return;
                };
                match read {
                    Ok(()) => pause = Pause::new(self.env()),
                    Err(error) => {
                        tracing::debug!(%error, "keys that are held could not be read");
                        self.unread.lock().extend(batch);
                        pause.wait(self.env()).await;
                    }
                }
            }
        }
    }

    /// Ends the session at its deadline, and looks after it when its watch had a gap.
    async fn guard(self: Arc<Self>, mut listener: Listener) {
        loop {
            let Deadline::At(deadline) = self.deadline() else {
                return;
            };
            tokio::select! {
                biased;
                () = self.ended.cancelled() => return,
                told = listener.told.recv() => match told {
                    Some(Told::Stands(since)) => {
                        self.ended.run_until_cancelled(self.verify(since)).await;
                    }
                    Some(Told::Changes(changes)) => self.tap(&changes),
                    Some(Told::Broken) => {}
                    None => return,
                },
                () = self.env().sleep_until(deadline) => {
                    self.lives();
                }
            }
        }
    }

    /// Reads what the watch may have missed before `since`.
    async fn verify(self: &Arc<Self>, since: Revision) {
        let mut pause = Pause::new(self.env());
        while self.lives() {
            match self.look_after(since).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "the session's key could not be read"),
            }
            pause.wait(self.env()).await;
        }
    }

    fn is_of_cluster(self: &Arc<Self>, header: Option<&etcd_client::ResponseHeader>) -> Result<()> {
        match header {
            Some(header) if header.cluster_id() != self.cluster => {
                self.lose(LostReason::SessionLost);
                Err(Error::lost(LostReason::SessionLost))
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("lease", &format_args!("{:x}", self.lease)).finish_non_exhaustive()
    }
}

/// The deadline of a lease for which `ttl` was granted to a request sent at `sent_at`.
fn deadline(env: &Env, sent_at: Moment, ttl: Duration) -> Deadline {
    Deadline::of_lease(sent_at, ttl, env.timing().margin(ttl).max(HEARTBEAT))
}

/// A server counts time in heartbeats of this length, unless it is told otherwise.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// How many keys are read in one transaction; servers allow 128 by default.
const READ_AT_ONCE: usize = 100;
