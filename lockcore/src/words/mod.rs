//! What everything speaks of: names, tokens, promises, losses and errors. No module of this crate is needed
//! for them.

pub(crate) mod error;
pub(crate) mod guarantees;
pub(crate) mod holder;
pub(crate) mod loss;
pub(crate) mod mode;
pub(crate) mod name;
pub(crate) mod owner;
pub(crate) mod revoke;
pub(crate) mod token;
