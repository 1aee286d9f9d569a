//! The scripts against the model of them: the same operations to both, and after each the same answer,
//! the same messages, the same keys with the same ends.
//!
//! The server's clock is stopped, and the test moves it on, so what a lease has left is equal, not
//! nearly equal. Scripts that are changed by hand must differ, or this proves nothing.

mod foreign;
mod mutants;
mod pausing;
mod real;
mod sharing;

use std::time::Duration;

use leasehold_core::Revoke;
use leasehold_core::backend::Mode;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRng, TestRunner};
use redis::Value;
use testbed::fuzz::tries;

use self::real::Real;
use super::model::{Asker, Connection, ENDLESS, MANY, Message, SLOT_INBOX, Server, Share, Shared, Shares};
use crate::config::Format;
use crate::protocol::ScriptReply;
use crate::scripts::{self, Naming, ReignTimes, Revoked, Shown};

/// What is done to both.
#[derive(Clone, Debug)]
enum Operation {
    Acquire {
        owner: u64,
        ttl: u64,
        queues: bool,
        mode: Mode,
    },
    Refresh {
        owners: Vec<u64>,
        ttl: u64,
        client: usize,
    },
    Release {
        owner: u64,
    },
    /// With a grace, or by force.
    Revoke(Option<u64>),
    Inspect,
    /// Microseconds.
    Pass(u64),
    /// Another client takes the lock, if it is free, for so many milliseconds or without end.
    Foreign(Option<u64>),
    /// The other client releases it.
    ForeignRelease,
    /// Other clients wait for a signal, or none.
    Listen(bool),
    /// A key is lost: the lock's, the queue's, the entries', the last grant's, or that of the shares.
    Lose(usize),
    /// From now on nothing is granted for so many microseconds, and a primary that was replaced goes on for so many.
    Pause(u64, u64),
}

fn operations(pauses: bool, shares: bool) -> BoxedStrategy<Vec<Operation>> {
    let ttl = || prop::sample::select(vec![300, 901, 2_000, 9_000, 43_200_001]);
    let owner = || 1_u64..=OWNERS;
    let mode = if shares { modes().boxed() } else { Just(Mode::EXCLUSIVE).boxed() };
    let keys = if shares { 5 } else { 4 };
    let operation = prop_oneof![
        6 => (owner(), ttl(), prop::bool::weighted(0.8), mode)
            .prop_map(|(owner, ttl, queues, mode)| Operation::Acquire { owner, ttl, queues, mode }),
        4 => (prop::collection::vec(owner(), 1..4), ttl(), prop::sample::select(vec![0, SLOT_INBOX]))
            .prop_map(|(owners, ttl, client)| Operation::Refresh { owners, ttl, client }),
        4 => owner().prop_map(|owner| Operation::Release { owner }),
        2 => prop::option::weighted(0.7, prop::sample::select(vec![0, 7, 86_400_000])).prop_map(Operation::Revoke),
        1 => Just(Operation::Inspect),
        2 => (0_u64..3_000).prop_map(Operation::Pass),
        4 => (0_u64..2_000_000).prop_map(Operation::Pass),
        1 => prop::sample::select(vec![300_000, 901_000, 9_001_000, 43_200_000_000]).prop_map(Operation::Pass),
        1 => prop::option::of(ttl()).prop_map(Operation::Foreign),
        1 => Just(Operation::ForeignRelease),
        1 => any::<bool>().prop_map(Operation::Listen),
        1 => (0_usize..keys).prop_map(Operation::Lose),
    ];
    if pauses {
        let pause = (0_u64..3_000_000, 0_u64..=100);
        let pause = pause.prop_map(|(pause, lag)| Operation::Pause(pause, pause * lag / 100));
        return prop::collection::vec(prop_oneof![9 => operation, 1 => pause], 0..50).boxed();
    }
    prop::collection::vec(operation, 0..50).boxed()
}

fn modes() -> impl Strategy<Value = Mode> {
    let permits =
        [(1, 2), (2, 2), (1, 5), (3, 5)].map(|(weight, capacity)| Mode::permits(weight, capacity).unwrap());
    prop_oneof![2 => Just(Mode::EXCLUSIVE), 3 => Just(Mode::SHARED), 3 => prop::sample::select(permits.to_vec())]
}

const OWNERS: u64 = 6;
const CLIENTS: usize = 3;
/// A foreign client.
const FOREIGN_OWNER: u64 = 99;
const CHANNELS: &str = "p:inbox:";
/// Of the client [`SLOT_INBOX`].
const SLOT_CHANNEL: &str = "p:{1}:inbox:0";
/// The last message of an operation.
const END: &str = "end";

fn hex(owner: u64) -> String {
    format!("{owner:032x}")
}

fn client(owner: u64) -> usize {
    usize::try_from(owner).unwrap() % CLIENTS
}

/// As a client names where it hears.
fn inbox(client: usize) -> String {
    if client == SLOT_INBOX { "{1}0".to_owned() } else { client.to_string() }
}

/// As a lock shows that it is held.
fn shown(format: Option<&Format>, owner: u64) -> String {
    match format.is_some_and(|format| format.word() == "redisson") {
        true if owner == FOREIGN_OWNER => "uuid:7 1".to_owned(),
        true => format!("00000000-0000-0000-0000-{owner:012x}:1 1"),
        false if owner == MANY => "*".to_owned(),
        false => hex(owner),
    }
}

fn naming() -> Naming {
    Naming { base: 0, foreign: Naming::NOT_LEASEHOLD }
}

/// The options of a format.
fn shared(format: &Format) -> Shared {
    let (signals, may_wait) = (format.channels().is_some(), !format.counts_listeners());
    Shared { after: 2, signals, may_wait, element_until: format.list().map(|_| 0), ..Shared::STRINGS }
}

fn info(owner: u64) -> String {
    scripts::info(&format!("host {owner}"), owner.is_multiple_of(2).then_some("{}"))
}

impl Server {
    /// As [`Real::state`] shows the real one.
    fn state(&mut self, now: u64, format: Option<&Format>) -> Vec<Vec<String>> {
        self.expire(now);
        let left = |until: u64| match until {
            0 => "-2".to_owned(),
            ENDLESS => "-1".to_owned(),
            until => (until - now / 1000).to_string(),
        };
        let lock = self.lock.map_or_else(|| "none".to_owned(), |(holder, _)| shown(format, holder));
        let queue = self.queue.iter().flat_map(|(owner, score)| [hex(*owner), score.to_string()]).collect();
        let mut fields: Vec<_> = Vec::new();
        for (owner, entry) in &self.entries {
            let told = format!("{} {} {}", entry.ttl, inbox(entry.client), info(*owner));
            let told = match entry.mode {
                Mode::EXCLUSIVE => told,
                mode => format!("0{told} {}", scripts::mode(mode)),
            };
            fields.push(format!("{}: {told}", hex(*owner)));
            fields.push(format!("u:{}: {}", hex(*owner), entry.live_until));
        }
        if let Some((holder, grace)) = self.revoked {
            fields.push(format!("revoked: {} {grace}", hex(holder)));
        }
        let noted = self.shared.as_ref().and_then(|shared| shared.turns);
        fields.extend(noted.map(|(turns, since)| format!("turns: {turns} {since}")));
        let noted = self.shared.as_ref().and_then(|shared| Some((shared.rests_until?, shared.rest)));
        fields.extend(noted.map(|(until, rest)| format!("rest: {until} {rest}")));
        fields.extend(sharing::fields(self));
        fields.sort();
        let element = self.shared.as_ref().and_then(|shared| shared.element_until);
        let element = element.filter(|until| *until >= now / 1000);
        let grant = self.grant.map_or_else(
            || "none".to_owned(),
            |grant| {
                let info = if grant.named { info(grant.owner) } else { "0 ".to_owned() };
                let (over, owner) = (if grant.over { "~" } else { "" }, hex(grant.owner));
                format!("{} {over}{owner} {} {} {info}", grant.counter, grant.since, inbox(grant.client))
            },
        );
        vec![
            vec![lock, left(self.lock.map_or(0, |(_, until)| until))],
            queue,
            vec![left(self.queue_until)],
            fields,
            vec![left(self.entries_until)],
            vec![grant, left(self.grant.map_or(0, |grant| grant.until))],
            element.map_or_else(|| sharing::holders(self), |_| vec!["1".to_owned()]),
            vec![left(element.unwrap_or(self.shares.holders_until))],
        ]
    }
}

/// As the scripts write it.
fn written(message: &Message, lock: &str, format: Option<&Format>) -> (String, String) {
    let (client, text) = match *message {
        Message::Push { client, owner, counter, .. } => (client, format!("granted {} {counter}", hex(owner))),
        Message::Revoked { client, owner, grace } => (client, format!("revoked {} {grace}", hex(owner))),
        Message::Due { client, owner, ask_in } => (client, format!("due {} {ask_in}", hex(owner))),
        Message::Signal => {
            let channel = format.and_then(|format| format.channel(lock)).unwrap();
            return (channel.clone(), if channel.contains('{') { "0".to_owned() } else { lock.to_owned() });
        }
        Message::Request { .. } | Message::Reply { .. } | Message::Released { .. } => unreachable!(),
    };
    let channel = if client == SLOT_INBOX { SLOT_CHANNEL.to_owned() } else { format!("{CHANNELS}{client}") };
    (channel, format!("{text} {lock}"))
}

/// Does `operation` to both; what each has answered.
fn step(
    real: &mut Real,
    model: &mut Server,
    operation: &Operation,
    said: &mut Vec<Message>,
) -> Result<(String, String), String> {
    let keys = real.keys.clone();
    let now = real.now;
    let answers = |value: &Value, entries| -> Result<Vec<ScriptReply>, String> {
        let replies = scripts::replies(value, entries, naming()).map_err(|error| error.to_string())?;
        Ok(replies.into_iter().map(|reply| reply.answer).collect())
    };
    Ok(match operation {
        Operation::Acquire { owner, ttl, queues, mode } => {
            let answer = real.enter(*owner, *ttl, *queues, *mode)?;
            foreign::keeps_silent(real, &answer)?;
            let asker = Asker { mode: *mode, ..Asker::new(*owner, client(*owner), *ttl) };
            let expected = model.acquire(now, asker, *queues, said);
            (format!("{:?}", answers(&Value::Array(vec![answer]), 1)?), format!("{:?}", [expected]))
        }
        Operation::Refresh { owners, ttl, client } => {
            let mut call = real.program.operation("renew", &keys.all().repeat(owners.len()));
            call.arg(CHANNELS).arg(inbox(*client));
            for owner in owners {
                call.arg(hex(*owner)).arg(*ttl);
            }
            let answer = real.run(&call)?;
            foreign::keeps_silent(real, &answer)?;
            let askers: Vec<_> = owners.iter().map(|owner| Asker::new(*owner, *client, *ttl)).collect();
            let expected = model.refresh_all(now, &askers, said);
            (format!("{:?}", answers(&answer, owners.len())?), format!("{expected:?}"))
        }
        Operation::Release { owner } => {
            (format!("{:?}", real.release(*owner)?), format!("{:?}", Some(model.release(now, *owner, said))))
        }
        Operation::Revoke(grace) => {
            let how =
                grace.map_or(Revoke::Force, |grace| Revoke::Ask { grace: Duration::from_millis(grace) });
            let call = scripts::revoke(real.program, &keys, CHANNELS, how);
            let answer = scripts::revoked(&real.run(&call)?, naming());
            let Revoked { holders, unswept } = answer.map_err(|error| error.to_string())?;
            let mut found: Vec<_> = holders
                .iter()
                .map(|holder| {
                    let left = holder.ttl.map(|left| u64::try_from(left.as_millis()).unwrap());
                    (holder.token.map(|token| token.counter()), left)
                })
                .collect();
            found.sort_unstable();
            (format!("{:?}", (found, unswept)), format!("{:?}", model.revoke(now, *grace, said)))
        }
        Operation::Inspect => {
            let call = real.program.operation("inspect", &keys.all());
            let shown = scripts::inspected(&real.run(&call)?, 1, naming());
            let Shown { holders, waiting } = shown.map_err(|error| error.to_string())?.remove(0);
            let counters: Vec<_> =
                holders.iter().map(|holder| holder.token.map(|token| token.counter())).collect();
            (format!("{:?}", (waiting, counters)), format!("{:?}", model.inspect(now)))
        }
        Operation::Pass(micros) => {
            real.pass(*micros);
            Default::default()
        }
        Operation::Foreign(lease) => {
            foreign::take(real, *lease);
            model.taken_by(now, FOREIGN_OWNER, *lease);
            Default::default()
        }
        Operation::ForeignRelease => {
            model.expire(now);
            if model.lock.is_some_and(|(holder, _)| holder == FOREIGN_OWNER) {
                real.ask(redis::cmd("DEL").arg(keys.all()[0]));
                model.lock = None;
            }
            Default::default()
        }
        Operation::Listen(listens) => {
            foreign::listen(real, *listens);
            let counts = real.format.as_ref().is_some_and(Format::counts_listeners);
            if let Some(shared) = model.shared.as_mut().filter(|_| counts) {
                shared.may_wait = *listens;
            }
            Default::default()
        }
        Operation::Pause(pause, lag) => {
            let times = ReignTimes { paused_until: now + pause, lag_until: now + lag };
            real.times = Some(times);
            (model.over.paused_until, model.over.lag_until) = (Some(times.paused_until), times.lag_until);
            Default::default()
        }
        Operation::Lose(key) => {
            real.lose(*key);
            match key {
                0 => model.lock = None,
                1 => (model.queue, model.queue_until) = Default::default(),
                2 => model.forget_entries(),
                3 => model.grant = None,
                _ => (model.shares.holders, model.shares.holders_until) = Default::default(),
            }
            Default::default()
        }
    })
}

fn compare(real: &mut Real, operations: &[Operation]) -> Result<(), String> {
    real.ask(&redis::cmd("FLUSHALL"));
    // A difference may have left some.
    real.heard();
    foreign::listen(real, false);
    let shared = real.format.as_ref().map(shared);
    real.times = real.times.map(|_| ReignTimes::default());
    let over = Connection { paused_until: real.times.map(|_| 0), ..Connection::default() };
    let mut model = Server { sweep: real.sweep, shared, over, ..Server::default() };
    for (at, operation) in operations.iter().enumerate() {
        let mut said = Vec::new();
        let (answer, expected) = step(real, &mut model, operation, &mut said)?;
        let differs = |what, real: &dyn std::fmt::Debug, model: &dyn std::fmt::Debug| {
            Err(format!("{what} of operation {at}, {operation:?}: {real:?}, the model's is {model:?}"))
        };
        if answer != expected {
            return differs("the answer", &answer, &expected);
        }
        let heard = real.heard();
        let written = |said| written(said, real.keys.all()[0], real.format.as_ref());
        let said: Vec<_> = said.iter().map(written).collect();
        if heard != said {
            return differs("a message", &heard, &said);
        }
        let (state, expected) = (real.state(), model.state(real.now, real.format.as_ref()));
        if state != expected {
            return differs("a key", &state, &expected);
        }
    }
    Ok(())
}

fn search(real: &mut Real, cases: u32) -> Result<(), TestError<Vec<Operation>>> {
    let shrinks = if real.is_mutant { 0 } else { 500 };
    let config = Config { cases, failure_persistence: None, max_shrink_iters: shrinks, ..Config::default() };
    let mut runner = if real.is_mutant {
        let rng = TestRng::deterministic_rng(config.rng_algorithm);
        TestRunner::new_with_rng(config, rng)
    } else {
        TestRunner::new(config)
    };
    let (pauses, shares) = (real.times.is_some(), real.shares);
    let real = std::cell::RefCell::new(real);
    runner.run(&operations(pauses, shares), |operations| {
        compare(&mut real.borrow_mut(), &operations).map_err(TestCaseError::fail)
    })
}

/// Requests of all kinds in any order, also after keys were lost and with a foreign client.
#[test]
fn the_scripts_do_what_the_model_does() {
    search(&mut Real::start(None), tries().cases).unwrap();
}

#[test]
fn a_sweep_that_is_cut_short_is_gone_on_with() {
    let mut real = Real::start(None);
    for sweep in [1, 2] {
        real.load(sweep, None);
        search(&mut real, tries().cases).unwrap();
    }
}

/// A live entry of another form is passed over, and the next one has the lock.
#[test]
fn a_strange_entry_is_passed_over() {
    let mut real = Real::start(None);
    let keys = real.keys.clone();
    let [_, queue, entries, ..] = keys.all();
    real.acquire(1);
    let later = "9000000000000000";
    for (strange, ends, entry) in [
        ("a", later, "x"),
        ("b", later, ""),
        ("c", later, "300 "),
        ("d", later, "0 0 "),
        ("e", "soon", "300 0 "),
        ("f", "9e15", "300 0 "),
    ] {
        real.ask(redis::cmd("ZADD").arg(queue).arg(1).arg(strange));
        real.ask(redis::cmd("HSET").arg(entries).arg(&[&format!("u:{strange}"), ends, strange, entry]));
    }
    real.acquire(2);
    assert_eq!(real.release(1), Ok(Some(1)));
    assert_eq!(real.state()[0][0], hex(2));
}

/// A server that comes up with a clock of 1970, as one without a battery does: counters grow, places stay in
/// order, and leases last, also when the clock has one more digit.
#[test]
fn a_clock_of_fewer_digits_changes_no_order() {
    let mut real = Real::start(None);
    let first = real.acquire(1).unwrap();
    real.acquire(2);
    real.now = 50_000_000;
    real.pass(0);
    real.acquire(3);
    assert_eq!(real.release(1), Ok(Some(1)));
    assert_eq!(real.state()[0][0], hex(2), "it came first, and lives");
    assert_eq!(real.release(2), Ok(Some(1)));
    real.now = 99_000_000;
    real.pass(0);
    assert_eq!(real.acquire(4), Some(first + 3), "it is counted");
    real.acquire(5);
    assert_eq!(real.release(4), Ok(Some(1)));
    assert_eq!(real.state()[0][0], hex(5), "it lives into the next digit");
}

/// Whatever a foreign client has written in place of the last grant, the next counter is the time.
#[test]
fn a_strange_record_lowers_no_counter() {
    let mut real = Real::start(None);
    let acquire = |real: &mut Real, strange: &str| {
        real.ask(&redis::cmd("FLUSHALL"));
        let keys = real.keys.clone();
        real.ask(redis::cmd("SET").arg(keys.all()[3]).arg(strange));
        real.acquire(1)
    };
    for strange in ["", "5", "5 x", "x", "9 1 1 1 1", "99999999999 1 1 1 1"] {
        assert_eq!(acquire(&mut real, strange), Some(real.now), "{strange:?}");
    }
    // A server comes up with a clock of 1970.
    real.now = 0;
    real.pass(5_000_000);
    assert_eq!(acquire(&mut real, "10000000 1 1 1 1"), Some(10_000_001));
}
