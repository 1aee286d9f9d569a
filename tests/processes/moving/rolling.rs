//! Processes that count together are replaced one by one and killed, while the phases are walked to and fro; also while the
//! old store is a fleet that fails over in each of them.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use leasehold::backend::stage::Phase;
use leasehold::migrate::Admin;
use leasehold_conformance::Dice;
use libtest_mimic::Trial;
use testbed::{BOUND, Scratch, Server, etcd, eventually, trial_within};

use super::pair::{End, Pair, Space, walk};
use crate::child::Holder;
use crate::hunt::fleets::Watched;
use crate::hunt::{Fault, Hunted};

/// So many deployments with this pair.
pub(crate) fn trials(pair: &Pair, number: u64) -> Vec<Trial> {
    let deployment = |seed| {
        let pair = pair.clone();
        trial_within(6 * BOUND, format!("{}::rolling::no_count_is_lost::{seed}", pair.name), move || {
            no_count_is_lost(pair.fresh(), seed, None)
        })
    };
    (0..number).map(deployment).collect()
}

/// From a fleet that sentinels watch to etcd: in each phase another server is promoted, whether the primary is killed or serves
/// on.
pub(crate) fn failing_over(to: SocketAddr) -> Trial {
    const NAME: &str = "sentinel-etcd";
    trial_within(6 * BOUND, format!("{NAME}::rolling::no_count_is_lost"), move || async move {
        let old = Watched::start().await;
        let end = End::watched(old.sentinels(), <etcd::Etcd as Server>::TTL);
        let pair = Pair::new(NAME, end, End::of::<etcd::Etcd>(to, ""));
        no_count_is_lost(pair.fresh(), 0, Some(old)).await;
    })
}

/// From plain processes of the old store to plain ones of the new, every one killed at some time, with a way back in
/// between: every count is there once, and tokens grow from line to line (G1, G3).
async fn no_count_is_lost(space: Space, seed: u64, old: Option<Watched<false>>) {
    let mut fleet = Fleet::start(space, seed, old).await;
    for index in 0..PROCESSES {
        fleet.replace(index, MOVING).await;
        fleet.counts_on().await;
    }
    fleet.fails_over(Phase::Old).await;
    let admin = fleet.space.admin().await;
    let back = *fleet.dice.pick(&[Phase::Old, Phase::Shadow, Phase::Both]);
    let from = *fleet.dice.pick(&[Phase::Both, Phase::Drain, Phase::New]);
    for to in [from, back, Phase::New] {
        fleet.walk(&admin, to).await;
    }
    fleet.is_refused(OLD).await;
    for index in 0..PROCESSES {
        fleet.replace(index, NEW).await;
        fleet.counts_on().await;
    }
    fleet.judge().await;
    admin.close().await.unwrap();
}

const PROCESSES: usize = 4;

const OLD: usize = 0;
const MOVING: usize = 1;
const NEW: usize = 2;

struct Fleet {
    space: Space,
    dice: Dice,
    scratch: Scratch,
    hands: Vec<Holder>,
    /// The old store, if it fails over, and in which phases it has.
    old: Option<Watched<false>>,
    failed_over: BTreeSet<Phase>,
}

impl Fleet {
    async fn start(space: Space, seed: u64, old: Option<Watched<false>>) -> Self {
        let scratch = Scratch::new("rolling").unwrap();
        std::fs::write(scratch.path().join("journal"), "").unwrap();
        let (dice, hands, failed_over) = (Dice::new(seed), Vec::new(), BTreeSet::new());
        let mut fleet = Self { space, dice, scratch, hands, old, failed_over };
        for _ in 0..PROCESSES {
            let hand = fleet.process(OLD).await;
            fleet.hands.push(hand);
        }
        fleet.counts_on().await;
        fleet
    }

    /// One that counts until it is killed.
    async fn process(&self, kind: usize) -> Holder {
        let mut holder = Holder::start(&self.scratch, &self.space.urls()[kind]).await;
        let journal = self.scratch.path().join("journal");
        let who = ["old", "moving", "new"][kind];
        holder.order(&format!("count {} {who} {}", journal.display(), u32::MAX)).await;
        holder
    }

    async fn replace(&mut self, index: usize, kind: usize) {
        self.hands[index].process.kill().await.unwrap();
        self.hands[index] = self.process(kind).await;
    }

    /// Step by step; a process may die on each.
    async fn walk(&mut self, admin: &Admin, to: Phase) {
        let place = |phase| Phase::ALL.iter().position(|other| *other == phase).unwrap();
        loop {
            let at = admin.status().await.unwrap().phase.expect("it has begun");
            let next = match place(at).cmp(&place(to)) {
                std::cmp::Ordering::Less => place(at) + 1,
                std::cmp::Ordering::Equal => return,
                std::cmp::Ordering::Greater => place(at) - 1,
            };
            let victim = usize::try_from(self.dice.below(PROCESSES as u64)).unwrap();
            if self.dice.chance(500) {
                self.replace(victim, MOVING).await;
            }
            walk(admin, Phase::ALL[next]).await;
            self.counts_on().await;
            self.fails_over(Phase::ALL[next]).await;
            if Phase::ALL[next] == Phase::Both {
                self.is_refused(OLD).await;
                self.is_refused(NEW).await;
            }
        }
    }

    /// The old store promotes another server, once in each phase.
    async fn fails_over(&mut self, phase: Phase) {
        let Some(old) = self.old.as_mut().filter(|_| self.failed_over.insert(phase)) else { return };
        let (fault, before) =
            (*self.dice.pick(&[Fault::KillPrimary, Fault::FailOver]), old.promotions().await);
        println!("in {phase}: {fault:?}");
        old.strike(fault, &mut self.dice).await;
        eventually("another server is promoted", async || old.promotions().await > before).await;
        old.heal(fault).await;
        self.counts_on().await;
    }

    /// A process with that URL does not begin, and says what it lacks.
    async fn is_refused(&self, kind: usize) {
        let mut refused = Holder::launch(&self.scratch, &self.space.urls()[kind]);
        let answer = refused.answer().await;
        assert!(answer.starts_with("error ") && answer.contains("migrate_to"), "{answer}");
    }

    /// The living processes count on.
    async fn counts_on(&self) {
        let journal = self.scratch.path().join("journal");
        let lines = || std::fs::read_to_string(&journal).unwrap().lines().count();
        let before = lines();
        eventually("it is counted", async || lines() > before + 2 * PROCESSES).await;
    }

    async fn judge(&mut self) {
        for hand in &mut self.hands {
            hand.process.kill().await.unwrap();
        }
        let journal = std::fs::read_to_string(self.scratch.path().join("journal")).unwrap();
        let (mut last_token, mut counts) = (0, [0; 3]);
        for (index, line) in journal.lines().enumerate() {
            let [count, token, who] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
            assert_eq!(count.parse(), Ok(index + 1), "two holders, or a lost count, at line {index}");
            let token: u64 = token.parse().unwrap();
            assert!(token > last_token, "line {index}: token {token} after {last_token}");
            last_token = token;
            counts[["old", "moving", "new"].iter().position(|kind| *kind == who).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
        let failed_over = &self.failed_over;
        println!(
            "{counts:?} counts by processes of the old store, moving, of the new one; failed over in {failed_over:?}"
        );
    }
}
