//! The scripts of locks that several may hold, against the model. `protocol/tests/sharing.rs` holds the model against the rule.

use super::mutants::{Mutant, each_is_told_apart};
use super::real::Real;
use super::*;

/// The fields of shares beside the entries.
pub(super) fn fields(server: &Server) -> Vec<String> {
    let Shares { grants, asked, load, .. } = &server.shares;
    let grant = |(owner, Share { mode, counter, since, client }): (&u64, &Share)| {
        let (id, mode, inbox) = (hex(*owner), scripts::mode(*mode), inbox(*client));
        format!("h:{id}: {mode} {counter} {id} {since} {inbox} {}", info(*owner))
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

/// In every mode, requests of all kinds in any order, also after keys were lost and with a foreign client.
#[test]
fn the_scripts_of_shares_do_what_the_model_does() {
    search(&mut Real::start_sharing(), 3 * tries().cases).unwrap();
}

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
    // Which share fits.
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
    // Shares end that were lost with the lock.
    ("  if sharers and redis.call('HGET', entries, 'load') then", "  if false then"),
    ("elseif sharers and redis.call('HGET', entries, 'load') then", "elseif false then"),
    // What waits.
    ("  entry = '0' .. entry .. ' ' .. wanted\n", ""),
    ("  wanted = sharers and wanted\n", "  wanted = false\n"),
    ("'^0([1-9]%d*) ((%S+) .*) ([1-9]%d* [1-9]%d*)$'", "'^0([1-9]%d*) ((%S+) .*) [1-9]%d* ([1-9]%d*)$'"),
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
    // Revocation.
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

#[test]
fn changed_shares_are_told_from_the_model() {
    each_is_told_apart(&mut Real::start_sharing(), 500, &SHARES);
    each_is_told_apart(&mut Real::start_sharing(), 1, &SWEEPS);
}
