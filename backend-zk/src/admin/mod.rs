//! What an administrator asks: who holds what, to have it given up, what tokens begin at, and how the
//! ensemble stands.

mod diagnosis;
mod ensemble;
mod inspect;
mod revoke;
mod token_base;

pub(crate) use inspect::Holding;
