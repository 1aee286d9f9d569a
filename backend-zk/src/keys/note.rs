//! What a contender's node says about its process; only ever shown, never decided by.
//!
//! Lines: `leasehold 1`, the ttl in milliseconds, the label, and, if there is any, the metadata, which
//! may have lines of its own. Curator's nodes have the address of their host, others something else.

use std::str::Lines;
use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::backend::Holder;

/// The data of a contender's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// How long its session may be silent; unknown of others.
    pub(crate) ttl: Option<Duration>,
    pub(crate) label: String,
    pub(crate) metadata: Option<String>,
}

impl Note {
    /// What we write.
    pub(crate) fn encoded(ttl: Duration, label: &str, metadata: Option<&str>) -> Vec<u8> {
        let mut note = format!("{FIRST}\n{}\n{label}", ttl.as_millis());
        if let Some(metadata) = metadata {
            note.push('\n');
            note.push_str(metadata);
        }
        note.into_bytes()
    }

    /// What anybody has written.
    pub(crate) fn decoded(data: &[u8]) -> Self {
        let text = String::from_utf8_lossy(data);
        Self::ours(&text).unwrap_or_else(|| Self { ttl: None, label: foreign(text.lines()), metadata: None })
    }

    /// The holder that wrote it, into a node of `ctime` milliseconds.
    pub(crate) fn into_holder(self, counter: u64, ctime: i64) -> Holder {
        let mut holder = Holder::new(self.label).with_counter(counter);
        let millis = u64::try_from(ctime).ok().filter(|millis| *millis > 0);
        holder.since = millis.and_then(|millis| UNIX_EPOCH.checked_add(Duration::from_millis(millis)));
        holder.metadata = self.metadata;
        holder.ttl = self.ttl;
        holder
    }

    fn ours(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, '\n');
        if parts.next()? != FIRST {
            return None;
        }
        let ttl = Duration::from_millis(parts.next()?.parse().ok()?);
        let (label, metadata) = (parts.next()?.to_owned(), parts.next().map(str::to_owned));
        Some(Self { ttl: Some(ttl), label, metadata })
    }
}

fn foreign(mut lines: Lines<'_>) -> String {
    lines.next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(SHOWN).collect()
}

const FIRST: &str = "leasehold 1";
const SHOWN: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// What we write is read as it was written.
    #[test]
    fn notes_come_back() {
        for (label, metadata) in [("host/7", None), ("", Some("")), ("a", Some("two\nlines\n"))] {
            let data = Note::encoded(Duration::from_millis(1_500), label, metadata);
            let note = Note::decoded(&data);
            assert_eq!((note.label.as_str(), note.metadata.as_deref()), (label, metadata));
            assert_eq!(note.into_holder(7, 0).ttl, Some(Duration::from_millis(1_500)));
        }
    }

    /// What others write is shown as far as it can be.
    #[test]
    fn notes_of_others_are_labels() {
        for (data, label) in [
            (&b"127.0.0.1"[..], "127.0.0.1"),
            (b"", ""),
            (b"\x124\xff", "4\u{fffd}"),
            (b"leasehold 1\nsoon\nx", "leasehold 1"),
            (b"leasehold 1", "leasehold 1"),
        ] {
            let note = Note::decoded(data);
            assert_eq!((note.label.as_str(), note.metadata, note.ttl), (label, None, None));
        }
    }
}
