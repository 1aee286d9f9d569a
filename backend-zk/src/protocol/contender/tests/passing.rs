//! What is written to the contender ahead, and what that means.

use super::*;

/// What is written to the one ahead is a pass where it says so, and something to look after elsewhere.
#[test]
fn a_change_grants_only_behind_one_that_passes() {
    let (me, other) = (
        Node::new(OwnerId::from_random([1; 16]), Mode::EXCLUSIVE, 4),
        Node::new(OwnerId::from_random([2; 16]), Mode::EXCLUSIVE, 3),
    );
    let mine = Mine { node: me.clone(), czxid: 9 };
    for (ahead, passes, granted) in [
        (other.name(), true, true),
        (other.name(), false, false),
        // Names of others do not say whom they keep out.
        ("lock-0000000003".to_owned(), true, false),
        (other.name().replace("-lock-", "-__READ__"), true, false),
    ] {
        let mut contender = waiting_behind(&me, &ahead, passes);
        let step = contender.happens(Happening::Changed);
        let expected =
            if granted { Step::End(End::Held(mine.clone())) } else { Step::Ask(Ask::Watch(ahead)) };
        assert_eq!(step, expected, "{passes}");
    }
}
