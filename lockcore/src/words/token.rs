//! Fencing tokens: a number that grows with every grant of a name.
//!
//! A store assigns a *counter* to each grant; this process appends the index of the local hand-off
//! in the low [`FencingToken::INDEX_BITS`] bits. So tokens grow across local hand-offs without a
//! request, and fit a signed 64-bit column.
//!
//! # Invariants
//! - **G3** For one name, a later grant or hand-off has a larger token. The store answers for the
//!   counter, `core::queue` for the index.

use std::fmt;

/// The fencing token of a grant; give it to the resource that the lock protects.
///
/// The resource remembers the largest token it has seen and refuses smaller ones
/// (see [`crate::FenceGate`] and the example `fenced_write`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub(super) u64);

impl FencingToken {
    /// The number of low bits that count the local hand-offs of one grant.
    pub const INDEX_BITS: u32 = 10;
    /// The largest index of a local hand-off.
    pub const MAX_INDEX: u16 = (1 << Self::INDEX_BITS) - 1;
    /// The largest counter of a store whose tokens fit a signed 64-bit number.
    pub const MAX_COUNTER: u64 = (i64::MAX as u64) >> Self::INDEX_BITS;

    /// Creates the token of local hand-off `index` within the store's grant `counter`.
    ///
    /// `None` when the counter is above [`FencingToken::MAX_COUNTER`] or the index above
    /// [`FencingToken::MAX_INDEX`].
    pub const fn new(counter: u64, index: u16) -> Option<Self> {
        if counter > Self::MAX_COUNTER || index > Self::MAX_INDEX {
            return None;
        }
        Some(Self(counter << Self::INDEX_BITS | index as u64))
    }

    /// Returns the number to store and compare.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the same number for a signed 64-bit column; never negative.
    pub const fn get_i64(self) -> i64 {
        self.0.cast_signed()
    }

    /// Returns the index of the guard among those of the store's grant.
    pub(crate) const fn index(self) -> u16 {
        (self.0 & Self::MAX_INDEX as u64) as u16
    }

    /// Returns the counter of the store's grant.
    pub const fn counter(self) -> u64 {
        self.0 >> Self::INDEX_BITS
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

/// A number, with the feature `serde`.
#[cfg(feature = "serde")]
impl serde::Serialize for FencingToken {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A later hand-off and a later grant both have a larger token.
    #[test]
    fn tokens_grow_by_hand_off_and_by_grant() {
        let token = |counter, index| FencingToken::new(counter, index).unwrap();
        assert!(token(7, 0) < token(7, 1));
        assert!(token(7, FencingToken::MAX_INDEX) < token(8, 0));
        assert_eq!((token(7, 3).counter(), token(7, 3).index()), (7, 3));
    }

    /// A stored, shown or sent token is read again; any other number or text is refused.
    #[test]
    fn tokens_come_back_from_numbers_and_texts() {
        let largest = FencingToken::new(FencingToken::MAX_COUNTER, FencingToken::MAX_INDEX).unwrap();
        for token in [FencingToken::new(0, 0).unwrap(), FencingToken::new(7, 3).unwrap(), largest] {
            assert_eq!(FencingToken::try_from(u64::from(token)).unwrap(), token);
            assert_eq!(token.to_string().parse::<FencingToken>().unwrap(), token);
            #[cfg(feature = "serde")]
            {
                let sent = serde_json::to_string(&token).unwrap();
                assert_eq!(sent, token.to_string());
                assert_eq!(serde_json::from_str::<FencingToken>(&sent).unwrap(), token);
                serde_json::from_str::<FencingToken>("9223372036854775808").unwrap_err();
            }
        }
        FencingToken::try_from(largest.get() + 1).unwrap_err();
        for text in ["", "-1", "+7", "07", " 7", "7 ", "0x7", "9223372036854775808", "18446744073709551616"] {
            text.parse::<FencingToken>().unwrap_err();
        }
    }

    /// The largest token is the largest signed 64-bit number.
    #[test]
    fn tokens_fit_a_signed_column() {
        let largest = FencingToken::new(FencingToken::MAX_COUNTER, FencingToken::MAX_INDEX).unwrap();
        assert_eq!(largest.get_i64(), i64::MAX);
        assert_eq!(FencingToken::new(FencingToken::MAX_COUNTER + 1, 0), None);
        assert_eq!(FencingToken::new(1, FencingToken::MAX_INDEX + 1), None);
    }
}
