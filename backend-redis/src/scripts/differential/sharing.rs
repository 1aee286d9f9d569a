//! The scripts of locks that several may hold: the same against the model, and against the rule itself.

use leasehold_core::backend::Load;
use proptest::prelude::*;
use proptest::test_runner::Config;

use super::mutants::{Mutant, each_is_told_apart};
use super::real::Real;
use super::*;

/// As the scripts write what is kept of shares beside the entries.
pub(super) fn fields(server: &Server) -> Vec<String> {
    let Shares { grants, asked, load, .. } = &server.shares;
    let grant = |(owner, Share { mode, counter, since, client }): (&u64, &Share)| {
        let (id, mode) = (hex(*owner), scripts::mode(*mode));
        format!("h:{id}: {mode} {counter} {id} {since} {client} {}", info(*owner))
    };
    let mut fields: Vec<_> = grants.iter().map(grant).collect();
    fields.extend(asked.iter().map(|(owner, grace)| format!("r:{}: {grace}", hex(*owner))));
    fields.extend(load.map(|(weight, capacity, unsure)| {
        format!("load: {weight} {capacity}{}", if unsure { "?" } else { "" })
    }));
    fields
}

pub(super) fn holders(server: &Server) -> Vec<String> {
    let until = |owner: &u64| server.shares.holders[owner].to_string();
    server.sharers().iter().flat_map(|owner| [hex(*owner), until(owner)]).collect()
}

/// In every mode, whatever is asked for in whatever order, also after keys were lost and beside a stranger.
#[test]
fn the_scripts_of_shares_do_what_the_model_does() {
    search(&mut Real::start_sharing(), 3 * tries().cases).unwrap();
}

/// The same where a script drops few that have ended.
#[test]
fn a_purge_that_is_cut_short_is_gone_on_with() {
    let mut real = Real::start_sharing();
    for sweep in [1, 2] {
        real.load(sweep, None);
        search(&mut real, tries().cases).unwrap();
    }
}

/// What could be wrong in dealing with shares.
const SHARES: [Mutant; 42] = [
    // Who fits.
    (
        "(not holder or holder == '*' and sharers().fit(lock, entries, wanted))",
        "(not holder or sharers().fit(lock, entries, wanted))",
    ),
    ("if holder and not sharers().fit(lock, entries, wanted) then", "if false then"),
    ("return held + weight <= math.min(most, capacity)", "return held + weight <= capacity"),
    ("return held + weight <= math.min(most, capacity)", "return held + weight <= most"),
    ("if unsure and held + weight > most and held + weight <= capacity then", "if false then"),
    ("unsure or capacity <= most", "unsure"),
    (
        "weight + (its or 1), math.min(capacity, most or 1)",
        "weight + (its or 0), math.min(capacity, most or ENDLESS)",
    ),
    ("keep(entries, math.max(redis.call('PTTL', lock), 1))\n    return weight", "return weight"),
    (
        "weight, capacity = weight or 1, capacity or 1\n    local held",
        "weight, capacity = weight or 1, capacity or 2\n    local held",
    ),
    ("redis.call('EXISTS', queue) == 0 and (not", "(not"),
    // A share begins.
    ("math.min(most, capacity), unsure)", "capacity, unsure)"),
    ("      keep(lock, lease)\n    else", "    else"),
    ("      shares.forget(lock, entries)\n", "\n"),
    ("    keep_holders(lock, lease)\n", ""),
    ("    keep_holders(lock, lease)\n    keep(entries, lease)", "    keep_holders(lock, lease)"),
    ("2 * lease", "lease"),
    // Those go who were lost with the lock.
    ("  if sharers and redis.call('HGET', entries, 'load') then", "  if false then"),
    ("elseif sharers and redis.call('HGET', entries, 'load') then", "elseif false then"),
    // What waits.
    ("  entry = '0' .. entry .. ' ' .. wanted\n", ""),
    ("  wanted = sharers and wanted\n", "  wanted = false\n"),
    ("'^0([1-9]%d*) (%S+) (.*) ([1-9]%d* [1-9]%d*)$'", "'^0([1-9]%d*) (%S+) (.*) [1-9]%d* ([1-9]%d*)$'"),
    // It ends, alone.
    ("note_load(entries, held - weight,", "note_load(entries, held,"),
    ("redis.call('ZREM', holders_of[lock], owner)", "redis.call('DEL', holders_of[lock])"),
    (
        "redis.call('HDEL', entries, 'h:' .. owner, 'r:' .. owner)",
        "redis.call('HDEL', entries, 'h:' .. owner)",
    ),
    ("for _, owner in ipairs(ended) do", "for _, owner in ipairs({}) do"),
    ("if redis.call('EXISTS', holders) == 1 then\n", "do\n"),
    ("      if last then\n", "      if false then\n"),
    ("'0', '0', 'REV', 'WITHSCORES'", "'0', '0', 'WITHSCORES'"),
    // It is renewed, alone, and only while it lasts.
    ("redis.call('ZADD', holders, 'XX', number(now + ttl * 1000), owner)", ""),
    ("      keep(lock, ttl)\n", ""),
    ("      keep_holders(lock, ttl)\n", ""),
    ("      keep_holders(lock, ttl)\n      keep(entries, ttl)", "      keep_holders(lock, ttl)"),
    ("return ends and tonumber(ends) > tonumber(now)", "return ends"),
    // Others have their turn.
    ("return hand_on(lock, queue, entries, grants, channels, now, '*')", "return '*'"),
    ("    holder = sharers().purge(lock, entries, now)\n    if", "    do return holder end\n    if"),
    (
        "    hand_on(lock, queue, entries, grants, channels, now, holder)\n  end\nend",
        "    local _ = 0\n  end\nend",
    ),
    ("ends = math.min(ends, head and live_until(entries, head, now) or now)\n", "\n"),
    ("if not first then\n", "if false then\n"),
    // Who is asked.
    ("its = noted\n", "\n"),
    ("redis.call('HSET', entries, 'r:' .. owner, its)", ""),
    ("if forced then\n        part(lock, entries, owner)\n", "if false then\n"),
    ("return grace and { 2, shared_as, grace } or { 1, shared_as }", "return { 1, shared_as }"),
];

/// The same where a script ends one share.
const SWEEPS: [Mutant; 4] = [
    ("sweep == 0 and 0 or -1", "not holder and sweep == 0 and 0 or -1"),
    ("'LIMIT', '0', number(sweep)", "'LIMIT', '0', '1000'"),
    ("sweep = sweep - #ended", ""),
    ("return holder, sweep == 0", "return holder"),
];

/// Wrong dealings with shares are found.
#[test]
fn changed_shares_are_told_from_the_model() {
    each_is_told_apart(&mut Real::start_sharing(), 500, &SHARES);
    each_is_told_apart(&mut Real::start_sharing(), 1, &SWEEPS);
}

/// One of the rule's entries: in order of arrival, never an id twice.
#[derive(Clone, Copy, Debug)]
struct Stands {
    owner: u64,
    mode: Mode,
    ttl: u64,
    /// In microseconds.
    until: u64,
    holds: bool,
}

/// The rule: the first of those that live hold while they fit.
#[derive(Debug, Default)]
struct Rule(Vec<Stands>);

impl Rule {
    /// A lock that one holds is there until its millisecond is over.
    fn lasts(now: u64, mode: Mode, millis: u64) -> u64 {
        if mode == Mode::EXCLUSIVE { (now / 1000 + millis + 1) * 1000 } else { now + millis * 1000 }
    }

    fn settle(&mut self, now: u64) {
        self.0.retain(|entry| entry.until > now);
        let mut load = Load::NONE;
        for entry in &mut self.0 {
            if !load.admits(entry.mode) {
                assert!(!entry.holds, "who holds is not barred by whoever is before it");
                break;
            }
            load = load.and(entry.mode);
            if !std::mem::replace(&mut entry.holds, true) {
                let left = (entry.until - now).div_ceil(1000).max(entry.ttl.div_ceil(6).min(500));
                entry.until = Self::lasts(now, entry.mode, left.min(entry.ttl));
            }
        }
    }

    fn holders(&self) -> Vec<u64> {
        let mut holders: Vec<_> =
            self.0.iter().filter(|entry| entry.holds).map(|entry| entry.owner).collect();
        holders.sort_unstable();
        holders
    }
}

/// Something done to a server, or to a rule.
#[derive(Clone, Debug)]
enum Deed {
    Enter {
        mode: Mode,
        ttl: u64,
        queues: bool,
    },
    /// Of one of the latest.
    Renew(usize, u64),
    Release(usize),
    Pass(u64),
    /// Somebody deletes the lock, or takes it as other libraries do.
    Deleted,
    Taken(u64),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let ttl = || prop::sample::select(vec![300_u64, 700, 2_000]);
    let deed = prop_oneof![
        8 => (modes(), ttl(), prop::bool::weighted(0.85))
            .prop_map(|(mode, ttl, queues)| Deed::Enter { mode, ttl, queues }),
        5 => (0_usize..10, ttl()).prop_map(|(which, ttl)| Deed::Renew(which, ttl)),
        5 => (0_usize..10).prop_map(Deed::Release),
        4 => (0_u64..120_000).prop_map(Deed::Pass),
        1 => (300_000_u64..2_500_000).prop_map(Deed::Pass),
        1 => Just(Deed::Deleted),
        1 => ttl().prop_map(Deed::Taken),
    ];
    prop::collection::vec(deed, 0..90)
}

/// Who holds by what is in the keys.
fn holders_in(real: &mut Real) -> Vec<u64> {
    let state = real.state();
    let id = |hex: &String| u64::from_str_radix(hex, 16).unwrap();
    match &*state[0][0] {
        "none" => Vec::new(),
        "*" => {
            let mut holders: Vec<_> = state[6].chunks(2).map(|pair| id(&pair[0])).collect();
            holders.sort_unstable();
            holders
        }
        _ => vec![id(&state[0][0])],
    }
}

/// The most that held at a time.
fn keeps_the_rule(real: &mut Real, deeds: &[Deed]) -> Result<usize, String> {
    real.ask(&redis::cmd("FLUSHALL"));
    let (mut rule, mut owners, mut most) = (Rule::default(), vec![0_u64], 0);
    let mut differ = |at: usize, real: &mut Real, rule: &mut Rule, answer: String, expected: String| {
        rule.settle(real.now);
        let (holders, expected_holders) = (holders_in(real), rule.holders());
        most = most.max(holders.len());
        if (&answer, &holders) == (&expected, &expected_holders) {
            return Ok(());
        }
        Err(format!(
            "after {at}: {answer}, {holders:?} hold; by the rule {expected}, {expected_holders:?} of {rule:?}"
        ))
    };
    for (at, deed) in deeds.iter().enumerate() {
        let latest = |which: usize| owners[owners.len().saturating_sub(which + 1)];
        match *deed {
            Deed::Pass(micros) => real.pass(micros),
            Deed::Deleted => {
                real.lose(0);
                rule.0.retain(|entry| !entry.holds || entry.until <= real.now);
            }
            Deed::Taken(ttl) => {
                let stranger = *owners.last().unwrap() + 1;
                let mut set = redis::cmd("SET");
                set.arg(real.keys.all()[0]).arg(hex(stranger)).arg(&["NX", "PX"]).arg(ttl);
                let is_taken = real.ask(&set) == Value::Okay;
                rule.0.retain(|entry| entry.until > real.now);
                if is_taken {
                    owners.push(stranger);
                    if rule.0.iter().any(|entry| entry.holds) {
                        return Err(format!("a stranger has it beside {rule:?}"));
                    }
                    let (mode, until) = (Mode::EXCLUSIVE, Rule::lasts(real.now, Mode::EXCLUSIVE, ttl));
                    rule.0.insert(0, Stands { owner: stranger, mode, ttl, until, holds: true });
                }
            }
            Deed::Enter { mode, ttl, queues } => {
                let owner = owners.last().unwrap() + 1;
                owners.push(owner);
                let answer = real.enter(owner, ttl, queues, mode)?;
                let is_granted = scripts::number(&answer).is_some();
                rule.settle(real.now);
                let until = real.now + ttl * 1000;
                rule.0.push(Stands { owner, mode, ttl, until, holds: false });
                rule.settle(real.now);
                let holds = rule.0.last().is_some_and(|entry| entry.holds);
                if !holds && !queues {
                    rule.0.pop();
                }
                differ(at, real, &mut rule, is_granted.to_string(), holds.to_string())?;
            }
            Deed::Renew(which, ttl) => {
                let (owner, now) = (latest(which), real.now);
                let mut call = real.program.operation("renew", &real.keys.all());
                call.arg(CHANNELS).arg(0).arg(hex(owner)).arg(ttl);
                let answer = real.run(&call)?;
                let reply = scripts::replies(&answer, 1, naming()).unwrap().remove(0).answer;
                rule.settle(now);
                let entry = rule.0.iter_mut().find(|entry| entry.owner == owner);
                let expected = match entry {
                    Some(entry) if entry.holds => {
                        entry.until = Rule::lasts(now, entry.mode, ttl);
                        1
                    }
                    Some(entry) => {
                        entry.until = now + ttl * 1000;
                        0
                    }
                    None => 3,
                };
                let answered = match reply {
                    Answer::Holds { .. } | Answer::Revoked { .. } => 1,
                    Answer::Waits { .. } => 0,
                    Answer::Gone => 3,
                };
                differ(at, real, &mut rule, answered.to_string(), expected.to_string())?;
            }
            Deed::Release(which) => {
                let owner = latest(which);
                let held = real.release(owner)?.map(|had| had % 4 == 1);
                rule.0.retain(|entry| entry.until > real.now);
                let expected = rule.0.iter().any(|entry| entry.owner == owner && entry.holds);
                rule.0.retain(|entry| entry.owner != owner);
                differ(at, real, &mut rule, format!("{held:?}"), format!("{:?}", Some(expected)))?;
            }
        }
    }
    // Everything ends.
    real.pass(10_000_000_000);
    real.release(0)?;
    let left = real.state();
    match left[0][0] == "none" && left[1].is_empty() && left[3].is_empty() && left[6].is_empty() {
        true => Ok(most),
        false => Err(format!("left: {left:?}")),
    }
}

/// After every script those hold whom the rule admits, whoever came, left, fell silent, was deleted or kept out by
/// another library, with modes and capacities mixed; and in the end nothing is left.
#[test]
fn holders_are_those_that_the_rule_admits() {
    let most = std::cell::Cell::new(0);
    let real = std::cell::RefCell::new(Real::start_sharing());
    let config = Config { failure_persistence: None, ..tries() };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&deeds(), |deeds| {
        let held = keeps_the_rule(&mut real.borrow_mut(), &deeds).map_err(TestCaseError::fail)?;
        most.set(most.get().max(held));
        Ok(())
    });
    outcome.unwrap();
    assert!(most.get() > 3, "hardly anybody shared: {most:?}");
}
