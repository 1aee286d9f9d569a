//! The scripts on a real server.

use leasehold_core::backend::Mode;
use redis::{Arg, Cmd, Connection, Value};
use testbed::redis::{Server as RealServer, Settings, WallClock};

use super::{CHANNELS, END, client, hex, info};
use crate::config::Format;
use crate::keys::{Keys, NameKeys};
use crate::scripts::{self, NameScripts, OWN, PAUSING, Script};

/// What scripts of a format are told: as [`super::shared`] has it.
const TOLD: &str = "100 2 1000 150";

/// A server whose clock stands still, and one that hears everything it says.
pub(super) struct Real {
    pub(super) clock: WallClock,
    pub(super) now: u64,
    pub(super) connection: Connection,
    pub(super) ear: Connection,
    pub(super) keys: NameKeys,
    /// What each script is called by.
    hashes: Vec<String>,
    /// The format that other libraries share it by.
    pub(super) format: Option<Format>,
    /// A client that may wait for a signal.
    pub(super) listener: Connection,
    /// As their own texts are.
    pub(super) scripts: &'static NameScripts,
    /// Whether a script is changed, and to be told from the model.
    pub(super) shares: bool,
    pub(super) is_mutant: bool,
    /// How many ended entries a script drops at most.
    pub(super) sweep: usize,
    /// Until when scripts are told that nothing is granted, if they are told.
    pub(super) paused_until: Option<u64>,
    _server: RealServer,
}

impl Real {
    /// One that is told until when nothing is granted.
    pub(super) fn start_pausing() -> Self {
        let mut real = Self::start(None);
        (real.scripts, real.paused_until) = (&*PAUSING, Some(0));
        real.load(500, None);
        real
    }

    /// One that is asked for shares as well.
    pub(super) fn start_sharing() -> Self {
        Self { shares: true, ..Self::start(None) }
    }

    pub(super) fn start(format: Option<Format>) -> Self {
        let clock = WallClock::new().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = runtime.block_on(Settings::new().clock(&clock).start()).unwrap();
        let client = redis::Client::open(format!("redis://{}", server.addr())).unwrap();
        let connect = || client.get_connection().unwrap();
        let (connection, mut ear, listener) = (connect(), connect(), connect());
        redis::cmd("PSUBSCRIBE").arg("*").exec(&mut ear).unwrap();
        let keys = Keys::new("p", format.as_ref().map(Format::around)).unwrap();
        let keys = keys.of(&"a b".parse().unwrap()).unwrap();
        let hashes = Vec::new();
        let mut real = Self {
            clock,
            now: 0,
            connection,
            ear,
            keys,
            hashes,
            scripts: format.as_ref().map_or(&*OWN, Format::scripts),
            format,
            listener,
            shares: false,
            is_mutant: false,
            sweep: 500,
            paused_until: None,
            _server: server,
        };
        real.pass(1_800_000_000_000_000);
        real.load(500, None);
        real
    }

    /// Has scripts run from now on that drop so many ended entries, with a part of one and what stands there
    /// instead.
    pub(super) fn load(&mut self, sweep: usize, mutant: Option<(&str, &str)>) {
        (self.sweep, self.is_mutant) = (sweep, mutant.is_some());
        let texts = texts(self.scripts).into_iter();
        let texts = texts.map(|text| text.replace("sweep = 500", &format!("sweep = {sweep}")));
        let texts =
            texts.map(|text| mutant.map_or_else(|| text.clone(), |(from, to)| text.replace(from, to)));
        let load = |text| redis::cmd("SCRIPT").arg("LOAD").arg(text).query(&mut self.connection).unwrap();
        self.hashes = texts.map(load).collect();
    }

    pub(super) fn pass(&mut self, micros: u64) {
        self.now += micros;
        self.clock.stand_at(self.now).unwrap();
    }

    pub(super) fn ask(&mut self, command: &Cmd) -> Value {
        command.query(&mut self.connection).unwrap()
    }

    /// Runs a script as it was loaded last.
    pub(super) fn run(&mut self, script: &Script, call: &Cmd) -> Result<Value, String> {
        let at = self.scripts.all().position(|known| std::ptr::eq(known, script)).unwrap();
        let mut loaded = redis::cmd("EVALSHA");
        loaded.arg(&self.hashes[at]);
        for argument in call.args_iter().skip(2) {
            let Arg::Simple(bytes) = argument else { unreachable!("no script takes a cursor") };
            loaded.arg(bytes);
        }
        if self.format.is_some() {
            loaded.arg(TOLD);
        }
        loaded.arg(self.paused_until.iter().collect::<Vec<_>>());
        loaded.query(&mut self.connection).map_err(|error| error.to_string())
    }

    /// Its counter if it holds the lock.
    pub(super) fn acquire(&mut self, owner: u64) -> Option<u64> {
        scripts::number(&self.enter(owner, 2_000, true, Mode::EXCLUSIVE).unwrap())
    }

    pub(super) fn enter(&mut self, owner: u64, ttl: u64, queues: bool, mode: Mode) -> Result<Value, String> {
        let exclusive = mode == Mode::EXCLUSIVE;
        let script = self.scripts.share.as_ref().filter(|_| !exclusive).unwrap_or(&self.scripts.acquire);
        let mut call = script.call(&self.keys.all());
        call.arg(CHANNELS).arg(hex(owner)).arg(ttl).arg(u8::from(queues));
        call.arg(client(owner)).arg(info(owner));
        if !exclusive {
            call.arg(scripts::mode(mode));
        }
        self.run(script, &call)
    }

    /// Somebody deletes a key.
    pub(super) fn lose(&mut self, key: usize) {
        let key = self.keys.all()[key].to_owned();
        self.ask(redis::cmd("DEL").arg(key));
    }

    pub(super) fn release(&mut self, owner: u64) -> Result<Option<u64>, String> {
        let release = &self.scripts.release;
        let mut call = release.call(&self.keys.all());
        call.arg(CHANNELS).arg(hex(owner));
        self.run(release, &call).map(|answer| scripts::number(&answer))
    }

    /// What was published since the last time: inbox and text.
    pub(super) fn heard(&mut self) -> Vec<(String, String)> {
        self.ask(redis::cmd("PUBLISH").arg(END).arg(END));
        let mut heard = Vec::new();
        loop {
            let message = self.ear.recv_response().unwrap();
            let words: Vec<String> = redis::from_redis_value(message).unwrap();
            match &*words[2] {
                END => return heard,
                channel => heard.push((channel.to_owned(), words[3].clone())),
            }
        }
    }

    /// All keys of the name, each with its end.
    pub(super) fn state(&mut self) -> Vec<Vec<String>> {
        const DUMP: &str = "
            local h = redis.call('HGETALL', KEYS[3])
            local kind = redis.call('TYPE', KEYS[1]).ok
            local lock = kind == 'hash' and table.concat(redis.call('HGETALL', KEYS[1]), ' ')
                or redis.call('GET', KEYS[1]) or 'none'
            return { { lock, tostring(redis.call('PTTL', KEYS[1])) },
                redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), { tostring(redis.call('PTTL', KEYS[2])) },
                h, { tostring(redis.call('PTTL', KEYS[3])) },
                { redis.call('GET', KEYS[4]) or 'none', tostring(redis.call('PTTL', KEYS[4])) },
                redis.call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES'), { tostring(redis.call('PTTL', KEYS[5])) } }";
        let mut dump = redis::cmd("EVAL");
        dump.arg(DUMP).arg(5).arg(&self.keys.all());
        let mut state: Vec<Vec<String>> = redis::from_redis_value(self.ask(&dump)).unwrap();
        let mut fields: Vec<_> = state[3].chunks(2).map(|pair| pair.join(": ")).collect();
        fields.sort();
        state[3] = fields;
        state
    }
}

/// The scripts as they are.
pub(super) fn texts(scripts: &NameScripts) -> Vec<String> {
    let text = |script: &Script| {
        let call = script.with_text(&script.call(&[]));
        let Some(Arg::Simple(text)) = call.args_iter().nth(1) else { unreachable!() };
        String::from_utf8(text.to_vec()).unwrap()
    };
    scripts.all().map(text).collect()
}
