//! The log of a hunt: lines that its processes append to one file, and the history that they become.
//!
//! A line is one write. It begins with a line feed and ends with a full stop, so that one which a kill has cut off spoils
//! no other. All processes are on one host and stamp by its boot clock. A stamp is read before a guard says that it is held and
//! after a grant, so a process that is stopped in between shows less than there was, never more.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Deadline, Moment};
use leasehold::{LockGuard, LockName, LostReason, Mode};
use leasehold_conformance::history::{Attempt, Event, History, What};

/// The name of every lock here.
pub(crate) const NAME: &str = "hunted";

/// What one process appends.
pub(crate) struct Journal {
    file: File,
    actor: String,
}

impl Journal {
    pub(crate) fn open(path: &str, actor: &str) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        Self { file, actor: actor.to_owned() }
    }

    pub(crate) fn write(&mut self, at: Moment, attempt: u64, words: &str) {
        let line = format!("\n{} {} {attempt} {words} .", at.as_nanos(), self.actor);
        self.file.write_all(line.as_bytes()).unwrap();
    }
}

/// Until when a guard promises to be held, as of `now`.
pub(crate) fn until(now: Moment, guard: &LockGuard) -> String {
    match guard.remaining() {
        Duration::MAX => "never".to_owned(),
        left => (now + left).as_nanos().to_string(),
    }
}

/// What the processes did, between what the world did. Nothing that a process did after its death was noted counts.
pub(crate) fn history(journal: &Path, mut events: Vec<Event>) -> History {
    let crashes = events.iter().filter(|event| event.what == What::Crashed);
    let dead: BTreeMap<_, _> = crashes.map(|event| (Arc::clone(&event.actor), event.at)).collect();
    let lived = read(journal, 0).into_iter();
    events.extend(lived.filter(|event| dead.get(&event.actor).is_none_or(|at| event.at < *at)));
    events.sort_by_key(|event| event.at);
    events.into_iter().collect()
}

/// Whether the lock was granted after `at`, as far as the end of the journal shows.
pub(crate) fn is_granted_after(journal: &Path, at: Moment) -> bool {
    const TAIL: u64 = 1 << 16;
    let length = std::fs::metadata(journal).map_or(0, |metadata| metadata.len());
    let granted = |event: &Event| matches!(event.what, What::Granted { .. }) && event.at > at;
    length > 0 && read(journal, length.saturating_sub(TAIL)).iter().any(granted)
}

fn read(journal: &Path, from: u64) -> Vec<Event> {
    let (mut file, mut bytes) = (File::open(journal).unwrap(), Vec::new());
    file.seek(SeekFrom::Start(from)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    text.split('\n').skip(1).filter_map(|line| Some(event(line.strip_suffix(" .")?))).collect()
}

fn event(line: &str) -> Event {
    let words: Vec<_> = line.split(' ').collect();
    let [at, actor, attempt, word, rest @ ..] = &words[..] else { panic!("{line:?} is no event") };
    let moment = |nanos: &str| Moment::from_nanos(nanos.parse().unwrap());
    let until = |end: &str| if end == "never" { Deadline::Never } else { Deadline::At(moment(end)) };
    let attempt = Attempt::new(attempt.parse().unwrap());
    let what = match (*word, rest) {
        ("asks", ["shared"]) => What::Invoked { attempt, mode: Mode::SHARED, waits: true },
        ("asks", _) => What::Invoked { attempt, mode: Mode::EXCLUSIVE, waits: true },
        ("granted", [token, end]) => {
            What::Granted { attempt, token: token.parse().unwrap(), deadline: until(end) }
        }
        ("held", [end]) => What::HeldSeen { attempt, deadline: until(end) },
        ("wrote", [token, accepted]) => {
            What::Wrote { attempt, token: token.parse().unwrap(), accepted: *accepted == "true" }
        }
        ("lost", [reason]) => What::LostTold { attempt, reason: lost(reason) },
        ("releases", []) => What::ReleaseInvoked { attempt },
        ("refused", why) => What::Refused { attempt, reason: why.join(" ") },
        _ => panic!("{line:?} is no event"),
    };
    Event { at: moment(at), actor: (*actor).into(), name: LockName::new(NAME).ok(), what }
}

fn lost(text: &str) -> LostReason {
    use LostReason::{Expired, Gone, Revoked, SessionLost};
    let found =
        [Expired, Gone, Revoked, SessionLost].into_iter().find(|reason| format!("{reason:?}") == text);
    found.unwrap_or_else(|| panic!("a hold is lost for {text:?}, which no fault here explains"))
}
