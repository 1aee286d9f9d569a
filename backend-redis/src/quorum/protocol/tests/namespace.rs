//! Stories of a namespace as a whole: it is new, or all its servers came up.

use super::events::{Event, Mutant};
use super::stories::{shows, takes};
use super::world::TTL;

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

/// A server that was met when the namespace was new hears that it is used from whoever meets it beside those that were told
/// meanwhile.
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
