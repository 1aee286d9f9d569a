//! Names, modes and owners as the tables have them, and back; pure.
//!
//! A name is the bytes of its text, below the row of its namespace. So two names never meet, and every encoding of a database
//! can keep them.

use std::time::Duration;

use leasehold_core::backend::Holder;
use leasehold_core::{LockName, Mode, OwnerId};

pub(crate) fn owner_bytes(owner: OwnerId) -> Vec<u8> {
    owner.to_hex().into_bytes()
}

pub(crate) fn owner_of(bytes: &[u8]) -> Option<OwnerId> {
    std::str::from_utf8(bytes).ok().and_then(OwnerId::from_hex)
}

/// The name of those bytes; `None` for bytes that leasehold did not write.
pub(crate) fn name_of(bytes: &[u8]) -> Option<LockName> {
    LockName::new(std::str::from_utf8(bytes).ok()?).ok()
}

/// Weights and capacities are positive 32-bit numbers in the tables; the largest one is unlimited.
pub(crate) fn number_of(of_mode: u32) -> i32 {
    i32::try_from(of_mode).unwrap_or(i32::MAX)
}

pub(crate) fn mode_of(weight: Option<i32>, capacity: Option<i32>) -> Mode {
    let of_table = |number: Option<i32>| u32::try_from(number.unwrap_or(1)).unwrap_or(1);
    match (of_table(weight), of_table(capacity)) {
        (1, ENDLESS) => Mode::SHARED,
        (weight, capacity) => Mode::permits(weight, capacity).unwrap_or_default(),
    }
}

/// An entry's holder, whose session lives for `ttl` seconds without a renewal.
pub(crate) fn holder(
    label: String,
    number: i64,
    mode: Mode,
    ttl: Option<f64>,
    metadata: Option<String>,
) -> Holder {
    let mut holder = Holder::new(label).with_counter(number.unsigned_abs());
    (holder.mode, holder.metadata) = (mode, metadata);
    holder.ttl = ttl.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    holder
}

const ENDLESS: u32 = i32::MAX.unsigned_abs();

#[cfg(test)]
mod tests {
    use super::*;

    /// A mode is read as it was written; a number that no leasehold has written is exclusive.
    #[test]
    fn modes_are_stored_as_numbers() {
        for mode in [Mode::EXCLUSIVE, Mode::SHARED, Mode::permits(2, 8).unwrap()] {
            let read = mode_of(Some(number_of(mode.weight())), Some(number_of(mode.capacity())));
            assert_eq!(read, mode);
        }
        for (weight, capacity) in [(None, None), (Some(-1), Some(1)), (Some(9), Some(8)), (Some(0), Some(0))]
        {
            assert_eq!(mode_of(weight, capacity), Mode::EXCLUSIVE, "{weight:?} of {capacity:?}");
        }
    }
}
