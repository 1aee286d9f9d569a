//! The stores that are hunted.

use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold_conformance::Dice;
use libtest_mimic::Trial;
use testbed::{Mode, Proxy, Scratch, Server, etcd, postgres, redis, zookeeper};

use super::Fault::{self, *};
use super::fleets::{Sharded, Watched};
use super::{CLIENTS, Hunted, below, finds, trial};

pub(crate) fn trials(seed: u64, time: Duration) -> Vec<Trial> {
    vec![
        trial::<Directory>(seed, time),
        trial::<Servers<redis::Server, 1>>(seed, time),
        trial::<Moved<3>>(seed, time),
        finds::<Moved<0>>(seed, "overlap_after_a_move_without_pause_is_found"),
        trial::<Servers<redis::Server, 3>>(seed, time),
        trial::<Watched<false>>(seed, time),
        trial::<Watched<true>>(seed, time),
        trial::<Sharded>(seed, time),
        trial::<Servers<etcd::Etcd, 1>>(seed, time),
        trial::<Servers<zookeeper::Server, 1>>(seed, time),
        trial::<Servers<postgres::Server, 1>>(seed, time),
        trial::<Promoted>(seed, time),
    ]
}

/// A client that stopped may have been the last to renew, and a machine may be busy.
pub(super) const BUSY: Duration = Duration::from_secs(3);

/// Servers of any kind: one, or three of Redis of which a quorum decides. One is struck at a time.
struct Servers<S, const N: usize> {
    servers: [S; N],
    ways: Vec<[Proxy; N]>,
    struck: usize,
}

impl<S: Server, const N: usize> Hunted for Servers<S, N> {
    const NAME: &'static str = if N == 1 { S::NAME } else { "redis-quorum" };
    const TTL: Duration = S::TTL;
    const DETECTION: Duration = S::NOTICES_WITHIN.saturating_add(S::HEARS_THE_DEAF_FOR).saturating_add(BUSY);
    const FAULTS: &'static [Fault] =
        &[KillClient, StopClient, CutClient, DropPackets, KillServer, StopServer];

    async fn start() -> Self {
        let servers = [(); N].map(|()| S::start());
        let servers: Vec<_> = try_join_all(servers).await.unwrap();
        let way = |server: &S| Proxy::start(server.addr()).unwrap();
        let ways = (0..CLIENTS).map(|_| std::array::from_fn(|server| way(&servers[server]))).collect();
        Self { servers: servers.try_into().unwrap_or_else(|_| unreachable!()), ways, struck: 0 }
    }

    fn url(&self, client: usize, options: &str) -> String {
        let hosts = self.ways[client].each_ref().map(|way| way.addr().to_string()).join(",");
        if N == 1 {
            return S::url(hosts, "hunt", options);
        }
        // Without a pause, as a server that is started again has its data.
        format!("redis+quorum://{hosts}/0?prefix=hunt&pause_after_restart=0s&{options}")
    }

    fn ways(&self, client: usize) -> &[Proxy] {
        &self.ways[client]
    }

    async fn strike(&mut self, fault: Fault, dice: &mut Dice) {
        self.struck = below(dice, N);
        let server = &mut self.servers[self.struck];
        match fault {
            StopServer => server.stop().await.unwrap(),
            _ => server.restart().await.unwrap(),
        }
    }

    async fn heal(&mut self, _fault: Fault) {
        self.servers[self.struck].cont().unwrap();
    }
}

/// No server: a directory.
struct Directory(Scratch);

impl Hunted for Directory {
    const NAME: &'static str = "file";
    const TTL: Duration = Duration::from_secs(2);
    const DETECTION: Duration = BUSY;
    const FAULTS: &'static [Fault] = &[KillClient, StopClient];

    async fn start() -> Self {
        Self(Scratch::new("hunt-file").unwrap())
    }

    fn url(&self, _client: usize, options: &str) -> String {
        format!("file://{}?{options}", self.0.path().display())
    }
}

/// One address that leads to a Redis server or to its replica, which then is the other's primary. Clients pause for so many
/// seconds; without a pause a hold that the replica has missed is doubled.
struct Moved<const PAUSE: u64> {
    servers: [redis::Server; 2],
    /// How often the address was moved: it leads to the first server, or to the second.
    moves: usize,
    /// What the replica follows.
    between: Proxy,
    ways: Vec<Proxy>,
}

impl<const PAUSE: u64> Moved<PAUSE> {
    fn primary(&mut self) -> &mut redis::Server {
        &mut self.servers[self.moves % 2]
    }
}

async fn follow(replica: &redis::Server, primary: &Proxy) {
    let port = primary.addr().port().to_string();
    replica.command(&["REPLICAOF", "127.0.0.1", &port]).await.unwrap();
}

impl<const PAUSE: u64> Hunted for Moved<PAUSE> {
    const NAME: &'static str = "redis-moved";
    const TTL: Duration = <redis::Server as Server>::TTL;
    const DETECTION: Duration = Duration::from_secs(PAUSE).saturating_add(BUSY);
    const FAULTS: &'static [Fault] = match PAUSE {
        0 => &[MoveAddress],
        _ => &[KillClient, StopClient, CutClient, DropPackets, KillServer, StopServer, LoseData, MoveAddress],
    };

    async fn start() -> Self {
        let primary = <redis::Server as Server>::start().await.unwrap();
        let between = Proxy::start(primary.addr()).unwrap();
        let replica = <redis::Server as Server>::start().await.unwrap();
        follow(&replica, &between).await;
        let ways = (0..CLIENTS).map(|_| Proxy::start(primary.addr()).unwrap()).collect();
        Self { servers: [primary, replica], moves: 0, between, ways }
    }

    fn url(&self, client: usize, options: &str) -> String {
        let pause = if PAUSE > 0 { format!("pause_after_restart={PAUSE}s&") } else { String::new() };
        <redis::Server as Server>::url(self.ways[client].addr(), "hunt", &format!("{pause}{options}"))
    }

    fn ways(&self, client: usize) -> &[Proxy] {
        std::slice::from_ref(&self.ways[client])
    }

    async fn strike(&mut self, fault: Fault, _dice: &mut Dice) {
        match fault {
            StopServer => self.primary().stop().await.unwrap(),
            LoseData => self.primary().restart_empty().await.unwrap(),
            MoveAddress => {
                self.servers[1 - self.moves % 2].follows().await.unwrap();
                self.between.set_both(Mode::Blackhole).await;
            }
            _ => self.primary().restart().await.unwrap(),
        }
    }

    async fn heal(&mut self, fault: Fault) {
        if fault == StopServer {
            return self.primary().cont().unwrap();
        }
        let next = &self.servers[1 - self.moves % 2];
        next.command(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
        for way in self.ways.iter().chain([&self.between]) {
            way.lead_to(next.addr()).await;
        }
        self.between.set_both(Mode::Pass).await;
        follow(&self.servers[self.moves % 2], &self.between).await;
        self.moves += 1;
    }

    async fn promotions(&self) -> usize {
        self.moves
    }
}

/// A Postgres server, and a standby that takes over when it is killed, and may have missed the last grants.
struct Promoted {
    primary: postgres::Server,
    standby: postgres::Server,
    promotions: usize,
    ways: Vec<Proxy>,
}

impl Hunted for Promoted {
    const NAME: &'static str = "postgres-promoted";
    const TTL: Duration = <postgres::Server as Server>::TTL;
    const DETECTION: Duration = BUSY;
    const KEEPS_GRANTS: bool = false;
    const FAULTS: &'static [Fault] = &[KillClient, CutClient, MoveAddress];

    async fn start() -> Self {
        let primary = <postgres::Server as Server>::start().await.unwrap();
        let standby = postgres::Setup::new().follow(&primary).await.unwrap();
        let ways = (0..CLIENTS).map(|_| Proxy::start(primary.addr()).unwrap()).collect();
        Self { primary, standby, promotions: 0, ways }
    }

    fn url(&self, client: usize, options: &str) -> String {
        <postgres::Server as Server>::url(self.ways[client].addr(), "hunt", options)
    }

    fn ways(&self, client: usize) -> &[Proxy] {
        std::slice::from_ref(&self.ways[client])
    }

    async fn strike(&mut self, _fault: Fault, _dice: &mut Dice) {
        self.primary.kill().await.unwrap();
    }

    async fn heal(&mut self, _fault: Fault) {
        self.standby.promote().await.unwrap();
        for way in &self.ways {
            way.lead_to(self.standby.addr()).await;
        }
        let next = postgres::Setup::new().follow(&self.standby).await.unwrap();
        self.primary = std::mem::replace(&mut self.standby, next);
        self.promotions += 1;
    }

    async fn promotions(&self) -> usize {
        self.promotions
    }
}
