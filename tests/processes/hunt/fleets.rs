//! Redis behind sentinels, and a cluster: servers are promoted, and slots move, while clients contend.

use std::time::Duration;

use leasehold_conformance::Dice;
use testbed::redis::{self, Cluster, Sentinels, Settings, Step};
use testbed::{Mode, Proxy, Server, eventually};

use super::Fault::{self, *};
use super::stores::BUSY;
use super::{CLIENTS, Hunted, below};

/// Of a namespace in a fleet: on a single server.
const TTL: Duration = <redis::Server as Server>::TTL;

/// What the servers add to the lag, and the pause with it.
const MARGIN: Duration = Duration::from_secs(2);

/// What is written outlives the process that wrote it, without waiting for the disk.
fn kept() -> Settings {
    Settings::new().set("appendonly", &["yes"]).set("appendfsync", &["no"])
}

/// The longest lease, and for how long a primary that was replaced may take writes.
fn agreed(lag: Duration) -> String {
    format!("prefix=hunt&max_ttl={}ms&failover_lag={}ms", TTL.as_millis(), lag.as_millis())
}

/// Three servers and three sentinels, with the pause. Replicas and sentinels reach a server by a way that can be cut, and
/// each client reaches all six by ways of its own.
///
/// A primary without its replicas refuses writes if it `NEEDS_REPLICAS`: then it may go on for longer than the pause.
pub(crate) struct Watched<const NEEDS_REPLICAS: bool> {
    sentinels: Sentinels,
    servers: Vec<redis::Server>,
    between: Vec<Proxy>,
    ways: Vec<Vec<Proxy>>,
    struck: usize,
}

impl<const NEEDS_REPLICAS: bool> Watched<NEEDS_REPLICAS> {
    const SERVERS: usize = 3;
    const DOWN_AFTER: Duration = Duration::from_millis(500);

    /// Without the need for replicas, as long as a fault lasts.
    const LAG: Duration = if NEEDS_REPLICAS { Duration::from_secs(1) } else { TTL.saturating_mul(2) };

    /// Until a replica is promoted, and where replicas are needed, until the former primary is one, too.
    const SETTLES_WITHIN: Duration = Duration::from_secs(if NEEDS_REPLICAS { 8 } else { 3 });

    pub(crate) fn sentinels(&self) -> &Sentinels {
        &self.sentinels
    }

    async fn primary(&self) -> usize {
        let port = self.sentinels.master(0).await.unwrap()["port"].clone();
        self.between.iter().position(|way| way.addr().port().to_string() == port).unwrap()
    }
}

impl<const NEEDS_REPLICAS: bool> Hunted for Watched<NEEDS_REPLICAS> {
    const NAME: &'static str = if NEEDS_REPLICAS { "redis-sentinel-min-replicas" } else { "redis-sentinel" };
    const TTL: Duration = TTL;
    const DETECTION: Duration = TTL
        .saturating_add(Self::LAG)
        .saturating_add(MARGIN)
        .saturating_add(Self::DOWN_AFTER)
        .saturating_add(Self::SETTLES_WITHIN)
        .saturating_add(BUSY);
    const LONGEST: Duration = TTL.saturating_mul(if NEEDS_REPLICAS { 5 } else { 2 });
    const FAULTS: &'static [Fault] = if NEEDS_REPLICAS {
        // One that was stopped writes before it counts its replicas.
        &[KillClient, StopClient, CutClient, DropPackets, KillPrimary, FailOver, CutReplication, CutOff]
    } else {
        &[
            KillClient,
            StopClient,
            CutClient,
            DropPackets,
            KillServer,
            StopServer,
            KillPrimary,
            FailOver,
            CutReplication,
            CutOff,
        ]
    };

    async fn start() -> Self {
        let (mut servers, mut between) = (Vec::<redis::Server>::new(), Vec::<Proxy>::new());
        for number in 0..Self::SERVERS {
            // It leads to the server once that listens, and has told it where it is found.
            let way = Proxy::start(([127, 0, 0, 1], 1).into()).unwrap();
            let mut settings = kept().set("replica-announce-port", &[&way.addr().port().to_string()]);
            if NEEDS_REPLICAS {
                let replicas = (Self::SERVERS - 1).to_string();
                settings = settings.set("min-replicas-to-write", &[&replicas]);
                settings = settings.set("min-replicas-max-lag", &[&Self::LAG.as_secs().to_string()]);
            }
            let server = settings.start().await.unwrap();
            way.lead_to(server.addr()).await;
            if number > 0 {
                // By a command, so that it forgets that when it is started again, as the primary does.
                let primary = between[0].addr().port().to_string();
                server.command(&["REPLICAOF", "127.0.0.1", &primary]).await.unwrap();
                server.follows().await.unwrap();
            }
            servers.push(server);
            between.push(way);
        }
        let replicas = Self::SERVERS - 1;
        let sentinels = Sentinels::start(between[0].addr(), replicas, 3, Self::DOWN_AFTER).await.unwrap();
        let all = || servers.iter().map(redis::Server::addr).chain(sentinels.addrs());
        let ways = (0..CLIENTS).map(|_| all().map(|addr| Proxy::start(addr).unwrap()).collect()).collect();
        Self { sentinels, servers, between, ways, struck: 0 }
    }

    fn url(&self, client: usize, options: &str) -> String {
        let (servers, sentinels) = self.ways[client].split_at(Self::SERVERS);
        let hosts: Vec<_> = sentinels.iter().map(|way| way.addr().to_string()).collect();
        let named = self.between.iter().map(Proxy::addr).chain(self.sentinels.addrs());
        let ways = named.zip(servers.iter().chain(sentinels));
        let ways: Vec<_> =
            ways.map(|(named, way)| format!("{}-{}", named.port(), way.addr().port())).collect();
        let (hosts, ways, master) = (hosts.join(","), ways.join(","), Sentinels::MASTER);
        format!("redis+sentinel://{hosts}/{master}?{}&ways={ways}&{options}", agreed(Self::LAG))
    }

    fn ways(&self, client: usize) -> &[Proxy] {
        &self.ways[client]
    }

    async fn strike(&mut self, fault: Fault, dice: &mut Dice) {
        // So that any replica can be promoted.
        self.sentinels.settled(Self::SERVERS - 1).await.unwrap();
        let primary = self.primary().await;
        self.struck = if fault == KillServer { below(dice, Self::SERVERS) } else { primary };
        let (alone, struck) = (below(dice, CLIENTS), self.struck);
        match fault {
            KillServer => self.servers[struck].restart().await.unwrap(),
            StopServer => self.servers[struck].stop().await.unwrap(),
            KillPrimary => self.servers[struck].kill().await.unwrap(),
            FailOver => self.sentinels.fail_over(self.between[struck].addr()).await.unwrap(),
            _ => self.between[struck].set_both(Mode::Blackhole).await,
        }
        if fault == CutOff {
            for (client, ways) in self.ways.iter().enumerate() {
                for (to, way) in ways.iter().enumerate() {
                    if (client == alone) != (to == struck) {
                        way.set_both(Mode::Blackhole).await;
                    }
                }
            }
        }
    }

    async fn heal(&mut self, fault: Fault) {
        match fault {
            StopServer => self.servers[self.struck].cont().unwrap(),
            KillPrimary => self.servers[self.struck].start_again().await.unwrap(),
            _ => {
                for way in self.ways.iter().flatten().chain(&self.between) {
                    way.set_both(Mode::Pass).await;
                }
            }
        }
    }

    async fn promotions(&self) -> usize {
        self.sentinels.master(0).await.unwrap()["config-epoch"].parse().unwrap()
    }
}

/// Three primaries with a replica each. The slot of the lock moves, and the server that has it is replaced.
pub(crate) struct Sharded {
    cluster: Cluster,
    slot: usize,
    /// What has the slot, and what or whose replica gets it.
    struck: usize,
    to: usize,
    promotions: usize,
}

impl Sharded {
    const PRIMARIES: usize = 3;
    const SILENT: Duration = Duration::from_secs(1);

    const LAG: Duration = TTL.saturating_mul(2);

    /// After a fail-over, and in a slot that has moved.
    const PAUSE: Duration = TTL.saturating_add(Self::LAG).saturating_add(MARGIN);

    /// The other server of the same keys.
    fn partner(node: usize) -> usize {
        (node + Self::PRIMARIES) % (2 * Self::PRIMARIES)
    }

    /// Moves the slot up to a step. On a busy machine a server may be replaced meanwhile.
    async fn move_on(&self, step: Step) {
        eventually("the slot moves", async || {
            let role = self.cluster.server(self.to).info("replication").await.unwrap();
            let to = if role["role"] == "master" { self.to } else { Self::partner(self.to) };
            self.cluster.move_slot(self.slot, to, step).await.is_ok()
        })
        .await;
    }
}

impl Hunted for Sharded {
    const NAME: &'static str = "redis-cluster";
    const TTL: Duration = TTL;
    const DETECTION: Duration =
        Self::PAUSE.saturating_add(Self::SILENT.saturating_mul(3)).saturating_add(BUSY);
    // A slot is moved more often than anything else happens.
    const FAULTS: &'static [Fault] = &[
        KillClient,
        StopClient,
        MoveSlot,
        MoveSlot,
        FailOver,
        KillServer,
        StopServer,
        KillPrimary,
        CutReplication,
    ];

    async fn start() -> Self {
        // No replica goes to another primary by itself.
        let settings = kept().set("cluster-migration-barrier", &["2"]);
        let cluster = Cluster::divisible(&settings, Self::PRIMARIES, 1, Self::SILENT).await.unwrap();
        let slot = cluster.slot_of("hunt:{hunted}").await.unwrap();
        Self { cluster, slot, struck: 0, to: 0, promotions: 0 }
    }

    fn url(&self, _client: usize, options: &str) -> String {
        format!("{}?{}&{options}", self.cluster.url(), agreed(Self::LAG))
    }

    async fn strike(&mut self, fault: Fault, dice: &mut Dice) {
        for node in 0..Self::PRIMARIES {
            // On a busy machine a replica may be promoted after the fault is over.
            eventually("each primary has its replica", async || {
                self.cluster.reunite([node, Self::partner(node)]).await.is_ok()
            })
            .await;
        }
        let owner = self.cluster.owner_of(self.slot).await.unwrap();
        let replica = Self::partner(owner);
        self.struck = owner;
        match fault {
            MoveSlot => {
                self.to = (owner + 1 + below(dice, Self::PRIMARIES - 1)) % Self::PRIMARIES;
                self.move_on(*dice.pick(&[Step::Importing, Step::Migrating, Step::Keys])).await;
            }
            FailOver => {
                self.cluster.fail_over(replica).await.unwrap();
                self.promotions += 1;
            }
            StopServer => self.cluster.server_mut(owner).stop().await.unwrap(),
            KillPrimary => self.cluster.server_mut(owner).kill().await.unwrap(),
            CutReplication => self.cluster.cut_off(owner).await.unwrap(),
            _ => self.cluster.server_mut(owner).restart().await.unwrap(),
        }
    }

    async fn heal(&mut self, fault: Fault) {
        match fault {
            MoveSlot => return self.move_on(Step::Done).await,
            StopServer => self.cluster.server_mut(self.struck).cont().unwrap(),
            CutReplication => self.cluster.join(self.struck).await.unwrap(),
            _ => self.cluster.server_mut(self.struck).start_again().await.unwrap(),
        }
        let owner = self.cluster.owner_of(self.slot).await.unwrap();
        self.promotions += usize::from(owner != self.struck);
    }

    async fn promotions(&self) -> usize {
        self.promotions
    }
}
