//! Looks at the states of a model.
//!
//! A model is a [`World`]. [`explore`] looks at every state, or at those of random walks. A [`Judge`] says whether what is
//! held there may be. [`assert_caught`] shows that it finds what is wrong: a model whose mutants live proves nothing.
//!
//! The unit tests of `leasehold-core` use it without [`Held`]: the crate under test is another build than the one that this
//! crate is built with, and its `Mode` another type.

mod explore;
mod judge;
mod mutants;
mod walk;

pub use explore::{Explored, Search, Wrong, explore};
pub use judge::{Held, Judge, OVERLAP, TOKENS};
pub use mutants::{assert_caught, caught};

use std::fmt::Debug;
use std::hash::{BuildHasher, Hash};

/// A state, and the steps that lead out of it.
pub trait World: Clone + Hash {
    /// A step, as a trace shows it.
    type Step: Debug;

    /// Adds every step that is possible here, with the state after it.
    fn steps(&self, found: &mut Vec<(Self::Step, Self)>);

    /// What is held here; judged by G1 and G3.
    fn held(&self) -> Vec<Held> {
        Vec::new()
    }

    /// Which other rule this state breaks.
    fn broken(&self) -> Option<&'static str>;

    /// By what a state is known. States that differ only in the names of equal parts may share it.
    fn key(&self, hasher: &impl BuildHasher) -> u64 {
        hasher.hash_one(self)
    }

    /// Whether nothing is left to do.
    fn is_at_rest(&self) -> bool {
        true
    }

    /// Whether the step from here to `next` needs no fault and no decision from outside.
    fn goes_by_itself(&self, _next: &Self) -> bool {
        true
    }
}
