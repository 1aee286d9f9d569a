//! Sends what a contender wants, and hears the answers.
//!
//! # Invariants
//! - **redis.quorum.errand-1** What was sent is heard to its end: by whoever waits for the owner, and in the background once
//!   nobody does.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_core::backend::Holder;
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Error, ErrorKind, Result};
use redis::{Cmd, Value};

use super::member::Admitted;
use super::{Entry, Seat, Session};
use crate::quorum::protocol::{Answer, Confirming, Errand};
use crate::quorum::scripts::{self, Asker, Ballot, Voted};
use crate::scripts::{info, millis};

/// Requests, one to each of a few servers, that are driven together: whoever polls them sends all of them before it waits, and
/// none is a task of its own.
#[derive(Default)]
pub(super) struct UnderWay(Vec<BoxFuture<'static, ()>>);

impl UnderWay {
    pub(super) fn begin(&mut self, request: impl Future<Output = ()> + Send + 'static) {
        self.0.push(Box::pin(request));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One of them has ended, or several; never, where there is none.
impl Future for UnderWay {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let before = self.0.len();
        self.0.retain_mut(|request| request.as_mut().poll(cx).is_pending());
        if self.0.len() < before { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// What the contender of one entry has under way.
pub(super) struct Errands {
    session: Arc<Session>,
    entry: Arc<Entry>,
    under_way: UnderWay,
}

impl Errands {
    pub(super) fn of(session: &Arc<Session>, entry: &Arc<Entry>) -> Self {
        let under_way = UnderWay::default();
        Self { session: Arc::clone(session), entry: Arc::clone(entry), under_way }
    }

    /// Begins what the contender wants now; it is sent when [`Self::one`] is polled.
    pub(super) fn begin(&mut self, now: Moment) {
        self.session.begin_errands(&self.entry, now, &mut self.under_way);
    }

    /// Whether nothing is under way.
    pub(super) fn is_over(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Until one of them has ended, or never.
    pub(super) async fn one(&mut self) {
        (&mut self.under_way).await;
    }
}

impl Drop for Errands {
    /// redis.quorum.errand-1
    fn drop(&mut self) {
        if self.under_way.is_empty() {
            return self.entry.rest();
        }
        let (session, entry) = (Arc::clone(&self.session), Arc::clone(&self.entry));
        let mut under_way = std::mem::take(&mut self.under_way);
        self.session.env.spawn(async move {
            let running = async {
                while !under_way.is_empty() {
                    (&mut under_way).await;
                    session.begin_errands(&entry, session.env.now(), &mut under_way);
                }
            };
            session.life.closed.run_until_cancelled(running).await;
            entry.rest();
        });
    }
}

impl Session {
    fn begin_errands(self: &Arc<Self>, entry: &Arc<Entry>, now: Moment, under_way: &mut UnderWay) {
        let errands = entry.contender.lock().errands(now);
        let mut call = None;
        for (server, errand) in errands {
            let (session, entry) = (Arc::clone(self), Arc::clone(entry));
            let asking = entry.asking(self.size.servers);
            match errand {
                Errand::Vote { round, again } => {
                    let call =
                        Arc::clone(call.get_or_insert_with(|| self.call_for_votes(&entry, round, now)));
                    under_way.begin(async move {
                        // redis.quorum.session-1
                        let turn = asking.seats[server].turn.lock().await;
                        let ballot = (round, again);
                        session.ask_for_vote(&entry, (server, &asking.seats[server]), ballot, &call).await;
                        drop(turn);
                    });
                }
                Errand::Confirm(confirming) => under_way.begin(async move {
                    let turn = asking.seats[server].turn.lock().await;
                    session.confirm(&entry, server, confirming).await;
                    drop(turn);
                }),
                Errand::GiveBack { round } => under_way.begin(async move {
                    let turn = asking.seats[server].turn.lock().await;
                    session.give_back(&entry, (server, &asking.seats[server]), round).await;
                    drop(turn);
                }),
            }
        }
    }

    /// The same for all servers, so that they agree.
    fn call_for_votes(&self, entry: &Entry, round: u64, now: Moment) -> Arc<Cmd> {
        let (proposal, since) = {
            let horizon = self.horizon.lock();
            (horizon.proposal(now, &entry.name, LEAD), horizon.time(now).unwrap_or(0))
        };
        let asker = Asker {
            ballot: Ballot { ticket: entry.ticket, round },
            ttl: millis(entry.ttl),
            proposal,
            since,
            inbox: &self.inbox,
            info: &info(&entry.label, entry.metadata.as_deref()),
            terms: &self.terms,
        };
        Arc::new(scripts::vote(&self.keys.of(&entry.name), &self.space, asker))
    }

    async fn ask_for_vote(
        &self,
        entry: &Entry,
        (server, seat): (usize, &Seat),
        (round, again): (u64, bool),
        call: &Cmd,
    ) {
        let asked = self.vote(entry, (server, seat), (round, again), call).await;
        let now = self.env.now();
        let mut contender = entry.contender.lock();
        match asked {
            Ok(Some((sent_at, answer, holder))) => {
                *seat.holder.lock() = holder.map(Box::new);
                contender.answered(now, server, (round, sent_at), answer);
            }
            // Nobody wants it any more.
            Ok(None) => contender.unsent(server),
            Err(error) => {
                tracing::debug!(
                    lock = %entry.name, server = %self.members[server].address, error = ?format!("{error:#}"),
                    "a server gave no vote"
                );
                *seat.failed.lock() = Some(error);
                contender.failed(now, server);
            }
        }
    }

    /// Asks for a vote; when that was sent, and the answer.
    async fn vote(
        &self,
        entry: &Entry,
        (server, seat): (usize, &Seat),
        (round, again): (u64, bool),
        call: &Cmd,
    ) -> Result<Option<(Moment, Answer, Option<Holder>)>> {
        let admitted = self.members[server].ready(self, server).await?;
        let sent_at = self.env.now();
        let waits = {
            let mut contender = entry.contender.lock();
            if contender.over(sent_at).is_some() || contender.round() != round {
                return Ok(None);
            }
            contender.is_waiting()
        };
        let call = scripts::vote_at(call, (waits, again), &admitted.run()?);
        let answer = self.run_noted(seat, &admitted, sent_at, &call).await?;
        let Voted { now, answer, holder } = scripts::voted(&answer)?;
        if let Some(now) = now {
            self.heard_time(server, sent_at, now);
        }
        if let Some(Answer::Voted { n }) = answer {
            self.horizon.lock().heard_number(self.env.now(), &entry.name, n);
            self.found_a_voter();
        }
        let answer = match answer {
            Some(answer) => {
                *seat.failed.lock() = None;
                answer
            }
            None => {
                let pause_left = self.pause_left_at(server);
                let error = |message: String| {
                    let error = Error::not_applied(ErrorKind::Unavailable, message);
                    error.with_context("server", &self.members[server].address)
                };
                // Nobody knows when that will be.
                if pause_left.is_some_and(|left| left.is_zero()) {
                    return Err(error(UNTOLD.into()));
                }
                let pause_left = pause_left.unwrap_or_default();
                *seat.failed.lock() = Some(error(format!(
                    "it came up and may have forgotten votes: it gives none for {pause_left:?}"
                )));
                Answer::Abstains { ask_in: self.patience().max(pause_left) }
            }
        };
        Ok(Some((sent_at, answer, holder)))
    }

    /// What a script has answered that leaves something there, also when it arrives late.
    async fn run_noted(
        &self,
        seat: &Seat,
        admitted: &Admitted,
        sent_at: Moment,
        call: &Cmd,
    ) -> Result<Value> {
        let unanswered = &seat.unanswered;
        unanswered.lock().sent(admitted.connected.id());
        let answer = admitted.connected.run(&scripts::PROGRAM, call, self.give_up_after(sent_at)).await;
        if answer.as_ref().map_or_else(|error| error.effect() == Effect::NotApplied, |_| true) {
            unanswered.lock().answered();
        }
        answer
    }

    async fn confirm(&self, entry: &Entry, server: usize, confirming: Confirming) {
        let Confirming { round, n, token } = confirming;
        let ballot = Ballot { ticket: entry.ticket, round };
        let keys = self.keys.of(&entry.name);
        let sent_at = self.env.now();
        let answer = async {
            let admitted = self.members[server].ready(self, server).await?;
            let there = (&*self.space, &*admitted.run()?);
            let call = scripts::confirm(&keys, there, ballot, millis(entry.ttl), (n, token));
            let answer = admitted.connected.run(&scripts::PROGRAM, &call, self.give_up_at()).await?;
            scripts::was_there(&answer)
        };
        let kept = answer.await.ok();
        entry.contender.lock().confirmed(self.env.now(), server, (confirming, sent_at), kept);
    }

    async fn give_back(&self, entry: &Entry, (server, seat): (usize, &Seat), round: u64) {
        let ballot = Ballot { ticket: entry.ticket, round };
        // Whoever has left since is not to have a place.
        let waits_on = entry.waits && entry.contender.lock().over(self.env.now()).is_none();
        let waits_on = waits_on.then(|| millis(entry.ttl));
        let keys = self.keys.of(&entry.name);
        let call = scripts::release(&keys, &self.inboxes, ballot, &self.inbox, waits_on);
        let given = async {
            let admitted = self.members[server].ready(self, server).await?;
            self.run_noted(seat, &admitted, self.env.now(), &call).await
        };
        if let Err(error) = given.await {
            tracing::debug!(error = ?format!("{error:#}"), "a vote was not given back; its lease ends it");
        }
    }
}

/// Of a server that has paused.
pub(crate) const UNTOLD: &str = "it may have forgotten votes, and too few others tell it which: it gives none until more of them can be reached";
/// More than a request is on its way, mostly. A number is ahead of the clocks by this and the time that a request may take;
/// after a floor by a second more, as servers note numbers for so long ahead.
const LEAD: Duration = Duration::from_millis(20);
