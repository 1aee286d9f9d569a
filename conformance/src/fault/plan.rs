//! The handle by which a test says what goes wrong, and when.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lockcore::backend::StoreEvent;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::switch::Switch;
use crate::dice::Dice;

/// What a request asks the store to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the requests of the contract")]
pub enum Operation {
    /// `LockBackend::try_acquire`
    TryAcquire,
    /// `LockBackend::acquire`
    Acquire,
    /// `LockBackend::renew`
    Renew,
    /// `LockBackend::release`
    Release,
    /// `LockBackend::inspect`
    Inspect,
    /// `LockBackend::list`
    List,
    /// `LockBackend::revoke`
    Revoke,
    /// `LockBackend::diagnose`
    Diagnose,
    /// `LockBackend::close`
    Close,
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "what can happen to a message and its answer")]
pub enum Fault {
    /// It never arrives: fails after the bound of a request, its effect unknown.
    LoseRequest,
    /// It is carried out, and nobody hears of it: fails after the bound of a request, its effect
    /// unknown. A grant that nobody heard of is released behind that.
    LoseReply,
    /// It arrives so much later. Whoever gives up meanwhile does not stop it: what it takes is
    /// given back once it has.
    DelayRequest(Duration),
    /// Its answer arrives so much later; later than the bound of a request is a lost one.
    DelayReply(Duration),
    /// It arrives twice; the first answer counts. Releases and renewals only, others arrive once.
    Duplicate,
}

/// How often what happens to a request, in a thousand; the rest goes well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "tests construct it")]
pub struct Rates {
    /// [`Fault::LoseRequest`]
    pub lose_request: u16,
    /// [`Fault::LoseReply`]
    pub lose_reply: u16,
    /// [`Fault::DelayRequest`]
    pub delay_request: u16,
    /// [`Fault::DelayReply`]
    pub delay_reply: u16,
    /// [`Fault::Duplicate`]
    pub duplicate: u16,
    /// The longest delay.
    pub longest_delay: Duration,
}

/// Steers the faults of the backends that share it; clones are the same handle.
///
/// Of several plans for a request the most particular counts: [`next`](Self::next), then
/// [`expire`](Self::expire), [`always`](Self::always), [`seeded`](Self::seeded). A silent store
/// swallows all.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    plan: Mutex<Plan>,
    silent: Switch,
}

#[derive(Debug, Default)]
struct Plan {
    next: BTreeMap<Operation, VecDeque<Fault>>,
    always: BTreeMap<Operation, Fault>,
    random: Option<(Dice, Rates)>,
    expiring: bool,
    inboxes: Vec<mpsc::UnboundedSender<StoreEvent>>,
    injected: u64,
}

impl Faults {
    /// Nothing goes wrong yet.
    pub fn new() -> Self {
        Self::default()
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

    /// The store hangs: requests are swallowed, answers and events held back, until
    /// [`heal`](Self::heal).
    pub fn silence(&self) {
        self.shared.silent.turn(true);
    }

    /// Renewals are swallowed, so that leases expire at the store.
    pub fn expire(&self) {
        self.shared.plan.lock().expiring = true;
    }

    /// Puts `event` into the stream of every backend of this handle, true or not.
    pub fn emit(&self, event: &StoreEvent) {
        let mut plan = self.shared.plan.lock();
        plan.inboxes.retain(|inbox| inbox.send(event.clone()).is_ok());
        plan.injected += 1;
    }

    /// Nothing goes wrong from here on; what was planned is forgotten.
    pub fn heal(&self) {
        {
            let mut plan = self.shared.plan.lock();
            let Plan { inboxes, injected, .. } = std::mem::take(&mut *plan);
            (plan.inboxes, plan.injected) = (inboxes, injected);
        }
        self.shared.silent.turn(false);
    }

    /// How many faults have happened.
    pub fn injected(&self) -> u64 {
        self.shared.plan.lock().injected
    }

    /// What happens to a request that is sent now.
    pub(super) fn draw(&self, operation: Operation) -> Option<Fault> {
        let silent = self.shared.silent.is_on();
        let mut plan = self.shared.plan.lock();
        let fault = if silent { Some(Fault::LoseRequest) } else { plan.draw(operation) };
        plan.injected += u64::from(fault.is_some());
        fault
    }

    /// Where a backend of this handle hears of events.
    pub(super) fn listen(&self) -> (mpsc::UnboundedSender<StoreEvent>, mpsc::UnboundedReceiver<StoreEvent>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.shared.plan.lock().inboxes.push(sender.clone());
        (sender, receiver)
    }

    /// Waits until the store is not silent.
    pub(super) async fn audible(&self) {
        self.shared.silent.wait_for(false).await;
    }

    /// Runs `exchange`, which stands still while the store is silent.
    pub(super) async fn while_audible<T>(&self, exchange: impl Future<Output = T>) -> T {
        let mut exchange = std::pin::pin!(exchange);
        loop {
            self.audible().await;
            tokio::select! {
                biased;
                () = self.shared.silent.wait_for(true) => {}
                done = &mut exchange => return done,
            }
        }
    }
}

impl Plan {
    fn draw(&mut self, operation: Operation) -> Option<Fault> {
        if let Some(fault) = self.next.get_mut(&operation).and_then(VecDeque::pop_front) {
            return Some(fault);
        }
        if self.expiring && operation == Operation::Renew {
            return Some(Fault::LoseRequest);
        }
        if let Some(fault) = self.always.get(&operation) {
            return Some(*fault);
        }
        let (dice, rates) = self.random.as_mut()?;
        rates.draw(dice)
    }
}

impl Rates {
    fn draw(&self, dice: &mut Dice) -> Option<Fault> {
        let mut roll = dice.below(1000);
        let delay = dice.span(self.longest_delay);
        let faults = [
            (self.lose_request, Fault::LoseRequest),
            (self.lose_reply, Fault::LoseReply),
            (self.delay_request, Fault::DelayRequest(delay)),
            (self.delay_reply, Fault::DelayReply(delay)),
            (self.duplicate, Fault::Duplicate),
        ];
        for (rate, fault) in faults {
            let rate = u64::from(rate);
            if roll < rate {
                return Some(fault);
            }
            roll -= rate;
        }
        None
    }
}
