//! The servers of a cluster: which of them has a slot, and a link to each.
//!
//! One link receives messages, at any of the servers, as these pass messages on to each other. Every primary has a link for
//! requests. A task asks all of them where the slots are: at first, when one of them says that it is not so, when a link is
//! lost, and every minute.
//!
//! # Invariants
//! - **redis.shards-1** A link to a server that is no primary any more is closed: a server that becomes a primary again does not
//!   close it, and has forgotten what the connection stands for.
//! - **redis.shards-2** Whenever the map has changed, or a link was lost and all are up again, the waiters refresh: a grant may
//!   have been lost with its message.
//! - **redis.shards-3** No request is sent while the link that receives messages is down: it reads the record of a move and the
//!   token base, and an administrator may change both while this session does not count as connected.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join_all, select_ok, try_join, try_join_all};
use leasehold_core::backend::{Backoff, Login};
use leasehold_core::clock::Moment;
use leasehold_core::{Env, Result};
use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::fleet::{Hop, Route, SlotRoute};
use super::home::Anywhere;
use crate::cluster::{HashSlot, Redirects, SlotMap};
use crate::config::Address;
use crate::connection::{
    Asks, Client, Confirming, Connected, Copies, Fixed, Hears, Inbox, Link, LinkEvent, Pause, SlotPause,
    Whereabouts,
};
use crate::error;

/// The servers of a cluster.
pub(crate) struct Shards {
    pub(super) env: Env,
    pub(super) reach: Reach,
    pub(super) copies: Copies,
    /// Whether slots that may have lost holders grant nothing at first.
    pub(super) pause: Option<Arc<SlotPause>>,
    map: watch::Sender<SlotMap>,
    links: Mutex<HashMap<Address, ShardLink>>,
    home: OnceLock<Arc<Link>>,
    pub(super) hears: Arc<dyn Hears>,
    pub(super) closed: CancellationToken,
}

/// How any server of the cluster is reached.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    /// At another address.
    pub(crate) client: Client,
    pub(crate) login: Option<Login>,
    /// The servers that are named in the configuration.
    pub(crate) seeds: Vec<Address>,
    /// The map may be out of date.
    pub(crate) doubted: Arc<Notify>,
    /// A link was lost, which may be up again by now.
    pub(crate) lost: Arc<AtomicBool>,
}

/// The links to one primary.
#[derive(Debug)]
struct ShardLink {
    link: Arc<Link>,
    confirming: Option<Arc<Confirming>>,
    _open: DropGuard,
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").field("reach", &self.reach).finish_non_exhaustive()
    }
}

impl Shards {
    /// Learns where the slots are, and connects; what is wrong with the message key, if something is.
    ///
    /// # Errors
    ///
    /// As of the server of the configuration that has answered last, if none knows the cluster; as connecting to one of it.
    pub(crate) async fn open(
        env: &Env,
        reach: Reach,
        copies: Copies,
        pause: Option<SlotPause>,
        inbox: Inbox,
        closed: CancellationToken,
    ) -> Result<(Arc<Self>, Option<String>)> {
        let shards = Arc::new(Self {
            env: env.clone(),
            reach,
            copies,
            pause: pause.map(Arc::new),
            map: watch::Sender::new(SlotMap::new()),
            links: Mutex::default(),
            home: OnceLock::new(),
            hears: Arc::clone(&inbox.hears),
            closed: closed.clone(),
        });
        let cluster: Weak<Self> = Arc::downgrade(&shards);
        if let Some(pause) = &shards.pause {
            let servers: Weak<Self> = Weak::clone(&cluster);
            pause.with_servers(servers);
        }
        let map = shards.reach.map(env).await?;
        shards.apply(map);
        let inbox = Inbox { keys: inbox.keys.map(|keys| keys.in_cluster(cluster)), ..inbox };
        let (home, other_key) = Anywhere::open(&shards, &inbox, &closed).await?;
        _ = shards.home.set(home);
        let keeping = Arc::clone(&shards);
        env.spawn(async move {
            closed.run_until_cancelled(keeping.keep_map()).await;
        });
        Ok((shards, other_key))
    }

    pub(super) fn home(&self) -> &Arc<Link> {
        self.home.get().expect("it is set before a session has the cluster")
    }

    /// Where the slots are, as far as is known.
    pub(crate) fn map(&self) -> SlotMap {
        self.map.borrow().clone()
    }

    /// The primaries, as far as is known.
    pub(super) fn primaries(&self) -> Vec<Address> {
        self.map.borrow().shards().iter().map(|shard| shard.primary.clone()).collect()
    }

    /// The way of a request about the keys of `slot`.
    pub(super) fn route(&self, slot: HashSlot) -> Route<'_> {
        Route::Slot(SlotRoute { is_admitted: false, ..self.admitting(slot) })
    }

    /// The same for the requests by which the namespace admits a session.
    fn admitting(&self, slot: HashSlot) -> SlotRoute<'_> {
        let pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE.min(self.env.timing().op_timeout / 4));
        let redirects = Redirects::default();
        SlotRoute { shards: self, slot, redirects, pauses, asking: None, is_admitted: true }
    }

    /// redis.shards-3
    pub(super) async fn admitted(&self, give_up_at: Moment) -> Result<()> {
        match self.home.get() {
            Some(home) if home.up().is_none() => home.connected(give_up_at).await.map(drop),
            _ => Ok(()),
        }
    }

    /// The connection to the server that has `slot`, or to the one that is to be `asking` for it.
    pub(super) async fn way(
        &self,
        slot: HashSlot,
        asking: Option<Address>,
        give_up_at: Moment,
    ) -> Result<Hop> {
        let mut map = self.map.subscribe();
        let is_asking = asking.is_some();
        loop {
            let owner = map.borrow_and_update().owner(slot).cloned();
            let Some(address) = asking.as_ref().or(owner.as_ref()) else {
                self.doubt();
                tokio::select! {
                    biased;
                    _ = map.changed() => continue,
                    () = self.env.sleep_until(give_up_at) => return Err(error::uncovered()),
                }
            };
            let (link, confirming) = self.links_to(address);
            let has_moved = async {
                // The sender is this value's.
                _ = map.wait_for(|map| !is_asking && map.owner(slot) != owner.as_ref()).await;
            };
            let connected = tokio::select! {
                biased;
                connected = link.connected(give_up_at) => connected?,
                () = has_moved => continue,
            };
            return Ok(Hop { connected, confirming, is_asking });
        }
    }

    /// The connection to the server that has `slot`, if it is up.
    pub(super) fn up(&self, slot: HashSlot) -> Option<Connected> {
        let owner = self.map.borrow().owner(slot).cloned()?;
        self.links_to(&owner).0.up()
    }

    /// A server has said that `slot` is at another one.
    pub(super) fn moved(&self, slot: HashSlot, to: &Address) {
        self.map.send_if_modified(|map| {
            let is_news = map.owner(slot) != Some(to);
            if is_news {
                map.moved(slot, to.clone());
            }
            is_news
        });
        self.doubt();
    }

    /// The map may be out of date.
    pub(super) fn doubt(&self) {
        self.reach.doubted.notify_one();
    }

    pub(super) fn links_to(&self, address: &Address) -> (Arc<Link>, Option<Arc<Confirming>>) {
        let mut links = self.links.lock();
        let links = links.entry(address.clone()).or_insert_with(|| {
            let closed = self.closed.child_token();
            let link = self.reach.link_to(&self.env, address, self.asked());
            link.start_later(closed.clone());
            let confirming = (self.copies != Copies::NONE).then(|| {
                let second = self.reach.link_to(&self.env, address, self.asked());
                second.start_later(closed.clone());
                Arc::new(Confirming::start(&self.env, second, self.copies, closed.clone()))
            });
            ShardLink { link, confirming, _open: closed.drop_guard() }
        });
        (Arc::clone(&links.link), links.confirming.clone())
    }

    /// The first questions of the links to primaries.
    pub(super) fn asked(&self) -> Option<Pause> {
        self.pause.clone().map(Pause::Slots)
    }

    /// The links to the primaries, as far as these are known.
    pub(super) fn links(&self) -> Vec<Arc<Link>> {
        self.primaries().iter().map(|primary| self.links_to(primary).0).collect()
    }

    /// The connection to a primary, as soon as there is one.
    pub(crate) async fn connected(&self, primary: &Address, give_up_at: Moment) -> Result<Connected> {
        self.links_to(primary).0.connected(give_up_at).await
    }

    /// Asks every primary and every replica.
    ///
    /// # Errors
    ///
    /// Those of the first one that does not answer.
    pub(crate) async fn ask_all(&self, command: &Cmd, give_up_at: Moment) -> Result<Vec<Value>> {
        // Sessions at a server that has given away its slots would be missed by an outdated map.
        let map = self.refreshed().await?;
        let primaries = map.shards().iter().map(|shard| async {
            self.connected(&shard.primary, give_up_at).await?.ask(command, give_up_at).await
        });
        let replicas = map.shards().iter().flat_map(|shard| &shard.replicas);
        let replicas = replicas.map(|replica| self.reach.ask_once(&self.env, replica, command));
        let (mut answers, others) = try_join(try_join_all(primaries), try_join_all(replicas)).await?;
        answers.extend(others);
        Ok(answers)
    }

    /// Keeps the map up to date.
    async fn keep_map(&self) {
        let mut pauses = Backoff::new(FIRST_PAUSE, self.env.timing().op_timeout);
        let mut was_lost = false;
        loop {
            // Read before the links: one that is lost after that is seen the next time.
            was_lost |= self.reach.lost.swap(false, Ordering::SeqCst);
            let is_whole = self.is_whole();
            if is_whole && was_lost {
                pauses.reset();
                self.refresh_waiters();
            }
            was_lost = !is_whole;
            let pause = if is_whole { REFRESHED_EVERY } else { pauses.next(&self.env) };
            tokio::select! {
                () = self.reach.doubted.notified() => self.env.sleep(LEAST_BETWEEN).await,
                () = self.env.sleep(pause) => {}
            }
            if let Err(error) = self.refreshed().await {
                tracing::debug!(error = ?format!("{error:#}"), "no server of the cluster knows its slots");
            }
        }
    }

    /// Whether every slot has a server, to which a link is up.
    fn is_whole(&self) -> bool {
        let is_up = |address: &Address| self.links_to(address).0.up().is_some();
        self.map.borrow().uncovered() == 0 && self.primaries().iter().all(is_up)
    }

    /// redis.shards-2
    fn refresh_waiters(&self) {
        self.hears.hear(if self.home().is_deaf() { LinkEvent::Deaf } else { LinkEvent::UpAgain });
    }

    /// Takes over a map, and links to its primaries; whether it is another one.
    fn apply(&self, map: SlotMap) -> bool {
        let primaries: Vec<_> = map.shards().iter().map(|shard| shard.primary.clone()).collect();
        let is_new = self.map.send_if_modified(|known| {
            let is_new = *known != map;
            *known = map;
            is_new
        });
        // redis.shards-1
        let gone: Vec<_> = {
            let mut links = self.links.lock();
            links.extract_if(|address, _| !primaries.contains(address)).collect()
        };
        drop(gone);
        primaries.iter().for_each(|primary| drop(self.links_to(primary)));
        is_new
    }

    /// Where the slots are now; noted, too.
    pub(crate) async fn refreshed(&self) -> Result<SlotMap> {
        let map = self.read_map().await?;
        if self.apply(map.clone()) {
            self.refresh_waiters();
        }
        Ok(map)
    }

    /// Where the slots are, by the word of most primaries, or of any server if no primary answers.
    async fn read_map(&self) -> Result<SlotMap> {
        let give_up_at = self.env.now() + self.env.timing().op_timeout / 4;
        let reads = self.primaries().into_iter().map(|address| async move {
            let answer =
                self.connected(&address, give_up_at).await?.ask(&SlotMap::question(), give_up_at).await?;
            SlotMap::read(&answer, &address)
        });
        let maps: Vec<_> = join_all(reads).await.into_iter().flatten().collect();
        let votes = |map: &&SlotMap| maps.iter().filter(|other| other.has_the_owners_of(map)).count();
        if let Some(map) = maps.iter().filter(|map| !map.shards().is_empty()).max_by_key(votes) {
            return Ok(map.clone());
        }
        let replicas =
            self.map().shards().iter().flat_map(|shard| shard.replicas.clone()).collect::<Vec<_>>();
        let any: Vec<_> = replicas.into_iter().chain(self.reach.seeds.iter().cloned()).collect();
        self.reach.read_at(&self.env, &any).await
    }
}

#[async_trait]
impl Asks for Shards {
    async fn ask_about(&self, key: &str, command: &Cmd, give_up_at: Moment) -> Result<Value> {
        Route::Slot(self.admitting(HashSlot::of(key))).ask(command, give_up_at).await
    }
}

impl Reach {
    /// A link to that server, which is down.
    pub(super) fn link_to(&self, env: &Env, address: &Address, pause: Option<Pause>) -> Arc<Link> {
        let fixed = Fixed { client: self.client.at(address.clone()), login: self.login.clone() };
        let node = ClusterNode { fixed, doubted: Arc::clone(&self.doubted), lost: Arc::clone(&self.lost) };
        Arc::new(Link::new(env.clone(), Arc::new(node), None, pause))
    }

    /// Where the slots are, by the word of the first of these servers that knows.
    ///
    /// # Errors
    ///
    /// Those of the server that has answered last.
    async fn read_at(&self, env: &Env, servers: &[Address]) -> Result<SlotMap> {
        let reads = servers.iter().map(|address| {
            Box::pin(async move {
                let map = SlotMap::read(&self.ask_once(env, address, &SlotMap::question()).await?, address)?;
                // A server that has not joined yet.
                if map.shards().is_empty() { Err(error::uncovered()) } else { Ok(map) }
            })
        });
        Ok(select_ok(reads).await?.0)
    }

    /// Where the slots are, by the word of a server of the configuration.
    pub(crate) async fn map(&self, env: &Env) -> Result<SlotMap> {
        self.read_at(env, &self.seeds).await
    }

    /// Asks a server over a connection of its own.
    async fn ask_once(&self, env: &Env, address: &Address, command: &Cmd) -> Result<Value> {
        let closed = CancellationToken::new();
        let _open = closed.clone().drop_guard();
        let link = self.link_to(env, address, None);
        link.start(closed).await?;
        let give_up_at = env.now() + env.timing().op_timeout;
        link.connected(give_up_at).await?.ask(command, give_up_at).await
    }
}

/// One server of a cluster.
#[derive(Debug)]
struct ClusterNode {
    fixed: Fixed,
    doubted: Arc<Notify>,
    lost: Arc<AtomicBool>,
}

#[async_trait]
impl Whereabouts for ClusterNode {
    async fn client(&self, give_up_at: Moment) -> Result<Client> {
        self.fixed.client(give_up_at).await
    }

    async fn left(&self, client: &Client) {
        self.fixed.left(client).await;
    }

    fn doubt(&self) {
        self.lost.store(true, Ordering::SeqCst);
        self.doubted.notify_one();
    }
}

/// The pauses of a request whose slot is being moved.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(10);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// The map is read no more often: every request to a slot that is being moved doubts it.
const LEAST_BETWEEN: Duration = Duration::from_millis(100);

/// How often the map is read when nothing happens.
const REFRESHED_EVERY: Duration = Duration::from_secs(60);
