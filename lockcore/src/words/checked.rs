//! Modes and tokens of numbers and texts, which may be invalid.

use std::num::NonZeroU32;
use std::str::FromStr;

use crate::words::error::{Error, Result};
use crate::words::mode::Mode;
use crate::words::token::FencingToken;

impl Mode {
    /// `weight` of `capacity` permits; 1 of 1 is the exclusive lock.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for a weight of zero or above the capacity, and for the
    /// capacity [`u32::MAX`], which is that of shared locks.
    pub fn permits(weight: u32, capacity: u32) -> Result<Self> {
        let refused =
            |rule| Err(Error::invalid_option(format!("{weight} of {capacity} permits is invalid: {rule}")));
        let (Some(w), Some(c)) = (NonZeroU32::new(weight), NonZeroU32::new(capacity)) else {
            return refused("weight and capacity must be at least 1");
        };
        if c < w {
            return refused("the weight must not exceed the capacity");
        }
        if c == NonZeroU32::MAX {
            return refused("the capacity must be below 2^32 - 1");
        }
        Ok(Self { weight: w, capacity: c })
    }
}

/// Reads the text of `Display`: `exclusive`, `shared`, or permits such as `2 of 8`.
impl FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let permits = text.split_once(" of ");
        let permits =
            permits.and_then(|(weight, capacity)| Some((weight.parse().ok()?, capacity.parse().ok()?)));
        match (text, permits) {
            ("exclusive", _) => Ok(Self::EXCLUSIVE),
            ("shared", _) => Ok(Self::SHARED),
            (_, Some((weight, capacity))) => Self::permits(weight, capacity),
            _ => Err(Error::invalid_option(format!(
                "invalid mode {text:?}: expected `exclusive`, `shared`, or permits such as `2 of 8`"
            ))),
        }
    }
}

/// From its text, with the feature `serde`.
#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Mode {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Back from [`FencingToken::get`], as a resource has stored it.
impl TryFrom<u64> for FencingToken {
    type Error = Error;

    fn try_from(number: u64) -> Result<Self> {
        if number > i64::MAX.unsigned_abs() {
            return Err(Error::invalid_option(format!(
                "invalid fencing token `{number}`: expected an integer below 2^63"
            )));
        }
        Ok(Self(number))
    }
}

/// Reads the text of `Display`: a decimal number.
impl FromStr for FencingToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // A number that is not written as we write it comes from somewhere else.
        let number = text.parse::<u64>().ok().filter(|number| number.to_string() == text);
        let read = number.and_then(|number| Self::try_from(number).ok());
        read.ok_or_else(|| {
            Error::invalid_option(format!("invalid fencing token {text:?}: expected an integer below 2^63"))
        })
    }
}

/// From a number, with the feature `serde`.
#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for FencingToken {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(u64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
