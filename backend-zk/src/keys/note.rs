//! The data of a contender's node, which describes its process. It is only shown, but for one line.
//!
//! Lines: `leasehold 1`, the ttl in milliseconds, the label, and, if there is any, the metadata, which
//! may have lines of its own. Curator's nodes have the address of their host, others something else.
//!
//! The last line `passes OWNER` means that no other client may write the node, so that a write passes the lock on. It names the
//! node's own owner, which no client knows beforehand, so no metadata is mistaken for it. A sharer passes nothing on, and does
//! not write that line.

use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::backend::Holder;
use leasehold_core::{Mode, OwnerId};

use super::{mode_of, owner_of};

/// The data of a contender's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// The holder by the data and the name of the node. Only notes of this store have a ttl.
    pub(crate) holder: Holder,
    /// A later write of the node passes the lock on.
    pub(crate) passes: bool,
}

impl Note {
    /// The data that we write; with the owner, if it passes.
    pub(crate) fn encoded(
        ttl: Duration,
        label: &str,
        metadata: Option<&str>,
        passes: Option<OwnerId>,
    ) -> Vec<u8> {
        let (ttl, owner) = (ttl.as_millis().to_string(), passes.map(OwnerId::to_hex));
        let [before, metadata] = metadata.map_or([""; 2], |metadata| ["\n", metadata]);
        let [passes, owner] = owner.as_deref().map_or([""; 2], |owner| [PASSES, owner]);
        [FIRST, "\n", &ttl, "\n", label, before, metadata, passes, owner].concat().into_bytes()
    }

    /// The data of the node of this name, whichever client wrote it.
    pub(crate) fn decoded(node: &str, data: &[u8]) -> Self {
        let text = String::from_utf8_lossy(data);
        let owner = owner_of(node, Mode::EXCLUSIVE);
        let before = owner.and_then(|owner| text.strip_suffix(&last_line(owner)));
        let ours = ours(before.unwrap_or(&text));
        let passes = before.is_some() && ours.is_some();
        let mut holder = ours.unwrap_or_else(|| Holder::new(first_line(&text)).of_foreign_client());
        holder.mode = mode_of(node);
        Self { holder, passes }
    }

    /// The holder that wrote it, into a node of `ctime` milliseconds.
    pub(crate) fn into_holder(self, counter: u64, ctime: i64) -> Holder {
        let mut holder = self.holder.with_counter(counter);
        let millis = u64::try_from(ctime).ok().filter(|millis| *millis > 0);
        holder.since = millis.and_then(|millis| UNIX_EPOCH.checked_add(Duration::from_millis(millis)));
        holder
    }
}

/// The holder of a note of this store.
fn ours(text: &str) -> Option<Holder> {
    let mut parts = text.splitn(4, '\n');
    if parts.next()? != FIRST {
        return None;
    }
    let ttl = Duration::from_millis(parts.next()?.parse().ok()?);
    let mut holder = Holder::new(parts.next()?);
    (holder.ttl, holder.metadata) = (Some(ttl), parts.next().map(str::to_owned));
    Some(holder)
}

fn last_line(owner: OwnerId) -> String {
    [PASSES, &owner.to_hex()].concat()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(SHOWN).collect()
}

const FIRST: &str = "leasehold 1";
const PASSES: &str = "\npasses ";
const SHOWN: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: OwnerId = OwnerId::from_random([7; 16]);

    fn node() -> String {
        crate::keys::Node::new(OWNER, Mode::EXCLUSIVE, 7).name()
    }

    /// Our notes are read as they were written.
    #[test]
    fn notes_come_back() {
        for (label, metadata) in [("host/7", None), ("", Some("")), ("a", Some("two\nlines\n"))] {
            for passes in [None, Some(OWNER)] {
                let data = Note::encoded(Duration::from_millis(1_500), label, metadata, passes);
                let note = Note::decoded(&node(), &data);
                assert_eq!((note.holder.label.as_str(), note.holder.metadata.as_deref()), (label, metadata));
                assert!(!note.holder.foreign);
                assert_eq!(note.passes, passes.is_some());
                assert_eq!(note.into_holder(7, 0).ttl, Some(Duration::from_millis(1_500)));
            }
        }
    }

    /// A node passes the lock only with a note of this library, if it blocks all later nodes and the note names its owner.
    #[test]
    fn foreign_node_data_passes_nothing() {
        let (ttl, other) = (Duration::from_secs(1), OwnerId::from_random([8; 16]));
        let passing = Note::encoded(ttl, "a", None, Some(OWNER));
        for (node, data) in [
            (node(), Note::encoded(ttl, "a", None, Some(other))),
            (node(), Note::encoded(ttl, "a", Some("passes"), None)),
            (node(), b"127.0.0.1\npasses 07070707070707070707070707070707".to_vec()),
            (node(), [&passing[..], b"\n"].concat()),
            (node().replace("-lock-", "-__READ__"), passing.clone()),
            (node().replace("-lock-", "-shared-lock-"), passing.clone()),
            ("lock-0000000007".to_owned(), passing),
        ] {
            assert!(!Note::decoded(&node, &data).passes, "{node} {data:?}");
        }
    }

    /// A holder is shown as its node is named.
    #[test]
    fn a_holder_holds_as_its_node_is_named() {
        let shared = node().replace("-lock-", "-shared-lock-");
        for (node, mode) in [(node(), Mode::EXCLUSIVE), (shared, Mode::SHARED)] {
            assert_eq!(Note::decoded(&node, b"").into_holder(7, 0).mode, mode, "{node}");
        }
    }

    /// Foreign notes are shown as far as they can be.
    #[test]
    fn notes_of_others_are_labels() {
        for (data, label) in [
            (&b"127.0.0.1"[..], "127.0.0.1"),
            (b"", ""),
            (b"\x124\xff", "4\u{fffd}"),
            (b"leasehold 1\nsoon\nx", "leasehold 1"),
            (b"leasehold 1", "leasehold 1"),
        ] {
            let note = Note::decoded(&node(), data).holder;
            assert_eq!(
                (note.label.as_str(), note.metadata, note.ttl, note.foreign),
                (label, None, None, true)
            );
        }
    }
}
