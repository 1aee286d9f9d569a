//! Signs in both stores, reads their records, and says what is acknowledged. One task for each store.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::ledger::Entry;
use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{Lease, LeaseScope};
use leasehold_core::clock::Moment;
use leasehold_core::{Error, ErrorKind, Result};

use super::book::Book;
use super::claim::{Claim, Stage};
use super::{SIDES, Session, place};
use crate::protocol::member::{Holds, Member};
use crate::protocol::record::Record;
use crate::protocol::records::{Read, lost_its_data};
use crate::protocol::view::{DataLost, View};
use crate::protocol::{Class, Pair};

/// When a record was asked for: what is known by then is older than the answer.
#[derive(Clone, Copy)]
pub(super) struct Look {
    times: u64,
    newest: u64,
}

impl Session {
    /// Looks again and again, until the session is closed.
    pub(super) async fn keep_looking(self: Arc<Self>, side: Side) {
        loop {
            let looked = tokio::select! {
                biased;
                () = self.closing.cancelled() => return,
                looked = self.look(side) => looked,
            };
            self.with(|book, now| {
                book.looked(side, looked.err(), now);
                book.let_go_of_what_is_given_up(now);
                book.sweep();
            });
            self.looked.change(|looked| looked[side] += 1);
            if side == Side::Old {
                // Not for longer than one request: the entry is signed from here, too.
                let looks = async {
                    self.look_for_foreign_clients().await;
                    Ok(())
                };
                self.closing.run_until_cancelled(self.env.bounded(looks)).await;
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

    /// What is known, once it is; or why it is not.
    pub(super) async fn view_or_why(self: &Arc<Self>) -> Result<()> {
        if self.with(|book, _| book.view().is_some()) {
            return Ok(());
        }
        let mut last = self.looked.read(|looked| *looked);
        // The look that is under way may have begun before this.
        let enough = Pair { old: last.old + 2, new: last.new + 2 };
        for side in SIDES {
            self.stores[side].poke.notify_one();
        }
        let seen = async {
            loop {
                tokio::select! {
                    biased;
                    () = self.closing.cancelled() => {}
                    () = self.looked.until(|looked| (*looked != last).then_some(())) => {}
                }
                self.refuse_closed()?;
                let now = self.looked.read(|looked| *looked);
                if self.with(|book, _| book.view().is_some()) {
                    return Ok(());
                }
                let due: Vec<_> = SIDES.into_iter().filter(|side| now[*side] < enough[*side]).collect();
                if due.is_empty() {
                    return Err(self.book.lock().why_blind());
                }
                for side in due.into_iter().filter(|side| last[*side] < now[*side]) {
                    self.stores[side].poke.notify_one();
                }
                last = now;
            }
        };
        let bounded = self.env.bounded(seen).await;
        bounded.map_err(|error| error.with_effect(leasehold_core::Effect::NotApplied))
    }

    /// How often an entry is signed that has a lease of its own: so that a hold, which is trusted no longer, need not be renewed
    /// much more often than in one store.
    fn signs_every(&self) -> Duration {
        self.env.timing().ttl / 4
    }

    async fn look(self: &Arc<Self>, side: Side) -> Result<()> {
        if self.stores[side].open.get().is_none() {
            self.open_within(side, self.env.timing().connect_timeout).await?;
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

/// The process's entry in one store's list of members, and what it has read there.
#[derive(Default)]
pub(super) struct Signature {
    pub(super) lease: Option<Lease>,
    pub(super) signed_at: Option<Moment>,
    /// How often there was none and then one. What was read before is of no use (view-1).
    pub(super) times: u64,
    /// How much there has been to say, and has been said.
    pub(super) news: u64,
    pub(super) said: u64,
    /// What was said.
    pub(super) value: Member,
    /// The newest version of the record that was seen.
    pub(super) newest: u64,
}

impl Book {
    pub(super) fn member(&self) -> Member {
        let knows = |side: Side| self.knowledge().acknowledged(side);
        let trouble = SIDES.into_iter().find_map(|side| self.trouble[side].as_ref());
        Member {
            label: self.label.to_string(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            acknowledges: Pair { old: knows(Side::Old), new: knows(Side::New) },
            view: self.view().map(|view| view.phase),
            holds: self.holds(),
            strangers: self.strangers.clone(),
            trouble: trouble.map(|error| format!("{error:#}")),
            ..Member::default()
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
                _ if !hold.is_over() => holds.both += 1,
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

    /// The process has signed there. What was signed in a session that is over by now is gone with it.
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
        self.admit_all();
    }

    fn looked(&mut self, side: Side, trouble: Option<Error>, now: Moment) {
        let shunned = self.shuns_old(now);
        if let Some(error) = trouble.as_ref().filter(|_| self.trouble[side].is_none()) {
            tracing::warn!(error = ?format!("{error:#}"), "the store that is {} cannot be followed", place(side));
        }
        self.trouble[side] = trouble;
        if !shunned && self.shuns_old(now) {
            self.warn_of_shunning();
        }
    }

    /// Knows the record from now on that was asked for at `look`.
    fn learn(&mut self, side: Side, look: Look, record: Option<Entry>) -> Result<()> {
        let learned = self.understood(side, look, record);
        if learned.is_err() {
            self.learning().doubted(side);
        }
        learned
    }

    fn understood(&mut self, side: Side, look: Look, record: Option<Entry>) -> Result<()> {
        let decides = self.view().is_none_or(|view| match side {
            Side::Old => view.class() != Class::New,
            Side::New => view.class() != Class::Old,
        });
        let lost = || lost_its_data(side, decides);
        let Some(entry) = record else { return Err(lost()) };
        let read = Read::of(&entry)?;
        self.check(side, &read.record)?;
        let seen = read.seen();
        if seen.version < look.newest {
            return Err(lost());
        }
        // What was read later may be known already.
        let signature = &mut self.entries[side];
        if seen.version < signature.newest || look.times != signature.times {
            return Ok(());
        }
        signature.newest = seen.version;
        self.learning().learn(side, seen).map_err(|DataLost| lost())
    }

    /// Whether the record is one of this move.
    pub(super) fn check(&mut self, side: Side, record: &Record) -> Result<()> {
        if record.end.is_some() {
            let message = "the move is over (`migrate clean`): open the store that the locks are in, without `migrate_to`";
            return Err(Error::not_applied(ErrorKind::Misuse, message));
        }
        if record.side != side {
            let message = format!(
                "the store that is {} has the record of a move in which it is {}: another move must be finished and \
                 cleaned up first (`leasehold migrate clean`)",
                place(side),
                place(record.side)
            );
            return Err(Error::not_applied(ErrorKind::Misuse, message));
        }
        if *self.id.get_or_insert(record.id) != record.id {
            let message = format!(
                "the two stores have records of different moves, {:016x} and {:016x}: one of them takes part in a move \
                 from or to another store",
                self.id.unwrap_or_default(),
                record.id
            );
            return Err(Error::not_applied(ErrorKind::Misuse, message));
        }
        Ok(())
    }
}
