//! How a session begins: the connections, which listen already, and its row.
//!
//! A session whose answer was lost has no entries, and expires.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::backend::{StoreEvent, stage};
use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;
use tokio_postgres::types::Type;

use super::Session;
use super::sessions::Sessions;
use crate::connection::Values;
use crate::protocol::SessionBook;

/// How long a function waits for a lock: its error comes before the client's own bound, after which the effect is unknown.
fn lock_millis(op_timeout: Duration) -> i32 {
    let bound = (op_timeout / 2).clamp(Duration::from_millis(200), Duration::from_secs(1));
    i32::try_from(bound.as_millis()).unwrap_or(i32::MAX)
}

impl Session {
    pub(super) async fn open(sessions: &Arc<Sessions>) -> Result<Arc<Self>> {
        let (env, line) = (&sessions.env, sessions.server.line().await?);
        let (ttl, sent_at) = (env.timing().ttl, env.now());
        let millis = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let moves = !env.adds_token_base();
        let statement = format!("SELECT * FROM {}.open_session($1,$2,$3,$4,$5)", sessions.schema);
        let values: Values<'_> = &[
            (&sessions.server.config.prefix, Type::TEXT),
            (&sessions.server.channel, Type::TEXT),
            (&millis, Type::INT8),
            (&lock_millis(env.timing().op_timeout), Type::INT4),
            (&moves, Type::BOOL),
        ];
        let reply = line.requests.ask(&statement, values).await?;
        let row = reply.one()?;
        let session = Arc::new(Self {
            sessions: Arc::clone(sessions),
            number: row.get(0)?,
            ttl,
            token_base: row.get::<i64>(1)?.unsigned_abs(),
            book: Mutex::new(SessionBook::new(env.deadline(sent_at, ttl), line.generation, row.get(3)?)),
            wakes: Mutex::default(),
            moving: Turn::new(()),
            unrenewed: Mutex::default(),
            ended: sessions.closing.child_token(),
        });
        let admitted = stage::admit(env, row.get(2)?);
        if let Err(error) = admitted.and_then(|()| sessions.refuse_if_closed()) {
            session.ended.cancel();
            let ending = Arc::clone(&session);
            // If this fails, it expires.
            env.spawn(async move { drop(ending.end_at_the_store().await) });
            return Err(error);
        }
        env.spawn(Arc::clone(&session).end_in_time());
        let (ended, connected) = (session.ended.clone(), Arc::clone(&session).keep_connected());
        env.spawn(async move {
            let _ = ended.run_until_cancelled_owned(connected).await;
        });
        tracing::debug!(session = session.number, ?ttl, "session opened");
        sessions.events.tell(StoreEvent::LeaseOpened(session.lease()));
        Ok(session)
    }
}
