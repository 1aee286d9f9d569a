//! The tables of one name, and the functions as the server carries them out at their commit.

use leasehold_core::Mode;
use leasehold_core::backend::Load;

use super::super::Seq;
use super::Mutant;

/// A contender's row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) seq: Seq,
    pub(super) session: usize,
    pub(super) owner: u8,
    pub(super) mode: Mode,
}

/// A session's row. Time is a number of leases: the server may end lease `n` when the client cannot trust it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SessionRow {
    pub(super) epoch: i32,
    pub(super) lease: u8,
    /// Its deadline has passed on the server's clock.
    pub(super) is_late: bool,
    pub(super) is_over: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tables {
    pub(super) rows: Vec<Row>,
    pub(super) sessions: Vec<SessionRow>,
    pub(super) revoked: Vec<Seq>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Server {
    pub(super) now: Tables,
    /// What is on the disk, and after it each commit that is not: a crash keeps some of the first of them.
    pub(super) disk: Vec<Tables>,
    pub(super) next: Seq,
    pub(super) timeline: Seq,
    pub(super) era: Seq,
    /// Sessions whose row a renewal under way has locked.
    pub(super) renewing: Vec<usize>,
}

/// What an `acquire` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Grant {
    pub(super) granted: bool,
    pub(super) seq: Option<Seq>,
}

impl Server {
    pub(super) fn new(sessions: usize) -> Self {
        let session = SessionRow { epoch: 1, lease: 1, is_late: false, is_over: false };
        let now = Tables { rows: Vec::new(), sessions: vec![session; sessions], revoked: Vec::new() };
        Self { disk: vec![now.clone()], now, next: 1, timeline: 1, era: 1, renewing: Vec::new() }
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
        self.renewing.clear();
        self.flush();
    }

    /// Another era, if the history is another.
    pub(super) fn moves_to(&mut self, timeline: Seq, mutant: Option<Mutant>) {
        self.timeline = timeline;
        self.era = match mutant {
            Some(Mutant::CountsTimelinesOnly) => timeline,
            _ => timeline.max(self.era + 1),
        };
        for session in &mut self.now.sessions {
            session.is_late = false;
        }
        self.flush();
    }

    /// Declares late sessions over, and removes what is over; returns the numbers that hold because of that.
    pub(super) fn settle(&mut self, leaver: Option<Seq>, mutant: Option<Mutant>) -> Vec<(usize, Seq)> {
        let before = self.holders();
        for (at, session) in self.now.sessions.iter_mut().enumerate() {
            let is_locked = self.renewing.contains(&at) && mutant != Some(Mutant::EndsByReading);
            session.is_over |= session.is_late && !is_locked;
        }
        let tables = self.now.clone();
        self.now.rows.retain(|row| Some(row.seq) != leaver && !tables.sessions[row.session].is_over);
        self.holders().into_iter().filter(|holder| !before.contains(holder)).collect()
    }

    /// The entries that hold by the rule.
    pub(super) fn holders(&self) -> Vec<(usize, Seq)> {
        let mut load = Load::NONE;
        let mut holders = Vec::new();
        for row in &self.now.rows {
            if !load.admits(row.mode) {
                break;
            }
            load = load.and(row.mode);
            holders.push((row.session, row.seq));
        }
        holders
    }

    /// `acquire` by a session, which decides by what it sees of the tables.
    pub(super) fn acquire(&mut self, seen: &Tables, (session, owner, mode): (usize, u8, Mode)) -> Grant {
        let counts = |row: &&Row| !seen.sessions[row.session].is_over;
        let of_owner = |row: &&Row| row.session == session && row.owner == owner;
        let existing = seen.rows.iter().find(of_owner).map(|row| row.seq);
        let before = seen.rows.iter().filter(counts).filter(|row| existing.is_none_or(|own| row.seq < own));
        let granted = before.map(|row| row.mode).collect::<Load>().admits(mode);
        let seq = existing.unwrap_or_else(|| {
            self.next += 1;
            let seq = self.era * ERA + self.next;
            self.now.rows.push(Row { seq, session, owner, mode });
            self.now.rows.sort_by_key(|row| row.seq);
            seq
        });
        self.commit(granted);
        Grant { granted, seq: Some(seq) }
    }
}

/// So many numbers have an era.
pub(super) const ERA: Seq = 1_000;
