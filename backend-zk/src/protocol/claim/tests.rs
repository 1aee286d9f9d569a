//! Claims against a store that does what ZooKeeper may do: answers late or never, requests that are
//! carried out after we stopped waiting, reads that lag behind, watches, sessions that end.

mod model;

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::keys::Sequence;
use model::*;

#[derive(Clone, Debug)]
enum Event {
    Answer(Fate, usize),
    Advance,
    Change,
    Reconnect(bool),
    Release,
    Abandon,
    Expire,
    DeleteByHand,
    StraysArrive,
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
        6 => Just(Event::Advance),
        2 => Just(Event::Change),
        2 => any::<bool>().prop_map(Event::Reconnect),
        3 => Just(Event::Release),
        1 => Just(Event::Abandon),
        1 => Just(Event::Expire),
        1 => Just(Event::DeleteByHand),
        1 => Just(Event::StraysArrive),
    ]
}

type Script = (i32, Vec<(usize, Event)>);

const CLIENTS: usize = 4;

fn script() -> impl Strategy<Value = Script> {
    let start = prop_oneof![Just(0), Just(i32::MAX - 2), any::<i32>()];
    (start, prop::collection::vec((0..CLIENTS, event()), 0..120))
}

fn play((start, events): &Script, mutant: Option<Mutant>) -> Result<World, TestCaseError> {
    let mut world = World::new(CLIENTS, *start, mutant);
    for (at, event) in events {
        let at = *at;
        match event {
            Event::Answer(fate, lag) => world.answer(at, *fate, *lag),
            Event::Advance => world.advance(at),
            Event::Change => world.change(at),
            Event::Reconnect(lost) => world.reconnect(at, *lost),
            Event::Release => world.release(at),
            Event::Abandon => world.abandon(at),
            Event::Expire => world.expire(at),
            Event::DeleteByHand => world.delete_by_hand(at),
            Event::StraysArrive => world.strays_arrive(at),
        }
        world.check()?;
    }
    world.calm_down()?;
    Ok(world)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Z1 to Z4 under everything at once: one holder, nothing left behind, nobody waits for ever.
    #[test]
    fn locks_exclude_and_leave_nothing(script in script()) {
        play(&script, None)?;
    }

    /// First come, first served, across the wrap of the sequence.
    #[test]
    fn locks_are_granted_in_order(start in any::<i32>(), order in prop::collection::vec(0..CLIENTS, 0..40)) {
        let mut world = World::new(CLIENTS, start, None);
        for at in order {
            world.answer(at, Fate::Done, 1);
            world.check()?;
        }
        world.calm_down()?;
        let held = &world.held;
        prop_assert_eq!(held.len(), CLIENTS);
        prop_assert!(held.windows(2).all(|pair| pair[0].1.behind(pair[1].1) < 0), "{:?}", held);
    }

    /// A try never waits, and leaves nothing.
    #[test]
    fn tries_leave_nothing(script in script()) {
        let mut world = World::new(CLIENTS, script.0, None);
        let (claim, step) = Claim::trying(world.clients[0].owner, world.clients[0].session);
        world.clients[0].claim = claim;
        world.step(0, step);
        for (at, event) in &script.1 {
            if let Event::Answer(fate, lag) = event {
                world.answer(*at, *fate, *lag);
            }
            prop_assert!(world.clients[0].watched.is_none());
        }
        world.calm_down()?;
    }
}

/// A node is adopted only if this session owns it, whatever it is called.
#[test]
fn a_node_of_another_session_is_not_ours() {
    for (session, adopted) in [(7, true), (6, false)] {
        let owner = OwnerId::from_random([1; 16]);
        let node = Node::new(owner, Sequence::new(3));
        let (mut claim, _) = Claim::waiting(owner, 7);
        let unknown = Answer::Entered { made: Err(Failure::Unknown), listed: Err(Failure::Unknown) };
        assert_eq!(claim.answered(unknown), Step::Ask(Ask::Barrier));
        assert_eq!(claim.answered(Answer::Done(Ok(()))), Step::Ask(Ask::List));
        let listed = Answer::Listed(Ok(Listing::new(vec![node.name()])));
        assert_eq!(claim.answered(listed), Step::Ask(Ask::Look(node)));
        let next = claim.answered(Answer::Looked(Ok(Owned { session, czxid: 9 })));
        assert_eq!(next, if adopted { Step::Ask(Ask::List) } else { Step::End(End::Lost) });
    }
}

/// Every way to be wrong is caught within two thousand random schedules.
#[test]
fn mutants_are_caught() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let mutants = [
        Mutant::ChangedIsEnded,
        Mutant::PredecessorIsEnough,
        Mutant::AnyListingDecides,
        Mutant::SearchOnce,
        Mutant::NoBarrier,
        Mutant::DeleteOnce,
        Mutant::NoListingAfterReconnect,
    ];
    let mut caught = BTreeMap::new();
    for mutant in mutants {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let scripts = script();
        let at = (0..2_000).find(|_| {
            let script = scripts.new_tree(&mut runner).unwrap().current();
            play(&script, Some(mutant)).is_err()
        });
        caught.insert(format!("{mutant:?}"), at);
    }
    assert!(caught.values().all(Option::is_some), "{caught:?}");
}
