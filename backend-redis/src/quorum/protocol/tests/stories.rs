//! Schedules by hand, each about one rule: as the protocol is nothing is wrong, and without the rule something is.

use super::events::Event::{self, *};
use super::events::Mutant::{self, *};
use super::setting;
use super::world::{LOOKER, TTL, World};

/// Plays `schedule` in a world of three servers, and with each of `mutants`.
fn shows(what: &str, mutants: &[Mutant], schedule: impl Fn(&mut World)) {
    for mutant in [&[Original], mutants].concat() {
        let mut world = World::new(setting(mutant), vec![0; 3]);
        schedule(&mut world);
        assert_eq!(world.wrong.is_some(), mutant != Original, "{what}, {mutant:?}: {:?}", world.wrong);
        if mutant != Original {
            ::model::caught("quorum", mutant, what);
        }
    }
}

const ALL: &[usize] = &[0, 1, 2];

#[test]
fn a_server_that_may_have_forgotten_pauses() {
    shows("it comes up empty", &[NoPause], |world| {
        world.goes(&[Takes(1, &[0, 1]), Holds(1), Restart(1, false), Recover(1), Takes(2, &[1, 2])]);
    });
    shows("two come up empty, one after the other", &[PausesByTheOthers], |world| {
        world.goes(&[Takes(1, &[0, 1]), Restart(0, false), Recover(0), Restart(1, false), Recover(1)]);
        world.goes(&[Takes(2, &[1, 2])]);
    });
    for forgets in [Replace(1), Promote(1, 2), Empty(1)] {
        shows("it has long been up: it pauses from when it is met", &[PausesByUptime], |world| {
            world.goes(&[Takes(1, &[0, 1]), Holds(1), forgets, Recover(1), Takes(2, &[1, 2]), Recover(1)]);
            world.goes(&[Takes(2, &[1, 2]), Pass(TTL + 1), Recover(1), Votes(1)]);
        });
    }
    shows("its clock is set right just after its start", &[PausesByOneClock, PausesByUptime], |world| {
        world.goes(&[Takes(1, &[0, 1]), Restart(1, false), Recover(1), Step(1), Recover(1)]);
        world.goes(&[Takes(2, &[1, 2])]);
    });
    shows("most of its clocks are gone", &[PausesByClocksThatAreLeft, CountsBackwards], |world| {
        world.goes(&[Ahead(2, 3 * TTL), Takes(1, &[0, 1]), Restart(1, false), Recover(1)]);
        world.goes(&[Restart(0, true), SetBack(2), Step(1), Recover(1), Takes(2, &[1, 2])]);
        world.goes(&[Pass(TTL + 1), Recover(1), Votes(1)]);
    });
    shows("a look that reaches too few clocks begins no pause", &[BeginsPausesAnew], |world| {
        world.goes(&[Restart(1, false), RecoverWith(1, 0), Pass(TTL / 2), RecoverWith(1, 1)]);
        world.goes(&[Pass(TTL / 2 + 1), Recover(1), Votes(1)]);
    });
    shows("its restored vote extends no hold", &[ExtendsWhilePausing], |world| {
        world.goes(&[Takes(1, &[0, 1]), Save(1), Restart(1, true), Recover(1), Pass(TTL - 4), Renew(1)]);
        world.goes(&[Arrive(&[0, 1]), Step(1), Pass(5), Recover(1), Miss(2), Takes(2, &[1, 2])]);
    });
}

/// The request that ends its pause, the first of two looks, and the clocks count for one episode.
#[test]
fn an_emptied_server_begins_anew() {
    // How many of its six requests one looker has sent at the beginning, when the pause is over, and when the server was emptied
    // again, after the other looker had ended the pause and a client has held.
    for [before, over, after] in [[0, 6, 0], [0, 3, 3], [3, 0, 3]] {
        shows("a server is emptied again", &[RunIsEpisode], |world| {
            let look = |world: &mut World, looker, times| world.goes(&vec![Look(looker, true); times]);
            world.goes(&[Empty(1)]);
            look(world, 1, before);
            world.goes(&[Recover(4), Pass(TTL + 1)]);
            look(world, 1, over);
            world.goes(&[Recover(4), Start(1), ArriveOf(1, 0), ArriveOf(1, 1), ArriveOf(1, 0), Holds(1)]);
            world.goes(&[Empty(1)]);
            look(world, 4, 3);
            look(world, 1, after);
            world.goes(&[ArriveOf(LOOKER, 1), Recover(4), Miss(2), Takes(2, &[1, 2])]);
        });
    }
}

#[test]
fn a_disk_is_trusted_by_all_or_none() {
    shows("the data are a copy of another server's", &[TrustsCopies], |world| {
        world.goes(&[TrustDisks, Takes(1, &[0, 1]), Save(0), Restart(0, true), Recover(0), Votes(0)]);
        world.goes(&[Promote(1, 2), Restart(1, true), Recover(1), Takes(2, &[1, 2])]);
    });
    shows("a promoted replica restarts before its pause has ended", &[ForgetsDistrust], |world| {
        world.goes(&[TrustDisks, Takes(1, &[0, 1]), Promote(1, 1), Recover(1), Restart(1, true)]);
        world.goes(&[Recover(1), Takes(2, &[1, 2])]);
    });
    shows("the original may be a server that does not answer", &[TrustsWhileOneIsAway], |world| {
        world.goes(&[TrustDisks, Takes(1, &[0, 1]), Promote(1, 2), Restart(1, true), RecoverWith(1, 3)]);
        world.goes(&[Takes(2, &[1, 2])]);
    });
}

#[test]
fn a_server_that_forgot_counts_above_the_others() {
    shows("it gets the floor of the others", &[FloorNotCopied, NotesNothing], |world| {
        world.goes(&[Ahead(0, 500), Takes(1, &[0, 1]), Leave(1), Arrive(&[0, 1]), Miss(2)]);
        world.goes(&[Restart(1, false), Recover(1), Pass(TTL + 1), Recover(1), Takes(0, &[1, 2])]);
        world.goes(&[Holds(0)]);
    });
    shows("a number was confirmed until its pause was over", &[AsksBeforeThePauseEnds], |world| {
        world.goes(&[Hears(1, 9_000_000), Start(1), Arrive(&[1]), Miss(2), Restart(1, false)]);
        world.goes(&[Recover(1), Pass(TTL - 3), Miss(2)]);
        world.goes(&[Look(1, true); 4]);
        world.goes(&[Arrive(&[0]), Holds(1), Leave(1), Arrive(ALL), Pass(4), Look(1, true)]);
        world.goes(&[Look(1, true), ArriveOf(LOOKER, 1), Recover(1), Takes(0, &[1, 2]), Holds(0)]);
    });
    shows("two come up with old data: the clock counts", &[FloorWithoutTheClock], |world| {
        world.goes(&[Takes(1, ALL), Save(1), Save(2)]);
        for _ in 0..2 {
            world.goes(&[Leave(1), Arrive(ALL), Pass(5), Takes(1, &[1, 2]), Holds(1)]);
        }
        world.goes(&[Restart(1, true), Restart(2, true), Recover(1), Recover(2), Pass(TTL + 1)]);
        world.goes(&[Recover(1), Recover(2), Miss(0), Takes(0, &[1, 2]), Holds(0)]);
    });
    shows("two pauses end apart, the second one while a server is away", &[], |world| {
        world.goes(&[Restart(1, false), Recover(1), Pass(TTL / 2), Restart(2, false), Recover(2)]);
        world.goes(&[Pass(TTL / 2), Recover(1), Recover(2), Votes(1)]);
        assert!(world.is_blank(2));
        world.goes(&[Pass(TTL / 2), RecoverWith(2, 1), Votes(2), Takes(1, &[1, 2]), Holds(1)]);
    });
    shows("one that comes up later was not blank beside them", &[TellsWhoWasNotBlank], |world| {
        let recover =
            [RecoverWith(1, 1), RecoverWith(2, 1), Pass(TTL + 1), RecoverWith(1, 1), RecoverWith(2, 1)];
        world.goes(&[Ahead(0, 500), Restart(1, false), Restart(2, false)]);
        world.goes(&recover);
        world.goes(&[Takes(1, &[0, 2]), Holds(1), Leave(1), Arrive(ALL), Restart(2, false)]);
        world.goes(&[RecoverWith(2, 1), Pass(TTL + 1), RecoverWith(2, 1), Takes(0, &[1, 2])]);
    });
}

#[test]
fn terms_outlast_the_data_of_their_servers() {
    const RESTART_ALL: [Event; 3] = [Restart(0, true), Restart(1, true), Restart(2, true)];
    const RECOVER_ALL: [Event; 3] = [Recover(0), Recover(1), Recover(2)];
    shows("a manager with a shorter pause meets them first", &[PausesByOnesOwnTerms], |world| {
        world.goes(&[Takes(1, ALL), Holds(1), Restart(0, false), Restart(1, false), Restart(2, false)]);
        for manager in [1, 0, 1] {
            world.goes(&[Manages(manager)]);
            world.goes(&RECOVER_ALL);
        }
        world.goes(&[Pass(TTL / 4 + 1)]);
        world.goes(&RECOVER_ALL);
        world.goes(&[Takes(2, ALL)]);
    });
    shows("those of a server that voted are firm", &[ProposesFirmTerms], |world| {
        world.goes(&[Takes(1, ALL)]);
        world.goes(&RESTART_ALL);
        world.goes(&[Manages(1)]);
        world.goes(&RECOVER_ALL);
        world.goes(&[Pass(TTL / 4 + 1)]);
        world.goes(&RECOVER_ALL);
        world.goes(&[Takes(2, ALL)]);
    });
    shows("a client whose leases may outlast their pause gets no vote", &[VotesByAnyTerms], |world| {
        world.goes(&[Replace(0), Replace(1), Replace(2), Manages(1)]);
        world.goes(&RECOVER_ALL);
        world.goes(&[Pass(TTL / 4 + 1)]);
        world.goes(&RECOVER_ALL);
        world.goes(&[Takes(1, &[0, 1]), Restart(1, false), Recover(1), Pass(TTL / 4 + 1), Recover(1)]);
        world.goes(&[Miss(2), Takes(2, &[1, 2]), Holds(2)]);
    });
    shows("a server learns that others are used, whenever it was met", &[TellsUseWithClocks], |world| {
        let meet = [RecoverWith(0, 0), RecoverWith(1, 0)];
        world.goes(&[Restart(0, false), Restart(1, false), Restart(2, false)]);
        world.goes(&meet);
        world.goes(&[Pass(TTL / 2), Recover(2), Pass(TTL / 2)]);
        world.goes(&meet);
        world.goes(&[Takes(1, &[0, 1]), Holds(1), Recover(2), Pass(TTL / 2), Empty(0), Empty(1)]);
        world.goes(&[Recover(0), Recover(2), Miss(2), Takes(2, &[0, 2])]);
    });
    shows("a server that was met is none of a new namespace", &[ForgetsThatItWasMet], |world| {
        world.goes(&[Takes(1, &[0, 1]), Replace(2), Recover(2), Pass(TTL / 2), Renew(1)]);
        world.goes(&[Arrive(&[0, 1]), Pass(TTL / 2), Empty(0), Empty(1), Recover(0), Recover(2)]);
        world.goes(&[Miss(2), Takes(2, &[0, 2])]);
    });
}

#[test]
fn votes_that_are_gone_do_not_count() {
    shows("a hold that one server renewed ends with its quorum", &[DeadlineOfTheFastest], |world| {
        world.goes(&[Takes(1, ALL), Holds(1), Pass(TTL / 2), Renew(1), Arrive(&[0]), Miss(1), Miss(2)]);
        world.goes(&[Pass(TTL / 2 + 1), Takes(2, &[1, 2]), Holds(2)]);
    });
    shows("an old owner is not voted for again", &[RenewsWhatIsGone], |world| {
        world.goes(&[Takes(1, ALL), Force(1), Takes(2, ALL), Holds(2), Leave(2), Arrive(ALL), Pass(1)]);
        world.goes(&[Renew(1), Arrive(ALL)]);
    });
    shows("a late release ends no vote of a later round", &[GivesBackLaterRounds], |world| {
        // The later of the two sees the earlier one, and returns its vote.
        world.goes(&[Takes(1, &[0]), Takes(2, &[1]), Pass(4), ArriveUnreleased(&[0]), Miss(2), Leave(1)]);
        world.goes(&[Arrive(&[0])]);
        for _ in 0..6 {
            world.goes(&[Pass(2), ArriveUnreleased(&[0, 1]), Miss(2)]);
        }
        world.goes(&[Holds(2), Arrive(&[1]), Takes(0, &[1, 2])]);
    });
    shows("a larger number that is found late becomes the token", &[], |world| {
        world.goes(&[Ahead(0, 500), Hears(2, 9_000_000), Start(1), ArriveOf(1, 1), ArriveOf(1, 0)]);
        world.goes(&[ForceAt(1, 1), Start(2), ArriveOf(2, 1), ArriveOf(2, 2), Holds(2), Leave(2)]);
        world.goes(&[ArriveOf(2, 1), ArriveOf(2, 2)]);
        // The vote that it was asked for late, and after that the one that was lost.
        world.goes(&[ArriveOf(1, 2), ArriveOf(1, 1), ArriveOf(1, 0), Holds(1)]);
    });
}
