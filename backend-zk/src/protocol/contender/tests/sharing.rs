//! Those who share the lock: who waits for whom, and what a release costs those it lets in.

use proptest::prelude::*;

use super::*;

const W: Mode = Mode::EXCLUSIVE;
const R: Mode = Mode::SHARED;

/// Any of them may share; numbers that last, and nothing goes wrong that nobody is told of.
fn script() -> impl Strategy<Value = Script> {
    let modes = prop::collection::vec(prop::sample::select(vec![W, R]), CLIENTS);
    (Just(0), Just(false), modes, prop::collection::vec((0..2 * CLIENTS, event()), 60..200))
}

fn node(number: u8, mode: Mode) -> Node {
    Node::new(OwnerId::from_random([number; 16]), mode, number.into())
}

fn held(me: &Node) -> Step {
    Step::End(End::Held(Mine { node: me.clone(), czxid: 9 }))
}

/// Beside others who share the lock it is held at once, by who tries, too; behind one who waits for it alone it is not.
#[test]
fn sharer_joins_other_sharers() {
    let (reader, writer, me) = (node(1, R), node(2, W), node(3, R));
    for mut contender in [entering(Patience::Tries), entering(Patience::Waits)] {
        assert_eq!(contender.answered(entered_among(&me, &[&reader.name()])), held(&me));
    }
    let mut contender = entering(Patience::Tries);
    let answer = entered_among(&me, &[&reader.name(), &writer.name()]);
    assert_eq!(contender.answered(answer), Step::Ask(Ask::GiveWay(me, reader.name())));
    assert_eq!(contender.answered(Ok(Said::Done)), Step::End(End::Busy(reader.name())));
}

/// One release lets in all who share and come next, without a request of theirs, whether it passes the lock on or not;
/// and nobody behind the next who does not.
#[test]
fn one_release_lets_in_all_who_share() {
    const READERS: usize = 101;
    // The fourth of all is one that does not say that it passes.
    for (writer, passes) in [(0, true), (3, false)] {
        let mut world = World::new(writer + 1, 0, None);
        for at in 0..=writer {
            world.release(at.saturating_sub(1));
            world.answer(at, Fate::Done, 0);
        }
        let first = writer + 1;
        for mode in [R; READERS].into_iter().chain([W, R]) {
            let at = world.comes_as(mode);
            (0..2).for_each(|_| world.answer(at, Fate::Done, 0));
        }
        world.check().unwrap();
        assert_eq!(world.holders(), [writer]);
        let passed = world.directory.passes.len();
        world.release(writer);
        assert_eq!(world.directory.passes.len() > passed, passes);
        for at in first..world.clients.len() {
            world.advance(at);
            assert_eq!(world.clients[at].asked, None, "{at}");
        }
        assert_eq!(world.holders(), Vec::from_iter(first..first + READERS));
        world.calm_down().unwrap();
        assert_eq!(world.held.len(), first + READERS + 2);
    }
}

#[test]
fn mutants_are_caught() {
    let mutants = [
        Mutant::SharedPass,
        Mutant::OldestIsTheBarrier,
        Mutant::ReadersPassWriters,
        Mutant::ReadersWaitForReaders,
        Mutant::StrangersShare,
        Mutant::PredecessorIsEnough,
        Mutant::TrustsStrangers,
        Mutant::LeaverPasses,
        Mutant::EndIsPass,
        Mutant::OwnNeverWatched,
        Mutant::NoListingAfterReconnect,
    ];
    assert_caught(mutants, &script(), play);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(Depth::of_run().pick(250, 1_000, 50_000)))]

    /// Under everything at once, but for faults that nobody is told of.
    #[test]
    fn sharer_that_fits_has_its_turn(script in script()) {
        play(&script, None)?;
    }
}

proptest! {
    /// Who waits for many that share looks once for each that was the nearest when it went: once if they go in order,
    /// and never more often than there were.
    #[test]
    fn waiter_for_many_reads_when_the_nearest_leaves(
        order in (1_usize..20).prop_flat_map(|readers| Just(Vec::from_iter(0..readers)).prop_shuffle()),
    ) {
        let mut world = World::of(&vec![R; order.len()], 0, None);
        (0..order.len()).for_each(|at| world.answer(at, Fate::Done, 0));
        let writer = world.comes_as(W);
        let (mut looks, mut watches) = (0, 0);
        let mut goes_on = |world: &mut World| {
            world.advance(writer);
            while let Some(asked) = world.clients[writer].asked.clone() {
                looks += usize::from(asked == Ask::List);
                watches += usize::from(matches!(asked, Ask::Watch(_)));
                world.answer(writer, Fate::Done, 0);
            }
        };
        goes_on(&mut world);
        let mut nearest = 0;
        for (gone, at) in order.iter().enumerate() {
            prop_assert!(world.clients[writer].end.is_none());
            nearest += usize::from(order[gone..].iter().max() == Some(at));
            world.release(*at);
            goes_on(&mut world);
            world.check()?;
        }
        prop_assert!(matches!(world.clients[writer].end, Some(End::Held(_))));
        prop_assert_eq!((looks, watches), (nearest, nearest));
    }
}
