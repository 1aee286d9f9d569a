//! A network between the core and a store: it takes its time, it can be cut, and it loses, delays and
//! repeats messages by a plan, or as a seed decides.
//!
//! The guarantees behind it are those of the store but for [`Guarantees::RUNTIME_FREE`]: messages
//! travel in tasks. Everything runs on the [`Env`] of the manager and draws from [`Dice`], so a run
//! under tokio's paused time repeats exactly.
//!
//! [`Guarantees::RUNTIME_FREE`]: leasehold_core::Guarantees::RUNTIME_FREE
//!
//! # Invariants
//! - **network-1** A request on its way arrives, also when its sender has gone: it travels
//!   in a task of its own. What it then acquires is released, also when the answer has arrived and
//!   was not read (G8).
//! - **network-2** An acquisition is sent only when no earlier one of that name is on its way or owes
//!   a clean-up, so the store sees one entry per name as far as the core keeps to that (B1).
//! - **network-3** What the network takes on its way counts: deadlines are as of when the request
//!   entered it, not as of when the store had it (G2).

mod flight;
mod ledger;
mod line;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Env;
use leasehold_core::backend::StoreEvent;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::dice::Dice;
use crate::layer::{Wrap, per_session};
use crate::switch::Switch;
use line::Line;
use plan::Plan;
pub use plan::{Fault, Operation, Rates};

/// A network; clones are the same one, so that a test can cut what it has put in place.
///
/// Of several plans for a request the most particular counts: [`next`](Self::next), then
/// [`always`](Self::always), [`seeded`](Self::seeded). A network that is cut swallows all.
#[derive(Clone, Debug)]
pub struct Network {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// One way.
    delay: Duration,
    plan: Mutex<Plan>,
    cut: Switch,
}

impl Network {
    /// A network that takes `delay` in each direction. Nothing goes wrong yet.
    pub fn new(delay: Duration) -> Self {
        Self { shared: Arc::new(Shared { delay, plan: Mutex::default(), cut: Switch::default() }) }
    }

    /// The wrap that puts this network before a store.
    pub fn wrap(&self) -> Wrap {
        let network = self.clone();
        per_session(move || Arc::new(Line::through(&network)))
    }

    /// Lets `fault` happen to the next such request, after those already planned.
    pub fn next(&self, operation: Operation, fault: Fault) {
        self.shared.plan.lock().next.entry(operation).or_default().push_back(fault);
    }

    /// Lets `fault` happen to every such request.
    pub fn always(&self, operation: Operation, fault: Fault) {
        self.shared.plan.lock().always.insert(operation, fault);
    }

    /// Lets faults happen at random; `seed` repeats them.
    pub fn seeded(&self, seed: u64, rates: Rates) {
        self.shared.plan.lock().random = Some((Dice::new(seed), rates));
    }

    /// Nothing passes: requests are swallowed, answers and events held back, until
    /// [`heal`](Self::heal).
    pub fn cut(&self) {
        self.shared.cut.turn(true);
    }

    /// Puts `event` into the stream of every session behind this network, true or not.
    pub fn emit(&self, event: &StoreEvent) {
        let mut plan = self.shared.plan.lock();
        plan.inboxes.retain(|inbox| inbox.send(event.clone()).is_ok());
        plan.injected += 1;
    }

    /// Nothing goes wrong from here on; what was planned is forgotten.
    pub fn heal(&self) {
        self.shared.plan.lock().forget();
        self.shared.cut.turn(false);
    }

    /// How many faults have happened.
    pub fn injected(&self) -> u64 {
        self.shared.plan.lock().injected
    }

    /// What happens to a request that is sent now.
    fn draw(&self, operation: Operation) -> Option<Fault> {
        let is_cut = self.shared.cut.is_on();
        let mut plan = self.shared.plan.lock();
        let fault = if is_cut { Some(Fault::LoseRequest) } else { plan.draw(operation) };
        plan.injected += u64::from(fault.is_some());
        fault
    }

    /// Where a session behind this network receives events.
    fn listen(&self) -> (mpsc::UnboundedSender<StoreEvent>, mpsc::UnboundedReceiver<StoreEvent>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.shared.plan.lock().inboxes.push(sender.clone());
        (sender, receiver)
    }

    /// One way; how long it took, which on a busy machine is longer than the delay.
    async fn cross(&self, env: &Env) -> Duration {
        if self.shared.delay.is_zero() {
            return Duration::ZERO;
        }
        let sent_at = env.now();
        env.sleep(self.shared.delay).await;
        env.now().since(sent_at)
    }

    /// Waits until the network is whole.
    async fn whole(&self) {
        self.shared.cut.wait_for(false).await;
    }

    /// Runs `exchange`, which stands still while the network is cut.
    async fn while_whole<T>(&self, exchange: impl Future<Output = T>) -> T {
        let mut exchange = std::pin::pin!(exchange);
        loop {
            self.whole().await;
            tokio::select! {
                biased;
                () = self.shared.cut.wait_for(true) => {}
                done = &mut exchange => return done,
            }
        }
    }
}

#[cfg(test)]
mod tests;
