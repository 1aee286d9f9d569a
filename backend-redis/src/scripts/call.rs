//! The call of a script, as its bytes.

use std::fmt;
use std::io;

use leasehold_core::{LockName, Result};
use redis::{RedisWrite, ToRedisArgs};

use super::Script;
use super::holders::info_parts;
use crate::keys::{KEYS, Keys};

/// A script with its keys and arguments, packed once for every time that it is sent.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    words: usize,
    /// The number of keys, the keys and the arguments, each as the protocol has it.
    packed: Vec<u8>,
}

/// The arguments of a connection for each script, if its server pauses: times in microseconds of the server's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReignTimes {
    /// Until when nothing is granted that may have holders which the server has forgotten.
    pub(crate) paused_until: u64,
    /// Until when a primary that was replaced may go on.
    pub(crate) lag_until: u64,
}

impl fmt::Display for ReignTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "~{} {}", self.paused_until, self.lag_until)
    }
}

impl Call {
    pub(super) fn new(script: &'static Script, keys: &[&str]) -> Self {
        let room = keys.iter().map(|key| key.len() + FRAME).sum::<usize>() + ARGUMENTS;
        let mut call = Self { script, words: 0, packed: Vec::with_capacity(room) };
        call.number(keys.len() as u64).arg(keys);
        call
    }

    /// The call of a script with the keys of `names`.
    pub(super) fn on(script: &'static Script, keys: &Keys, names: &[&LockName]) -> Result<Self> {
        let room = names.iter().map(|name| KEYS * (keys.longest(name) + FRAME)).sum::<usize>() + ARGUMENTS;
        let mut call = Self { script, words: names.len() * KEYS, packed: Vec::with_capacity(room) };
        call.number((names.len() * KEYS) as u64);
        for name in names {
            keys.each(name, |parts, ends| words(&mut call.packed, parts, ends))?;
        }
        Ok(call)
    }

    /// The same call, with room for more arguments.
    pub(crate) fn extended(&self) -> Self {
        let mut packed = Vec::with_capacity(self.packed.len() + MORE);
        packed.extend_from_slice(&self.packed);
        Self { packed, ..*self }
    }

    pub(crate) fn arg(&mut self, argument: impl ToRedisArgs) -> &mut Self {
        argument.write_redis_args(self);
        self
    }

    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        if let Ok(digit @ 0..10) = u8::try_from(number) {
            self.words += 1;
            self.packed.extend_from_slice(&[b'$', b'1', b'\r', b'\n', b'0' + digit, b'\r', b'\n']);
            return self;
        }
        self.arg_of(&[Digits::default().of(number)])
    }

    /// The argument about a holder or waiter, "INBOX INFO".
    pub(crate) fn holder(&mut self, inbox: &str, label: &str, metadata: Option<&str>) -> &mut Self {
        let mut length = Digits::default();
        let [length, mark, label, metadata] = info_parts(label, metadata, &mut length);
        self.arg_of(&[inbox, " ", length, mark, label, metadata])
    }

    /// One argument that consists of `parts`.
    pub(crate) fn arg_of<B: AsRef<[u8]>>(&mut self, parts: &[B]) -> &mut Self {
        self.words += 1;
        word(&mut self.packed, parts);
        self
    }

    /// The first of its keys, which lie in one slot; empty without keys.
    pub(crate) fn key(&self) -> &[u8] {
        let mut parts = self.packed.splitn(4, |byte| *byte == b'\n');
        let [_, count, length, rest] = [(); 4].map(|()| parts.next().unwrap_or_default());
        let digits = |line: &[u8]| line.iter().filter(|byte| byte.is_ascii_digit()).copied().collect();
        let length = String::from_utf8(digits(length)).ok().and_then(|length| length.parse::<usize>().ok());
        if count == b"0\r" { b"" } else { &rest[..length.unwrap_or_default()] }
    }

    /// Appends the request by the script's hash, or with its text; `last` is one more argument.
    pub(crate) fn pack(&self, out: &mut Vec<u8>, with_text: bool, last: Option<ReignTimes>) {
        line(out, b'*', 2 + self.words + usize::from(last.is_some()));
        if with_text {
            word(out, &["EVAL"]);
            word(out, &[&self.script.text]);
        } else {
            out.extend_from_slice(&self.script.head);
        }
        out.extend_from_slice(&self.packed);
        if let Some(last) = last {
            word(out, &[&last.to_string()]);
        }
    }

    /// The number of keys, the keys and the arguments.
    #[cfg(test)]
    pub(crate) fn arguments(&self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        line(&mut all, b'*', self.words);
        all.extend_from_slice(&self.packed);
        redis::from_redis_value(redis::parse_redis_value(&all).unwrap()).unwrap()
    }
}

/// The beginning of every call of the script with that `hash`.
pub(super) fn head(hash: &str) -> Vec<u8> {
    let mut head = Vec::new();
    word(&mut head, &["EVALSHA"]);
    word(&mut head, &[hash]);
    head
}

/// Appends a word that consists of `parts`.
fn word<B: AsRef<[u8]>>(out: &mut Vec<u8>, parts: &[B]) {
    line(out, b'$', parts.iter().map(|part| part.as_ref().len()).sum());
    parts.iter().for_each(|part| out.extend_from_slice(part.as_ref()));
    out.extend_from_slice(b"\r\n");
}

/// Appends a word for each of `ends`, behind `parts`. Those are copied from an earlier word, which is faster than from each
/// part.
fn words(out: &mut Vec<u8>, parts: &[&str], ends: &[&str]) {
    let Some((first, rest)) = ends.split_first() else { return };
    let common: usize = parts.iter().map(|part| part.len()).sum();
    let mut last = out.len();
    line(out, b'$', common + first.len());
    let text = out.len();
    parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
    out.extend_from_slice(first.as_bytes());
    out.extend_from_slice(b"\r\n");
    for (before, end) in ends.iter().zip(rest) {
        let begin = out.len();
        if before.len() == end.len() {
            out.extend_from_within(last..);
            let at = out.len() - b"\r\n".len() - end.len();
            out[at..at + end.len()].copy_from_slice(end.as_bytes());
        } else {
            line(out, b'$', common + end.len());
            out.extend_from_within(text..text + common);
            out.extend_from_slice(end.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        last = begin;
    }
}

fn line(out: &mut Vec<u8>, kind: u8, number: usize) {
    // Nearly all are that short.
    match u8::try_from(number) {
        Ok(n @ 0..10) => return out.extend_from_slice(&[kind, b'0' + n, b'\r', b'\n']),
        Ok(n @ 10..100) => {
            return out.extend_from_slice(&[kind, b'0' + n / 10, b'0' + n % 10, b'\r', b'\n']);
        }
        _ => {}
    }
    out.push(kind);
    out.extend_from_slice(Digits::default().of(number as u64).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Room for the digits of a number.
#[derive(Default)]
pub(super) struct Digits([u8; 20]);

impl Digits {
    /// The decimal digits of `number`.
    pub(super) fn of(&mut self, mut number: u64) -> &str {
        let Self(room) = self;
        let mut first = room.len();
        loop {
            first -= 1;
            room[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        std::str::from_utf8(&room[first..]).unwrap_or_default()
    }
}

impl RedisWrite for Call {
    fn write_arg(&mut self, argument: &[u8]) {
        self.words += 1;
        word(&mut self.packed, &[argument]);
    }

    fn writer_for_next_arg(&mut self) -> impl io::Write + '_ {
        Word { call: self, bytes: Vec::new() }
    }
}

/// An argument whose length is known when it is dropped.
struct Word<'c> {
    call: &'c mut Call,
    bytes: Vec<u8>,
}

impl io::Write for Word<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Word<'_> {
    fn drop(&mut self) {
        self.call.write_arg(&self.bytes);
    }
}

/// Names, messages and owner ids are in it.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("script", &self.script.hash).finish_non_exhaustive()
    }
}

/// Room for what stands around a key, and for the arguments of most calls, so that a call does not grow.
const FRAME: usize = 8;
const ARGUMENTS: usize = 400;
const MORE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripts::{ADMIT, OWN};

    /// Also with keys of other libraries, and where one more byte of a key is one more digit of its length.
    #[test]
    fn keys_of_names_are_packed_as_their_texts() {
        let names: Vec<_> = (1..120).map(|length| LockName::new("}".repeat(length)).unwrap()).collect();
        let template = Keys::new("p", Some("lock:{name}:v1")).unwrap();
        let list = template.clone().with_list(Some("signal:"));
        for keys in [Keys::new("p", None).unwrap(), template, list] {
            for names in names.windows(2) {
                let call = OWN.operation_on("release", &keys, &[&names[0], &names[1]]).unwrap();
                let [first, second] = [0, 1].map(|name| keys.of(&names[name]).unwrap());
                let expected = OWN.operation("release", &[first.all(), second.all()].concat());
                assert_eq!((call.words, &call.packed), (expected.words, &expected.packed));
            }
        }
    }

    /// The bytes are those that the client crate packs.
    #[test]
    fn call_is_packed_as_commands_are() {
        let mut call = ADMIT.call(&["a", "key of 11 b"]);
        call.arg(7_u64).arg(Some(1_u8)).arg(None::<u8>).arg("").arg(&b"\r\n"[..]);
        RedisWrite::write_arg_fmt(&mut call, 3);
        let times = ReignTimes { paused_until: 9, lag_until: 7 };
        for (with_text, last) in [(false, None), (true, None), (false, Some(times))] {
            let mut command = redis::cmd(if with_text { "EVAL" } else { "EVALSHA" });
            command.arg(if with_text { &ADMIT.text } else { &ADMIT.hash });
            command.arg(2).arg("a").arg("key of 11 b").arg(7).arg(1).arg("").arg("\r\n").arg(3);
            command.arg(last.map(|_| "~9 7"));
            let mut packed = Vec::new();
            call.pack(&mut packed, with_text, last);
            assert_eq!(packed, command.get_packed_command());
        }
        assert_eq!(call.arguments().len(), 8);
        assert_eq!(call.key(), b"a");
        assert_eq!(ADMIT.call(&["key \r\n of 13 b", "a"]).arg(7).key(), b"key \r\n of 13 b");
        assert_eq!(ADMIT.call(&[]).arg("no key").key(), b"");
    }
}
