//! The whole way: a fleet counts with its library, is replaced by ours one by one, moves to etcd, and Redis is switched off.
//! `docs/src/from-another-library.md` is the same for people.

use std::time::Duration;

use contender_protocol::Cycle;
use leasehold::backend::stage::Phase;
use leasehold::migrate::{Admin, Progress, Status, Steps};
use libtest_mimic::Trial;
use testbed::etcd::Etcd;
use testbed::{BOUND, eventually, trial_within};

use crate::contender::Contender;
use crate::contest::Counted;
use crate::hand::Hand;
use crate::library::Library;
use crate::setup::{LONG, Setup};

pub(crate) fn trial(library: &'static Library) -> Trial {
    trial_within(6 * BOUND, format!("{}::the_whole_way_to_etcd", library.name), move || {
        the_whole_way_to_etcd(library)
    })
}

/// A process stops only to be replaced; in the last phase none uses Redis any more. No count is lost in any phase, and
/// our tokens grow all the way.
async fn the_whole_way_to_etcd(library: &'static Library) {
    let mut fleet = Fleet::new(Setup::start(library, LONG).await).await;
    for _ in 0..PROCESSES {
        let Some(process) = fleet.setup.theirs().await else { return };
        fleet.joins(Kind::Theirs, process);
    }
    fleet.counts_on(&format!("{PROCESSES} processes with {} count", library.name)).await;

    for left in (1..PROCESSES).rev() {
        fleet.replaced(Kind::Theirs, Kind::Moving).await;
        fleet.counts_on(&format!("one is replaced by leasehold; with {}: {left}", library.name)).await;
    }
    println!("$ leasehold --url '{}' migrate status", fleet.moving());
    let admin = fleet.setup.admin(&fleet.old(), &fleet.new_url()).await;
    fleet.tell(&admin.status().await.unwrap());
    for to in [Phase::Shadow, Phase::Both, Phase::Drain] {
        fleet.advanced(&admin, to).await;
        fleet.counts_on(&format!("everybody counts on in {to}")).await;
    }

    // A process with the old library is still there, and is seen.
    eventually("the foreign client is seen", async || {
        admin
            .status()
            .await
            .is_ok_and(|status| status.members.iter().any(|member| member.foreign_clients.is_some()))
    })
    .await;
    fleet.tell(&admin.status().await.unwrap());
    let hasty = Steps::default().to(Phase::New).quiet_for(QUIET);
    let refused = admin.advance(&hasty, &mut |_| {}).await.unwrap_err();
    fleet.says(&format!("refused: {refused:#}"));
    fleet.replaced(Kind::Theirs, Kind::Moving).await;
    fleet.counts_on(&format!("the last one with {} has gone", library.name)).await;
    fleet.advanced(&admin, Phase::New).await;
    fleet.counts_on("everybody counts on in new").await;
    admin.close().await.unwrap();
    fleet.setup.server.kill().await.unwrap();
    fleet.counts_on("Redis is switched off").await;

    for left in (0..PROCESSES).rev() {
        fleet.replaced(Kind::Moving, Kind::New).await;
        fleet.counts_on(&format!("one is deployed with the URL of etcd; with the moving one: {left}")).await;
    }
    fleet.judged().await;
}

const PROCESSES: usize = 3;

/// For how long no foreign client may have been seen before the last step: longer than any process pauses.
const QUIET: Duration = Duration::from_secs(2);

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Theirs,
    Moving,
    New,
}

struct Fleet {
    setup: Setup,
    etcd: Etcd,
    counted: Counted,
    /// In the order in which they have come.
    hands: Vec<(Kind, Hand)>,
    done: Vec<Cycle>,
    by: [usize; 3],
}

impl Fleet {
    async fn new(setup: Setup) -> Self {
        let etcd = Etcd::start().await.unwrap_or_else(|error| panic!("{error}"));
        let counted = Counted::new(&setup);
        Self { setup, etcd, counted, hands: Vec::new(), done: Vec::new(), by: [0; 3] }
    }

    /// As a process is deployed before, and until Redis is left.
    fn old(&self) -> String {
        format!("{}&prefix=shop", self.setup.url())
    }

    fn moving(&self) -> String {
        format!("{}&migrate_to={}", self.old(), self.new_url())
    }

    fn new_url(&self) -> String {
        format!("etcd://{}/shop", self.etcd.addr(0))
    }

    fn joins(&mut self, kind: Kind, process: Contender) {
        self.hands.push((kind, Hand::start(process, &self.counted.counter)));
    }

    /// The first of the one kind ends, another kind begins.
    async fn replaced(&mut self, kind: Kind, by: Kind) {
        let index = self.hands.iter().position(|(other, _)| *other == kind).unwrap();
        self.left(index).await;
        let url = if by == Kind::Moving { self.moving() } else { self.new_url() };
        let process = Contender::ours(&url, TTL, &self.setup.scratch).await;
        self.joins(by, process);
    }

    async fn left(&mut self, index: usize) {
        let (kind, hand) = self.hands.remove(index);
        let (process, cycles) = hand.ends().await;
        self.by[kind as usize] += cycles.len();
        self.done.extend(cycles);
        process.quits().await;
    }

    /// Everybody has the lock again, and more than once.
    async fn counts_on(&self, what: &str) {
        let before: Vec<_> = self.hands.iter().map(|(_, hand)| hand.turns()).collect();
        eventually(what, async || {
            self.hands.iter().zip(&before).all(|((_, hand), before)| hand.turns() > before + 2)
        })
        .await;
        let counts = std::fs::read_to_string(&self.counted.counter).unwrap();
        self.says(&format!("{what} (at {})", counts.trim()));
    }

    async fn advanced(&self, admin: &Admin, to: Phase) {
        self.says(&format!("$ leasehold … migrate advance --to {to} --quiet-for {QUIET:?}"));
        let steps = Steps::default().to(to).wait(BOUND).quiet_for(QUIET);
        let mut last = String::new();
        let tell = &mut |progress: &Progress| {
            let now = progress.to_string();
            if now != last {
                self.says(&now);
                last = now;
            }
        };
        let status = admin.advance(&steps, tell).await;
        self.tell(&status.unwrap_or_else(|error| panic!("to {to}: {error:#}")));
    }

    fn tell(&self, status: &Status) {
        self.says(&format!("  phase: {}", status.phase.map_or("-", Phase::word)));
        for member in &status.members {
            let [old, new, both] = member.holds;
            let view = member.view.map_or("-", Phase::word);
            let met = member.foreign_clients.as_ref();
            let met = met
                .map_or_else(String::new, |(met, name)| format!("; foreign clients: {met}, last at {name}"));
            self.says(&format!("  {} sees {view}, holds {old}/{new}/{both}{met}", member.label));
        }
        self.says(&format!("  next: {}", status.next));
        for blocker in &status.blockers {
            self.says(&format!("  blocked by: {blocker}"));
        }
    }

    fn says(&self, what: &str) {
        println!("{}: {what}", self.setup.library.name);
    }

    async fn judged(mut self) {
        while !self.hands.is_empty() {
            self.left(0).await;
        }
        let [theirs, moving, new] = self.by;
        let all = self.done.len();
        self.counted.judge(std::mem::take(&mut self.done));
        self.says(&format!(
            "{all} counts, none lost: {theirs} by {}, {moving} by leasehold on the way, {new} in etcd alone",
            self.setup.library.name
        ));
    }
}

/// Of our leases.
const TTL: Duration = Duration::from_secs(6);
