//! Sends the vote requests of a contender, and passes their answers to it.
//!
//! # Invariants
//! - **redis.quorum.vote_request-1** Every request that was sent is awaited to its end: by the caller that waits for the owner,
//!   and in the background once that has left.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Error, ErrorKind, Result};
use redis::Value;

use super::member::Admitted;
use super::{KeptVotes, MemberRequests, Session};
use crate::quorum::keys::{BallotKeys, COUNT, VOTE};
use crate::quorum::protocol::{Confirming, VoteReply, VoteRequest};
use crate::quorum::scripts::{self, Asker, Ballot, Voted};
use crate::scripts::{Call, info, millis};

/// A request to one server, which is sent when it is polled.
pub(super) type Request = BoxFuture<'static, ()>;

/// Pending requests to a few servers. Each poll polls all of them: a caller sends all before it waits, and an answer that has
/// come delays no request to another server. None is a task of its own.
#[derive(Default)]
pub(super) struct Requests(Vec<Request>);

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn extend(&mut self, requests: impl IntoIterator<Item = Request>) {
        self.0.extend(requests);
    }

    /// Ready if one of them or several have ended.
    pub(super) fn poll_all(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let before = self.0.len();
        self.0.retain_mut(|request| request.as_mut().poll(cx).is_pending());
        if self.0.len() < before { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Until one of them or several have ended; `None` if there is none.
    pub(super) async fn next(&mut self) -> Option<()> {
        if self.is_empty() {
            return None;
        }
        poll_fn(|cx| self.poll_all(cx)).await;
        Some(())
    }
}

impl Session {
    /// redis.quorum.vote_request-1: the caller of `entry` has left.
    pub(super) fn go_on(self: &Arc<Self>, entry: &Arc<KeptVotes>, mut pending: Requests) {
        if pending.is_empty() {
            return entry.rest();
        }
        let (session, entry) = (Arc::clone(self), Arc::clone(entry));
        self.env.spawn(async move {
            let running = async {
                while pending.next().await.is_some() {
                    pending.extend(session.requests_of(&entry, session.env.now()));
                }
            };
            session.life.closed.run_until_cancelled(running).await;
            entry.rest();
        });
    }

    /// The requests that the contender wants now.
    pub(super) fn requests_of(self: &Arc<Self>, entry: &Arc<KeptVotes>, now: Moment) -> Vec<Request> {
        let wanted = entry.contender.lock().requests(now);
        let (mut requests, mut call) = (Vec::<Request>::new(), None);
        for (server, request) in wanted {
            let (session, entry) = (Arc::clone(self), Arc::clone(entry));
            let asking = entry.asking(self.size.servers);
            requests.push(match request {
                VoteRequest::Vote { round, again } => {
                    let call =
                        Arc::clone(call.get_or_insert_with(|| self.call_for_votes(&entry, round, now)));
                    Box::pin(async move {
                        let there = (server, &asking.members[server]);
                        session.ask_for_vote(&entry, there, (round, again), &call).await;
                    })
                }
                VoteRequest::Confirm(confirming) => Box::pin(async move {
                    session.confirm(&entry, (server, &asking.members[server]), confirming).await;
                }),
                VoteRequest::Return { round } => Box::pin(async move {
                    session.return_votes(&entry, (server, &asking.members[server]), round).await;
                }),
            });
        }
        requests
    }

    /// The same for all servers, so that they agree on a number.
    fn call_for_votes(&self, entry: &KeptVotes, round: u64, now: Moment) -> Arc<Call> {
        let (proposal, since) = {
            let bound = self.bound.lock();
            (bound.proposal(now, &entry.name, LEAD), bound.time(now).unwrap_or(0))
        };
        let asker = Asker {
            ballot: Ballot { ticket: entry.ticket(), round },
            ttl: millis(entry.ttl()),
            proposal,
            since,
            inbox: &self.inbox,
            info: &info(&entry.label, entry.metadata.as_deref()),
            terms: &self.terms,
        };
        let [vote, count] = self.keys.each_of(&entry.name, [VOTE, COUNT]);
        Arc::new(scripts::vote([&vote, &count], &self.space, asker))
    }

    async fn ask_for_vote(
        &self,
        entry: &KeptVotes,
        (server, member): (usize, &MemberRequests),
        ballot: (u64, bool),
        call: &Call,
    ) {
        // redis.quorum.session-1
        let _turn = match member.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => member.turn.lock().await,
        };
        if let Err(error) = self.vote(entry, (server, member), ballot, call).await {
            tracing::debug!(
                lock = %entry.name, server = %self.members[server].address, error = ?format!("{error:#}"),
                "server gave no vote"
            );
            *member.failed.lock() = Some(error);
            entry.contender.lock().failed(self.env.now(), server);
        }
    }

    async fn vote(
        &self,
        entry: &KeptVotes,
        (server, member): (usize, &MemberRequests),
        (round, again): (u64, bool),
        call: &Call,
    ) -> Result<()> {
        let admitted = self.members[server].ready(self, server).await?;
        let sent_at = self.env.now();
        let waits = {
            let mut contender = entry.contender.lock();
            if contender.over(sent_at).is_some() || contender.round != round {
                contender.unsent(server);
                return Ok(());
            }
            contender.is_waiting()
        };
        let call = scripts::vote_at(call, (waits, again), &admitted.run()?);
        let answer = self.run_noted(member, &admitted, &call).await?;
        let Voted { now, answer, holder } = scripts::voted(&answer)?;
        if let Some(now) = now {
            self.bound.lock().learn_time(server, self.env.now(), sent_at, now);
        }
        if let Some(VoteReply::Voted { n }) = answer {
            self.bound.lock().learn_number(self.env.now(), &entry.name, n);
            self.may_hold.store(true, Ordering::Relaxed);
        }
        let mut failed = None;
        let answer = match answer {
            Some(answer) => answer,
            None => {
                let left = self.pause_left_at(server);
                let error =
                    Error::not_applied(ErrorKind::Unavailable, pauses(left.unwrap_or(self.agreed.pause)));
                let error = error.with_context("server", &self.members[server].address);
                // It may take any time.
                if left.is_some_and(|left| left.is_zero()) {
                    return Err(error);
                }
                failed = Some(error);
                VoteReply::Abstains { ask_in: self.patience().max(left.unwrap_or_default()) }
            }
        };
        *member.failed.lock() = failed;
        *member.holder.lock() = holder.map(Box::new);
        entry.contender.lock().answered(self.env.now(), server, (round, sent_at), answer);
        Ok(())
    }

    /// Runs a script that may leave a vote or a queue entry, even if it arrives late.
    async fn run_noted(&self, member: &MemberRequests, admitted: &Admitted, call: &Call) -> Result<Value> {
        let unanswered = &member.unanswered;
        unanswered.lock().sent(admitted.connected.id());
        let answer = admitted.connected.run(call, self.give_up_at()).await;
        if answer.as_ref().map_or_else(|error| error.effect() == Effect::NotApplied, |_| true) {
            unanswered.lock().answered();
        }
        answer
    }

    async fn confirm(
        &self,
        entry: &KeptVotes,
        (server, member): (usize, &MemberRequests),
        confirming: Confirming,
    ) {
        let _turn = member.turn.lock().await;
        let Confirming { round, n, token } = confirming;
        let ballot = Ballot { ticket: entry.ticket(), round };
        let keys = BallotKeys::of(&self.keys, &entry.name);
        let sent_at = self.env.now();
        let answer = async {
            let admitted = self.members[server].ready(self, server).await?;
            let there = (&*self.space, &*admitted.run()?);
            let call = scripts::confirm(&keys, there, ballot, millis(entry.ttl()), (n, token));
            let answer = admitted.connected.run(&call, self.give_up_at()).await?;
            scripts::was_there(&answer)
        };
        let kept = answer.await.ok();
        entry.contender.lock().confirmed(self.env.now(), server, (confirming, sent_at), kept);
    }

    async fn return_votes(&self, entry: &KeptVotes, (server, member): (usize, &MemberRequests), round: u64) {
        let _turn = member.turn.lock().await;
        let ballot = Ballot { ticket: entry.ticket(), round };
        // A contender that has left since must not stay in the queue.
        let waits_on = entry.waits && entry.contender.lock().over(self.env.now()).is_none();
        let waits_on = waits_on.then(|| millis(entry.ttl()));
        let [vote] = self.keys.each_of(&entry.name, [VOTE]);
        let call = scripts::release(&vote, &self.inboxes, ballot, &self.inbox, waits_on);
        let given = async {
            let admitted = self.members[server].ready(self, server).await?;
            self.run_noted(member, &admitted, &call).await
        };
        if let Err(error) = given.await {
            tracing::debug!(error = ?format!("{error:#}"), "vote not returned; its lease ends it");
        }
    }
}

/// Why a server that may have forgotten votes gives none, and that it pauses for so long still.
pub(crate) fn pauses(left: Duration) -> String {
    if left.is_zero() {
        "it may have lost votes, and too few other servers know which: it does not vote until more servers \
         can be reached"
            .into()
    } else {
        format!("it was restarted and may have lost votes: it does not vote for {left:?}")
    }
}

/// Longer than most requests take to arrive. A number is ahead of the clocks by this and the time that a request may take;
/// after a floor by a second more, as servers note numbers for so long ahead.
const LEAD: Duration = Duration::from_millis(20);
