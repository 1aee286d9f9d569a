//! What must not happen, one story each: as the protocol is, nothing is wrong; with what the story is about broken, it is.

use super::world::{Event, Mutant, Setting, TTL, World};

/// Servers 0 to 2, of which the first is ahead of the others.
fn world(mutant: Mutant, ahead: u64) -> World {
    let setting = Setting { servers: 3, clients: 3, apart: ahead, blank: 1, mutant };
    World::new(setting, |at| if at == 0 { ahead } else { 0 })
}

fn shows(mutant: Mutant, ahead: u64, story: fn(&mut World)) {
    for (mutant, is_wrong) in [(Mutant::None, false), (mutant, true)] {
        let mut world = world(mutant, ahead);
        story(&mut world);
        assert_eq!(world.wrong.is_some(), is_wrong, "{mutant:?}: {:?}", world.wrong);
    }
}

/// The client takes the lock with `servers`, and the others hear nothing.
fn takes(world: &mut World, client: usize, servers: &[usize]) {
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

/// A server that came up empty does not vote while a lease that it may have forgotten lives.
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

/// A server that came up empty counts above what the others know.
#[test]
fn a_server_that_forgot_is_told_the_floor() {
    shows(Mutant::FloorNotCopied, 500, |world| {
        takes(world, 1, &[0, 1]);
        world.apply(Event::Leave(1));
        world.deliver_at(&[0, 1], true);
        world.lose_at(2);
        world.apply(Event::Restart(1, false));
        world.recover(1);
        world.apply(Event::Pass(TTL + 1));
        takes(world, 0, &[1, 2]);
        assert!(world.holds(0));
    });
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
