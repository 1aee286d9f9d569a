//! Stories of a namespace as a whole: it is new, or all its servers came up.

use super::events::{Event, Mutant, Setting};
use super::setting;
use super::stories::{shows, takes};
use super::world::{TTL, World};

/// Where all servers came up with their data, and nobody who may hold has met them yet, their terms keep others out.
#[test]
fn terms_of_a_server_that_was_told_are_firm() {
    shows(Mutant::ProposesFirmTerms, 0, |world| {
        takes(world, 1, &[0, 1, 2]);
        (0..3).for_each(|server| world.apply(Event::Restart(server, true)));
        world.manager = 1;
        for pause in [TTL / 4 + 1, 0] {
            (0..3).for_each(|server| world.recover(server));
            world.apply(Event::Pass(pause));
        }
        takes(world, 2, &[0, 1, 2]);
        assert_eq!(world.holds(2), world.mutant != Mutant::None);
    });
}

/// A server was met when the namespace was new. It learns that the namespace is used from a manager that meets it beside
/// servers that were told meanwhile.
#[test]
fn a_server_hears_that_its_namespace_is_used() {
    shows(Mutant::TellsUseWithClocks, 0, |world| {
        (0..3).for_each(|server| world.apply(Event::Restart(server, false)));
        let meets = [0, 1].map(|server| Event::RecoverWith(server, 0));
        world.goes(&meets);
        world.goes(&[Event::Pass(TTL / 2), Event::Recover(2), Event::Pass(TTL / 2)]);
        world.goes(&meets);
        takes(world, 1, &[0, 1]);
        assert!(world.holds(1) && world.is_blank(2));
        world.goes(&[Event::Recover(2), Event::Pass(TTL / 2), Event::Empty(0), Event::Empty(1)]);
        world.goes(&[Event::Recover(0), Event::Recover(2)]);
        world.lose_at(2);
        takes(world, 2, &[0, 2]);
    });
}

/// A server that was away while the namespace was new is none of a new one once it was met, if all others are emptied then.
#[test]
fn a_server_that_was_met_belongs_to_the_namespace() {
    shows(Mutant::ForgetsThatItWasMet, 0, |world| {
        takes(world, 1, &[0, 1]);
        world.goes(&[Event::Replace(2), Event::Recover(2), Event::Pass(TTL / 2), Event::Renew(1)]);
        world.deliver_at(&[0, 1], true);
        world.goes(&[Event::Pass(TTL / 2), Event::Empty(0), Event::Empty(1)]);
        world.goes(&[Event::Recover(0), Event::Recover(2)]);
        world.lose_at(2);
        takes(world, 2, &[0, 2]);
    });
}

/// A client whose leases may be longer than the pause that the servers keep gets no vote.
#[test]
fn a_server_votes_by_its_own_terms_only() {
    for (mutant, is_wrong) in [(Mutant::None, false), (Mutant::VotesByAnyTerms, true)] {
        let mut world = World::new(Setting { is_fresh: true, ..setting(mutant) }, |_| 0);
        world.manager = 1;
        for pause in [TTL / 4 + 1, 0] {
            (0..3).for_each(|server| world.recover(server));
            world.apply(Event::Pass(pause));
        }
        takes(&mut world, 1, &[0, 1]);
        world.goes(&[Event::Restart(1, false), Event::Recover(1), Event::Pass(TTL / 4 + 1)]);
        world.recover(1);
        world.lose_at(2);
        takes(&mut world, 2, &[1, 2]);
        assert!(world.holds(2));
        assert_eq!(world.wrong.is_some(), is_wrong, "{mutant:?}: {:?}", world.wrong);
    }
    ::model::caught("quorum", Mutant::VotesByAnyTerms, "a story");
}
