//! The types that users open and hold.

pub(crate) mod all;
pub(crate) mod builder;
pub(crate) mod fence;
pub(crate) mod guard;
pub(crate) mod held;
pub(crate) mod lead;
pub(crate) mod lock;
pub(crate) mod manager;
pub(crate) mod options;
pub(crate) mod registry;
mod state;
pub(crate) mod watch;
