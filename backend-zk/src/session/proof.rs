//! Proves that the session lives, and that it is still the same.

use std::future::ready;

use futures_util::FutureExt;
use futures_util::future::join3;
use leasehold_core::LostReason;
use zookeeper_client::{CreateMode, Error as ZkError, SessionState, StateWatcher};

use super::{Changes, Session};
use crate::connection::Silence;
use crate::error::{Answered, Explain, Unanswered};
use crate::protocol::{Purpose, Write};

impl Session {
    /// A write that proves the session, if it is answered (zk.session-2).
    pub(super) async fn prove(&self, purpose: Purpose) -> Answered<()> {
        let trusted = self.connection.bounded(self.trusted()).await?;
        let sent = self.site.env.now();
        self.write_own_node().await?;
        let write = Write { sent, answered: self.site.env.now(), purpose };
        if self.changes() != trusted {
            return Err(Unanswered::Refused(ZkError::ConnectionLoss));
        }
        {
            let mut liveness = self.liveness.lock();
            // RACE: when the session's end closes its connection is read with this locked. A later proof does not move that any
            // more.
            if self.why_over().is_none() && liveness.proved(write) {
                return Ok(());
            }
        }
        self.end(LostReason::Expired);
        Err(Unanswered::SessionOver)
    }

    /// Writes the session's own node, and notices writes of other clients (zk.session-4).
    pub(super) async fn write_own_node(&self) -> Answered<()> {
        self.writers.lock().sent();
        let mut out = Out { session: self, version: None };
        let written = self.connection.write(&self.node, &[], None).await.if_there()?;
        out.version = written.map(|stat| stat.version);
        // Only the end of the session deletes it, or an administrator to end it.
        out.version.map(drop).ok_or_else(|| {
            self.end(LostReason::SessionLost);
            Unanswered::SessionOver
        })
    }

    /// Waits until every change of the connection was checked, and returns their number.
    async fn trusted(&self) -> u64 {
        let mut looked_into = self.looked_into.subscribe();
        let all = looked_into.wait_for(|looked_into| *looked_into == self.changes()).await;
        *all.expect("the sender lives in `self`")
    }

    /// Checks whether a connection that was made again is still this session.
    pub(crate) async fn look_into_the_connection(&self) -> Answered<()> {
        let changes = self.changes();
        let path = format!("{}-look", self.node);
        // In one flight: answers come in the order of sending. A node of an earlier check whose answers were lost proves
        // nothing. It is deleted, and the next check makes it again.
        let (made, looked, removed) = join3(
            self.connection.create(&path, &[], CreateMode::Ephemeral),
            self.connection.stat(&path),
            self.connection.delete(&path),
        )
        .await;
        made?;
        let stat = looked?.ok_or(Unanswered::ABSENT)?;
        if stat.ephemeral_owner != self.id {
            tracing::warn!("the server replaced this session by another one");
            self.end(LostReason::SessionLost);
            return Err(Unanswered::SessionOver);
        }
        removed?;
        self.looked_into.send_if_modified(|looked_into| {
            *looked_into = changes;
            self.changes() == changes
        });
        Ok(())
    }

    /// The number of changes of the connection, if every one was checked.
    pub(super) fn checked_changes(&self) -> Option<u64> {
        // RACE: in this order. The number of checks only grows, and never beyond that of changes. So if the two are equal,
        // they are so at the second read.
        let looked_into = *self.looked_into.borrow();
        (self.changes() == looked_into).then_some(looked_into)
    }

    /// The number of changes of the connection.
    pub(super) fn changes(&self) -> u64 {
        self.changes.lock().count()
    }

    /// Whether the connection is open, with a change that was not checked yet.
    pub(crate) fn must_look(&self) -> bool {
        self.checked_changes().is_none()
            && self.changes.lock().states.peek_state() == SessionState::SyncConnected
    }
}

/// A pending write of the session's own node.
struct Out<'a> {
    session: &'a Session,
    version: Option<i32>,
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        if self.session.writers.lock().ended(self.version) {
            self.session.knocked.notify_one();
        }
    }
}

impl Changes {
    pub(super) fn new(states: StateWatcher) -> Self {
        Self { states, seen: 0, still: Silence::new(ready(()), true) }
    }

    /// The number of changes until now.
    pub(super) fn count(&mut self) -> u64 {
        while self.still.is_broken() {
            while self.states.changed().now_or_never().is_some() {
                self.seen += 1;
            }
            // RACE: a change that comes right now breaks the new silence at once.
            let mut states = self.states.clone();
            let changed = async move {
                states.changed().await;
            };
            self.still = Silence::new(changed, false);
        }
        self.seen
    }
}
