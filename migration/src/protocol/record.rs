//! The record of a move, of which each of the two stores has one: the line that every process reads, and JSON behind it; at
//! most [`MAX_VALUE`](leasehold_core::backend::ledger::MAX_VALUE) bytes.
//!
//! # Invariants
//! - **record-1** A record that cannot be read is refused: a later format, a field that this version does not know, a record of
//!   another move. So no process acts on half a record, or writes half of one back.

use std::time::SystemTime;

use leasehold_core::backend::stage::{Phase, Side, Stage};
use leasehold_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::Pair;
use super::tokens::{Window, digits};

/// A record, as it is written: side and phase in its first line.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MoveRecord {
    /// The move it belongs to; the same in both stores once it counts.
    #[serde(with = "digits")]
    pub(crate) id: u64,
    /// Which of the two stores it lies in.
    #[serde(skip, default = "first_side")]
    pub(crate) side: Side,
    /// Its decision.
    pub(crate) stand: Stand,
    /// The two namespaces, as the URL that began the move names them.
    pub(crate) between: Pair<String>,
    /// When it was written, on the writer's wall clock, in milliseconds of the Unix epoch; for people, and for how long
    /// `drain` has lasted without a foreign client.
    pub(crate) since: u64,
    /// How often a record of this move was written again that a store had lost.
    pub(crate) restored: u64,
    /// The move has ended: the record blocks no session, versions go on from it, and it refuses a process that would begin the
    /// same move again. Plain sessions may use the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<End>,
    /// The last foreign client that was met in the old store; of no account if it is older than the phase. In the record,
    /// so that it outlasts the process that met it, and so that a step to `new` by an older version is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) met: Option<Met>,
}

/// A lock that a foreign client held in the old store when it was wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Met {
    pub(crate) name: String,
    /// When, in milliseconds of the Unix epoch.
    pub(crate) at: u64,
}

/// How a move ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum End {
    /// The locks are in the new store.
    Moved,
    /// They are in the old one, and may be moved anywhere.
    Left,
}

/// The phase of the move, and the numbers that may be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stand {
    #[serde(skip, default = "first_phase")]
    pub(crate) phase: Phase,
    /// How often another store began to count.
    pub(crate) epoch: u64,
    pub(crate) window: Window,
}

/// A stand, and what identifies its record: its version, and how often records of the move were written again. So a record that
/// was written again is newer than the lost one, although a store that has lost its data may count anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) version: u64,
    pub(crate) stand: Stand,
}

impl Stand {
    /// The same in another phase.
    pub(crate) const fn with(self, phase: Phase) -> Self {
        Self { phase, ..self }
    }

    /// The one of these two that knows more of the numbers that were given.
    pub(crate) fn newest(self, other: Self) -> Self {
        let known = |stand: Self| (stand.epoch, stand.window.high);
        if known(other) > known(self) { other } else { self }
    }

    /// The counter for the store's own number, if it may be given. In a phase that may last for ever no end is kept.
    pub(crate) fn counter(self, raw: u64) -> Option<u64> {
        self.window.counter(raw, matches!(self.phase, Phase::Old | Phase::New))
    }
}

/// Replaced by the side of the first line.
fn first_side() -> Side {
    Side::Old
}

/// The same.
fn first_phase() -> Phase {
    Phase::Old
}

/// The most times that a record is written again.
pub(super) const MOST_RESTORED: u64 = 1 << 10;
/// How often a meeting is written, in milliseconds.
const MET_EVERY: u64 = 1_000;

impl MoveRecord {
    /// The bytes to write.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let json = serde_json::to_string(self).expect("strings and numbers are JSON");
        format!("{}\n{json}", Stage { side: self.side, phase: self.stand.phase }.line()).into_bytes()
    }

    /// Reads a written record.
    ///
    /// # Errors
    ///
    /// As [`Stage::of_record`]; [`ErrorKind::Protocol`] for anything else that is not understood (record-1).
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let (Stage { side, phase }, rest) = Stage::of_record(bytes)?;
        let read: Self = serde_json::from_slice(rest).map_err(|error| {
            let message = format!("cannot read the move record: {error}");
            Error::not_applied(ErrorKind::Protocol, message)
        })?;
        if read.restored > MOST_RESTORED {
            let message = format!("the move record is invalid: it was written again {} times", read.restored);
            return Err(Error::not_applied(ErrorKind::Protocol, message));
        }
        Ok(Self { side, stand: read.stand.with(phase), ..read })
    }

    /// Whether a process can act on it without the other store's record.
    pub(crate) fn is_enough(&self) -> bool {
        match self.side {
            Side::Old => self.stand.phase <= Phase::Shadow && self.restored > 0,
            Side::New => self.stand.phase >= Phase::Drain,
        }
    }

    /// The record to write when a foreign client was found to hold `name` at that time, if that is due.
    pub(crate) fn having_met(&self, name: &str, at: u64) -> Option<Self> {
        // It counts as one of this phase, also by a clock that is behind that of the phase's writer.
        let at = at.max(self.since.saturating_add(1));
        let due = self.met.as_ref().is_none_or(|last| last.at.saturating_add(MET_EVERY) <= at);
        let met = Some(Met { name: name.to_owned(), at });
        (self.stand.phase == Phase::Drain && self.end.is_none() && due).then(|| Self { met, ..self.clone() })
    }

    /// The last meeting since the phase began, if there was one.
    pub(crate) fn last_met(&self) -> Option<&Met> {
        self.met.as_ref().filter(|met| met.at > self.since)
    }

    /// For how long it is still to be waited until no foreign client was met for `quiet_for`, since the phase began at least; all
    /// in milliseconds.
    pub(crate) fn unquiet(&self, now: u64, quiet_for: u64) -> u64 {
        let last = self.last_met().map_or(self.since, |met| met.at);
        last.saturating_add(quiet_for).saturating_sub(now)
    }

    /// The record of the ended move: whatever the phase was, the namespace admits plain sessions.
    pub(crate) fn ended(self, end: End) -> Self {
        let phase = match self.side {
            Side::Old => Phase::Old,
            Side::New => Phase::New,
        };
        Self { stand: self.stand.with(phase), end: Some(end), ..self }
    }
}

/// A time, as records have it.
pub(crate) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> MoveRecord {
        let window = Window { offset: 7, low: 9, high: 1 << 47 };
        let stand = Stand { phase: Phase::Both, epoch: 1, window };
        let between = Pair { old: "h0/a".to_owned(), new: "h1/b".to_owned() };
        MoveRecord { id: 0xabc, side: Side::Old, stand, between, since: 5, restored: 0, end: None, met: None }
    }

    /// The bytes are these, whatever the version: others must read them.
    #[test]
    fn a_record_is_written_like_this() {
        let written = String::from_utf8(record().encode()).unwrap();
        assert_eq!(
            written,
            "1 old both\n".to_owned()
                + r#"{"id":"2748","stand":{"epoch":1,"window":{"offset":"7","low":"9","high":"140737488355328"}},"#
                + r#""between":{"old":"h0/a","new":"h1/b"},"since":5,"restored":0}"#
        );
        let ended = MoveRecord { side: Side::New, restored: 2, ..record() }.ended(End::Moved);
        let written = String::from_utf8(ended.encode()).unwrap();
        assert!(
            written.starts_with("1 new new\n")
                && written.ends_with(r#","since":5,"restored":2,"end":"moved"}"#),
            "{written}"
        );
        assert_eq!(MoveRecord::decode(written.as_bytes()).unwrap(), ended);
    }

    /// An unknown record is refused and named (record-1).
    #[test]
    fn unknown_record_is_refused() {
        let written = String::from_utf8(record().encode()).unwrap();
        for (from, to, kind) in [
            ("1 old", "2 old", ErrorKind::Unsupported),
            (r#""epoch":1"#, r#""epoch":-1"#, ErrorKind::Protocol),
            (r#""epoch":1"#, r#""epoch":1,"pause":true"#, ErrorKind::Protocol),
            (r#""low":"9","#, "", ErrorKind::Protocol),
            (r#""low":"9""#, r#""low":"9","width":1"#, ErrorKind::Protocol),
            (r#""2748""#, "2748", ErrorKind::Protocol),
            ("2748", "-1", ErrorKind::Protocol),
            (r#""id""#, r#""side":"new","id""#, ErrorKind::Protocol),
            (r#""restored":0"#, r#""restored":1025"#, ErrorKind::Protocol),
            (r#""since":5"#, r#""since":5,"end":"late""#, ErrorKind::Protocol),
            ("both", "late", ErrorKind::Protocol),
        ] {
            let changed = written.replace(from, to);
            assert_ne!(changed, written);
            let refused = MoveRecord::decode(changed.as_bytes()).unwrap_err();
            assert_eq!(*refused.kind(), kind, "{changed}: {refused}");
        }
    }

    /// The newest meeting stays, at most one a second is written, and only while the old store is drained.
    #[test]
    fn the_last_meeting_is_kept() {
        let other_phase = record();
        assert_eq!(other_phase.having_met("a", 9), None);
        let drained = MoveRecord { stand: record().stand.with(Phase::Drain), since: 10_000, ..record() };
        assert_eq!(drained.last_met(), None);
        let first = drained.having_met("a", 20_000).unwrap();
        assert_eq!(first.last_met(), Some(&Met { name: "a".to_owned(), at: 20_000 }));
        for at in [0, 19_000, 20_999] {
            assert_eq!(first.having_met("b", at), None, "{at}");
        }
        let second = first.having_met("b", 21_000).unwrap();
        assert_eq!(second.last_met(), Some(&Met { name: "b".to_owned(), at: 21_000 }));
        assert_eq!(MoveRecord::decode(&second.encode()).unwrap(), second);
        // Of a clock that is behind.
        assert_eq!(second.having_met("c", 10_000), None);
        let behind = drained.having_met("a", 3).unwrap();
        assert!(behind.last_met().is_some(), "of a clock that is behind");
        let drained_again = MoveRecord { since: 30_000, ..second };
        assert_eq!(drained_again.last_met(), None);
    }

    proptest! {
        /// No bytes panic.
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = MoveRecord::decode(&bytes);
        }

        /// A written record is read.
        #[test]
        fn a_record_is_read_as_it_was_written(
            id: u64, epoch: u64, offset: u64, low: u64, high: u64, phase in 0..5_usize, old: String, new: String,
            since: u64, restored in 0..=MOST_RESTORED, over: bool,
            met in proptest::option::of((any::<String>(), any::<u64>()))
        ) {
            let window = Window { offset, low, high };
            let stand = Stand { phase: Phase::ALL[phase], epoch, window };
            let (between, end) = (Pair { old, new }, over.then_some(End::Left));
            let met = met.map(|(name, at)| Met { name, at });
            let record = MoveRecord { id, side: Side::New, stand, between, since, restored, end, met };
            prop_assert_eq!(MoveRecord::decode(&record.encode()).unwrap(), record);
        }
    }
}
