//! Which numbers an epoch may give: windows that follow one another, so that tokens grow whichever store
//! counts.
//!
//! In an epoch one store counts. A grant's counter is that store's own number plus the window's offset, and a number outside
//! the window is never granted. In a phase that may last for ever, numbers may lie above the window: then its end is an
//! estimate of the granted numbers, for when no store can be reached any more.
//!
//! # Invariants
//! - **tokens-1** Every number of a window is larger than every one of the windows before it, whatever the
//!   stores' numbers do.
//! - **tokens-2** An offset is at least the base of its namespace, and becomes it before plain sessions may open that
//!   again: so they go on with the same numbers.
//!
//! That a grant is inside its window rests on the store's `floor`; only whether it is granted rests on that.

use leasehold_core::backend::TokenBase;
use leasehold_core::{Error, ErrorKind, FencingToken, Result};
use serde::{Deserialize, Serialize};

/// How many numbers a window leaves above its store's floor: 814 days in microseconds.
pub(crate) const WIDTH: u64 = 1 << 46;

/// The numbers of one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Window {
    /// The number that is added to the store's own number.
    #[serde(with = "digits")]
    pub(crate) offset: u64,
    /// The smallest number.
    #[serde(with = "digits")]
    pub(crate) low: u64,
    /// Where the next window may begin.
    #[serde(with = "digits")]
    pub(crate) high: u64,
}

/// Numbers as strings: other readers of JSON round those above 2^53.
pub(super) mod digits {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(number)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl Window {
    /// The first one, of that store's namespace.
    pub(crate) fn first(store: TokenBase) -> Result<Self> {
        Ok(Self { offset: store.base, low: 0, high: end(store.base, store.floor)? })
    }

    /// The same with a later end, by the present numbers of the store that counts.
    pub(crate) fn bounded(self, store: TokenBase) -> Result<Self> {
        let offset = self.offset.max(store.base);
        Ok(Self { offset, low: self.low, high: end(offset, store.floor)?.max(self.high) })
    }

    /// The one that follows, of the store that counts then.
    pub(crate) fn next(self, store: TokenBase) -> Result<Self> {
        let low = self.high;
        let offset = store.base.max(low.saturating_sub(store.floor));
        Ok(Self { offset, low, high: end(offset, store.floor)? })
    }

    /// Whether the store gave its own number before this one began.
    pub(crate) fn is_later_than(self, raw: u64) -> bool {
        self.offset.checked_add(raw).is_some_and(|counter| counter < self.low)
    }

    /// The counter for the store's own number, if it lies inside, or, where the end is `open`, above.
    pub(crate) fn counter(self, raw: u64, open: bool) -> Option<u64> {
        let high = if open { FencingToken::MAX_COUNTER } else { self.high };
        self.offset.checked_add(raw).filter(|counter| (self.low..high).contains(counter))
    }
}

fn end(offset: u64, floor: u64) -> Result<u64> {
    let end = offset.checked_add(floor).and_then(|first| first.checked_add(WIDTH));
    let exhausted =
        || Error::not_applied(ErrorKind::Unsupported, "no tokens are left for another epoch of the move");
    end.filter(|end| *end < FencingToken::MAX_COUNTER).ok_or_else(exhausted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn store(base: u64, floor: u64) -> TokenBase {
        TokenBase::new(base, floor, None)
    }

    /// From one store's numbers to another's and back, for all kinds of floors.
    #[test]
    fn the_next_window_begins_where_the_last_one_ends() {
        const NOW: u64 = 1_790_000_000_000_000;
        // (base, floor) of the two stores; offsets of the three epochs.
        for (old, new, offsets) in [
            ((0, 0), (0, 0), [0, WIDTH, 2 * WIDTH]),
            ((0, NOW), (0, 700), [0, NOW + WIDTH - 700, 2 * WIDTH]),
            ((0, 700), (0, NOW), [0, 0, NOW + WIDTH - 700]),
            ((50, 700), (9, 800), [50, WIDTH - 50, 2 * WIDTH + 50]),
            ((7, 0), (3 * WIDTH, 0), [7, 3 * WIDTH, 4 * WIDTH]),
        ] {
            let (old, new) = (store(old.0, old.1), store(new.0, new.1));
            let first = Window::first(old).unwrap();
            let second = first.next(new).unwrap();
            let third = second.next(old).unwrap();
            assert_eq!([first.offset, second.offset, third.offset], offsets, "{old:?} {new:?}");
            for (window, store) in [(first, old), (second, new), (third, old)] {
                assert!(window.offset >= store.base, "{window:?}");
                let first = window.counter(store.floor, false).unwrap();
                assert!(first + WIDTH <= window.high, "{window:?} has room");
            }
        }
    }

    /// Numbers outside the window are not given: below it, above it, beyond every number.
    #[test]
    fn a_number_outside_is_refused() {
        let window = Window { offset: 100, low: 110, high: 200 };
        let given = |raw| window.counter(raw, false);
        assert_eq!([given(9), given(10), given(99), given(100)], [None, Some(110), Some(199), None]);
        assert_eq!(given(u64::MAX), None);
        assert_eq!([window.counter(9, true), window.counter(100, true)], [None, Some(200)]);
        assert_eq!(window.counter(FencingToken::MAX_COUNTER, true), None);
    }

    /// A window beyond the last number is none.
    #[test]
    fn no_window_follows_where_there_is_no_room() {
        Window::first(store(u64::MAX, 0)).unwrap_err();
        let last = Window { offset: 0, low: 0, high: FencingToken::MAX_COUNTER - 1 };
        last.next(store(0, 0)).unwrap_err();
        last.bounded(store(u64::MAX, u64::MAX)).unwrap_err();
    }

    proptest! {
        /// However often locks are moved, whatever the stores' numbers are: windows are disjoint and ordered, offsets are
        /// no smaller than the bases, and the stores' next numbers are inside.
        #[test]
        fn windows_are_disjoint_and_ordered(
            epochs in prop::collection::vec((0..1_u64 << 50, 0..1_u64 << 51, 0..WIDTH, any::<bool>()), 1..20)
        ) {
            let mut last: Option<Window> = None;
            let mut given = None;
            for (base, floor, ahead, again) in epochs {
                let base = store(base, floor);
                let window = match last {
                    None => Window::first(base),
                    Some(last) => last.next(base),
                };
                let Ok(mut window) = window else { break };
                if let Some(last) = last {
                    prop_assert!(window.low >= last.high);
                }
                if again {
                    let Ok(bounded) = window.bounded(base) else { break };
                    prop_assert!(bounded.high >= window.high && bounded.low == window.low);
                    window = bounded;
                }
                prop_assert!(window.offset >= base.base);
                for raw in [floor, floor + ahead] {
                    let counter = window.counter(raw, false).unwrap();
                    prop_assert!(given.is_none_or(|given| counter >= given));
                    given = Some(counter);
                }
                last = Some(window);
                given = given.map(|given| given + 1);
            }
        }
    }
}
