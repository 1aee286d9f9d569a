//! Scripts that are changed by hand. The differential test must find a difference from the model in each.

use proptest::test_runner::TestError;

use super::real::Real;
use super::search;
use crate::config::Format;

/// A part of a script, and what stands there instead.
pub(super) type Mutant = (&'static str, &'static str);

/// What could be wrong in taking a lock and handing it on.
const GRANTING: [Mutant; 18] = [
    ("redis.call('EXISTS', queue) == 0 then", "true then"),
    ("if not resting and (first == me or not (first or more)) then", "if not (first or more) then"),
    ("its and (#its > #now or its >= now) and number(its + 1) or now", "now"),
    ("score, last = redis.call('ZSCORE', queue, me), nil", ""),
    ("redis.call('ZADD', queue, 'NX', score, me)", "redis.call('ZADD', queue, score, me)"),
    ("owner == me and counter or count(grants, me, told, now)", "counter"),
    ("local alone = not last", "local alone = true"),
    ("== 32 and last < now", "== 32"),
    ("if not last or last < string.sub(now, 1, -10) then", "if not last then"),
    ("'KEEPTTL', 'GET'", "'GET'"),
    ("math.ceil((counter - now) / 1000) + DAY + 1001000", "DAY + 1001000"),
    ("redis.call('HGET', entries, owner) or '', 1, LONGEST)\n", "'300 0 ' or '', 1, LONGEST)\n"),
    ("ends == #now and ends > now) and ends", "ends == #now) and ends"),
    ("math.max(math.ceil((ends - now) / 1000), grace)", "math.ceil(ttl / 6)"),
    ("GRACE = 500", "GRACE = 5000"),
    ("redis.call('HDEL', entries, owner, 'u:' .. owner, ...)", "redis.call('HDEL', entries, owner, ...)"),
    ("drop_entry(queue, entries, owner, 'revoked')", "drop_entry(queue, entries, owner)"),
    ("if redis.call('PTTL', key) < tonumber(ms) then", "do"),
];

/// What could be wrong in all else.
const KEEPING: [Mutant; 22] = [
    ("if ends then\n      return ends", "do\n      return ends or now"),
    ("for _ = 1, 2 do", "for _ = 1, 3 do"),
    ("math.max(left, math.ceil((ends - now) / 1000))", "left"),
    ("'(' .. score, '-inf'", "score, '-inf'"),
    ("before(queue, entries, number(now - ttl * 1000), now)", ""),
    ("owner = nil", ""),
    ("  tell_next(lock, queue, entries, grants, channels, has_it, score)\n", ""),
    ("asks < ((live_until(entries, owner, now) or now) - now) / 1000 - ttl * 2 / 3", "true"),
    // renew
    ("if not live_until(entries, me, now) then\n      drop_entry(queue, entries, me)", "if false then"),
    (
        "if holder == me then\n      redis.call('PEXPIRE', lock, ttl)\n      local",
        "if holder == me then\n      local",
    ),
    ("if now / 1000 + 2 * ttl > counter / 1000 + DAY then", "if false then"),
    ("if not grace then", "if true then"),
    ("local hears_slot = string.byte(ARGV[3]) == 123", "local hears_slot = false"),
    ("redis.pcall('SPUBLISH',", "redis.pcall('PUBLISH',"),
    ("return asked == holder and grace", "return grace"),
    // release
    ("held = holder == me", "held = holder"),
    ("redis.call('HDEL', entries, 'revoked')", ""),
    ("free(lock)\n    redis.call('HDEL'", "redis.call('HDEL'"),
    (
        "local has_it, more = settle(lock, queue, entries, grants, channels, holder)",
        "local has_it, more = holder",
    ),
    // revoke
    ("if owner == holder then\n    local inbox", "do\n    local inbox"),
    ("holder .. ' ' .. grace)", "holder .. ' 0')"),
    ("if noted and tonumber(noted) < tonumber(grace) then", "if false then"),
];

/// The same where a script drops one ended entry.
const SWEEPING: [Mutant; 8] = [
    ("sweep = sweep - 1", ""),
    ("redis.call('DEL', lock)\n    end\n  elseif", "end\n  elseif"),
    ("if sweep == 0 then", "if false then"),
    ("return holder, more", "return holder"),
    ("  return more\nend", "end"),
    ("sweep == 0 and 0 or -1", "-1"),
    ("channels) and 5 or 1", "channels) and 1 or 1"),
    ("channels) and 1 or 0", "channels) and 0 or 0"),
];

/// Each difference is found, where scripts drop so many ended entries.
fn each_is_told_from_the_model(format: Option<Format>, sweep: usize, mutants: &[Mutant]) {
    each_is_told_apart(&mut Real::start(format), sweep, mutants);
}

/// The same of the scripts that `real` runs.
pub(super) fn each_is_told_apart(real: &mut Real, sweep: usize, mutants: &[Mutant]) {
    for (from, to) in mutants {
        assert!(real.program.text().contains(from), "the program has no {from:?}");
        real.load(sweep, Some((from, to)));
        let found = search(real, 6_000);
        assert!(matches!(found, Err(TestError::Fail(..))), "not told apart: {to:?} instead of {from:?}");
        ::model::caught("redis scripts", (from, to), "the differential test");
    }
}

#[test]
fn changed_grants_are_told_from_the_model() {
    each_is_told_from_the_model(None, 500, &GRANTING);
}

#[test]
fn changed_scripts_are_told_from_the_model() {
    each_is_told_from_the_model(None, 500, &KEEPING);
}

#[test]
fn changed_sweeps_are_told_from_the_model() {
    each_is_told_from_the_model(None, 1, &SWEEPING);
}

/// Mistakes beside foreign clients, in any format.
const SHARING: [Mutant; 26] = [
    // Their turn.
    ("if stand_back and stand_back(lock, queue, entries, grants, channels) then", "if false then"),
    ("tonumber(turns) < AFTER and", "true and"),
    ("and now - since < EVERY * 1000", ""),
    ("redis.call('HSET', entries, 'rest', number(now + FOR * 1000) .. ' ' .. FOR)", ""),
    ("'due', owner, FOR, lock)", "'due', owner, 0, lock)"),
    ("if holder or rest and rest(entries, now) then", "if holder then"),
    ("if not resting and (first == me", "if (first == me"),
    ("if first and not resting then", "if first then"),
    ("left = rest and rest(entries, now) or left", "left = left"),
    ("redis.call('HDEL', entries, 'turns', 'rest')", ""),
    ("      redis.pcall('HDEL', entries, 'turns')\n", ""),
    ("  if had_turn then\n    redis.call('HDEL', entries, 'turns')\n  end\n", ""),
    ("redis.call('PEXPIRE', entries, SOON)", ""),
    ("keep_turns(entries, '0 ' .. clock())", ""),
    ("        foreign.again(entries, ttl)\n", ""),
    ("keep(entries, lease)\nend", "end"),
    ("    foreign.pass(entries, now, lease)\n", ""),
    // The first waiter polls.
    ("if first and foreign.hold(holder, grants) then", "if foreign.hold(holder, grants) then"),
    ("return left < 0 and POLL or math.min(left, POLL)", "return left"),
    ("answer[4], answer[5] = false, first and 1 or 0", "answer[4], answer[5] = false, 0"),
    // What is theirs.
    ("answer[4], answer[5] = false, first", "answer[4], answer[5] = holder, first"),
    ("elseif not (foreign and foreign.hold(holder, grants)) then", "else"),
    ("if holder or rest and", "if rest and"),
    ("free(lock)\n    end_grant(grants)\n    keep_turns", "free(lock)\n    keep_turns"),
    ("free(lock)\n  end_grant(grants)\n  redis.call", "free(lock)\n  redis.call"),
    ("more, grants)\n  end_grant(grants)\n", "more, grants)\n"),
];

/// What could be wrong in a string.
const STRINGS: [Mutant; 2] =
    [("held = holder == me", "held = holder"), ("return true\n  end", "return false\n  end")];

/// What could be wrong in a hash of Redisson.
const HASHES: [Mutant; 9] = [
    ("held = holder == me", "held = holder"),
    ("redis.pcall('PUBLISH', channel(lock), '0')", ""),
    ("give(lock, owner, lease)\n  end", "free(lock)\n    take(lock, owner, lease)\n  end"),
    ("  redis.call('DEL', lock)\n    take", "  take"),
    ("redis.call('PEXPIRE', lock, lease)", ""),
    ("string.sub(owner, from, to)", "string.sub(string.rep('0', 32), from, to)"),
    (
        "if not holder and redis.call('EXISTS', queue, entries) == 0 then",
        "if redis.call('EXISTS', queue, entries) == 0 then",
    ),
    ("return listen.err or tonumber(listen[2]) > 0", "return true"),
    ("return listen.err or tonumber(listen[2]) > 0", "return false"),
];

/// What could be wrong in waking the waiters of a library.
const SPRING: [Mutant; 2] = [
    ("redis.pcall('PUBLISH', CHANNELS .. lock, lock)", ""),
    ("CHANNELS .. lock, lock)", "CHANNELS .. lock, '0')"),
];
const PYTHON: [Mutant; 3] = [
    ("redis.pcall('DEL', KEYS[5])", ""),
    ("redis.pcall('LPUSH', KEYS[5], '1')", ""),
    ("redis.pcall('PEXPIRE', KEYS[5], '1000')", ""),
];

#[test]
fn changed_wakes_of_strings_are_told_from_the_model() {
    each_is_told_from_the_model(Some(Format::spring("r")), 500, &SPRING);
    each_is_told_from_the_model(Some(Format::python_redis_lock()), 500, &PYTHON);
}

#[test]
fn changed_scripts_of_strings_are_told_from_the_model() {
    each_is_told_from_the_model(Some(Format::string()), 500, &SHARING);
    each_is_told_from_the_model(Some(Format::string()), 500, &STRINGS);
}

#[test]
fn changed_scripts_of_hashes_are_told_from_the_model() {
    each_is_told_from_the_model(Some(Format::redisson()), 500, &HASHES);
}
