//! Foreign clients that hold a lock in the old store: what an administrator wants to know before that store is not
//! waited for any more.
//!
//! A client is foreign by what its entry in the store is ([`Holder::foreign`]), not by its label. That it was met is written
//! into the record of the new store, which decides then, at most once a second: it outlasts the process.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::ledger::{MoveLedger, Written};
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::backend::{Holder, StoreEvent};
use leasehold_core::clock::Moment;
use leasehold_core::{Env, ErrorKind, LockName, Result};

use super::Session;
use super::book::{Book, Todo};
use super::claim::{Claim, Stage};
use crate::protocol::member::ForeignClients;
use crate::protocol::parts::Part;
use crate::protocol::record::{MoveRecord, millis};

impl Session {
    /// Writes down that a foreign client holds `name` in the old store.
    pub(super) async fn note(self: Arc<Self>, name: LockName) {
        let noted = async { note(&*self.open(Side::New)?.ledger, &self.env, &name).await };
        if let Err(error) = self.env.bounded(noted).await {
            tracing::warn!(error = ?format!("{error:#}"), lock = ?name, "foreign client not written to the record");
            self.with(|book, _| book.noted_until = None);
        }
        self.noting.change(|noting| *noting -= 1);
    }

    /// Ends when no meeting is being written down: the process may end after that.
    pub(super) async fn until_noted(&self) {
        let noted = self.noting.until(|noting| (*noting == 0).then_some(()));
        // The reason why a meeting is not written is logged.
        let _late = self.env.within(self.env.timing().op_timeout, noted).await;
    }

    /// Checks the holders, in the old store, of the locks that this process waits for. A foreign client may have come before
    /// that was drained, or past the queue.
    pub(super) async fn look_for_foreign_clients(self: &Arc<Self>) {
        let names = self.with(Book::names_to_look_at);
        for name in names {
            let Ok(open) = self.open(Side::Old) else { return };
            let Ok(state) = self.env.bounded(open.backend.inspect(&name)).await else { return };
            self.with(|book, _| {
                for holder in &state.holders {
                    book.meet(Side::Old, &name, holder);
                }
            });
        }
    }
}

/// Writes into the record in `ledger`, the one of the new store, that a foreign client holds `name`.
pub(crate) async fn note(ledger: &dyn MoveLedger, env: &Env, name: &LockName) -> Result<()> {
    let at = millis(env.wall_time());
    // RACE: another process, or a step, may write meanwhile.
    loop {
        let Some(entry) = ledger.read().await? else { return Ok(()) };
        let Some(record) = MoveRecord::decode(&entry.value)?.having_met(name.as_str(), at) else {
            return Ok(());
        };
        if let Written::Done(_) = ledger.write(Some(entry.version), &record.encode()).await? {
            return Ok(());
        }
    }
}

/// How long one process writes down no further meeting.
const NOTED: Duration = Duration::from_secs(1);

/// How many names are looked at, each time that the store is.
const LOOKED_AT: usize = 20;

impl Book {
    /// `holder` holds `name` at `side`, which is written down if that is due; whether it is.
    pub(super) fn meet(&mut self, side: Side, name: &LockName, holder: &Holder) -> bool {
        let now = self.leases.now;
        let is_due = self.noted_until.is_none_or(|until| until <= now);
        if !holder.foreign || side != Side::Old || !self.drains() || !is_due {
            return false;
        }
        self.noted_until = Some(now + NOTED);
        let met = self.foreign_clients.as_ref().map_or(0, |clients| clients.met) + 1;
        self.foreign_clients = Some(ForeignClients { met, name: name.to_string() });
        self.resign(Side::Old);
        self.resign(Side::New);
        self.noting.change(|noting| *noting += 1);
        self.todo.push(Todo::Note(name.clone()));
        true
    }

    /// Some of the names that are waited for in the old store, while it is drained; all of them by and by.
    fn names_to_look_at(&mut self, now: Moment) -> Vec<LockName> {
        if !self.drains() || self.shuns_old(now) {
            return Vec::new();
        }
        let waits = self.slots.iter().filter(|(_, slot)| match &slot.claim {
            Some(Claim { stage: Stage::Asking { contender, .. }, .. }) => {
                contender.parts[Side::Old] == Part::Asked
            }
            _ => false,
        });
        let mut names: Vec<_> = waits.map(|(name, _)| name.clone()).collect();
        let next = names.partition_point(|name| Some(name) <= self.looked_at.as_ref());
        names.rotate_left(next);
        names.truncate(LOOKED_AT);
        self.looked_at = names.last().cloned();
        names
    }

    /// Whether the old store is not waited for now: the last look at it has failed, or a request.
    pub(super) fn shuns_old(&self, now: Moment) -> bool {
        let drains = self.view().is_some_and(|view| view.phase >= Phase::Drain);
        let away = self.trouble.old.as_ref().is_some_and(|error| *error.kind() == ErrorKind::Unavailable);
        drains && (away || self.shunned_until.is_some_and(|until| now < until))
    }

    /// Says so, when it begins.
    pub(super) fn warn_of_shunning(&self) {
        let message = "the old store is not reachable: a client that still uses it alone is not excluded";
        self.events.tell(StoreEvent::Warning(message.into()));
    }
}
