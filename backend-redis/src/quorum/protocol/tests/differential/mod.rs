//! The scripts against the model of a server: the same operations to both, and after each the same answer, the same
//! messages, the same keys with the same ends. The server's clock stands still and is moved on by the test. Scripts that are
//! changed by hand must be told apart, or this proves nothing.

mod single;

use leasehold_core::OwnerId;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRng, TestRunner};
use redis::{Arg, Cmd, Connection, Value};
use testbed::redis::{Server as RealServer, Settings, WallClock};

use super::model::{Asked, Fault, Server};
use crate::quorum::keys::{BallotKeys, QuorumKeys};
use crate::quorum::protocol::{Answer, Recovered, Ticket};
use crate::quorum::scripts::{self, Asker, Ballot, Kept, Known, Renewed};
use crate::scripts::Script;

/// What is done to both.
#[derive(Clone, Debug)]
enum Operation {
    Vote {
        owner: u64,
        round: u64,
        ttl: u64,
        proposal: Proposal,
        waits: bool,
        again: bool,
    },
    /// With the number that it was given last, more or less.
    Confirm {
        owner: u64,
        round: u64,
        ttl: u64,
        off: u64,
        token: u64,
    },
    Renew {
        owner: u64,
        round: u64,
        ttl: u64,
        off: u64,
    },
    Release {
        owner: u64,
        round: u64,
        ttl: u64,
        waits: bool,
    },
    /// Somebody connects to a run.
    Admit {
        trusted: bool,
    },
    Install {
        floor: u64,
        beside: &'static [&'static str],
    },
    /// The process comes up again, with its data, and is told what it may have forgotten.
    ComesUp {
        floor: u64,
    },
    /// The process comes up again, and is met by nobody, or not told anything.
    Restart(bool),
    /// Microseconds.
    Pass(u64),
    /// The clock is set back, by microseconds.
    SetBack(u64),
    /// The vote, the count, those who wait, or what is known of the namespace.
    Lose(usize),
}

#[derive(Clone, Copy, Debug)]
enum Proposal {
    Is(u64),
    /// As a session has it that has heard of the last number.
    Above(u64),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let ttl = || prop::sample::select(vec![300, 901, 9_000, 43_200_001]);
    let (owner, round) = (|| 1_u64..5, || 1_u64..4);
    let number =
        || prop::sample::select(vec![0, BEGIN - 1, BEGIN + 77, BEGIN + 5_000_000, BEGIN + 90_000_000]);
    let beside = || prop::sample::select(vec![&[] as &[_], &["1", "2"]]);
    let above = || prop::sample::select(vec![0, 1, 300_000, 1_200_000]);
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
        2 => any::<bool>().prop_map(|trusted| Operation::Admit { trusted }),
        2 => (number(), beside()).prop_map(|(floor, beside)| Operation::Install { floor, beside }),
        2 => number().prop_map(|floor| Operation::ComesUp { floor }),
        2 => any::<bool>().prop_map(Operation::Restart),
        3 => (0_u64..3_000).prop_map(Operation::Pass),
        3 => (0_u64..2_000_000).prop_map(Operation::Pass),
        1 => prop::sample::select(vec![300_000, 301_000, 9_001_000, 43_200_000_000]).prop_map(Operation::Pass),
        1 => prop::sample::select(vec![900_000, 172_800_000_000]).prop_map(Operation::SetBack),
        1 => (0_usize..4).prop_map(Operation::Lose),
    ];
    prop::collection::vec(operation, 0..50)
}

const BEGIN: u64 = 1_800_000_000_000_000;
const CHANNELS: &str = "p:inbox:";
const TERMS: &str = "as agreed";
const AHEAD: u64 = 1_000_000;
/// What a server is told that nobody has used.
const FIRST_TOLD: Operation = Operation::Install { floor: 0, beside: &[] };
/// The last message of an operation.
const END: &str = "end";

fn told(floor: u64, beside: &[&str]) -> Recovered {
    Recovered { floor, beside: beside.iter().map(|run| (*run).to_owned()).collect() }
}

fn ticket(owner: u64) -> Ticket {
    // Not in the order of the owners, and two alike.
    let time = [0, 30, 20, 20, 10][usize::try_from(owner).unwrap()];
    Ticket { time, owner: OwnerId::from_random(u128::from(owner).to_be_bytes()) }
}

/// The inbox of an owner; nobody listens to the last one.
fn inbox(owner: u64) -> String {
    (owner % 3).to_string()
}

fn hears(ticket: Ticket) -> bool {
    (1..5).any(|owner| ticket.owner == self::ticket(owner).owner && owner % 3 != 2)
}

struct Real {
    clock: WallClock,
    now: u64,
    connection: Connection,
    ear: Connection,
    keys: BallotKeys,
    space: String,
    /// Parts of scripts, and what stands there instead.
    changes: Vec<(&'static str, &'static str)>,
    _server: RealServer,
}

impl Real {
    fn start() -> Self {
        let clock = WallClock::new().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = runtime.block_on(Settings::new().clock(&clock).start()).unwrap();
        let client = redis::Client::open(format!("redis://{}", server.addr())).unwrap();
        let (connection, mut ear) = (client.get_connection().unwrap(), client.get_connection().unwrap());
        redis::cmd("SUBSCRIBE").arg(END).arg("p:inbox:0").arg("p:inbox:1").exec(&mut ear).unwrap();
        let answers = (0..2).map(|_| ear.recv_response().unwrap());
        answers.for_each(drop);
        let keys = QuorumKeys::new("p").unwrap();
        let (space, keys) = (keys.prefixed.space(), keys.of(&"a b".parse().unwrap()));
        let mut real =
            Self { clock, now: 0, connection, ear, keys, space, changes: Vec::new(), _server: server };
        real.pass(BEGIN);
        real
    }

    fn pass(&mut self, micros: u64) {
        self.stand_at(self.now + micros);
    }

    fn stand_at(&mut self, now: u64) {
        self.now = now;
        self.clock.stand_at(now).unwrap();
    }

    fn ask(&mut self, command: &Cmd) -> Value {
        command.query(&mut self.connection).unwrap()
    }

    fn run(&mut self, script: &Script, call: &Cmd) -> Value {
        let with_text = script.with_text(call);
        let mut eval = redis::cmd("EVAL");
        for (at, argument) in with_text.args_iter().skip(1).enumerate() {
            let Arg::Simple(bytes) = argument else { unreachable!("no script takes a cursor") };
            let text = String::from_utf8_lossy(bytes).into_owned();
            let changed =
                |text: String| self.changes.iter().fold(text, |text, (from, to)| text.replace(from, to));
            match at {
                0 => eval.arg(changed(text)),
                _ => eval.arg(bytes),
            };
        }
        self.ask(&eval)
    }

    /// Who was told since the last time.
    fn heard(&mut self) -> Vec<String> {
        self.ask(redis::cmd("PUBLISH").arg(END).arg(END));
        let mut heard = Vec::new();
        loop {
            let words: Vec<String> = redis::from_redis_value(self.ear.recv_response().unwrap()).unwrap();
            match &*words[1] {
                END => return heard,
                _ => heard.push(words[2].clone()),
            }
        }
    }

    /// All keys, each with its end.
    fn state(&mut self) -> Vec<Vec<String>> {
        const DUMP: &str = "
            local known = redis.call('HMGET', KEYS[4], 'run', 'whole', 'floor', 'max', 'beside')
            for i = 1, 4 do known[i] = known[i] or '0' end
            known[5] = known[5] or ''
            return { { redis.call('GET', KEYS[1]) or 'none', tostring(redis.call('PTTL', KEYS[1])) },
                { redis.call('GET', KEYS[2]) or 'none', tostring(redis.call('PTTL', KEYS[2])) },
                redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'), { tostring(redis.call('PTTL', KEYS[3])) }, known }";
        let mut dump = redis::cmd("EVAL");
        let BallotKeys { vote, count, waits, .. } = &self.keys;
        dump.arg(DUMP).arg(4).arg(vote).arg(count).arg(waits).arg(&self.space);
        let value = self.ask(&dump);
        redis::from_redis_value(value).unwrap()
    }
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
    let space = model.space.clone().unwrap_or_default();
    let numbers = [space.run, u64::from(space.whole), space.floor, space.max];
    vec![
        vec![vote.0, left(vote.1)],
        vec![count.0, left(count.1)],
        waits.collect(),
        vec![left(model.waits_until)],
        numbers.map(|number| number.to_string()).into_iter().chain([space.beside.join(" ")]).collect(),
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
            let call = scripts::vote_at(&scripts::vote(&keys, &space, asker), (waits, again), &run);
            let value = real.run(&scripts::VOTE, &call);
            let voted = scripts::voted(&value).unwrap();
            assert!(voted.now.is_none_or(|then| then == now));
            let expected = model.vote(now, Asked { ballot, ttl, proposal, since, waits, again });
            (format!("{:?}", voted.answer), format!("{expected:?}"))
        }
        Operation::Confirm { owner, round, ttl, off, token } => {
            let (ballot, n) = (ballot(owner, round), given(model, off));
            let value = real.run(&scripts::CONFIRM, &scripts::confirm(&keys, &space, ballot, ttl, n, token));
            let expected = model.confirm(now, ballot, ttl, (n, token));
            (format!("{:?}", scripts::was_there(&value).unwrap()), format!("{expected:?}"))
        }
        Operation::Renew { owner, round, ttl, off } => {
            let (ballot, n) = (ballot(owner, round), given(model, off));
            let kept = Kept { keys: &keys, ballot, n, ttl };
            let value = real.run(&scripts::RENEW, &scripts::renew(&[kept]));
            let expected = if model.renew(now, ballot, ttl, n) { Renewed::Kept } else { Renewed::Gone };
            (format!("{:?}", scripts::renewed(&value, 1).unwrap()), format!("{:?}", [expected]))
        }
        Operation::Release { owner, round, ttl, waits } => {
            let ballot = ballot(owner, round);
            let call = scripts::release(&keys, CHANNELS, ballot, &inbox(owner), waits.then_some(ttl));
            let had = scripts::was_there(&real.run(&scripts::RELEASE, &call)).unwrap();
            let (expected, told) = model.release(now, ballot, ttl, waits, hears);
            let told = told.map(|told| format!("freed {} {}", told.owner.to_hex(), keys.vote));
            let told = Vec::from_iter(told);
            (format!("{:?}", (had, real.heard())), format!("{:?}", (expected, told)))
        }
        Operation::Admit { trusted } => {
            let value =
                real.run(&scripts::ADMIT, &scripts::admit(&space, &model.run.to_string(), trusted, TERMS));
            let Known { whole, max, beside, .. } = scripts::known(&value).unwrap();
            let expected = model.admit(now, trusted);
            let expected = (expected.whole, expected.max, expected.beside);
            (format!("{:?}", (whole, max, beside)), format!("{expected:?}"))
        }
        Operation::Install { floor, beside } => {
            let told = told(floor, beside);
            let call = scripts::install(&space, &model.run.to_string(), &told, TERMS);
            let was_blank = scripts::was_there(&real.run(&scripts::INSTALL, &call)).unwrap();
            (format!("{was_blank:?}"), format!("{:?}", model.install(now, model.run, &told)))
        }
        Operation::ComesUp { floor } => {
            model.run += 1;
            let (admitted, expected) = step(real, model, &Operation::Admit { trusted: false });
            let (told, then) = step(real, model, &Operation::Install { floor, beside: &[] });
            (admitted + &told, expected + &then)
        }
        Operation::Restart(is_met) => {
            model.run += 1;
            if is_met { step(real, model, &Operation::Admit { trusted: false }) } else { Default::default() }
        }
        Operation::Pass(micros) => {
            real.pass(micros);
            Default::default()
        }
        Operation::SetBack(micros) => {
            real.stand_at(real.now - micros);
            Default::default()
        }
        Operation::Lose(which) => {
            let BallotKeys { vote, count, waits, .. } = keys;
            real.ask(redis::cmd("DEL").arg([vote, count, waits, space].get(which)));
            match which {
                0 => model.vote = None,
                1 => model.count = None,
                2 => (model.waits, model.waits_until) = Default::default(),
                _ => model.space = None,
            }
            Default::default()
        }
    }
}

fn compare(real: &mut Real, operations: &[Operation]) -> Result<(), TestCaseError> {
    real.ask(&redis::cmd("FLUSHALL"));
    // Numbers are meant of that time.
    real.stand_at(BEGIN);
    let mut model = Server::new(1, AHEAD, Fault::None);
    for begin in [Operation::Admit { trusted: false }, FIRST_TOLD] {
        step(real, &mut model, &begin);
    }
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

/// What the servers run is what the model says.
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
        assert!([&scripts::VOTE, &scripts::RELEASE].iter().any(|script| script.has(left_out)));
        real.changes.push((left_out, "if false"));
    }
    differ(&mut real, 300).unwrap_or_else(|why| panic!("{why}"));
}

const FREE_VOTE: &str = "if not has_place and known[1] == run and known[2] == '1' and known[3] == terms and proposed > tonumber(known[4]) and proposed <= max";
const FREE_RELEASE: &str = "if voted == ballot and not ttl and redis.call('EXISTS', waits, asked) == 0";

/// Scripts that are changed in one place are found out.
#[test]
fn changed_scripts_are_told_from_their_model() {
    let mut real = Real::start();
    for mutant in [
        ("or n < tonumber(ARGV[3])", ""),
        ("or n > tonumber(ARGV[4])", ""),
        ("or counted ~= n", ""),
        ("tonumber(latest) <= tonumber(round)", "true"),
        ("tonumber(latest) > tonumber(round)", "false"),
        ("proposed, known[4] + 1)", "proposed)"),
        ("n and n + 1 or now", "(n or -1) + 1"),
        ("n and n + 1 or now", "math.max(n and n + 1 or now, now)"),
        ("known[1] ~= run or known[2] ~= '1'", "known[2] ~= '1'"),
        ("and known[1] == run and", "and"),
        ("and known[2] == '1' and", "and"),
        ("and proposed > tonumber(known[4])", ""),
        ("and proposed <= max", ""),
        ("math.max(n, at)", "n"),
        ("math.max(n, at)", "at"),
        ("proposed / 1000) + 86400000", "proposed / 1000) + 86460000"),
        ("'PXAT', ends", "'EX', '86460'"),
        ("n == proposed and n or now", "now"),
        ("ballot, 'NX', 'PX', ttl, 'GET'", "ballot, 'PX', ttl, 'GET'"),
        ("counted and counted < proposed then", "counted then"),
        ("if not has_place and", "if"),
        ("local record = last or", "local record ="),
        ("if n > max then", "if false then"),
        ("text(n + 1000000)", "text(n)"),
        ("tonumber(ARGV[2]), clock())", "tonumber(ARGV[2]))"),
        ("redis.call('EXISTS', waits, asked) == 0", "true"),
        ("voted == ballot and not ttl", "voted == ballot"),
        ("voted == ballot and not ttl", "not ttl"),
        ("type(voted) ~= 'string'", "false"),
        ("had or not (voted or ttl)", "had"),
        ("had or not (voted or ttl)", "had or not voted"),
        ("whole = whole and ARGV[2] == '1'", "whole = true"),
        ("redis.call('ZREM', waits, first)", ""),
        (", 'beside', ARGV[4]", ""),
        ("known[4], known[5] }", "known[4] }"),
    ] {
        let (from, _) = mutant;
        let changing = [&scripts::VOTE, &scripts::CONFIRM, &scripts::RENEW, &scripts::RELEASE];
        let all = changing.into_iter().chain([&scripts::ADMIT, &scripts::INSTALL]);
        assert!(all.into_iter().any(|script| script.has(from)), "{from} is in no script");
        real.changes = vec![mutant];
        assert!(differ(&mut real, 400).is_err(), "{mutant:?} was not told apart");
    }
}

/// Where the last number is lost, or is that of the same ballot, the short path has taken the vote and leaves the number to the
/// rest. Chance seldom finds who gets that wrong.
#[test]
fn what_was_lost_is_counted_anew() {
    let vote = |owner: u64, above: u64| {
        let (round, ttl, proposal) = (1, 3_000, Proposal::Is(BEGIN + above));
        Operation::Vote { owner, round, ttl, proposal, waits: false, again: false }
    };
    let begin = || vec![Operation::Admit { trusted: false }, FIRST_TOLD, vote(1, 400_000)];
    let number = vec![Operation::Lose(0), Operation::Lose(1), Operation::Pass(900_000), vote(2, 500_000)];
    let ballot = vec![Operation::Lose(0), vote(1, 77)];
    for (then, mutant) in [
        (number, ("counted and counted < proposed then", "(counted or 0) < proposed then")),
        (ballot, ("if not last and type(voted)", "if type(voted)")),
    ] {
        assert!(scripts::VOTE.has(mutant.0), "{mutant:?}");
        for changes in [vec![], vec![mutant]] {
            let (mut real, mut model) = (Real::start(), Server::new(1, AHEAD, Fault::None));
            let is_changed = !changes.is_empty();
            real.changes = changes;
            let differs = |operation: &Operation| {
                let (answered, expected) = step(&mut real, &mut model, operation);
                answered != expected
            };
            assert_eq!(begin().iter().chain(&then).any(differs), is_changed, "{mutant:?}");
        }
    }
}

/// Whoever was told that the lock is free, and leaves instead of asking, leaves that to the next of those who wait.
#[test]
fn who_leaves_passes_on_what_it_was_told() {
    let mut real = Real::start();
    let mut model = Server::new(1, AHEAD, Fault::None);
    let vote = |owner| {
        let (round, ttl, proposal) = (1, 9_000, Proposal::Is(BEGIN + 77));
        Operation::Vote { owner, round, ttl, proposal, waits: true, again: false }
    };
    let leave = |owner| Operation::Release { owner, round: 1, ttl: 9_000, waits: false };
    let begin = [Operation::Admit { trusted: false }, FIRST_TOLD];
    // The fourth comes before the first.
    for operation in begin.into_iter().chain([vote(3), vote(4), vote(1)]) {
        step(&mut real, &mut model, &operation);
    }
    for (leaves, told) in [(3, 4), (4, 1)] {
        let (answered, _) = step(&mut real, &mut model, &leave(leaves));
        assert!(answered.contains(&ticket(told).owner.to_hex()), "{leaves} has left: {answered}");
    }
}
