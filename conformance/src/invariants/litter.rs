//! G5 and G8, nothing is left behind: at rest the store knows of nothing.
//!
//! Applies to histories that record [`What::AtRest`]: all live processes have released, and cancelled
//! nothing for longer than a lease, and nothing misbehaves. Managers that live on renew what they
//! still believe to have, so a forgotten entry shows.

use super::violation::{Property, Violation};
use crate::history::{History, What};

/// Names that the store still knows.
pub fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for event in history.events() {
        if let What::AtRest { left } = &event.what {
            found.extend(left.iter().map(|name| Violation {
                property: Property::Litter,
                at: event.at,
                name: Some(name.clone()),
                detail: "the store still has an entry, but no attempt wants the lock".to_owned(),
            }));
        }
    }
    found
}
