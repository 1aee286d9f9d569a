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
fn exclusive_holder_is_named() {
    let ours = Node::new(owner(1), Mode::EXCLUSIVE, 7).name();
    assert_eq!(owner_of(&ours, Mode::EXCLUSIVE), Some(owner(1)));
    for other in [
        ours.replace("-lock-", "-__READ__"),
        ours.replace("-lock-", "-__WRIT__"),
        ours.replace("-lock-", "-shared-lock-"),
        ours.replace("0101", "010G"),
        format!("{ours}0"),
        ours[..ours.len() - 1].to_owned(),
        Node::new(owner(1), Mode::EXCLUSIVE, -7).name(),
        "lock-0000000007".to_owned(),
        "_c_é".to_owned(),
    ] {
        assert_eq!(owner_of(&other, Mode::EXCLUSIVE), None, "{other}");
    }
}

/// What nobody here writes is waited for as if it were exclusive, however near it comes to our names.
#[test]
fn sharers_are_known_by_exactly_our_names() {
    let shared = Node::new(owner(0xab), Mode::SHARED, 7);
    assert_eq!(shared.name(), "_c_abababab-abab-abab-abab-abababababab-shared-lock-0000000007");
    assert_eq!(
        (owner_of(&shared.name(), Mode::SHARED), mode_of(&shared.name())),
        (Some(owner(0xab)), Mode::SHARED)
    );
    assert_eq!(
        Listing::new(vec![shared.name()], false).find(owner(0xab), Mode::SHARED),
        Some(shared.clone())
    );
    assert_eq!(Listing::new(vec![shared.name()], false).find(owner(0xab), Mode::EXCLUSIVE), None);
    let name = shared.name();
    for other in [
        name.replace("-shared-lock-", "-lock-"),
        name.replace("-shared-lock-", "-Shared-lock-"),
        name.replace("-shared-lock-", "-shared-shared-lock-"),
        name.replace("-shared-lock-", "-shared-lock-lock-"),
        name.replace("-shared-lock-", "-sharedlock-"),
        name.replace("-shared-lock-", "-2of8-lock-"),
        name.replace("-shared-lock-", "-__READ__"),
        name.replace("abababab-abab", "abababababab"),
        name.replace("abababab-abab", "ABABABAB-abab"),
        name.replace("abababab-abab", "abababag-abab"),
        name.replace("_c_", "_d_"),
        name.replace("_c_", ""),
        format!("_c_{name}"),
        format!("{name}0"),
        name[..name.len() - 1].to_owned(),
        Node::new(owner(0xab), Mode::SHARED, -7).name(),
        "shared-lock-0000000007".to_owned(),
    ] {
        assert_eq!(mode_of(&other), Mode::EXCLUSIVE, "{other}");
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

#[test]
fn contenders_are_named_as_curators() {
    let node = Node::new(owner(0xab), Mode::EXCLUSIVE, 7);
    assert_eq!(node.name(), "_c_abababab-abab-abab-abab-abababababab-lock-0000000007");
    let past_the_end = Node::new(owner(1), Mode::EXCLUSIVE, i32::MIN);
    assert!(past_the_end.name().ends_with("-lock--2147483648"), "{}", past_the_end.name());
    assert_eq!(
        Listing::new(vec![past_the_end.name()], false).find(owner(1), Mode::EXCLUSIVE),
        Some(past_the_end)
    );
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

#[test]
fn foreign_contenders_are_recognized() {
    for (child, strange) in [
        ("_c_6f1a-lock-0000000012", false),
        ("lock-0000000003", false),
        ("_c_6f1a-lock--2147483648", false),
        ("_c_6f1a-shared-lock-0000000012", false),
        ("config", false),
        ("5d41402a__lock__0000000001", true),
        ("_c_6f1a-__READ__0000000002", true),
        ("flock0000000002", true),
    ] {
        let listing =
            Listing::new(vec![Node::new(owner(1), Mode::EXCLUSIVE, 1).name(), child.to_owned()], false);
        assert_eq!(listing.foreign(), strange.then_some(child));
    }
}

/// Of several with the same number the one of the largest name is waited for, however a server lists them.
#[test]
fn of_equal_numbers_the_largest_name_is_waited_for() {
    let nodes = [1, 2, 3].map(|by| Node::new(owner(by), Mode::EXCLUSIVE, i32::MAX));
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let listing = Listing::new(order.map(|at: usize| nodes[at].name()).to_vec(), false);
        for (me, ahead) in [(0, 2), (1, 2), (2, 1)] {
            let expected = NodePosition::Behind(barrier(&nodes[ahead], false));
            assert_eq!(listing.place_of(&nodes[me]), expected, "{order:?}");
        }
    }
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
        let listing = Listing::new(
            vec!["config".to_owned(), Node::new(owner(1), Mode::EXCLUSIVE, number).name()],
            false,
        );
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

/// A directory shows how often its children came and went, which overflows long before its numbers do. A number that may not be
/// held without a listing is not predicted. Past the end of the numbers the prediction fits no contender.
#[test]
fn listing_tells_the_next_number() {
    const HALF: i32 = 1 << 30;
    let after = |created: i32, children: usize| {
        let names = (0..children).map(|child| format!("lock-{child:010}")).collect();
        let changes = created.wrapping_mul(2).wrapping_sub(i32::try_from(children).unwrap());
        Listing::new(names, true).counted(7, changes).next()
    };
    for children in [0, 3, 10] {
        for (created, told) in [
            (10, true),
            (HALF - 1, true),
            (HALF, false),
            (HALF + (1 << 16), true),
            (i32::MAX - (1 << 23), true),
            (i32::MAX - (1 << 21), false),
            (i32::MAX, false),
            (-5, false),
        ] {
            let next = Next { number: Sequence::new(created), directory: 7 };
            assert_eq!(after(created, children), told.then_some(next), "{created}");
        }
        assert_ne!(after(i32::MIN, children).map(|next| next.number), Some(Sequence::new(i32::MIN)));
    }
    assert_eq!(Listing::default().counted(7, 3).next(), None, "no number of children came and went so often");
    assert_eq!(Listing::new(vec!["lock-2147483647".to_owned()], true).counted(7, 1).next(), None);
    assert_eq!(Listing::new(Vec::new(), true).next(), None, "a directory that others may change");
}

#[test]
fn unlisted_entry_has_no_place() {
    let me = Node::new(owner(1), Mode::EXCLUSIVE, 5);
    assert_eq!(Listing::default().place_of(&me), NodePosition::Absent);
    assert_eq!(Listing::new(vec![me.name()], false).place_of(&me), NodePosition::Admitted);
    let behind = Listing::new(vec![me.name(), "lock-0000000006".to_owned(), "config".to_owned()], false);
    assert_eq!(behind.place_of(&me), NodePosition::Admitted);
    let ahead = Listing::new(vec!["lock-0000000004".to_owned()], false);
    assert_eq!(ahead.place_of(&me), NodePosition::Absent);
}

/// The youngest older one that keeps us out alone is waited for, and its end is a grant where it keeps everybody out and
/// nobody else is in the way.
#[test]
fn blocker_is_waited_for() {
    const W: Mode = Mode::EXCLUSIVE;
    const R: Mode = Mode::SHARED;
    // Those who came, the last of whom it is about; whom that waits for, whether the end of that one admits it, and whether
    // its passing does.
    for (came, waits) in [
        (&[R][..], None),
        (&[R, R, R], None),
        (&[W, R], Some((0, true, true))),
        (&[W, R, R], Some((0, true, true))),
        (&[R, W, R], Some((1, true, true))),
        (&[R, W, R, R], Some((1, true, true))),
        (&[W, W, R, R], Some((1, false, true))),
        (&[W, R, W, R], Some((2, false, true))),
        (&[W, R, R, R], Some((0, true, true))),
        // Who writes waits for the last of those who read, and looks when that has gone.
        (&[R, W], Some((0, false, false))),
        (&[R, R, W], Some((1, false, false))),
        (&[W, R, W], Some((1, false, false))),
        (&[R, W, W], Some((1, false, true))),
    ] {
        let node = |(at, mode): (usize, &Mode)| {
            Node::new(owner(u8::try_from(at).unwrap()), *mode, i32::try_from(at).unwrap())
        };
        let nodes: Vec<_> = came.iter().enumerate().map(node).collect();
        let mut names: Vec<_> = nodes.iter().map(Node::name).collect();
        let last = came.len() - 1;
        let expected = waits.map_or(NodePosition::Admitted, |(at, end_admits, pass_admits)| {
            NodePosition::Behind(Barrier { name: names[at].clone(), end_admits, pass_admits })
        });
        for _ in 0..came.len() {
            names.rotate_left(1);
            assert_eq!(Listing::new(names.clone(), false).place_of(&nodes[last]), expected, "{came:?}");
        }
    }
}

/// Of those who came, whoever the rule admits hold: the first, and all who share with it up to the next that does not.
#[test]
fn holders_are_those_before_the_first_waiter() {
    let name = |mode, number| Node::new(owner(number), mode, number.into()).name();
    for (came, holding) in [
        (vec![], 0),
        (vec![name(Mode::EXCLUSIVE, 1), name(Mode::SHARED, 2)], 1),
        (
            vec![
                name(Mode::SHARED, 1),
                name(Mode::SHARED, 2),
                name(Mode::EXCLUSIVE, 3),
                name(Mode::SHARED, 4),
            ],
            2,
        ),
        (vec![name(Mode::SHARED, 1), "lock-0000000002".to_owned(), name(Mode::SHARED, 3)], 1),
        (vec!["lock-0000000001".to_owned(), "lock-0000000002".to_owned()], 1),
        (vec![name(Mode::SHARED, 1), "config".to_owned(), name(Mode::SHARED, 2)], 2),
    ] {
        let mut listed = came.clone();
        listed.reverse();
        let listing = Listing::new(listed, false);
        let expected: Vec<_> = came.iter().filter(|child| *child != "config").take(holding).collect();
        assert_eq!(listing.holding(), expected);
    }
}

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
                Node::new(owner, Mode::EXCLUSIVE, start + i32::from(*step))
            })
            .collect();
        let mut names: Vec<_> = nodes.iter().map(Node::name).collect();
        names.reverse();
        let listing = Listing::new(names, false);
        for (at, node) in nodes.iter().enumerate() {
            let expected = match at.checked_sub(1) {
                None => NodePosition::Admitted,
                Some(before) => {
                    NodePosition::Behind(barrier(&nodes[before], before == 0))
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

/// The namespace node may have been there before.
#[test]
fn foreign_data_is_no_format() {
    for data in [&b"of mine"[..], b"", b"leasehold 1"] {
        understood(data).unwrap();
    }
}
