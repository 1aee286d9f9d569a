//! The entry of a participant in the lists of both stores: JSON, of at most
//! [`MAX_VALUE`](leasehold_core::backend::ledger::MAX_VALUE) bytes. A participant has the same id in both.
//!
//! # Invariants
//! - **member-1** An entry was true when it was written, and it may be a poll old. Only its acknowledgement is relied on: a
//!   version, which stays acknowledged while the entry lives.
//! - **member-2** An entry that cannot be read acknowledges nothing, so it stops a move and never lets one through. A field
//!   that this version does not know is skipped.

use leasehold_core::backend::stage::Phase;
use leasehold_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::Pair;

/// A participant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MemberEntry {
    pub(crate) kind: Kind,
    /// The manager's label; an administrator's label says so.
    pub(crate) label: String,
    pub(crate) pid: u32,
    /// Of this library.
    pub(crate) version: String,
    /// The version of each store's record that it acts by. The entry in a store counts for that store's.
    #[serde(with = "versions")]
    pub(crate) acknowledges: Pair<Option<u64>>,
    /// The phase it is in; `None` while it grants nothing.
    #[serde(with = "word")]
    pub(crate) view: Option<Phase>,
    pub(crate) holds: Holds,
    /// Foreign clients that it met in the old store, while that was waited for; for people.
    pub(crate) foreign_clients: Option<ForeignClients>,
    /// Its error, such as a store that refuses its password.
    pub(crate) trouble: Option<String>,
}

/// The role of a participant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// It takes locks.
    #[default]
    Process,
    /// It administers the move: it has sessions like a process, takes no locks, and blocks no step.
    Admin,
}

/// How many locks it holds, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Holds {
    /// In the old store alone.
    pub(crate) old: usize,
    /// In the new one alone.
    pub(crate) new: usize,
    pub(crate) both: usize,
}

/// Foreign clients that were met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ForeignClients {
    pub(crate) met: u64,
    /// The lock that the last one held.
    pub(crate) name: String,
}

/// The longest label, and the longest trouble, that are written: whole entries fit, however they are escaped.
const LABEL: usize = 128;
const TROUBLE: usize = 256;

impl MemberEntry {
    /// The bytes to sign with.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let fitting = Self {
            label: cut(&self.label, LABEL),
            trouble: self.trouble.as_deref().map(|trouble| cut(trouble, TROUBLE)),
            ..self.clone()
        };
        serde_json::to_vec(&fitting).expect("strings and numbers are JSON")
    }

    /// Reads an entry.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] for an entry that cannot be read (member-2).
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|error| {
            let message = format!("cannot read the entry of a participant of a move: {error}");
            Error::not_applied(ErrorKind::Protocol, message)
        })
    }
}

/// The characters that end within the first `most` bytes.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or(0)].to_owned()
}

/// As strings: other readers of JSON round numbers above 2^53.
mod versions {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Pair;

    pub(super) fn serialize<S: Serializer>(of: &Pair<Option<u64>>, to: S) -> Result<S::Ok, S::Error> {
        Pair::each(|side| of[side].map(|version| version.to_string())).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Pair<Option<u64>>, D::Error> {
        let Pair { old, new } = Pair::<Option<String>>::deserialize(from)?;
        let version =
            |text: Option<String>| text.map(|text| text.parse().map_err(D::Error::custom)).transpose();
        Ok(Pair { old: version(old)?, new: version(new)? })
    }
}

/// Phases as their words.
pub(crate) mod word {
    use leasehold_core::backend::stage::Phase;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(phase: &Option<Phase>, to: S) -> Result<S::Ok, S::Error> {
        phase.map(Phase::word).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Phase>, D::Error> {
        let word = Option::<String>::deserialize(from)?;
        let phase = |word: String| {
            Phase::of_word(&word).ok_or_else(|| D::Error::custom(format!("phase `{word}` is invalid")))
        };
        word.map(phase).transpose()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::backend::ledger::MAX_VALUE;
    use proptest::prelude::*;

    use super::*;

    fn member() -> MemberEntry {
        MemberEntry {
            label: "nightly@host".to_owned(),
            pid: 7,
            version: "0.1.0".to_owned(),
            acknowledges: Pair { old: Some(12), new: None },
            view: Some(Phase::Both),
            holds: Holds { old: 1, new: 0, both: 2 },
            foreign_clients: Some(ForeignClients { met: 3, name: "report".to_owned() }),
            ..MemberEntry::default()
        }
    }

    /// The bytes are these, whatever the version: others must read them.
    #[test]
    fn an_entry_is_written_like_this() {
        assert_eq!(
            String::from_utf8(member().encode()).unwrap(),
            r#"{"kind":"process","label":"nightly@host","pid":7,"version":"0.1.0","acknowledges":{"old":"12","new":null},"#
                .to_owned()
                + r#""view":"both","holds":{"old":1,"new":0,"both":2},"foreign_clients":{"met":3,"name":"report"},"trouble":null}"#
        );
        assert_eq!(MemberEntry::decode(&member().encode()).unwrap(), member());
    }

    /// A later version may say more, and less: what is missing acknowledges nothing (member-2).
    #[test]
    fn unknown_field_is_skipped() {
        let later = MemberEntry::decode(br#"{"label":"x","pause":{"a":1},"view":null}"#).unwrap();
        assert_eq!(later, MemberEntry { label: "x".to_owned(), ..MemberEntry::default() });
        for wrong in [
            r#"{"view":"late"}"#,
            r#"{"kind":"ghost"}"#,
            r#"{"acknowledges":{"old":"-1"}}"#,
            r#"{"acknowledges":{"old":12}}"#,
            "",
            "1",
        ] {
            let refused = MemberEntry::decode(wrong.as_bytes());
            assert_eq!(refused.map_err(|error| error.kind().clone()), Err(ErrorKind::Protocol), "{wrong}");
        }
    }

    proptest! {
        /// No bytes panic.
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = MemberEntry::decode(&bytes);
        }

        /// Whatever it says, its entry is one that ledgers take.
        #[test]
        fn an_entry_fits(label: String, trouble: String, filler in "[\\x00\"\\\\é]{0,600}", name in "[\"\\\\é]{0,256}") {
            let most = u64::MAX;
            let foreign_clients = ForeignClients { met: most, name };
            let holds = Holds { old: usize::MAX, new: usize::MAX, both: usize::MAX };
            let acknowledges = Pair { old: Some(most), new: Some(most) };
            let (label, trouble) = (label + &filler, Some(trouble + &filler));
            let foreign_clients = Some(foreign_clients);
            let (pid, whole) = (u32::MAX, member());
            let long = MemberEntry { label, trouble, foreign_clients, holds, acknowledges, pid, ..whole };
            let written = long.encode();
            prop_assert!(written.len() <= MAX_VALUE, "{}", written.len());
            prop_assert!(long.label.starts_with(&MemberEntry::decode(&written).unwrap().label));
        }
    }
}
