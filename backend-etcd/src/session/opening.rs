//! How a session begins: a lease, the watch on the session's key, and then that key, so that its
//! deletion cannot be missed.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, LeaseGrantOptions, PutOptions, Txn, TxnOp};
use leasehold_core::Result;
use leasehold_core::backend::StoreEvent;
use leasehold_core::clock::{Deadline, Moment};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::keeper::Keepalive;
use super::requests::{gets, revision};
use super::sessions::Sessions;
use super::{Session, deadline};
use crate::connection::backoff;
use crate::error;
use crate::keys;
use crate::protocol::Book;
use crate::watch::{Listener, OnKeyEvent, Range, WatchEvent, Watches};

/// A lease as it was granted.
struct Granted {
    lease: i64,
    ttl: Duration,
    deadline: Deadline,
    cluster: u64,
}

impl Session {
    pub(super) async fn open(sessions: &Arc<Sessions>) -> Result<Arc<Self>> {
        // The first request is one that needs rights: without them nothing is begun.
        let token_base = stored_base(sessions).await?;
        let granted = grant(sessions).await?;
        let (lease, ended) = (granted.lease, sessions.closing.child_token());
        let session = match begin(sessions, granted, token_base, &ended).await {
            Ok(session) => session,
            Err(error) => {
                ended.cancel();
                let endpoints = Arc::clone(&sessions.endpoints);
                sessions.env.spawn(async move {
                    // If this fails too, it expires.
                    let _ = endpoints
                        .ask(|client| async move { client.lease_client().revoke(lease).await })
                        .await;
                });
                return Err(error);
            }
        };
        tracing::debug!(lease = format_args!("{lease:x}"), ttl = ?session.ttl, "a session with etcd begins");
        sessions.events.tell(StoreEvent::LeaseOpened(session.lease()));
        Ok(session)
    }
}

/// What the namespace adds to every counter.
async fn stored_base(sessions: &Arc<Sessions>) -> Result<u64> {
    let answer = sessions.endpoints.get(sessions.keys.token_base(), GetOptions::new()).await?;
    keys::base(answer.kvs().first().map(KeyValue::value))
}

/// A lease under an id of ours, so that a repeated request makes no second one.
async fn grant(sessions: &Arc<Sessions>) -> Result<Granted> {
    let env = &sessions.env;
    let mut bits = [0; 8];
    env.random(&mut bits);
    // Positive: others write ids in hexadecimal, and old servers stumble over negative ones.
    let lease = (i64::from_be_bytes(bits) & i64::MAX).max(1);
    let seconds = i64::try_from(env.timing().ttl.as_millis().div_ceil(1_000)).unwrap_or(i64::MAX);
    let give_up_at = env.now() + env.timing().op_timeout;
    let mut pauses = backoff(env);
    loop {
        let sent_at = env.now();
        let answer = sessions.endpoints.call(|client| async move {
            let options = LeaseGrantOptions::new().with_id(lease);
            match client.lease_client().grant(seconds, Some(options)).await {
                // An earlier attempt was carried out, nobody knows when.
                Err(error) if error::is_lease_known(&error) => Ok(None),
                answer => answer.map(Some),
            }
        });
        match answer.await {
            Ok(Some(answer)) => {
                let cluster = answer.header().map_or(0, etcd_client::ResponseHeader::cluster_id);
                return granted(sessions, lease, sent_at, answer.ttl(), cluster);
            }
            Ok(None) => return adopt(sessions, lease).await,
            Err(error) if error::may_pass(&error) && env.now() < give_up_at => pauses.pause(env).await,
            Err(error) => return Err(error),
        }
    }
}

/// A lease that exists: only a renewal says since when it runs.
async fn adopt(sessions: &Arc<Sessions>, lease: i64) -> Result<Granted> {
    let sent_at = sessions.env.now();
    sessions.endpoints.call(|client| async move { client.lease_client().keep_alive(lease).await }).await?;
    let answer = sessions
        .endpoints
        .ask(|client| async move { client.lease_client().time_to_live(lease, None).await })
        .await?;
    let cluster = answer.header().map_or(0, etcd_client::ResponseHeader::cluster_id);
    granted(sessions, lease, sent_at, answer.granted_ttl(), cluster)
}

fn granted(sessions: &Arc<Sessions>, lease: i64, sent_at: Moment, ttl: i64, cluster: u64) -> Result<Granted> {
    let ttl = u64::try_from(ttl).ok().filter(|ttl| *ttl > 0);
    let ttl = Duration::from_secs(ttl.ok_or_else(|| error::malformed("with a lease that is over"))?);
    Ok(Granted { lease, ttl, deadline: deadline(&sessions.env, sent_at, ttl), cluster })
}

async fn begin(
    sessions: &Arc<Sessions>,
    granted: Granted,
    token_base: u64,
    ended: &CancellationToken,
) -> Result<Arc<Session>> {
    let Granted { lease, ttl, deadline, cluster } = granted;
    let key = sessions.keys.session(lease);
    let there: Arc<OnceLock<Weak<Session>>> = Arc::default();
    let watches = {
        let there = Arc::clone(&there);
        let on_key_event: OnKeyEvent = Arc::new(move |event| {
            if let Some(session) = there.get().and_then(Weak::upgrade) {
                session.on_key_event(&event);
            }
        });
        Watches::start(&sessions.env, &sessions.endpoints, on_key_event, &key, ended.clone())
    };
    let end = sessions.keys.session_end(lease).into();
    let mut listener = watches.listen(&Range::Session(key.as_slice().into(), end));
    sessions.env.bounded(stands(&watches, &mut listener)).await?;

    let (created, epoch) = put(sessions, &key, lease).await?;
    let session = Arc::new(Session {
        sessions: Arc::clone(sessions),
        lease,
        ttl,
        cluster,
        key,
        created,
        suffix: format!("/{lease:x}").into_bytes(),
        token_base,
        book: Mutex::new(Book::new(deadline, epoch)),
        freed: Notify::new(),
        unread: Mutex::default(),
        has_unread: Notify::new(),
        ended: ended.clone(),
        keepalive: tokio::sync::Mutex::new(Keepalive::default()),
        watches,
    });
    let _ = there.set(Arc::downgrade(&session));
    sessions.env.spawn(Arc::clone(&session).guard(listener));
    sessions.env.spawn(Arc::clone(&session).read_what_was_missed());
    Ok(session)
}

async fn stands(watches: &Watches, listener: &mut Listener) -> Result<()> {
    loop {
        match listener.events.recv().await {
            Some(WatchEvent::Stands(_)) => return Ok(()),
            Some(WatchEvent::Broken) if watches.met_a_stranger() => return Err(error::stranger()),
            Some(WatchEvent::Changes(_) | WatchEvent::Broken) => {}
            Some(WatchEvent::Refused) | None => return Err(error::cut("the watch stream")),
        }
    }
}

/// The session's key: when it was created, and its epoch.
async fn put(sessions: &Arc<Sessions>, key: &[u8], lease: i64) -> Result<(i64, i64)> {
    let txn = Txn::new()
        .when([Compare::create_revision(key, CompareOp::Equal, 0)])
        .and_then([TxnOp::put(key, "", Some(PutOptions::new().with_lease(lease)))])
        .or_else([TxnOp::get(key, None)]);
    let answer = sessions.endpoints.txn(txn).await?;
    if answer.succeeded() {
        let revision = revision(&answer)?;
        return Ok((revision, revision));
    }
    // An earlier attempt has put it.
    let own = gets(&answer)?.next();
    let found = own.and_then(|own| own.kvs().first().map(|kv| (kv.create_revision(), kv.mod_revision())));
    found.ok_or_else(|| error::malformed("without the session's key"))
}
