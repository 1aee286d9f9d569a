//! The inbox of a session: the holds whose revocation is requested, and their grace periods.
//!
//! Each line is a message `CZXID MS`, in decimal. It requests the revocation of the hold whose node that transaction made,
//! after so many milliseconds.
//!
//! # Invariants
//! - **zk.inbox-1** A grace period counts from when its message was first read. Of several messages for one hold the
//!   earliest deadline counts, and reading them again does not move it.
//! - **zk.inbox-2** Inboxes stay small, and so does the memory of them. The oldest messages are dropped, each as a whole.
//! - **zk.inbox-3** A foreign write of the session's own node is noticed when the session has written it the next time. A
//!   write of the session without an answer may be taken for a foreign one.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::Revoke;
use leasehold_core::clock::Moment;

/// The revocation deadlines of a session's holds, by the transactions of their nodes.
#[derive(Debug, Default)]
pub(crate) struct RevokeRequests(HashMap<i64, Moment>);

impl RevokeRequests {
    /// Takes in an inbox that is read at `now`. The new grace periods in it, from now on.
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

/// Counts the writes of a session's own node: a client that leaves a message writes that, too.
#[derive(Debug)]
pub(crate) struct Writers {
    /// Pending writes of this session. Their answers may come in any order.
    out: u32,
    /// The newest version that was read, and the version if all writes were this session's.
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

    /// A write of this session was answered with a version, or abandoned. Returns whether another client has written, too.
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

/// An inbox with one message more, without the oldest ones if there are too many.
pub(crate) fn with_message(inbox: &[u8], czxid: i64, grace: Duration) -> Vec<u8> {
    let message = format!("{czxid} {}", grace.as_millis());
    let text = String::from_utf8_lossy(inbox);
    let too_many = (text.lines().count() + 1).saturating_sub(LINES);
    let lines: Vec<_> = text.lines().skip(too_many).chain([&*message]).collect();
    lines.join("\n").into_bytes()
}

/// The shortest grace period of each hold.
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
    // A foreign value is bounded by the largest grace period.
    Some((czxid.parse().ok()?, grace.min(Revoke::MAX_GRACE)))
}

/// More than a session gets between two reads, and far less than a node may have.
const LINES: usize = 4_096;

#[cfg(test)]
mod tests;
