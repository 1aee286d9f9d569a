//! The scripts on locks that other libraries take too: against the model, and on keys that are no locks.

use leasehold_core::backend::Mode;
use redis::Value;

use super::real::Real;
use super::{FOREIGN_OWNER, Operation, compare, hex, search, shown, tries};
use crate::config::Format;

/// A foreign client takes the lock, if it is free, for so long or without end.
pub(super) fn take(real: &mut Real, lease: Option<u64>) {
    const TAKE_A_HASH: &str = "
        if redis.call('EXISTS', KEYS[1]) == 0 then
            redis.call('HSET', KEYS[1], 'uuid:7', 1)
            if ARGV[1] ~= '' then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
        end";
    let lock = real.keys.all()[0].to_owned();
    let is_hash = shown(real.format.as_ref(), FOREIGN_OWNER) != hex(FOREIGN_OWNER);
    let mut set = redis::cmd(if is_hash { "EVAL" } else { "SET" });
    if is_hash {
        set.arg(TAKE_A_HASH).arg(1).arg(lock).arg(lease.map_or_else(String::new, |lease| lease.to_string()));
    } else {
        set.arg(lock).arg(hex(FOREIGN_OWNER)).arg("NX");
        if let Some(lease) = lease {
            set.arg("PX").arg(lease);
        }
    }
    real.ask(&set);
}

/// A foreign client subscribes to the channel of releases, or unsubscribes.
pub(super) fn listen(real: &mut Real, listens: bool) {
    let Some(channel) = real.format.as_ref().and_then(|format| format.channel(real.keys.all()[0])) else {
        return;
    };
    let what = if listens { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
    real.listener.send_packed_command(&redis::cmd(what).arg(channel).get_packed_command()).unwrap();
    // Until it is confirmed, behind whatever was said before.
    loop {
        let words: Vec<Value> = redis::from_redis_value(real.listener.recv_response().unwrap()).unwrap();
        if words[0] == Value::BulkString(what.to_lowercase().into_bytes()) {
            return;
        }
    }
}

/// No answer has the value of a foreign lock: it is enough to release the lock.
pub(super) fn keeps_silent(real: &Real, answer: &Value) -> Result<(), String> {
    let secret =
        if real.format.is_some() { shown(real.format.as_ref(), FOREIGN_OWNER) } else { "none".to_owned() };
    let secret = secret.strip_suffix(" 1").unwrap_or(&secret);
    let tells = |value: &Value| matches!(value, Value::BulkString(text) if text.ends_with(secret.as_bytes()));
    let parts = crate::scripts::parts(answer);
    if parts.iter().any(|part| tells(part) || crate::scripts::parts(part).iter().any(tells)) {
        return Err(format!("the reply shows a foreign client's value: {answer:?}"));
    }
    Ok(())
}

#[test]
fn the_scripts_of_formats_do_what_the_model_does() {
    for format in [Format::string(), Format::redisson(), Format::spring("r"), Format::python_redis_lock()] {
        search(&mut Real::start(Some(format)), 2 * tries().cases).unwrap();
    }
}

/// During a rest, an entry that leaves sends the next one a message when to refresh; too rare to be met at random.
#[test]
fn leaving_during_a_rest_notifies_the_next() {
    let acquire = |owner| Operation::Acquire { owner, ttl: 2_000, queues: true, mode: Mode::EXCLUSIVE };
    let mut scene: Vec<_> = (1..=6).map(acquire).collect();
    scene.extend((1..=4).map(|owner| Operation::Release { owner }));
    scene.push(Operation::Pass(3_000));
    let mut real = Real::start(Some(Format::string()));
    scene.push(Operation::Release { owner: 4 });
    scene.push(Operation::Release { owner: 5 });
    scene.push(Operation::Release { owner: 6 });
    compare(&mut real, &scene).unwrap();
    for wrong in [
        ("waited and (holder or resting)", "waited and holder"),
        ("if holder or rest and rest(entries, now) then", "if holder then"),
    ] {
        real.load(500, Some(wrong));
        compare(&mut real, &scene).unwrap_err();
    }
}

/// The error of an acquisition.
fn refused(real: &mut Real) -> Option<String> {
    real.enter(1, 2_000, true, Mode::EXCLUSIVE).err()
}

/// What is no lock of the format is neither taken for one nor changed, and the error names key and type; without the
/// rules for that it is waited for, or taken.
#[test]
fn value_of_another_format_is_refused() {
    type Kind = (&'static [&'static [&'static str]], &'static str);
    let list: Kind = (&[&["LPUSH", "a b", "x"]], "list");
    let string: Kind = (&[&["SET", "a b", "x"]], "string");
    let hash: Kind = (&[&["HSET", "a b", "x:1", "1"]], "hash");
    let read_write: Kind = (&[&["HSET", "a b", "mode", "read", "x:1", "1"]], "hash");
    let of_mode: Kind = (&[&["HSET", "a b", "mode", "write"]], "hash");
    let many: Kind = (&[&["HSET", "a b", "x:1", "1", "y:2", "1"]], "hash");
    let wrong_types = ("    if string.find(wrong, '^WRONGTYPE') then", "    if false then");
    for (format, kind, rule) in [
        (Format::string(), list, wrong_types),
        (Format::string(), hash, wrong_types),
        (Format::redisson(), list, wrong_types),
        (Format::redisson(), string, wrong_types),
        (Format::redisson(), read_write, ("refuse(lock, ' with more than a holder')", "return ':'")),
        (Format::redisson(), of_mode, ("redis.call('HEXISTS', lock, 'mode') == 0", "true")),
        (Format::redisson(), many, ("count == 1", "true")),
    ] {
        let mut real = Real::start(Some(format));
        for command in kind.0 {
            let mut made = redis::cmd(command[0]);
            made.arg(&command[1..]);
            real.ask(&made);
        }
        let before = real.ask(redis::cmd("DUMP").arg("a b"));
        let said = refused(&mut real).expect("it is no lock");
        assert!(
            said.contains("NOLOCK") && said.contains(&format!("the key \"a b\" is a {}", kind.1)),
            "{said}"
        );
        assert_eq!(real.ask(redis::cmd("DUMP").arg("a b")), before);
        real.load(500, Some(rule));
        let said = refused(&mut real);
        assert!(said.is_none_or(|said| !said.contains("NOLOCK")), "still refused without {rule:?}");
        ::model::caught("redis scripts", rule, "a story");
    }
}

/// A rest is over, too, where the clock is set back into a time before it.
#[test]
fn a_clock_that_is_set_back_makes_no_rest_longer() {
    const BOUND: &str = "left <= tonumber(longest) and left";
    for (back, bound, goes_on) in
        [(3_600_000_000, BOUND, true), (5_000_000, BOUND, true), (5_000_000, "left", false)]
    {
        let mut real = Real::start(Some(Format::string()));
        real.load(500, Some((BOUND, bound)));
        for owner in 1..=5 {
            real.acquire(owner);
        }
        for owner in 1..=3 {
            assert_eq!(real.release(owner), Ok(Some(1)));
        }
        assert_eq!(real.state()[0][0], "none", "foreign clients have their turn");
        real.now -= back;
        real.pass(0);
        real.acquire(6);
        assert_eq!(real.state()[0][0] == hex(4), goes_on, "{back} µs, {bound}");
    }
    ::model::caught("redis scripts", (BOUND, "left"), "a story");
}

/// What a release does to the lock and says of it, in the server's order.
fn released(mutant: Option<(&str, &str)>) -> Vec<&'static str> {
    let mut real = Real::start(Some(Format::redisson()));
    real.load(500, mutant);
    real.acquire(1).unwrap();
    real.listener.send_packed_command(&redis::cmd("MONITOR").get_packed_command()).unwrap();
    real.listener.recv_response().unwrap();
    assert_eq!(real.release(1), Ok(Some(1)));
    real.ask(redis::cmd("GET").arg("end"));
    let mut done = Vec::new();
    loop {
        let line: String = redis::from_redis_value(real.listener.recv_response().unwrap()).unwrap();
        if line.contains("\"end\"") {
            return done;
        }
        done.extend(["DEL", "PUBLISH"].into_iter().find(|word| line.contains(&format!("\"{word}\""))));
    }
}

/// A client that a release wakes finds the lock free, and is woken once. A server does a script as one, so that an order of the two is
/// not seen otherwise.
#[test]
fn a_release_is_said_after_it() {
    let (delete, say) = ("    redis.call('DEL', lock)\n", "    redis.pcall('PUBLISH', channel(lock), '0')\n");
    let (right, wrong) = (format!("{delete}{say}"), format!("{say}{delete}"));
    assert_eq!(released(None), ["DEL", "PUBLISH"]);
    assert_eq!(released(Some((&right, &wrong))), ["PUBLISH", "DEL"]);
    ::model::caught("redis scripts", (&right, &wrong), "a story");
}

/// Our hold with a second field is no hold any more, and releasing it leaves the key as it is.
#[test]
fn a_hold_that_somebody_has_added_to_is_lost() {
    let mut real = Real::start(Some(Format::redisson()));
    real.acquire(1).unwrap();
    real.ask(redis::cmd("HSET").arg("a b").arg(&["x:1", "1"]));
    assert_eq!(real.release(1), Ok(Some(0)));
    assert_eq!(real.ask(redis::cmd("HLEN").arg("a b")), Value::Int(2));
}
