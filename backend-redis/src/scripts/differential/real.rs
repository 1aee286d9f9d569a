//! The scripts on a real server.

use leasehold_core::backend::Mode;
use redis::{Cmd, Connection, Value};
use testbed::redis::{Server as RealServer, Settings, WallClock};

use super::{CHANNELS, END, SLOT_CHANNEL, client, hex, info};
use crate::config::Format;
use crate::keys::{Keys, NameKeys};
use crate::scripts::{self, Call, FOREIGN, OWN, ReignTimes, Script};

/// A server whose clock is stopped, and a subscriber of all its messages.
pub(super) struct Real {
    pub(super) clock: WallClock,
    pub(super) now: u64,
    pub(super) connection: Connection,
    pub(super) push_receiver: Connection,
    pub(super) keys: NameKeys,
    /// Of the program as it was loaded last.
    hash: String,
    /// The format that other libraries share it by.
    pub(super) format: Option<Format>,
    /// A client that may wait for a signal.
    pub(super) listener: Connection,
    pub(super) program: &'static Script,
    pub(super) shares: bool,
    /// Whether the program is changed, and must differ from the model.
    pub(super) is_mutant: bool,
    /// How many ended entries a call drops at most.
    pub(super) sweep: usize,
    /// What the program is told of the server's reign, if that pauses.
    pub(super) times: Option<ReignTimes>,
    _server: RealServer,
}

impl Real {
    /// One that tells the program of a pause.
    pub(super) fn start_pausing() -> Self {
        Self { times: Some(ReignTimes::default()), ..Self::start_sharing() }
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
        let (connection, mut push_receiver, listener) = (connect(), connect(), connect());
        redis::cmd("PSUBSCRIBE").arg("*").exec(&mut push_receiver).unwrap();
        redis::cmd("SSUBSCRIBE").arg(SLOT_CHANNEL).exec(&mut push_receiver).unwrap();
        // As [`super::shared`] has them.
        let millis = std::time::Duration::from_millis;
        let told =
            |format: Format| format.poll(millis(100)).yield_every(millis(1_000)).yield_for(millis(150));
        let format = format.map(|format| told(format).yield_after(2));
        let keys = Keys::new("p", format.as_ref().map(Format::template).as_deref()).unwrap();
        let keys = keys.with_list(format.as_ref().and_then(Format::list));
        let keys = keys.of(&"a b".parse().unwrap()).unwrap();
        let mut real = Self {
            clock,
            now: 0,
            connection,
            push_receiver,
            keys,
            hash: String::new(),
            program: if format.is_some() { &FOREIGN } else { &OWN },
            format,
            listener,
            shares: false,
            is_mutant: false,
            sweep: 500,
            times: None,
            _server: server,
        };
        real.pass(1_800_000_000_000_000);
        real.load(500, None);
        real
    }

    /// Runs from now on a program that drops so many ended entries, with a part of it replaced.
    pub(super) fn load(&mut self, sweep: usize, mutant: Option<(&str, &str)>) {
        (self.sweep, self.is_mutant) = (sweep, mutant.is_some());
        let text = self.program.text().replace("sweep = 500", &format!("sweep = {sweep}"));
        let text = mutant.map_or_else(|| text.clone(), |(from, to)| text.replace(from, to));
        self.hash = redis::cmd("SCRIPT").arg("LOAD").arg(text).query(&mut self.connection).unwrap();
    }

    pub(super) fn pass(&mut self, micros: u64) {
        self.now += micros;
        self.clock.stand_at(self.now).unwrap();
    }

    pub(super) fn ask(&mut self, command: &Cmd) -> Value {
        command.query(&mut self.connection).unwrap()
    }

    /// Runs an operation of the program as it was loaded last.
    pub(super) fn run(&mut self, call: &Call) -> Result<Value, String> {
        let mut loaded = redis::cmd("EVALSHA");
        loaded.arg(&self.hash).arg(call.arguments());
        let told = |format: &Format| format.told(|poll| poll * 3 / 4);
        let times = || self.times.map(|times| times.to_string());
        loaded.arg(self.format.as_ref().map(told).or_else(times));
        loaded.query(&mut self.connection).map_err(|error| error.to_string())
    }

    /// Its counter if it holds the lock.
    pub(super) fn acquire(&mut self, owner: u64) -> Option<u64> {
        scripts::number(&self.enter(owner, 2_000, true, Mode::EXCLUSIVE).unwrap())
    }

    pub(super) fn enter(&mut self, owner: u64, ttl: u64, queues: bool, mode: Mode) -> Result<Value, String> {
        let exclusive = mode == Mode::EXCLUSIVE;
        let operation = if exclusive { "acquire" } else { "share" };
        let mut call = self.program.operation(operation, &self.keys.all());
        call.arg(CHANNELS).arg(hex(owner)).arg(ttl).arg(format!("{} {}", client(owner), info(owner)));
        if !exclusive {
            call.arg(scripts::mode(mode));
        }
        if !queues {
            call.arg("try");
        }
        self.run(&call)
    }

    /// Deletes a key.
    pub(super) fn lose(&mut self, key: usize) {
        let key = self.keys.all()[key].to_owned();
        self.ask(redis::cmd("DEL").arg(key));
    }

    pub(super) fn release(&mut self, owner: u64) -> Result<Option<u64>, String> {
        let mut call = self.program.operation("release", &self.keys.all());
        call.arg(CHANNELS).arg(hex(owner));
        self.run(&call).map(|answer| scripts::number(&answer))
    }

    /// What was published since the last time: inbox and text.
    pub(super) fn heard(&mut self) -> Vec<(String, String)> {
        self.ask(redis::cmd("PUBLISH").arg(END).arg(END));
        let mut heard = Vec::new();
        loop {
            let message = self.push_receiver.recv_response().unwrap();
            let words: Vec<String> = redis::from_redis_value(message).unwrap();
            match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                [_, _, END, _] => return heard,
                ["smessage", channel, text] => heard.push(((*channel).to_owned(), (*text).to_owned())),
                [_, _, SLOT_CHANNEL, text] => heard.push(("not of a slot".to_owned(), (*text).to_owned())),
                [_, _, channel, text] => heard.push(((*channel).to_owned(), (*text).to_owned())),
                _ => panic!("{words:?}"),
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
            local is_list = redis.call('TYPE', KEYS[5]).ok == 'list'
            return { { lock, tostring(redis.call('PTTL', KEYS[1])) },
                redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), { tostring(redis.call('PTTL', KEYS[2])) },
                h, { tostring(redis.call('PTTL', KEYS[3])) },
                { redis.call('GET', KEYS[4]) or 'none', tostring(redis.call('PTTL', KEYS[4])) },
                is_list and redis.call('LRANGE', KEYS[5], 0, -1)
                    or redis.call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES'), { tostring(redis.call('PTTL', KEYS[5])) } }";
        let mut dump = redis::cmd("EVAL");
        dump.arg(DUMP).arg(5).arg(&self.keys.all());
        let mut state: Vec<Vec<String>> = redis::from_redis_value(self.ask(&dump)).unwrap();
        let mut fields: Vec<_> = state[3].chunks(2).map(|pair| pair.join(": ")).collect();
        fields.sort();
        state[3] = fields;
        state
    }
}
