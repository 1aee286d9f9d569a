//! How an earlier version reads and writes inboxes; as it was.

use std::collections::HashSet;

/// The transactions in an inbox: decimal, one a line.
pub(crate) fn transactions(data: &[u8]) -> HashSet<i64> {
    data.split(|byte| *byte == b'\n')
        .filter_map(|line| std::str::from_utf8(line).ok()?.parse().ok())
        .collect()
}

/// An inbox with one more transaction, and no more of the older ones than need be.
pub(crate) fn with_transaction(data: &[u8], czxid: i64) -> Vec<u8> {
    let text = String::from_utf8_lossy(data);
    let lines: Vec<_> = text.lines().collect();
    let kept = lines.len().saturating_sub(KEPT);
    let mut inbox = lines[kept..].join("\n");
    if !inbox.is_empty() {
        inbox.push('\n');
    }
    inbox.push_str(&czxid.to_string());
    inbox.into_bytes()
}

/// More than a session is told between two looks, and far less than a node may have.
const KEPT: usize = 4_095;
