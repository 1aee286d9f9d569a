//! The owner of a grant, as the store knows it.

use std::fmt;

/// The identity of one grant: 128 random bits, fresh for every acquisition that reaches a store,
/// the same across retries of that acquisition, and never reused.
///
/// A store compares it before it renews or releases (G4). It is a capability, so neither `Debug`
/// nor any error or event of this crate shows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId([u8; 16]);

impl OwnerId {
    /// Creates an owner id from 128 random bits; stores get theirs from
    /// [`AcquireRequest`](crate::backend::AcquireRequest).
    pub const fn from_random(bits: [u8; 16]) -> Self {
        Self(bits)
    }

    /// Returns the 32 lower-case hexadecimal digits that stores write.
    pub fn to_hex(self) -> String {
        str::from_utf8(&self.hex_digits()).unwrap_or_default().to_owned()
    }

    /// Returns the digits of [`OwnerId::to_hex`].
    pub const fn hex_digits(self) -> [u8; 32] {
        const fn digit(value: u8) -> u8 {
            value + if value < 10 { b'0' } else { b'a' - 10 }
        }
        let (mut hex, mut at) = ([0; 32], 0);
        while at < 16 {
            let byte = self.0[at];
            (hex[2 * at], hex[2 * at + 1]) = (digit(byte >> 4), digit(byte & 15));
            at += 1;
        }
        hex
    }

    /// Reads the form of [`OwnerId::to_hex`]; `None` for any other text.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() != 32 || !hex.bytes().all(lower_hex) {
            return None;
        }
        u128::from_str_radix(hex, 16).ok().map(|bits| Self(bits.to_be_bytes()))
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerId([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hexadecimal form is exact, and nothing else is read.
    #[test]
    fn hex_round_trips_and_rejects_other_spellings() {
        let owner = OwnerId::from_random(*b"\x01\x23\x45\x67\x89\xab\xcd\xef12345678");
        assert_eq!(owner.to_hex(), "0123456789abcdef3132333435363738");
        assert_eq!(OwnerId::from_hex(&owner.to_hex()), Some(owner));
        assert_eq!(OwnerId::from_hex("AB"), None);
        assert_eq!(OwnerId::from_hex(&"AB".repeat(16)), None);
        assert_eq!(OwnerId::from_hex(&"+1".repeat(16)), None);
    }

    /// A log line never carries the capability.
    #[test]
    fn debug_does_not_show_the_id() {
        assert!(!format!("{:?}", OwnerId::from_random([0xab; 16])).contains("ab"));
    }
}
