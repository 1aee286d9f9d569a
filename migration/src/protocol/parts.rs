//! The part of an acquisition or a hold in each of the two stores.

use leasehold_core::backend::stage::Side;

use super::Pair;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    #[default]
    Free,
    Asked,
    Held(u64),
    Leaving,
    /// Nothing, and no request: the store could not be reached.
    Shunned,
}

/// An action at a store; each is returned once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Act {
    /// Ask for the lock.
    Ask(Side),
    /// Take the request back.
    Drop(Side),
    /// Release the grant, until that is confirmed or its lease has ended.
    Release(Side),
}

impl Pair<Part> {
    pub(crate) fn raw(&self, side: Side) -> Option<u64> {
        match self[side] {
            Part::Held(raw) => Some(raw),
            Part::Free | Part::Asked | Part::Leaving | Part::Shunned => None,
        }
    }

    pub(crate) fn held(&self, side: Side) -> bool {
        self.raw(side).is_some()
    }

    /// Whether it holds there and not in the other one.
    pub(crate) fn alone(&self, side: Side) -> bool {
        self.held(side) && !self.held(side.other())
    }

    /// Requests the lock at `side`, if there is nothing.
    pub(crate) fn ask(&mut self, side: Side) -> Option<Act> {
        let free = matches!(self[side], Part::Free | Part::Shunned);
        free.then(|| {
            self[side] = Part::Asked;
            Act::Ask(side)
        })
    }

    /// Releases the part at `side`.
    pub(crate) fn leave(&mut self, side: Side) -> Option<Act> {
        match self[side] {
            Part::Asked => {
                self[side] = Part::Free;
                Some(Act::Drop(side))
            }
            Part::Held(_) => {
                self[side] = Part::Leaving;
                Some(Act::Release(side))
            }
            Part::Free | Part::Leaving | Part::Shunned => None,
        }
    }

    /// Gives back everything, the new store first: that is the order against waiting.
    pub(crate) fn leave_all(&mut self) -> Option<Act> {
        self.leave(Side::New).or_else(|| self.leave(Side::Old))
    }

    /// Whether there is nothing left to give back.
    pub(crate) fn are_gone(&self) -> bool {
        [self.old, self.new].iter().all(|part| matches!(part, Part::Free | Part::Shunned))
    }

    /// The store has granted it. A grant without a request changes nothing.
    pub(crate) fn granted(&mut self, side: Side, raw: u64) {
        if self[side] == Part::Asked {
            self[side] = Part::Held(raw);
        }
    }

    /// The part there has certainly ended: it was released, or its lease has ended.
    pub(crate) fn gone(&mut self, side: Side) {
        self[side] = Part::Free;
    }
}
