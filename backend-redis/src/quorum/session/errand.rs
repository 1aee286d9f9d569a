//! Sends what a contender wants, each to one server in a task of its own, and hears the answers.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::Holder;
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Error, ErrorKind, Result};
use redis::{Cmd, Value};

use super::member::Admitted;
use super::{Entry, Session};
use crate::quorum::protocol::{Answer, Confirming, Errand};
use crate::quorum::scripts::{self, Asker, Ballot, Voted};
use crate::scripts::{Script, millis};

impl Session {
    /// Sends what the contender of `entry` wants now.
    pub(super) fn pump(self: &Arc<Self>, entry: &Arc<Entry>) {
        let now = self.env.now();
        let errands = entry.contender.lock().errands(now);
        // The same for all, so that they agree.
        let proposal = self.horizon.lock().proposal(now, LEAD);
        for (server, errand) in errands {
            let (session, entry) = (Arc::clone(self), Arc::clone(entry));
            self.env.spawn(async move {
                let running = session.run_errand(&entry, server, errand, proposal);
                if session.closed.run_until_cancelled(running).await.is_some() {
                    entry.heard.notify_one();
                    session.pump(&entry);
                }
            });
        }
    }

    async fn run_errand(&self, entry: &Entry, server: usize, errand: Errand, proposal: u64) {
        // redis.quorum.session-1
        let turn = entry.seats[server].turn.lock().await;
        match errand {
            Errand::Vote { round } => self.ask_for_vote(entry, server, (round, proposal)).await,
            Errand::Confirm(confirming) => self.confirm(entry, server, confirming).await,
            Errand::GiveBack { round } => self.give_back(entry, server, round).await,
        }
        drop(turn);
    }

    async fn ask_for_vote(&self, entry: &Entry, server: usize, (round, proposal): (u64, u64)) {
        let asked = self.vote(entry, server, (round, proposal)).await;
        let now = self.env.now();
        let mut contender = entry.contender.lock();
        let seat = &entry.seats[server];
        match asked {
            Ok(Some((sent_at, answer, holder))) => {
                *seat.holder.lock() = holder;
                contender.answered(now, server, (round, sent_at), answer);
            }
            // Nobody wants it any more.
            Ok(None) => contender.unsent(server),
            Err(error) => {
                tracing::debug!(
                    lock = %entry.name, server = %self.members[server].address, error = %format_args!("{error:#}"),
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
        server: usize,
        (round, proposal): (u64, u64),
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
        let asker = Asker {
            run: &admitted.run,
            ballot: Ballot { ticket: entry.ticket, round },
            ttl: millis(entry.ttl),
            proposal,
            waits,
            inbox: &self.inbox,
            info: &entry.info,
            terms: &self.terms,
        };
        let call = scripts::vote(&entry.keys, &self.space, asker);
        let answer = self.run_noted(entry, server, &admitted, (&scripts::VOTE, &call)).await?;
        let Voted { now, answer, holder } = scripts::voted(&answer)?;
        let n = match answer {
            Some(Answer::Voted { n }) => n,
            _ => 0,
        };
        self.heard_of(sent_at, now, n);
        let pause_left = admitted.pause_left(self, self.env.now());
        *entry.seats[server].failed.lock() = answer.is_none().then(|| {
            let message =
                format!("it came up and may have forgotten votes: it gives none for {pause_left:?}");
            let error = Error::not_applied(ErrorKind::Unavailable, message);
            error.with_context("server", &self.members[server].address)
        });
        let answer = answer.unwrap_or_else(|| {
            self.blank.notify_one();
            Answer::Abstains { ask_in: self.patience().max(pause_left) }
        });
        Ok(Some((sent_at, answer, holder)))
    }

    /// What a script has answered that leaves something there, also when it arrives late.
    async fn run_noted(
        &self,
        entry: &Entry,
        server: usize,
        admitted: &Admitted,
        (script, call): (&Script, &Cmd),
    ) -> Result<Value> {
        let unanswered = &entry.seats[server].unanswered;
        unanswered.lock().sent(admitted.connected.id());
        let answer = admitted.connected.run(script, call, self.give_up_at()).await;
        if answer.as_ref().map_or_else(|error| error.effect() == Effect::NotApplied, |_| true) {
            unanswered.lock().answered();
        }
        answer
    }

    async fn confirm(&self, entry: &Entry, server: usize, confirming: Confirming) {
        let Confirming { round, n, token } = confirming;
        let ballot = Ballot { ticket: entry.ticket, round };
        let call = scripts::confirm(&entry.keys, &self.space, ballot, millis(entry.ttl), n, token);
        let sent_at = self.env.now();
        let answer = self.run_at(server, &scripts::CONFIRM, &call).await;
        let kept = answer.and_then(|value| scripts::was_there(&value)).ok();
        entry.contender.lock().confirmed(self.env.now(), server, (confirming, sent_at), kept);
    }

    async fn give_back(&self, entry: &Entry, server: usize, round: u64) {
        let ballot = Ballot { ticket: entry.ticket, round };
        let (ttl, waits) = (millis(entry.ttl), entry.waits);
        // Whoever has left since is not to have a place.
        let waits = waits && entry.contender.lock().over(self.env.now()).is_none();
        let call = scripts::release(&entry.keys, &self.channels, ballot, ttl, waits, &self.inbox);
        let given = async {
            let admitted = self.members[server].ready(self, server).await?;
            self.run_noted(entry, server, &admitted, (&scripts::RELEASE, &call)).await
        };
        if let Err(error) = given.await {
            tracing::debug!(error = %format_args!("{error:#}"), "a vote was not given back; its lease ends it");
        }
    }
}

/// More than a request is on its way, mostly, and much less than a pause: a number is ahead of the clocks by no more than this
/// and the time that a request may take.
const LEAD: Duration = Duration::from_millis(20);
