//! The tables of one name, and the functions as the server carries them out at their commit.

use ::model::Held;
use leasehold_core::Mode;
use leasehold_core::backend::Load;

use super::super::{EntryNews, Seq};
use super::Mutant;

/// A contender's row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) seq: Seq,
    pub(super) session: usize,
    pub(super) owner: u8,
    pub(super) mode: Mode,
    /// It was released while a transaction of a user kept it.
    pub(super) is_gone: bool,
}

/// A session's row. Time is a number of leases: the server may end lease `n` when the client cannot trust it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SessionRow {
    pub(super) epoch: i32,
    pub(super) lease: u8,
    /// Another server's clock wrote its deadline.
    pub(super) is_misdated: bool,
    /// So many of its entries were removed by force.
    pub(super) taken: i32,
    /// Its deadline has passed on the server's clock.
    pub(super) is_late: bool,
    pub(super) is_over: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tables {
    pub(super) rows: Vec<Row>,
    pub(super) sessions: Vec<SessionRow>,
    pub(super) revoked: Vec<Seq>,
    /// The sequence: its log record is before that of the commit.
    pub(super) next: Seq,
    pub(super) era: Seq,
    /// Crashes of this history: each leaps over numbers.
    pub(super) crashes: Seq,
    pub(super) timeline: Seq,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Server {
    pub(super) now: Tables,
    /// What is on the disk, and after it each commit that is not: a crash keeps some of the first of them.
    pub(super) disk: Vec<Tables>,
    /// The table that recovery empties has its row.
    pub(super) is_uncrashed: bool,
    pub(super) timeline: Seq,
    /// The newest timeline: a promotion begins the one after it.
    pub(super) newest: Seq,
    /// What a standby or a backup has: the first of the commits that were on the disk.
    pub(super) standby: Tables,
    /// Entries of servers that were replaced by a standby: it may have nothing of a grant.
    pub(super) lost: Vec<Seq>,
    /// Sessions whose row a renewal in progress has locked.
    pub(super) renewing: Vec<usize>,
    /// Holds that transactions of users keep.
    pub(super) fenced: Vec<Held>,
}

/// The answer of `acquire`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Grant {
    pub(super) granted: bool,
    pub(super) seq: Seq,
    pub(super) first: Seq,
}

impl Server {
    pub(super) fn new(sessions: usize) -> Self {
        let session =
            SessionRow { epoch: 1, lease: 1, is_misdated: false, taken: 0, is_late: false, is_over: false };
        let (rows, sessions, revoked) = (Vec::new(), vec![session; sessions], Vec::new());
        let now = Tables { rows, sessions, revoked, next: 0, era: 1, crashes: 0, timeline: 1 };
        let (disk, standby) = (vec![now.clone()], now.clone());
        Self {
            now,
            disk,
            is_uncrashed: true,
            timeline: 1,
            newest: 1,
            standby,
            lost: Vec::new(),
            renewing: Vec::new(),
            fenced: Vec::new(),
        }
    }

    /// A commit, which waits for the disk or does not.
    pub(super) fn commit(&mut self, durable: bool) {
        if durable {
            self.disk.clear();
        }
        self.disk.push(self.now.clone());
    }

    /// What was committed before is on the disk.
    pub(super) fn flush(&mut self) {
        self.disk = vec![self.now.clone()];
    }

    /// Loses the last commits that were not on the disk, but for `kept` of them.
    pub(super) fn crash(&mut self, kept: usize) {
        let kept = kept.min(self.disk.len() - 1);
        self.now = self.disk[kept].clone();
        self.is_uncrashed = false;
        self.renewing.clear();
        self.fenced.clear();
        self.flush();
    }

    /// The standby has what is on the disk by now.
    pub(super) fn ship(&mut self) {
        self.standby = self.disk[0].clone();
    }

    /// The standby takes over, without the commits that it does not have. It stays as a backup of then.
    pub(super) fn promote(&mut self) {
        self.newest += 1;
        self.take_over(self.standby.clone(), self.newest);
    }

    /// Another version of the server goes on from the same data. Its timelines begin anew, and backups of the old one are void.
    pub(super) fn upgrade(&mut self) {
        self.newest = 1;
        self.take_over(self.now.clone(), 1);
        self.ship();
    }

    /// The server of that backup comes back as it was, on its old timeline.
    pub(super) fn come_back(&mut self) {
        self.take_over(self.standby.clone(), self.standby.timeline);
    }

    /// A server takes over, with another clock: it may find any lease ended.
    fn take_over(&mut self, tables: Tables, timeline: Seq) {
        self.lost.extend(self.now.rows.iter().map(|row| row.seq));
        let gone = std::mem::replace(&mut self.now, tables);
        for (session, gone) in self.now.sessions.iter_mut().zip(gone.sessions) {
            // A number of leases is a time.
            (session.lease, session.is_misdated) = (gone.lease, true);
        }
        self.timeline = timeline;
        self.flush();
        self.crash(0);
    }

    /// Whether there is an entry of that number.
    pub(super) fn has(&self, seq: Seq) -> bool {
        self.now.rows.iter().any(|row| row.seq == seq && !row.is_gone)
    }

    /// The bound that counts: one of a larger era is of a history that is gone.
    pub(super) fn bound(&self, low: Seq, mutant: Option<Mutant>) -> Seq {
        let is_known = low / ERA <= self.now.era || mutant == Some(Mutant::BelievesLows);
        if is_known { low } else { 0 }
    }

    /// `era`: first in every function.
    pub(super) fn begin(&mut self, mutant: Option<Mutant>) {
        let is_known = self.is_uncrashed || mutant == Some(Mutant::GoesOnAfterACrash);
        if is_known && self.now.timeline == self.timeline {
            return;
        }
        if self.now.timeline == self.timeline {
            self.now.next += LEAP;
            self.now.crashes += 1;
        } else {
            let by_difference = self.now.era + (self.timeline - self.now.timeline).max(1);
            self.now.era = match mutant {
                Some(Mutant::CountsEras) => self.now.era + 1,
                Some(Mutant::HasTheBareTimeline) => self.timeline,
                _ => by_difference,
            };
        }
        (self.is_uncrashed, self.now.timeline) = (true, self.timeline);
        for session in self.now.sessions.iter_mut().filter(|_| mutant != Some(Mutant::GivesNoFullTtl)) {
            (session.is_late, session.is_misdated) = (false, false);
        }
        self.commit(mutant != Some(Mutant::BeginsErasAsynchronously));
    }

    fn is_locked(&self, seq: Seq) -> bool {
        self.fenced.iter().any(|held| held.counter == seq.unsigned_abs())
    }

    /// Declares late sessions over, and removes what is over; returns the numbers that hold because of that.
    pub(super) fn settle(
        &mut self,
        low: Seq,
        leaver: Option<Seq>,
        mutant: Option<Mutant>,
    ) -> Vec<(usize, Seq, EntryNews)> {
        let before = holders(&self.now.rows, low);
        for (at, session) in self.now.sessions.iter_mut().enumerate() {
            let is_locked = self.renewing.contains(&at) && mutant != Some(Mutant::EndsByReading);
            session.is_over |= session.is_late && !is_locked;
        }
        let tables = self.now.clone();
        let is_ending = |row: &Row| row.is_gone || tables.sessions[row.session].is_over;
        let leaves = |row: &Row| Some(row.seq) == leaver || is_ending(row) && !self.is_locked(row.seq);
        let stays = leaver.is_some_and(|seq| self.is_locked(seq));
        let left: Vec<Row> =
            tables.rows.iter().filter(|row| row.seq < low || !leaves(row)).cloned().collect();
        let told = if stays { EntryNews::Looks } else { EntryNews::Holds };
        let new = holders(&left, low).into_iter().filter(|holder| !before.contains(holder));
        let new = new.map(|(who, seq)| (who, seq, told)).collect();
        self.now.rows = left;
        if let Some(mut leaver) = tables.rows.into_iter().find(|row| stays && Some(row.seq) == leaver) {
            leaver.is_gone = true;
            self.now.rows.push(leaver);
            self.now.rows.sort_by_key(|row| row.seq);
        }
        new
    }

    /// `acquire` by a session, which decides by what it sees of the tables. What is locked counts.
    pub(super) fn acquire(
        &mut self,
        seen: &Tables,
        (session, owner, mode): (usize, u8, Mode),
        low: Seq,
        mutant: Option<Mutant>,
    ) -> Grant {
        let counts = |row: &&Row| {
            mutant != Some(Mutant::SkipsLocked) || !row.is_gone && !seen.sessions[row.session].is_over
        };
        let of_owner = |row: &&Row| row.session == session && row.owner == owner && !row.is_gone;
        let visible = || seen.rows.iter().filter(|row| row.seq >= low);
        let existing = visible().find(of_owner).map(|row| row.seq);
        let before = visible().filter(counts).filter(|row| existing.is_none_or(|own| row.seq < own));
        let granted = before.map(|row| row.mode).collect::<Load>().admits(mode);
        let seq = existing.unwrap_or_else(|| {
            self.now.next += 1;
            let seq = self.now.era * ERA + self.now.next;
            self.now.rows.push(Row { seq, session, owner, mode, is_gone: false });
            self.now.rows.sort_by_key(|row| row.seq);
            seq
        });
        self.commit(granted);
        Grant { granted, seq, first: visible().next().map_or(seq, |row| row.seq) }
    }
}

/// The entries that hold by the rule.
pub(super) fn holders(rows: &[Row], low: Seq) -> Vec<(usize, Seq)> {
    let mut load = Load::NONE;
    let mut holders = Vec::new();
    for row in rows.iter().filter(|row| row.seq >= low) {
        if !load.admits(row.mode) {
            break;
        }
        load = load.and(row.mode);
        holders.push((row.session, row.seq));
    }
    holders
}

/// So many numbers are left out after a crash.
const LEAP: Seq = 100;
/// So many numbers have an era.
const ERA: Seq = 1_000;
