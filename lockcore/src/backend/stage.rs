//! The phase of a move, for sessions outside the move: such a session opens a namespace only if the record
//! there admits it.
//!
//! Every session reads the first line of the record, which is the same in every format: `FORMAT SIDE PHASE`, such as
//! `1 old shadow`. Only participants of the move read the rest.
//!
//! # Invariants
//! - **stage-1** A record that cannot be read admits no session: a later format, an unknown word, no such line.
//! - **stage-2** The old store admits sessions outside the move in `old`, the new store in `new`. Locks are in both
//!   stores only two phases later: by then the move has waited for the end of the sessions that were opened before,
//!   and no other could open since.

use std::fmt;

use crate::backend::env::Env;
use crate::words::error::{Error, ErrorKind, Result};

/// The format of a record that this version reads.
pub const FORMAT: u64 = 1;

/// The phases of a move, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "another phase is another format")]
pub enum Phase {
    /// The store that is left has the locks alone.
    Old,
    /// As `Old`, and every grant checks the record.
    Shadow,
    /// A lock is held in both stores.
    Both,
    /// The new store has the locks; the old one is waited for while it can be reached.
    Drain,
    /// The store moved to has the locks alone.
    New,
}

/// Which of the two stores a record lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a move has two ends")]
pub enum Side {
    /// The old store.
    Old,
    /// The one moved to.
    New,
}

/// The part of a record that every session reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "the process that moves the locks writes it")]
pub struct Stage {
    /// Where it lies.
    pub side: Side,
    /// How far the move is.
    pub phase: Phase,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Self; 5] = [Self::Old, Self::Shadow, Self::Both, Self::Drain, Self::New];

    /// The word for it in records and commands.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::Shadow => "shadow",
            Self::Both => "both",
            Self::Drain => "drain",
            Self::New => "new",
        }
    }

    /// The phase of that word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.word() == word)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Side {
    /// The word for it in records.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::New => "new",
        }
    }

    /// The other one of the two.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Old => Self::New,
            Self::New => Self::Old,
        }
    }

    /// The side of that word.
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Old, Self::New].into_iter().find(|side| side.word() == word)
    }
}

impl Stage {
    /// The line with which a record begins.
    pub fn line(self) -> String {
        format!("{FORMAT} {} {}", self.side.word(), self.phase)
    }

    /// Reads the first line of a record, and returns the rest with it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for another format than [`FORMAT`]; [`ErrorKind::Protocol`] for an
    /// invalid record.
    pub fn of_record(record: &[u8]) -> Result<(Self, &[u8])> {
        let end = record.iter().position(|byte| *byte == b'\n').unwrap_or(record.len());
        let (line, rest) = record.split_at(end);
        let line = std::str::from_utf8(line).map_err(|_| no_record())?;
        let (format, line) = line.split_once(' ').ok_or_else(no_record)?;
        let format: u64 = format.parse().map_err(|_| no_record())?;
        if format != FORMAT {
            let message = format!(
                "the move record of this namespace has format {format}, but this version reads format \
                 {FORMAT}: use a later version"
            );
            return Err(Error::not_applied(ErrorKind::Unsupported, message));
        }
        let (side, phase) = line.split_once(' ').ok_or_else(no_record)?;
        let (side, phase) = (Side::of_word(side), Phase::of_word(phase));
        let stage = Self { side: side.ok_or_else(no_record)?, phase: phase.ok_or_else(no_record)? };
        Ok((stage, rest.get(1..).unwrap_or_default()))
    }

    /// Whether a session that takes no part in the move may use the namespace (stage-2).
    pub fn admits_plain_sessions(self) -> bool {
        match self.side {
            Side::Old => self.phase == Phase::Old,
            Side::New => self.phase == Phase::New,
        }
    }
}

/// Fails if a session must not open a namespace with this record; `None` is no record. Every store with a ledger
/// calls it for every session that it opens. A session of the move is admitted: it follows the record.
///
/// The record is read after the session counts in [`TokenBase::sessions`](super::TokenBase::sessions), or in the
/// same request. So a move that closes the namespace and then counts sessions has refused or counted this one. The
/// token base is read no earlier than the record, so it was in force while the record admitted the session.
///
/// # Errors
///
/// [`ErrorKind::Misuse`] when the record blocks it, naming the missing option; as [`Stage::of_record`] when the record cannot
/// be read (stage-1).
pub fn admit(env: &Env, record: Option<&[u8]>) -> Result<()> {
    let Some(record) = record.filter(|_| env.adds_token_base()) else {
        return Ok(());
    };
    let (stage, rest) = Stage::of_record(record)?;
    if stage.admits_plain_sessions() {
        return Ok(());
    }
    let phase = stage.phase;
    let message = match stage.side {
        // From here on the old store's record stays as it is, also when the move has ended.
        Side::Old if matches!(phase, Phase::Drain | Phase::New) => {
            let place = new_store(rest).unwrap_or("another store");
            format!(
                "the locks of this namespace have moved to {place}, or are about to (phase `{phase}`): use the URL of \
                 that store, or the option `migrate_to=URL` while the move lasts"
            )
        }
        Side::Old => format!(
            "the locks of this namespace are moving to another store (phase `{phase}`): open it with the option \
             `migrate_to=URL`"
        ),
        Side::New => format!(
            "the locks of another store are moving to this namespace (phase `{phase}`): open that store with the \
             option `migrate_to=URL`, or wait for phase `new`"
        ),
    };
    Err(Error::not_applied(ErrorKind::Misuse, message))
}

/// The name of the new store in the rest of a record, as the move has written it: hosts and prefix, and never credentials.
fn new_store(rest: &[u8]) -> Option<&str> {
    // Within a string of JSON these quotes would be escaped.
    let (_, names) = std::str::from_utf8(rest).ok()?.split_once("\"between\":{")?;
    let (name, _) = names.split_once("\"new\":\"")?.1.split_once("\"")?;
    (!name.is_empty() && !name.contains('\\')).then_some(name)
}

fn no_record() -> Error {
    let message = "the move record of this namespace is invalid: expected a record that leasehold wrote";
    Error::not_applied(ErrorKind::Protocol, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timing;

    fn env() -> Env {
        Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap()
    }

    fn record(side: Side, phase: Phase) -> String {
        format!("1 {} {phase}\n{{\"more\":[1]}}", side.word())
    }

    /// The table of admitted sessions; a session of the move is always admitted.
    #[tokio::test]
    async fn plain_sessions_are_admitted_where_they_exclude_everybody() {
        let admitted = [
            (Side::Old, [true, false, false, false, false]),
            (Side::New, [false, false, false, false, true]),
        ];
        for (side, admitted) in admitted {
            for (phase, admitted) in Phase::ALL.into_iter().zip(admitted) {
                let record = record(side, phase);
                let stage = Stage { side, phase };
                assert_eq!(
                    Stage::of_record(record.as_bytes()).unwrap(),
                    (stage, br#"{"more":[1]}"#.as_slice())
                );
                assert_eq!(Stage::of_record(stage.line().as_bytes()).unwrap(), (stage, b"".as_slice()));
                let answer = admit(&env(), Some(record.as_bytes()));
                assert_eq!(answer.is_ok(), admitted, "{record}: {answer:?}");
                if let Err(error) = answer {
                    assert_eq!(*error.kind(), ErrorKind::Misuse);
                    let said = error.to_string();
                    assert!(said.contains("migrate_to") && said.contains(phase.word()), "{said}");
                }
                admit(&env().without_token_base(), Some(record.as_bytes())).unwrap();
            }
        }
        admit(&env(), None).unwrap();
    }

    /// The error names the store that has the locks, as far as the record does.
    #[tokio::test]
    async fn plain_session_after_a_move_is_told_the_new_store() {
        for (names, place) in [
            (
                r#"{"id":"7","between":{"old":"a:6379/0/","new":"h1:2379/locks/"}}"#,
                "moved to h1:2379/locks/,",
            ),
            (r#"{"between":{"old":"\"new\":\"x\"","new":"h2/"}}"#, "moved to h2/,"),
            (r#"{"between":{"old":"a","new":"\"h"}}"#, "moved to another store,"),
            ("no JSON", "moved to another store,"),
        ] {
            let said =
                admit(&env(), Some(format!("1 old drain\n{names}").as_bytes())).unwrap_err().to_string();
            assert!(said.contains(place), "{names}: {said}");
        }
    }

    /// An unknown record admits no session, and the error says whether a later version would help (stage-1).
    #[tokio::test]
    async fn unknown_record_blocks() {
        for (record, kind) in [
            ("2 old old", ErrorKind::Unsupported),
            ("2 whatever that says", ErrorKind::Unsupported),
            ("one old old", ErrorKind::Protocol),
            ("1 old later", ErrorKind::Protocol),
            ("1 both old", ErrorKind::Protocol),
            ("1 old", ErrorKind::Protocol),
            ("1 old old more", ErrorKind::Protocol),
            ("1  old old", ErrorKind::Protocol),
            ("old old", ErrorKind::Protocol),
            ("", ErrorKind::Protocol),
            ("\n1 old old", ErrorKind::Protocol),
        ] {
            let refused = admit(&env(), Some(record.as_bytes())).unwrap_err();
            assert_eq!(*refused.kind(), kind, "{record}: {refused}");
        }
    }

    proptest::proptest! {
        /// No bytes panic.
        #[test]
        fn any_bytes_are_read_or_refused(record: Vec<u8>) {
            let _ = Stage::of_record(&record);
        }
    }
}
