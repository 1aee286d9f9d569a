//! How a cluster divides the keys among its servers, and what its servers say when a request is for another one. Pure.
//!
//! | file | contains |
//! |---|---|
//! | `slots` | the slot of a key, and which server has a slot |
//! | `tags` | a text for each slot, and which slots a server has |
//! | `redirects` | where a request is sent after a server has refused it |
//! | `channels` | over which connections the channels of slots are heard |

mod channels;
mod redirects;
mod slots;
mod tags;

pub(crate) use self::channels::SlotChannels;
pub(crate) use self::redirects::{NextServer, Redirect, Redirects};
pub(crate) use self::slots::{HashSlot, Shard, SlotMap};
pub(crate) use self::tags::SlotRanges;
