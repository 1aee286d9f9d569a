//! How a cluster divides the keys among its servers, and what its servers say when a request is for another one. Pure.
//!
//! | file | contains |
//! |---|---|
//! | `slots` | the slot of a key, and which server has a slot |
//! | `redirects` | where a request is sent after a server has refused it |

mod redirects;
mod slots;

pub(crate) use self::redirects::{NextServer, Redirect, Redirects};
pub(crate) use self::slots::{HashSlot, Shard, SlotMap};
