//! What a session holds, and what it says of that.
//!
//! # Invariants
//! - **zk.holds-1** A hold that is asked for is told so, whether the grant or the message is first, and how
//!   long it has from then on.
//! - **zk.holds-2** A node that somebody else deletes is told, while nobody lets go of its hold and the time
//!   that it was asked for is not over: both end it themselves.
//! - **zk.holds-3** Of each hold that stands for long the node is to be watched, once at a time.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::{LockName, OwnerId};

use super::{Mine, RevokeRequests};

/// The book of one session.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// Boxed, since a map has room for more than it holds.
    held: HashMap<OwnerId, Box<HeldNode>>,
    /// Those whose nodes are not watched, and since when; the oldest first.
    unwatched: VecDeque<(Moment, OwnerId)>,
    /// What administrators ask for, as last read.
    requests: RevokeRequests,
}

/// A node of ours that holds its lock.
#[derive(Clone, Debug)]
pub(crate) struct HeldNode {
    pub(crate) name: LockName,
    pub(crate) counter: u64,
    pub(crate) mine: Mine,
    /// Others are likely to wait for it, so it is passed on to them, unless it is shared.
    pub(crate) passes: bool,
    /// We have asked for its end ourselves.
    pub(crate) ending: bool,
}

impl Holds {
    /// Books a hold; how long it has, if it was asked for before (zk.holds-1).
    pub(crate) fn granted(&mut self, owner: OwnerId, hold: HeldNode, now: Moment) -> Option<Duration> {
        let until = self.requests.until(hold.mine.czxid);
        self.held.insert(owner, Box::new(hold));
        until.map(|until| until.since(now))
    }

    pub(crate) fn get(&self, owner: OwnerId) -> Option<&HeldNode> {
        self.held.get(&owner).map(Box::as_ref)
    }

    /// Begins to let go; of what, if it is held.
    pub(crate) fn ending(&mut self, owner: OwnerId, name: &LockName) -> Option<&HeldNode> {
        let hold = self.held.get_mut(&owner).filter(|hold| hold.name == *name)?;
        hold.ending = true;
        Some(hold)
    }

    /// Its node is gone, and that was what we wanted.
    pub(crate) fn ended(&mut self, owner: OwnerId) {
        self.held.remove(&owner);
    }

    /// The node of a hold is not watched, or not any more.
    pub(crate) fn unwatched(&mut self, owner: OwnerId, now: Moment) {
        self.unwatched.push_back((now, owner));
    }

    /// What has stood for so `long` and is not watched; from here on it counts as watched (zk.holds-3).
    pub(crate) fn standing(&mut self, long: Duration, now: Moment) -> Vec<(OwnerId, HeldNode)> {
        let young = self.unwatched.partition_point(|(since, _)| long <= now.since(*since));
        let standing = self.unwatched.drain(..young).filter_map(|(_, owner)| {
            let hold = self.held.get(&owner).filter(|hold| !hold.ending)?;
            Some((owner, HeldNode::clone(hold)))
        });
        let standing = standing.collect();
        // As many may never begin at once again.
        self.unwatched.shrink_to(2 * self.unwatched.len().max(KEPT));
        standing
    }

    /// The node of a hold was deleted; the hold, if that is to be told (zk.holds-2).
    pub(crate) fn deleted(&self, owner: OwnerId, now: Moment) -> Option<&HeldNode> {
        let hold = self.held.get(&owner).filter(|hold| !hold.ending)?;
        let over = self.requests.until(hold.mine.czxid).is_some_and(|until| until <= now);
        (!over).then_some(hold)
    }

    /// Takes in what the inbox says now; of which holds that is to be told, and how long they have.
    pub(crate) fn asked_for(&mut self, inbox: &[u8], now: Moment) -> Vec<(&HeldNode, Duration)> {
        let news = self.requests.hear(inbox, now);
        let told = |hold: &HeldNode| news.get(&hold.mine.czxid).copied();
        self.held.values().filter_map(|hold| Some((&**hold, told(hold)?))).collect()
    }
}

/// Room for so few is not worth giving back.
const KEPT: usize = 64;

#[cfg(test)]
mod tests {
    use leasehold_core::Mode;

    use super::*;
    use crate::keys::Node;
    use crate::protocol::with_message;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn owner(number: u8) -> OwnerId {
        OwnerId::from_random([number; 16])
    }

    fn name() -> LockName {
        LockName::new("a").unwrap()
    }

    fn hold(number: u8) -> HeldNode {
        let mine =
            Mine { node: Node::new(owner(number), Mode::EXCLUSIVE, number.into()), czxid: number.into() };
        HeldNode { name: name(), counter: number.into(), mine, passes: false, ending: false }
    }

    /// Grants a hold whose node is not watched.
    fn granted(holds: &mut Holds, number: u8, now: Moment) -> Option<Duration> {
        holds.unwatched(owner(number), now);
        holds.granted(owner(number), hold(number), now)
    }

    /// A session that holds by transaction 7 since second 0, and by 8 since second 5.
    fn holds() -> Holds {
        let mut holds = Holds::default();
        assert_eq!(granted(&mut holds, 7, at(0)), None);
        assert_eq!(granted(&mut holds, 8, at(5)), None);
        holds
    }

    fn told(holds: &mut Holds, inbox: &[u8], now: Moment) -> Vec<(i64, Duration)> {
        holds.asked_for(inbox, now).into_iter().map(|(hold, within)| (hold.mine.czxid, within)).collect()
    }

    fn standing(holds: &mut Holds, now: Moment) -> Vec<OwnerId> {
        holds.standing(3 * SECOND, now).into_iter().map(|(owner, _)| owner).collect()
    }

    /// What is asked is told once, to whom it is asked of, and to a grant that comes later (zk.holds-1).
    #[test]
    fn revocation_is_reported_before_and_after_the_grant() {
        let mut holds = holds();
        let inbox = with_message(&with_message(b"", 7, 4 * SECOND), 9, 6 * SECOND);
        assert_eq!(told(&mut holds, &inbox, at(10)), [(7, 4 * SECOND)]);
        assert_eq!(told(&mut holds, &inbox, at(11)), []);
        assert_eq!(granted(&mut holds, 9, at(12)), Some(4 * SECOND));
        assert_eq!(granted(&mut holds, 10, at(12)), None);
        let again = with_message(&inbox, 9, SECOND);
        assert_eq!(told(&mut holds, &again, at(13)), [(9, SECOND)]);
    }

    /// A deleted node is told until somebody ends its hold, or its time does (zk.holds-2).
    #[test]
    fn a_deleted_node_is_told_unless_its_hold_ends() {
        let mut holds = holds();
        assert_eq!(told(&mut holds, &with_message(b"", 7, 4 * SECOND), at(10)).len(), 1);
        for (second, told) in [(13, true), (14, false), (20, false)] {
            assert_eq!(holds.deleted(owner(7), at(second)).is_some(), told, "{second}");
        }
        assert_eq!(holds.deleted(owner(8), at(20)).map(|hold| hold.mine.czxid), Some(8));
        assert!(holds.ending(owner(8), &LockName::new("b").unwrap()).is_none());
        assert!(holds.deleted(owner(8), at(20)).is_some(), "another lock's release ends nothing");
        assert!(holds.ending(owner(8), &name()).is_some());
        assert!(holds.deleted(owner(8), at(20)).is_none());
        // A release that was not answered is asked again.
        assert!(holds.ending(owner(8), &name()).is_some());
        holds.ended(owner(8));
        assert!(holds.ending(owner(8), &name()).is_none());
        assert!(holds.deleted(owner(8), at(20)).is_none());
    }

    /// Who stands for long is watched, again when the watch is lost, and not when it ends (zk.holds-3).
    #[test]
    fn existing_node_is_watched_once() {
        let mut holds = holds();
        holds.granted(owner(9), hold(9), at(0));
        assert_eq!(standing(&mut holds, at(2)), []);
        assert_eq!(standing(&mut holds, at(3)), [owner(7)]);
        assert_eq!(standing(&mut holds, at(7)), []);
        assert_eq!(standing(&mut holds, at(8)), [owner(8)]);
        holds.unwatched(owner(9), at(9));
        assert_eq!(standing(&mut holds, at(11)), []);
        assert_eq!(standing(&mut holds, at(12)), [owner(9)]);
        holds.unwatched(owner(7), at(12));
        assert!(holds.ending(owner(7), &name()).is_some());
        assert_eq!(standing(&mut holds, at(15)), []);
    }
}
