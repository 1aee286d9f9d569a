//! A broken promise.

use std::fmt;
use std::time::Duration;

use leasehold_core::LockName;
use leasehold_core::clock::Moment;

use crate::history::Event;

/// One place where a history breaks a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// Which promise.
    pub property: Property,
    /// When.
    pub at: Moment,
    /// Of which lock, if of one.
    pub name: Option<LockName>,
    /// What happened instead.
    pub detail: String,
}

/// What is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Property {
    /// G1
    Overlap,
    /// G2
    Notice,
    /// G2
    Bound,
    /// G3
    Tokens,
    /// G4
    Ownership,
    /// G6
    HandOver,
    /// G7
    Order,
    /// G7
    Places,
    /// G5, G8
    Litter,
    /// B1
    OneEntry,
}

impl Violation {
    /// `event` breaks `property`.
    pub(super) fn of(property: Property, event: &Event, detail: impl Into<String>) -> Self {
        Self { property, at: event.at, name: event.name.clone(), detail: detail.into() }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overlap => "G1 overlap",
            Self::Notice => "G2 notice",
            Self::Bound => "G2 bound",
            Self::Tokens => "G3 tokens",
            Self::Ownership => "G4 ownership",
            Self::HandOver => "G6 hand-over",
            Self::Order => "G7 order",
            Self::Places => "G7 places",
            Self::Litter => "G5/G8 litter",
            Self::OneEntry => "B1 one entry",
        })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Duration::from_nanos(self.at.as_nanos()).as_secs_f64();
        write!(f, "{} at {at:.4}", self.property)?;
        if let Some(name) = &self.name {
            write!(f, ", lock {name}")?;
        }
        write!(f, ": {}", self.detail)
    }
}
