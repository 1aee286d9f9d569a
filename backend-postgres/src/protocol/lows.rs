//! The lowest live number of names that were used lately; pure.
//!
//! The server skips what is below it, so a transaction that keeps dead entries visible does not slow down a name that is used
//! often.

use std::collections::BTreeMap;

use leasehold_core::LockName;

use super::Seq;

/// Two halves: when the younger one is full, the older one is forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lows {
    young: BTreeMap<LockName, Seq>,
    old: BTreeMap<LockName, Seq>,
}

impl Lows {
    /// Below that number nothing of the name lives.
    pub(crate) fn of(&self, name: &LockName) -> Seq {
        self.young.get(name).or_else(|| self.old.get(name)).copied().unwrap_or(0)
    }

    pub(crate) fn learn(&mut self, name: &LockName, first: Seq) {
        if let Some(low) = self.young.get_mut(name) {
            *low = first.max(*low);
            return;
        }
        if self.young.len() >= HALF {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name.clone(), first.max(self.of(name)));
    }
}

const HALF: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that are used often are kept, and the number of all is bounded.
    #[test]
    fn names_used_lately_are_known() {
        let mut lows = Lows::default();
        let name = |at: usize| LockName::new(at.to_string()).unwrap();
        for at in 1..=3 * HALF {
            lows.learn(&name(0), 7);
            lows.learn(&name(at), 1);
        }
        assert_eq!((lows.of(&name(0)), lows.of(&name(3 * HALF)), lows.of(&name(1))), (7, 1, 0));
        assert!(lows.young.len() + lows.old.len() <= 2 * HALF);
        lows.learn(&name(0), 5);
        assert_eq!(lows.of(&name(0)), 7, "an older answer counts no more");
    }
}
