use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn segment(name: &str) -> String {
    encoded(LockName::new(name).unwrap().as_str())
}

fn owner(byte: u8) -> OwnerId {
    OwnerId::from_random([byte; 16])
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

/// A contender is called as Curator calls its own.
#[test]
fn contenders_are_named_as_curators() {
    let node = Node::new(owner(0xab), Sequence::new(7));
    assert_eq!(node.name(), "_c_abababab-abab-abab-abab-abababababab-lock-0000000007");
    let wrapped = Node::new(owner(1), Sequence::new(i32::MIN));
    assert!(wrapped.name().ends_with("-lock--2147483648"), "{}", wrapped.name());
    assert!(Node::new(owner(1), Sequence::new(-5)).name().ends_with("-lock--000000005"));
}

/// Whoever writes `lock-` and a number contends; readers, kazoo's locks and strangers do not.
#[test]
fn contenders_are_known_by_their_ending() {
    for (child, sequence) in [
        ("_c_6f1a-lock-0000000012", Some(12)),
        ("lock-0000000003", Some(3)),
        ("_c_6f1a-lock--2147483648", Some(i32::MIN)),
        ("_c_6f1a-lock--000000005", Some(-5)),
        ("lock-lock-0000000004", Some(4)),
        ("5d41402a__lock__0000000001", None),
        ("_c_6f1a-__READ__0000000002", None),
        ("lock-", None),
        ("lock-12", None),
        ("lock-00000000x1", None),
        ("lock-9999999999", None),
        ("", None),
    ] {
        assert_eq!(Sequence::of(child), sequence.map(Sequence::new), "{child}");
    }
}

/// After its largest number the server goes on at the smallest.
#[test]
fn order_survives_the_wrap() {
    let me = Node::new(owner(1), Sequence::new(i32::MIN + 1));
    let others = ["lock-2147483646", "lock-2147483647", "lock--2147483648", "lock--2147483646"];
    let mut children: Vec<_> = others.map(str::to_owned).into();
    children.push(me.name());
    let listing = Listing::new(children);
    let predecessor = "lock--2147483648".to_owned();
    assert_eq!(listing.place_of(&me), Place::Behind { predecessor, only: false });
    let contenders = listing.contenders();
    assert_eq!(contenders[..3], others[..3]);
    assert_eq!(contenders[3], me.name());
}

/// A listing decides only about whom it has.
#[test]
fn who_is_not_listed_has_no_place() {
    let me = Node::new(owner(1), Sequence::new(5));
    assert_eq!(Listing::default().place_of(&me), Place::Absent);
    assert_eq!(Listing::new(vec![me.name()]).place_of(&me), Place::First);
    let behind = Listing::new(vec![me.name(), "lock-0000000006".to_owned(), "config".to_owned()]);
    assert_eq!(behind.place_of(&me), Place::First);
    let ahead = Listing::new(vec!["lock-0000000004".to_owned()]);
    assert_eq!(ahead.place_of(&me), Place::Absent);
}

/// A node is found by its owner, whatever number it was given.
#[test]
fn a_node_is_found_by_its_owner() {
    let (mine, other) = (Node::new(owner(1), Sequence::new(9)), Node::new(owner(2), Sequence::new(8)));
    let listing = Listing::new(vec![other.name(), mine.name()]);
    assert_eq!(listing.find(owner(1)), Some(mine));
    assert_eq!(listing.find(owner(3)), None);
}

/// Segments that we did not write are nobody's lock.
#[test]
fn strange_segments_are_no_locks() {
    for segment in ["%sessions", "%inboxes", "%token_base", "%2f", "%41", "%", "a%2", "%FF", "", "zookeeper"]
    {
        assert_eq!(decoded(segment), None, "{segment}");
    }
}

proptest! {
    /// K1: directories come apart, come back, and are what the server accepts.
    #[test]
    fn directories_are_injective(a in "[^\\p{Cc}]{1,60}", b in "[^\\p{Cc}]{1,60}") {
        prop_assert_eq!(segment(&a) == segment(&b), a == b);
        let decoded = decoded(&segment(&a)).unwrap();
        prop_assert_eq!(decoded.as_str(), a.as_str());
        prop_assert!(fault(&segment(&a)).is_none());
        prop_assert!(!segment(&a).contains('/'));
    }

    /// K2: around any reference, order is that of creation, and exactly one contender is first.
    #[test]
    fn places_follow_creation(start in any::<i32>(), steps in prop::collection::btree_set(0_u16..2_000, 1..20)) {
        let nodes: Vec<_> = steps
            .iter()
            .enumerate()
            .map(|(at, step)| {
                let owner = owner(u8::try_from(at).unwrap());
                Node::new(owner, Sequence::new(start.wrapping_add(i32::from(*step))))
            })
            .collect();
        let mut names: Vec<_> = nodes.iter().map(Node::name).collect();
        names.reverse();
        let listing = Listing::new(names);
        for (at, node) in nodes.iter().enumerate() {
            let expected = match at.checked_sub(1) {
                None => Place::First,
                Some(before) => Place::Behind { predecessor: nodes[before].name(), only: before == 0 },
            };
            prop_assert_eq!(listing.place_of(node), expected);
        }
        let ordered: Vec<_> = nodes.iter().map(Node::name).collect();
        prop_assert_eq!(listing.contenders(), ordered.iter().map(String::as_str).collect::<Vec<_>>());
        let distinct: BTreeSet<_> = ordered.iter().collect();
        prop_assert_eq!(distinct.len(), nodes.len());
    }
}
