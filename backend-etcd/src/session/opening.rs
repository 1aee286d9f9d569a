//! How a session begins: a lease, the session's key, and the watch on it. Then the key is read, so its deletion cannot be
//! missed.
//!
//! A lease whose reply was lost has no keys, and expires.

use std::sync::{Arc, Weak};
use std::time::Duration;

use etcd_client::{
    Client, GetOptions, GetResponse, KeyValue, LeaseGrantResponse, ResponseHeader, Txn, TxnOp,
};
use futures_util::FutureExt;
use leasehold_core::Result;
use leasehold_core::backend::{StoreEvent, stage};
use leasehold_core::clock::Moment;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::requests::{gets, put_on_lease};
use super::sessions::Sessions;
use super::{Session, deadline};
use crate::error;
use crate::keys::{self, Range};
use crate::protocol::Book;
use crate::watch::{OnEvent, Watches};

impl Session {
    pub(super) async fn open(sessions: &Arc<Sessions>) -> Result<Arc<Self>> {
        // The first request needs rights: without them no lease is granted.
        let stored = sessions.endpoints.get(sessions.keys.token_base(), GetOptions::new()).await?;
        token_base(sessions, &stored)?;
        let (env, seconds) = (&sessions.env, sessions.env.timing().ttl.as_millis().div_ceil(1_000));
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let grant = |client: Arc<Client>| async move {
            let sent_at = env.now();
            Ok((sent_at, client.lease_client().grant(seconds, None).await?))
        };
        let (sent_at, granted) = sessions.endpoints.ask(grant).await?;
        let (lease, ended) = (granted.id(), sessions.closing.child_token());
        let session = match begin(sessions, sent_at, &granted, &ended).await {
            Ok(session) => session,
            Err(error) => {
                ended.cancel();
                let ending = Arc::clone(sessions);
                // If this fails, too, it expires.
                sessions.env.spawn(async move { drop(ending.end_lease(lease).await) });
                return Err(error);
            }
        };
        tracing::debug!(lease = format_args!("{lease:x}"), ttl = ?session.ttl, "session opened");
        sessions.events.tell(StoreEvent::LeaseOpened(session.lease()));
        Ok(session)
    }
}

/// The number that is added to the counters of a session.
fn token_base(sessions: &Sessions, stored: &GetResponse) -> Result<u64> {
    match sessions.env.adds_token_base() {
        true => keys::base(stored.kvs().first().map(KeyValue::value)),
        false => Ok(0),
    }
}

async fn begin(
    sessions: &Arc<Sessions>,
    sent_at: Moment,
    granted: &LeaseGrantResponse,
    ended: &CancellationToken,
) -> Result<Arc<Session>> {
    let ttl = u64::try_from(granted.ttl()).ok().filter(|ttl| *ttl > 0);
    let ttl = Duration::from_secs(ttl.ok_or_else(|| error::malformed("the new lease has already ended"))?);
    let (lease, cluster) = (granted.id(), granted.header().map_or(0, ResponseHeader::cluster_id));
    let key = sessions.keys.session(lease);
    let (own, token_base) = put(sessions, &key, lease).await?;
    let (created, epoch) = (own.create_revision(), own.mod_revision());
    let (unread, to_read) = mpsc::unbounded_channel();
    let session = Arc::new_cyclic(|session: &Weak<Session>| {
        let session = Weak::clone(session);
        let on_event: OnEvent = Box::new(move |range, event| {
            if let Some(session) = session.upgrade() {
                session.on_event(range, event);
            }
        });
        Session {
            sessions: Arc::clone(sessions),
            lease,
            ttl,
            cluster,
            key,
            created,
            token_base,
            book: Mutex::new(Book::new(deadline(&sessions.env, sent_at, ttl), epoch)),
            freed: Notify::new(),
            unread,
            ended: ended.clone(),
            watches: Watches::start(&sessions.env, &sessions.endpoints, on_event, ended.clone()),
        }
    });
    sessions.env.spawn(Arc::clone(&session).end_in_time());
    let reading = Box::pin(Arc::clone(&session).read_what_was_missed(to_read));
    sessions.env.spawn(ended.clone().run_until_cancelled_owned(reading).map(drop));
    session.watches.open(Range::session(&session.key, sessions.keys.session_end(lease)), None);
    sessions.env.bounded(session.watches.begun()).await?;
    // After a close there is no caller that would end the session.
    sessions.refuse_if_closed()?;
    Ok(session)
}

/// Puts the session's key, which an earlier attempt may have put. The same transaction reads the namespace's format and
/// record, which admit the session, and the token base.
async fn put(sessions: &Arc<Sessions>, key: &[u8], lease: i64) -> Result<(KeyValue, u64)> {
    let put = put_on_lease(lease, key, sessions.says());
    let names = &sessions.keys;
    let [own, record, base, format] =
        [key.to_vec(), names.record(), names.token_base(), names.format()].map(|key| TxnOp::get(key, None));
    let answer = sessions.endpoints.txn(Txn::new().and_then([put, own, record, base, format])).await?;
    let [own, record, base, format] = gets(&answer)?;
    keys::understood(format.kvs().first().map(KeyValue::value))?;
    stage::admit(&sessions.env, record.kvs().first().map(KeyValue::value))?;
    let own = own.kvs().first().ok_or_else(|| error::malformed("the session's key is missing"))?;
    Ok((own.clone(), token_base(sessions, &base)?))
}
