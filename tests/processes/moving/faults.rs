//! What each fault of each of the two stores comes to, in each phase: one rule for all, by whether locks are held in the
//! store that is broken.
//!
//! | | the store is needed | it is not |
//! |---|---|---|
//! | it is slow, or restarted with its data | holds last, locks are granted | the same |
//! | it falls silent, or this process is cut off from it | holds end in time, none are granted, and later they are | holds last, locks are granted |
//! | it is restarted without its data | holds end, none are granted until the move is repaired | holds last, locks are granted, processes start, and the move goes on |

use std::fmt;
use std::time::Duration;

use leasehold::LockManager;
use leasehold::backend::stage::{Phase, Side};
use leasehold::migrate::Migration;
use libtest_mimic::Trial;
use testbed::{BOUND, Beside, Mode, Proxy, eventually, pass, trial, within};

use super::pair::{Kind, NAME, admin, env, hold, open, walk};

/// What happens to one of the stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Slow,
    /// Its process is stopped for longer than a lease.
    Silent,
    /// One process does not reach it for longer than a lease.
    CutOff,
    Restarted,
    RestartedEmpty,
}

const FAULTS: [Fault; 5] =
    [Fault::Slow, Fault::Silent, Fault::CutOff, Fault::Restarted, Fault::RestartedEmpty];

/// The table.
pub(crate) fn trials<O: Kind, N: Kind>(pair: &str) -> Vec<Trial> {
    let mut trials = Vec::new();
    for phase in Phase::ALL {
        for side in [Side::Old, Side::New] {
            for fault in FAULTS {
                let name = format!("{pair}::faults::in_{phase}_the_{}_store_is::{fault}", side.word());
                trials.push(trial(name, move || async move {
                    let fixture = Fixture::<O, N>::start(phase).await;
                    fixture.suffer(side, fault).await;
                }));
            }
        }
    }
    let name = format!("{pair}::faults::tokens_grow_after_the_old_store_died");
    trials.push(trial(name, || async { Fixture::<O, N>::start(Phase::Both).await.goes_on_alone().await }));
    trials
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slow => "slow",
            Self::Silent => "silent",
            Self::CutOff => "cut_off",
            Self::Restarted => "restarted",
            Self::RestartedEmpty => "restarted_empty",
        })
    }
}

/// Two servers of the trial's own in some phase, a process behind ways that can be broken, and one beside it.
struct Fixture<O, N> {
    phase: Phase,
    old: O,
    new: N,
    ways: [Proxy; 2],
    ttl: Duration,
    near: LockManager,
    far: LockManager,
}

impl<O: Kind, N: Kind> Fixture<O, N> {
    async fn start(phase: Phase) -> Self {
        let (old, new) = tokio::try_join!(O::start(), N::start()).unwrap();
        let (ways, ttl) = ([old.proxy().unwrap(), new.proxy().unwrap()], 2 * O::TTL.max(N::TTL));
        let direct = Self::migration([old.addr(), new.addr()]);
        let near = open(direct.clone(), ttl).await;
        let far = open(Self::migration([ways[0].addr(), ways[1].addr()]), ttl).await;
        let admin = admin(&direct, ttl).await;
        walk(&admin, phase).await;
        admin.close().await.unwrap();
        Self { phase, old, new, ways, ttl, near, far }
    }

    fn migration([old, new]: [std::net::SocketAddr; 2]) -> Migration {
        Migration::new(O::config(old, "moved"), N::config(new, "moved"))
    }

    fn direct(&self) -> Migration {
        Self::migration([self.old.addr(), self.new.addr()])
    }

    /// Whether locks are held in that store.
    fn needs(&self, side: Side) -> bool {
        match side {
            Side::Old => self.phase <= Phase::Both,
            Side::New => self.phase >= Phase::Both,
        }
    }

    async fn suffer(mut self, side: Side, fault: Fault) {
        let way = usize::from(side == Side::New);
        match fault {
            Fault::Slow => {
                self.ways[way].set_both(Mode::delay(self.ttl / 30)).await;
                self.lives_on().await;
            }
            Fault::CutOff if self.needs(side) => {
                let guard = hold(&self.far).await;
                let lock = self.near.lock(NAME).unwrap();
                let waiting = Beside::start(async move { lock.acquire().await.unwrap() });
                self.ways[way].set_both(Mode::Blackhole).await;
                let next = waiting.end("the other holds").await;
                guard.ensure_held().expect_err("two hold");
                assert!(next.token() > guard.token());
                let token = next.token();
                next.release().await.unwrap();
                self.ways[way].set_both(Mode::Pass).await;
                self.comes_back(token.get()).await;
            }
            Fault::CutOff => {
                self.ways[way].set_both(Mode::Blackhole).await;
                self.lives_on().await;
            }
            Fault::Silent if self.needs(side) => {
                let guard = hold(&self.far).await;
                self.stop(side).await;
                within(BOUND, "it is lost", guard.lost()).await;
                let refused = self.near.lock(NAME).unwrap().wait(self.ttl).acquire().await;
                refused.expect_err("a store that is needed is silent");
                self.cont(side);
                self.comes_back(guard.token().get()).await;
            }
            Fault::Silent => {
                let admin = admin(&self.direct(), self.ttl).await;
                self.stop(side).await;
                self.lives_on().await;
                if self.phase == Phase::New {
                    within(self.ttl, "a process starts", open(self.direct(), self.ttl)).await;
                }
                self.cont(side);
                self.lives_on().await;
                // The session that the administrator had there may have ended meanwhile.
                walk(&admin, Phase::New).await;
                self.comes_back(0).await;
            }
            Fault::Restarted => {
                self.restart(side).await;
                self.comes_back(0).await;
            }
            Fault::RestartedEmpty if self.needs(side) => self.loses_its_record(side).await,
            Fault::RestartedEmpty => {
                let guard = hold(&self.far).await;
                self.restart_empty(side).await;
                let admin = admin(&self.direct(), self.ttl).await;
                open(self.direct(), self.ttl).await.shutdown().await.unwrap();
                // A process writes the old one again. Repair works beside processes.
                if side == Side::New {
                    admin.repair(Duration::ZERO).await.unwrap();
                }
                pass(self.ttl).await;
                guard.ensure_held().unwrap();
                guard.release().await.unwrap();
                self.lives_on().await;
                walk(&admin, Phase::New).await;
                self.comes_back(0).await;
                // That needs both records.
                walk(&admin, Phase::Both).await;
            }
        }
    }

    /// A hold lasts, and is followed by one with a larger token.
    async fn lives_on(&self) {
        let guard = hold(&self.far).await;
        pass(guard.remaining()).await;
        guard.ensure_held().unwrap();
        let token = guard.token();
        guard.release().await.unwrap();
        self.comes_back(token.get()).await;
    }

    /// Both can hold, one after the other.
    async fn comes_back(&self, mut token: u64) {
        for locks in [&self.near, &self.far] {
            let granted = async || match locks.lock(NAME).unwrap().acquire().await {
                Ok(guard) => {
                    assert!(guard.token().get() > token, "{} after {token}", guard.token());
                    token = guard.token().get();
                    guard.release().await.is_ok()
                }
                Err(_) => false,
            };
            eventually("it holds again", granted).await;
        }
        eventually("nothing is left", async || self.near.list("").await.is_ok_and(|locks| locks.is_empty()))
            .await;
    }

    /// A store that is needed has forgotten the move: nothing is granted before that is repaired.
    async fn loses_its_record(mut self, side: Side) {
        let guard = hold(&self.far).await;
        let token = guard.token();
        self.restart_empty(side).await;
        within(BOUND, "it is lost", guard.lost()).await;
        drop(guard);
        let refused = self.near.lock(NAME).unwrap().wait(2 * self.ttl).acquire().await;
        refused.expect_err("the store that decides has lost its record");
        let (direct, ttl) = (self.direct(), self.ttl);
        // In whatever state they are.
        let _ = tokio::join!(self.near.shutdown(), self.far.shutdown());
        let started = LockManager::builder(direct.clone()).ttl(ttl).connect_timeout(BOUND).build().await;
        let refused = started.expect_err("the record is lost").to_string();
        assert!(refused.contains("migrate repair --yes"), "{refused}");
        let admin = admin(&direct, ttl).await;
        eventually("the move is repaired", async || admin.repair(Duration::ZERO).await.is_ok()).await;
        let locks = open(direct, ttl).await;
        let next = hold(&locks).await;
        assert!(next.token() > token, "{} after {token}", next.token());
        next.release().await.unwrap();
        admin.close().await.unwrap();
    }

    /// After a rollback to `shadow` the old store is gone for good: the new one goes on alone, with larger tokens than any before.
    async fn goes_on_alone(mut self) {
        let (direct, ttl) = (self.direct(), self.ttl);
        walk(&admin(&direct, ttl).await, Phase::Shadow).await;
        let guard = hold(&self.far).await;
        let token = guard.token();
        guard.release().await.unwrap();
        self.near.shutdown().await.unwrap();
        self.far.shutdown().await.unwrap();
        self.stop(Side::Old).await;
        let admin = direct.admin(env(ttl, ttl)).await.unwrap();
        let status = admin.repair(Duration::ZERO).await.unwrap();
        assert_eq!(status.phase, Some(Phase::Drain), "{status:?}");
        let locks = LockManager::builder(direct).ttl(ttl).connect_timeout(ttl).build().await.unwrap();
        let next = hold(&locks).await;
        assert!(next.token() > token, "{} after {token}", next.token());
        next.release().await.unwrap();
    }

    async fn stop(&mut self, side: Side) {
        match side {
            Side::Old => self.old.stop().await.unwrap(),
            Side::New => self.new.stop().await.unwrap(),
        }
    }

    fn cont(&mut self, side: Side) {
        match side {
            Side::Old => self.old.cont().unwrap(),
            Side::New => self.new.cont().unwrap(),
        }
    }

    async fn restart(&mut self, side: Side) {
        match side {
            Side::Old => self.old.restart().await.unwrap(),
            Side::New => self.new.restart().await.unwrap(),
        }
    }

    async fn restart_empty(&mut self, side: Side) {
        match side {
            Side::Old => self.old.restart_empty().await.unwrap(),
            Side::New => self.new.restart_empty().await.unwrap(),
        }
    }
}
