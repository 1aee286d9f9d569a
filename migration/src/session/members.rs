//! Signs in both stores, reads their records, and writes the acknowledgements. One task for each store.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::ledger::Entry;
use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{Lease, LeaseScope};
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Error, Result};

use super::book::Book;
use super::claim::{Claim, Stage};
use super::signature::Signature;
use super::{SIDES, Session};
use crate::protocol::member::{Holds, MemberEntry};
use crate::protocol::record::MoveRecord;
use crate::protocol::records::{Read, lost_its_data, misuse};
use crate::protocol::view::{DataLost, View};
use crate::protocol::{Class, Pair};

/// When the read of a record began: knowledge of that time is older than the answer.
#[derive(Clone, Copy)]
pub(super) struct Look {
    times: u64,
    newest: u64,
}

impl Session {
    pub(super) async fn keep_looking(self: Arc<Self>, side: Side) {
        loop {
            self.looks.change(|looks| looks[side].begun += 1);
            let looked = tokio::select! {
                biased;
                () = self.closing.cancelled() => return,
                looked = self.look(side) => looked,
            };
            self.with(|book, now| {
                book.looked(side, looked.err(), now);
                book.let_go_of_what_is_given_up(now);
                // Not at once: a name is often wanted again.
                book.slots.retain(|_, slot| !slot.is_empty());
            });
            self.looks.change(|looks| looks[side].ended = looks[side].begun);
            if side == Side::Old {
                // Not for longer than one request: the entry is signed from here, too.
                let bound = self.env.timing().op_timeout;
                let looks = self.env.within(bound, self.look_for_foreign_clients());
                self.closing.run_until_cancelled(looks).await;
            }
            let pause = self.env.jittered(self.poll.min(self.signs_every() / 2));
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return,
                () = self.stores[side].poke.notified() => {}
                () = self.env.sleep(pause) => {}
            }
        }
    }

    /// Waits for a view; returns why there is none.
    pub(super) async fn view_or_why(self: &Arc<Self>) -> Result<()> {
        if self.with(|book, _| book.view().is_some()) {
            return Ok(());
        }
        // The pending reading may have begun before this.
        let enough = self.looks.read(|looks| Pair::each(|side| looks[side].begun + 1));
        for side in SIDES {
            self.stores[side].poke.notify_one();
        }
        let seen = self.looks.until(|looks| {
            let all = SIDES.iter().all(|side| looks[*side].ended >= enough[*side]);
            let is_over = all || self.closing.is_cancelled() || self.book.lock().view().is_some();
            is_over.then_some(())
        });
        let bounded = async {
            seen.await;
            self.refuse_closed()?;
            self.with(|book, _| if book.view().is_some() { Ok(()) } else { Err(book.why_blind()) })
        };
        self.env.bounded(bounded).await.map_err(|error| error.with_effect(Effect::NotApplied))
    }

    /// How often an entry is signed that has a lease of its own: so that a hold, which is trusted no longer, need not be renewed
    /// much more often than in one store.
    fn signs_every(&self) -> Duration {
        self.env.timing().ttl / 4
    }

    async fn look(self: &Arc<Self>, side: Side) -> Result<()> {
        if self.stores[side].open.get().is_none() {
            let bound = self.env.timing().connect_timeout;
            let opened = self.env.within(bound, self.open_at(side)).await;
            opened.unwrap_or_else(|| Err(super::silent(side, bound)))?;
        }
        let every = self.signs_every();
        if self.with(|book, now| book.must_sign(side, now, every)) {
            self.sign(side).await?;
        }
        self.read(side).await
    }

    async fn sign(self: &Arc<Self>, side: Side) -> Result<()> {
        let ledger = &self.open(side)?.ledger;
        let (member, news) = self.with(|book, _| (book.member(), book.entries[side].news));
        let signed = self.env.bounded(ledger.sign(self.id, &member.encode())).await?;
        self.with(|book, now| {
            book.signed(side, signed, now);
            (book.entries[side].said, book.entries[side].value) = (news, member);
        });
        Ok(())
    }

    /// Reads the record at `side`, and knows it from then on.
    pub(super) async fn read(self: &Arc<Self>, side: Side) -> Result<()> {
        let ledger = &self.open(side)?.ledger;
        let look =
            self.with(|book, _| Look { times: book.entries[side].times, newest: book.entries[side].newest });
        let record = self.env.bounded(ledger.read()).await?;
        let decides = |view: View| view.class() == Class::New;
        let has_gone_back = |entry: &Entry| {
            let phase = Read::of(entry).map(|read| (read.record.stand.phase, read.record.end.is_some()));
            phase.is_ok_and(|(phase, is_over)| !is_over && Class::of(phase) != Class::New)
        };
        let is_lost = side == Side::Old && record.as_ref().is_none_or(has_gone_back);
        let learned = self.with(|book, _| book.learn(side, look, record));
        if is_lost && self.with(|book, _| book.view().is_some_and(decides)) {
            self.restore_old().await?;
        }
        learned
    }
}

impl Book {
    pub(super) fn member(&self) -> MemberEntry {
        let trouble = SIDES.into_iter().find_map(|side| self.trouble[side].as_ref());
        MemberEntry {
            label: self.label.to_string(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            acknowledges: Pair::each(|side| self.knowledge().acknowledged(side)),
            view: self.view().map(|view| view.phase),
            holds: self.holds(),
            foreign_clients: self.foreign_clients.clone(),
            trouble: trouble.map(|error| format!("{error:#}")),
            ..MemberEntry::default()
        }
    }

    /// How many locks are held, and where.
    pub(super) fn holds(&self) -> Holds {
        let mut holds = Holds::default();
        for slot in self.slots.values() {
            let Some(Claim { stage: Stage::Holding { hold, .. }, .. }) = &slot.claim else {
                continue;
            };
            match (hold.alone(Side::Old), hold.alone(Side::New)) {
                (true, _) => holds.old += 1,
                (_, true) => holds.new += 1,
                _ if !hold.over => holds.both += 1,
                _ => {}
            }
        }
        holds
    }

    pub(super) fn must_sign(&self, side: Side, now: Moment, every: Duration) -> bool {
        let Signature { lease, signed_at, news, said, value, .. } = &self.entries[side];
        let of_session = lease.is_some_and(|lease| lease.scope == LeaseScope::Session);
        // A session keeps the entry as it is.
        let is_true = || of_session && *value == self.member();
        let late = signed_at.is_none_or(|at| every <= now.since(at) && !is_true());
        !self.knowledge().is_signed(side) || late || news != said
    }

    /// The process has signed there. A signature in a session that has ended by now is lost with it.
    pub(super) fn signed(&mut self, side: Side, lease: Lease, now: Moment) {
        if self.leases.is_over(side, &lease) {
            return;
        }
        let known = self.entries[side].lease;
        let mut deadline = lease.deadline;
        match known {
            Some(known) if known.id == lease.id => deadline = deadline.max(known.deadline),
            Some(_) => self.lapse(side),
            None => {}
        }
        let is_new = !self.knowledge().is_signed(side);
        let signature = &mut self.entries[side];
        signature.lease = Some(Lease::new(lease.id, lease.scope, lease.ttl, deadline));
        signature.signed_at = Some(now);
        if is_new {
            signature.times += 1;
            self.learning().signed(side);
        }
        for name in self.names() {
            self.admit(&name);
            self.advance(&name);
        }
    }

    fn looked(&mut self, side: Side, trouble: Option<Error>, now: Moment) {
        let shunned = self.shuns_old(now);
        if let Some(error) = trouble.as_ref().filter(|_| self.trouble[side].is_none()) {
            tracing::warn!(store = side.word(), error = ?format!("{error:#}"), "cannot follow the move record");
        }
        self.trouble[side] = trouble;
        if !shunned && self.shuns_old(now) {
            self.warn_of_shunning();
        }
    }

    /// Learns the record that was read at `look`.
    fn learn(&mut self, side: Side, look: Look, record: Option<Entry>) -> Result<()> {
        let learned = self.understood(side, look, record);
        if learned.is_err() {
            self.learning().doubted(side);
        }
        learned
    }

    fn understood(&mut self, side: Side, look: Look, record: Option<Entry>) -> Result<()> {
        let decides = self.view().is_none_or(|view| view.class().has(side));
        let lost = || lost_its_data(side, decides);
        let Some(entry) = record else { return Err(lost()) };
        let read = Read::of(&entry)?;
        self.check(side, &read.record)?;
        let seen = read.seen();
        if seen.version < look.newest {
            return Err(lost());
        }
        // A later reading may be known already.
        let signature = &mut self.entries[side];
        if seen.version < signature.newest || look.times != signature.times {
            return Ok(());
        }
        signature.newest = seen.version;
        self.learning().learn(side, seen).map_err(|DataLost| lost())
    }

    /// Whether the record is one of this move.
    pub(super) fn check(&mut self, side: Side, record: &MoveRecord) -> Result<()> {
        if record.end.is_some() {
            return Err(misuse(
                "the move is over (`migrate clean`): open the store that has the locks, without `migrate_to`",
            ));
        }
        let decides = self.view().is_none_or(|view| view.class().has(side));
        let (id, between) = self.of.get_or_insert_with(|| (record.id, record.between.clone()));
        let is_other = *id != record.id;
        if record.side == side && is_other && record.restored == 0 && record.between == *between {
            // It was written late, over lost data (records-4).
            return Err(lost_its_data(side, decides));
        }
        if record.side != side || is_other {
            return Err(misuse(format!(
                "the {} store has the record of another move: complete that move first, and end it with \
                 `leasehold migrate clean`",
                side.word()
            )));
        }
        Ok(())
    }
}
