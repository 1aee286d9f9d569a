//! Renewals of holds, at every server that has voted for them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use leasehold_core::backend::{LeaseId, Renewal, StoreEvent};
use leasehold_core::clock::Moment;
use leasehold_core::{ErrorKind, LostReason, Result};
use tokio::sync::mpsc;

use super::vote_request::Requests;
use super::{KeptVotes, Session};
use crate::quorum::keys::BallotKeys;
use crate::quorum::scripts::{self, Kept, Renewed};
use crate::scripts::millis;

/// A hold at one server, and the number of its vote there.
type Vote = (Arc<KeptVotes>, u64);

impl Session {
    /// Renews holds, until a quorum has renewed each; the answers of other servers are applied in the background.
    pub(crate) async fn renew(self: &Arc<Self>, leases: &[LeaseId]) -> Vec<Renewal> {
        let known = self.life.entries_of(leases);
        let (began, give_up_at) = (self.env.now(), self.give_up_at());
        // redis.quorum-7
        for entry in known.iter().flatten() {
            let mut pending = Requests::default();
            pending.extend(self.requests_of(entry, began));
            self.go_on(entry, pending);
        }
        let (tell, mut told) = mpsc::unbounded_channel();
        for server in 0..self.size.servers {
            let vote = |entry: &Arc<KeptVotes>| {
                let number = entry.contender.lock().number_at(server);
                Some((Arc::clone(entry), number?))
            };
            let votes: Vec<Vote> = known.iter().flatten().filter_map(vote).collect();
            let (session, tell) = (Arc::clone(self), tell.clone());
            self.env.spawn(async move {
                // Few requests are packed at a time, however many the votes are.
                let batches: Vec<_> = votes.chunks(BATCH).map(<[Vote]>::to_vec).collect();
                let renewing = stream::iter(batches).for_each_concurrent(AT_ONCE, |votes| {
                    let (session, tell) = (Arc::clone(&session), tell.clone());
                    async move {
                        let renewed = session.renew_at(server, &votes, give_up_at).await;
                        // The caller may have left.
                        let _ = tell.send(renewed.err());
                    }
                });
                session.life.closed.run_until_cancelled(renewing).await;
            });
        }
        drop(tell);
        let mut failed = None;
        loop {
            if known.iter().flatten().all(|entry| self.is_renewed(entry, began)) {
                break;
            }
            tokio::select! {
                biased;
                answered = told.recv() => match answered {
                    Some(error) => failed = error.or(failed),
                    None => break,
                },
                () = self.env.sleep_until(give_up_at) => break,
            }
        }
        let renewal = |entry: &Option<Arc<KeptVotes>>| {
            let Some(entry) = entry else { return Renewal::Gone(LostReason::Gone) };
            let over = entry.contender.lock().over(self.env.now());
            let deadline = entry.contender.lock().deadline();
            match (over, deadline) {
                (Some(reason), _) => Renewal::Gone(reason),
                (None, Some(deadline)) if self.is_renewed(entry, began) => Renewal::Until(deadline),
                _ => Renewal::Unknown(self.too_few(std::slice::from_ref(&failed))),
            }
        };
        known.iter().map(renewal).collect()
    }

    /// Checks revocations that messages announced at the servers, with one request to each at a time. The answers report a
    /// grace period, and a hold whose votes are lost is reported here. The next renewal finds the rest.
    pub(super) async fn look_up_revocations(self: Arc<Self>) {
        loop {
            self.may_be_revoked.notified().await;
            let leases: Vec<_> = std::mem::take(&mut *self.revoked.lock()).into_iter().collect();
            let (mut held, mut asked) = (Vec::new(), Vec::new());
            for (lease, entry) in leases.iter().zip(self.life.entries_of(&leases)) {
                let Some(entry) = entry else { continue };
                match entry.contender.lock().held_as() {
                    Some(counter) => {
                        held.push((entry.name.clone(), counter));
                        asked.push(*lease);
                    }
                    // It is checked once it holds.
                    None => _ = self.revoked.lock().insert(*lease),
                }
            }
            for ((name, counter), renewal) in held.into_iter().zip(self.renew(&asked).await) {
                if let Renewal::Gone(_) = renewal {
                    self.events.tell(StoreEvent::RevocationRequested {
                        name,
                        counter,
                        within: Duration::ZERO,
                    });
                }
            }
        }
    }

    /// Whether a quorum has renewed it since then, or it has ended.
    fn is_renewed(&self, entry: &KeptVotes, began: Moment) -> bool {
        let mut contender = entry.contender.lock();
        let least = self.env.deadline(began, contender.ttl());
        contender.over(self.env.now()).is_some()
            || contender.deadline().is_some_and(|deadline| least <= deadline)
    }

    async fn renew_at(self: &Arc<Self>, server: usize, votes: &[Vote], give_up_at: Moment) -> Result<()> {
        let kept = votes.iter().map(|(entry, n)| Kept {
            keys: BallotKeys::of(&self.keys, &entry.name),
            ballot: entry.ballot(),
            n: *n,
            ttl: millis(entry.ttl()),
        });
        let admitted = self.members[server].ready(self, server).await?;
        let call = scripts::renew(&kept.collect::<Vec<_>>(), (&self.space, &*admitted.run()?));
        let sent_at = self.env.now();
        let value = match admitted.connected.run(&call, give_up_at).await {
            // One name with foreign keys must not cost the others their leases.
            Err(error) if *error.kind() == ErrorKind::Protocol && votes.len() > 1 => {
                let each = votes.chunks(1).map(|vote| Box::pin(self.renew_at(server, vote, give_up_at)));
                return join_all(each).await.into_iter().collect();
            }
            value => value?,
        };
        for ((entry, _), renewed) in votes.iter().zip(scripts::renewed(&value, votes.len())?) {
            if renewed == Renewed::Pauses {
                self.pause_left_at(server);
                continue;
            }
            entry.contender.lock().renewed(self.env.now(), server, sent_at, renewed != Renewed::Gone);
            let held_as = entry.contender.lock().held_as();
            if let (Renewed::Asked(within), Some(counter)) = (renewed, held_as) {
                self.events.tell(StoreEvent::RevocationRequested {
                    name: entry.name.clone(),
                    counter,
                    within,
                });
            }
        }
        Ok(())
    }
}

/// How many votes one request renews: few enough that the server does nothing else for less than a millisecond.
const BATCH: usize = 100;
/// So many of them are in flight at a server.
const AT_ONCE: usize = 8;
