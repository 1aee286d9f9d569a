//! A text for each slot that, in the braces of a key, puts the key there; and which slots a server has.

use std::fmt;
use std::sync::LazyLock;

use super::slots::HashSlot;

/// Of each slot the number of its tag.
static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut tags = vec![None; HashSlot::COUNT];
    let mut missing = HashSlot::COUNT;
    for number in 0_u32.. {
        let tag = &mut tags[HashSlot::of(text(number)).index()];
        missing -= usize::from(tag.is_none());
        tag.get_or_insert(number);
        if missing == 0 {
            break;
        }
    }
    tags.into_iter().flatten().collect()
});

/// The text with that number, of all digits and small letters: shorter ones come first.
fn text(mut number: u32) -> String {
    let mut reversed = Vec::new();
    loop {
        reversed.extend(char::from_digit(number % BASE, BASE));
        if number < BASE {
            return reversed.into_iter().rev().collect();
        }
        number = number / BASE - 1;
    }
}

const BASE: u32 = 36;

impl HashSlot {
    /// The shortest text with that slot.
    pub(crate) fn tag(self) -> String {
        text(TAGS[self.index()])
    }
}

/// Slots, as ranges of their numbers in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotRanges(Vec<(u16, u16)>);

impl SlotRanges {
    /// With one more slot, above all others.
    pub(super) fn push(&mut self, slot: u16) {
        match self.0.last_mut() {
            Some((_, last)) if *last + 1 == slot => *last = slot,
            _ => self.0.push((slot, slot)),
        }
    }

    /// Reads what was written, without the parts that are something else.
    pub(crate) fn read(text: &str) -> Self {
        let range = |range: &str| {
            let (first, last) = range.split_once('-')?;
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        Self(text.split(',').filter_map(range).collect())
    }

    pub(crate) fn contains(&self, slot: HashSlot) -> bool {
        self.0.iter().any(|(first, last)| (usize::from(*first)..=usize::from(*last)).contains(&slot.index()))
    }

    /// The highest one.
    pub(crate) fn last(&self) -> Option<HashSlot> {
        HashSlot::new(self.0.last()?.1.into())
    }
}

impl fmt::Display for SlotRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<_> = self.0.iter().map(|(first, last)| format!("{first}-{last}")).collect();
        f.write_str(&ranges.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each slot has a tag of its own, of at most four letters, and as short as there is one.
    #[test]
    fn tags_lie_in_their_slots() {
        assert_eq!([0, 35, 36, 37, 36 + 36 * 36].map(text), ["0", "z", "00", "01", "000"]);
        assert_eq!(TAGS.len(), HashSlot::COUNT);
        for number in 0..HashSlot::COUNT {
            let slot = HashSlot::new(number as u64).unwrap();
            assert_eq!(HashSlot::of(format!("leasehold:{{{}}}:%origin", slot.tag())), slot);
            assert!(slot.tag().len() <= 4);
        }
        assert_eq!(HashSlot::of("a").tag().len(), 1);
    }

    /// A written tag is read, and bytes that somebody else wrote contain no slot.
    #[test]
    fn ranges_are_read_as_written() {
        let mut ranges = SlotRanges::default();
        [0, 1, 2, 7, 9, 10].into_iter().for_each(|slot| ranges.push(slot));
        assert_eq!(ranges.to_string(), "0-2,7-7,9-10");
        assert_eq!(SlotRanges::read(&ranges.to_string()), ranges);
        assert_eq!(ranges.last(), HashSlot::new(10));
        let has = |slot| ranges.contains(HashSlot::new(slot).unwrap());
        assert_eq!([0, 2, 3, 7, 8, 10].map(has), [true, true, false, true, false, true]);
        for foreign in ["", "-", "1", "x-2", "-1-3", "70000-1"] {
            assert_eq!(SlotRanges::read(foreign), SlotRanges::default(), "{foreign}");
        }
    }
}
