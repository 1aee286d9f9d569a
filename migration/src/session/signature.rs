//! The statements of the process about itself in one store, and its reading there.

use leasehold_core::backend::Lease;
use leasehold_core::clock::Moment;

use crate::protocol::member::MemberEntry;

/// The process's entry in one store's list of members, and what it has read there.
#[derive(Default)]
pub(super) struct Signature {
    pub(super) lease: Option<Lease>,
    pub(super) signed_at: Option<Moment>,
    /// How often there was none and then one. An earlier reading is of no use (view-1).
    pub(super) times: u64,
    /// How much there has been to say, and has been said.
    pub(super) news: u64,
    pub(super) said: u64,
    pub(super) value: MemberEntry,
    /// The newest version of the record that was seen.
    pub(super) newest: u64,
}
