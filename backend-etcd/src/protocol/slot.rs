//! The key of a session's entry in a queue, which shows the entry's mode; pure.
//!
//! | key, below `PREFIX/enc(NAME)/` | its entry holds |
//! |---|---|
//! | `LEASE` | exclusively |
//! | `%shared/LEASE` | together with other readers |
//! | `%2of8/LEASE` | two of eight permits |
//! | the same with `.1`, `.2` and so on | in the same way, in addition to another entry of its session |
//! | anything else | exclusively: it is a foreign client's |
//!
//! The mode is in the key because the report of a deletion has nothing but the key.
//!
//! # Invariants
//! - **etcd.slot-1** The keys between `%shared/` and `%shared0` are exactly the keys that are read as shared: ranges and keys
//!   agree.

use leasehold_core::Mode;

/// One of a session's entries in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) mode: Mode,
    /// A session may have several shared entries or permits at the same time.
    pub(crate) number: u32,
}

impl Slot {
    pub(crate) fn first(mode: Mode) -> Self {
        Self { mode, number: 0 }
    }

    /// The rest of the key after the name, for a session with that lease.
    pub(crate) fn path(self, lease: i64) -> String {
        let folder = folder_of(self.mode);
        match self.number {
            0 => format!("{folder}{lease:x}"),
            number => format!("{folder}{lease:x}.{number}"),
        }
    }

    /// Reads the text of [`path`](Self::path) for that lease; `None` for any other key.
    pub(crate) fn of(contender: &str, lease: i64) -> Option<Self> {
        let last = contender.rsplit_once('/').map_or(contender, |(_folder, last)| last);
        let (whose, number) = last.split_once('.').unwrap_or((last, "0"));
        // Most keys are of other sessions.
        if u64::from_str_radix(whose, 16) != Ok(lease.cast_unsigned()) {
            return None;
        }
        let slot = Self { mode: mode_of(contender.as_bytes()), number: number.parse().ok()? };
        (slot.path(lease) == contender).then_some(slot)
    }
}

/// The mode of a key with this rest after the name.
pub(crate) fn mode_of(contender: &[u8]) -> Mode {
    let said = contender.strip_prefix(b"%").and_then(|said| said.split(|byte| *byte == b'/').next());
    let Some(said) = said.and_then(|said| std::str::from_utf8(said).ok()) else {
        return Mode::EXCLUSIVE;
    };
    let permits = || {
        let (weight, capacity) = said.split_once("of")?;
        Mode::permits(weight.parse().ok()?, capacity.parse().ok()?).ok()
    };
    let mode = if said == "shared" { Some(Mode::SHARED) } else { permits() };
    mode.filter(|mode| contender.starts_with(folder_of(*mode).as_bytes())).unwrap_or_default()
}

fn folder_of(mode: Mode) -> String {
    match mode {
        Mode::EXCLUSIVE => String::new(),
        Mode::SHARED => SHARED.to_owned(),
        mode => format!("%{}of{}/", mode.weight(), mode.capacity()),
    }
}

/// The prefix of shared keys, and the first key after all of them: `0` follows `/`.
pub(crate) const SHARED: &str = "%shared/";
pub(crate) const AFTER_SHARED: &str = "%shared0";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn permits(weight: u32, capacity: u32) -> Mode {
        Mode::permits(weight, capacity).unwrap()
    }

    #[test]
    fn keys_say_how_their_bearers_hold() {
        for (mode, number, path) in [
            (Mode::EXCLUSIVE, 0, "1a"),
            (permits(1, 1), 0, "1a"),
            (Mode::SHARED, 0, "%shared/1a"),
            (Mode::SHARED, 1, "%shared/1a.1"),
            (permits(2, 8), 0, "%2of8/1a"),
            (permits(2, 8), 12, "%2of8/1a.12"),
        ] {
            let slot = Slot { mode, number };
            assert_eq!(slot.path(0x1a), path);
            assert_eq!(Slot::of(path, 0x1a), Some(slot));
            assert_eq!(mode_of(path.as_bytes()), mode, "{path}");
            for other in [0x1, 0x1a0, 0x1b, 0xa] {
                assert_eq!(Slot::of(path, other), None, "{path} is taken for one of {other:x}");
            }
            assert_eq!(Slot::of(&slot.path(-1), -1), Some(slot), "whatever a server grants");
        }
    }

    /// A key that does not parse is exclusive, and no slot.
    #[test]
    fn unknown_mode_is_exclusive() {
        for foreign in [
            "shared/1a",
            "%shared",
            "%Shared/1a",
            "%shared1/1a",
            "%/1a",
            "%of/1a",
            "%0of8/1a",
            "%9of8/1a",
            "%02of8/1a",
            "%+2of8/1a",
            "%2of8",
            "%2of8of9/1a",
            "%2of4294967295/1a",
            "%1of1/1a",
            "b/1a",
            "lock-1a",
        ] {
            assert_eq!(mode_of(foreign.as_bytes()), Mode::EXCLUSIVE, "{foreign}");
            assert_eq!(Slot::of(foreign, 0x1a), None, "{foreign}");
        }
        for foreign in ["1a.", "1a.0", "1a.01", "1a.x", "%shared/1a.", "%shared/b/1a", "%shared/1a/1a"] {
            assert_eq!(Slot::of(foreign, 0x1a), None, "{foreign}");
        }
        assert_eq!(mode_of(&[b'%', 0xff, b'/', b'1']), Mode::EXCLUSIVE);
    }

    proptest! {
        /// etcd.slot-1
        #[test]
        fn share_is_stored_among_shares(contender in "%?(shared|2of8|[%0-2a-z]{0,8})[/0.]?[/0-9a]{0,3}") {
            let lies_there = (SHARED..AFTER_SHARED).contains(&contender.as_str());
            prop_assert_eq!(mode_of(contender.as_bytes()) == Mode::SHARED, lies_there);
        }
    }
}
