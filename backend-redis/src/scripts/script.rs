//! The texts, and how they are called.

use std::sync::LazyLock;

use redis::Cmd;

use super::TELL;

/// A script and the name under which a server keeps it.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    pub(crate) hash: String,
}

/// Locks under our own keys.
pub(crate) static OWN: LazyLock<Script> = LazyLock::new(|| program(include_str!("own.lua")));
/// Locks under keys of other libraries.
pub(crate) static FOREIGN: LazyLock<Script> = LazyLock::new(|| program(include_str!("foreign.lua")));

pub(crate) static RAISE: LazyLock<Script> = LazyLock::new(|| Script::new(&[include_str!("raise.lua")]));
pub(crate) static RECORD: LazyLock<Script> = LazyLock::new(|| timed(include_str!("record.lua")));
pub(crate) static MEMBERS: LazyLock<Script> = LazyLock::new(|| timed(include_str!("members.lua")));
pub(crate) static ADMIT: LazyLock<Script> = LazyLock::new(|| timed(include_str!("admit.lua")));

/// The program of our keys and the names of its operations that acquire and release an exclusive lock, for a measurement of
/// what the store adds to them. `base.lua` lists their arguments; the last one is `0`, as no restart pauses grants.
#[doc(hidden)]
pub fn exclusive_scripts() -> (&'static str, [&'static str; 2]) {
    (&OWN.text, ["acquire", "release"])
}

/// The sections of `base.lua`: time, counting, queue, operations.
fn base() -> [&'static str; 4] {
    sections(include_str!("base.lua"))
}

fn sections<const N: usize>(text: &'static str) -> [&'static str; N] {
    let sections = text.split("---\n").collect::<Vec<_>>();
    sections.try_into().expect("the texts are constants")
}

/// With the paths of a free lock before the functions that they do not need.
fn program(text: &'static str) -> Script {
    let [time, counting, queue, operations] = base();
    let [free, rest] = sections(text);
    Script::new(&[time, counting, free, TELL, queue, rest, operations, include_str!("admin.lua")])
}

fn timed(text: &str) -> Script {
    Script::new(&[base()[0], text])
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
        [&*OWN, &*FOREIGN, &*RAISE, &*RECORD, &*MEMBERS, &*ADMIT].into_iter()
    }

    pub(crate) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.text);
        command
    }

    /// Whether `part` is in its text.
    #[cfg(test)]
    pub(crate) fn has(&self, part: &str) -> bool {
        self.text.contains(part)
    }

    /// The script on `keys`, by its hash.
    pub(crate) fn call(&self, keys: &[&str]) -> Cmd {
        let room = keys.iter().map(|key| key.len()).sum::<usize>() + ARGUMENTS;
        let mut command = Cmd::with_capacity(keys.len() + 12, room);
        command.arg("EVALSHA").arg(&self.hash).arg(keys.len()).arg(keys);
        command
    }

    /// The call of an operation of a program.
    pub(crate) fn operation(&self, operation: &str, keys: &[&str]) -> Cmd {
        let mut command = self.call(keys);
        command.arg(operation);
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
