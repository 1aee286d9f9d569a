//! The watches on one queue, and their reports; pure.
//!
//! There is one on all contenders while few of them are before us, and some on single keys of others. Sessions come again
//! in the same order, so both kinds outlast the entries they were opened for.
//!
//! # Invariants
//! - **etcd.told-1** The reports of a watch are forgotten when it is cut: the next one has another id.
//! - **etcd.told-2** No watch on a key that is in use is closed to make room.
//! - **etcd.told-3** While no request is pending, only the deletions of awaited keys are kept: as many as entries are waited
//!   for, however many come and go. A pending request may show any key, so all are kept until its reply.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{Revision, Rival};

pub(crate) type Key = Box<[u8]>;

/// Each watch has its own, also a later one on the same range.
pub(crate) type WatchId = i64;

#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: Revision,
    pub(crate) key: Key,
    /// `None` for a deletion.
    pub(crate) value: Option<Box<[u8]>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) queue: Option<Watch>,
    pub(crate) keys: HashMap<Key, Watch>,
    /// The keys whose deletions are kept; `None` keeps all.
    awaited: Option<HashSet<Key>>,
    /// The right to watch is missing; nothing more is reported.
    pub(crate) is_refused: bool,
    /// The watched keys, the last used at the end.
    used: VecDeque<Key>,
    /// Deletions that the watch on the queue has reported in a row while no acquisition listened.
    unheard: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    pub(crate) id: WatchId,
    /// It reports every deletion after that revision; `None` until it stands.
    pub(crate) since: Option<Revision>,
    /// The last deletion of each key.
    deleted: HashMap<Key, Revision>,
    /// The last deletion that was reported, kept or not.
    last: Revision,
}

impl Watch {
    pub(crate) fn has_deleted(&self, key: &[u8], after: Revision) -> bool {
        self.deleted.get(key).is_some_and(|at| *at > after)
    }

    /// Whether it stood `at` that revision, and has reported no deletion of its key since.
    pub(super) fn stands(&self, key: &[u8], at: Revision) -> bool {
        self.since.is_some_and(|since| since <= at) && !self.has_deleted(key, at)
    }
}

impl Told {
    /// The watch on `key`, or on the queue.
    fn of(&mut self, key: Option<&Key>) -> Option<&mut Watch> {
        key.map_or(self.queue.as_mut(), |key| self.keys.get_mut(key))
    }

    pub(crate) fn open(&mut self, key: Option<&Key>, id: WatchId) {
        let watch = Watch { id, since: None, deleted: HashMap::new(), last: 0 };
        let Some(key) = key else {
            self.queue = Some(watch);
            return;
        };
        self.keys.insert(key.clone(), watch);
        self.used.push_back(key.clone());
    }

    pub(crate) fn close(&mut self, key: Option<&Key>) {
        let Some(key) = key else {
            self.queue = None;
            return;
        };
        self.keys.remove(key);
        self.used.retain(|used| used != key);
    }

    /// Before a request is sent: its reply shows all earlier reports, and they are dropped. Returns the watch on the queue, if
    /// it stands.
    pub(crate) fn listen(&mut self) -> Option<WatchId> {
        (self.unheard, self.awaited) = (0, None);
        let watch = self.queue.as_mut()?;
        watch.deleted.clear();
        watch.since = Some(watch.since?.max(watch.last));
        Some(watch.id)
    }

    /// The reply has arrived: only the deletions of these keys are kept from now on.
    pub(crate) fn wait_for(&mut self, keys: HashSet<Key>) {
        if let Some(watch) = &mut self.queue {
            watch.deleted.retain(|key, _| keys.contains(key));
        }
        self.awaited = Some(keys);
    }

    /// Whether the kept reports are bounded (etcd.told-3).
    pub(crate) fn is_bounded(&self) -> bool {
        let stands = self.queue.as_ref().is_some_and(|watch| watch.since.is_some());
        !stands || self.awaited.is_some()
    }

    pub(crate) fn cut(&mut self) {
        *self = Self { awaited: self.awaited.take(), ..Self::default() };
    }

    pub(crate) fn stands(&mut self, key: Option<&Key>, since: Revision) {
        if let Some(watch) = self.of(key) {
            watch.since = Some(since);
        }
    }

    /// A watch reports changes. Whether it is the one on the queue, and has reported so many deletions in a row while no
    /// acquisition listened that it is not worth keeping.
    pub(crate) fn tell(&mut self, key: Option<&Key>, changes: &[Change], is_heard: bool) -> bool {
        for change in changes.iter().filter(|change| change.value.is_none()) {
            let is_kept =
                self.awaited.as_ref().is_none_or(|keys| key.is_some() || keys.contains(&change.key));
            if let Some(watch) = self.of(key) {
                watch.last = watch.last.max(change.revision);
                if is_kept {
                    let last = watch.deleted.entry(change.key.clone()).or_insert(change.revision);
                    *last = change.revision.max(*last);
                }
            }
            self.unheard = if is_heard { 0 } else { self.unheard + usize::from(key.is_none()) };
        }
        key.is_none() && self.unheard >= IDLE_DELETIONS
    }

    /// Those keys are in use; returns the others whose watches are to be closed to make room.
    pub(crate) fn use_keys(&mut self, keys: &[Rival]) -> Vec<Key> {
        self.used.retain(|used| keys.iter().all(|rival| rival.key != *used));
        self.used.extend(keys.iter().map(|rival| rival.key.clone()));
        let surplus = self.used.len().saturating_sub(KEYS_WATCHED.max(keys.len()));
        self.used.drain(..surplus).collect()
    }
}

/// How many keys of others a session watches in one queue. Each costs a message when its entry is deleted; with fewer, the
/// turns of many sessions would open watches again.
const KEYS_WATCHED: usize = 16;
/// After so many deletions in a row without a listener a watch is closed. Of 100 sessions that come seldom, 18 to 31 are
/// notified of each release with this, and a cycle takes 2.4 to 2.7 requests; with 128 it is 57 to 71, and 2.2 to 2.3.
const IDLE_DELETIONS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::Mode;

    fn key(key: u8) -> Key {
        [key].into()
    }

    fn rival(of: u8) -> Rival {
        Rival { key: key(of), create: 1, mode: Mode::EXCLUSIVE }
    }

    fn deletion(of: u8, revision: Revision) -> Change {
        Change { revision, key: key(of), value: None }
    }

    /// etcd.told-2
    #[test]
    fn keys_in_use_are_not_closed_to_make_room() {
        let mut told = Told::default();
        for used in 0..16 {
            told.open(Some(&key(used)), 1);
            assert!(told.use_keys(&[rival(used)]).is_empty());
        }
        assert!(told.use_keys(&[rival(0)]).is_empty(), "it is used again");
        assert_eq!(told.use_keys(&[rival(16)]), [key(1)]);
        let many: Vec<_> = (20..40).map(rival).collect();
        let closed = told.use_keys(&many);
        assert!(closed.len() == 16 && closed.iter().all(|closed| closed[0] < 20), "{closed:?}");
        assert!(told.use_keys(&many).is_empty());
        told.close(Some(&key(20)));
        assert_eq!(told.use_keys(&many[1..2]), [22, 23, 24].map(key), "room for sixteen again");
    }

    #[test]
    fn unread_request_stays_behind_later_ones() {
        let mut told = Told::default();
        told.open(None, 7);
        told.stands(None, 3);
        told.tell(None, &[deletion(b'a', 9), deletion(b'b', 5)], true);
        told.listen();
        let watch = told.queue.as_ref().unwrap();
        assert_eq!(watch.since, Some(9));
        assert!(!watch.has_deleted(b"a", 0));
    }

    /// etcd.told-3
    #[test]
    fn deletions_of_other_keys_are_not_kept() {
        let mut told = Told::default();
        told.open(None, 7);
        told.stands(None, 1);
        told.tell(None, &[deletion(b'a', 2), deletion(b'b', 3)], true);
        told.wait_for([key(b'a'), key(b'c')].into());
        for at in 4..200_004 {
            let other = Change { revision: at, key: format!("{at}").into_bytes().into(), value: None };
            told.tell(None, &[other], true);
        }
        told.tell(None, &[deletion(b'c', 200_004)], true);
        let kept = &told.queue.as_ref().unwrap().deleted;
        assert_eq!(*kept, HashMap::from([(key(b'a'), 2), (key(b'c'), 200_004)]));
        told.listen();
        told.tell(None, &[deletion(b'b', 200_005)], true);
        let watch = told.queue.as_ref().unwrap();
        assert_eq!((watch.since, watch.has_deleted(b"b", 200_004)), (Some(200_004), true));
    }

    #[test]
    fn a_watch_that_tells_nobody_is_closed_in_the_end() {
        let mut told = Told::default();
        for _ in 0..2 {
            let is_idle = |at| told.tell(None, &[deletion(b'a', at)], false);
            assert_eq!((0..).position(is_idle), Some(IDLE_DELETIONS - 1));
            assert!(!told.tell(None, &[deletion(b'a', 99)], true), "somebody heard it");
        }
    }

    /// A watch on a key reports once in a turn, and stays for the next.
    #[test]
    fn a_watch_on_a_key_outlasts_that_on_all() {
        let mut told = Told::default();
        told.open(Some(&key(1)), 1);
        let is_idle = |at| told.tell(None, &[deletion(b'a', at)], false);
        assert!((0..).any(is_idle));
        told.close(None);
        assert!(!told.tell(Some(&key(1)), &[deletion(1, 99)], false));
    }
}
