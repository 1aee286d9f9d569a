//! The findings of a diagnosis of a store.

use std::time::Duration;

use super::LockState;

/// One line of a diagnosis.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The inspected part, in one word.
    pub subject: &'static str,
    /// The finding, and the remedy.
    pub detail: String,
}

impl Finding {
    /// The holders of a name, and the number of waiters.
    pub fn of_state(state: &LockState) -> Self {
        let LockState { name, holders, contenders } = state;
        let holder = match &**holders {
            [] => "free".to_owned(),
            [holder] => format!("held by {:?}", holder.label),
            [first, others @ ..] => format!("held by {:?} and {} others", first.label, others.len()),
        };
        let foreign = holders.iter().any(|holder| holder.foreign);
        let endless = holders.iter().any(|holder| holder.ttl == Some(Duration::MAX));
        let holder = match (foreign, endless) {
            (_, true) => holder + " (a foreign client; its lock never expires)",
            (true, false) => holder + " (a foreign client)",
            (false, false) => holder,
        };
        Self::new(Severity::Ok, "lock", format!("{name}: {holder}, {contenders} waiting"))
    }

    /// A finding about `subject`.
    pub fn new(severity: Severity, subject: &'static str, detail: impl Into<String>) -> Self {
        Self { severity, subject, detail: detail.into() }
    }
}

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "ok, worth knowing, or breaks a guarantee")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Warning,
    /// Breaks a guarantee.
    Broken,
}
