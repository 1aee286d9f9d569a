//! A cluster of servers: primaries that share the slots, and replicas that are promoted in their place.

use std::ops::RangeInclusive;
use std::{collections::BTreeMap, io, net::SocketAddr, time::Duration};

use tokio::time::{sleep, timeout};

use super::{Reply, Server, Settings};
use crate::{Mode, Port, Proxy};

/// A cluster, of which each server can be killed, stopped and asked.
#[derive(Debug)]
pub struct Cluster {
    /// The primaries in the order of their slots, and the replicas behind them, at first.
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    server: Server,
    id: String,
    /// Where the others reach it.
    bus: Port,
    /// And by which way, if that can be cut.
    way: Option<Proxy>,
}

/// How far a slot is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums, reason = "the steps of the server's documentation")]
pub enum Step {
    /// The server that gets it knows that it comes.
    Importing,
    /// The server that has it knows that it goes: it names the other one for keys that it does not have.
    Migrating,
    /// The keys have gone.
    Keys,
    /// It is the other server's, and all know.
    Done,
}

impl Cluster {
    /// How many slots there are.
    pub const SLOTS: usize = 16_384;

    /// Starts `masters` primaries that share the slots, with so many `replicas` each, which promote themselves once a primary
    /// was silent for `node_timeout`; and waits until all agree.
    pub async fn start(masters: usize, replicas: usize, node_timeout: Duration) -> io::Result<Self> {
        Self::of(&Settings::new(), masters, replicas, node_timeout).await
    }

    /// As [`start`](Self::start), of servers with these `settings`.
    pub async fn of(
        settings: &Settings,
        masters: usize,
        replicas: usize,
        node_timeout: Duration,
    ) -> io::Result<Self> {
        let ways = (0..masters * (1 + replicas)).map(|_| None).collect();
        Self::by(ways, settings, masters, node_timeout).await
    }

    /// As [`of`](Self::of), of servers that [`cut_off`](Self::cut_off) can part.
    pub async fn divisible(
        settings: &Settings,
        masters: usize,
        replicas: usize,
        node_timeout: Duration,
    ) -> io::Result<Self> {
        // A way leads to the server once its port is known.
        let way = |_| Proxy::start_framed(([127, 0, 0, 1], 1).into(), frame).map(Some);
        let ways = (0..masters * (1 + replicas)).map(way).collect::<io::Result<_>>()?;
        Self::by(ways, settings, masters, node_timeout).await
    }

    async fn by(
        ways: Vec<Option<Proxy>>,
        settings: &Settings,
        masters: usize,
        node_timeout: Duration,
    ) -> io::Result<Self> {
        let (mut nodes, replicas) = (Vec::new(), ways.len() / masters - 1);
        for (index, way) in ways.into_iter().enumerate() {
            nodes.push(Node::start(settings, index + 1, node_timeout, way).await?);
        }
        let cluster = Self { nodes };
        for (index, node) in cluster.nodes[..masters].iter().enumerate() {
            let [first, end] = [index, index + 1].map(|at| at * Self::SLOTS / masters);
            let range = [first, end - 1].map(|slot| slot.to_string());
            node.ok(&["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]]).await?;
        }
        // Each meets all: what one would learn from others takes seconds.
        for (index, node) in cluster.nodes.iter().enumerate() {
            for other in &cluster.nodes[..index] {
                let bus = other.way.as_ref().map_or_else(|| other.bus.number(), |way| way.addr().port());
                let [port, bus] = [other.server.addr().port(), bus].map(|port| port.to_string());
                node.ok(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await?;
            }
        }
        let count = cluster.nodes.len().to_string();
        cluster.know("cluster_known_nodes", &count).await?;
        for (index, node) in cluster.nodes.iter().enumerate().skip(masters) {
            node.ok(&["CLUSTER", "REPLICATE", &cluster.nodes[index % masters].id]).await?;
        }
        cluster.know("cluster_state", "ok").await?;
        // Until each names all of them, in the roles that they have.
        for node in &cluster.nodes {
            soon(|| async { Ok(node.named().await? == (masters, masters * replicas)) }).await?;
        }
        Ok(cluster)
    }

    /// Where they listen: the first primaries, and their replicas in the same order.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.server.addr()).collect()
    }

    /// `redis+cluster://127.0.0.1:<port>,…`.
    pub fn url(&self) -> String {
        let addrs: Vec<_> = self.addrs().iter().map(SocketAddr::to_string).collect();
        format!("redis+cluster://{}", addrs.join(","))
    }

    /// One of its servers.
    pub fn server(&self, node: usize) -> &Server {
        &self.nodes[node].server
    }

    /// One of its servers, to be killed and started again.
    pub fn server_mut(&mut self, node: usize) -> &mut Server {
        &mut self.nodes[node].server
    }

    /// The slot of a key, as a server counts it.
    pub async fn slot_of(&self, key: &str) -> io::Result<usize> {
        let slot = self.nodes[0].server.command(&["CLUSTER", "KEYSLOT", key]).await?.integer();
        slot.and_then(|slot| usize::try_from(slot).ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Which server has a slot, by the word of all that run.
    pub async fn owner_of(&self, slot: usize) -> io::Result<usize> {
        let agreed = async {
            loop {
                let mut owners = Vec::new();
                for node in &self.nodes {
                    // One that was killed has no word.
                    if let Ok(ranges) = node.owners().await {
                        owners.push(owner_in(&ranges, slot));
                    }
                }
                let known = |port| self.nodes.iter().position(|node| Some(node.server.addr().port()) == port);
                if let Some(owner) = owners.first().copied().and_then(known)
                    && owners.iter().all(|port| *port == owners[0])
                {
                    return owner;
                }
                sleep(POLL).await;
            }
        };
        timeout(READY, agreed).await.map_err(io::Error::from)
    }

    /// Moves a slot to the server `to`, up to a step. Called again with a later one, it goes on; after the last one it has moved.
    pub async fn move_slot(&self, slot: usize, to: usize, paused_at: Step) -> io::Result<()> {
        let number = slot.to_string();
        for node in &self.nodes {
            // One that has begun to take the slot does not learn that another server has it. The one that has it goes on giving.
            let has_it = |ranges: Vec<_>| owner_in(&ranges, slot) == Some(node.server.addr().port());
            if !node.owners().await.is_ok_and(has_it) {
                let _ = node.ok(&["CLUSTER", "SETSLOT", &number, "STABLE"]).await;
            }
        }
        let from = self.owner_of(slot).await?;
        if from == to {
            return Ok(());
        }
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let (port, bound) = (target.server.addr().port().to_string(), READY.as_millis().to_string());
        target.ok(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &source.id]).await?;
        if paused_at >= Step::Migrating {
            source.ok(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &target.id]).await?;
        }
        let mut has_keys = paused_at >= Step::Keys;
        while has_keys {
            let keys = source.server.command(&["CLUSTER", "GETKEYSINSLOT", &number, "100"]).await?.elements();
            let keys: Vec<_> = keys.iter().filter_map(Reply::text).collect();
            has_keys = !keys.is_empty();
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", &bound, "REPLACE", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            // Keys that have expired meanwhile are `NOKEY`. A source that was replaced has none to give.
            if has_keys && let Reply::Error(said) = source.server.command(&words).await? {
                return Err(io::Error::other(said));
            }
        }
        if paused_at == Step::Done {
            // The target first: a slot that nobody has is refused to all.
            for node in [target, source] {
                node.ok(&["CLUSTER", "SETSLOT", &number, "NODE", &target.id]).await?;
            }
            self.owner_of(slot).await?;
        }
        Ok(())
    }

    /// Waits until one of two servers has slots, and the other one follows it. A server that loses its last slot follows the one
    /// that has it now: if a slot moves during a fail-over, that may be the primary of other keys.
    pub async fn reunite(&self, pair: [usize; 2]) -> io::Result<()> {
        let owners = self.nodes[pair[0]].owners().await?;
        let port = |node: usize| self.nodes[node].server.addr().port();
        let has_slots = |node| owners.iter().any(|(_, owner)| *owner == port(node));
        let [primary, replica] = if has_slots(pair[0]) { pair } else { [pair[1], pair[0]] };
        let said = self.server(replica).info("replication").await?;
        if said.get("master_port").map(String::as_str) != Some(&*port(primary).to_string()) {
            self.nodes[replica].ok(&["CLUSTER", "REPLICATE", &self.nodes[primary].id]).await?;
        }
        self.server(replica).follows().await
    }

    /// Lets a replica take its primary's place without losing anything, and waits until all know. A replica that takes its
    /// primary to be down refuses that for a moment, and gives an attempt up after five seconds.
    pub async fn fail_over(&self, replica: usize) -> io::Result<()> {
        let node = &self.nodes[replica];
        let asked = || async {
            let is_asked = node.ok(&["CLUSTER", "FAILOVER"]).await.is_ok();
            Ok(is_asked || node.server.info("replication").await?["role"].trim() == "master")
        };
        let promoted = async {
            loop {
                soon(asked).await?;
                if let Ok(promoted) = timeout(ATTEMPT, self.promoted(replica)).await {
                    return promoted;
                }
            }
        };
        timeout(READY, promoted).await.map_err(io::Error::from)?
    }

    /// Waits until a replica has taken its primary's place, and all that run know.
    pub async fn promoted(&self, replica: usize) -> io::Result<()> {
        let port = self.nodes[replica].server.addr().port();
        for node in &self.nodes {
            // One that was killed has no word.
            let has_it = |ranges: Vec<(_, u16)>| ranges.iter().any(|(_, owner)| *owner == port);
            soon(|| async { Ok(node.owners().await.map_or(true, has_it)) }).await?;
        }
        Ok(())
    }

    /// Cuts a server of a [`divisible`](Self::divisible) cluster off from all others; clients reach both sides.
    pub async fn cut_off(&self, node: usize) -> io::Result<()> {
        let cut = &self.nodes[node];
        let id = cut.id.clone().into_bytes();
        let by_it = Mode::drop_frames(move |message| message.get(SENDER) == Some(&id[..]));
        for (index, other) in self.nodes.iter().enumerate() {
            let mode =
                if index == node { Mode::drop_frames(|message| !message.is_empty()) } else { by_it.clone() };
            other.way.as_ref().ok_or(io::ErrorKind::Unsupported)?.set_both(mode).await;
        }
        // Its replicas reach it as clients do.
        cut.ok(&["ACL", "SETUSER", "default", "-psync", "-sync"]).await?;
        cut.server.command(&["CLIENT", "KILL", "TYPE", "replica"]).await.map(drop)
    }

    /// Ends that.
    pub async fn join(&self, node: usize) -> io::Result<()> {
        for way in self.nodes.iter().filter_map(|node| node.way.as_ref()) {
            way.set_both(Mode::Pass).await;
        }
        self.nodes[node].ok(&["ACL", "SETUSER", "default", "+psync", "+sync"]).await
    }

    /// Waits until all that run say so.
    async fn know(&self, field: &str, value: &str) -> io::Result<()> {
        for node in &self.nodes {
            soon(|| async { Ok(node.cluster_info().await?.get(field).is_some_and(|said| said == value)) })
                .await?;
        }
        Ok(())
    }
}

impl Node {
    async fn start(
        settings: &Settings,
        epoch: usize,
        node_timeout: Duration,
        way: Option<Proxy>,
    ) -> io::Result<Self> {
        let bus = Port::reserve()?;
        let mut settings = settings.clone().set("cluster-enabled", &["yes"]);
        if let Some(way) = &way {
            way.lead_to(bus.addr()).await;
            settings = settings.set("cluster-announce-bus-port", &[&way.addr().port().to_string()]);
        }
        let settings = settings.set("cluster-port", &[&bus.number().to_string()]);
        let settings = settings.set("cluster-node-timeout", &[&node_timeout.as_millis().to_string()]);
        let server = settings.start().await?;
        let id = server.command(&["CLUSTER", "MYID"]).await?.text().unwrap_or_default();
        let node = Self { server, id, bus, way };
        node.ok(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch.to_string()]).await?;
        Ok(node)
    }

    async fn ok(&self, words: &[&str]) -> io::Result<()> {
        match self.server.command(words).await? {
            Reply::Simple(word) if word == "OK" => Ok(()),
            other => Err(io::Error::other(format!("{words:?}: {other:?}"))),
        }
    }

    async fn cluster_info(&self) -> io::Result<BTreeMap<String, String>> {
        let text = self.server.command(&["CLUSTER", "INFO"]).await?.text().unwrap_or_default();
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Ok(fields.map(|(field, value)| (field.to_owned(), value.to_owned())).collect())
    }

    /// How many primaries and replicas it names.
    async fn named(&self) -> io::Result<(usize, usize)> {
        let ranges = self.server.command(&["CLUSTER", "SLOTS"]).await?.elements();
        let replicas = ranges.iter().map(|range| range.clone().elements().len().saturating_sub(3)).sum();
        Ok((ranges.len(), replicas))
    }

    /// Slots, and the port of the server that has them, by its word.
    async fn owners(&self) -> io::Result<Vec<(Slots, u16)>> {
        let ranges = self.server.command(&["CLUSTER", "SLOTS"]).await?.elements();
        let number = |reply: &Reply| usize::try_from(reply.integer()?).ok();
        let owner = |range: Reply| {
            let [first, last, owner, ..] = &range.elements()[..] else { return None };
            let port = number(owner.clone().elements().get(1)?)?;
            Some((number(first)?..=number(last)?, u16::try_from(port).ok()?))
        };
        Ok(ranges.into_iter().filter_map(owner).collect())
    }
}

type Slots = RangeInclusive<usize>;

fn owner_in(ranges: &[(Slots, u16)], slot: usize) -> Option<u16> {
    ranges.iter().find(|(slots, _)| slots.contains(&slot)).map(|(_, owner)| *owner)
}

/// The length of the message of the bus that these bytes begin with, if it is complete.
fn frame(bytes: &[u8]) -> Option<usize> {
    let length = u32::from_be_bytes(bytes.get(4..8)?.try_into().ok()?).try_into().ok()?;
    (length <= bytes.len()).then_some(length)
}

/// Where such a message names its sender.
const SENDER: std::ops::Range<usize> = 40..80;

/// Waits until it is so.
async fn soon<F: Future<Output = io::Result<bool>> + Send>(
    is_so: impl Fn() -> F + Send + Sync,
) -> io::Result<()> {
    let looking = async {
        while !is_so().await? {
            sleep(POLL).await;
        }
        Ok(())
    };
    timeout(READY, looking).await.map_err(io::Error::from)?
}

/// Longer than a replica tries to take its primary's place.
const ATTEMPT: Duration = Duration::from_secs(6);

/// How long they get to agree.
const READY: Duration = Duration::from_secs(30);

/// How often one is asked.
const POLL: Duration = Duration::from_millis(10);
