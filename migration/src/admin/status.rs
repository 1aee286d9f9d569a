//! The report: how far a move is, its participants, the next step and what blocks it.

use std::fmt;

use leasehold_core::Error;
use leasehold_core::backend::stage::{Phase, Side};
use serde::Serialize;

use super::store::Census;
use crate::protocol::Pair;
use crate::protocol::member::{Kind, MemberEntry, word};
use crate::protocol::records::Read;
use crate::protocol::tokens::Window;

/// How far a move is.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// The phase of all processes, or the one that they are moving to; `None` before the move, and if a record that decides
    /// cannot be read.
    #[serde(serialize_with = "word::serialize")]
    pub phase: Option<Phase>,
    /// The old store.
    pub old: StoreStatus,
    /// The new store.
    pub new: StoreStatus,
    /// The participants without the administrators.
    pub members: Vec<MemberStatus>,
    /// The next step, in words.
    pub next: String,
    /// Its blockers, in words; empty if it can be done now.
    pub blockers: Vec<String>,
}

/// One of the two stores.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StoreStatus {
    /// Where it is.
    pub server: String,
    /// Its record of the move, if it has one.
    pub record: Option<RecordStatus>,
    /// Why it could not be read.
    pub error: Option<String>,
    /// How many sessions it has that take no part; `None` if it cannot count them.
    pub foreign_sessions: Option<usize>,
}

/// A record.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RecordStatus {
    /// The store's number of the write.
    pub version: u64,
    /// Its phase.
    #[serde(serialize_with = "word::serialize")]
    pub phase: Option<Phase>,
    /// Whether the move has ended.
    pub over: bool,
    /// How often another store began to count.
    pub epoch: u64,
    /// The number that is added to the store's own numbers.
    pub offset: u64,
    /// The smallest counter of the epoch.
    pub low: u64,
    /// Where the next epoch may begin. In `old` and `new` it is measured again before a step.
    pub high: u64,
    /// When it was written, in milliseconds of the Unix epoch.
    pub since: u64,
}

/// A participant.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct MemberStatus {
    /// The manager's label; empty if its entry is not understood.
    pub label: String,
    /// Its process.
    pub pid: u32,
    /// The version of this library there.
    pub version: String,
    /// In which phase it is; `None` while it grants nothing.
    #[serde(serialize_with = "word::serialize")]
    pub view: Option<Phase>,
    /// Whether it acts by the newest record of the old store.
    pub acts_by_old: bool,
    /// Whether it acts by the newest record of the new store.
    pub acts_by_new: bool,
    /// Locks that it holds in the old store alone, in the new one alone, and in both.
    pub holds: [usize; 3],
    /// How often it met a foreign client in the old store, and the lock that the last one held.
    pub foreign_clients: Option<(u64, String)>,
    /// Its error, such as a store that refuses it.
    pub trouble: Option<String>,
}

/// The condition that a step waits for.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Progress {
    /// The phase that the step leads to.
    #[serde(serialize_with = "word::serialize")]
    pub to: Option<Phase>,
    /// The blockers, in words.
    pub blockers: Vec<String>,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(to) = self.to {
            write!(f, "on the way to `{to}`: ")?;
        }
        f.write_str(&self.blockers.join("; "))
    }
}

impl StoreStatus {
    pub(super) fn of(server: String, read: Result<Option<&Read>, &Error>, census: Option<&Census>) -> Self {
        let record = read.ok().flatten().map(|read| {
            let Window { offset, low, high } = read.record.stand.window;
            RecordStatus {
                version: read.version,
                phase: Some(read.record.stand.phase),
                over: read.record.end.is_some(),
                epoch: read.record.stand.epoch,
                offset,
                low,
                high,
                since: read.record.since,
            }
        });
        let foreign_sessions = census.and_then(|census| census.foreign_sessions);
        Self { server, record, error: read.err().map(|error| format!("{error:#}")), foreign_sessions }
    }
}

impl MemberStatus {
    /// Combines the entries of one participant; `versions` are the current ones.
    pub(super) fn of(members: Pair<Option<&MemberEntry>>, versions: Pair<Option<u64>>) -> Self {
        let nothing = MemberEntry::default();
        let latest = members.old.or(members.new).unwrap_or(&nothing);
        let acts = |side: Side| {
            let acknowledged = members[side].and_then(|member| member.acknowledges[side]);
            versions[side].is_some() && acknowledged >= versions[side]
        };
        Self {
            label: latest.label.clone(),
            pid: latest.pid,
            version: latest.version.clone(),
            view: latest.view,
            acts_by_old: acts(Side::Old),
            acts_by_new: acts(Side::New),
            holds: [latest.holds.old, latest.holds.new, latest.holds.both],
            foreign_clients: latest.foreign_clients.as_ref().map(|met| (met.met, met.name.clone())),
            trouble: latest.trouble.clone(),
        }
    }
}

/// The blockers of a step that needs the participants at `side` to follow `version`, and no other session there beyond
/// `allowed` sessions (transition-2).
pub(super) fn blockers(census: &Census, side: Side, version: u64, allowed: usize) -> Vec<String> {
    let store = format!("the {} store", side.word());
    let behind = census.members.iter().filter_map(|(_, member)| {
        let Some(member) = member else {
            return Some(format!("a participant in {store} has an entry that this version cannot read"));
        };
        if member.kind == Kind::Admin || member.acknowledges[side] >= Some(version) {
            return None;
        }
        let alone = match side {
            Side::Old => member.holds.old,
            Side::New => member.holds.new,
        };
        let why = match (&member.trouble, alone) {
            (Some(trouble), _) => format!(": {trouble}"),
            (None, 0) => String::new(),
            (None, holds) => format!(": it holds {holds} of its locks only there"),
        };
        Some(format!("{} does not follow the record of {store} yet{why}", called(member)))
    });
    let mut found = few(behind.collect());
    found.extend(foreign_sessions(census, side, allowed));
    found
}

/// That sessions there take no part in the move, if more do than `allowed`.
pub(super) fn foreign_sessions(census: &Census, side: Side, allowed: usize) -> Option<String> {
    let sessions = census.foreign_sessions.filter(|sessions| *sessions > allowed)?;
    let more = if sessions == 1 { "1 session".to_owned() } else { format!("{sessions} sessions") };
    let (takes, store) = (if sessions == 1 { "takes" } else { "take" }, side.word());
    Some(format!("{more} of the {store} store {takes} no part in the move (no `migrate_to` in their URL)"))
}

const NAMED: usize = 20;

/// The first lines, and the number of the others.
pub(super) fn few(mut said: Vec<String>) -> Vec<String> {
    let more = said.len().saturating_sub(NAMED);
    said.truncate(NAMED);
    said.extend((more > 0).then(|| format!("and {more} more")));
    said
}

pub(super) fn called(member: &MemberEntry) -> String {
    let label = if member.label.is_empty() { "a participant without a label" } else { &member.label };
    format!("{label} (pid {})", member.pid)
}
