//! Until when a slot of a cluster may have lost holders: its server has restarted or was promoted, or the slot has moved.
//!
//! A slot that is in use has an origin, which moves with it, so a slot that comes to another server differs from one that has
//! been there (redis.slots-1). A server has an origin, too, with the slots that it had when its reign was first seen: a slot
//! of those begins with the server's, and costs no pause of its own, if it is unused, or was used last at the primary before.
//!
//! The lag is for a primary that was replaced and goes on: it may end a lease and grant the lock again. A slot that moves is
//! refused by the server that had it, so that one grants nothing. Other managers and this one look the same to the new server.
//! Therefore the session notes the server by which a slot was served last, and asks that one whether it refuses the slot, until it
//! says so or the lag is over.
//!
//! A session that does not pause asks about each slot, too, once over each connection: wherever the slot has moved, its origin
//! bears the terms of those that have used it.
//!
//! # Invariants
//! - **redis.slots-1** Nothing is sent to a script over a connection before the slot's origin was asked over it, or after the
//!   slot was idle there for longer than a server needs to be replaced and to come back, or came there anew.
//! - **redis.slots-2** A lease is renewed that ends within the lag only if each server that has served the slot for this session
//!   within the lag refuses it, by the word of the same process. Until then such a hold is kept, and not extended.
//! - **redis.slots-3** A session does not go back to a server that it has left without that word, until the lag is over or the
//!   origin shows that the slot has come there anew: it would go to and fro between two that both take themselves for the
//!   primary. No guarantee rests on that: clients of the model do.
//! - **redis.slots-4** While a slot pauses, a message grants nothing: it may be of the primary before.
//!
//! Not promised: that a move to a server and back is seen if the server in between fails without having copied the slot's origin.
//!
//! Held against a model by `protocol/tests/moves.rs`.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Env, Error, Result};
use parking_lot::Mutex;
use redis::{RedisError, Value};

use super::Connection;
use super::connected::ended;
use super::pause::{Terms, micros};
use super::served::{Left, Served};
use crate::cluster::{HashSlot, SlotMap, SlotRanges};
use crate::config::{Address, Failover, PauseOption};
use crate::error;
use crate::keys::Keys;
use crate::scripts::{Call, KnownReign, OWN, ReignTimes};

/// The knowledge of a session about the slots that it uses.
pub(crate) struct SlotPause {
    env: Env,
    keys: Keys,
    pub(super) terms: Terms,
    /// A slot that was not used for so long over a connection may have lost and found its server by the time at which a request
    /// arrives.
    idle: Duration,
    known: Mutex<ServedSlots>,
    servers: OnceLock<Weak<dyn Refuses>>,
}

/// Both under one lock, so that a task ends only while no slot waits for its server.
#[derive(Debug, Default)]
struct ServedSlots {
    served: HashMap<HashSlot, Served>,
    /// The reigns whose servers are asked, each by one task.
    asked: HashSet<Arc<str>>,
}

impl fmt::Debug for SlotPause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotPause").field("terms", &self.terms).finish_non_exhaustive()
    }
}

/// Asks servers whether they serve slots.
#[async_trait]
pub(crate) trait Refuses: Send + Sync {
    /// Asks the process of `reign` at `server` about the slots that wait for its word, until none does.
    async fn ask_former(self: Arc<Self>, server: Address, reign: Arc<str>);
}

impl SlotPause {
    pub(crate) fn new(env: &Env, keys: &Keys, option: PauseOption, failover: Failover) -> Self {
        let terms = Terms(option);
        let idle = (failover.lag / 2).saturating_sub(env.timing().op_timeout);
        Self {
            env: env.clone(),
            keys: keys.clone(),
            terms,
            // The terms of others do not change by a fail-over.
            idle: if terms.is_off() { Duration::MAX } else { idle },
            known: Mutex::default(),
            servers: OnceLock::new(),
        }
    }

    /// The servers that are asked.
    pub(crate) fn with_servers(&self, servers: Weak<dyn Refuses>) {
        // Once, when the session is opened.
        let _ = self.servers.set(servers);
    }

    /// Whether nothing is granted in `slot`, as far as is known.
    pub(crate) fn is_on(&self, slot: HashSlot) -> bool {
        let now = self.env.now();
        self.known.lock().served.get(&slot).is_some_and(|served| now < served.pause_end)
    }

    /// Until when a primary before may go on, if the session was served there last.
    fn lag_end(&self, slot: HashSlot, (reign, since): (&str, u64)) -> Option<Moment> {
        let known = self.known.lock();
        known.served.get(&slot).filter(|served| served.is_at(reign, since)).map(Served::lag_end)
    }

    /// The questions about slots over `connection`. Its server's origin is asked at once, so that its pause begins.
    pub(super) async fn ask(
        self: &Arc<Self>,
        connection: &Connection,
        give_up_at: Moment,
        failed: fn(RedisError) -> Error,
    ) -> Result<SlotTimes> {
        let server = self.ask_server(connection, give_up_at, failed).await?;
        Ok(SlotTimes { pause: Arc::clone(self), server, slots: Mutex::default() })
    }

    /// Since when the server is known; `None` if it says that it has no slots.
    async fn ask_server(
        &self,
        connection: &Connection,
        give_up_at: Moment,
        failed: fn(RedisError) -> Error,
    ) -> Result<Option<KnownServer>> {
        let of_slots = SlotMap::question();
        let asked = connection.wire.ask(give_up_at, |out, _, _| of_slots.write_packed_command(out)).await;
        let asked = asked.map_err(|error| error.with_effect(Effect::NotApplied))?;
        let map = asked.extract_error().map_err(failed)?;
        let address = connection.client.address();
        let slots = SlotMap::read(&map, address)?.slots_of(address);
        let Some(last) = slots.last() else { return Ok(None) };
        // The slots that are moved first are low ones.
        let key = self.keys.origin_of_server(&last.tag());
        let mut call = self.terms.call(&key);
        call.arg(slots.to_string());
        match self.ask_origin(connection, &call, give_up_at).await?.extract_error() {
            // It has moved meanwhile.
            Err(refused) if !error::is_denied(&refused) => Ok(None),
            answer => {
                let known = self.terms.read(&key, answer, failed)?;
                Ok(Some(KnownServer { slots: SlotRanges::read(&known.slots), known }))
            }
        }
    }

    /// The answer to the request about an origin, which is repeated if it is lost.
    async fn ask_origin(&self, connection: &Connection, call: &Call, give_up_at: Moment) -> Result<Value> {
        let answer = connection.run_with(call, None, give_up_at, false).await;
        let lost = |error: Error| match connection.state.is_over() {
            true => ended(),
            false => error.with_effect(Effect::NotApplied),
        };
        answer.map_err(lost)
    }

    /// The session comes to a reign of the server at `server`, by an answer to what was sent then.
    ///
    /// # Errors
    ///
    /// Not applied: redis.slots-3; if the answer is older than what is known of another server.
    fn enter(
        &self,
        slot: HashSlot,
        (server, reign): (&Address, &Arc<str>),
        times: &KnownReign,
        sent_at: Moment,
    ) -> Result<()> {
        let left_of = |until: u64| Duration::from_micros(until.saturating_sub(times.now));
        let now = self.env.now();
        let (lag_end, pause_end) =
            (now + left_of(self.terms.lag_until(times)), now + left_of(self.terms.paused_until(times)));
        let (server, reign) = (server.clone(), Arc::clone(reign));
        let (since, age) = (times.since, Duration::from_micros(times.now.saturating_sub(times.since)));
        let next = Served { server, reign, since, age, sent_at, lag_end, pause_end, left: Vec::new() };
        let mut known = self.known.lock();
        let ServedSlots { served, asked } = &mut *known;
        let before = match served.remove(&slot) {
            None => {
                served.insert(slot, next);
                return Ok(());
            }
            Some(before) if before.bars(&next, now) => {
                served.insert(slot, before);
                return Err(error::of_former());
            }
            Some(before) => before,
        };
        let former = before.server.clone();
        let (next, left) = before.followed(next, now, now + self.terms.0.lag);
        served.insert(slot, next);
        if let Some(Left { reign, .. }) = left
            && asked.insert(Arc::clone(&reign))
            && let Some(servers) = self.servers.get().and_then(Weak::upgrade)
        {
            // redis.slots-2
            self.env.spawn(servers.ask_former(former, reign));
        }
        Ok(())
    }

    /// The key that a server is asked about.
    pub(crate) fn origin_of(&self, slot: HashSlot) -> String {
        self.keys.origin_of(&slot.tag())
    }

    /// The slots that wait for the word of the server of `reign`. Without any its task ends.
    pub(crate) fn waiting_for(&self, reign: &str) -> Vec<(HashSlot, Left)> {
        let now = self.env.now();
        let mut known = self.known.lock();
        let waits = |(slot, served): (&HashSlot, &Served)| {
            let left = served.left.iter().find(|left| &*left.reign == reign && now < left.lag_end)?;
            Some((*slot, left.clone()))
        };
        let waiting: Vec<_> = known.served.iter().filter_map(waits).collect();
        if waiting.is_empty() {
            known.asked.remove(reign);
        }
        waiting
    }

    /// A server has said that others have these slots. Its word does not count for a slot that was left again since.
    pub(crate) fn refused(&self, slots: &[(HashSlot, Left)]) {
        let mut known = self.known.lock();
        for (slot, left) in slots {
            if let Some(served) = known.served.get_mut(slot) {
                served.left.retain(|other| other != left);
            }
        }
    }

    /// The process of `reign` has ended, so it says nothing any more. Its task ends.
    pub(crate) fn is_silent(&self, reign: &str) {
        self.known.lock().asked.remove(reign);
    }
}

/// The times that scripts get over one connection, by the slots of their keys.
#[derive(Debug)]
pub(super) struct SlotTimes {
    pause: Arc<SlotPause>,
    server: Option<KnownServer>,
    slots: Mutex<HashMap<HashSlot, Proved>>,
}

/// The server of a connection, and the slots that it had when its reign was first seen.
#[derive(Debug)]
struct KnownServer {
    known: KnownReign,
    slots: SlotRanges,
}

/// The times that scripts get, and when the server was last known to have the slot.
#[derive(Clone, Debug)]
struct Proved {
    reign: Arc<str>,
    since: u64,
    paused_until: u64,
    /// When that was asked, and what the server's clock said then or later.
    asked: (Moment, u64),
    at: Moment,
}

impl Proved {
    /// `None` if nothing pauses.
    fn times(&self, terms: Terms, lag_end: Moment) -> Option<ReignTimes> {
        let (asked_at, now) = self.asked;
        let lag_until = match micros(lag_end.since(asked_at)) {
            0 => 0,
            left => now.saturating_add(left),
        };
        (!terms.is_off()).then_some(ReignTimes { paused_until: self.paused_until, lag_until })
    }
}

impl SlotTimes {
    /// Until when the server grants nothing, by its clock.
    pub(super) fn paused_until(&self) -> Option<u64> {
        let server = self.server.as_ref().filter(|_| !self.pause.terms.is_off())?;
        Some(self.pause.terms.paused_until(&server.known))
    }

    /// The times to send with `call`; the server's error if it refuses the slot.
    ///
    /// # Errors
    ///
    /// Not applied, as [`Terms::read`]; if the slot is only on its way to the server, or is back there too soon.
    pub(super) async fn of(
        &self,
        connection: &Connection,
        call: &Call,
        give_up_at: Moment,
        is_asking: bool,
    ) -> Result<std::result::Result<Option<ReignTimes>, Value>> {
        if !concerns_a_lock(call) {
            return Ok(Ok(None));
        }
        // Its origin may still be at the other server, and would be in the way there.
        if is_asking {
            return Err(error::in_move());
        }
        let (pause, slot) = (&self.pause, HashSlot::of(call.key()));
        let sent_at = pause.env.now();
        let proved = self.slots.lock().get(&slot).cloned();
        if let Some(proved) = proved.filter(|proved| sent_at.since(proved.at) < pause.idle)
            // The slot may be back from another server, which the next one would be taken to come after.
            && let Some(lag_end) = pause.lag_end(slot, (&proved.reign, proved.since))
        {
            return Ok(Ok(proved.times(pause.terms, lag_end)));
        }
        let server = self.server.as_ref().filter(|server| server.slots.contains(slot));
        let since = server.map(|KnownServer { known, .. }| format!("{} {}", known.reign, known.since));
        let key = pause.origin_of(slot);
        let mut question = pause.terms.call(&key);
        question.arg("").arg(since.unwrap_or_default());
        let answer = match pause.ask_origin(connection, &question, give_up_at).await? {
            Value::ServerError(refused) if !error::is_denied(&refused.clone().into()) => {
                return Ok(Err(Value::ServerError(refused)));
            }
            answer => answer.extract_error(),
        };
        let known = pause.terms.read(&key, answer, error::of)?;
        let reign: Arc<str> = known.reign.as_str().into();
        let place = (connection.client.address(), &reign);
        pause.enter(slot, place, &known, sent_at)?;
        // Another request may have come to another reign meanwhile.
        let lag_end = pause.lag_end(slot, (&reign, known.since)).ok_or_else(error::of_former)?;
        let (since, paused_until) = (known.since, pause.terms.paused_until(&known));
        let proved = Proved { reign, since, paused_until, asked: (sent_at, known.now), at: sent_at };
        let times = proved.times(pause.terms, lag_end);
        self.slots.lock().insert(slot, proved);
        Ok(Ok(times))
    }

    /// The server has carried out `call`, which was sent then, or has refused it.
    pub(super) fn answered(&self, call: &Call, sent_at: Moment, is_done: bool) {
        if !concerns_a_lock(call) {
            return;
        }
        let slot = HashSlot::of(call.key());
        let mut slots = self.slots.lock();
        if !is_done {
            slots.remove(&slot);
        } else if let Some(proved) = slots.get_mut(&slot) {
            proved.at = proved.at.max(sent_at);
        }
    }
}

/// Whether `call` may grant a lock. A cluster has no foreign ones.
fn concerns_a_lock(call: &Call) -> bool {
    std::ptr::eq(call.script, &*OWN) && !call.key().is_empty()
}

#[cfg(test)]
mod tests {
    use leasehold_core::Timing;
    use leasehold_core::clock::ManualClock;

    use super::*;

    #[derive(Default)]
    struct Asked(Mutex<Vec<Arc<str>>>);

    #[async_trait]
    impl Refuses for Asked {
        async fn ask_former(self: Arc<Self>, _: Address, reign: Arc<str>) {
            self.0.lock().push(reign);
        }
    }

    /// Its word counts for the slots that were left before it was asked.
    #[tokio::test]
    async fn former_server_is_asked_by_one_task() {
        let (clock, asked) = (ManualClock::new(), Arc::new(Asked::default()));
        let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap().with_clock(Arc::new(clock.clone()));
        let keys = crate::RedisConfig::new("h", 1).keys().unwrap();
        let lag = Duration::from_secs(9);
        let option = PauseOption { name: "pause", span: lag, lag, max_ttl: None };
        let pause = SlotPause::new(&env, &keys, option, Failover { max_ttl: lag, lag, replicas: None });
        let servers: Weak<Asked> = Arc::downgrade(&asked);
        pause.with_servers(servers);
        let server = Address::Tcp { host: "a".to_owned(), port: 1 };
        let enter = |slot: u8, reign: &str| {
            let times = KnownReign { since: 5, now: 5, reign: reign.to_owned(), slots: String::new() };
            pause.enter(HashSlot::of(slot.to_string()), (&server, &reign.into()), &times, env.now()).unwrap();
        };
        let waiting = || pause.waiting_for("a").len();
        let tasks = async || {
            tokio::task::yield_now().await;
            asked.0.lock().len()
        };
        (0..4).for_each(|slot| enter(slot, "a"));
        (0..3).for_each(|slot| enter(slot, "b"));
        assert_eq!((tasks().await, waiting()), (1, 3));
        let first = pause.waiting_for("a");
        pause.refused(&first[..2]);
        enter(3, "b");
        assert_eq!((tasks().await, waiting()), (1, 2));
        clock.advance(lag);
        assert_eq!(waiting(), 0);
        // They are left again, of which the word from before says nothing.
        (0..4).for_each(|slot| enter(slot, "a"));
        (0..4).for_each(|slot| enter(slot, "c"));
        pause.refused(&first);
        assert_eq!((tasks().await, waiting()), (3, 4));
    }
}
