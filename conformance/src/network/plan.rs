//! What goes wrong, and when.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use leasehold_core::backend::StoreEvent;
use tokio::sync::mpsc;

use crate::dice::Dice;

/// What a request asks the store to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the methods of `LockBackend` and `MoveLedger` of that name")]
#[expect(clippy::exhaustive_enums, reason = "the requests of the contract")]
pub enum Operation {
    TryAcquire,
    Acquire,
    Renew,
    Release,
    Inspect,
    List,
    Revoke,
    Diagnose,
    Close,
    ReadRecord,
    WriteRecord,
    Sign,
    Unsign,
    Members,
}

impl Operation {
    /// Whether the store notices that the sender has gone, by the drop of its future.
    pub(super) fn hears_drop(self) -> bool {
        use Operation::{Close, Release, Renew, Sign, Unsign, WriteRecord};
        !matches!(self, Renew | Release | Close | WriteRecord | Sign | Unsign)
    }

    /// Whether the core waits for an answer for no longer than the bound of a request.
    pub(super) fn is_bounded(self) -> bool {
        use Operation::{Acquire, Members, ReadRecord, Revoke, Sign, Unsign, WriteRecord};
        !matches!(self, Acquire | Revoke | ReadRecord | WriteRecord | Sign | Unsign | Members)
    }
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "what can happen to a message and its answer")]
pub enum Fault {
    /// It never arrives, and is never answered: the core ends what it bounds, the rest fails after
    /// the bound of a request, its effect unknown.
    LoseRequest,
    /// It is carried out, and not answered. A grant whose reply is lost is
    /// released behind that.
    LoseReply,
    /// It arrives so much later. A caller that stops waiting does not stop it: what it acquires is
    /// released then.
    DelayRequest(Duration),
    /// Its answer arrives so much later; later than the bound of a request is a lost one.
    DelayReply(Duration),
    /// It arrives twice; the first answer counts. Releases, renewals and what writes in a ledger only, others
    /// arrive once.
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

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) next: BTreeMap<Operation, VecDeque<Fault>>,
    pub(super) always: BTreeMap<Operation, Fault>,
    pub(super) random: Option<(Dice, Rates)>,
    pub(super) inboxes: Vec<mpsc::UnboundedSender<StoreEvent>>,
    pub(super) injected: u64,
}

impl Plan {
    pub(super) fn forget(&mut self) {
        (self.next, self.always, self.random) = Default::default();
    }

    pub(super) fn draw(&mut self, operation: Operation) -> Option<Fault> {
        if let Some(fault) = self.next.get_mut(&operation).and_then(VecDeque::pop_front) {
            return Some(fault);
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
