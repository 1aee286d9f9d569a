//! Keeping entries alive: the core's renewals of holders and waiters, and the refresh of waiters after a reconnect.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use leasehold_core::backend::{Backoff, LeaseId, Renewal, StoreEvent};
use leasehold_core::clock::Moment;
use leasehold_core::{ErrorKind, LostReason, Result};

use super::{Kept, Session};
use crate::cluster::HashSlot;
use crate::connection::Copies;
use crate::error;
use crate::protocol::{ScriptReply, Verdict};
use crate::scripts::{self, Reply, millis};

impl Session {
    /// Renews entries, holding or waiting.
    pub(crate) async fn renew(self: &Arc<Self>, leases: &[LeaseId]) -> Vec<Renewal> {
        let known = self.life.entries_of(leases).into_iter().enumerate();
        let mut known: Vec<_> = known.filter_map(|(at, entry)| Some((at, entry?))).collect();
        // Holders first: they have more to lose.
        known.sort_by_cached_key(|(_, entry)| entry.contender.lock().is_waiting());
        let give_up_at = self.give_up_at();
        let mut renewals: Vec<_> = leases.iter().map(|_| Renewal::Gone(LostReason::Gone)).collect();
        let batches = self.batches(&mut known);
        // Few requests are packed at a time, however many the entries are. With slots a request has few entries, and one to a
        // server that is away must not delay the others. Requests that wait for a disk do so together.
        let is_bounded = !self.is_slotted && self.fleet.copies() == Copies::NONE;
        let at_once = if is_bounded { AT_ONCE } else { batches.len().max(1) };
        let batches: Vec<_> = batches
            .into_iter()
            .map(|batch| async move {
                let (at, entries): (Vec<_>, Vec<_>) = batch.iter().cloned().unzip();
                at.into_iter().zip(self.renew_batch(&entries, give_up_at).await)
            })
            .collect();
        let mut batches = stream::iter(batches).buffer_unordered(at_once);
        while let Some(batch) = batches.next().await {
            for (at, renewal) in batch {
                renewals[at] = renewal;
            }
        }
        renewals
    }

    /// The entries that one request renews: those of one slot.
    fn batches<'k>(&self, known: &'k mut [(usize, Arc<Kept>)]) -> Vec<&'k [(usize, Arc<Kept>)]> {
        let slot_of = |entry: &Kept| self.is_slotted.then(|| HashSlot::of(self.keys.lock(&entry.name)));
        if self.is_slotted {
            known.sort_by_cached_key(|(_, entry)| (entry.contender.lock().is_waiting(), slot_of(entry)));
        }
        let slots = known.chunk_by(|(_, one), (_, other)| slot_of(one) == slot_of(other));
        slots.flat_map(|slot| slot.chunks(BATCH)).collect()
    }

    async fn renew_batch(self: &Arc<Self>, entries: &[Arc<Kept>], give_up_at: Moment) -> Vec<Renewal> {
        match self.refresh(entries, give_up_at).await {
            Ok(verdicts) => verdicts.into_iter().map(renewal).collect(),
            // One name whose keys are something else is not to cost the others their leases.
            Err(error) if *error.kind() == ErrorKind::Protocol && entries.len() > 1 => {
                let each = entries.chunks(1).map(|entry| Box::pin(self.renew_batch(entry, give_up_at)));
                join_all(each).await.into_iter().flatten().collect()
            }
            Err(error) => entries.iter().map(|_| Renewal::Unknown(error.clone())).collect(),
        }
    }

    /// Refreshes a batch, of one slot, in one request; returns the meaning of each answer.
    pub(super) async fn refresh(
        self: &Arc<Self>,
        entries: &[Arc<Kept>],
        give_up_at: Moment,
    ) -> Result<Vec<Verdict>> {
        let names: Vec<_> = entries.iter().map(|entry| &entry.name).collect();
        let mut call = self.operation("renew", &names)?;
        // They have one slot.
        let inbox = names.first().map_or(Cow::Borrowed(&*self.inbox), |name| self.inbox_for(name));
        call.arg(self.inboxes.told()).arg(&*inbox);
        for entry in entries {
            call.arg_of(&[entry.owner.hex_digits()]).number(millis(entry.ttl()));
        }
        let (sent_at, value) = self.run_confirmed(&self.told(call), give_up_at).await?;
        let replies = scripts::replies(&value, entries.len(), self.naming())?;
        let now = self.env.now();
        // It may be as old as its request where it comes with a confirmation.
        let waits = self.fleet.copies() != Copies::NONE;
        let age = if waits { now.since(sent_at) } else { Duration::ZERO };
        let apply = |(entry, Reply { answer, holder }): (&Arc<Kept>, Reply)| {
            // A foreign holder that came past the queue, and is new here.
            if let Some(holder) = holder.filter(|holder| holder.foreign) {
                self.events.tell(StoreEvent::Queued { name: entry.name.clone(), holder });
            }
            let verdict = entry.contender.lock().answered(now, sent_at, answer.written_before(age));
            entry.heard.notify_one();
            self.listen(entry);
            self.waits_in_slot(&entry.name, &answer);
            match (answer, verdict) {
                (ScriptReply::Revoked { .. }, _) => self.tell_asked(entry),
                // It waits for a grant that it had and lost: that turn is not wanted any more.
                (ScriptReply::Waits { .. }, Verdict::Gone(LostReason::Gone)) => self.leave(entry),
                _ => {}
            }
            verdict
        };
        Ok(entries.iter().zip(replies).map(apply).collect())
    }

    /// Refreshes the waiters after every reconnect.
    pub(super) async fn catch_up(self: Arc<Self>) {
        loop {
            self.missed.notified().await;
            self.refresh_waiting(self.life.entries()).await;
        }
    }

    /// A waiter may have been granted by a lost message, and its next refresh may be far away: refreshes until each of them is
    /// answered, or has ended.
    pub(super) async fn refresh_waiting(self: &Arc<Self>, mut waiting: Vec<Arc<Kept>>) {
        let mut pauses = Backoff::of_requests(&self.env);
        loop {
            waiting.retain(|entry| entry.contender.lock().is_waiting());
            let leases: Vec<_> = waiting.iter().map(|entry| entry.lease).collect();
            let mut renewals = self.renew(&leases).await.into_iter();
            waiting.retain(|entry| {
                let is_unknown = matches!(renewals.next(), Some(Renewal::Unknown(_)));
                if !is_unknown {
                    self.announce(entry);
                }
                is_unknown
            });
            if waiting.is_empty() {
                return;
            }
            tracing::debug!(entries = waiting.len(), "retrying the refresh of waiting entries");
            pauses.pause(&self.env).await;
        }
    }

    /// Reports to the core until when a waiting entry lives: it abandons leases whose deadlines pass.
    pub(super) fn announce(&self, entry: &Kept) {
        let until = entry.contender.lock().waits_until();
        if let Some(deadline) = until {
            self.events.tell(StoreEvent::LeaseOpened(entry.lease(deadline)));
        }
    }
}

fn renewal(verdict: Verdict) -> Renewal {
    match verdict {
        Verdict::Until(deadline) => Renewal::Until(deadline),
        Verdict::Unchanged => Renewal::Unknown(error::in_lag()),
        Verdict::Gone(reason) => Renewal::Gone(reason),
    }
}

/// How many entries one request refreshes: enough that requests are few, and few enough that the
/// server does nothing else for less than a millisecond.
const BATCH: usize = 100;
/// So many of them are in flight, if no copies are waited for.
const AT_ONCE: usize = 8;
