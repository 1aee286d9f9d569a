//! The cases, a file per guarantee.

mod ambiguity;
mod cancellation;
mod exclusion;
mod fencing;
mod ledger;
mod liveness;
mod names;
mod order;
mod ownership;
mod told_in_time;
mod trying;

use crate::case::Case;

/// G1 to G10, and the ledger.
pub(crate) const ALL: [&[Case]; 11] = [
    exclusion::CASES,
    told_in_time::CASES,
    fencing::CASES,
    ownership::CASES,
    ambiguity::CASES,
    liveness::CASES,
    order::CASES,
    cancellation::CASES,
    trying::CASES,
    names::CASES,
    ledger::CASES,
];
