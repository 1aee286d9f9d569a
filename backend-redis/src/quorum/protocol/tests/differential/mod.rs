//! The scripts against the model of a server: the same operations to both, and after each the same answer, the same
//! messages, the same keys with the same ends. The server's clock is stopped, and the test moves it on. Scripts that are
//! changed by hand must differ, or this proves nothing.

mod real;
mod single;

use std::time::Duration;

use leasehold_core::OwnerId;
use leasehold_core::clock::Moment;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRng, TestRunner};

use self::real::Real;
use super::events::Mutant;
use super::model::{Asked, Server};
use crate::quorum::keys::BallotKeys;
use crate::quorum::protocol::{Met, Recovered, Standing, Ticket, VoteReply};
use crate::quorum::scripts::{self, Asker, Ballot, Kept, Looker};
use crate::scripts::{Inboxes, millis};

/// What is done to both.
#[derive(Clone, Debug)]
enum Operation {
    /// Asks for a vote, waiting or not.
    Vote { owner: u64, round: u64, ttl: u64, proposal: Proposal, waits: bool, again: bool },
    /// With the number that it was given last, more or less.
    Confirm { owner: u64, round: u64, ttl: u64, off: u64, token: u64 },
    /// As `Confirm`.
    Renew { owner: u64, round: u64, ttl: u64, off: u64 },
    /// Up to a round; the owner may wait on.
    Release { owner: u64, round: u64, ttl: u64, waits: bool },
    /// A look at a run, the second one if it has clocks; the first one may be stale.
    Admit { terms: &'static str, pause: u64, has_followed: bool, clocks: Clocks, stale: u8 },
    /// As it was seen, or was not.
    Install { floor: u64, beside: &'static [&'static str], is_copy: bool, stale: u8 },
    /// The process comes up again, with its data, and gets its floor.
    ComesUp { floor: u64 },
    /// The process comes up again, and is only met, or not.
    Restart(bool),
    /// Microseconds.
    Pass(u64),
    /// The clock is set back, by microseconds.
    SetBack(u64),
    /// The vote, the count, the queue, the namespace, or its episode.
    Lose(usize),
    /// The namespace has another format from now on.
    Format,
}

type Clocks = &'static [(&'static str, u64)];

#[derive(Clone, Copy, Debug)]
enum Proposal {
    Is(u64),
    /// By a session that knows the last number.
    Above(u64),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let ttl = || prop::sample::select(vec![300, 901, 9_000, 43_200_001]);
    let (owner, round) = (|| 1_u64..5, || 1_u64..4);
    let number =
        || prop::sample::select(vec![0, BEGIN - 1, BEGIN + 77, BEGIN + 5_000_000, BEGIN + 90_000_000]);
    let beside = || prop::sample::select(vec![&[] as &[_], &["1", "2"]]);
    let above = || prop::sample::select(vec![0, 1, 300_000, 1_200_000]);
    let pause = || prop::sample::select(vec![0, 0, 15_000, 60_000]);
    let terms = || prop::sample::select(vec![TERMS, TERMS, "others"]);
    let clocks = || prop::sample::select(vec![&[] as &[_], &[("1", BEGIN)], &[("2", BEGIN + 7), ("1", 5)]]);
    let proposal =
        || prop_oneof![1 => number().prop_map(Proposal::Is), 2 => above().prop_map(Proposal::Above)];
    let off = || prop::sample::select(vec![1, 1, 0, 2]);
    let token = || prop::sample::select(vec![0, BEGIN + 5_000_000, BEGIN + 90_000_000, BEGIN + 90_000_000]);
    let operation = prop_oneof![
        6 => (owner(), round(), ttl(), proposal(), any::<bool>(), any::<bool>()).prop_map(
            |(owner, round, ttl, proposal, waits, again)| Operation::Vote { owner, round, ttl, proposal, waits, again }
        ),
        4 => (owner(), round(), ttl(), off(), token())
            .prop_map(|(owner, round, ttl, off, token)| Operation::Confirm { owner, round, ttl, off, token }),
        3 => (owner(), round(), ttl(), off())
            .prop_map(|(owner, round, ttl, off)| Operation::Renew { owner, round, ttl, off }),
        4 => (owner(), round(), ttl(), any::<bool>())
            .prop_map(|(owner, round, ttl, waits)| Operation::Release { owner, round, ttl, waits }),
        4 => (terms(), pause(), prop::bool::weighted(0.2), clocks(), 0..6_u8).prop_map(
            |(terms, pause, has_followed, clocks, stale)| Operation::Admit { terms, pause, has_followed, clocks, stale }
        ),
        2 => (number(), beside(), any::<bool>(), 0..6_u8)
            .prop_map(|(floor, beside, is_copy, stale)| Operation::Install { floor, beside, is_copy, stale }),
        2 => number().prop_map(|floor| Operation::ComesUp { floor }),
        2 => any::<bool>().prop_map(Operation::Restart),
        3 => (0_u64..3_000).prop_map(Operation::Pass),
        3 => (0_u64..2_000_000).prop_map(Operation::Pass),
        1 => prop::sample::select(vec![300_000, 301_000, 9_001_000, 43_200_000_000]).prop_map(Operation::Pass),
        1 => prop::sample::select(vec![900_000, 172_800_000_000]).prop_map(Operation::SetBack),
        1 => (0_usize..5).prop_map(Operation::Lose),
    ];
    prop::collection::vec(operation, 0..50)
}

const BEGIN: u64 = 1_800_000_000_000_000;
const TERMS: &str = "as agreed";
const AHEAD: u64 = 1_000_000;
/// The floor of an unused server.
const FIRST_TOLD: Operation = Operation::Install { floor: 0, beside: &[], is_copy: false, stale: 9 };
const FIRST_MET: Operation =
    Operation::Admit { terms: TERMS, pause: 0, has_followed: false, clocks: &[], stale: 9 };
/// The last message of an operation.
const END: &str = "end";

fn told(floor: u64, beside: &[&str]) -> Recovered {
    Recovered { floor, beside: beside.iter().map(|run| (*run).to_owned()).collect(), is_copy: false }
}

fn ticket(owner: u64) -> Ticket {
    // Not in the order of the owners, and two alike.
    let time = [0, 30, 20, 20, 10][usize::try_from(owner).unwrap()];
    Ticket { time, owner: OwnerId::from_random(u128::from(owner).to_be_bytes()) }
}

fn inboxes() -> Inboxes {
    Inboxes::new("p:inbox:", None)
}

/// The inbox of an owner; the last one has no listener.
fn inbox(owner: u64) -> String {
    (owner % 3).to_string()
}

fn hears(ticket: Ticket) -> bool {
    (1..5).any(|owner| ticket.owner == self::ticket(owner).owner && owner % 3 != 2)
}

/// As [`Real::state`] shows the real one.
fn state(model: &mut Server, now: u64) -> Vec<Vec<String>> {
    model.expire(now);
    let left = |until: u64| if until == 0 { "-2".to_owned() } else { (until - now / 1000).to_string() };
    let vote =
        model.vote.map_or_else(|| ("none".to_owned(), 0), |(ballot, until)| (ballot.to_string(), until));
    let count = model.count.map_or_else(
        || ("none".to_owned(), 0),
        |count| {
            let owner = (1..5).find(|owner| ticket(*owner) == count.ballot.ticket).unwrap();
            (format!("{} {} {} {} 1 x", count.n, count.ballot, count.since, inbox(owner)), count.until)
        },
    );
    let waits = model.waits.iter().flat_map(|waiting| {
        let owner = (1..5).find(|owner| ticket(*owner) == *waiting).unwrap();
        [format!("{} {}", waiting.owner.to_hex(), inbox(owner)), waiting.time.to_string()]
    });
    let own = model.standing(now);
    let (run, floor) = model.space.as_ref().map_or((0, 0), |space| (space.run, space.floor));
    let [whole, claims, used] = [own.whole, own.claims, own.is_used].map(u64::from);
    let numbers = [run, whole, floor, own.max, claims, millis(own.pause), used];
    let since: Vec<_> = own.since.iter().map(|(run, clock)| format!("{run}={clock}")).collect();
    let words = [own.beside.join(" "), since.join(" "), own.terms, own.id, own.episode];
    vec![
        vec![vote.0, left(vote.1)],
        vec![count.0, left(count.1)],
        waits.collect(),
        vec![left(model.waits_until)],
        numbers.map(|number| number.to_string()).into_iter().chain(words).collect(),
    ]
}

/// Does `operation` to both; what each has answered.
fn step(real: &mut Real, model: &mut Server, operation: &Operation) -> (String, String) {
    let (keys, space, now) = (real.keys.clone(), real.space.clone(), real.now);
    let ballot = |owner, round| Ballot { ticket: ticket(owner), round };
    let given = |model: &Server, off: u64| (model.count.map_or(0, |count| count.n) + off).saturating_sub(1);
    match *operation {
        Operation::Vote { owner, round, ttl, proposal, waits, again } => {
            let (run, inbox) = (model.run.to_string(), inbox(owner));
            // By a clock that is another one.
            let (ballot, since) = (ballot(owner, round), now - 7);
            let proposal = match proposal {
                Proposal::Is(proposal) => proposal,
                Proposal::Above(above) => model.count.map_or(0, |count| count.n) + above,
            };
            let asker = Asker { ballot, ttl, proposal, since, inbox: &inbox, info: "1 x", terms: TERMS };
            let call = scripts::vote_at(
                &scripts::vote([&keys.vote, &keys.count], &space, asker),
                (waits, again),
                &run,
            );
            let value = real.run(&call);
            let Ok(voted) = scripts::voted(&value) else {
                return ("other terms".to_owned(), model.says_of_terms(TERMS));
            };
            assert!(voted.now.is_none_or(|then| then == now));
            let expected =
                model.vote(now, Asked { ballot, ttl, proposal, since, waits, again, terms: TERMS });
            (format!("{:?}", voted.answer), format!("{expected:?}"))
        }
        Operation::Confirm { owner, round, ttl, off, token } => {
            let (ballot, n) = (ballot(owner, round), given(model, off));
            let there = (&*space, &*model.run.to_string());
            let call = scripts::confirm(&keys, there, ballot, ttl, (n, token));
            let value = real.run(&call);
            let expected = model.confirm(now, ballot, ttl, (n, token));
            (format!("{:?}", scripts::was_there(&value).unwrap()), format!("{expected:?}"))
        }
        Operation::Renew { owner, round, ttl, off } => {
            let (ballot, n) = (ballot(owner, round), given(model, off));
            let kept = Kept { keys, ballot, n, ttl };
            let call = scripts::renew(&[kept], (&space, &model.run.to_string()));
            let value = real.run(&call);
            let expected = model.renew(now, ballot, ttl, n);
            (format!("{:?}", scripts::renewed(&value, 1).unwrap()), format!("{:?}", [expected]))
        }
        Operation::Release { owner, round, ttl, waits } => {
            let ballot = ballot(owner, round);
            let call = scripts::release(&keys.vote, &inboxes(), ballot, &inbox(owner), waits.then_some(ttl));
            let had = scripts::was_there(&real.run(&call)).unwrap();
            let (expected, told) = model.release(now, ballot, ttl, waits, hears);
            let told = told.map(|told| format!("freed {} 0 {}", told.owner.to_hex(), keys.vote));
            let told = Vec::from_iter(told);
            (format!("{:?}", (had, real.heard())), format!("{:?}", (expected, told)))
        }
        Operation::Admit { terms, pause, has_followed, clocks, stale } => {
            let clocks: Vec<_> = clocks.iter().map(|(run, clock)| ((*run).to_owned(), *clock)).collect();
            let Standing { mut episode, mut since, .. } = model.standing(now);
            match stale {
                0 => episode = "another".to_owned(),
                1 | 4 => since = vec![("3".to_owned(), BEGIN)],
                _ => {}
            }
            let met = Met { episode, since, clocks, is_used: stale % 4 < 2 };
            let looker = Looker {
                run: &model.run.to_string(),
                has_followed,
                terms,
                pause: Duration::from_millis(pause),
                episode: OwnerId::from_random(u128::from(now).to_be_bytes()),
                met: Some(&met).filter(|met| !met.clocks.is_empty()),
            };
            let value = real.run(&scripts::admit(&space, &looker));
            let known = scripts::known(&value, (&space, looker.run), Moment::from_nanos(0)).unwrap();
            (format!("{known:?}"), format!("{:?}", model.admit(now, &looker)))
        }
        Operation::Install { floor, beside, is_copy, stale } => {
            let told = Recovered { is_copy, ..told(floor, beside) };
            let mut own = model.standing(now);
            match stale {
                0 => own.pause += Duration::from_millis(1),
                1 => own.episode = "another".to_owned(),
                2 => own.terms = "yet others".to_owned(),
                _ => {}
            }
            let call = scripts::install(&space, &own, &told, TERMS);
            let was_blank = scripts::was_there(&real.run(&call)).unwrap();
            (format!("{was_blank:?}"), format!("{:?}", model.install(&own, &told, TERMS)))
        }
        Operation::ComesUp { floor } => {
            model.run += 1;
            let (admitted, expected) = step(real, model, &FIRST_MET);
            let (told, then) =
                step(real, model, &Operation::Install { floor, beside: &[], is_copy: false, stale: 9 });
            (admitted + &told, expected + &then)
        }
        Operation::Restart(is_met) => {
            model.run += 1;
            if is_met { step(real, model, &FIRST_MET) } else { Default::default() }
        }
        Operation::Pass(micros) => {
            real.pass(micros);
            Default::default()
        }
        Operation::SetBack(micros) => {
            real.stand_at(real.now - micros);
            Default::default()
        }
        Operation::Format => {
            real.ask(redis::cmd("HSET").arg(space).arg("format").arg("2"));
            model.space.iter_mut().for_each(|space| space.has_another_format = true);
            Default::default()
        }
        Operation::Lose(which) => {
            let BallotKeys { vote, count, waits, .. } = keys;
            match [vote, count, waits, space.clone()].get(which) {
                Some(key) => real.ask(redis::cmd("DEL").arg(key)),
                None => real.ask(redis::cmd("HDEL").arg(space).arg("episode")),
            };
            match which {
                0 => model.vote = None,
                1 => model.count = None,
                2 => (model.waits, model.waits_until) = Default::default(),
                3 => model.space = None,
                _ => model.space.iter_mut().for_each(|space| space.own.episode.clear()),
            }
            Default::default()
        }
    }
}

/// An empty server votes from now on; so does its model.
fn begin(real: &mut Real) -> Server {
    real.ask(&redis::cmd("FLUSHALL"));
    // Numbers are of that time.
    real.stand_at(BEGIN);
    let mut model = Server::new(1, AHEAD, Mutant::Original);
    for begun in [FIRST_MET, FIRST_TOLD] {
        step(real, &mut model, &begun);
    }
    model
}

fn compare(real: &mut Real, operations: &[Operation]) -> Result<(), TestCaseError> {
    let mut model = begin(real);
    for (at, operation) in operations.iter().enumerate() {
        let (answered, expected) = step(real, &mut model, operation);
        prop_assert_eq!(answered, expected, "answer {} to {:?}", at, operation);
        let (shown, expected) = (real.state(), state(&mut model, real.now));
        prop_assert_eq!(shown, expected, "after {}, {:?}", at, operation);
    }
    Ok(())
}

fn differ(real: &mut Real, cases: u32) -> Result<(), String> {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(Default::default()));
    let real = std::cell::RefCell::new(real);
    match runner.run(&operations(), |operations| compare(&mut real.borrow_mut(), &operations)) {
        Ok(()) => Ok(()),
        Err(TestError::Fail(why, operations)) => Err(format!("{why}\n{operations:#?}")),
        Err(abort) => Err(abort.to_string()),
    }
}

#[test]
fn scripts_are_as_their_model() {
    let mut real = Real::start();
    differ(&mut real, 300).unwrap_or_else(|why| panic!("{why}"));
}

/// The short path of a free lock has the effects that the rest has, which goes on where it ends.
#[test]
fn a_free_lock_is_no_special_case() {
    let mut real = Real::start();
    for left_out in [FREE_VOTE, FREE_RELEASE] {
        assert!(scripts::PROGRAM.text().contains(left_out));
        real.changes.push((left_out, "if false"));
    }
    differ(&mut real, 300).unwrap_or_else(|why| panic!("{why}"));
}

const FREE_VOTE: &str = "if not has_place and known[1] == run and known[2] == terms and proposed > tonumber(known[3]) and proposed <= max";
const FREE_RELEASE: &str =
    "if voted == ballot and not ttl and redis.call('EXISTS', name .. 'waits', name .. 'asked') == 0";

#[test]
fn changed_scripts_are_told_from_their_model() {
    let mut real = Real::start();
    for mutant in [
        ("or n < tonumber(ARGV[4])", ""),
        ("or n > token", ""),
        ("or counted ~= n", ""),
        ("tonumber(latest) <= tonumber(round)", "true"),
        ("tonumber(latest) > tonumber(round)", "false"),
        ("proposed, known[3] + 1)", "proposed)"),
        ("n and n + 1 or now", "(n or -1) + 1"),
        ("n and n + 1 or now", "math.max(n and n + 1 or now, now)"),
        ("if known[1] ~= run then", "if known[1] == '0' then"),
        ("and known[1] == run and", "and"),
        ("and proposed > tonumber(known[3])", ""),
        ("and proposed <= max", ""),
        ("math.max(n, at)", "n"),
        ("math.max(n, at)", "at"),
        ("'PXAT', ends", "'EX', '86460'"),
        ("n == proposed and n or now", "now"),
        ("ballot, 'NX', 'PX', ttl, 'GET'", "ballot, 'PX', ttl, 'GET'"),
        ("counted and counted < proposed then", "counted then"),
        ("if not has_place and", "if"),
        ("local record = last or", "local record ="),
        ("if n > max then", "if false then"),
        ("text(n + 1000000)", "text(n)"),
        ("or 0, tonumber(ARGV[3]))", "or 0, tonumber(ARGV[3]), clock())"),
        ("'floor', ARGV[3]", "'floor', text(math.max(tonumber(ARGV[3]), clock()))"),
        ("redis.call('EXISTS', name .. 'waits', name .. 'asked') == 0", "true"),
        ("voted == ballot and not ttl", "voted == ballot"),
        ("voted == ballot and not ttl", "not ttl"),
        ("type(voted) ~= 'string'", "false"),
        ("had or not (voted or ttl)", "had"),
        ("had or not (voted or ttl)", "had or not voted"),
        ("if known[1] ~= ARGV[6] or", "if known[1] == '0' or"),
        ("if known[1] ~= ARGV[6] or", "if"),
        ("known[1] == ARGV[#ARGV] and", "true and"),
        ("known[1] == ARGV[#ARGV] and", "known[1] ~= '0' and"),
        ("known[11] = false, whole", "known[11] = whole, whole"),
        ("whole or claims, ''", "whole, ''"),
        ("known[11] == ARGV[7] then", "ARGV[7] then"),
        ("since == ARGV[8] then", "true then"),
        (
            "elseif not whole and known[11] == ARGV[7] then",
            "elseif not whole and known[11] == ARGV[7] and since == ARGV[8] then",
        ),
        ("not known[8] and ARGV[10] == '1'", "not known[8]"),
        ("if claims and ARGV[3] == '1' then", "if false then"),
        ("paused == 0 and (pause", "(pause"),
        ("(pause > 0 or is_proposed)", "is_proposed"),
        ("if paused < pause then", "if false then"),
        ("(ARGV[9] or '1') > '1'", "ARGV[9] == '3'"),
        ("(ARGV[9] or 1) % 2 == 1", "true"),
        ("known[1] ~= ARGV[2] or", ""),
        ("or (known[2] or '0') == known[7]", ""),
        ("'whole', known[7]", "'whole', '1'"),
        ("or known[4] ~= ARGV[6]", ""),
        ("or known[5] ~= ARGV[7]", ""),
        ("ARGV[8] == '0' and known[6] or known[1]", "known[1]"),
        ("'claims', '0', 'id', id", "'id', id"),
        ("'used', '1', unpack", "unpack"),
        ("redis.call('ZREM', waits, first)", ""),
        (", 'beside', ARGV[5]", ""),
    ] {
        assert!(scripts::PROGRAM.text().contains(mutant.0), "the program has no {mutant:?}");
        real.changes = vec![mutant];
        assert!(differ(&mut real, 400).is_err(), "{mutant:?} was not told apart");
        ::model::caught("quorum scripts", mutant, "the differential test");
    }
}
