//! The holds of a session, and which events are reported for them.
//!
//! # Invariants
//! - **zk.holds-1** A requested revocation is reported once with its grace period, whether the grant or the message comes
//!   first.
//! - **zk.holds-2** A node that another client deletes is reported unless the hold is being released or its revocation
//!   deadline has passed: both end the hold anyway.
//! - **zk.holds-3** The node of each hold that lasts is to be watched, by one watch at a time.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::{LockName, OwnerId};

use super::{Mine, RevokeRequests};

/// The registry of one session.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// Boxed, since a map has room for more than it holds.
    held: HashMap<OwnerId, Box<HeldNode>>,
    /// The holds whose nodes are not watched, and since when. The oldest first.
    unwatched: VecDeque<(Moment, OwnerId)>,
    /// The requested revocations, as last read.
    requests: RevokeRequests,
}

/// A node of this session that holds its lock.
#[derive(Clone, Debug)]
pub(crate) struct HeldNode {
    pub(crate) name: LockName,
    pub(crate) counter: u64,
    pub(crate) mine: Mine,
    /// It has waited, so others probably wait behind it: its release passes the lock on, unless it is shared.
    pub(crate) passes: bool,
    /// It is being released.
    pub(crate) ending: bool,
}

impl Holds {
    /// Registers a hold. The grace period that is left if its revocation was requested before (zk.holds-1).
    pub(crate) fn granted(&mut self, owner: OwnerId, hold: HeldNode, now: Moment) -> Option<Duration> {
        let until = self.requests.until(hold.mine.czxid);
        self.held.insert(owner, Box::new(hold));
        until.map(|until| until.since(now))
    }

    pub(crate) fn get(&self, owner: OwnerId) -> Option<&HeldNode> {
        self.held.get(&owner).map(Box::as_ref)
    }

    /// Begins a release, and returns the hold.
    pub(crate) fn ending(&mut self, owner: OwnerId, name: &LockName) -> Option<&HeldNode> {
        let hold = self.held.get_mut(&owner).filter(|hold| hold.name == *name)?;
        hold.ending = true;
        Some(hold)
    }

    /// A release has removed its node.
    pub(crate) fn ended(&mut self, owner: OwnerId) {
        self.held.remove(&owner);
    }

    /// The node of a hold is not watched, or no longer.
    pub(crate) fn unwatched(&mut self, owner: OwnerId, now: Moment) {
        self.unwatched.push_back((now, owner));
    }

    /// The holds that have lasted for so `long` and are not watched; from here on they count as watched (zk.holds-3).
    pub(crate) fn standing(&mut self, long: Duration, now: Moment) -> Vec<(OwnerId, HeldNode)> {
        let young = self.unwatched.partition_point(|(since, _)| long <= now.since(*since));
        let standing = self.unwatched.drain(..young).filter_map(|(_, owner)| {
            let hold = self.held.get(&owner).filter(|hold| !hold.ending)?;
            Some((owner, HeldNode::clone(hold)))
        });
        let standing = standing.collect();
        // Room for a burst of holds is not kept for ever.
        self.unwatched.shrink_to(2 * self.unwatched.len().max(KEPT));
        standing
    }

    /// The node of a hold was deleted. The hold, if that is to be reported (zk.holds-2).
    pub(crate) fn deleted(&self, owner: OwnerId, now: Moment) -> Option<&HeldNode> {
        let hold = self.held.get(&owner).filter(|hold| !hold.ending)?;
        let over = self.requests.until(hold.mine.czxid).is_some_and(|until| until <= now);
        (!over).then_some(hold)
    }

    /// Takes in the inbox. The holds whose revocation is to be reported, with their grace periods.
    pub(crate) fn asked_for(&mut self, inbox: &[u8], now: Moment) -> Vec<(&HeldNode, Duration)> {
        let news = self.requests.hear(inbox, now);
        let told = |hold: &HeldNode| news.get(&hold.mine.czxid).copied();
        self.held.values().filter_map(|hold| Some((&**hold, told(hold)?))).collect()
    }
}

/// Room for so few holds is always kept.
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

    /// A revocation is reported once, for the hold that it names, also if that is granted later (zk.holds-1).
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

    /// A deleted node is reported until its hold has ended or expired (zk.holds-2).
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

    /// An entry that stands for long is watched, again when the watch is lost, and not when it ends (zk.holds-3).
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
