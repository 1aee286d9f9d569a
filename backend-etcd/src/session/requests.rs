//! The transactions on the wire, each safe to send again.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, SortOrder, SortTarget, Txn, TxnOp,
    TxnOpResponse, TxnResponse,
};
use leasehold_core::backend::Holder;
use leasehold_core::clock::Moment;
use leasehold_core::{Error, ErrorKind, LostReason, Result};

use super::Session;
use crate::connection::Silence;
use crate::error;
use crate::keys::{LockKeys, grace_of};
use crate::protocol::{Answer, Key, Patience, Revision, Seen, WatchId};

/// Who is the oldest in a queue: when it came, and what it says of itself.
pub(super) type Oldest = Option<(Revision, Holder)>;

impl Session {
    /// Puts the entry unless one is there; with [`Patience::Tries`], unless anybody's is. Shows what is older, while
    /// the watch of that number stands on the queue.
    pub(super) async fn ask(
        self: &Arc<Self>,
        patience: Patience,
        keys: &LockKeys,
        value: &[u8],
        epoch: Revision,
        watch: Option<WatchId>,
    ) -> Result<(Answer, Oldest)> {
        let absent = match patience {
            Patience::Waits => Compare::create_revision(keys.own.clone(), CompareOp::Equal, 0),
            Patience::Tries => {
                Compare::create_revision(keys.queue.clone(), CompareOp::Equal, 0).with_prefix()
            }
        };
        let in_epoch = Compare::mod_revision(self.key.clone(), CompareOp::Equal, epoch);
        let put = TxnOp::put(keys.own.clone(), value, Some(PutOptions::new().with_lease(self.lease)));
        let shown = if watch.is_some() { LONG } else { SHORT };
        // The youngest are ours and those before it.
        let nearest = TxnOp::get(keys.queue.clone(), Some(nearest(shown + 1)));
        let queue = match patience {
            Patience::Waits => oldest().with_keys_only().with_limit(shown as i64 + 1),
            Patience::Tries => oldest(),
        };
        let reads = || {
            let own = TxnOp::get(keys.own.clone(), None);
            [own, TxnOp::get(keys.queue.clone(), Some(queue.clone())), read_key(&self.key)]
        };
        let txn = Txn::new().when([absent, in_epoch]).and_then([put, nearest]);
        let mut answer = match patience {
            Patience::Tries => self.txn(txn.or_else(reads())).await?,
            Patience::Waits => self.txn(txn).await?,
        };
        let is_put = answer.succeeded();
        if !is_put && patience == Patience::Waits {
            // Only what an earlier request has left is in the way: it is not worth sending the reads each time.
            answer = self.txn(Txn::new().and_then(reads())).await?;
        }
        let revision = revision(&answer)?;
        let seen = |queue: &GetResponse, create: Revision, all: bool| {
            let older = older(queue, &keys.queue, create)?;
            Ok::<_, Error>(Seen { revision, older, all, is_far: queue.count() > FAR, watch })
        };
        if is_put {
            let [queue] = gets(&answer)?;
            let seen = seen(&queue, revision, !queue.more())?;
            return Ok((Answer { mine: Some((revision, true)), seen, in_epoch: true }, None));
        }
        let [own, queue, session] = gets(&answer)?;
        let Some(session) = session.kvs().first() else {
            self.lose(LostReason::SessionLost);
            return Err(Error::lost(LostReason::SessionLost));
        };
        self.book.lock().saw_epoch(session.mod_revision());
        let mine = own.kvs().first().map(|kv| (kv.create_revision(), kv.value() == value));
        let create = mine.map_or(Revision::MAX, |(create, _)| create);
        // The oldest ones: any of them is one to wait for.
        let all = queue.kvs().iter().any(|kv| kv.create_revision() == create);
        let in_epoch = session.mod_revision() == epoch;
        Ok((Answer { mine, seen: seen(&queue, create, all)?, in_epoch }, self.oldest(&queue)))
    }

    /// Reads the queue up to the entry created at `create`: what is older, if that is there. One is enough, unless
    /// the watch of that number stands on the queue.
    pub(super) async fn look(
        self: &Arc<Self>,
        keys: &LockKeys,
        create: Revision,
        watch: Option<WatchId>,
    ) -> Result<Option<Seen>> {
        let shown = if watch.is_some() { LONG } else { 1 };
        let before = nearest(shown).with_max_create_revision(create.saturating_sub(1));
        let reads = [read_key(&keys.own), TxnOp::get(keys.queue.clone(), Some(before))];
        let answer = self.txn(Txn::new().and_then(reads)).await?;
        let revision = revision(&answer)?;
        let [own, queue] = gets(&answer)?;
        let (older, all) = (older(&queue, &keys.queue, create)?, watch.is_some() && !queue.more());
        let is_there = created(&own) == Some(create);
        Ok(is_there.then_some(Seen { revision, older, all, is_far: false, watch }))
    }

    /// Whether keys are those created at these revisions still; and, if somebody wants to know, the oldest of the
    /// queue.
    pub(super) async fn check(
        self: &Arc<Self>,
        queue: &[u8],
        keys: &[(Key, Revision)],
        for_whom: bool,
    ) -> Result<(bool, Oldest)> {
        let reads = keys.iter().map(|(key, _)| read_key(key));
        let reads = reads.chain(for_whom.then(|| TxnOp::get(queue, Some(oldest())))).collect::<Vec<_>>();
        let answers = reads_of(&self.txn(Txn::new().and_then(reads)).await?)?;
        let stand = keys.iter().zip(&answers).all(|((_, create), read)| created(read) == Some(*create));
        Ok((stand, answers.get(keys.len()).and_then(|queue| self.oldest(queue))))
    }

    fn oldest(&self, queue: &GetResponse) -> Oldest {
        queue.kvs().first().map(|kv| (kv.create_revision(), self.sessions.holder(kv)))
    }

    /// Deletes an entry if it was created at `create`; whether it did. One that we have no right to
    /// delete would block the queue for as long as the session lasts: it ends with the session (etcd.session-1).
    pub(super) async fn delete(self: &Arc<Self>, key: &[u8], create: Revision) -> Result<bool> {
        let same = Compare::create_revision(key, CompareOp::Equal, create);
        // Nobody else takes the message back.
        let is_asked_for = self.book.lock().asked.within(create, self.env().now()).is_some();
        let message = is_asked_for.then(|| self.deletion_of_message(create));
        let ops = [TxnOp::delete(key, None)].into_iter().chain(message).collect::<Vec<_>>();
        match self.txn(Txn::new().when([same]).and_then(ops)).await {
            Err(denied) if *denied.kind() == ErrorKind::Denied => {
                self.deny(&denied);
                Err(denied)
            }
            answer => Ok(answer?.succeeded()),
        }
    }

    /// Deletes messages in our inbox; the watch tells of it.
    pub(super) async fn delete_messages(self: &Arc<Self>, about: &[Revision]) -> Result<()> {
        let deletions: Vec<_> = about.iter().map(|create| self.deletion_of_message(*create)).collect();
        self.txn(Txn::new().and_then(deletions)).await.map(drop)
    }

    fn deletion_of_message(&self, create: Revision) -> TxnOp {
        TxnOp::delete(self.sessions.keys.inbox(self.lease, create), None)
    }

    /// Moves the epoch on. If another has moved it meanwhile, it is known where to.
    pub(super) async fn move_epoch(self: &Arc<Self>) -> Result<()> {
        let at_epoch = Compare::mod_revision(self.key.clone(), CompareOp::Equal, self.book.lock().epoch());
        let moved = TxnOp::put(self.key.clone(), "", Some(PutOptions::new().with_lease(self.lease)));
        let txn =
            Txn::new().when([at_epoch]).and_then([moved, read_key(&self.key)]).or_else([read_key(&self.key)]);
        let [read] = gets(&self.txn(txn).await?)?;
        match read.kvs().first() {
            Some(kv) => self.book.lock().saw_epoch(kv.mod_revision()),
            None => self.lose(LostReason::SessionLost),
        }
        Ok(())
    }

    /// When an entry was created, if it is there.
    pub(super) async fn find(self: &Arc<Self>, key: &[u8]) -> Result<Option<Revision>> {
        let [found] = gets(&self.txn(Txn::new().and_then([read_key(key)])).await?)?;
        Ok(created(&found))
    }

    /// Reads keys of ours, each at or after a revision, and deals with those that are gone; with the
    /// session's key its inbox.
    pub(super) async fn read_own(self: &Arc<Self>, keys: &[(Key, Revision)]) -> Result<()> {
        let is_session = |key: &[u8]| key == self.key;
        let inbox = GetOptions::new().with_range(self.sessions.keys.session_end(self.lease));
        let read = |(key, _): &(Key, Revision)| match is_session(key) {
            true => TxnOp::get(key.as_ref(), Some(inbox.clone())),
            false => read_key(key),
        };
        let sent_at = self.env().now();
        let answer = self.txn(Txn::new().and_then(keys.iter().map(read).collect::<Vec<_>>())).await?;
        let revision = revision(&answer)?;
        if keys.iter().any(|(_, since)| revision < *since) {
            return Err(error::cut("a read that should have been later"));
        }
        for ((key, _), part) in keys.iter().zip(reads_of(&answer)?) {
            match created(&part) {
                _ if is_session(key) => self.on_session(sent_at, part.kvs()),
                // A later entry of ours has taken its place.
                Some(later) => self.entry_deleted(key, later),
                None => self.entry_deleted(key, revision.saturating_add(1)),
            }
        }
        Ok(())
    }

    /// The session's key and its inbox were read, by a request sent then.
    fn on_session(self: &Arc<Self>, sent_at: Moment, found: &[KeyValue]) {
        let message =
            |kv: &KeyValue| Some((self.sessions.keys.asked_for(self.lease, kv.key())?, grace_of(kv.value())));
        let messages: HashMap<_, _> = found.iter().filter_map(message).collect();
        // Of those that were taken back meanwhile we are not told.
        self.book.lock().asked.keep(sent_at, |create| messages.contains_key(&create));
        for (create, grace) in messages {
            self.asked_to_let_go(create, grace);
        }
        if !found.iter().any(|kv| kv.key() == self.key && kv.create_revision() == self.created) {
            self.lose(LostReason::SessionLost);
        }
    }

    pub(super) async fn revoke_lease(&self) -> Result<()> {
        let lease = self.lease;
        let revoked =
            self.sessions.endpoints.ask(|client| async move { client.lease_client().revoke(lease).await });
        match revoked.await {
            // It is over already.
            Err(error) if error.lost_reason().is_some() => Ok(()),
            other => other.map(drop),
        }
    }

    /// One attempt of a transaction. A lease that is gone ends the session, and so does another cluster.
    pub(super) async fn txn(self: &Arc<Self>, txn: Txn) -> Result<TxnResponse> {
        let answer = self
            .sessions
            .endpoints
            .call(Silence::MayBeOfTheRequest, |client| async move { client.kv_client().txn(txn).await })
            .await;
        let is_of_ours =
            |answer: &TxnResponse| answer.header().is_none_or(|header| header.cluster_id() == self.cluster);
        let answer = match answer {
            Ok(answer) if !is_of_ours(&answer) => Err(Error::lost(LostReason::SessionLost)),
            answer => answer,
        };
        answer.inspect_err(|error| {
            if let Some(reason) = error.lost_reason() {
                self.lose(reason);
            }
        })
    }
}

/// The oldest key that begins with another, and how many there are.
pub(crate) fn oldest() -> GetOptions {
    GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1)
}

/// The youngest.
fn nearest(limit: usize) -> GetOptions {
    oldest().with_sort(SortTarget::Create, SortOrder::Descend).with_keys_only().with_limit(limit as i64)
}

fn read_key(key: &[u8]) -> TxnOp {
    TxnOp::get(key, Some(GetOptions::new().with_keys_only()))
}

/// When the key that was read was created, if it is there.
fn created(read: &GetResponse) -> Option<Revision> {
    read.kvs().first().map(KeyValue::create_revision)
}

/// The entries before one, the youngest first.
fn older(read: &GetResponse, queue: &[u8], create: Revision) -> Result<Vec<(Key, Revision)>> {
    if !read.kvs().iter().all(|kv| kv.key().starts_with(queue)) {
        return Err(error::malformed("with a key of another queue"));
    }
    let entries = read.kvs().iter().map(|kv| (kv.key().into(), kv.create_revision()));
    let mut older: Vec<_> = entries.filter(|(_, created)| *created < create).collect();
    older.sort_by_key(|(_, created)| Reverse(*created));
    Ok(older)
}

pub(crate) fn revision(answer: &TxnResponse) -> Result<Revision> {
    let header = answer.header().ok_or_else(|| error::malformed("without a header"))?;
    Ok(header.revision())
}

/// The reads of an answer, in order.
pub(crate) fn gets<const N: usize>(answer: &TxnResponse) -> Result<[GetResponse; N]> {
    let reads: Result<_, _> = reads_of(answer)?.try_into();
    reads.map_err(|_other: Vec<_>| error::malformed("with parts missing"))
}

fn reads_of(answer: &TxnResponse) -> Result<Vec<GetResponse>> {
    // The client panics on a part that it does not know.
    let parts = std::panic::catch_unwind(|| answer.op_responses());
    let parts = parts.map_err(|_panic| error::malformed("with an unknown part"))?;
    let read = |part| match part {
        TxnOpResponse::Get(get) => Some(get),
        TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => None,
    };
    Ok(parts.into_iter().filter_map(read).collect())
}

/// With so many older entries a watch on the queue is opened; with that many it is closed. Between the two it is
/// used if it stands.
pub(super) const SHORT: usize = 16;
const LONG: usize = 32;
/// With so many in a queue a turn is further away than the tenth of a second by which a watch on the past is late.
const FAR: i64 = 64;
