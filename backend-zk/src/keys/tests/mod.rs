//! Names and listings: those that exist depend on them.

mod fuzz;

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn segment(name: &str) -> String {
    encoded(LockName::new(name).unwrap().as_str())
}

fn owner(byte: u8) -> OwnerId {
    OwnerId::from_random([byte; 16])
}

/// What a contender behind `node` waits for.
fn barrier(node: &Node, end_admits: bool) -> Barrier {
    Barrier { name: node.name(), end_admits, pass_admits: node.number >= 0 }
}

/// Only the names that we give, and Curator's mutex, say that they keep out everybody later.
#[test]
fn who_keeps_all_others_out_is_known_by_name() {
    let ours = Node::new(owner(1), 7).name();
    assert_eq!(owner_of(&ours), Some(owner(1)));
    for other in [
        ours.replace("-lock-", "-__READ__"),
        ours.replace("-lock-", "-__WRIT__"),
        ours.replace("0101", "010G"),
        format!("{ours}0"),
        ours[..ours.len() - 1].to_owned(),
        Node::new(owner(1), -7).name(),
        "lock-0000000007".to_owned(),
        "_c_é".to_owned(),
    ] {
        assert_eq!(owner_of(&other), None, "{other}");
    }
}

/// Existing locks, ours and Curator's, depend on these: never change them.
#[test]
fn directories_are_readable_and_fixed() {
    assert_eq!(segment("Nightly job"), "Nightly job");
    assert_eq!(segment("invoice/42"), "invoice%2F42");
    assert_eq!(segment("100%"), "100%25");
    assert_eq!(segment("é€"), "é€");
    assert_eq!(segment("\u{1f512}"), "%F0%9F%94%92");
    assert_eq!(segment("."), "%2E");
    assert_eq!(segment(".."), "%2E.");
    assert_eq!(segment("..."), "...");
    assert_eq!(segment("zookeeper"), "%7Aookeeper");
    let namespace = Namespace::new("/a/", "b/c").unwrap();
    assert_eq!(namespace.directory(&LockName::new("x").unwrap()), "/a/b/c/x");
    assert_eq!(namespace.session(-1), "/a/b/c/%sessions/ffffffffffffffff");
    assert_eq!(Namespace::new("/", "").unwrap().token_base(), "/%token_base");
}

/// A contender is called as Curator calls its own, and by the number that the server gave it.
#[test]
fn contenders_are_named_as_curators() {
    let node = Node::new(owner(0xab), 7);
    assert_eq!(node.name(), "_c_abababab-abab-abab-abab-abababababab-lock-0000000007");
    let past_the_end = Node::new(owner(1), i32::MIN);
    assert!(past_the_end.name().ends_with("-lock--2147483648"), "{}", past_the_end.name());
    assert_eq!(Listing::new(vec![past_the_end.name()], false).find(owner(1)), Some(past_the_end));
}

/// Whatever ends in a sequence number contends, readers, kazoo's locks and strangers too.
#[test]
fn contenders_are_known_by_their_number() {
    let past_the_end = Sequence::new(i32::MIN);
    for (child, sequence) in [
        ("_c_6f1a-lock-0000000012", Some(Sequence::new(12))),
        ("lock-0000000003", Some(Sequence::new(3))),
        ("lock-2147483647", Some(Sequence::new(i32::MAX))),
        ("_c_6f1a-lock--2147483648", Some(past_the_end)),
        ("5d41402a__lock__0000000001", Some(Sequence::new(1))),
        ("_c_6f1a-__READ__0000000002", Some(Sequence::new(2))),
        ("x-72057594037927936-0000000005", Some(Sequence::new(5))),
        ("0000000006", Some(Sequence::new(6))),
        ("n10000000007", Some(Sequence::new(7))),
        ("lock-", None),
        ("lock-12", None),
        ("lock-00000000x1", None),
        ("lock-000000001", None),
        ("lock-+000000001", None),
        ("lock-2147483649", None),
        ("lock-9999999999", None),
        ("größe00000001", None),
        ("locks", None),
        ("", None),
    ] {
        assert_eq!(Sequence::of(child), sequence, "{child}");
    }
}

/// Contenders of another kind are told from Curator's, Go's and ours.
#[test]
fn strangers_are_told_from_ours() {
    for (child, strange) in [
        ("_c_6f1a-lock-0000000012", false),
        ("lock-0000000003", false),
        ("_c_6f1a-lock--2147483648", false),
        ("config", false),
        ("5d41402a__lock__0000000001", true),
        ("_c_6f1a-__READ__0000000002", true),
        ("flock0000000002", true),
    ] {
        let listing = Listing::new(vec![Node::new(owner(1), 1).name(), child.to_owned()], false);
        assert_eq!(listing.stranger(), strange.then_some(child));
    }
}

/// The counter stops at its largest number, so equal numbers have no order: nobody of them is first.
#[test]
fn equal_numbers_are_in_each_others_way() {
    let (me, other) = (Node::new(owner(1), i32::MAX), Node::new(owner(2), i32::MAX));
    let listing = Listing::new(vec![me.name(), other.name()], false);
    assert_eq!(listing.place_of(&me), Place::Behind(barrier(&other, true)));
    assert_eq!(listing.place_of(&other), Place::Behind(barrier(&me, true)));
}

/// Numbers near the end are known as such, and those past it, which the server may give out, too.
#[test]
fn the_end_is_seen_from_afar() {
    for (number, near) in [
        (0, false),
        (1 << 30, false),
        (i32::MAX - (1 << 23), false),
        (i32::MAX - (1 << 21), true),
        (i32::MAX, true),
        (i32::MIN, true),
        (i32::MIN + 1_000, true),
        (-5, true),
    ] {
        assert_eq!(Sequence::new(number).is_near_the_end(), near, "{number}");
        let listing = Listing::new(vec!["config".to_owned(), Node::new(owner(1), number).name()], false);
        // With fewer digits it is no number of a child; the node's own says it.
        assert_eq!(listing.near_the_end().is_some(), near && number != -5, "{number}");
    }
}

/// A directory is made anew from the half of its numbers on, and not all the time.
#[test]
fn renewal_is_called_for_now_and_then() {
    let half = 1 << 30;
    for (number, called_for) in [
        (0, false),
        (half - 1, false),
        (half, true),
        (half + (1 << 16) - 1, true),
        (half + (1 << 16), false),
        (half + (1 << 20), true),
    ] {
        assert_eq!(Sequence::new(number).calls_for_renewal(), called_for, "{number}");
    }
}

/// Who is known to be gone has no place, whatever a server lists.
#[test]
fn who_is_gone_is_left_out() {
    let (me, other) = (Node::new(owner(1), 5), Node::new(owner(2), 4));
    let listing = Listing::new(vec![me.name(), other.name()], false).without(&[other.name()]);
    assert_eq!(listing.place_of(&me), Place::First);
}

/// A listing decides only about whom it has.
#[test]
fn who_is_not_listed_has_no_place() {
    let me = Node::new(owner(1), 5);
    assert_eq!(Listing::default().place_of(&me), Place::Absent);
    assert_eq!(Listing::new(vec![me.name()], false).place_of(&me), Place::First);
    let behind = Listing::new(vec![me.name(), "lock-0000000006".to_owned(), "config".to_owned()], false);
    assert_eq!(behind.place_of(&me), Place::First);
    let ahead = Listing::new(vec!["lock-0000000004".to_owned()], false);
    assert_eq!(ahead.place_of(&me), Place::Absent);
}

/// A node is found by its owner, whatever number it was given.
#[test]
fn a_node_is_found_by_its_owner() {
    let (mine, other) = (Node::new(owner(1), 9), Node::new(owner(2), 8));
    let listing = Listing::new(vec![other.name(), mine.name()], false);
    assert_eq!(listing.find(owner(1)), Some(mine));
    assert_eq!(listing.find(owner(3)), None);
}

/// Segments that we did not write are nobody's lock.
#[test]
fn strange_segments_are_no_locks() {
    for segment in [
        "%sessions",
        "%inboxes",
        "%token_base",
        "%move",
        "%members",
        "%2f",
        "%41",
        "%",
        "a%2",
        "%FF",
        "",
        "zookeeper",
    ] {
        assert_eq!(decoded(segment), None, "{segment}");
    }
}

proptest! {
    /// zk.keys-1: directories come apart, come back, and are what the server accepts.
    #[test]
    fn directories_are_injective(a in "[^\\p{Cc}]{1,60}", b in "[^\\p{Cc}]{1,60}") {
        prop_assert_eq!(segment(&a) == segment(&b), a == b);
        let decoded = decoded(&segment(&a)).unwrap();
        prop_assert_eq!(decoded.as_str(), a.as_str());
        prop_assert!(fault(&segment(&a)).is_none());
        prop_assert!(!segment(&a).contains('/'));
    }

    /// zk.keys-2: order is that of creation, and exactly one contender is first.
    #[test]
    fn places_follow_creation(start in 0..=i32::MAX - 2_000, steps in prop::collection::btree_set(0_u16..2_000, 1..20)) {
        let nodes: Vec<_> = steps
            .iter()
            .enumerate()
            .map(|(at, step)| {
                let owner = owner(u8::try_from(at).unwrap());
                Node::new(owner, start + i32::from(*step))
            })
            .collect();
        let mut names: Vec<_> = nodes.iter().map(Node::name).collect();
        names.reverse();
        let listing = Listing::new(names, false);
        for (at, node) in nodes.iter().enumerate() {
            let expected = match at.checked_sub(1) {
                None => Place::First,
                Some(before) => {
                    Place::Behind(barrier(&nodes[before], before == 0))
                }
            };
            prop_assert_eq!(listing.place_of(node), expected);
        }
        let ordered: Vec<_> = nodes.iter().map(Node::name).collect();
        prop_assert_eq!(listing.contenders(), ordered.iter().map(String::as_str).collect::<Vec<_>>());
        let distinct: BTreeSet<_> = ordered.iter().collect();
        prop_assert_eq!(distinct.len(), nodes.len());
    }
}

/// The nodes of sessions are told from what is beside them for a moment.
#[test]
fn sessions_are_told_apart() {
    let namespace = Namespace::new("", "p").unwrap();
    for id in [1, -1, i64::MIN, i64::MAX] {
        let node = namespace.session(id);
        let child = node.strip_prefix(&format!("{}/", namespace.sessions())).unwrap();
        assert_eq!(session_of(child), Some(id));
        let moves = namespace.moves(id);
        let beside = moves.strip_prefix(&format!("{}/", namespace.sessions())).unwrap();
        assert_eq!((mover_of(beside), session_of(beside), mover_of(child)), (Some(id), None, None));
        for other in [format!("{child}-look"), format!("+{}", &child[1..]), child.to_uppercase() + "x"] {
            assert_eq!(session_of(&other), None, "{other}");
        }
    }
}
