//! Whoever lets go of a lock and takes it again, while others come and go, and so does the directory.

use proptest::prelude::*;

use super::*;
use crate::keys::Sequence;

#[derive(Clone, Debug)]
enum Event {
    /// A client goes on, in some mode, until it waits, or has let go so many times.
    Cycles(usize, Mode),
    /// So often it gives up what it waits for, and comes again.
    GivesUp(usize),
    /// The directory goes, and so many others come to the next one.
    Anew(usize),
    /// So it does under the feet of somebody, who lets go afterwards.
    LosesItsPlace(usize),
    Answer(Fate, usize),
    Advance,
    Release(Fate, usize),
    ComesBack(Mode),
    /// Comes again and tries, one message at a time.
    ComesToTry(Mode),
    /// Lists during its hold.
    Lists(usize),
    /// Tries; so many others come during the hold, it lists, lets go and tries again.
    ListsBeside(usize),
    /// Comes again and tries; after the first listing the directory goes, or not, and so many others come.
    Tries(Mode, bool, usize),
    Reap,
    StrangersCome(usize),
    /// Somebody else shares the lock, and stays; a client shares it so many times.
    SharesBeside(usize),
    StrangerGoes,
    Reconnect(bool),
    Abandon,
    Expire,
    DeleteByHand,
    StraysArrive,
    AskAgain,
    ComesTooLate,
    /// Another one asks in the same session.
    ComesBeside,
    /// That one lets go so many times, in a directory that others come to, before the first one's node is made.
    Overtakes(usize, usize),
}

fn event() -> impl Strategy<Value = Event> {
    let fate = prop_oneof![
        6 => Just(Fate::Done),
        1 => Just(Fate::Unheard),
        1 => Just(Fate::Late),
        1 => Just(Fate::Lost),
    ];
    prop_oneof![
        6 => (1_usize..4).prop_map(|times| Event::Cycles(times, Mode::EXCLUSIVE)),
        2 => (1_usize..4).prop_map(Event::GivesUp),
        3 => (1_usize..4).prop_map(Event::Anew),
        2 => (1_usize..4).prop_map(Event::LosesItsPlace),
        5 => (fate, 0_usize..4).prop_map(|(fate, lag)| Event::Answer(fate, lag)),
        2 => Just(Event::Advance),
        3 => (prop_oneof![3 => Just(Fate::Done), 1 => Just(Fate::Unheard)], 0_usize..4)
            .prop_map(|(fate, lag)| Event::Release(fate, lag)),
        3 => Just(Event::ComesBack(Mode::EXCLUSIVE)),
        3 => Just(Event::Reap),
        3 => (1_usize..4).prop_map(Event::StrangersCome),
        2 => Just(Event::StrangerGoes),
        2 => any::<bool>().prop_map(Event::Reconnect),
        1 => Just(Event::Abandon),
        2 => Just(Event::Expire),
        2 => Just(Event::DeleteByHand),
        1 => Just(Event::StraysArrive),
        2 => Just(Event::AskAgain),
        1 => Just(Event::ComesTooLate),
        1 => Just(Event::ComesBeside),
        2 => (1_usize..4, 1_usize..4).prop_map(|(times, strangers)| Event::Overtakes(times, strangers)),
    ]
}

fn event_with_sharing() -> impl Strategy<Value = Event> {
    prop_oneof![
        10 => event(),
        2 => (1_usize..4).prop_map(|times| Event::Cycles(times, Mode::SHARED)),
        1 => Just(Event::ComesBack(Mode::SHARED)),
        1 => (1_usize..4).prop_map(Event::SharesBeside),
    ]
}

fn event_with_tries() -> impl Strategy<Value = Event> {
    let mode = || prop_oneof![3 => Just(Mode::EXCLUSIVE), 1 => Just(Mode::SHARED)];
    let fate = prop_oneof![8 => Just(Fate::Done), 1 => Just(Fate::Unheard), 1 => Just(Fate::Late), 1 => Just(Fate::Lost)];
    let tries = (mode(), any::<bool>(), 0_usize..4);
    prop_oneof![
        4 => event_with_sharing(),
        2 => tries.prop_map(|(mode, anew, others)| Event::Tries(mode, anew, others)),
        2 => mode().prop_map(Event::ComesToTry),
        1 => (0_usize..4).prop_map(Event::Lists),
        1 => (0_usize..3).prop_map(Event::ListsBeside),
        4 => (fate, 0_usize..4).prop_map(|(fate, lag)| Event::Answer(fate, lag)),
        1 => Just(Event::Release(Fate::Done, 0)),
    ]
}

type Script = (usize, Vec<(usize, Event)>);

fn script(event: impl Strategy<Value = Event>) -> impl Strategy<Value = Script> {
    (1_usize..3, prop::collection::vec((0..3_usize, event), 0..40))
}

fn play((clients, events): &Script, mutant: Option<Mutant>) -> Result<World, TestCaseError> {
    let mut world = World::new(*clients, 0, mutant);
    for (back, event) in events {
        // Mostly whoever came last: the others have come again as somebody else.
        let at = world.clients.len().saturating_sub(1 + back);
        match event {
            Event::Cycles(times, mode) => world.cycles(at, *times, *mode)?,
            Event::GivesUp(times) => world.gives_up(at, *times)?,
            Event::Anew(strangers) => world.begins_anew(*strangers),
            Event::LosesItsPlace(strangers) => {
                let at = world.arrives(at, Mode::EXCLUSIVE)?;
                world.delete_by_hand(at);
                world.begins_anew(*strangers);
                world.release(at);
            }
            Event::Answer(fate, lag) => world.answer(at, *fate, *lag),
            Event::Advance => world.advance(at),
            Event::Release(fate, lag) => world.releases(at, *fate, *lag),
            Event::ComesBack(mode) => world.comes_back(at, *mode),
            Event::Lists(lag) => world.lists_during_hold(at, *lag),
            Event::ListsBeside(others) => {
                let at = world.tries(at, Mode::EXCLUSIVE, false, 0)?;
                (0..*others).for_each(|_| world.stranger_comes());
                world.lists_during_hold(at, 0);
                world.release(at);
                world.tries(at, Mode::EXCLUSIVE, false, 0)?;
            }
            Event::ComesToTry(mode) => world.comes_back_with(Patience::Tries, at, *mode),
            Event::Tries(mode, anew, others) => drop(world.tries(at, *mode, *anew, *others)?),
            Event::Reap => world.reap(),
            Event::StrangersCome(count) => (0..*count).for_each(|_| world.stranger_comes()),
            Event::SharesBeside(times) => {
                world.other_comes(Mode::SHARED);
                world.cycles(at, *times, Mode::SHARED)?;
            }
            Event::StrangerGoes => world.stranger_goes(),
            Event::Reconnect(lost) => world.reconnect(at, *lost),
            Event::Abandon => world.abandon(at),
            Event::Expire => world.expire(at),
            Event::DeleteByHand => world.delete_by_hand(at),
            Event::StraysArrive => world.strays_arrive(at),
            Event::AskAgain => world.ask_again(at),
            Event::ComesTooLate => world.comes_too_late(at),
            Event::ComesBeside => drop(world.comes_beside(at)),
            Event::Overtakes(times, strangers) => world.overtakes(at, *times, *strangers)?,
        }
        world.check()?;
    }
    world.calm_down()?;
    Ok(world)
}

impl World {
    /// Takes the lock and lets go of it, until somebody else holds it.
    fn cycles(&mut self, mut at: usize, times: usize, mode: Mode) -> Result<(), TestCaseError> {
        for _ in 0..times {
            at = self.arrives(at, mode)?;
            self.release(at);
        }
        Ok(())
    }

    /// Queues behind others, and gives that up.
    fn gives_up(&mut self, mut at: usize, times: usize) -> Result<(), TestCaseError> {
        for _ in 0..times {
            at = self.arrives(at, Mode::EXCLUSIVE)?;
            self.abandon(at);
            self.goes_on(at)?;
        }
        Ok(())
    }

    /// Comes again, if whoever it is may, and goes on until it holds or waits; as whom.
    fn arrives(&mut self, at: usize, mode: Mode) -> Result<usize, TestCaseError> {
        let before = self.clients.len();
        self.ask_again(at);
        self.comes_back(at, mode);
        let at = if self.clients.len() > before { before } else { at };
        self.goes_on(at)?;
        Ok(at)
    }

    /// Comes again and tries, while others come, or another directory does; as whom.
    fn tries(&mut self, at: usize, mode: Mode, anew: bool, others: usize) -> Result<usize, TestCaseError> {
        let before = self.clients.len();
        self.comes_back_with(Patience::Tries, at, mode);
        let at = if self.clients.len() > before { before } else { at };
        self.answer(at, Fate::Done, 0);
        if anew {
            self.reap();
        }
        (0..others).for_each(|_| self.stranger_comes());
        self.goes_on(at)?;
        Ok(at)
    }

    /// Comes again, and another one of its session takes the lock before.
    fn overtakes(&mut self, at: usize, times: usize, strangers: usize) -> Result<(), TestCaseError> {
        let before = self.clients.len();
        self.comes_back(at, Mode::EXCLUSIVE);
        let first = if self.clients.len() > before { before } else { at };
        self.reap();
        let beside = self.comes_beside(first);
        self.cycles(beside, times, Mode::EXCLUSIVE)?;
        (0..strangers).for_each(|_| self.stranger_comes());
        self.goes_on(first)
    }

    fn begins_anew(&mut self, strangers: usize) {
        self.reap();
        (0..strangers).for_each(|_| self.stranger_comes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(Depth::of_run().pick(500, 2_000, 100_000)))]

    /// zk.untouched-1 to zk.untouched-3, and zk.contender-1 with them: one holder, nothing left behind, nobody waits
    /// for ever.
    #[test]
    fn returning_client_excludes_and_leaves_nothing(script in prop_oneof![
        script(event()),
        script(event_with_sharing()),
        script(event_with_tries()),
    ]) {
        play(&script, None)?;
    }
}

/// Alone, two requests are enough from the third time on: the node is made, and deleted.
#[test]
fn sole_contender_reads_twice() {
    let mut world = World::new(1, 0, None);
    let mut asked = Vec::new();
    for at in 0..6 {
        asked.push(world.clients[at].asked.clone().unwrap());
        world.answer(at, Fate::Done, 0);
        assert!(matches!(world.clients[at].end, Some(End::Held(_))), "{at}");
        world.release(at);
        world.comes_back(at, Mode::EXCLUSIVE);
    }
    let directory = world.directory.made(0).unwrap();
    let back = |number| Ask::Return(Next { number: Sequence::new(number), directory });
    assert_eq!(asked, [&[Ask::Enter, Ask::Enter][..], &[2, 3, 4, 5].map(back)].concat());
}

/// A change before a node is made, and whether its contender holds by the predicted number all the same.
type Change = (fn(&mut World), bool);

const CHANGES: [Change; 5] = [
    (|_| {}, true),
    (World::stranger_comes, false),
    (
        |world| {
            world.stranger_comes();
            world.stranger_goes();
        },
        false,
    ),
    // The same number of another directory.
    (
        |world| {
            world.reap();
            (0..2).for_each(|_| world.stranger_comes());
        },
        false,
    ),
    // The new watch is on the same directory.
    (|world| world.reconnect(world.clients.len() - 1, true), true),
];

impl World {
    /// After a change the last client is answered: it holds, or lists.
    fn goes_on_after(&mut self, (change, holds): Change) {
        let at = self.clients.len() - 1;
        assert!(matches!(self.clients[at].asked, Some(Ask::Return(_))));
        change(self);
        self.answer(at, Fate::Done, 0);
        self.check().unwrap();
        assert_eq!(self.clients[at].end.is_some(), holds);
        assert_eq!(self.clients[at].asked, (!holds).then_some(Ask::List));
        self.calm_down().unwrap();
    }
}

/// After an exclusive hold a waiting contender and the first try make their node at once, and hold by the next number of
/// the same directory.
#[test]
fn first_node_after_a_hold_proves_it_alone() {
    for patience in [Patience::Waits, Patience::Tries] {
        for change in CHANGES {
            let mut world = World::new(1, 0, None);
            world.cycles(0, 2, Mode::EXCLUSIVE).unwrap();
            world.comes_back_with(patience, 1, Mode::EXCLUSIVE);
            world.goes_on_after(change);
        }
    }
}

/// A try lists first after a hold whose end was not confirmed, and after a shared one.
#[test]
fn other_tries_list_first() {
    for (mode, fate) in [(Mode::EXCLUSIVE, Fate::Unheard), (Mode::SHARED, Fate::Done)] {
        let mut world = World::new(1, 0, None);
        world.cycles(0, 2, Mode::EXCLUSIVE).unwrap();
        world.comes_back_with(Patience::Tries, 1, mode);
        world.goes_on(2).unwrap();
        world.releases(2, fate, 0);
        world.comes_back_with(Patience::Tries, 2, Mode::EXCLUSIVE);
        assert_eq!(world.clients[3].asked, Some(Ask::List), "{mode:?} {fate:?}");
    }
}

/// Who asked before another one of its session goes by what was known when it asked: by its turn the directory is
/// another one, and known again.
#[test]
fn overtaken_entry_reads_again() {
    let mut world = World::new(1, 0, None);
    world.cycles(0, 3, Mode::EXCLUSIVE).unwrap();
    world.comes_back(2, Mode::EXCLUSIVE);
    assert!(matches!(world.clients[3].asked, Some(Ask::Return(_))));
    world.reap();
    let beside = world.comes_beside(3);
    world.cycles(beside, 2, Mode::EXCLUSIVE).unwrap();
    world.stranger_comes();
    world.answer(3, Fate::Done, 0);
    world.check().unwrap();
    assert_eq!(world.clients[3].asked, Some(Ask::List));
    world.calm_down().unwrap();
}

/// Whoever has shared the lock knows nothing of who is older, and whoever is about to takes the number that would have
/// counted: both look, and so does who is alone after that, in the same flight.
#[test]
fn sharer_reads_first() {
    let mut world = World::new(1, 0, None);
    world.cycles(0, 3, Mode::EXCLUSIVE).unwrap();
    let mut asked = Vec::new();
    let mut comes = |world: &mut World, at: usize, mode| {
        world.comes_back(at, mode);
        asked.push(world.clients[at + 1].asked.clone().unwrap());
        world.answer(at + 1, Fate::Done, 0);
        world.check().unwrap();
    };
    comes(&mut world, 2, Mode::SHARED);
    world.release(3);
    comes(&mut world, 3, Mode::EXCLUSIVE);
    world.release(4);
    world.other_comes(Mode::SHARED);
    for at in 4..7 {
        comes(&mut world, at, Mode::SHARED);
        assert!(matches!(world.clients[at + 1].end, Some(End::Held(_))), "{at}");
        world.release(at + 1);
    }
    comes(&mut world, 7, Mode::EXCLUSIVE);
    assert!(world.clients[8].end.is_none(), "it holds beside one who shares");
    assert_eq!(asked, vec![Ask::Enter; 6]);
    world.calm_down().unwrap();
}

/// A try that gets the number which its listing predicts holds, in either mode; with any other number, or in another
/// directory, it lists again.
#[test]
fn try_holds_with_the_listed_number() {
    for mode in [Mode::EXCLUSIVE, Mode::SHARED] {
        for change in CHANGES {
            let mut world = World::new(1, 0, None);
            world.cycles(0, 1, Mode::EXCLUSIVE).unwrap();
            world.stranger_comes();
            world.stranger_goes();
            world.comes_back_with(Patience::Tries, 0, mode);
            assert_eq!(world.clients[1].asked, Some(Ask::List));
            world.answer(1, Fate::Done, 0);
            world.goes_on_after(change);
        }
    }
}

#[test]
fn mutants_are_caught() {
    let mutants = [
        Mutant::DirectoryNeverWatched,
        Mutant::DirectorySeenBefore,
        Mutant::TakesTheOneAfter,
        Mutant::CountsWhoeverLeft,
        Mutant::CountsWhatIsGone,
        Mutant::WatchOutlivesConnection,
        Mutant::WatchOutlivesSession,
    ];
    assert_caught(mutants, &script(event()), play);
    assert_caught([Mutant::CountsWhoShared], &script(event_with_sharing()), play);
    let of_tries = [
        Mutant::AnyDirectory,
        Mutant::CountsOneMore,
        Mutant::CountsChanges,
        Mutant::TakesAnyNumber,
        Mutant::CountsBesideOthers,
        Mutant::TakesTheOneAfter,
        Mutant::CountsWhoShared,
        Mutant::CountsWhoeverLeft,
        Mutant::DirectoryNeverWatched,
        Mutant::DirectorySeenBefore,
    ];
    assert_caught(of_tries, &script(event_with_tries()), play);
}
