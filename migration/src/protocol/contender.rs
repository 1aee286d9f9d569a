//! One acquisition, from its beginning until it is granted or has given back everything.
//!
//! | phase | requests |
//! |---|---|
//! | `old` | the old store |
//! | `shadow` | the same, then checks the record there |
//! | `both` | the same, then checks the record, and meanwhile requests the lock of the other store |
//! | `drain` | the old store while it can be reached, then the other one |
//! | `new` | the new store |
//!
//! # Invariants
//! - **contender-1** *Old, then new*: the old store is waited for first, in every phase and direction. A contender that has
//!   the lock of the new one without the old one's, and must have that too, gives the new one's back first.
//! - **contender-2** *Read after grant*: in `shadow` and `both` a grant rests on a read of the old store's record that
//!   was sent after the old store had granted. So epochs never go back along the order of its grants.
//! - **contender-3** The view is read last: an acquisition takes what the view says at that moment. The view may be newer than
//!   the record that was read.
//! - **contender-4** A number from before the window is released and requested anew; a waiter has such a number where stores
//!   number the waiters. A second one outside the window ends the acquisition.

use leasehold_core::backend::stage::{Phase, Side};

use super::parts::{Act, Part};
use super::view::View;
use super::{Class, Pair};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    view: Option<View>,
    pub(crate) parts: Pair<Part>,
    read: Read,
    /// A number from before this view's window was given back.
    anew: bool,
    end: Option<End>,
}

/// The reading of the record after the grant (contender-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Read {
    No,
    Asked,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Do this.
    Do(Act),
    /// Read the old store's record; an earlier read that is still pending is of no use any more.
    Read,
    /// It is granted, with this counter: it is a [`PairHold`](super::hold::PairHold) now. Repeated until that is done.
    Take { counter: u64 },
    /// It has ended, and nothing remains of it at the stores. Repeated.
    Over(End),
    /// Wait for an answer, or for another view.
    Wait,
}

/// Why an acquisition ended without the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// Another owner has it, in that store.
    Busy(Side),
    /// That store refused, or could not be reached.
    Failed(Side),
    /// The store's number is outside the window of its epoch.
    Outside,
    Unwanted,
}

impl Contender {
    pub(crate) fn new(view: Option<View>) -> Self {
        Self { view, parts: Pair::default(), read: Read::No, anew: false, end: None }
    }

    pub(crate) fn viewed(&mut self, view: Option<View>) {
        self.anew &= self.view == view;
        self.view = view;
    }

    pub(crate) fn granted(&mut self, side: Side, raw: u64) {
        self.parts.granted(side, raw);
        if side == Side::Old {
            self.read = Read::No;
        }
    }

    /// A store that was tried once has the lock for another owner.
    pub(crate) fn busy(&mut self, side: Side) {
        if self.parts[side] == Part::Asked {
            self.parts.gone(side);
            self.end = self.end.or(Some(End::Busy(side)));
        }
    }

    /// A store has refused the request, or lost its place in the queue; `away`: it could not be reached. Only an unreachable
    /// store is left out in `drain`: any other may have the lock for a foreign client.
    pub(crate) fn failed(&mut self, side: Side, away: bool) {
        if self.parts[side] != Part::Asked {
            return;
        }
        let phase = self.view.map(|view| view.phase);
        if away && side == Side::Old && phase == Some(Phase::Drain) {
            self.parts[side] = Part::Shunned;
        } else {
            self.parts.gone(side);
            self.end = self.end.or(Some(End::Failed(side)));
        }
    }

    /// The grant or request there has ended: released, or lost.
    pub(crate) fn gone(&mut self, side: Side) {
        self.parts.gone(side);
    }

    /// The process's entry there has lapsed: the grant there must not be counted on, and is released.
    pub(crate) fn unbacked(&mut self, side: Side) -> Option<Act> {
        self.parts.leave(side)
    }

    /// The requested record was read, and the view follows from it, or from a later one.
    pub(crate) fn read(&mut self) {
        if self.read == Read::Asked {
            self.read = Read::Done;
        }
    }

    pub(crate) fn unwanted(&mut self) {
        self.end = self.end.or(Some(End::Unwanted));
    }

    pub(crate) fn step(&mut self) -> Step {
        if let Some(end) = self.end {
            return self.end_with(end);
        }
        let Some(view) = self.view else {
            return Step::Wait;
        };
        match view.class() {
            Class::Old => self.toward_old(view),
            Class::Bridge => self.toward_both(view),
            Class::New => self.toward_new(view),
        }
    }

    fn end_with(&mut self, end: End) -> Step {
        self.end = Some(end);
        match self.parts.leave_all() {
            Some(act) => Step::Do(act),
            None if self.parts.are_gone() => Step::Over(end),
            None => Step::Wait,
        }
    }

    fn toward_old(&mut self, view: View) -> Step {
        let useless = self.parts.new == Part::Asked || !self.parts.held(Side::Old);
        if useless && let Some(act) = self.parts.leave(Side::New) {
            return Step::Do(act);
        }
        let Some(raw) = self.parts.raw(Side::Old) else {
            return self.ask(Side::Old);
        };
        if view.phase == Phase::Old || self.read == Read::Done {
            self.take(view, Side::Old, raw)
        } else {
            self.look()
        }
    }

    fn toward_both(&mut self, view: View) -> Step {
        if !self.parts.held(Side::Old) {
            return match self.parts.leave(Side::New) {
                Some(act) => Step::Do(act),
                None => self.ask(Side::Old),
            };
        }
        if let Some(act) = self.parts.ask(Side::New) {
            return Step::Do(act);
        }
        if self.read != Read::Done {
            return self.look();
        }
        self.parts.raw(Side::New).map_or(Step::Wait, |raw| self.take(view, Side::New, raw))
    }

    fn toward_new(&mut self, view: View) -> Step {
        if let Some(raw) = self.parts.raw(Side::New) {
            return self.take(view, Side::New, raw);
        }
        match (view.phase, self.parts.old) {
            (Phase::Drain, Part::Free) if self.parts.new == Part::Free => self.ask(Side::Old),
            (Phase::Drain, Part::Asked) => Step::Wait,
            (_, Part::Asked) => self.parts.leave(Side::Old).map_or(Step::Wait, Step::Do),
            _ => self.ask(Side::New),
        }
    }

    fn ask(&mut self, side: Side) -> Step {
        self.parts.ask(side).map_or(Step::Wait, Step::Do)
    }

    fn look(&mut self) -> Step {
        if self.read == Read::Asked {
            return Step::Wait;
        }
        self.read = Read::Asked;
        Step::Read
    }

    fn take(&mut self, view: View, side: Side, raw: u64) -> Step {
        let stand = view.seen.stand;
        match stand.counter(raw) {
            Some(counter) => Step::Take { counter },
            None if stand.window.is_later_than(raw) && !std::mem::replace(&mut self.anew, true) => {
                self.parts.leave(side).map_or(Step::Wait, Step::Do)
            }
            None => self.end_with(End::Outside),
        }
    }
}
