//! The rules one by one, as tables: what is asked in each phase, and what is written in each step.

use leasehold_core::backend::TokenBase;
use leasehold_core::backend::stage::{Phase, Side};

use super::super::Pair;
use super::super::contender::{Contender, End, Step};
use super::super::hold::PairHold;
use super::super::parts::Act::{Ask, Drop, Release};
use super::super::record::{MoveRecord, Seen, Stand};
use super::super::records::Read;
use super::super::repair::{self, Known, Repair};
use super::super::tokens::{WIDTH, Window};
use super::super::transition::{Task, Transition, Way};
use super::super::view::View;
use Phase::{Both, Drain, New, Old, Shadow};

fn none() -> TokenBase {
    TokenBase::new(0, 10, None)
}

fn stand(phase: Phase) -> Stand {
    let first = Window::first(none()).unwrap();
    match phase {
        Old | Shadow => Stand { phase, epoch: 0, window: first },
        Both | Drain | New => Stand { phase, epoch: 1, window: first.next(none()).unwrap() },
    }
}

fn seen(version: u64, phase: Phase) -> Seen {
    Seen { version, stand: stand(phase) }
}

fn view(phase: Phase) -> Option<View> {
    Some(View { phase, seen: seen(7, phase) })
}

fn steps(contender: &mut Contender) -> Vec<Step> {
    let mut steps = Vec::new();
    loop {
        let step = contender.step();
        steps.push(step);
        if matches!(step, Step::Wait | Step::Over(_) | Step::Take { .. }) {
            return steps;
        }
    }
}

/// A contender in `phase` that has what it asked for, as far as `held` goes.
fn with(phase: Phase, held: &[Side]) -> Contender {
    let mut contender = Contender::new(view(phase));
    for side in held {
        steps(&mut contender);
        contender.granted(*side, 20);
    }
    contender
}

/// The whole way of an acquisition in each phase.
#[test]
fn each_phase_asks_in_its_order() {
    let of = |phase, raw| Step::Take { counter: stand(phase).counter(raw).unwrap() };

    let mut old = with(Old, &[]);
    assert_eq!(steps(&mut old), [Step::Do(Ask(Side::Old)), Step::Wait]);
    old.granted(Side::Old, 20);
    assert_eq!(steps(&mut old), [of(Old, 20)]);

    let mut shadow = with(Shadow, &[Side::Old]);
    assert_eq!(steps(&mut shadow), [Step::Read, Step::Wait]);
    shadow.read();
    assert_eq!(steps(&mut shadow), [of(Shadow, 20)]);

    let mut both = with(Both, &[Side::Old]);
    assert_eq!(steps(&mut both), [Step::Do(Ask(Side::New)), Step::Read, Step::Wait]);
    both.granted(Side::New, 30);
    assert_eq!(steps(&mut both), [Step::Wait]);
    both.read();
    assert_eq!(steps(&mut both), [of(Both, 30)]);

    let mut drain = with(Drain, &[Side::Old]);
    assert_eq!(steps(&mut drain), [Step::Do(Ask(Side::New)), Step::Wait]);
    drain.granted(Side::New, 30);
    assert_eq!(steps(&mut drain), [of(Drain, 30)]);

    let mut new = with(New, &[]);
    assert_eq!(steps(&mut new), [Step::Do(Ask(Side::New)), Step::Wait]);
    new.granted(Side::New, 30);
    assert_eq!(steps(&mut new), [of(New, 30)]);
    assert_eq!(steps(&mut Contender::new(None)), [Step::Wait], "without a view nothing is asked");
}

/// A store that is left and cannot be reached is passed over in `drain`, and ends an acquisition before that.
#[test]
fn only_drain_goes_on_without_the_old_store() {
    let mut drain = with(Drain, &[]);
    steps(&mut drain);
    drain.failed(Side::Old, true);
    assert_eq!(steps(&mut drain), [Step::Do(Ask(Side::New)), Step::Wait]);
    drain.viewed(view(Both));
    let back = [Step::Do(Drop(Side::New)), Step::Do(Ask(Side::Old)), Step::Wait];
    assert_eq!(steps(&mut drain), back, "and asked for again when it is needed");
    for (phase, away) in [(Old, true), (Shadow, true), (Both, true), (Drain, false)] {
        let mut contender = with(phase, &[]);
        steps(&mut contender);
        contender.failed(Side::Old, away);
        assert_eq!(steps(&mut contender), [Step::Over(End::Failed(Side::Old))], "{phase}");
    }
}

/// A client that ends without the lock has released everything, the new store's lock first.
#[test]
fn ended_client_releases_everything() {
    let mut busy = with(Both, &[Side::Old]);
    steps(&mut busy);
    busy.busy(Side::New);
    assert_eq!(steps(&mut busy), [Step::Do(Release(Side::Old)), Step::Wait]);
    busy.gone(Side::Old);
    assert_eq!(steps(&mut busy), [Step::Over(End::Busy(Side::New))]);

    let mut unwanted = with(Both, &[Side::Old]);
    steps(&mut unwanted);
    unwanted.unwanted();
    assert_eq!(steps(&mut unwanted), [Step::Do(Drop(Side::New)), Step::Do(Release(Side::Old)), Step::Wait]);

    let mut outside = with(New, &[]);
    steps(&mut outside);
    outside.granted(Side::New, 1);
    assert_eq!(steps(&mut outside), [Step::Do(Release(Side::New)), Step::Wait], "below its window");
    outside.gone(Side::New);
    assert_eq!(steps(&mut outside), [Step::Do(Ask(Side::New)), Step::Wait], "there is a later number");
    outside.granted(Side::New, 2);
    assert_eq!(steps(&mut outside), [Step::Do(Release(Side::New)), Step::Wait], "below it again");
    outside.gone(Side::New);
    assert_eq!(steps(&mut outside), [Step::Over(End::Outside)]);
}

/// A client with the new store's lock alone releases it before it waits for the old one's (contender-1).
#[test]
fn new_lock_alone_is_released_before_waiting() {
    for phase in [Shadow, Both] {
        let mut contender = with(Drain, &[]);
        steps(&mut contender);
        contender.failed(Side::Old, true);
        steps(&mut contender);
        contender.granted(Side::New, 30);
        contender.viewed(view(phase));
        assert_eq!(contender.step(), Step::Do(Release(Side::New)), "{phase}");
        contender.gone(Side::New);
        assert_eq!(steps(&mut contender)[0], Step::Do(Ask(Side::Old)), "{phase}");
    }
}

/// Only a read that was asked for after the grant counts (contender-2).
#[test]
fn a_read_counts_if_it_was_asked_after_the_grant() {
    let mut contender = with(Shadow, &[Side::Old]);
    steps(&mut contender);
    contender.gone(Side::Old);
    assert_eq!(steps(&mut contender), [Step::Do(Ask(Side::Old)), Step::Wait]);
    contender.granted(Side::Old, 21);
    contender.read();
    assert_eq!(steps(&mut contender), [Step::Read, Step::Wait], "that was asked before the grant");
}

/// Holds go along from phase to phase, gaining first and then giving back; and back again.
#[test]
fn a_hold_goes_along() {
    let mut taken = with(Shadow, &[Side::Old]);
    steps(&mut taken);
    let mut hold = PairHold::of(&taken, view(Shadow));
    assert_eq!((hold.step(), hold.alone(Side::Old)), (None, true));
    hold.viewed(view(Both));
    assert_eq!((hold.step(), hold.step()), (Some(Ask(Side::New)), None));
    hold.failed(Side::New);
    assert_eq!((hold.step(), hold.step()), (Some(Ask(Side::New)), None), "a refused request is repeated");
    hold.granted(Side::New, 30);
    assert!(!hold.alone(Side::Old) && hold.needs(Side::Old) && hold.needs(Side::New));
    hold.viewed(view(Drain));
    assert_eq!((hold.step(), hold.needs(Side::Old)), (None, false));
    hold.viewed(view(New));
    assert_eq!(hold.step(), Some(Release(Side::Old)));
    assert!(hold.gone(Side::Old) && hold.alone(Side::New));
    hold.viewed(view(Both));
    assert_eq!((hold.step(), hold.alone(Side::New)), (Some(Ask(Side::Old)), true));
    hold.granted(Side::Old, 31);
    hold.viewed(view(Shadow));
    assert_eq!(hold.step(), Some(Release(Side::New)));
    assert!(hold.gone(Side::New) && hold.alone(Side::Old));
    hold.let_go();
    assert_eq!((hold.step(), hold.step(), hold.is_gone()), (Some(Release(Side::Old)), None, false));
    hold.gone(Side::Old);
    assert!(hold.is_gone());
}

/// What is not needed may be lost; what is ends the hold, and the rest of it is given back (hold-2, hold-3).
#[test]
fn a_hold_ends_with_what_it_needs() {
    let both = |phase| {
        let mut hold = PairHold::of(&with(Both, &[Side::Old, Side::New]), view(phase));
        assert!(hold.parts.held(Side::Old) && hold.parts.held(Side::New) && hold.step().is_none());
        hold
    };
    for (phase, lost, goes_on) in [
        (Both, Side::Old, false),
        (Both, Side::New, false),
        (Drain, Side::Old, true),
        (Drain, Side::New, false),
    ] {
        let (mut gone, mut unbacked) = (both(phase), both(phase));
        assert_eq!(gone.gone(lost), goes_on, "{phase} {lost:?}");
        assert_eq!(unbacked.unbacked(lost), (goes_on, Some(Release(lost))), "{phase} {lost:?}");
        let rest = if lost == Side::Old { Side::New } else { Side::Old };
        let given_back = if goes_on { None } else { Some(Release(rest)) };
        assert_eq!((gone.step(), unbacked.step()), (given_back, given_back), "{phase} {lost:?}");
    }
    let mut unknown = PairHold::of(&with(Both, &[Side::Old, Side::New]), None);
    assert!(!unknown.gone(Side::Old), "without a view it needs both");
}

/// What an administrator does, everything being granted, until it is done.
fn tasks(way: Way, records: Pair<Option<Seen>>) -> Vec<Task> {
    let mut transition = Transition::new(way);
    let mut tasks = Vec::new();
    loop {
        let task = transition.task();
        if !matches!(task, Task::Read(_)) {
            tasks.push(task);
        }
        match task {
            Task::Read(_) => transition.read(records),
            Task::Measure(_) => transition.measured(none()).expect("there is room"),
            Task::Conform { .. } | Task::Quiet | Task::Raise { .. } => transition.done(),
            Task::Write { expected, .. } => transition.written(Some(expected + 10)),
            Task::Done(_) | Task::Unread(_) => return tasks,
        }
    }
}

/// The whole table of steps, with both records there.
#[test]
fn each_step_does_this_in_this_order() {
    use Task::{Done, Measure, Quiet};
    let offset = stand(Both).window.offset;
    let back = stand(Both).window.next(none()).unwrap();
    let again = Stand { phase: Shadow, epoch: 2, window: back };
    let old = |expected, stand| Task::Write { side: Side::Old, expected, stand };
    let new = |expected, stand| Task::Write { side: Side::New, expected, stand };
    let conform = |side, version| Task::Conform { side, version };
    let raise = |side, base| Task::Raise { side, base };
    let (drained, both) = (stand(Drain), stand(Both));
    let table: [(_, [Phase; 2], &[Task]); 11] = [
        (
            Way::Forth,
            [Old, Old],
            &[Measure(Side::Old), new(2, stand(Shadow)), old(1, stand(Shadow)), Done(Shadow)],
        ),
        (
            Way::Forth,
            [Shadow, Shadow],
            &[
                Measure(Side::New),
                conform(Side::Old, 1),
                conform(Side::New, 2),
                new(2, both),
                old(1, both),
                Done(Both),
            ],
        ),
        (
            Way::Forth,
            [Both, Both],
            &[conform(Side::Old, 1), raise(Side::New, offset), old(1, drained), new(2, drained), Done(Drain)],
        ),
        (Way::Forth, [Drain, Both], &[old(1, drained), new(2, drained), Done(Drain)]),
        (Way::Forth, [Drain, Drain], &[Quiet, new(2, stand(New)), Done(New)]),
        (Way::Forth, [Drain, New], &[Done(New)]),
        (Way::Back, [Drain, New], &[Measure(Side::New), new(2, drained), old(1, drained), Done(Drain)]),
        (Way::Back, [Drain, Drain], &[new(2, both), conform(Side::New, 12), old(1, both), Done(Both)]),
        (
            Way::Back,
            [Both, Both],
            &[Measure(Side::Old), raise(Side::Old, back.offset), old(1, again), Done(Shadow)],
        ),
        (Way::Back, [Shadow, Shadow], &[old(1, stand(Old)), Done(Old)]),
        (Way::Back, [Old, Old], &[Done(Old)]),
    ];
    for (way, [of_old, of_new], expected) in table {
        let records = Pair { old: Some(seen(1, of_old)), new: Some(seen(2, of_new)) };
        assert_eq!(tasks(way, records), expected, "{way:?} from {of_old} and {of_new}");
    }
    assert!(back.low >= both.window.high && back.high >= back.low + WIDTH);
}

/// A write that finds another version begins the step again; nothing of it is done by halves after that.
#[test]
fn a_conflict_begins_the_step_again() {
    let mut transition = Transition::new(Way::Forth);
    let both = Pair { old: Some(seen(1, Both)), new: Some(seen(2, Both)) };
    transition.read(both);
    transition.read(both);
    transition.done();
    transition.done();
    assert!(matches!(transition.task(), Task::Write { side: Side::Old, .. }));
    transition.written(None);
    assert_eq!(transition.task(), Task::Read(Side::New));
    let drained = Pair { old: Some(seen(4, Drain)), new: Some(seen(5, Drain)) };
    transition.read(drained);
    transition.read(drained);
    transition.done();
    assert!(matches!(transition.task(), Task::Write { side: Side::New, expected: 5, .. }));
}

/// After a rollback that was left halfway, the record with the newer window goes on.
#[test]
fn the_record_that_knows_more_goes_on() {
    let high = stand(Drain).window.high + 5;
    let knows = Stand { window: Window { high, ..stand(Drain).window }, ..stand(Both) };
    let records = Pair { old: Some(seen(1, Drain)), new: Some(Seen { version: 2, stand: knows }) };
    for way in [Way::Forth, Way::Back] {
        let written = tasks(way, records).into_iter().filter_map(|task| match task {
            Task::Write { stand, .. } => Some(stand.window.high),
            _ => None,
        });
        assert_eq!(written.collect::<Vec<_>>(), [high, high], "{way:?}");
    }
}

/// A repair goes on from the record that knows more, whatever the store that counts says (repair-2).
#[test]
fn repair_goes_on_from_the_newest_record() {
    let names = Pair { old: "a".to_owned(), new: "b".to_owned() };
    let newest = stand(Drain).window.next(none()).unwrap();
    for side in [Side::Old, Side::New] {
        let read = |at| {
            let window = if at == side { newest } else { stand(Drain).window };
            let stand = Stand { window, ..stand(Drain) };
            let between = names.clone();
            let record =
                MoveRecord { id: 1, side: at, stand, between, since: 0, restored: 0, end: None, met: None };
            Known::Read(Some(Read { version: 1, record }))
        };
        let known = Pair { old: read(Side::Old), new: read(Side::New) };
        let mut repair = Repair::new(names.clone(), 0, 2);
        repair.looked(&known).unwrap();
        repair.alone();
        repair.outlasted();
        repair.looked(&known).unwrap();
        repair.alone();
        repair.measured(none()).unwrap();
        repair.done();
        let repair::Task::Write { record, .. } = repair.task() else { panic!("{repair:?}") };
        assert!(record.stand.window.low >= newest.high, "{side:?}: {record:?}");
    }
}
