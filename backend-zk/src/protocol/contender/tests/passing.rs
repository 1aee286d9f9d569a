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

/// A pass admits whoever has more contenders ahead, and an end does not.
#[test]
fn a_pass_says_more_than_an_end() {
    let owners = [1, 2, 3].map(|number| OwnerId::from_random([number; 16]));
    let (me, names) = (
        Node::new(owners[0], Mode::EXCLUSIVE, 4),
        [(1, 2), (2, 3)].map(|(at, number)| Node::new(owners[at], Mode::EXCLUSIVE, number).name()),
    );
    for (happening, expected) in [
        (Happening::Changed, Step::End(End::Held(Mine { node: me.clone(), czxid: 9 }))),
        (Happening::Ended, Step::Ask(Ask::List)),
    ] {
        let (mut contender, _) = Contender::new(Patience::Waits, Mode::EXCLUSIVE, None);
        let entered = entered_among(&me, &[&names[0], &names[1]]);
        assert_eq!(contender.answered(entered), Step::Ask(Ask::Watch(names[1].clone())));
        assert_eq!(contender.answered(Ok(Said::Watched { passes: true })), Step::Wait);
        assert_eq!(contender.happens(happening), expected);
    }
}
