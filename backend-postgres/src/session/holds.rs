//! The holds of a session: grant, release, loss and revocation.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Grant, Lease, LeaseScope, StoreEvent};
use leasehold_core::{Error, ErrorKind, FencingToken, LockName, LostReason, OwnerId, Result};

use super::Session;
use crate::protocol::{Generation, Notice, Seq};

impl Session {
    /// The grant of an entry that has its turn on the connections `on`, unless the session has ended; `None` if they are not in
    /// use any more.
    pub(super) fn grant(
        &self,
        name: &LockName,
        seq: Seq,
        owner: OwnerId,
        on: Generation,
    ) -> Result<Option<Grant>> {
        let counter = self.counter(seq)?;
        let hold = {
            let mut book = self.book.lock();
            // RACE: `mine` on later connections was compared with the holds, and this is none yet.
            if book.generation() != on {
                return Ok(None);
            }
            book.grant(seq, self.env().now())
        };
        let (deadline, within) = hold.ok_or_else(|| Error::lost(LostReason::Gone))?;
        if let Some(within) = within {
            self.sessions.events.tell(StoreEvent::RevocationRequested {
                name: name.clone(),
                counter,
                within,
            });
        }
        let lease = Lease::new(self.id(), LeaseScope::Session, self.ttl, deadline);
        Ok(Some(Grant::new(name.clone(), owner, lease, counter)))
    }

    /// The counter of an entry, with the namespace's base.
    pub(super) fn counter(&self, seq: Seq) -> Result<u64> {
        let counter = u64::try_from(seq).ok().and_then(|seq| seq.checked_add(self.token_base));
        counter.filter(|counter| *counter <= FencingToken::MAX_COUNTER).ok_or_else(|| {
            let sum = format!("number {seq} and token_base {}", self.token_base);
            let why = format!("cannot make a token of {sum}: the sum exceeds the largest token");
            Error::not_applied(ErrorKind::Protocol, why)
        })
    }

    /// Releases a hold, fenced by its number.
    pub(crate) async fn release(self: &Arc<Self>, grant: &Grant) -> Result<()> {
        let seq = grant.counter.checked_sub(self.token_base).and_then(|seq| Seq::try_from(seq).ok());
        let seq = seq.ok_or_else(|| Error::lost(LostReason::Gone))?;
        self.book.lock().release(seq, grant.owner)?;
        let (line, _) = self.line().await?;
        let low = self.book.lock().low(&grant.name);
        let was_there = self.release_entry(&line, grant.name.as_str().as_bytes(), seq, low).await?;
        self.book.lock().forget(seq);
        if was_there { Ok(()) } else { Err(Error::lost(LostReason::Gone)) }
    }

    /// A message of the server to this session.
    pub(super) fn hears(&self, message: Notice) {
        match message {
            Notice::Told(seq, told) => {
                self.book.lock().hears(seq, told);
                self.wake(seq);
            }
            Notice::Asked(seq, within) => self.asked_to_let_go(seq, within),
            Notice::Lost(seq) => {
                let lost = self.book.lock().taken(seq);
                match lost.zip(self.counter(seq).ok()) {
                    Some((name, counter)) => {
                        let reason = LostReason::Gone;
                        self.sessions.events.tell(StoreEvent::GrantLost { name, counter, reason });
                    }
                    None => self.wake(seq),
                }
            }
        }
    }

    pub(super) fn asked_to_let_go(&self, seq: Seq, within: Duration) {
        let wanted = self.book.lock().wanted(seq, within);
        if let Some((name, counter)) = wanted.zip(self.counter(seq).ok()) {
            self.sessions.events.tell(StoreEvent::RevocationRequested { name, counter, within });
        }
    }
}
