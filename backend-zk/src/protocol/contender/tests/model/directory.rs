//! A lock's directory at the leader: its children, its counter, and everything it ever was.

use std::collections::BTreeSet;

use leasehold_core::backend::Load;
use leasehold_core::{Mode, OwnerId};

use super::super::super::*;
use crate::keys::Node;

#[derive(Clone, Debug)]
pub(in super::super) struct Child {
    pub(in super::super) owner: OwnerId,
    pub(in super::super) mode: Mode,
    /// As the server gave it.
    pub(in super::super) number: i32,
    pub(in super::super) session: i64,
    pub(in super::super) czxid: i64,
    /// How often it was written, since it was made.
    pub(in super::super) version: u32,
}

/// What a request does when it reaches the leader.
#[derive(Clone, Debug)]
pub(in super::super) enum Write {
    Create(OwnerId, i64, Mode),
    Delete(String),
    /// Written and deleted, in one transaction.
    Pass(String),
    /// Written by somebody else.
    Change(String),
    MakeDirectory,
    RemoveDirectory,
}

/// The transaction that made a directory which is not there.
pub(super) const NOBODY: i64 = 0;

pub(in super::super) struct Directory {
    /// Everything that was ever committed: the children after each change.
    pub(in super::super) history: Vec<Vec<Child>>,
    /// The transaction that had made the directory then, and the number that it would have given out next.
    counts: Vec<(i64, i32)>,
    /// Which of those changes were a pass.
    pub(in super::super) passes: BTreeSet<usize>,
    /// And which the directory's end.
    removals: BTreeSet<usize>,
    pub(in super::super) next: i32,
    pub(super) exists: bool,
    czxid: i64,
    /// The transaction that made it.
    made: i64,
    /// What is taken from every number that a client is shown; the client's mistake.
    shift: i32,
}

impl Directory {
    pub(super) fn new(start: i32, shift: i32) -> Self {
        let (passes, removals) = (BTreeSet::new(), BTreeSet::new());
        let (history, counts, czxid) = (vec![Vec::new()], vec![(100, start)], 100);
        Self { history, counts, passes, removals, next: start, exists: true, czxid, made: czxid, shift }
    }

    /// Who made the directory, and how often children have come or gone there by then, as a server that shows so many
    /// children says it.
    pub(super) fn counted(&self, at: usize, children: usize) -> (i64, i32) {
        let (made, next) = self.counts[at];
        (made, next.wrapping_mul(2).wrapping_sub(i32::try_from(children).unwrap()))
    }

    /// The transaction that had made the directory, as one moment has it, if it was there.
    pub(in super::super) fn made(&self, at: usize) -> Option<i64> {
        Some(self.counts[at].0).filter(|made| *made != NOBODY)
    }

    fn push(&mut self, children: Vec<Child>) {
        self.history.push(children);
        self.counts.push((self.made, self.next));
    }

    pub(super) fn children(&self) -> &[Child] {
        self.history.last().unwrap()
    }

    /// A contender as clients know it.
    pub(super) fn node(&self, child: &Child) -> Node {
        Node::new(child.owner, child.mode, child.number.wrapping_sub(self.shift))
    }

    pub(super) fn name(&self, child: &Child) -> String {
        self.node(child).name()
    }

    /// How often the child called `name` was written, as one moment has it; `None` where it is not there.
    pub(super) fn version(&self, at: usize, name: &str) -> Option<u32> {
        self.history[at].iter().find(|child| self.name(child) == name).map(|child| child.version)
    }

    /// Whether the directory went after one moment, and not after another.
    pub(super) fn went_between(&self, from: usize, to: usize) -> bool {
        self.removals.iter().any(|removal| (from + 1..=to).contains(removal))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.children().iter().any(|child| self.name(child) == name)
    }

    pub(super) fn of(&self, owner: OwnerId) -> Option<&Child> {
        self.children().iter().find(|child| child.owner == owner)
    }

    /// Whether the rule admits a child, by the numbers that everybody reads.
    pub(super) fn admits(&self, child: &Child) -> bool {
        let is_older = |other: &&Child| other.number <= child.number && other.owner != child.owner;
        let older: Load = self.children().iter().filter(is_older).map(|older| older.mode).collect();
        older.admits(child.mode)
    }

    pub(super) fn commit(&mut self, change: impl FnOnce(&mut Vec<Child>)) {
        let mut children = self.children().to_vec();
        change(&mut children);
        self.push(children);
    }

    pub(super) fn carry_out(&mut self, write: &Write) -> Result<Option<Mine>, Failure> {
        match write {
            Write::Create(owner, session, mode) if self.exists => {
                self.czxid += 1;
                let (owner, session, mode, czxid) = (*owner, *session, *mode, self.czxid);
                let child = Child { owner, mode, number: self.numbered(), session, czxid, version: 0 };
                let node = self.node(&child);
                self.commit(|children| children.push(child));
                Ok(Some(Mine { node, czxid }))
            }
            Write::Delete(name) | Write::Pass(name) if self.has(name) => {
                if matches!(write, Write::Pass(_)) {
                    self.passes.insert(self.history.len());
                }
                let kept =
                    self.children().iter().filter(|child| self.name(child) != *name).cloned().collect();
                self.push(kept);
                Ok(None)
            }
            Write::Change(name) if self.has(name) => {
                let mut children = self.children().to_vec();
                let written = children.iter_mut().find(|child| self.name(child) == *name);
                written.expect("it is there").version += 1;
                self.push(children);
                Ok(None)
            }
            Write::MakeDirectory if self.exists => Ok(None),
            Write::MakeDirectory => {
                self.czxid += 1;
                (self.exists, self.made) = (true, self.czxid);
                self.push(Vec::new());
                Ok(None)
            }
            Write::RemoveDirectory if self.exists && self.children().is_empty() => {
                (self.exists, self.next) = (false, 0);
                self.removals.insert(self.history.len());
                self.made = NOBODY;
                self.push(Vec::new());
                Ok(None)
            }
            // It is in use.
            Write::RemoveDirectory if self.exists => Err(Failure::Unknown),
            _ => Err(Failure::Absent),
        }
    }

    /// The counter sticks at its end; but of requests that come close together the leader numbers the
    /// later ones beyond, before the first of them is done.
    fn numbered(&mut self) -> i32 {
        let number = self.next;
        self.next = number.saturating_add(1);
        if number == i32::MAX && self.czxid % 3 == 0 { i32::MIN } else { number }
    }
}
