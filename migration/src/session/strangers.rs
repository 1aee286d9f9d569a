//! Who still uses the store that is left, and takes no part in the move: what an administrator wants to know before that
//! store is not waited for any more. A holder there is known by its label, which members have too.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::backend::{Holder, StoreEvent};
use leasehold_core::clock::Moment;
use leasehold_core::{Error, ErrorKind, LockName, Result};

use super::Session;
use super::book::{Book, Todo};
use crate::protocol::member::{Member, Strangers};

impl Session {
    /// A holder of `name` in the store that is left, which is drained, has that label.
    pub(super) async fn meet(self: Arc<Self>, name: LockName, label: String) {
        match self.stays_a_stranger(&label).await {
            Ok(false) => {}
            Ok(true) => {
                let at = self.env.wall_time().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let at = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
                self.with(|book, _| {
                    let met = book.strangers.as_ref().map_or(0, |strangers| strangers.met) + 1;
                    book.strangers = Some(Strangers { met, name: name.to_string(), at });
                    book.resign(Side::Old);
                    book.resign(Side::New);
                });
            }
            Err(error) => {
                tracing::debug!(error = ?format!("{error:#}"), lock = %name, "a holder that may be a stranger");
            }
        }
    }

    /// A member says what it is called when it first asks for a lock, which may be now.
    async fn stays_a_stranger(self: &Arc<Self>, label: &str) -> Result<bool> {
        if !self.is_stranger(label).await? {
            return Ok(false);
        }
        self.env.sleep(self.env.timing().op_timeout).await;
        self.is_stranger(label).await
    }

    async fn is_stranger(&self, label: &str) -> Result<bool> {
        let members = self.env.bounded(self.open(Side::Old)?.ledger.members()).await?;
        let is_it = |member: &Member| member.is_called(label);
        Ok(!members
            .iter()
            .filter_map(|member| Member::decode(&member.value).ok())
            .any(|member| is_it(&member)))
    }
}

/// How long nobody is asked for anew whom many meet at once.
const MET: Duration = Duration::from_secs(5);

impl Book {
    /// Somebody holds `name` at `side`: while the store that is left is drained, it may be nobody who moves.
    pub(super) fn met(&mut self, side: Side, name: &LockName, holder: &Holder) {
        let (now, drains) = (self.leases.now, self.view().is_some_and(|view| view.phase == Phase::Drain));
        if side != Side::Old || !drains || self.met.get(&holder.label).is_some_and(|until| now < *until) {
            return;
        }
        self.met.retain(|_, until| now < *until);
        self.met.insert(holder.label.clone(), now + MET);
        self.todo.push(Todo::Meet(name.clone(), holder.label.clone()));
    }

    /// Whether the store that is left is not waited for now: the last look at it has failed, or whoever asked it.
    pub(super) fn shuns_old(&self, now: Moment) -> bool {
        let drains = self.view().is_some_and(|view| view.phase >= Phase::Drain);
        let is_away = |error: &Error| *error.kind() == ErrorKind::Unavailable;
        let away = self.trouble.old.as_ref().is_some_and(is_away);
        drains && (away || self.shunned_until.is_some_and(|until| now < until))
    }

    /// Says so, when it begins.
    pub(super) fn warn_of_shunning(&self) {
        let message = "the store that is left cannot be reached: whoever still uses it alone is not excluded";
        self.events.tell(StoreEvent::Warning(message.into()));
    }
}
