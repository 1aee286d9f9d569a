//! One manager's session: its connection, its entries, its inbox.
//!
//! Carries out the steps of the contenders of `protocol`. An entry is a lease of its own; the core's renewals refresh it,
//! holding or waiting, in batches. Tasks release the leftovers of acquisitions, until the server confirms, or the lease has
//! ended.
//!
//! | file | contains |
//! |---|---|
//! | `acquisition` | drives one contender |
//! | `fleet` | the way of each request to the server that has the lock |
//! | `shards` | the servers of a cluster |
//! | `home` | where the link connects that receives their messages |
//! | `refuses` | the word of a server that it has given a slot away |
//! | `slots` | the channels of slots, by which a cluster's servers send messages to waiters alone |
//! | `renewer` | keeps entries alive, holding or waiting |
//! | `inbox` | the messages that the session receives |
//! | `foreign` | the channels on which foreign clients publish releases |
//! | `pending_releases` | releases grants and leftovers |
//! | `ledger` | the record of a move to another store, and its participants |
//! | `life` | the common part of sessions: entries, and the end |
//!
//! # Invariants
//! - **redis.session-1** An entry is known by its owner id from before its first request until its release was answered,
//!   so every message about it finds it; a grant to an id that is being released is released at once. A message about any
//!   other id is ignored: it may be made up.
//! - **redis.session-2** Times are read before a request is handed to the connection.

mod acquisition;
mod fleet;
mod foreign;
mod home;
mod inbox;
mod ledger;
mod life;
mod pending_releases;
mod refuses;
mod renewer;
mod shards;
mod slots;

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use leasehold_core::backend::{Events, Lease, LeaseId, LeaseScope, StoreEvent};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{Env, Error, ErrorKind, Guarantees, LockName, LostReason, OwnerId, Result};
use parking_lot::Mutex;
use redis::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::fleet::Fleet;
use self::foreign::Channels;
use self::slots::SlotInboxes;
use crate::config::{Failover, Format, PauseOption, RedisClusterConfig, RedisConfig, SentinelConfig};
use crate::connection::{
    Confirming, Copies, Inbox, Link, LinkEvent, Namespace, Pause, ServerPause, SlotPause, Whereabouts,
};
use crate::error;
use crate::keys::{self, Keys};
use crate::protocol::{Contender, Unanswered};
use crate::scripts::{self, Call, FOREIGN, Inboxes, Naming, OWN, Script};

pub(crate) use self::life::{Life, Opened};
pub(crate) use self::shards::{Reach, Shards};

/// Where the servers of a session are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Servers<'c> {
    /// One, at its address.
    One,
    /// The one that sentinels name.
    Watched(&'c SentinelConfig),
    /// Those of a cluster.
    Cluster(&'c RedisClusterConfig),
}

impl Servers<'_> {
    fn failover(&self) -> Option<Failover> {
        match self {
            Self::Watched(sentinels) => Some(sentinels.failover()),
            Self::Cluster(cluster) => Some(cluster.failover()),
            Self::One => None,
        }
    }

    fn have_slot_channels(&self) -> bool {
        matches!(self, Self::Cluster(cluster) if cluster.is_sharded)
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) env: Env,
    pub(crate) keys: Keys,
    /// How locks are shared with other libraries, if they are.
    pub(crate) format: Option<Format>,
    /// For its keys.
    pub(crate) program: &'static Script,
    /// Whether a server that may have forgotten holders grants nothing at first.
    pub(crate) pause: Option<PauseOption>,
    /// The promises at a fail-over, if sentinels watch the server.
    pub(crate) failover: Option<Failover>,
    pub(crate) whereabouts: Arc<dyn Whereabouts>,
    foreign: Channels,
    /// The channels of slots, if they have such.
    slots: Option<SlotInboxes>,
    pub(crate) inboxes: Inboxes,
    /// The id of our inbox.
    pub(crate) inbox: String,
    pub(crate) fleet: Fleet,
    /// Whether a call may touch the keys of one slot alone.
    pub(crate) is_slotted: bool,
    /// The number of the database.
    pub(crate) database: u32,
    pub(crate) life: Life<Kept>,
    events: Events,
    /// One check of a revocation message at a time.
    checking: tokio::sync::Mutex<()>,
    /// Owner ids that are being released in the background.
    left: Mutex<HashSet<OwnerId>>,
    /// The warning about a user that may not subscribe was sent.
    deaf: AtomicBool,
    /// Messages went unheard.
    missed: Notify,
}

/// The entry of one owner id at the server.
#[derive(Debug)]
pub(crate) struct Kept {
    name: LockName,
    owner: OwnerId,
    lease: LeaseId,
    contender: Mutex<Contender>,
    /// The base that was added to the counter of its grant; after a reconnect the next grant may get a larger one.
    base: OnceLock<u64>,
    /// There is news of it.
    heard: Notify,
    /// Requests to enter it that may still arrive.
    unanswered: Mutex<Unanswered>,
}

impl Session {
    /// Connects to the server.
    ///
    /// # Errors
    ///
    /// As connecting, and as [`stage::admit`]; [`ErrorKind::InvalidOption`] for a namespace whose `token_base` is no number, and
    /// as [`outlives`]; [`ErrorKind::Unsupported`] for a server of a cluster that is not named as one.
    pub(crate) async fn open(
        config: &RedisConfig,
        servers: Servers<'_>,
        env: Env,
        events: Events,
    ) -> Result<Opened<Self>> {
        let (pause, failover) = (config.pause, servers.failover());
        outlives(pause, failover.as_ref(), env.timing().ttl)?;
        can_wait(config.copies(), env.timing().op_timeout)?;
        // Foreign clients do not pause, and who has no pause agrees on that with the others, too.
        let could_pause = failover.is_some() && config.format.is_none();
        let agreed = pause.or_else(|| could_pause.then_some(PauseOption::OFF));
        let asked = |keys: &Keys| agreed.map(|option| Pause::Server(ServerPause::new(keys, option)));
        let closed = CancellationToken::new();
        // A caller that cancels `open` ends the started tasks.
        let open = closed.clone().drop_guard();
        let keys = match servers {
            Servers::Cluster(cluster) => cluster.keys()?,
            Servers::One | Servers::Watched(_) => config.keys()?,
        };
        let whereabouts = match servers {
            Servers::Watched(sentinels) => sentinels.whereabouts(&env, closed.clone())?,
            Servers::One | Servers::Cluster(_) => config.whereabouts(env.timing().op_timeout)?,
        };
        let inbox = keys::inbox(env.owner_id(), config.database, !env.adds_token_base());
        let channels = keys.channels();
        // Before there is a session, events are dropped.
        let hears = Arc::new(OnceLock::<Weak<Self>>::new());
        let told = Arc::clone(&hears);
        let inboxes = Inboxes::new(&channels, config.signed_with());
        let admitted = Some(Namespace::new(keys.clone(), &inboxes, env.adds_token_base()));
        let heard = Inbox { channel: format!("{channels}{inbox}"), hears: told, keys: admitted };
        let format = config.format.clone();
        let (fleet, other_key) = if let Servers::Cluster(cluster) = servers {
            let of_slots = |option| SlotPause::new(&env, &keys, option, cluster.failover());
            let (reach, copies) = (cluster.reach(&env)?, config.copies());
            let opening = Shards::open(&env, reach, copies, agreed.map(of_slots), heard, closed.clone());
            let (shards, other_key) = opening.await?;
            (Fleet::Shards(shards), other_key)
        } else {
            let link = Arc::new(Link::new(env.clone(), Arc::clone(&whereabouts), Some(heard), asked(&keys)));
            let other_key = link.start(closed.clone()).await?;
            // With `slots` the address stands for all servers.
            if !config.slots && matches!(servers, Servers::One) {
                stands_alone(&link, env.now() + env.timing().op_timeout).await?;
            }
            let confirming = match config.copies() {
                Copies::NONE => None,
                copies => {
                    let second = Link::new(env.clone(), Arc::clone(&whereabouts), None, asked(&keys));
                    let second = Arc::new(second);
                    second.start(closed.clone()).await?;
                    Some(Arc::new(Confirming::start(&env, second, copies, closed.clone())))
                }
            };
            (Fleet::One { link, confirming }, other_key)
        };
        let session = Arc::new(Self {
            life: Life::new(env.clone(), closed),
            env,
            keys,
            program: if format.is_some() { &FOREIGN } else { &OWN },
            format,
            pause,
            failover,
            whereabouts,
            foreign: Channels::default(),
            slots: servers.have_slot_channels().then(SlotInboxes::default),
            inboxes,
            inbox,
            is_slotted: config.slots || fleet.cluster().is_some(),
            fleet,
            database: config.database,
            events,
            checking: tokio::sync::Mutex::default(),
            left: Mutex::default(),
            deaf: AtomicBool::new(false),
            missed: Notify::new(),
        });
        session.can_confirm(session.env.now() + session.env.timing().connect_timeout).await?;
        if failover.is_some() && session.format.is_some() {
            let said = "locks of other libraries do not pause: a fail-over may grant a lock that is held";
            session.events.tell(StoreEvent::Condition(said.into()));
        }
        // It is new.
        let _ = hears.set(Arc::downgrade(&session));
        // The connection may be another one already, and its events came before the session.
        if session.fleet.home().is_deaf() {
            session.hear(LinkEvent::Deaf);
        }
        if let Some(said) = other_key {
            session.hear(LinkEvent::OtherKey(said));
        }
        session.life.spawn(Arc::clone(&session).catch_up());
        if session.format.is_some() {
            session.life.spawn(Arc::clone(&session).tune());
        }
        if session.slots.is_some() {
            session.life.spawn(Arc::clone(&session).hear_slots());
        }
        Ok(session.life.owned(Arc::clone(&session), open))
    }

    /// The guarantees of this store.
    ///
    /// Not `SURVIVES_FAILOVER`: replication is asynchronous, and if all replicas are waited for, the promoted one has too few, so
    /// holds end. Tokens survive a restart because they are never below the server's clock.
    ///
    /// Foreign clients overtake our contenders, and their grants have no tokens.
    pub(crate) fn guarantees(&self) -> Guarantees {
        let reach = Guarantees::CROSS_PROCESS | Guarantees::CROSS_HOST | Guarantees::SURVIVES_RESTART;
        let mut guarantees = reach | Guarantees::LEASED | Guarantees::PER_LOCK_TTL;
        let ours_alone = Guarantees::FENCED | Guarantees::FIFO | Guarantees::SHARED | Guarantees::PERMITS;
        guarantees.set(ours_alone, self.format.is_none());
        guarantees
    }

    /// How holders are shown.
    pub(crate) fn naming(&self) -> Naming {
        let foreign = if self.format.is_some() { Naming::NOT_LEASEHOLD } else { Naming::ANOTHER };
        Naming { base: self.fleet.home().token_base(), foreign }
    }

    /// `call` of an operation with its last argument, if there is a format; the connection adds it if there is a pause.
    pub(crate) fn told(&self, mut call: Call) -> Call {
        if let Some(format) = &self.format {
            call.arg(format.told(|span| self.env.jittered(span)));
        }
        call
    }

    /// When a request that begins now times out: before the core drops it, so that a silent connection is abandoned, too, and
    /// not used by the next request; and the answer has the knowledge of that time.
    pub(crate) fn give_up_at(&self) -> Moment {
        self.env.now() + self.env.timing().op_timeout * 9 / 10
    }

    /// Runs a script that is no part of an acquisition.
    pub(crate) async fn run(&self, call: &Call) -> Result<Value> {
        self.fleet.run(call, self.give_up_at()).await
    }

    /// As [`Fleet::run_confirmed`].
    async fn run_confirmed(&self, call: &Call, give_up_at: Moment) -> Result<(Moment, Value)> {
        self.fleet.run_confirmed(&self.env, call, give_up_at).await
    }

    /// The call of an operation on the keys of `names`, which are packed for every request: they are longer than all other
    /// data of a hold.
    pub(crate) fn operation(&self, operation: &str, names: &[&LockName]) -> Result<Call> {
        self.program.operation_on(operation, &self.keys, names)
    }

    fn forget(&self, lease: LeaseId) {
        if let Some(entry) = self.life.forget(lease) {
            self.listen(&entry);
        }
    }

    /// Ends the session: its holds and waits are released first, within the bound of a request.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<()> {
        let end = |entry: Arc<Kept>| {
            entry.contender.lock().end(LostReason::Shutdown);
            entry.heard.notify_one();
            self.leave(&entry);
        };
        self.life.close(self.give_up_at(), end).await
    }
}

/// Refuses a server of a cluster, where the user may ask: it may have the keys that are read at first, and not those of every
/// name.
async fn stands_alone(link: &Link, give_up_at: Moment) -> Result<()> {
    let connected = link.connected(give_up_at).await?;
    match connected.ask(redis::cmd("INFO").arg("cluster"), give_up_at).await {
        Ok(info) if error::is_in_a_cluster(scripts::text(&info).unwrap_or_default()) => {
            Err(Error::not_applied(ErrorKind::Unsupported, error::IN_A_CLUSTER))
        }
        _ => Ok(()),
    }
}

/// Refuses a `ttl` with which a hold that the server has forgotten could outlive the pause.
fn outlives(pause: Option<PauseOption>, failover: Option<&Failover>, ttl: Duration) -> Result<()> {
    if let Some(Failover { max_ttl, .. }) = failover.filter(|failover| ttl > failover.max_ttl) {
        return Err(Error::invalid_option(format!(
            "`ttl` {ttl:?} is longer than max_ttl={max_ttl:?}: set `max_ttl` to the longest ttl in use, for all managers \
             of the prefix"
        )));
    }
    match pause.filter(|pause| pause.span < ttl) {
        None => Ok(()),
        Some(PauseOption { name, span, .. }) => Err(Error::invalid_option(format!(
            "`ttl` {ttl:?} is longer than {name}={span:?}, so a lock could outlast the pause: set {name} to the \
             longest ttl in use"
        ))),
    }
}

/// Refuses an `op_timeout` within which a disk may not confirm a request. The ttl is three times as long at least.
fn can_wait(copies: Copies, op_timeout: Duration) -> Result<()> {
    if copies.disk && op_timeout < LEAST_FOR_DISK {
        return Err(Error::invalid_option(format!(
            "`op_timeout` {op_timeout:?} is too short for wait_aof=1: expected at least {LEAST_FOR_DISK:?}, and a ttl of at \
             least three times that"
        )));
    }
    Ok(())
}

/// A disk confirms after up to a second with `appendfsync everysec`, or two if it is slow.
const LEAST_FOR_DISK: Duration = Duration::from_secs(3);

impl Kept {
    /// Whether a request to enter it may still arrive.
    fn may_arrive(&self) -> bool {
        !self.unanswered.lock().is_empty()
    }

    fn lease(&self, deadline: Deadline) -> Lease {
        Lease::new(self.lease, LeaseScope::Entry, self.ttl(), deadline)
    }

    fn ttl(&self) -> Duration {
        self.contender.lock().ttl()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    /// A request that the disk could not confirm in time would be lost at a healthy server.
    #[test]
    fn disk_needs_a_long_op_timeout() {
        let disk = Copies { disk: true, ..Copies::NONE };
        let short = Duration::from_secs(2);
        can_wait(Copies::NONE, short).unwrap();
        can_wait(disk, LEAST_FOR_DISK).unwrap();
        let refused = can_wait(disk, short).unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::InvalidOption);
        assert!(["`op_timeout` 2s", "3s"].iter().all(|said| refused.to_string().contains(said)), "{refused}");
    }
}
