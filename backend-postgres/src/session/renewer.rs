//! Renewals: one statement for all locks of the session.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Backoff, Renewal};
use leasehold_core::{LostReason, Result};
use tokio_postgres::types::Type;

use super::Session;
use crate::connection::Route;
use crate::error;
use crate::protocol::Notice;

/// News that a renewal brings.
#[derive(Clone, Copy)]
struct Renewed {
    /// So many entries have to be released.
    asks: i32,
    /// So many entries were removed by force since the session began.
    taken: i32,
    /// The era, and after which crash.
    past: i64,
}

impl Session {
    /// Renews the session.
    ///
    /// # Cancel safety
    ///
    /// It may have been renewed, which the next renewal finds out.
    pub(crate) async fn renew(self: &Arc<Self>) -> Renewal {
        let env = self.env();
        let bound = env.timing().op_timeout;
        let (give_up_at, mut pauses) = (env.now() + bound, Backoff::new(bound / 32, bound / 4));
        while self.lives() {
            let sent_at = env.now();
            match self.renew_once().await {
                Ok((line, Some(renewed))) => {
                    let until = self.extend(sent_at);
                    *self.unrenewed.lock() = None;
                    self.follow(&line, renewed);
                    if self.lives() {
                        return Renewal::Until(until);
                    }
                }
                Ok((_, None)) => self.lose(LostReason::SessionLost),
                Err(error) => {
                    *self.unrenewed.lock() = Some(error.clone());
                    if give_up_at <= env.now() {
                        return Renewal::Unknown(error);
                    }
                    pauses.pause(env).await;
                }
            }
        }
        Renewal::Gone(LostReason::SessionLost)
    }

    /// Its news, if the session lives there.
    async fn renew_once(&self) -> Result<(Route, Option<Renewed>)> {
        let line = self.sessions.server.line().await?;
        let replicas = "current_setting('synchronous_standby_names') <> ''";
        let statement = format!("SELECT r.*, {replicas} FROM {}.renew($1) r", self.sessions.schema);
        let reply = line.renewals.ask(&statement, &[(&self.number, Type::INT8)]).await?;
        let row = reply.one()?;
        if self.sessions.server.config.needs_replicas && !row.get::<bool>(4)? {
            // Commits wait for no standby any more: without connections nothing is granted.
            line.broken.cancel();
            return Err(error::no_standby());
        }
        let renewed = if row.get(0)? {
            Some(Renewed { asks: row.get(1)?, taken: row.get(2)?, past: row.get(3)? })
        } else {
            None
        };
        Ok((line, renewed))
    }

    /// Finds out what messages should have told, and whether the server has lost anything.
    fn follow(self: &Arc<Self>, line: &Route, renewed: Renewed) {
        let book = self.book.lock();
        if book.is_other_past(line.generation, renewed.past) {
            line.broken.cancel();
        } else if renewed.asks > 0 || book.misses(renewed.taken) {
            let session = Arc::clone(self);
            self.env().spawn(async move { session.look_what_stands(renewed.taken).await });
        }
    }

    /// A message may have been missed; after an error the next renewal leads here again.
    async fn look_what_stands(self: Arc<Self>, taken: i32) {
        let Ok((line, _)) = self.line().await else {
            return;
        };
        // RACE: an entry that comes later is not in the reply.
        let (known, are_all) = self.book.lock().known();
        let Ok(there) = self.standing(&line).await else {
            return;
        };
        for (seq, millis) in &there {
            if let Some(millis) = millis {
                self.asked_to_let_go(*seq, Duration::from_millis(millis.unsigned_abs()));
            }
        }
        for seq in known.into_iter().filter(|seq| !there.contains_key(seq)) {
            self.hears(Notice::Lost(seq));
        }
        if are_all {
            self.book.lock().knows(taken);
        }
    }

    /// Whether a new hold would end soon. The core's renewals make this rare.
    pub(super) fn is_nearly_over(&self) -> bool {
        self.deadline().remaining(self.env().now()) < self.ttl / 6
    }
}
