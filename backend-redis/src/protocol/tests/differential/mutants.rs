//! Scripts that are changed by hand, each of which the differential test must tell from the model.

use proptest::test_runner::TestError;

use super::{Real, search, texts};

/// A part of a script, and what stands there instead.
type Mutant = (&'static str, &'static str);

/// What could be wrong in taking a lock and handing it on.
const GRANTING: [Mutant; 17] = [
    ("redis.call('EXISTS', queue) == 0 then", "true then"),
    ("if first == me or not (first or more) then", "if not (first or more) then"),
    ("its and (#its > #now or its >= now) and number(its + 1) or now", "now"),
    ("score, last = redis.call('ZSCORE', queue, me), nil", ""),
    ("redis.call('ZADD', queue, 'NX', score, me)", "redis.call('ZADD', queue, score, me)"),
    ("owner == me and counter or count(grants, me, inbox, info, now)", "counter"),
    ("local alone = not last", "local alone = true"),
    ("string.sub(last, 1, #now) < now then", "true then"),
    ("'EX', '86401'", "'EX', '86400'"),
    ("'PXAT', math.ceil(counter / 1000) + DAY", "'PX', DAY"),
    ("redis.call('HGET', entries, owner) or ''\n    local ttl", "'300 0 '\n    local ttl"),
    ("ends == #now and ends > now) and ends", "ends == #now) and ends"),
    ("math.max(math.ceil((ends - now) / 1000), grace)", "math.ceil(ttl / 6)"),
    ("GRACE = 500", "GRACE = 5000"),
    ("redis.call('HDEL', entries, owner, 'u:' .. owner, ...)", "redis.call('HDEL', entries, owner, ...)"),
    ("drop_entry(queue, entries, owner, 'revoked', 'revoker')", "drop_entry(queue, entries, owner)"),
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
    ("tell_next(lock, queue, entries, channels, score)\nelse", "\nelse"),
    ("asks < ((live_until(entries, owner, now) or now) - now) / 1000 - ttl * 2 / 3", "true"),
    // refresh
    ("if not live_until(entries, me, now) then\n    drop_entry(queue, entries, me)", "if false then"),
    (
        "if holder == me then\n    redis.call('PEXPIRE', lock, ttl)\n    local",
        "if holder == me then\n    local",
    ),
    ("elseif now / 1000 + 2 * ttl > counter / 1000 + DAY then", "elseif false then"),
    ("if redis.call('HGET', entries, 'revoked') ~= me then", "if true then"),
    ("'^grace (%d+)$'", "'(%d+)$'"),
    ("'^grace (%d+)$')", "'^grace')"),
    // release
    ("local held = holder == me", "local held = holder"),
    ("redis.call('HDEL', entries, 'revoked', 'revoker')", ""),
    ("redis.call('DEL', lock)\n    redis.call('HDEL'", "redis.call('HDEL'"),
    ("elseif not holder then", "elseif false then"),
    // revoke
    ("if owner == holder then\n  local inbox", "do\n  local inbox"),
    ("'revoked', holder, 'revoker', 'grace ' .. grace", "'revoked', holder"),
    ("if tonumber(noted) < tonumber(grace) then", "if false then"),
    ("if redis.call('HGET', entries, 'revoked') == holder then", "do"),
];

/// The same where a script drops one ended entry.
const SWEEPING: [Mutant; 8] = [
    ("sweep = sweep - 1", ""),
    ("redis.call('DEL', lock)\n  end\nend\n", "end\nend\n"),
    ("if sweep == 0 then", "if false then"),
    ("return nil, more", "return nil"),
    ("  return more\nend", "end"),
    ("holder and -1 or 0", "-1"),
    ("channels) and 5 or 1", "channels) and 1 or 1"),
    ("channels) and 1 or 0", "channels) and 0 or 0"),
];

/// Each difference is found, where scripts drop so many ended entries.
fn each_is_told_from_the_model(sweep: usize, mutants: &[Mutant]) {
    let (mut real, texts) = (Real::start(), texts());
    for (from, to) in mutants {
        assert!(texts.iter().any(|text| text.contains(from)), "no script has {from:?}");
        real.load(sweep, Some((from, to)));
        let found = search(&mut real, 2_000);
        assert!(matches!(found, Err(TestError::Fail(..))), "not told apart: {to:?} instead of {from:?}");
    }
}

/// Wrong grants are found.
#[test]
fn changed_grants_are_told_from_the_model() {
    each_is_told_from_the_model(500, &GRANTING);
}

/// Wrong answers, releases and revocations are found.
#[test]
fn changed_scripts_are_told_from_the_model() {
    each_is_told_from_the_model(500, &KEEPING);
}

/// Wrong sweeps are found.
#[test]
fn changed_sweeps_are_told_from_the_model() {
    each_is_told_from_the_model(1, &SWEEPING);
}
