//! A server whose clock is stopped, and its keys.

use redis::{Cmd, Connection, Value};
use testbed::redis::{Server, Settings, WallClock};

use super::{BEGIN, END};
use crate::keys::Keys;
use crate::quorum::keys::BallotKeys;
use crate::quorum::scripts::PROGRAM;
use crate::scripts::Call;

pub(super) struct Real {
    clock: WallClock,
    pub(super) now: u64,
    connection: Connection,
    receiver: Connection,
    pub(super) keys: BallotKeys,
    pub(super) space: String,
    /// Parts of the program, and what stands there instead.
    pub(super) changes: Vec<(&'static str, &'static str)>,
    _server: Server,
}

impl Real {
    pub(super) fn start() -> Self {
        let clock = WallClock::new().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = runtime.block_on(Settings::new().clock(&clock).start()).unwrap();
        let client = redis::Client::open(format!("redis://{}", server.addr())).unwrap();
        let (connection, mut receiver) = (client.get_connection().unwrap(), client.get_connection().unwrap());
        redis::cmd("SUBSCRIBE").arg(END).arg("p:inbox:0").arg("p:inbox:1").exec(&mut receiver).unwrap();
        let answers = (0..2).map(|_| receiver.recv_response().unwrap());
        answers.for_each(drop);
        let keys = Keys::new("p", None).unwrap();
        let (space, keys) = (keys.space(), BallotKeys::of(&keys, &"a b".parse().unwrap()));
        let mut real =
            Self { clock, now: 0, connection, receiver, keys, space, changes: Vec::new(), _server: server };
        real.pass(BEGIN);
        real
    }

    pub(super) fn pass(&mut self, micros: u64) {
        self.stand_at(self.now + micros);
    }

    pub(super) fn stand_at(&mut self, now: u64) {
        self.now = now;
        self.clock.stand_at(now).unwrap();
    }

    pub(super) fn ask(&mut self, command: &Cmd) -> Value {
        command.query(&mut self.connection).unwrap()
    }

    pub(super) fn run(&mut self, call: &Call) -> Value {
        let text =
            self.changes.iter().fold(PROGRAM.text().to_owned(), |text, (from, to)| text.replace(from, to));
        let mut eval = redis::cmd("EVAL");
        eval.arg(text).arg(call.arguments());
        self.ask(&eval)
    }

    /// The messages since the last time.
    pub(super) fn heard(&mut self) -> Vec<String> {
        self.ask(redis::cmd("PUBLISH").arg(END).arg(END));
        let mut heard = Vec::new();
        loop {
            let words: Vec<String> = redis::from_redis_value(self.receiver.recv_response().unwrap()).unwrap();
            match &*words[1] {
                END => return heard,
                _ => heard.push(words[2].clone()),
            }
        }
    }

    /// All keys, each with its end.
    pub(super) fn state(&mut self) -> Vec<Vec<String>> {
        const DUMP: &str = "
            local known = redis.call('HMGET', KEYS[4], 'run', 'whole', 'floor', 'max', 'claims', 'pause', 'used',
                'beside', 'since', 'terms', 'id', 'episode')
            if known[2] ~= '0' and known[1] then known[2] = known[2] == known[1] and '1' or 'another' end
            for i = 1, 7 do known[i] = known[i] or '0' end
            for i = 8, 12 do known[i] = known[i] or '' end
            return { { redis.call('GET', KEYS[1]) or 'none', tostring(redis.call('PTTL', KEYS[1])) },
                { redis.call('GET', KEYS[2]) or 'none', tostring(redis.call('PTTL', KEYS[2])) },
                redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'), { tostring(redis.call('PTTL', KEYS[3])) }, known }";
        let mut dump = redis::cmd("EVAL");
        let BallotKeys { vote, count, waits, .. } = &self.keys;
        dump.arg(DUMP).arg(4).arg(vote).arg(count).arg(waits).arg(&self.space);
        let value = self.ask(&dump);
        redis::from_redis_value(value).unwrap()
    }
}
