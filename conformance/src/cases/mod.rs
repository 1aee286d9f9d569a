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
mod token_base;
mod told_in_time;
mod trying;
mod watching;

use crate::case::Case;

/// G1 to G10, the ledger, and the token base.
pub(crate) const ALL: [&[Case]; 13] = [
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
    watching::CASES,
    ledger::CASES,
    token_base::CASES,
];
