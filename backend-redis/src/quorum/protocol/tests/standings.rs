//! The floor of a blank server, and when it gets it, by the standings of all.

use std::collections::HashSet;
use std::time::Duration;

use ::model::{Search, explore};
use leasehold_core::OwnerId;

use super::events::Mutant;
use super::model::{Server, unknown};
use super::rules::{THREE, at};
use crate::quorum::agreed::Agreed;
use crate::quorum::protocol::{
    Blank, Recovered, Size, Standing, look_again, met, pause_left, recovered, who_differs,
};
use crate::quorum::scripts::Looker;

/// A pause of a second.
fn agreed(size: Size) -> Agreed {
    Agreed { size, pause: Duration::from_secs(1), trusts_disks: false }
}

/// One that was met by itself, and has so many milliseconds of its pause left.
fn standing(whole: bool, run: &str, max: u64, left: u64) -> Standing {
    let (episode, id, terms) = (run.to_owned(), run.to_owned(), "as agreed".to_owned());
    let (is_used, clock, since) = (true, (1_000 - left) * 1_000, vec![(run.to_owned(), 0)]);
    Standing { run: run.to_owned(), episode, whole, id, is_used, max, clock, since, terms, ..unknown() }
}

/// A pause counts by the median of the clocks that were read when it began, of which those that are missing or were set back show
/// no time; by how long all processes have been up only where none of them ever had a floor.
#[test]
fn a_pause_is_counted_by_the_clocks_of_all() {
    let left = |gone: [Option<i64>; 3], is_used: bool| {
        let began: u64 = 10_000_000;
        let since: Vec<_> = ["a", "b", "c"].map(|run| (run.to_owned(), began)).into();
        let look = ["a", "b", "c"].iter().zip(gone).map(|(run, gone)| {
            let clock = began.checked_add_signed(gone? * 1_000)?;
            let up_for = Duration::from_millis(700);
            Some(Standing { clock, is_used, up_for, since: since.clone(), ..standing(false, run, 1, 0) })
        });
        let look: Vec<_> = look.collect();
        pause_left(agreed(THREE), look[0].as_ref().unwrap(), &look).as_millis()
    };
    assert_eq!(left([Some(300), Some(300), Some(300)], true), 700);
    assert_eq!(left([Some(9_000), Some(300), Some(200)], true), 700);
    assert_eq!(left([Some(9_000), Some(300), None], true), 700);
    assert_eq!(left([Some(300), Some(-9_000), Some(310)], true), 700);
    assert_eq!(left([Some(9_000), Some(-9_000), None], true), 1_000);
    assert_eq!(left([Some(1), Some(1), Some(1)], false), 300);
    assert_eq!(left([Some(1), Some(1), None], false), 999, "one that is away may have a floor");
}

/// What the clocks were is read so late as the look ended, and not of too few.
#[test]
fn a_pause_begins_when_the_look_has_ended() {
    let heard = |run, clock, since: &[(&str, u64)]| {
        let since = since.iter().map(|(run, clock)| ((*run).to_owned(), *clock)).collect();
        Some(Standing { clock, since, sent_at: at(3), ..standing(false, run, 1, 0) })
    };
    let of = |look: &[Option<Standing>]| met(THREE, at(5), look).swap_remove(0).map(|met| met.clocks);
    let all = vec![("a".to_owned(), 9_000), ("b".to_owned(), 3_000)];
    let b = || heard("b", 1_000, &[]);
    assert_eq!(of(&[heard("a", 7_000, &[]), None, b()]), Some(all.clone()));
    assert_eq!(of(&[heard("a", 7_000, &[]), None, None]), None);
    assert_eq!(of(&[heard("a", 7_000, &[("a", 1), ("b", 1), ("c", 1)]), None, b()]), None, "it has begun");
    let anew = of(&[heard("a", 7_000, &[("a", 1), ("c", 1), ("d", 1)]), None, b()]);
    assert_eq!(anew, Some(all), "too few of the clocks go on");
    let knows = b().map(|other| Standing { whole: true, ..other });
    let kept = of(&[heard("a", 7_000, &[("a", 1), ("c", 1), ("d", 1)]), None, knows]);
    assert_eq!(kept, None, "others may reach the clocks, and this look ends no pause");
}

/// Other terms keep a manager out: those of a whole server, and those of a blank one unless a whole one has its own, as one that
/// was away while all were changed.
#[test]
fn a_blank_server_takes_the_terms_of_a_whole_one() {
    let with = |terms: &str, whole| Some(Standing { terms: terms.to_owned(), ..standing(whole, "a", 1, 0) });
    let differs = |look: [Option<Standing>; 3]| who_differs("ours", &look);
    assert_eq!(differs([with("ours", true), with("theirs", true), None]), Some(1));
    assert_eq!(differs([with("ours", false), None, with("theirs", false)]), Some(2));
    assert_eq!(differs([with("ours", true), with("theirs", false), None]), None);
}

/// A blank server is told what so many others know as every quorum has one of, after its pause; where a quorum is blank, in both
/// looks, the clocks have to do, but for one that is far ahead.
#[test]
fn a_blank_server_is_told_what_the_others_know() {
    let standing = |whole, run: &str, max, left| Some(standing(whole, run, max, left));
    let (blank, whole) = (standing(false, "a", 1, 0), |max| standing(true, "b", max, 500));
    let pausing = standing(false, "a", 1, 1);
    let floor = |first: &[_], second: &[_]| recovered(agreed(THREE), 0, first, second).map(|told| told.floor);
    let told = |look: [Option<Standing>; 3]| floor(&look, &look);
    assert_eq!(told([blank.clone(), whole(7), whole(9)]), Some(9));
    assert_eq!(told([pausing.clone(), whole(7), whole(9)]), None);
    assert_eq!(told([blank.clone(), whole(7), None]), None);
    assert_eq!(told([blank.clone(), pausing.clone(), whole(9)]), Some(1_000_000));
    let is_ahead = |own: &mut Standing| own.clock += 366 * 86_400_000_000;
    let mut ahead = blank.clone();
    ahead.iter_mut().for_each(is_ahead);
    assert_eq!(told([ahead.clone(), whole(7), whole(9)]), Some(9));
    assert_eq!(told([ahead, pausing.clone(), whole(9)]), Some(999_000));
    assert_eq!(told([pausing.clone(), blank.clone(), blank.clone()]), None);
    assert_eq!(told([blank.clone(), blank.clone(), None]), Some(1_000_000));
    let ended = |first: &Option<Standing>| {
        let look = |own: &Option<Standing>| [own.clone(), whole(7), whole(9)];
        floor(&look(first), &look(&blank))
    };
    assert_eq!(ended(&blank), Some(9));
    assert_eq!(ended(&pausing), None, "the others were asked before the end of its pause");
    assert_eq!(ended(&None), None);
    let (first, second) = (
        [blank.clone(), standing(false, "c", 1, 0), whole(9)],
        [blank.clone(), standing(false, "d", 1, 0), whole(9)],
    );
    assert_eq!(floor(&first, &second), None, "it came up in between");
    assert_eq!(told([whole(9), whole(7), blank]), None, "it knows");
}

/// A refused request is repeated soon, not after a whole pause; once one server votes, the others are met again soon.
#[test]
fn a_refused_install_is_repeated_soon() {
    use Blank::{Pauses, Refused, Restored};
    let (soon, long) = (Duration::ZERO, Duration::from_secs(9));
    for (blank, may_pass, wait) in [
        (&[Refused, Pauses(long)][..], false, Some(soon)),
        (&[Pauses(long), Restored], false, Some(soon)),
        (&[Pauses(2 * long), Pauses(long)], false, Some(long)),
        (&[Pauses(long)], true, Some(soon)),
        (&[Restored, Restored], false, None),
        (&[Restored], true, Some(soon)),
    ] {
        assert_eq!(look_again(blank, may_pass), wait, "{blank:?}, {may_pass}");
    }
}

/// A pause that another manager makes longer between two looks, or after them, is not ended by these.
#[test]
fn a_pause_that_became_longer_goes_on() {
    for longer_after in [1, 2] {
        let mut server = Server::new(1, 0, Mutant::Original);
        let mut look = |pause| {
            let (run, episode) = ("1", OwnerId::from_random([1; 16]));
            let pause = Duration::from_secs(pause);
            server.admit(
                9_000_000,
                &Looker { run, has_followed: false, terms: "as agreed", pause, episode, met: None },
            )
        };
        let mut looks = vec![];
        for at in 1..=2 {
            let own = Standing { since: vec![("1".to_owned(), 0)], ..look(1) };
            looks.push([Some(own), Some(standing(true, "b", 7, 500)), Some(standing(true, "c", 9, 500))]);
            if at == longer_after {
                look(10);
            }
        }
        let told = recovered(agreed(THREE), 0, &looks[0], &looks[1]).unwrap();
        assert!(!server.install(looks[0][0].as_ref().unwrap(), &told, "as agreed"), "{longer_after}");
    }
}

/// Where a quorum was blank at one moment, each of it is told when its own pause is over; of five by as many as every quorum of
/// those that may have voted since has one of.
#[test]
fn a_quorum_that_was_blank_is_told_one_by_one() {
    const FIVE: Size = Size { servers: 5, quorum: 3 };
    let runs = |runs: &[&str]| runs.iter().map(|run| (*run).to_owned()).collect::<Vec<_>>();
    let standing = |whole, run: &str, max, beside: &[&str]| {
        Some(Standing { beside: runs(beside), ..standing(whole, run, max, 0) })
    };
    let (a, b, c) =
        (standing(false, "a", 1, &[]), standing(false, "b", 2, &[]), standing(false, "c", 3, &[]));
    let told = |look: [Option<Standing>; 5]| recovered(agreed(FIVE), 0, &look, &look);
    let by_clock = || Some(Recovered { floor: 1_000_000, beside: runs(&["a", "b", "c"]), is_copy: false });
    assert_eq!(told([a.clone(), b.clone(), c, None, None]), by_clock());
    let beside = |run| standing(true, run, 7, &["a", "b", "c"]);
    let (later, away) = (standing(false, "d", 4, &[]), || None);
    assert_eq!(told([a.clone(), b.clone(), beside("c"), away(), away()]), by_clock());
    assert_eq!(told([a.clone(), beside("b"), beside("c"), away(), away()]), by_clock());
    assert_eq!(told([a.clone(), away(), beside("c"), away(), away()]), None, "others may have voted with b");
    assert_eq!(told([a.clone(), later.clone(), beside("c"), away(), away()]), None, "and with this one");
    assert_eq!(told([later.clone(), b, beside("c"), away(), away()]), None, "it may have voted since");
    assert_eq!(told([later, beside("b"), beside("c"), a.clone(), away()]), None, "it is none of them");
    let knows = |run| standing(true, run, 9, &[]);
    let others = Recovered { floor: 9, beside: Vec::new(), is_copy: false };
    assert_eq!(told([a, beside("b"), away(), knows("e"), knows("f")]), Some(others), "they know");
}

/// A manager that opens a namespace by its terms: two looks at the servers, and the floors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Opening {
    terms: &'static str,
    order: [usize; 3],
    looks: [Vec<Option<Standing>>; 2],
    steps: usize,
    is_refused: bool,
}

impl Opening {
    /// One more request.
    fn go_on(&mut self, servers: &mut [Server]) {
        let (row, server) = (self.steps / 3, self.order[self.steps % 3]);
        self.steps += 1;
        let [first, second] = &self.looks;
        if row == 2 {
            let told = recovered(agreed(THREE), server, first, second);
            if let (Some(told), Some(own)) = (told, &first[server]) {
                servers[server].install(own, &told, self.terms);
            }
            return;
        }
        let votes = |standing: &Standing| standing.whole && standing.terms == self.terms;
        let may_hold = first.iter().chain(second).flatten().any(votes);
        let met = if row == 1 { met(THREE, at(0), first).swap_remove(server) } else { None };
        let id = self.order[0] as u128 * 16 + self.steps as u128;
        let looker = Looker {
            run: &servers[server].run.to_string(),
            has_followed: false,
            terms: self.terms,
            pause: Duration::from_secs(may_hold.into()),
            episode: OwnerId::from_random(id.to_be_bytes()),
            met: met.as_ref(),
        };
        let standing = servers[server].admit(7, &looker);
        self.looks[row][server] = Some(Standing { up_for: Duration::from_secs(2), ..standing });
        let has_looked = self.steps.is_multiple_of(3);
        while let Some(differs) = who_differs(self.terms, &self.looks[row]).filter(|_| has_looked) {
            self.is_refused |= row == 0;
            self.looks[row][differs] = None;
        }
    }
}

/// The servers, and two managers that open the namespace at the same time.
#[derive(Clone, Hash)]
struct Openings {
    servers: [Server; 3],
    managers: [Opening; 2],
}

impl ::model::World for Openings {
    type Step = usize;

    fn steps(&self, found: &mut Vec<(usize, Self)>) {
        let going = |at: &usize| !self.managers[*at].is_refused && self.managers[*at].steps < 9;
        for at in (0..2).filter(going) {
            let mut next = self.clone();
            next.managers[at].go_on(&mut next.servers);
            found.push((at, next));
        }
    }

    fn broken(&self) -> Option<&'static str> {
        let standings = self.servers.iter().map(|server| server.standing(7));
        let terms: HashSet<_> = standings.filter(|own| own.whole).map(|own| own.terms).collect();
        let are_refused = self.managers.iter().all(|opening| opening.is_refused);
        (terms.len() > 1 || are_refused).then_some("servers vote by the terms of one, which is let in")
    }
}

#[test]
fn one_of_two_first_openings_is_let_in() {
    for mutant in [Mutant::Original, Mutant::FirstTermsStay] {
        let goes_wrong = |order| {
            let looks = [vec![None; 3], vec![None; 3]];
            let first = Opening { terms: "0", order: [0, 1, 2], looks, steps: 0, is_refused: false };
            let managers = [first.clone(), Opening { terms: "1", order, ..first }];
            let servers = [1, 2, 3].map(|run| Server::new(run, 0, mutant));
            let explored = explore(&Openings { servers, managers }, Search::States(100_000));
            assert!(explored.all || explored.wrong.is_some());
            explored.wrong.is_some()
        };
        let found = [[0, 1, 2], [1, 2, 0], [2, 1, 0]].into_iter().any(goes_wrong);
        assert_eq!(found, mutant == Mutant::FirstTermsStay, "{mutant:?}");
    }
    ::model::caught("quorum", Mutant::FirstTermsStay, "every schedule");
}
