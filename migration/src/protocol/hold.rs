//! One hold, from its grant until no store has anything of it. The hold follows the move: it acquires the locks that the next
//! phase needs, and releases those that it does not. Its token and its owner stay.
//!
//! # Invariants
//! - **hold-1** A hold that rests on one store goes on resting on it until it has the other's lock too; meanwhile the
//!   process does not acknowledge the phase that needs that.
//! - **hold-2** A hold of both stores needs both until the view says which one decides.
//! - **hold-3** A hold that has ended releases every grant that it still has, however it ended.

use leasehold_core::backend::stage::{Phase, Side};

use super::contender::Contender;
use super::parts::{Act, Part};
use super::view::View;
use super::{Class, Pair};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PairHold {
    view: Option<View>,
    pub(crate) parts: Pair<Part>,
    pub(crate) over: bool,
}

impl PairHold {
    /// The grants of an acquisition.
    pub(crate) fn of(contender: &Contender, view: Option<View>) -> Self {
        Self { view, parts: contender.parts, over: false }
    }

    pub(crate) fn viewed(&mut self, view: Option<View>) {
        self.view = view;
    }

    pub(crate) fn granted(&mut self, side: Side, raw: u64) {
        self.parts.granted(side, raw);
    }

    /// The request at `side` was refused or lost; it is repeated.
    pub(crate) fn failed(&mut self, side: Side) {
        if self.parts[side] == Part::Asked {
            self.parts.gone(side);
        }
    }

    /// The grant or request there has ended: released, or lost. Returns whether the hold goes on.
    pub(crate) fn gone(&mut self, side: Side) -> bool {
        self.over |= self.parts.held(side) && self.needs(side);
        self.parts.gone(side);
        !self.over
    }

    /// The process's entry there has lapsed, so the hold must not rest on its grant there, which is released. Returns whether
    /// the hold goes on.
    pub(crate) fn unbacked(&mut self, side: Side) -> (bool, Option<Act>) {
        self.over |= self.parts.held(side) && self.needs(side);
        (!self.over, self.parts.leave(side))
    }

    /// The grant at `side` may not last as long as the hold is trusted by now: until it is granted again, it counts as a
    /// request only.
    pub(crate) fn uncounted(&mut self, side: Side) {
        if self.parts.held(side) {
            self.parts[side] = Part::Asked;
        }
    }

    pub(crate) fn let_go(&mut self) {
        self.over = true;
    }

    /// Whether it rests on that store alone.
    pub(crate) fn alone(&self, side: Side) -> bool {
        !self.over && self.parts.alone(side)
    }

    /// Whether it ends with its grant at `side` (hold-2).
    pub(crate) fn needs(&self, side: Side) -> bool {
        if self.parts.alone(side) {
            return true;
        }
        let both = self.parts.held(Side::Old) && self.parts.held(Side::New);
        let class = self.view.map_or(Class::Bridge, |view| view.class());
        both && class.has(side)
    }

    #[cfg(test)]
    pub(crate) fn is_gone(&self) -> bool {
        self.over && self.parts.are_gone()
    }

    /// The next step; `None` is to wait.
    pub(crate) fn step(&mut self) -> Option<Act> {
        if self.over {
            return self.parts.leave_all();
        }
        match self.view?.phase {
            Phase::Old | Phase::Shadow if self.parts.held(Side::Old) => self.parts.leave(Side::New),
            Phase::Old | Phase::Shadow => self.parts.ask(Side::Old),
            Phase::Both => self.parts.ask(Side::Old).or_else(|| self.parts.ask(Side::New)),
            Phase::Drain | Phase::New if !self.parts.held(Side::New) => self.parts.ask(Side::New),
            Phase::Drain if self.parts.held(Side::Old) => None,
            Phase::Drain | Phase::New => self.parts.leave(Side::Old),
        }
    }
}
