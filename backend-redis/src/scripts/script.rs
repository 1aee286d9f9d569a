//! The texts, put together of their parts.
//!
//! What a lock is under its key, a part of its own says, which stands before whatever uses it: one for keys of ours, one
//! for each format. A free lock is taken and released before any of the rest is defined, where that can be.

use std::sync::LazyLock;

use redis::Cmd;

/// A script and the name under which a server keeps it.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    hash: String,
}

/// The scripts on the keys of names.
#[derive(Debug)]
pub(crate) struct NameScripts {
    pub(crate) acquire: Script,
    pub(crate) refresh: Script,
    pub(crate) release: Script,
    pub(crate) revoke: Script,
    pub(crate) inspect: Script,
    /// Takes a lock otherwise than exclusively, where several may hold it together.
    pub(crate) share: Option<Script>,
}

/// On keys of ours.
pub(crate) static OWN: LazyLock<NameScripts> = LazyLock::new(|| {
    let queue = [VALUE, PLAIN_KEY, QUEUE, include_str!("sharing.lua"), HANDING].concat();
    let share = Script::new(&[GRANT, &queue, SETTLING, include_str!("share.lua"), ENQUEUE]);
    NameScripts { share: Some(share), ..NameScripts::on_a_value(ACQUIRE_FREE, &queue) }
});

/// On keys of ours where a server that has restarted grants nothing at first.
pub(crate) static PAUSING: LazyLock<NameScripts> = LazyLock::new(|| {
    let queue = [VALUE, PLAIN_KEY, QUEUE, include_str!("pause.lua"), HANDING].concat();
    NameScripts::on_a_value(include_str!("pause_acquire.lua"), &queue)
});

/// On strings of other libraries.
pub(crate) static STRING: LazyLock<NameScripts> = LazyLock::new(|| {
    let key = [FOREIGN, VALUE, include_str!("string.lua")].concat();
    NameScripts::on_a_key(&key, &[QUEUE, STRANGERS, HANDING].concat())
});

/// On hashes of Redisson.
pub(crate) static REDISSON: LazyLock<NameScripts> = LazyLock::new(|| {
    let key = [FOREIGN, include_str!("redisson.lua")].concat();
    NameScripts::on_a_key(&key, &[QUEUE, STRANGERS, HANDING].concat())
});

pub(crate) static RAISE: LazyLock<Script> = LazyLock::new(|| Script::new(&[include_str!("raise.lua")]));
pub(crate) static RECORD: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[GRANT, include_str!("record.lua")]));
pub(crate) static MEMBERS: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[GRANT, QUEUE, include_str!("members.lua")]));

pub(crate) static ADMIT: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[GRANT, include_str!("admit.lua")]));

const ACQUIRE_FREE: &str = include_str!("acquire_free.lua");
const GRANT: &str = include_str!("grant.lua");
const QUEUE: &str = concat!(include_str!("tell.lua"), include_str!("queue.lua"));
const STRANGERS: &str = include_str!("strangers.lua");
const PLAIN_KEY: &str = include_str!("plain.lua");
const LEAVING: &str = include_str!("leaving.lua");
const ENQUEUE: &str = include_str!("enqueue.lua");
const HANDING: &str = include_str!("handing.lua");
const SETTLING: &str = include_str!("settling.lua");
const VALUE: &str = include_str!("value.lua");
const FOREIGN: &str = include_str!("foreign.lua");

/// The texts by which an exclusive lock on a key of ours is taken and released: whoever measures what the store adds to
/// them runs them bare.
#[doc(hidden)]
pub fn exclusive_scripts() -> [&'static str; 2] {
    [&OWN.acquire.text, &OWN.release.text]
}

impl NameScripts {
    /// On keys that are strings: a free lock is taken by `acquire`, and let go, before `queue` is defined.
    fn on_a_value(acquire: &str, queue: &str) -> Self {
        Self::new([GRANT, acquire, queue], [include_str!("release_free.lua"), GRANT, queue], queue)
    }

    /// On keys that others write, too, as `key` says.
    fn on_a_key(key: &str, queue: &str) -> Self {
        let (acquire, release) = (include_str!("key_acquire.lua"), include_str!("key_release.lua"));
        Self::new(
            [&[GRANT, key].concat(), acquire, queue],
            [&[key, GRANT].concat(), release, queue],
            &[key, queue].concat(),
        )
    }

    /// Whose `acquire` and `release` begin so, and whose others need `queue`.
    fn new(acquire: [&str; 3], release: [&str; 3], queue: &str) -> Self {
        Self {
            acquire: Script::new(&[&acquire.concat(), include_str!("acquire.lua"), ENQUEUE]),
            refresh: Script::new(&[GRANT, queue, SETTLING, include_str!("refresh.lua")]),
            release: Script::new(&[&release.concat(), SETTLING, LEAVING, include_str!("release.lua")]),
            revoke: Script::new(&[GRANT, queue, SETTLING, LEAVING, include_str!("revoke.lua")]),
            inspect: Script::new(&[GRANT, queue, include_str!("inspect.lua")]),
            share: None,
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Script> {
        let Self { acquire, refresh, release, revoke, inspect, share } = self;
        [acquire, refresh, release, revoke, inspect].into_iter().chain(share)
    }
}

impl Script {
    /// The script that consists of these `parts`.
    pub(crate) fn new(parts: &[&str]) -> Self {
        let text = parts.concat();
        Self { hash: Self::hash_of(&text), text }
    }

    /// As a server hashes `text`.
    pub(crate) fn hash_of(text: &str) -> String {
        redis::Script::new(text).get_hash().to_owned()
    }

    /// Every script, to be loaded ahead of its first use where a user may not bring the text.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        let named = [&*OWN, &*PAUSING, &*STRING, &*REDISSON].into_iter().flat_map(NameScripts::all);
        named.chain([&*RAISE, &*RECORD, &*MEMBERS, &*ADMIT])
    }

    pub(crate) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.text);
        command
    }

    /// Whether it is what a server has loaded under that hash.
    pub(crate) fn is_kept_as(&self, hash: &str) -> bool {
        self.hash == hash
    }

    /// Whether `part` is in its text.
    #[cfg(test)]
    pub(crate) fn has(&self, part: &str) -> bool {
        self.text.contains(part)
    }

    /// The script on `keys`, by its hash.
    pub(crate) fn call(&self, keys: &[&str]) -> Cmd {
        let room = keys.iter().map(|key| key.len()).sum::<usize>() + ARGUMENTS;
        let mut command = Cmd::with_capacity(keys.len() + 9, room);
        command.arg("EVALSHA").arg(&self.hash).arg(keys.len()).arg(keys);
        command
    }

    /// The same request with the text, for a server that does not have it.
    pub(crate) fn with_text(&self, call: &Cmd) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(&self.text);
        for argument in call.args_iter().skip(2) {
            if let redis::Arg::Simple(bytes) = argument {
                command.arg(bytes);
            }
        }
        command
    }
}

/// Room for hash and arguments of a call, in bytes, so that it does not grow argument by argument.
const ARGUMENTS: usize = 320;
