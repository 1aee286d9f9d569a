//! What an inbox says: which holds of a session somebody asks for, and for how long each may go on.
//!
//! Lines. `CZXID MS`, in decimal, asks for the hold whose node that transaction made, and lets the holder go on
//! for so many milliseconds.
//!
//! # Invariants
//! - **zk.inbox-1** A grace counts from when its message was first read. Of several messages for one hold
//!   the earliest end counts, and reading them again puts it off no more.
//! - **zk.inbox-2** Inboxes stay small, and so does what is known of them. The oldest messages go, each as
//!   a whole.
//! - **zk.inbox-3** Whoever writes the session's own node beside the session is noticed when the session
//!   has written it the next time; a write of the session's that got no answer may be taken for somebody's.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::Revoke;
use leasehold_core::clock::Moment;

/// Until when those holds of a session may go on that were asked for, by the transactions of their nodes.
#[derive(Debug, Default)]
pub(crate) struct RevokeRequests(HashMap<i64, Moment>);

impl RevokeRequests {
    /// Takes in an inbox that is read at `now`; what it says that is new: how long from now on.
    pub(crate) fn hear(&mut self, inbox: &[u8], now: Moment) -> HashMap<i64, Duration> {
        let known = std::mem::take(&mut self.0);
        let mut news = HashMap::new();
        for (czxid, grace) in messages(inbox) {
            let before = known.get(&czxid).copied();
            let until = before.map_or(now + grace, |before| before.min(now + grace));
            if before != Some(until) {
                news.insert(czxid, grace);
            }
            self.0.insert(czxid, until);
        }
        news
    }

    pub(crate) fn until(&self, czxid: i64) -> Option<Moment> {
        self.0.get(&czxid).copied()
    }
}

/// Who has written the own node of a session: whoever leaves a message writes that, too.
#[derive(Debug)]
pub(crate) struct Writers {
    /// Writes of ours that are out. Their answers may be taken in any order.
    out: u32,
    /// The newest version that was seen, and the one there would be if all were ours.
    newest: i32,
    ours: i32,
}

impl Writers {
    /// Of a node that has such a version.
    pub(crate) fn new(version: i32) -> Self {
        Self { out: 0, newest: version, ours: version }
    }

    /// We write.
    pub(crate) fn sent(&mut self) {
        self.out += 1;
    }

    /// A write of ours was answered with a version, or is given up; whether somebody else is seen to have
    /// written.
    pub(crate) fn ended(&mut self, version: Option<i32>) -> bool {
        self.out -= 1;
        if let Some(version) = version {
            self.newest = self.newest.max(version);
            self.ours += 1;
        }
        let others = self.out == 0 && self.ours < self.newest;
        if self.out == 0 {
            self.ours = self.newest;
        }
        others
    }
}

/// An inbox with one message more, and no more of the older ones than need be.
pub(crate) fn with_message(inbox: &[u8], czxid: i64, grace: Duration) -> Vec<u8> {
    let message = format!("{czxid} {}", grace.as_millis());
    let text = String::from_utf8_lossy(inbox);
    let too_many = (text.lines().count() + 1).saturating_sub(LINES);
    let lines: Vec<_> = text.lines().skip(too_many).chain([&*message]).collect();
    lines.join("\n").into_bytes()
}

/// Of every hold that is asked for, the shortest grace.
fn messages(inbox: &[u8]) -> HashMap<i64, Duration> {
    let mut graces = HashMap::new();
    for (czxid, grace) in inbox.split(|byte| *byte == b'\n').filter_map(message) {
        graces
            .entry(czxid)
            .and_modify(|shortest: &mut Duration| *shortest = grace.min(*shortest))
            .or_insert(grace);
    }
    graces
}

fn message(line: &[u8]) -> Option<(i64, Duration)> {
    let (czxid, millis) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let grace = Duration::from_millis(millis.parse().ok()?);
    // What others write is bounded by what there can be.
    Some((czxid.parse().ok()?, grace.min(Revoke::MAX_GRACE)))
}

/// More than a session is told between two looks, and far less than a node may have.
const LINES: usize = 4_096;

#[cfg(test)]
mod tests;
