//! One manager's session: its connection, its entries, its inbox.
//!
//! Carries out what the contenders of `protocol` ask for. An entry is a lease of its own; the core's
//! renewals refresh it, holding or waiting, in batches. What an acquisition leaves behind is
//! released by tasks that go on until the server confirms, or the lease has ended it.
//!
//! # Invariants
//! - **S1** An entry is known by its owner id from before its first request until its release was answered,
//!   so every message about it finds it; a grant to an id that is not known is released at once.
//! - **S2** Times are read before a request is handed to the connection.

mod confirming;
mod inbox;
mod leaving;
mod place;
mod revocation;
mod token_base;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockcore::backend::{Lease, LeaseId, LeaseScope, Renewal, StoreEvent};
use lockcore::clock::{Deadline, Moment};
use lockcore::{Effect, Env, Error, ErrorKind, LockName, LostReason, OwnerId, Result};
use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::confirming::Confirming;
use self::leaving::Unanswered;
use crate::config::RedisConfig;
use crate::keys::{Keys, NameKeys};
use crate::link::{Connected, Link};
use crate::protocol::{Answer, Contender, Verdict};
use crate::scripts::{self, Heard, Script};

#[derive(Debug)]
pub(crate) struct Session {
    env: Env,
    keys: Keys,
    channels: String,
    /// The id of our inbox.
    inbox: String,
    link: Arc<Link>,
    /// Where replicas are waited for, if they are.
    confirming: Option<Confirming>,
    token_base: u64,
    entries: Mutex<Entries>,
    leases_opened: AtomicU64,
    events: mpsc::UnboundedSender<StoreEvent>,
    deaf: AtomicBool,
    /// Messages went unheard.
    missed: Notify,
    /// Nothing new is begun.
    closing: CancellationToken,
    /// Nothing is sent any more.
    closed: CancellationToken,
    /// Releases in the background.
    leaving: TaskTracker,
}

#[derive(Debug, Default)]
struct Entries {
    by_lease: HashMap<LeaseId, Arc<Entry>>,
    by_owner: HashMap<OwnerId, LeaseId>,
}

/// What we have at the server for one owner id.
#[derive(Debug)]
struct Entry {
    name: LockName,
    keys: NameKeys,
    owner: OwnerId,
    lease: LeaseId,
    ttl: Duration,
    contender: Mutex<Contender>,
    /// Something was heard about it.
    heard: Notify,
    /// Requests to enter it that may still arrive.
    unanswered: Mutex<Vec<Unanswered>>,
}

impl Session {
    /// Connects to the server.
    ///
    /// # Errors
    ///
    /// As connecting; [`ErrorKind::InvalidOption`] for a namespace whose `token_base` is no number.
    pub(crate) async fn open(
        config: &RedisConfig,
        env: Env,
        events: mpsc::UnboundedSender<StoreEvent>,
    ) -> Result<Arc<Self>> {
        let (keys, client) = (config.keys()?, config.client(env.timing().op_timeout)?);
        let inbox = env.owner_id().to_hex();
        let channels = keys.channels();
        let link = Arc::new(Link::new(env.clone(), client.clone(), Some(format!("{channels}{inbox}"))));
        let closed = CancellationToken::new();
        // Whoever gives up opening ends what was begun.
        let unopened = closed.clone().drop_guard();
        let (hear, heard) = mpsc::unbounded_channel();
        link.start(closed.clone(), move |event| {
            // Nobody hears when the session is gone.
            let _ = hear.send(event);
        })
        .await?;
        let confirming = match config.replicas() {
            0 => None,
            replicas => {
                let second = Arc::new(Link::new(env.clone(), client, None));
                second.start(closed.clone(), |_| {}).await?;
                Some(Confirming::start(&env, second, replicas, closed.clone()))
            }
        };
        let give_up_at = env.now() + env.timing().connect_timeout;
        let token_base = token_base::stored(&link.connected(give_up_at).await?, &keys, give_up_at).await?;
        unopened.disarm();
        let session = Arc::new(Self {
            env,
            keys,
            channels,
            inbox,
            link,
            confirming,
            token_base,
            entries: Mutex::default(),
            leases_opened: AtomicU64::new(0),
            events,
            deaf: AtomicBool::new(false),
            missed: Notify::new(),
            closing: CancellationToken::new(),
            closed,
            leaving: TaskTracker::new(),
        });
        session.env.spawn(Arc::clone(&session).listen(heard));
        session.env.spawn(Arc::clone(&session).catch_up());
        Ok(session)
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn token_base(&self) -> u64 {
        self.token_base
    }

    pub(crate) fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::Relaxed)
    }

    pub(crate) fn replicas(&self) -> u32 {
        self.confirming.as_ref().map_or(0, Confirming::replicas)
    }

    pub(crate) fn tell(&self, event: StoreEvent) {
        // The core has stopped listening when it closes.
        let _ = self.events.send(event);
    }

    /// # Errors
    ///
    /// [`ErrorKind::Closed`] once the session is.
    pub(crate) fn open_or_refuse(&self) -> Result<()> {
        if self.closing.is_cancelled() { Err(closed()) } else { Ok(()) }
    }

    /// When a request that begins now is given up: before the core drops it, so that a silent connection
    /// is given up, too, and not used again by the next request; and what is known by then is answered.
    pub(crate) fn patience(&self) -> Moment {
        self.env.now() + self.env.timing().op_timeout * 9 / 10
    }

    /// The connection, as soon as there is one.
    ///
    /// # Errors
    ///
    /// As [`Link::connected`].
    pub(crate) async fn connected(&self, give_up_at: Moment) -> Result<Connected> {
        self.link.connected(give_up_at).await
    }

    /// Renews entries, holding or waiting.
    pub(crate) async fn renew(self: &Arc<Self>, leases: &[LeaseId]) -> Vec<Renewal> {
        let known: Vec<_> = {
            let entries = self.entries.lock();
            leases.iter().map(|lease| entries.by_lease.get(lease).cloned()).collect()
        };
        let mut order: Vec<_> = known
            .iter()
            .enumerate()
            .filter_map(|(at, entry)| Some((at, Arc::clone(entry.as_ref()?))))
            .collect();
        // Holders first: they have more to lose.
        order.sort_by_cached_key(|(_, entry)| entry.contender.lock().is_waiting());
        let give_up_at = self.patience();
        let batches = order.chunks(BATCH).map(|batch| async move {
            let entries: Vec<_> = batch.iter().map(|(_, entry)| Arc::clone(entry)).collect();
            let answers = self.refresh(&entries, give_up_at).await;
            let answers = match answers {
                // One name whose keys are something else is not to cost the others their leases.
                Err(error) if *error.kind() == ErrorKind::Protocol && entries.len() > 1 => {
                    let each = entries.iter().map(|entry| async {
                        renewals(self.refresh(std::slice::from_ref(entry), give_up_at).await, 1)
                    });
                    join_all(each).await.into_iter().flatten().collect()
                }
                answers => renewals(answers, batch.len()),
            };
            batch.iter().map(|(at, _)| *at).zip(answers).collect::<Vec<_>>()
        });
        let mut renewals: Vec<_> = known.iter().map(|_| Renewal::Gone(LostReason::Gone)).collect();
        for (at, renewal) in join_all(batches).await.into_iter().flatten() {
            renewals[at] = renewal;
        }
        renewals
    }

    /// Refreshes a batch in one request; what each answer means.
    async fn refresh(self: &Arc<Self>, entries: &[Arc<Entry>], give_up_at: Moment) -> Result<Vec<Verdict>> {
        let mut call = scripts::REFRESH.call(entries.iter().map(|entry| &entry.keys));
        call.arg(&self.channels).arg(&self.inbox);
        for entry in entries {
            call.arg(entry.owner.to_hex()).arg(millis(entry.ttl));
        }
        let (sent_at, value) = match &self.confirming {
            None => {
                let connected = self.connected(give_up_at).await?;
                let sent_at = self.env.now();
                (sent_at, connected.run(&scripts::REFRESH, &call, give_up_at).await?)
            }
            Some(confirming) => confirming.run(call, give_up_at).await?,
        };
        let heard = scripts::all_heard(&value, entries.len(), self.token_base)?;
        let now = self.env.now();
        // It may be as old as its request where it comes with the replicas' answer.
        let age = if self.confirming.is_some() { now.since(sent_at) } else { Duration::ZERO };
        let apply = |(entry, Heard { answer, .. }): (&Arc<Entry>, Heard)| {
            let verdict = entry.contender.lock().answered(now, sent_at, answer.written_before(age));
            entry.heard.notify_one();
            match (answer, verdict) {
                (Answer::Revoked { .. }, _) => self.tell_asked(entry),
                // It waits for a grant that it had and lost; nobody wants that turn any more.
                (Answer::Waits { .. }, Verdict::Gone(LostReason::Gone)) => self.let_go(entry.remains()),
                _ => {}
            }
            verdict
        };
        Ok(entries.iter().zip(heard).map(apply).collect())
    }

    /// Runs a script that is no part of an acquisition.
    ///
    /// # Errors
    ///
    /// As the server's table.
    pub(crate) async fn run(&self, script: &Script, call: &Cmd) -> Result<Value> {
        let give_up_at = self.patience();
        self.connected(give_up_at).await?.run(script, call, give_up_at).await
    }

    fn entry_of(&self, owner: OwnerId) -> Option<Arc<Entry>> {
        let entries = self.entries.lock();
        entries.by_lease.get(entries.by_owner.get(&owner)?).cloned()
    }

    fn forget(&self, owner: OwnerId) {
        let mut entries = self.entries.lock();
        if let Some(lease) = entries.by_owner.remove(&owner) {
            entries.by_lease.remove(&lease);
        }
    }

    /// Ends the session: what it holds or waits for is released first, within the bound of a request.
    ///
    /// # Errors
    ///
    /// Unknown when the server did not confirm all of that.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<()> {
        self.closing.cancel();
        let entries = std::mem::take(&mut *self.entries.lock());
        for entry in entries.by_lease.into_values() {
            entry.contender.lock().end(LostReason::Shutdown);
            entry.heard.notify_one();
            self.let_go(entry.remains());
        }
        self.leaving.close();
        let told = tokio::select! {
            biased;
            () = self.leaving.wait() => Ok(()),
            () = self.env.sleep_until(self.patience()) => {
                Err(unconfirmed())
            }
        };
        self.cut();
        told
    }

    /// Sends nothing any more.
    pub(crate) fn cut(&self) {
        self.closing.cancel();
        self.closed.cancel();
    }
}

impl Entry {
    fn lease(&self, deadline: Deadline) -> Lease {
        Lease { id: self.lease, scope: LeaseScope::Entry, ttl: self.ttl, deadline }
    }
}

fn unconfirmed() -> Error {
    let message = "the server did not confirm that everything was released; leases end it";
    Error::new(ErrorKind::Unavailable, Effect::Unknown, message)
}

fn renewals(answers: Result<Vec<Verdict>>, entries: usize) -> Vec<Renewal> {
    match answers {
        Ok(verdicts) => verdicts
            .into_iter()
            .map(|verdict| match verdict {
                Verdict::Until(deadline) => Renewal::Until(deadline),
                Verdict::Gone(reason) => Renewal::Gone(reason),
            })
            .collect(),
        Err(error) => (0..entries).map(|_| Renewal::Unknown(error.clone())).collect(),
    }
}

pub(crate) fn closed() -> Error {
    Error::not_applied(ErrorKind::Closed, "the session with the store was closed")
}

/// Leases as the server counts them.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// How many entries one request refreshes: enough that requests are few, and few enough that the
/// server does nothing else for less than a millisecond.
const BATCH: usize = 100;
