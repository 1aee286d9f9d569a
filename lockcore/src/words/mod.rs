//! The basic types: names, tokens, guarantees, losses and errors. They use no other module of this crate.

mod checked;
pub(crate) mod error;
pub(crate) mod guarantees;
pub(crate) mod holder;
pub(crate) mod loss;
pub(crate) mod mode;
pub(crate) mod name;
pub(crate) mod owner;
pub(crate) mod revoke;
pub(crate) mod state;
pub(crate) mod token;
