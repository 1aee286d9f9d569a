//! The requests of administrators: the holders of locks, revocation, the base of tokens, and the state of the ensemble.

mod diagnosis;
mod ensemble;
mod inspect;
mod revoke;
mod token_base;

pub(crate) use inspect::Holding;
