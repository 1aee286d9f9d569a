//! Contenders against a store that does what ZooKeeper may do: answers late or never, requests that are
//! carried out after we stopped waiting, reads that lag behind or are wrong for good, watches, sessions
//! that end, numbers that do.

mod model;
mod mutants;
mod returns;
mod sharing;
mod trying;

use leasehold_core::{Mode, OwnerId};
use proptest::prelude::*;
use testbed::Depth;

use super::*;
use crate::keys::Node;
use model::*;
use mutants::assert_caught;

#[derive(Clone, Debug)]
enum Event {
    Answer(Fate, usize),
    /// A client asks on until it waits, or has come to its end.
    GoesOn,
    Advance,
    Change,
    ChangeByForce,
    Stands,
    Reconnect(bool),
    Release,
    Abandon,
    Expire,
    DeleteByHand,
    StraysArrive,
    Overdue,
    /// Something goes wrong that nobody is told of; for good, or until somebody looks.
    GoesWrong(bool),
    StrangerComes,
    StrangerGoes,
    /// Whoever has lost its place asks again.
    AskAgain,
    /// The session of a grant has too little left.
    ComesTooLate,
}

fn event() -> impl Strategy<Value = Event> {
    let fate = prop_oneof![
        8 => Just(Fate::Done),
        1 => Just(Fate::Unheard),
        1 => Just(Fate::Late),
        1 => Just(Fate::Lost),
    ];
    prop_oneof![
        12 => (fate, 0_usize..4).prop_map(|(fate, lag)| Event::Answer(fate, lag)),
        4 => Just(Event::GoesOn),
        6 => Just(Event::Advance),
        2 => Just(Event::Change),
        2 => Just(Event::ChangeByForce),
        2 => Just(Event::Stands),
        2 => any::<bool>().prop_map(Event::Reconnect),
        3 => Just(Event::Release),
        1 => Just(Event::Abandon),
        1 => Just(Event::Expire),
        1 => Just(Event::DeleteByHand),
        1 => Just(Event::StraysArrive),
        1 => Just(Event::Overdue),
        1 => any::<bool>().prop_map(Event::GoesWrong),
        1 => Just(Event::StrangerComes),
        1 => Just(Event::StrangerGoes),
        2 => Just(Event::AskAgain),
        1 => Just(Event::ComesTooLate),
    ]
}

/// Where the directory's counter is, whether there are faults that nobody is told of, and how clients hold.
type Script = (i32, bool, Vec<Mode>, Vec<(usize, Event)>);

const CLIENTS: usize = 4;

/// Of the numbers: the half, and what is near the end.
const HALF: i32 = 1 << 30;
const END: i32 = i32::MAX - (1 << 22) + 1;

fn counter() -> impl Strategy<Value = i32> {
    prop_oneof![
        2 => Just(0),
        1 => Just(HALF - 2),
        1 => Just(END - 2),
        1 => Just(i32::MAX - 2),
        1 => 0..=i32::MAX,
    ]
}

fn script() -> impl Strategy<Value = Script> {
    (counter(), any::<bool>(), modes(), prop::collection::vec((0..2 * CLIENTS, event()), 0..120))
}

/// Often all are exclusive.
fn modes() -> impl Strategy<Value = Vec<Mode>> {
    let some = prop::sample::select(vec![Mode::EXCLUSIVE, Mode::SHARED]);
    prop_oneof![Just(vec![Mode::EXCLUSIVE; CLIENTS]), prop::collection::vec(some, CLIENTS),]
}

fn play((start, silent, modes, events): &Script, mutant: Option<Mutant>) -> Result<World, TestCaseError> {
    let mut world = World::of(modes, *start, mutant);
    for (at, event) in events {
        let at = *at % world.clients.len();
        match event {
            Event::Answer(fate, lag) => world.answer(at, *fate, *lag),
            Event::GoesOn => world.goes_on(at)?,
            Event::Advance => world.advance(at),
            Event::Change => world.change(at),
            Event::ChangeByForce => world.change_by_force(at),
            Event::Stands => world.stands(at),
            Event::Reconnect(lost) => world.reconnect(at, *lost),
            Event::Release => world.release(at),
            Event::Abandon => world.abandon(at),
            Event::Expire => world.expire(at),
            Event::DeleteByHand => world.delete_by_hand(at),
            Event::StraysArrive => world.strays_arrive(at),
            Event::Overdue => world.overdue(at),
            Event::GoesWrong(for_good) if *silent => world.goes_wrong(at, *for_good),
            Event::GoesWrong(_) => {}
            Event::StrangerComes => world.stranger_comes(),
            Event::StrangerGoes => world.stranger_goes(),
            Event::AskAgain => world.ask_again(at),
            Event::ComesTooLate => world.comes_too_late(at),
        }
        world.check()?;
    }
    world.calm_down()?;
    Ok(world)
}

/// Without strangers: whoever comes when the numbers are used up finds them new, and holds.
fn renewed(start: i32, mutant: Option<Mutant>) -> Result<(), TestCaseError> {
    let mut world = World::new(CLIENTS, start, mutant);
    world.calm_down()?;
    let ends: Vec<_> = world.clients.iter().map(|client| client.end.clone()).collect();
    prop_assert_eq!(world.held.len(), CLIENTS, "{:?}", ends);
    prop_assert!(world.directory.next < HALF, "the counter is at {}", world.directory.next);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(Depth::of_run().pick(250, 1_000, 50_000)))]

    /// zk.contender-1 to zk.contender-7 under everything at once: who holds fits and is in turn, nothing is left
    /// behind, nobody waits for ever, or in the quiet when the rule admits it.
    #[test]
    fn locks_exclude_and_leave_nothing(script in script()) {
        play(&script, None)?;
    }
}

/// A directory that only we use is made anew in time, and from anywhere near the end of its numbers.
#[test]
fn worn_numbers_begin_anew() {
    for start in [HALF, HALF + 7, END, END + 1_000, i32::MAX - 2, i32::MAX] {
        renewed(start, None).unwrap_or_else(|failed| panic!("from {start}: {failed}"));
    }
}

/// Who keeps a directory in use costs time: past the half of its numbers everybody holds in the end, and
/// near the end of them everybody is refused.
#[test]
fn a_directory_in_use_is_served_until_near_its_end() {
    for (start, served) in [(HALF, true), (END - 100, true), (END - 1, false), (i32::MAX - 1, false)] {
        let mut world = World::new(CLIENTS, start, None);
        world.stranger_comes();
        for at in (0..CLIENTS).cycle().take(100 * CLIENTS) {
            world.answer(at, Fate::Done, 0);
            world.advance(at);
            world.check().unwrap();
        }
        let settled = world.clients.iter().all(|client| client.asked.is_none());
        assert!(settled, "from {start} somebody goes on asking");
        world.calm_down().unwrap();
        for client in &world.clients {
            let held = matches!(client.end, Some(End::Held(_)));
            assert_eq!(
                (held, matches!(client.end, Some(End::WornOut(_)))),
                (served, !served),
                "from {start}: {client:?}"
            );
        }
    }
}

/// Whoever tries, or has no right to remove the directory, asks once whether the numbers can begin anew,
/// and takes them as they are otherwise.
#[test]
fn a_directory_that_stays_is_taken_as_it_is() {
    let owner = OwnerId::from_random([1; 16]);
    let entered = |number| entered_alone(owner, number);
    let (trying, waiting) = (entering(Patience::Tries), entering(Patience::Waits));
    for (mut contender, failure) in [(trying, Failure::Unknown), (waiting, Failure::Refused)] {
        let (node, answer) = entered(HALF);
        assert_eq!(contender.answered(answer), Step::Ask(Ask::Delete(node)));
        assert_eq!(contender.answered(Ok(Said::Done)), Step::Ask(Ask::RemoveDirectory));
        assert_eq!(contender.answered(Err(failure)), Step::Ask(Ask::Enter));
        let (node, answer) = entered(HALF + 1);
        assert_eq!(contender.answered(answer), Step::End(End::Held(Mine { node, czxid: 9 })));
    }
}

#[test]
fn a_number_near_the_end_is_never_held() {
    let owner = OwnerId::from_random([1; 16]);
    for number in [END, i32::MAX, i32::MIN, -5] {
        let mut contender = entering(Patience::Tries);
        let (node, answer) = entered_alone(owner, number);
        assert_eq!(contender.answered(answer.clone()), Step::Ask(Ask::Delete(node.clone())));
        assert_eq!(contender.answered(Ok(Said::Done)), Step::Ask(Ask::RemoveDirectory));
        assert_eq!(contender.answered(Err(Failure::Unknown)), Step::Ask(Ask::Enter));
        assert_eq!(contender.answered(answer), Step::Ask(Ask::Delete(node.clone())));
        assert_eq!(contender.answered(Ok(Said::Done)), Step::End(End::WornOut(node.name())));
    }
}

/// A contender that is about to make its node.
fn entering(patience: Patience) -> Contender {
    let (mut contender, step) = Contender::new(patience, Mode::EXCLUSIVE, None);
    if step == Step::Ask(Ask::List) {
        assert_eq!(contender.answered(Ok(Said::Listed(Listing::default()))), Step::Ask(Ask::Enter));
    }
    contender
}

fn entered_alone(owner: OwnerId, number: i32) -> (Node, Answer) {
    let node = Node::new(owner, Mode::EXCLUSIVE, number);
    (node.clone(), entered_among(&node, &[]))
}

fn entered_among(node: &Node, others: &[&str]) -> Answer {
    Ok(Said::Made(Mine { node: node.clone(), czxid: 9 }, Some(listing(node, others))))
}

/// Of a directory of ours that has `node` and `others`.
fn listing(node: &Node, others: &[&str]) -> Listing {
    Listing::new(others.iter().map(|other| (*other).to_owned()).chain([node.name()]).collect(), true)
}

/// A contender that waits behind one other alone.
fn waiting_behind(node: &Node, ahead: &str, passes: bool) -> Contender {
    let (mut contender, _) = Contender::new(Patience::Waits, Mode::EXCLUSIVE, None);
    let watch = Step::Ask(Ask::Watch(ahead.to_owned()));
    assert_eq!(contender.answered(entered_among(node, &[ahead])), watch);
    assert_eq!(contender.answered(Ok(Said::Watched { passes })), Step::Wait);
    contender
}

/// A contender that waits, and is asking whether the one ahead is there.
fn confirming(node: &Node, ahead: &str) -> Contender {
    let mut contender = waiting_behind(node, ahead, false);
    assert_eq!(contender.happens(Happening::Overdue), Step::Ask(Ask::Confirm(ahead.to_owned())));
    contender
}

/// Nobody holds, or waits, beside a number near the end, be it of somebody who comes later.
#[test]
fn a_number_near_the_end_beside_us_is_the_end_for_all() {
    let owner = OwnerId::from_random([1; 16]);
    for mut contender in [entering(Patience::Tries), entering(Patience::Waits)] {
        let me = Node::new(owner, Mode::EXCLUSIVE, 4);
        let answer = entered_among(&me, &["lock-2147483647"]);
        assert_eq!(contender.answered(answer), Step::Ask(Ask::Delete(me)));
    }
}

/// A directory that somebody else made is not removed: it is served as it is, until near its end.
#[test]
fn a_directory_that_somebody_else_made_is_left_alone() {
    let owner = OwnerId::from_random([1; 16]);
    for mut contender in [entering(Patience::Tries), entering(Patience::Waits)] {
        let mine = Mine { node: Node::new(owner, Mode::EXCLUSIVE, HALF), czxid: 9 };
        let answer = Ok(Said::Made(mine.clone(), Some(Listing::new(vec![mine.node.name()], false))));
        assert_eq!(contender.answered(answer), Step::End(End::Held(mine)));
    }
    for mut contender in [entering(Patience::Tries), entering(Patience::Waits)] {
        let node = Node::new(owner, Mode::EXCLUSIVE, END);
        let listed = Some(Listing::new(vec![node.name()], false));
        let answer = Ok(Said::Made(Mine { node: node.clone(), czxid: 9 }, listed));
        assert_eq!(contender.answered(answer), Step::Ask(Ask::Delete(node.clone())));
        assert_eq!(contender.answered(Ok(Said::Done)), Step::End(End::WornOut(node.name())));
    }
}

/// Who is gone from one directory may come back under the same name in the next.
#[test]
fn session_ends_in_one_directory_only() {
    const AHEAD: &str = "lock-0000000003";
    let owner = OwnerId::from_random([1; 16]);
    let old = Node::new(owner, Mode::EXCLUSIVE, 4);
    let mut contender = confirming(&old, AHEAD);
    assert_eq!(contender.answered(Err(Failure::Absent)), Step::Ask(Ask::List));
    // Our server still shows it; somebody else is near the end.
    let listed = Ok(Said::Listed(listing(&old, &[AHEAD, "lock-2147483647"])));
    assert_eq!(contender.answered(listed), Step::Ask(Ask::Delete(old)));
    assert_eq!(contender.answered(Ok(Said::Done)), Step::Ask(Ask::RemoveDirectory));
    assert_eq!(contender.answered(Ok(Said::Done)), Step::Ask(Ask::Enter));
    let me = Node::new(owner, Mode::EXCLUSIVE, 4);
    let watch = Step::Ask(Ask::Watch(AHEAD.to_owned()));
    assert_eq!(contender.answered(entered_among(&me, &[AHEAD])), watch);
}

#[test]
fn event_during_the_leaders_request_is_kept() {
    const AHEAD: &str = "lock-0000000003";
    let me = Node::new(OwnerId::from_random([1; 16]), Mode::EXCLUSIVE, 4);
    let confirmed = |happening: Option<Happening>| {
        let mut contender = confirming(&me, AHEAD);
        if let Some(happening) = happening {
            assert_eq!(contender.happens(happening), Step::Wait);
        }
        contender.answered(Ok(Said::Done))
    };
    assert_eq!(confirmed(None), Step::Wait);
    assert_eq!(confirmed(Some(Happening::Abandoned)), Step::Ask(Ask::Delete(me.clone())));
    assert_eq!(confirmed(Some(Happening::Reconnected)), Step::Ask(Ask::List));
}

#[test]
fn entry_without_a_node_has_lost_its_place() {
    let me = Node::new(OwnerId::from_random([1; 16]), Mode::EXCLUSIVE, 4);
    let mut contender = waiting_behind(&me, "lock-0000000003", true);
    assert_eq!(contender.happens(Happening::Stands), Step::Ask(Ask::WatchOwn(me.clone())));
    assert_eq!(contender.answered(Err(Failure::Unknown)), Step::Wait);
    assert_eq!(contender.happens(Happening::Stands), Step::Ask(Ask::WatchOwn(me)));
    assert_eq!(contender.answered(Ok(Said::Removed)), Step::End(End::Lost));
}

/// Whoever waits tries sixteen times to remove the directory, with rests, and then takes it as it is.
#[test]
fn the_removal_of_a_directory_is_tried_for_a_while() {
    let owner = OwnerId::from_random([1; 16]);
    let (mut contender, _) = Contender::new(Patience::Waits, Mode::EXCLUSIVE, None);
    let (node, answer) = entered_alone(owner, HALF);
    assert_eq!(contender.answered(answer), Step::Ask(Ask::Delete(node)));
    assert_eq!(contender.answered(Ok(Said::Done)), Step::Ask(Ask::RemoveDirectory));
    for _ in 1..16 {
        let in_use = Err(Failure::Unknown);
        assert_eq!(contender.answered(in_use), Step::Rest(Pause::Brief, Ask::RemoveDirectory));
    }
    assert_eq!(contender.answered(Err(Failure::Unknown)), Step::Ask(Ask::Enter));
    let (node, answer) = entered_alone(owner, HALF + 1);
    assert_eq!(contender.answered(answer), Step::End(End::Held(Mine { node, czxid: 9 })));
}

/// Of many who renew each may remove the directory that one of them has made: nobody is refused for that.
#[test]
fn many_who_renew_refuse_nobody() {
    const MANY_CLIENTS: usize = 60;
    let mut world = World::new(MANY_CLIENTS, HALF, None);
    let answer = |world: &mut World, at: usize| world.answer(at, Fate::Done, 0);
    for at in (0..MANY_CLIENTS).chain(0..MANY_CLIENTS) {
        answer(&mut world, at);
    }
    assert!(world.clients.iter().all(|client| client.asked == Some(Ask::RemoveDirectory)));
    answer(&mut world, 0);
    for at in 1..MANY_CLIENTS {
        // The first one makes the directory anew, and is about to enter.
        answer(&mut world, 0);
        while world.clients[0].asked.as_ref().is_some_and(|asked| *asked != Ask::Enter) {
            answer(&mut world, 0);
        }
        answer(&mut world, at);
    }
    world.calm_down().unwrap();
    assert_eq!(world.held.len(), MANY_CLIENTS);
}

/// Where a directory is never there for long, a try ends, with rests before; who waits goes on, and leaves
/// when nobody wants it.
#[test]
fn a_directory_that_never_stays_ends_a_try() {
    let after_rests = |(mut contender, mut step): (Contender, Step), at_most: usize| {
        let mut rests = 0;
        while rests < at_most && !matches!(step, Step::End(_)) {
            rests += usize::from(matches!(step, Step::Rest(..)));
            step = contender.answered(Err(Failure::Absent));
        }
        (contender, step, rests)
    };
    let (_, step, rests) = after_rests(Contender::new(Patience::Tries, Mode::EXCLUSIVE, None), 1_000);
    assert_eq!((step, rests), (Step::End(End::Refused), 16));
    let (mut waiting, step, rests) =
        after_rests(Contender::new(Patience::Waits, Mode::EXCLUSIVE, None), 1_000);
    assert_eq!((step, rests), (Step::Rest(Pause::Brief, Ask::Enter), 1_000));
    assert_eq!(waiting.happens(Happening::Abandoned), Step::Wait);
    assert_eq!(waiting.answered(Err(Failure::Absent)), Step::End(End::Left));
}

/// A node that may have been made is looked for twice, and held as if it had been told of.
#[test]
fn a_node_that_nobody_told_of_is_looked_for_twice() {
    let node = Node::new(OwnerId::from_random([1; 16]), Mode::EXCLUSIVE, 3);
    for found in [1, 2, 3] {
        let (mut contender, _) = Contender::new(Patience::Waits, Mode::EXCLUSIVE, None);
        assert_eq!(contender.answered(Err(Failure::Unknown)), Step::Ask(Ask::Search));
        if found > 1 {
            assert_eq!(contender.answered(Ok(Said::Done)), Step::Rest(Pause::Request, Ask::Search));
        }
        let (answer, end) = match found {
            3 => (Ok(Said::Done), End::Lost),
            _ => (entered_among(&node, &[]), End::Held(Mine { node: node.clone(), czxid: 9 })),
        };
        assert_eq!(contender.answered(answer), Step::End(end));
    }
}

#[test]
fn mutants_are_caught() {
    let mutants = [
        Mutant::ChangedIsEnded,
        Mutant::PredecessorIsEnough,
        Mutant::AnyListingDecides,
        Mutant::SearchOnce,
        Mutant::NoBarrier,
        Mutant::DeleteOnce,
        Mutant::NoListingAfterReconnect,
        Mutant::WrapAssumed,
        Mutant::EqualIsNotOlder,
        Mutant::NeverOverdue,
        Mutant::OverdueIsGone,
        Mutant::OwnServersWordIsEnough,
        Mutant::NotGivenBack,
        Mutant::SameOwnerAgain,
        Mutant::TrustsStrangers,
        Mutant::LeaverPasses,
        Mutant::EndIsPass,
        Mutant::IgnoresVersion,
        Mutant::OwnNeverWatched,
    ];
    assert_caught(mutants, &script(), play);
    assert!(renewed(HALF, Some(Mutant::NoRenewal)).is_err());
}
