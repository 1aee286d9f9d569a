//! The cases, a file per guarantee.

mod g1;
mod g10;
mod g2;
mod g3;
mod g4;
mod g5;
mod g6;
mod g7;
mod g8;
mod g9;

use crate::case::Case;

pub(crate) const ALL: [&[Case]; 10] = [
    g1::CASES,
    g2::CASES,
    g3::CASES,
    g4::CASES,
    g5::CASES,
    g6::CASES,
    g7::CASES,
    g8::CASES,
    g9::CASES,
    g10::CASES,
];
