//! The record of a move, of which each of the two stores has one: the line that everybody reads, and JSON behind it;
//! at most [`MAX_VALUE`](leasehold_core::backend::ledger::MAX_VALUE) bytes.
//!
//! # Invariants
//! - **record-1** What is not understood is refused: a later format, a member that this version does not know,
//!   a record of another move. So nobody acts on half a record, or writes half of one back.

use leasehold_core::backend::stage::{Phase, Side, Stage};
use leasehold_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::tokens::Window;

/// A record, as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    /// The move it belongs to; the same in both stores.
    pub(crate) id: u64,
    /// Which of the two stores it lies in.
    pub(crate) side: Side,
    /// What it decides.
    pub(crate) stand: Stand,
    /// Where the other store is, for people.
    pub(crate) other: String,
    /// When it was written, on the writer's wall clock, in milliseconds of the Unix epoch; for people, and for how long
    /// it is waited for strangers.
    pub(crate) since: u64,
    /// The move is over, and the record is there only because versions must go on: as if there were none. Plain
    /// sessions may use the namespace.
    pub(crate) over: bool,
}

/// How far the move is, and what may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stand {
    pub(crate) phase: Phase,
    /// How often another store began to count.
    pub(crate) epoch: u64,
    pub(crate) window: Window,
}

/// A stand and the version of the record that says so.
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
        let known = |stand: Self| (stand.epoch, stand.window.high.is_none(), stand.window.high);
        if known(other) > known(self) { other } else { self }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    id: String,
    epoch: u64,
    window: Window,
    other: String,
    since: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    over: bool,
}

impl Record {
    /// The bytes to write.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Stand { phase, epoch, window } = self.stand;
        let (id, other) = (format!("{:016x}", self.id), self.other.clone());
        let json = Json { id, epoch, window, other, since: self.since, over: self.over };
        let json = serde_json::to_string(&json).expect("strings and numbers are JSON");
        format!("{}\n{json}", Stage { side: self.side, phase }.line()).into_bytes()
    }

    /// Reads what was written.
    ///
    /// # Errors
    ///
    /// As [`Stage::of_record`]; [`ErrorKind::Protocol`] for anything else that is not understood (record-1).
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let (Stage { side, phase }, rest) = Stage::of_record(bytes)?;
        let json: Json = serde_json::from_slice(rest).map_err(|error| {
            let message = format!("the record of a move to another store is not understood: {error}");
            Error::not_applied(ErrorKind::Protocol, message)
        })?;
        let id = u64::from_str_radix(&json.id, 16).map_err(|error| {
            let message = format!("the id `{}` of a move to another store is no number", json.id);
            Error::not_applied(ErrorKind::Protocol, message).with_source(error)
        })?;
        let stand = Stand { phase, epoch: json.epoch, window: json.window };
        Ok(Self { id, side, stand, other: json.other, since: json.since, over: json.over })
    }

    /// What is left of it when the move is over: whatever the phase was, the namespace admits plain sessions.
    pub(crate) fn ended(self) -> Self {
        let phase = match self.side {
            Side::Old => Phase::Old,
            Side::New => Phase::New,
        };
        Self { stand: self.stand.with(phase), over: true, ..self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> Record {
        let window = Window { offset: 7, low: 9, high: Some(1 << 47) };
        let stand = Stand { phase: Phase::Both, epoch: 1, window };
        let other = "h1:2379".to_owned();
        Record { id: 0xabc, side: Side::Old, stand, other, since: 5, over: false }
    }

    /// The bytes are these, whatever the version: others must read them.
    #[test]
    fn a_record_is_written_like_this() {
        let written = String::from_utf8(record().encode()).unwrap();
        assert_eq!(
            written,
            "1 old both\n".to_owned()
                + r#"{"id":"0000000000000abc","epoch":1,"window":{"offset":7,"low":9,"high":140737488355328},"other":"h1:2379","since":5}"#
        );
        let open = Stand { window: record().stand.window.open(), ..record().stand };
        let open = Record { stand: open, ..record() };
        assert!(String::from_utf8(open.encode()).unwrap().contains(r#""high":null"#));
        assert_eq!(Record::decode(&open.encode()).unwrap(), open);
        let ended = Record { side: Side::New, ..record() }.ended();
        let written = String::from_utf8(ended.encode()).unwrap();
        assert!(
            written.starts_with("1 new new\n") && written.ends_with(r#","since":5,"over":true}"#),
            "{written}"
        );
        assert_eq!(Record::decode(written.as_bytes()).unwrap(), ended);
    }

    /// What is not understood is refused, and says what it is (record-1).
    #[test]
    fn what_is_not_understood_is_refused() {
        let written = String::from_utf8(record().encode()).unwrap();
        for (from, to, kind) in [
            ("1 old", "2 old", ErrorKind::Unsupported),
            (r#""epoch":1"#, r#""epoch":-1"#, ErrorKind::Protocol),
            (r#""epoch":1"#, r#""epoch":1,"pause":true"#, ErrorKind::Protocol),
            (r#""low":9,"#, "", ErrorKind::Protocol),
            (r#""low":9"#, r#""low":9,"width":1"#, ErrorKind::Protocol),
            ("0000000000000abc", "0000000000000abz", ErrorKind::Protocol),
            ("both", "late", ErrorKind::Protocol),
        ] {
            let changed = written.replace(from, to);
            assert_ne!(changed, written);
            let refused = Record::decode(changed.as_bytes()).unwrap_err();
            assert_eq!(*refused.kind(), kind, "{changed}: {refused}");
        }
    }

    proptest! {
        /// No bytes panic.
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Record::decode(&bytes);
        }

        /// What was written is read.
        #[test]
        fn a_record_is_read_as_it_was_written(
            id: u64, epoch: u64, offset: u64, low: u64, high: Option<u64>, phase in 0..5_usize, other: String,
            since: u64, over: bool
        ) {
            let window = Window { offset, low, high };
            let stand = Stand { phase: Phase::ALL[phase], epoch, window };
            let record = Record { id, side: Side::New, stand, other, since, over };
            prop_assert_eq!(Record::decode(&record.encode()).unwrap(), record);
        }
    }
}
