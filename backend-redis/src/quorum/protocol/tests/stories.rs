//! What must not happen, one story each: as the protocol is, nothing is wrong; with what the story is about broken, it is.

use super::events::{Event, Mutant, Setting};
use super::setting;
use super::world::{TTL, World};

/// Servers 0 to 2, of which the first is ahead of the others.
pub(super) fn world(mutant: Mutant, ahead: u64) -> World {
    World::new(Setting { apart: ahead, ..setting(mutant) }, |at| if at == 0 { ahead } else { 0 })
}

pub(super) fn shows(mutant: Mutant, ahead: u64, story: fn(&mut World)) {
    for (mutant, is_wrong) in [(Mutant::None, false), (mutant, true)] {
        let mut world = world(mutant, ahead);
        story(&mut world);
        assert_eq!(world.wrong.is_some(), is_wrong, "{mutant:?}: {:?}", world.wrong);
    }
    ::model::caught("quorum", mutant, "a story");
}

/// The client takes the lock with `servers`, and the others hear nothing.
pub(super) fn takes(world: &mut World, client: usize, servers: &[usize]) {
    world.apply(Event::Start(client));
    world.deliver_at(servers, true);
    for server in (0..3).filter(|server| !servers.contains(server)) {
        world.lose_at(server);
    }
}

/// A token is above those of servers whose clocks are ahead, as it is written where those clocks are not.
#[test]
fn a_token_is_written_before_it_counts() {
    shows(Mutant::NoConfirm, 500, |world| {
        takes(world, 1, &[0, 1]);
        assert!(world.holds(1));
        world.apply(Event::Leave(1));
        world.deliver_at(&[0, 1, 2], true);
        takes(world, 0, &[1, 2]);
        assert!(world.holds(0));
    });
}

/// Less than a majority decides nothing.
#[test]
fn a_minority_elects_nobody() {
    shows(Mutant::MinorityCounts, 0, |world| {
        takes(world, 1, &[0]);
        takes(world, 2, &[1]);
    });
}

/// A server that came up empty gives no vote while a lease that it may have forgotten lives.
#[test]
fn a_server_that_forgot_pauses() {
    shows(Mutant::NoPause, 0, |world| {
        takes(world, 1, &[0, 1]);
        assert!(world.holds(1));
        world.apply(Event::Restart(1, false));
        world.recover(1);
        takes(world, 2, &[1, 2]);
    });
}

/// However long its process has been up: as a spare one, a promoted replica of another server, or one that was emptied.
#[test]
fn a_pause_counts_from_when_a_server_is_met() {
    let forgets: [fn(&mut World); 3] = [
        |world| world.apply(Event::Replace(1)),
        |world| world.apply(Event::Promote(1, 2)),
        |world| world.apply(Event::Empty(1)),
    ];
    for forgets in forgets {
        for (mutant, is_wrong) in [(Mutant::None, false), (Mutant::PausesByUptime, true)] {
            let mut world = world(mutant, 0);
            takes(&mut world, 1, &[0, 1]);
            assert!(world.holds(1));
            forgets(&mut world);
            for _ in 0..2 {
                world.recover(1);
                takes(&mut world, 2, &[1, 2]);
            }
            assert_eq!(world.wrong.is_some(), is_wrong, "{mutant:?}: {:?}", world.wrong);
            if mutant == Mutant::None {
                world.apply(Event::Pass(TTL + 1));
                world.recover(1);
                assert!(!world.is_blank(1));
            }
        }
    }
}

/// Nor does its clock say so alone, which may be set right just after its start.
#[test]
fn a_stepped_clock_ends_no_pause() {
    for mutant in [Mutant::PausesByOneClock, Mutant::PausesByUptime] {
        shows(mutant, 0, |world| {
            takes(world, 1, &[0, 1]);
            world.apply(Event::Restart(1, false));
            world.recover(1);
            world.apply(Event::Step(1));
            world.recover(1);
            takes(world, 2, &[1, 2]);
        });
    }
}

/// A server that comes up with what it has written has forgotten nothing, where that is trusted; one that has another's data
/// has.
#[test]
fn a_copy_of_another_server_is_not_trusted() {
    shows(Mutant::TrustsCopies, 0, |world| {
        world.trusts_disks = true;
        takes(world, 1, &[0, 1]);
        world.apply(Event::Save(0));
        world.apply(Event::Restart(0, true));
        world.recover(0);
        assert!(!world.is_blank(0));
        world.goes(&[Event::Promote(1, 2), Event::Restart(1, true), Event::Recover(1)]);
        takes(world, 2, &[1, 2]);
    });
}

/// Distrust of data is kept with them: of a replica that was promoted, and restarted before its pause has ended. And a disk is
/// trusted only while all others answer, as one of them may be its original.
#[test]
fn a_disk_is_trusted_by_all_or_none() {
    shows(Mutant::ForgetsDistrust, 0, |world| {
        world.trusts_disks = true;
        takes(world, 1, &[0, 1]);
        world.goes(&[Event::Promote(1, 1), Event::Recover(1), Event::Restart(1, true), Event::Recover(1)]);
        takes(world, 2, &[1, 2]);
    });
    shows(Mutant::TrustsWhileOneIsAway, 0, |world| {
        world.trusts_disks = true;
        takes(world, 1, &[0, 1]);
        world.goes(&[Event::Promote(1, 2), Event::Restart(1, true)]);
        world.recover_without(2, 1);
        takes(world, 2, &[1, 2]);
    });
}

/// A vote that came up with the data extends no hold while the server pauses: its clock may be set forward then.
#[test]
fn a_server_that_pauses_extends_no_hold() {
    shows(Mutant::ExtendsWhilePausing, 0, |world| {
        takes(world, 1, &[0, 1]);
        world.goes(&[Event::Save(1), Event::Restart(1, true), Event::Recover(1)]);
        world.goes(&[Event::Pass(TTL - 4), Event::Renew(1)]);
        world.deliver_at(&[0, 1], true);
        world.goes(&[Event::Step(1), Event::Pass(5), Event::Recover(1)]);
        world.lose_at(2);
        takes(world, 2, &[1, 2]);
    });
}

/// What was decided about a server does not count once it was emptied again: the request that ends its pause, the first of two
/// looks, and what the clocks were.
#[test]
fn an_emptied_server_begins_anew() {
    let look = |world: &mut World, times| (0..times).for_each(|_| world.apply(Event::Look(1, true)));
    // How many of its six requests one looker has sent at the beginning, when the pause is over, and when the server was emptied
    // again, after the other looker had ended the pause and somebody has held.
    for steps in [[0, 6, 0], [0, 3, 3], [3, 0, 3]] {
        for (mutant, is_wrong) in [(Mutant::None, false), (Mutant::RunIsEpisode, true)] {
            let mut world = world(mutant, 0);
            world.apply(Event::Empty(1));
            look(&mut world, steps[0]);
            world.apply(Event::Recover(4));
            world.apply(Event::Pass(TTL + 1));
            look(&mut world, steps[1]);
            world.apply(Event::Recover(4));
            world.apply(Event::Start(1));
            [0, 1, 0].into_iter().for_each(|server| world.deliver_of(1, server));
            assert!(world.holds(1));
            world.apply(Event::Empty(1));
            (0..3).for_each(|_| world.apply(Event::Look(4, true)));
            look(&mut world, steps[2]);
            world.deliver_of(usize::MAX, 1);
            world.apply(Event::Recover(4));
            world.lose_at(2);
            takes(&mut world, 2, &[1, 2]);
            assert_eq!(world.wrong.is_some(), is_wrong, "{steps:?}, {mutant:?}: {:?}", world.wrong);
        }
    }
    ::model::caught("quorum", Mutant::RunIsEpisode, "a story");
}

/// Where witnesses of a pause have restarted or were set back, the clocks that are left do not end it; it begins anew.
#[test]
fn a_pause_needs_most_of_its_clocks() {
    for mutant in [Mutant::PausesByClocksThatAreLeft, Mutant::CountsBackwards] {
        shows(mutant, 0, |world| {
            world.ahead[2] = 3 * TTL;
            takes(world, 1, &[0, 1]);
            world.goes(&[Event::Restart(1, false), Event::Recover(1), Event::Restart(0, true)]);
            world.goes(&[Event::SetBack(2), Event::Step(1), Event::Recover(1)]);
            takes(world, 2, &[1, 2]);
            world.goes(&[Event::Pass(TTL + 1), Event::Recover(1)]);
            assert!(!world.is_blank(1));
        });
    }
}

/// A manager that reaches too few witnesses takes the pause from none that reaches them, or two such managers keep it up.
#[test]
fn a_pause_is_begun_anew_by_a_look_that_could_end_it() {
    for mutant in [Mutant::None, Mutant::BeginsPausesAnew] {
        let mut world = world(mutant, 0);
        world.goes(&[Event::Restart(1, false), Event::RecoverWith(1, 0), Event::Pass(TTL / 2)]);
        world.goes(&[Event::RecoverWith(1, 1), Event::Pass(TTL / 2 + 1), Event::Recover(1)]);
        assert_eq!(world.is_blank(1), mutant != Mutant::None, "{mutant:?}");
    }
    ::model::caught("quorum", Mutant::BeginsPausesAnew, "a story");
}

/// Whoever has agreed on a shorter pause, and meets servers that have forgotten before those who may hold by a longer one, lets
/// nobody in before their locks are over.
#[test]
fn a_pause_is_as_long_as_any_hold() {
    shows(Mutant::PausesByOnesOwnTerms, 0, |world| {
        takes(world, 1, &[0, 1, 2]);
        assert!(world.holds(1));
        (0..3).for_each(|server| world.apply(Event::Restart(server, false)));
        for manager in [1, 0, 1] {
            world.manager = manager;
            (0..3).for_each(|server| world.recover(server));
        }
        world.apply(Event::Pass(TTL / 4 + 1));
        (0..3).for_each(|server| world.recover(server));
        takes(world, 2, &[0, 1, 2]);
    });
}

/// What a server has answered before it came up empty does not count any more when it votes again: not beside a request that
/// was long on its way.
#[test]
fn a_vote_of_before_a_restart_does_not_count() {
    shows(Mutant::PausesByTheOthers, 500, |world| {
        takes(world, 1, &[0, 1]);
        world.apply(Event::Leave(1));
        world.deliver_at(&[0, 1, 2], true);
        world.apply(Event::Pass(TTL + 1));
        world.apply(Event::Start(1));
        world.deliver_at(&[1], true);
        world.lose_at(0);
        world.apply(Event::Restart(1, false));
        world.recover(1);
        world.apply(Event::Start(2));
        world.deliver_at(&[0, 1], true);
        world.deliver_at(&[2], true);
        world.deliver_at(&[0, 1, 2], true);
    });
}

/// Nor beside a number that was confirmed after the restart.
#[test]
fn a_vote_of_before_a_restart_is_no_use_to_a_late_confirmation() {
    shows(Mutant::PausesByTheOthers, 0, |world| {
        world.apply(Event::Start(1));
        world.deliver_at(&[0], true);
        (1..3).for_each(|server| world.lose_at(server));
        world.apply(Event::Pass(7));
        world.deliver_at(&[1], true);
        world.lose_at(2);
        world.apply(Event::Restart(1, false));
        world.recover(1);
        world.deliver_at(&[0], true);
        assert!(world.holds(1));
        world.apply(Event::Pass(18));
        world.recover(1);
        world.lose_at(2);
        takes(world, 2, &[1, 2]);
    });
}

/// Nor beside a lease that was renewed after the restart.
#[test]
fn a_pause_covers_what_is_renewed_after_it_began() {
    shows(Mutant::PausesByTheOthers, 0, |world| {
        takes(world, 1, &[0, 1]);
        world.apply(Event::Pass(8));
        world.apply(Event::Renew(1));
        world.deliver_at(&[1], true);
        world.lose_at(2);
        world.apply(Event::Restart(1, false));
        world.recover(1);
        world.deliver_at(&[0], true);
        world.apply(Event::Pass(17));
        world.recover(1);
        world.lose_at(2);
        takes(world, 2, &[1, 2]);
    });
}

/// Where one after the other forgets, none of them votes for what both have forgotten.
#[test]
fn two_servers_forget_one_after_the_other() {
    shows(Mutant::PausesByTheOthers, 0, |world| {
        takes(world, 1, &[0, 1]);
        for server in [0, 1] {
            world.apply(Event::Restart(server, false));
            world.recover(server);
        }
        takes(world, 2, &[1, 2]);
    });
}

/// What the others know is asked when the pause is over: a number may have been confirmed until then.
#[test]
fn the_floor_is_that_of_the_pauses_end() {
    shows(Mutant::AsksBeforeThePauseEnds, 0, |world| {
        world.has_heard(1, 9_000_000);
        world.apply(Event::Start(1));
        world.deliver_at(&[1], true);
        world.lose_at(2);
        world.apply(Event::Restart(1, false));
        world.recover(1);
        world.apply(Event::Pass(TTL - 3));
        world.lose_at(2);
        (0..4).for_each(|_| world.apply(Event::Look(1, true)));
        world.deliver_at(&[0], true);
        assert!(world.holds(1));
        world.apply(Event::Leave(1));
        world.deliver_at(&[0, 1, 2], true);
        world.apply(Event::Pass(4));
        (0..2).for_each(|_| world.apply(Event::Look(1, true)));
        world.deliver_of(usize::MAX, 1);
        world.recover(1);
        takes(world, 0, &[1, 2]);
        assert!(world.holds(0));
    });
}

/// A server that came up empty counts above what the others know, which have noted every number.
#[test]
fn a_server_that_forgot_is_told_the_floor() {
    for mutant in [Mutant::FloorNotCopied, Mutant::NotesNothing] {
        shows(mutant, 500, |world| {
            takes(world, 1, &[0, 1]);
            world.apply(Event::Leave(1));
            world.deliver_at(&[0, 1], true);
            world.lose_at(2);
            world.apply(Event::Restart(1, false));
            world.recover(1);
            world.apply(Event::Pass(TTL + 1));
            world.recover(1);
            takes(world, 0, &[1, 2]);
            assert!(world.holds(0));
        });
    }
}

/// Of two servers that come up empty both are told, each at the end of its own pause, also if the third is away then.
#[test]
fn two_servers_whose_pauses_end_apart_are_told() {
    let mut world = world(Mutant::None, 0);
    for server in [1, 2] {
        world.goes(&[Event::Restart(server, false), Event::Recover(server), Event::Pass(TTL / 2)]);
    }
    world.goes(&[Event::Recover(1), Event::Recover(2)]);
    assert_eq!([1, 2].map(|server| world.is_blank(server)), [false, true]);
    world.apply(Event::Pass(TTL / 2));
    world.recover_without(0, 2);
    assert!(!world.is_blank(2));
    takes(&mut world, 1, &[1, 2]);
    assert!(world.holds(1));
    assert_eq!(world.wrong, None);
}

/// One that came up later is not: it may have voted for what nobody else knows who is there.
#[test]
fn later_server_learns_from_one_that_knows() {
    shows(Mutant::TellsWhoWasNotBlank, 500, |world| {
        (1..3).for_each(|server| world.apply(Event::Restart(server, false)));
        (1..3).for_each(|server| world.recover_without(0, server));
        world.apply(Event::Pass(TTL + 1));
        (1..3).for_each(|server| world.recover_without(0, server));
        takes(world, 1, &[0, 2]);
        assert!(world.holds(1));
        world.apply(Event::Leave(1));
        world.deliver_at(&[0, 1, 2], true);
        world.apply(Event::Restart(2, false));
        world.recover_without(0, 2);
        world.apply(Event::Pass(TTL + 1));
        world.recover_without(0, 2);
        takes(world, 0, &[1, 2]);
    });
}

/// Two servers that come up with what they knew long ago count above their clocks, also for a name that they remember.
#[test]
fn a_floor_is_above_the_clock() {
    shows(Mutant::FloorWithoutTheClock, 0, |world| {
        takes(world, 1, &[0, 1, 2]);
        (1..3).for_each(|server| world.apply(Event::Save(server)));
        for _ in 0..2 {
            world.apply(Event::Leave(1));
            world.deliver_at(&[0, 1, 2], true);
            world.apply(Event::Pass(5));
            takes(world, 1, &[1, 2]);
            assert!(world.holds(1));
        }
        (1..3).for_each(|server| world.apply(Event::Restart(server, true)));
        (1..3).for_each(|server| world.recover(server));
        world.apply(Event::Pass(TTL + 1));
        (1..3).for_each(|server| world.recover(server));
        world.lose_at(0);
        takes(world, 0, &[1, 2]);
        assert!(world.holds(0));
    });
}

/// Whoever was elected with one number, and finds a larger one that counts, takes the lock with that: the smaller may be older
/// than another's.
#[test]
fn a_larger_number_that_counts_is_the_token() {
    let mut world = world(Mutant::None, 500);
    world.has_heard(2, 9_000_000);
    world.apply(Event::Start(1));
    world.deliver_of(1, 1);
    world.deliver_of(1, 0);
    world.apply(Event::ForceAt(1, 1));
    world.apply(Event::Start(2));
    (1..3).for_each(|server| world.deliver_of(2, server));
    assert!(world.holds(2));
    world.apply(Event::Leave(2));
    (1..3).for_each(|server| world.deliver_of(2, server));
    // The vote that it was asked for late, and after that the one that was lost.
    world.deliver_of(1, 2);
    world.deliver_of(1, 1);
    assert_eq!(world.wrong, None);
    world.deliver_of(1, 0);
    assert!(world.holds(1));
    assert_eq!(world.wrong, None);
}

/// A hold that one server has renewed ends with the leases of the others.
#[test]
fn a_hold_ends_with_its_quorum() {
    shows(Mutant::DeadlineOfTheFastest, 0, |world| {
        takes(world, 1, &[0, 1, 2]);
        assert!(world.holds(1));
        world.apply(Event::Pass(TTL / 2));
        world.apply(Event::Renew(1));
        world.deliver_at(&[0], true);
        (1..3).for_each(|server| world.lose_at(server));
        world.apply(Event::Pass(TTL / 2 + 1));
        takes(world, 2, &[1, 2]);
        assert!(world.holds(2));
    });
}

/// A hold whose votes were taken from it is not renewed, also when nobody else has them any more.
#[test]
fn an_old_owner_is_not_voted_on_again() {
    shows(Mutant::RenewsWhatIsGone, 0, |world| {
        takes(world, 1, &[0, 1, 2]);
        world.apply(Event::Force(1));
        takes(world, 2, &[0, 1, 2]);
        assert!(world.holds(2));
        world.apply(Event::Leave(2));
        world.deliver_at(&[0, 1, 2], true);
        world.apply(Event::Pass(1));
        world.apply(Event::Renew(1));
        world.deliver_at(&[0, 1, 2], true);
    });
}

/// What was given back in an earlier round and arrives late ends no vote of a later one.
#[test]
fn a_late_release_ends_no_later_vote() {
    shows(Mutant::GivesBackLaterRounds, 0, |world| {
        takes(world, 1, &[0]);
        takes(world, 2, &[1]);
        // The later of the two sees the earlier one, and gives back what it has.
        world.apply(Event::Pass(4));
        world.deliver_at(&[0], false);
        world.lose_at(2);
        world.apply(Event::Leave(1));
        world.deliver_at(&[0], true);
        for _ in 0..6 {
            world.apply(Event::Pass(2));
            world.deliver_at(&[0, 1], false);
            world.lose_at(2);
        }
        assert!(world.holds(2));
        world.deliver_at(&[1], true);
        takes(world, 0, &[1, 2]);
    });
}
