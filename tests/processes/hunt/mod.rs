//! A hunt: clients as processes hold one lock, faults strike them and their store as a seed says, and the kit's invariants
//! judge what all of them have logged.
//!
//! What must hold, of every store that is hunted: holds fit together (G1); no guard says that it is held, and nothing is written,
//! after the next grant (G2); tokens grow (G3); and the time between two grants is bounded, less that of the fault in between
//! (G6). Each fault is over, and the lock granted again, before the next one begins.
//!
//! A store joins by [`Hunted`]: how it is started and reached, and which faults it knows. `LEASEHOLD_SEED` repeats the faults of a
//! hunt, `LEASEHOLD_SECONDS` says how long it lasts.

pub(crate) mod client;
pub(crate) mod fleets;
mod journal;
mod report;
mod stores;

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, Moment};
use leasehold_conformance::Dice;
use leasehold_conformance::history::{Event, History, What};
use leasehold_conformance::invariants::Property;
use libtest_mimic::Trial;
use testbed::{BOUND, Depth, Direction, Mode, Proxy, Scratch, eventually, pass, trial_within, until, within};

use self::report::Report;
use crate::child::Holder;

/// How often a hunt says what it has seen so far.
const SHOWS_EVERY: Duration = Duration::from_secs(60);

/// How many clients contend.
const CLIENTS: usize = 4;

/// What can happen. The first four happen to clients, and the hunt sees to them; a store sees to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// One of them or several, which are replaced at once.
    KillClient,
    /// Stopped and continued.
    StopClient,
    /// Its connections are reset.
    CutClient,
    /// Nothing comes through to it, or from it, or both.
    DropPackets,
    /// And started again on its data.
    KillServer,
    /// Stopped and continued.
    StopServer,
    /// And started again without data.
    LoseData,
    /// The address that clients know leads to a replica, which has missed what was written last.
    MoveAddress,
    /// The server that has the lock is killed, and started again once another one may have it.
    KillPrimary,
    /// Another server is promoted although the one that has the lock serves.
    FailOver,
    /// The server that has the lock is cut off from its replicas and from what promotes these; clients reach both sides.
    CutReplication,
    /// The same, and one client is on its side, while the others are on the other one.
    CutOff,
    /// The lock's slot goes to another server; for a while it is on its way.
    MoveSlot,
}

impl Fault {
    /// Whether it is over at once.
    fn is_instant(self) -> bool {
        matches!(
            self,
            Self::KillClient | Self::CutClient | Self::KillServer | Self::LoseData | Self::FailOver
        )
    }
}

/// A store that can be hunted: its servers run while it lives.
pub(crate) trait Hunted: Sized + 'static {
    const NAME: &'static str;

    /// Of every lock.
    const TTL: Duration;

    /// What may pass after a fault until the next grant besides a lease: a pause, and until the end of the lease is noticed.
    const DETECTION: Duration;

    /// How long a fault lasts at most.
    const LONGEST: Duration = Self::TTL.saturating_mul(2);

    /// Whether what was granted stays so whatever happens. Otherwise tokens alone are judged.
    const KEEPS_GRANTS: bool = true;

    /// What can happen to it and its clients.
    const FAULTS: &'static [Fault];

    async fn start() -> Self;

    /// What a client opens, with these options.
    fn url(&self, client: usize, options: &str) -> String;

    /// What lies between a client and the servers, where faults of clients strike.
    fn ways(&self, _client: usize) -> &[Proxy] {
        &[]
    }

    /// Strikes with a fault that is none of clients.
    async fn strike(&mut self, _fault: Fault, _dice: &mut Dice) {}

    /// Ends that fault, if it is not over at once; what it struck serves again.
    async fn heal(&mut self, _fault: Fault) {}

    /// How often another server took over.
    async fn promotions(&self) -> usize {
        0
    }
}

/// Every hunt.
pub(crate) fn trials() -> Vec<Trial> {
    let seconds = testbed::seconds().unwrap_or_else(|| Depth::of_run().pick(4, 8, 1_800));
    let seed = testbed::seed().unwrap_or_else(|| Depth::of_run().seeds(1, 1, 1).start);
    stores::trials(seed, Duration::from_secs(seconds))
}

/// A hunt for so long.
fn trial<H: Hunted>(seed: u64, time: Duration) -> Trial {
    trial_within(
        time + 3 * BOUND,
        format!("{}::hunt::promises_outlast_faults", H::NAME),
        move || async move {
            let again = format!("LEASEHOLD_SEED={seed} LEASEHOLD_SECONDS={}", time.as_secs());
            println!("{}: {again}", H::NAME);
            let mut hunt = Hunt::<H>::start(seed).await;
            let end = hunt.clock.now() + time;
            let mut shown = hunt.clock.now();
            while hunt.clock.now() < end {
                hunt.strike().await;
                if hunt.clock.now().since(shown) > SHOWS_EVERY {
                    shown = hunt.clock.now();
                    println!("{}: so far {}", H::NAME, hunt.report().await.1);
                }
            }
            for client in 0..CLIENTS {
                hunt.kill(client).await;
            }
            let (history, report) = hunt.report().await;
            println!("{}: {again}: {report}", H::NAME);
            report.assert_clean(&history, H::TTL + H::DETECTION);
        },
    )
}

/// A hunt that goes on until it has found what this store breaks.
fn finds<H: Hunted>(seed: u64, name: &str) -> Trial {
    trial_within(2 * BOUND, format!("{}::hunt::{name}", H::NAME), move || async move {
        let mut hunt = Hunt::<H>::start(seed).await;
        eventually("a promise is broken", async || {
            hunt.strike().await;
            let (_, report) = hunt.report().await;
            println!("{}: {report}", H::NAME);
            !report.violations.is_empty()
        })
        .await;
    })
}

struct Hunt<H> {
    hunted: H,
    scratch: Scratch,
    clock: BootClock,
    dice: Dice,
    seed: u64,
    clients: Vec<(String, Holder)>,
    /// How many were started.
    started: usize,
    /// Those that have not struck since all had.
    deck: Vec<Fault>,
    faults: BTreeMap<Fault, usize>,
    /// What happened besides what clients log.
    events: Vec<Event>,
}

impl<H: Hunted> Hunt<H> {
    async fn start(seed: u64) -> Self {
        let (hunted, scratch) = (H::start().await, Scratch::new("hunt").unwrap());
        // Stores differ in what strikes first.
        let of_store = H::NAME.bytes().fold(seed, |seed, byte| seed.rotate_left(5) ^ u64::from(byte));
        let (clock, dice) = (BootClock::new(), Dice::new(of_store));
        let (clients, deck, faults, events) = (Vec::new(), Vec::new(), BTreeMap::new(), Vec::new());
        let mut hunt = Self { hunted, scratch, clock, dice, seed, clients, started: 0, deck, faults, events };
        for client in 0..CLIENTS {
            let launched = hunt.launch(client).await;
            hunt.clients.push(launched);
        }
        hunt.granted_after(hunt.clock.now()).await;
        hunt
    }

    /// Starts a client, which opens its session by itself.
    async fn launch(&mut self, client: usize) -> (String, Holder) {
        self.started += 1;
        let (ttl, number) = (H::TTL.as_millis(), self.started);
        let options = format!("ttl={ttl}ms&op_timeout={}ms&connect_wait={}s", ttl / 3, BOUND.as_secs());
        let mut holder = Holder::launch(&self.scratch, &self.hunted.url(client, &options));
        let actor = format!("{client}.{number}");
        holder.order(&format!("hunt {actor} {number} {} {ttl}", self.seed)).await;
        (actor, holder)
    }

    /// The next fault, from its beginning to the next grant after it.
    async fn strike(&mut self) {
        if self.deck.is_empty() {
            self.deck.extend(H::FAULTS);
        }
        let fault = self.deck.swap_remove(below(&mut self.dice, self.deck.len()));
        let victim = below(&mut self.dice, CLIENTS);
        let length = if fault.is_instant() { Duration::ZERO } else { self.dice.span(H::LONGEST) };
        let direction =
            *self.dice.pick(&[&Direction::BOTH[..1], &Direction::BOTH[1..], &Direction::BOTH[..]]);
        println!("{}: {fault:?}, client {victim}, {length:.1?}", H::NAME);
        *self.faults.entry(fault).or_default() += 1;
        self.note("world", What::Disturbed("by a fault"));
        self.note("world", What::Noted(format!("{fault:?}, client {victim}, {length:.1?}")));
        match fault {
            Fault::KillClient => {
                for client in 0..=victim {
                    self.kill(client).await;
                    self.clients[client] = self.launch(client).await;
                }
            }
            Fault::StopClient => self.clients[victim].1.process.stop().await.unwrap(),
            Fault::CutClient => {
                for way in self.hunted.ways(victim) {
                    way.reset().await;
                }
            }
            Fault::DropPackets => self.set(victim, direction, &Mode::Blackhole).await,
            of_store => self.hunted.strike(of_store, &mut self.dice).await,
        }
        pass(length).await;
        match fault {
            Fault::StopClient => self.clients[victim].1.process.cont().unwrap(),
            Fault::DropPackets => self.set(victim, &Direction::BOTH, &Mode::Pass).await,
            instant if instant.is_instant() => {}
            of_store => self.hunted.heal(of_store).await,
        }
        self.note("world", What::Healed);
        self.granted_after(self.clock.now()).await;
        pass(self.dice.span(H::TTL / 2)).await;
    }

    async fn set(&self, client: usize, directions: &[Direction], mode: &Mode) {
        for way in self.hunted.ways(client) {
            for direction in directions {
                way.set(*direction, mode.clone()).await;
            }
        }
    }

    /// Kills a client, which must not have ended by itself.
    async fn kill(&mut self, client: usize) {
        let actor = self.clients[client].0.clone();
        self.note(&actor, What::Crashed);
        let holder = &mut self.clients[client].1;
        let status = holder.process.kill().await.unwrap();
        if status.signal().is_none() {
            let log = std::fs::read_to_string(holder.process.log()).unwrap();
            panic!("client {actor} ended by itself, {status}: {}\n{log}", holder.answer().await);
        }
    }

    async fn granted_after(&self, at: Moment) {
        let journal = self.journal();
        within(BOUND, "the lock is granted", until(async || journal::is_granted_after(&journal, at))).await;
    }

    /// What has happened, and what is to be said of it.
    async fn report(&self) -> (History, Report) {
        let history = journal::history(&self.journal(), self.events.clone());
        let mut report = Report::of(&history, self.faults.clone(), self.hunted.promotions().await);
        report.violations.retain(|violation| H::KEEPS_GRANTS || violation.property == Property::Tokens);
        (history, report)
    }

    fn journal(&self) -> PathBuf {
        self.scratch.path().join("journal")
    }

    fn note(&mut self, actor: &str, what: What) {
        self.events.push(Event { at: self.clock.now(), actor: actor.into(), name: None, what });
    }
}

fn below(dice: &mut Dice, bound: usize) -> usize {
    usize::try_from(dice.below(bound as u64)).unwrap()
}
