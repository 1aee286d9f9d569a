//! The transactions on the wire, each safe to send again.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use etcd_client::{
    Client, Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, SortOrder, SortTarget, Txn,
    TxnOp, TxnOpResponse, TxnResponse,
};
use leasehold_core::backend::Holder;
use leasehold_core::clock::Moment;
use leasehold_core::{Error, ErrorKind, LostReason, Mode, Result};

use super::Session;
use crate::connection::Silence;
use crate::error;
use crate::keys::{LockKeys, grace_of};
use crate::protocol::{
    Beyond, Enter, EntryReply, Key, LONG, Patience, QueueSnapshot, Revision, Rival, WatchId, mode_of,
};

/// The oldest entry of a queue: its create revision, and its holder.
pub(super) type Oldest = Option<(Revision, Holder)>;

impl Session {
    /// Puts the entry, unless an own one exists or one that it must not `enter` behind. Shows the older entries; that `watch`
    /// stands on the queue.
    pub(super) async fn ask(
        self: &Arc<Self>,
        patience: Patience,
        enter: Enter,
        keys: &LockKeys,
        value: &[u8],
        epoch: Revision,
        watch: Option<WatchId>,
    ) -> Result<(EntryReply, Oldest)> {
        let in_epoch = Compare::mod_revision(self.key.clone(), CompareOp::Equal, epoch);
        let put = put_on_lease(self.lease, keys.own.clone(), value);
        let shown = match (watch, keys.slot.mode) {
            _ if matches!(enter, Enter::NoneAfter { all: true, .. }) => None,
            (None, _) => Some(SHORT),
            // So many may hold at the same time that only all entries show what blocks one.
            (Some(_), mode) if mode != Mode::SHARED && mode.capacity() as usize > CROWD => None,
            (Some(_), _) => Some(LONG),
        };
        let queue = match patience {
            Patience::Waits => oldest().with_keys_only().with_limit(shown.unwrap_or(LONG) as i64 + 1),
            Patience::Tries => oldest(),
        };
        let of_queue = |options| TxnOp::get(keys.queue.clone(), Some(options));
        // The youngest are the own one and the ones before it.
        let mut before = vec![of_queue(nearest(shown.map(|shown| shown + 1)))];
        before.extend(more_before(keys, None));
        let is_always = enter == Enter::Always;
        let too = if is_always || keys.slot.mode == Mode::EXCLUSIVE { Vec::new() } else { before.clone() };
        // Not made for a free lock.
        let reads = || {
            let own = TxnOp::get(keys.own.clone(), None);
            [vec![own, of_queue(queue.clone()), read_key(&self.key)], too.clone()].concat()
        };
        // The oldest entry blocks a try that is put.
        let for_whom = (patience == Patience::Tries && is_always).then(|| of_queue(oldest()));
        let has_oldest = for_whom.is_some();
        let enters: Vec<_> = [put].into_iter().chain(before).chain(for_whom).collect();
        let txn = Txn::new().when(unless(keys, enter, in_epoch)).and_then(enters);
        let mut answer = self.txn(if is_always { txn } else { txn.or_else(reads()) }).await?;
        let is_put = answer.succeeded();
        if !is_put && is_always {
            // Rare: only an entry of an earlier request is in the way. So the reads are a request of their own.
            answer = self.txn(Txn::new().and_then(reads())).await?;
        }
        let (revision, mut parts) = (revision(&answer)?, reads_of(&answer)?);
        if is_put {
            let whom = if has_oldest { parts.pop() } else { None };
            let oldest = whom.and_then(|queue| self.oldest(&queue));
            let seen = seen(keys, (revision, revision), watch, &parts)?;
            return Ok((EntryReply { mine: Some((revision, true)), seen, in_epoch: true }, oldest));
        }
        let [own, queue, session, before @ ..] = &*parts else {
            return Err(error::malformed("parts are missing"));
        };
        let Some(session) = session.kvs().first() else {
            self.lose(LostReason::SessionLost);
            return Err(Error::lost(LostReason::SessionLost));
        };
        self.book.lock().saw_epoch(session.mod_revision());
        let mine = own.kvs().first().map(|kv| (kv.create_revision(), kv.value() == value));
        let create = mine.map_or(Revision::MAX, |(create, _)| create);
        let in_epoch = session.mod_revision() == epoch;
        let seen = if mine.is_none() && !before.is_empty() {
            seen(keys, (revision, create), watch, before)?
        } else {
            // The oldest entries: any of them blocks the own one.
            let all = queue.kvs().iter().any(|kv| kv.create_revision() == create);
            let beyond = if all { Beyond::Nobody } else { Beyond::Unknown };
            QueueSnapshot {
                revision,
                older: older(queue, keys, create)?,
                beyond,
                is_far: queue.count() > FAR,
                watch,
            }
        };
        Ok((EntryReply { mine, seen, in_epoch }, self.oldest(queue)))
    }

    /// Reads the entries that are older than the one created at `create`, if that exists. Without a `watch` on the queue
    /// fewer are enough, unless `all` are wanted.
    pub(super) async fn look(
        self: &Arc<Self>,
        keys: &LockKeys,
        create: Revision,
        watch: Option<WatchId>,
        all: bool,
    ) -> Result<Option<QueueSnapshot>> {
        let shown = match (watch, keys.slot.mode) {
            _ if all => None,
            (Some(_), _) => Some(LONG),
            (None, Mode::EXCLUSIVE) => Some(1),
            (None, _) => Some(SHORT),
        };
        let last = create.saturating_sub(1);
        let before = TxnOp::get(keys.queue.clone(), Some(nearest(shown).with_max_create_revision(last)));
        let reads = [read_key(&keys.own), before].into_iter().chain(more_before(keys, Some(last)));
        let (revision, parts) = self.read(reads).await?;
        let [own, before @ ..] = &*parts else {
            return Err(error::malformed("parts are missing"));
        };
        let is_there = created(own) == Some(create);
        let seen = seen(keys, (revision, create), watch, before)?;
        Ok(is_there.then_some(QueueSnapshot { is_far: false, ..seen }))
    }

    /// Whether our entry and some others still exist; and, if wanted, the oldest of the queue.
    pub(super) async fn check(
        self: &Arc<Self>,
        queue: &[u8],
        own: (&[u8], Revision),
        others: &[Rival],
        for_whom: bool,
    ) -> Result<(bool, Oldest)> {
        let oldest = for_whom.then(|| TxnOp::get(queue, Some(oldest())));
        // A transaction has a limited number of parts.
        let is_listed = others.len() > SHORT;
        let list = is_listed.then(|| TxnOp::get(queue, Some(nearest(None))));
        let singly = if is_listed { &[] } else { others };
        let reads = singly.iter().map(|rival| read_key(&rival.key)).chain([read_key(own.0)]);
        let (_, answers) = self.read(reads.chain(list).chain(oldest)).await?;
        let there = answers.iter().flat_map(GetResponse::kvs).map(|kv| (kv.key(), kv.create_revision()));
        let there: HashSet<_> = there.collect();
        let mut expected = others.iter().map(|rival| (&*rival.key, rival.create)).chain([own]);
        let queue = answers.last().filter(|_| for_whom);
        Ok((expected.all(|entry| there.contains(&entry)), queue.and_then(|queue| self.oldest(queue))))
    }

    fn oldest(&self, queue: &GetResponse) -> Oldest {
        queue.kvs().first().map(|kv| (kv.create_revision(), self.sessions.holder(kv)))
    }

    /// Deletes an entry if it was created at `create`; whether it existed. Without the right the session ends
    /// (etcd.session-1).
    pub(super) async fn delete(self: &Arc<Self>, key: &[u8], create: Revision) -> Result<bool> {
        let same = Compare::create_revision(key, CompareOp::Equal, create);
        // A message would outlast its entry.
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

    /// Deletes messages in our inbox; the watch reports it.
    pub(super) async fn delete_messages(self: &Arc<Self>, about: &[Revision]) -> Result<()> {
        let deletions: Vec<_> = about.iter().map(|create| self.deletion_of_message(*create)).collect();
        self.txn(Txn::new().and_then(deletions)).await.map(drop)
    }

    fn deletion_of_message(&self, create: Revision) -> TxnOp {
        TxnOp::delete(self.sessions.keys.inbox(self.lease, create), None)
    }

    /// Moves the epoch on, or reads where another acquisition has moved it.
    pub(super) async fn move_epoch(self: &Arc<Self>) -> Result<()> {
        let at_epoch = Compare::mod_revision(self.key.clone(), CompareOp::Equal, self.book.lock().epoch);
        let (moved, read) =
            (put_on_lease(self.lease, self.key.clone(), self.sessions.says()), read_key(&self.key));
        let txn = Txn::new().when([at_epoch]).and_then([moved, read.clone()]).or_else([read]);
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

    /// Reads own keys, each at or after a revision, and handles deleted ones; with the session's key its inbox.
    pub(super) async fn read_own(self: &Arc<Self>, keys: &[(Key, Revision)]) -> Result<()> {
        let is_session = |key: &[u8]| key == self.key;
        let inbox = GetOptions::new().with_range(self.sessions.keys.session_end(self.lease));
        let read = |(key, _): &(Key, Revision)| match is_session(key) {
            true => TxnOp::get(key.as_ref(), Some(inbox.clone())),
            false => read_key(key),
        };
        let sent_at = self.env().now();
        let (revision, parts) = self.read(keys.iter().map(read)).await?;
        if keys.iter().any(|(_, since)| revision < *since) {
            return Err(error::cut("a read at an outdated revision"));
        }
        for ((key, _), part) in keys.iter().zip(parts) {
            match created(&part) {
                _ if is_session(key) => self.on_session(sent_at, part.kvs()),
                // A later own entry has taken its place.
                Some(later) => self.entry_deleted(key, later),
                None => self.entry_deleted(key, revision.saturating_add(1)),
            }
        }
        Ok(())
    }

    fn on_session(self: &Arc<Self>, sent_at: Moment, found: &[KeyValue]) {
        let message =
            |kv: &KeyValue| Some((self.sessions.keys.asked_for(self.lease, kv.key())?, grace_of(kv.value())));
        let messages: HashMap<_, _> = found.iter().filter_map(message).collect();
        // Messages that were withdrawn during the gap are not reported.
        self.book.lock().asked.keep(sent_at, |create| messages.contains_key(&create));
        for (create, grace) in messages {
            self.asked_to_let_go(create, grace);
        }
        if !found.iter().any(|kv| kv.key() == self.key && kv.create_revision() == self.created) {
            self.lose(LostReason::SessionLost);
        }
    }

    /// Reads at one revision, which it returns.
    async fn read(
        self: &Arc<Self>,
        reads: impl Iterator<Item = TxnOp>,
    ) -> Result<(Revision, Vec<GetResponse>)> {
        let answer = self.txn(Txn::new().and_then(reads.collect::<Vec<_>>())).await?;
        Ok((revision(&answer)?, reads_of(&answer)?))
    }

    /// One attempt of a transaction. A lease that is gone ends the session, and so does another cluster.
    pub(super) async fn txn(self: &Arc<Self>, txn: Txn) -> Result<TxnResponse> {
        let send = |client: Arc<Client>| async move { client.kv_client().txn(txn).await };
        let answer = self.sessions.endpoints.call(Silence::MayBeOfTheRequest, send).await;
        let answer = answer.and_then(|answer| match answer.header() {
            Some(header) if header.cluster_id() != self.cluster => Err(Error::lost(LostReason::SessionLost)),
            _ => Ok(answer),
        });
        answer.inspect_err(|error| {
            if let Some(reason) = error.lost_reason() {
                self.lose(reason);
            }
        })
    }
}

/// Puts a key that ends with that lease.
pub(crate) fn put_on_lease(lease: i64, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> TxnOp {
    TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)))
}

/// The oldest key that begins with another, and how many there are.
pub(crate) fn oldest() -> GetOptions {
    GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1)
}

/// The youngest: so many, or all.
fn nearest(limit: Option<usize>) -> GetOptions {
    let all = oldest().with_sort(SortTarget::Create, SortOrder::Descend).with_keys_only();
    all.with_limit(limit.map_or(0, |limit| limit as i64))
}

/// The conditions under which an entry is put.
fn unless(keys: &LockKeys, enter: Enter, in_epoch: Compare) -> Vec<Compare> {
    let absent = |key: &[u8]| Compare::create_revision(key, CompareOp::Equal, 0);
    let mut conditions = vec![absent(&keys.own), in_epoch];
    match enter {
        Enter::Always => {}
        Enter::AmongReaders => {
            conditions.extend(keys.who_do_not_share().map(|(from, to)| absent(&from).with_range(to)));
        }
        Enter::NoneAfter { revision, .. } => {
            let later = Compare::create_revision(&*keys.queue, CompareOp::Less, revision.saturating_add(1));
            conditions.push(later.with_prefix());
        }
    }
    conditions
}

/// Further reads of the entries before one, created at that revision at the latest. If none of them blocks it, it holds
/// behind any number of others, which need not be shown.
fn more_before(keys: &LockKeys, last: Option<Revision>) -> Vec<TxnOp> {
    match keys.slot.mode {
        Mode::SHARED => who_do_not_share(keys, last).into(),
        // Of fewer permits the shown entries leave none. A count cannot be of an earlier revision.
        mode if mode.capacity() as usize > SHORT && last.is_none() => {
            let alike = GetOptions::new().with_prefix().with_count_only();
            vec![TxnOp::get(keys.who_are_alike(), Some(alike))]
        }
        _ => Vec::new(),
    }
}

/// The nearest entries that do not share, of two ranges.
fn who_do_not_share(keys: &LockKeys, last: Option<Revision>) -> [TxnOp; 2] {
    keys.who_do_not_share().map(|(from, to)| {
        let nearest = nearest(Some(1)).with_range(to);
        let nearest = last.into_iter().fold(nearest, GetOptions::with_max_create_revision);
        TxnOp::get(from, Some(nearest))
    })
}

/// The queue as the reads show it to the entry created at `create`, or to a new one.
fn seen(
    keys: &LockKeys,
    (revision, create): (Revision, Revision),
    watch: Option<WatchId>,
    parts: &[GetResponse],
) -> Result<QueueSnapshot> {
    let [queue, more @ ..] = parts else {
        return Err(error::malformed("parts are missing"));
    };
    let mut older = older(queue, keys, create)?;
    let mut beyond = if queue.more() { Beyond::Unknown } else { Beyond::Nobody };
    match (beyond, keys.slot.mode, more) {
        (Beyond::Unknown, Mode::SHARED, [_, _]) => match nearest_of(more, keys, create)? {
            None => beyond = Beyond::Alike(0),
            Some(nearest) if !older.contains(&nearest) => older.push(nearest),
            Some(_) => {}
        },
        // A proxy may have dropped the reads of blocking entries.
        (Beyond::Unknown, Mode::SHARED, _) => return Err(error::malformed("parts are missing")),
        (Beyond::Unknown, mode, [alike, ..]) if mode != Mode::EXCLUSIVE && alike.count() == queue.count() => {
            let ours = usize::from(create < Revision::MAX);
            let others = usize::try_from(queue.count()).unwrap_or(0).saturating_sub(ours + older.len());
            beyond = if others < MANY { Beyond::Alike(others) } else { Beyond::Unknown };
        }
        _ => {}
    }
    Ok(QueueSnapshot { revision, older, beyond, is_far: queue.count() > FAR, watch })
}

/// The youngest in any of these ranges that is older than an entry.
fn nearest_of(ranges: &[GetResponse], keys: &LockKeys, create: Revision) -> Result<Option<Rival>> {
    let ranges: Vec<_> = ranges.iter().map(|range| older(range, keys, create)).collect::<Result<_>>()?;
    Ok(ranges.into_iter().flatten().max_by_key(|rival| rival.create))
}

fn read_key(key: &[u8]) -> TxnOp {
    TxnOp::get(key, Some(GetOptions::new().with_keys_only()))
}

/// When the key that was read was created, if it is there.
fn created(read: &GetResponse) -> Option<Revision> {
    read.kvs().first().map(KeyValue::create_revision)
}

/// The entries before one, the youngest first.
fn older(read: &GetResponse, keys: &LockKeys, create: Revision) -> Result<Vec<Rival>> {
    let rival = |kv: &KeyValue| {
        let mode = mode_of(kv.key().strip_prefix(keys.queue.as_slice())?);
        Some(Rival { key: kv.key().into(), create: kv.create_revision(), mode })
    };
    let entries: Option<Vec<_>> = read.kvs().iter().map(rival).collect();
    let mut older = entries.ok_or_else(|| error::malformed("a key of another queue"))?;
    older.retain(|rival| rival.create < create);
    older.sort_by_key(|rival| Reverse(rival.create));
    Ok(older)
}

pub(crate) fn revision(answer: &TxnResponse) -> Result<Revision> {
    let header = answer.header().ok_or_else(|| error::malformed("the header is missing"))?;
    Ok(header.revision())
}

/// The reads of an answer, in order.
pub(crate) fn gets<const N: usize>(answer: &TxnResponse) -> Result<[GetResponse; N]> {
    let reads: Result<_, _> = reads_of(answer)?.try_into();
    reads.map_err(|_other: Vec<_>| error::malformed("parts are missing"))
}

fn reads_of(answer: &TxnResponse) -> Result<Vec<GetResponse>> {
    // The client crate panics on an unknown part.
    let parts = std::panic::catch_unwind(|| answer.op_responses());
    let parts = parts.map_err(|_panic| error::malformed("a part is unknown"))?;
    let read = |part| match part {
        TxnOpResponse::Get(get) => Some(get),
        TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => None,
    };
    Ok(parts.into_iter().filter_map(read).collect())
}

/// Behind so many a watch on the queue is opened. Between this and [`LONG`] one that stands is used.
const SHORT: usize = 16;
/// In longer queues a turn is further away than the tenth of a second by which a watch on the past is late.
const FAR: i64 = 64;
/// Of more permits than these the whole queue is read.
const CROWD: usize = 8;
/// So many are not counted, but read.
const MANY: usize = 100_000;
