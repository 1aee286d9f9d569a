//! Administration; it needs no entry of this process.
//!
//! | file | has |
//! |---|---|
//! | `inspect` | holders, and how many wait |
//! | `revoke` | revocation, with a grace or by force |
//! | `diagnosis` | findings about the servers |

mod diagnosis;
mod inspect;
mod revoke;
