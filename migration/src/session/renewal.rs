//! The renewal of the leases that the core knows, in both stores at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{LeaseId, LeaseScope, Renewal};
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Error, ErrorKind, LostReason};

use super::book::Book;
use super::claim::Stage;
use super::{SIDES, Session};
use crate::protocol::Pair;

type Answers = Pair<BTreeMap<LeaseId, Renewal>>;

impl Book {
    /// Which of the stores' leases these are. A session's own is renewed by itself.
    fn leases_of(&self, leases: &[LeaseId]) -> Pair<BTreeSet<LeaseId>> {
        let mut wanted: Pair<BTreeSet<LeaseId>> = Pair::default();
        for lease in leases {
            if let Some((side, inner)) = self.leases.passed(*lease) {
                wanted[side].insert(inner);
            }
            let claim =
                self.leases.composites.get(lease).and_then(|name| self.slots.get(name)?.claim.as_ref());
            for side in SIDES {
                let part = claim.and_then(|claim| claim.parts[side].as_ref());
                let own = part.filter(|part| part.lease.scope == LeaseScope::Entry);
                wanted[side].extend(own.map(|part| part.lease.id));
            }
        }
        wanted
    }

    /// Takes in what the stores answered.
    fn renewed(&mut self, answers: &Answers) {
        for side in SIDES {
            for (lease, answer) in &answers[side] {
                match answer {
                    Renewal::Until(until) => self.leases.extend(side, *lease, *until),
                    Renewal::Gone(reason) => self.lease_over(side, *lease, *reason),
                    Renewal::Unknown(_) => {}
                }
            }
        }
    }

    /// The effect on a lease that the core knows.
    fn answer(
        &mut self,
        lease: LeaseId,
        passed: Option<(Side, LeaseId)>,
        answers: &Answers,
        now: Moment,
    ) -> Renewal {
        let gone = Renewal::Gone(LostReason::Gone);
        if let Some((side, inner)) = passed {
            return answers[side].get(&inner).cloned().unwrap_or(gone);
        }
        let Some(name) = self.leases.composites.get(&lease).cloned() else { return gone };
        let Some(claim) = self.claim(&name) else { return gone };
        let mut unknown = None;
        for side in SIDES {
            let needed = matches!(&claim.stage, Stage::Holding { hold, .. } if hold.needs(side));
            let Some(part) = &mut claim.parts[side] else { continue };
            match answers[side].get(&part.lease.id) {
                Some(Renewal::Until(until)) => part.lease.deadline = part.lease.deadline.max(*until),
                Some(Renewal::Unknown(error)) if needed => unknown = Some(error.clone()),
                _ => {}
            }
        }
        self.admit(&name);
        let trusted = self.trusted(&name);
        let Some(claim) = self.claim(&name) else { return gone };
        let until = claim.trusted_until(trusted, now);
        let ttl = claim.ttl();
        let Stage::Holding { hold, told, .. } = &mut claim.stage else { return gone };
        // The entry that it rests on is signed by itself, and that is overdue.
        let overdue = until <= *told && ttl.is_some_and(|ttl| until.remaining(now) < ttl / 3);
        if unknown.is_none() && overdue {
            let message = "the session or entry of this lock was not renewed in time";
            unknown = Some(Error::new(ErrorKind::Unavailable, Effect::Unknown, message));
        }
        let answer = match unknown {
            _ if hold.over => gone,
            Some(error) => Renewal::Unknown(error),
            None => {
                *told = (*told).max(until);
                Renewal::Until(until)
            }
        };
        self.advance(&name);
        answer
    }
}

impl Session {
    /// At most one request to each store, however many leases hang on one of its.
    pub(crate) async fn renew(self: &Arc<Self>, leases: &[LeaseId]) -> Vec<Renewal> {
        let (wanted, passed) = self.with(|book, _| {
            let passed: Vec<_> = leases.iter().map(|lease| book.leases.passed(*lease)).collect();
            (book.leases_of(leases), passed)
        });
        let (old, new) = futures_util::future::join(
            self.renew_at(Side::Old, wanted.old.into_iter().collect()),
            self.renew_at(Side::New, wanted.new.into_iter().collect()),
        )
        .await;
        let answers = Pair { old, new };
        self.with(|book, now| {
            book.renewed(&answers);
            let answer =
                |(lease, passed): (&LeaseId, &Option<_>)| book.answer(*lease, *passed, &answers, now);
            leases.iter().zip(&passed).map(answer).collect()
        })
    }

    /// A store that does not answer leaves time for what the other has answered.
    async fn renew_at(&self, side: Side, leases: Vec<LeaseId>) -> BTreeMap<LeaseId, Renewal> {
        if leases.is_empty() {
            return BTreeMap::new();
        }
        let bound = self.env.timing().op_timeout / 4 * 3;
        let asked = async { Ok(self.open(side)?.backend.renew(&leases).await) };
        let renewed = self.env.within(bound, asked).await.unwrap_or_else(|| Err(super::silent(side, bound)));
        let unknown = |error: Error| leases.iter().map(|_| Renewal::Unknown(error.clone())).collect();
        leases.iter().copied().zip(renewed.unwrap_or_else(unknown)).collect()
    }

    /// The core has ended a session of one of the stores.
    pub(crate) fn end_session(self: &Arc<Self>, lease: LeaseId) {
        self.with(|book, _| {
            if let Some((side, inner)) = book.leases.passed(lease) {
                book.give_up(side, inner);
            }
        });
    }
}
