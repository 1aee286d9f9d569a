//! What others may leave in a lock's directory: nodes, their names and notes, changed at random.

use std::time::Duration;

use leasehold_core::backend::Holder;
use proptest::prelude::*;
use testbed::fuzz::{changed, changed_text, corpus, tries};

use super::super::note::Note;
use super::super::*;

proptest! {
    #![proptest_config(tries())]

    /// A note that can be read is shown, and what we would write of it reads the same.
    #[test]
    fn notes_are_read_whatever_they_say(data in changed(corpus("zookeeper")), counter: u64, ctime: i64) {
        let owner = OwnerId::from_random([7; 16]);
        let node = Node::new(owner, Mode::EXCLUSIVE, 7).name();
        let note = Note::decoded(&node, &data);
        let Holder { label, metadata, .. } = &note.holder;
        if let Some(ttl) = note.holder.ttl {
            let again = Note::encoded(ttl, label, metadata.as_deref(), note.passes.then_some(owner));
            prop_assert_eq!(Note::decoded(&node, &again), note.clone());
        }
        let holder = note.into_holder(counter, ctime);
        prop_assert!(holder.since.is_none_or(|since| since >= std::time::UNIX_EPOCH));
        prop_assert!(holder.ttl.is_none_or(|ttl| ttl <= Duration::from_millis(u64::MAX)));
    }

    /// A segment that is taken for a lock's is the one that is made for its name.
    #[test]
    fn segments_lead_to_names_that_lead_back(segment in changed_text(corpus("zookeeper"))) {
        if let Some(name) = decoded(&segment) {
            prop_assert_eq!(encoded(name.as_str()), segment.clone());
        }
        if let Some(id) = session_of(&segment) {
            prop_assert_eq!(format!("{id:016x}"), segment);
        }
    }

    /// Any children at all have an order, and who is none of ours is behind nobody but contenders.
    #[test]
    fn any_children_have_an_order(
        children in prop::collection::vec(changed_text(corpus("zookeeper")), 0..6),
        may_be_ours: bool,
    ) {
        let listing = Listing::new(children.clone(), may_be_ours);
        let contenders = listing.contenders();
        prop_assert!(contenders.iter().all(|contender| children.iter().any(|child| child == contender)));
        let numbers: Vec<_> = contenders.iter().map(|contender| Sequence::of(contender)).collect();
        prop_assert!(numbers.is_sorted() && numbers.iter().all(Option::is_some), "{contenders:?}");
        let holding = listing.holding();
        prop_assert!(contenders.starts_with(&holding) && holding.is_empty() == contenders.is_empty());
        let _ = (listing.near_the_end(), listing.foreign());
    }

    /// zk.keys-4: only who is called as we call them shares.
    #[test]
    fn sharers_have_our_names(child in changed_text(corpus("zookeeper")), number: i32) {
        let owner = owner_of(&child, Mode::SHARED);
        prop_assert_eq!(owner.is_some(), mode_of(&child) == Mode::SHARED);
        let digits = || child[child.len() - DIGITS..].to_owned();
        prop_assert!(owner.is_none_or(|owner| child == stem(owner, Mode::SHARED) + &digits()), "{child}");
        prop_assert!(owner.is_none() || owner_of(&child, Mode::EXCLUSIVE).is_none(), "{child}");
        let ours = Node::new(OwnerId::from_random([7; 16]), Mode::SHARED, number);
        prop_assert_eq!(mode_of(&ours.name()) == Mode::SHARED, number >= 0);
    }
}
