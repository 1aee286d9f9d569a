//! One session: opened, proved, ended.
//!
//! # Invariants
//! - **S1** A session ends once, for one reason, and the core is told once.
//! - **S2** An answered write counts as a proof only if the connection did not change while it was
//!   out, and every change before it was looked into: a server that is not quite a ZooKeeper may give a
//!   new session where it should refuse.
//! - **S3** A session that the core does not renew is ended by us, whatever the client library does to
//!   keep it.

mod acquisition;
mod holds;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join3;
use lockcore::backend::{Lease, LeaseId, LeaseScope, Renewal, StoreEvent};
use lockcore::clock::{Deadline, Moment};
use lockcore::{Effect, Env, Error, ErrorKind, FencingToken, LockName, LostReason, Result};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use zookeeper_client::{CreateMode, Error as ZkError, SessionState, Stat, StateWatcher};

use crate::config::ZkConfig;
use crate::error::{self, Unanswered};
use crate::keys::{self, Namespace};
use crate::protocol::{Liveness, Purpose, Write};
use crate::watch as keeper;
use crate::znode::{Answered, Connection};

pub(crate) use acquisition::{Offer, Outcome};
use holds::Holds;

/// A session with the ensemble.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) env: Env,
    pub(crate) namespace: Namespace,
    id: i64,
    node: String,
    token_base: u64,
    why_over: OnceLock<LostReason>,
    liveness: Mutex<Liveness>,
    trust: Mutex<Trust>,
    /// Counts the connections that were made again and looked into.
    reconnects: watch::Sender<u64>,
    holds: Mutex<Holds>,
    /// The locks for which contenders of another kind were told of.
    strangers: Mutex<HashSet<LockName>>,
    events: mpsc::UnboundedSender<StoreEvent>,
    /// The manager was closed.
    pub(crate) closed: CancellationToken,
}

/// Which changes of the connection were looked into.
#[derive(Debug)]
struct Trust {
    states: StateWatcher,
    changes: u64,
    looked_into: u64,
}

impl Session {
    /// Opens a session within the bound of opening, announces it, and keeps watch over it.
    pub(crate) async fn open(
        config: &ZkConfig,
        env: &Env,
        events: &mpsc::UnboundedSender<StoreEvent>,
        closed: &CancellationToken,
    ) -> Result<Arc<Self>> {
        let bound = env.timing().connect_timeout;
        tokio::select! {
            biased;
            opened = Self::open_unbounded(config, env, events, closed) => opened,
            () = async { env.sleep(bound).await } => Err(Error::new(
                ErrorKind::Unavailable,
                Effect::Unknown,
                format!("no server of {} opened a session within {bound:?}{}", config.servers(), config.advice()),
            )),
        }
    }

    async fn open_unbounded(
        config: &ZkConfig,
        env: &Env,
        events: &mpsc::UnboundedSender<StoreEvent>,
        closed: &CancellationToken,
    ) -> Result<Arc<Self>> {
        let namespace = config.namespace()?;
        let ttl = env.timing().ttl;
        let (asked, client) = loop {
            let asked = env.now();
            match config.connect(ttl, env.timing().connect_timeout).await {
                // The library gives up after about a session's timeout; our bound is another.
                Err(ZkError::Timeout) => {}
                // Too late for a first renewal to be confirmed in time.
                Ok(client) if client.session_timeout() / 2 < env.now().since(asked) => {}
                connected => {
                    let client = connected.map_err(|source| error::of_request(source, "open a session"))?;
                    break (asked, client);
                }
            }
        };
        let (id, timeout) = (client.session_id().0, client.session_timeout());
        let margin = env.timing().margin(timeout);
        if timeout < margin * 2 {
            return Err(Error::invalid_option(format!(
                "drift_margin {margin:?} takes more than half of the session of {timeout:?} that ZooKeeper \
                 granted; lower it, or raise maxSessionTimeout"
            )));
        }
        let states = client.state_watcher();
        let mut trust = Trust { states: states.clone(), changes: 0, looked_into: 0 };
        // A server that grants less than was asked for needs answers sooner.
        let bound = env.timing().op_timeout.min(timeout / 3);
        let connection = Connection::new(client, env.clone(), bound, config.rights().into());
        let refused = |unanswered: Unanswered| unanswered.into_error("open a session");
        let (node, inbox) = (namespace.session(id), namespace.inbox(id));
        // In one flight, unless a directory is missing.
        let (made, inbox_made, base) = join3(
            make(&connection, &node),
            make(&connection, &inbox),
            connection.read(&namespace.token_base()).map(token_base),
        )
        .await;
        let (_, _, token_base) = (made.map_err(refused)?, inbox_made.map_err(refused)?, base?);
        let mut liveness = Liveness::new(asked, timeout, margin);
        // As every renewal does: whoever has no right to write learns it here.
        let sent = env.now();
        connection.write(&node, &[], None).await.map_err(refused)?;
        let write = Write { sent, answered: env.now(), purpose: Purpose::Renewal };
        if trust.changes() == 0 && !liveness.proved(write) {
            return Err(refused(Unanswered::Silent(bound)));
        }
        let session = Arc::new(Self {
            connection,
            env: env.clone(),
            namespace,
            id,
            node,
            token_base,
            why_over: OnceLock::new(),
            liveness: Mutex::new(liveness),
            trust: Mutex::new(trust),
            reconnects: watch::Sender::new(0),
            holds: Mutex::default(),
            strangers: Mutex::default(),
            events: events.clone(),
            closed: closed.clone(),
        });
        if timeout != ttl {
            let late =
                if timeout < env.timing().op_timeout * 3 { "; op_timeout is too long for that" } else { "" };
            let warning = format!("asked for a session of {ttl:?}, ZooKeeper granted {timeout:?}{late}");
            session.tell(StoreEvent::Warning(warning.into()));
        }
        session.announce();
        env.spawn(keeper::keep(Arc::clone(&session), states));
        Ok(session)
    }

    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    pub(crate) fn inbox(&self) -> String {
        self.namespace.inbox(self.id)
    }

    pub(crate) fn lease_id(&self) -> LeaseId {
        LeaseId::new(self.id.cast_unsigned())
    }

    /// The timeout that the server granted.
    pub(crate) fn timeout(&self) -> Duration {
        self.liveness.lock().timeout()
    }

    /// Why the session is over, if it is.
    pub(crate) fn why_over(&self) -> Option<LostReason> {
        self.why_over.get().copied()
    }

    /// Until when the session can be trusted.
    pub(crate) fn deadline(&self) -> Deadline {
        let liveness = self.liveness.lock();
        self.env.deadline(liveness.base(), liveness.timeout())
    }

    fn lease(&self) -> Lease {
        Lease {
            id: self.lease_id(),
            scope: LeaseScope::Session,
            ttl: self.timeout(),
            deadline: self.deadline(),
        }
    }

    /// Ends the session for `reason`, at the server too; its locks and places go with it.
    ///
    /// The guards are told before the server is: it lets the next contender hold, so it hears of it at
    /// their deadline only, from whoever keeps watch. A manager that closes has told them itself.
    pub(crate) fn end(&self, reason: LostReason) {
        if self.why_over.set(reason).is_err() {
            return;
        }
        if reason != LostReason::Shutdown {
            tracing::warn!(session = format_args!("{:#x}", self.id), %reason, "the session is over");
            self.tell(StoreEvent::LeaseLost { lease: self.lease_id(), reason });
        }
        self.connection.end();
        if reason == LostReason::Shutdown {
            self.connection.close();
        }
    }

    /// How long the server keeps the session for what was renewed so far, if that is not over (S3).
    ///
    /// Longer than [`deadline`](Self::deadline): until then the core may still be telling the guards.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let liveness = self.liveness.lock();
        let left = (liveness.base() + liveness.timeout()).since(self.env.now());
        (left > Duration::ZERO).then_some(left)
    }

    /// Renews the lease.
    pub(crate) async fn renew(self: &Arc<Self>) -> Renewal {
        let proved = self.prove(Purpose::Renewal).await;
        if proved.is_ok() {
            self.watch_what_stands();
        }
        match proved {
            Ok(()) if self.deadline().has_passed(self.env.now()) => Renewal::Gone(LostReason::Expired),
            Ok(()) => Renewal::Until(self.deadline()),
            Err(unanswered) => match self.why_over() {
                Some(reason) => Renewal::Gone(reason),
                None => Renewal::Unknown(unanswered.into_error("confirm the session")),
            },
        }
    }

    /// Confirms the last renewal if the next one is late, and says what that makes it worth.
    pub(crate) async fn confirm_if_late(&self) {
        let due = self.liveness.lock().confirm_at();
        if due.is_none_or(|due| self.env.now() < due) {
            return;
        }
        if self.prove(Purpose::Confirmation).await.is_ok() && self.why_over().is_none() {
            self.announce();
        }
    }

    /// A write that proves the session, if it is answered (S2).
    async fn prove(&self, purpose: Purpose) -> Answered<()> {
        let bound = self.env.timing().op_timeout;
        let trusted = tokio::select! {
            biased;
            trusted = self.trusted() => trusted,
            () = self.connection.over() => return Err(Unanswered::SessionOver),
            () = async { self.env.sleep(bound).await } => return Err(Unanswered::Silent(bound)),
        };
        let sent = self.env.now();
        match self.connection.write(&self.node, &[], None).await {
            Ok(_) => {}
            Err(unanswered) => {
                // Only the end of the session deletes it, or an administrator who means that.
                if unanswered.is_absent() {
                    self.end(LostReason::SessionLost);
                }
                return Err(unanswered);
            }
        }
        let write = Write { sent, answered: self.env.now(), purpose };
        if self.trust.lock().changes() != trusted {
            return Err(Unanswered::Refused(ZkError::ConnectionLoss));
        }
        let in_time = self.liveness.lock().proved(write);
        if !in_time {
            self.end(LostReason::Expired);
            return Err(Unanswered::SessionOver);
        }
        Ok(())
    }

    /// Waits until every change of the connection was looked into; how many there were.
    async fn trusted(&self) -> u64 {
        let mut reconnects = self.reconnects.subscribe();
        loop {
            if self.is_trusted() {
                return self.trust.lock().looked_into;
            }
            // The sender lives in `self`.
            let _ = reconnects.changed().await;
        }
    }

    /// Looks into a connection that was made again: is it still this session?
    pub(crate) async fn look_into_the_connection(&self) -> Answered<()> {
        let changes = self.trust.lock().changes();
        let path = format!("{}-look", self.node);
        let mut stat = match self.connection.create(&path, &[], CreateMode::Ephemeral).await {
            Ok(stat) => stat,
            Err(unanswered) => {
                // Of an earlier look, whose answers were lost; the next one makes it anew.
                if matches!(unanswered, Unanswered::Refused(ZkError::NodeExists)) {
                    self.connection.delete(&path).await?;
                }
                return Err(unanswered);
            }
        };
        if stat.is_invalid() {
            // Some servers leave the stat out.
            stat = self.connection.stat(&path).await?.ok_or(Unanswered::Refused(ZkError::NoNode))?;
        }
        if stat.ephemeral_owner != self.id {
            tracing::warn!("the server gave another session in the place of ours");
            self.end(LostReason::SessionLost);
            return Err(Unanswered::SessionOver);
        }
        self.connection.delete(&path).await?;
        self.connection.write(&self.node, &[], None).await.inspect_err(|unanswered| {
            if unanswered.is_absent() {
                self.end(LostReason::SessionLost);
            }
        })?;
        let mut trust = self.trust.lock();
        trust.looked_into = changes;
        let all = trust.changes() == changes;
        drop(trust);
        if all {
            self.reconnects.send_modify(|reconnects| *reconnects += 1);
        }
        Ok(())
    }

    /// Whether every change of the connection was looked into.
    fn is_trusted(&self) -> bool {
        let mut trust = self.trust.lock();
        trust.changes() == trust.looked_into
    }

    /// Whether a change of the connection was not looked into yet, and it stands.
    pub(crate) fn must_look(&self) -> bool {
        let mut trust = self.trust.lock();
        trust.changes() != trust.looked_into && trust.states.peek_state() == SessionState::SyncConnected
    }

    pub(crate) fn reconnects(&self) -> watch::Receiver<u64> {
        self.reconnects.subscribe()
    }

    /// The counter of a grant that the transaction `czxid` made.
    pub(crate) fn counter(&self, czxid: i64) -> Result<u64> {
        let counter = u64::try_from(czxid).ok().and_then(|czxid| czxid.checked_add(self.token_base));
        counter.filter(|counter| *counter <= FencingToken::MAX_COUNTER).ok_or_else(|| {
            let message = format!("the transaction {czxid:#x} and the token_base make no fencing token");
            Error::new(ErrorKind::Protocol, Effect::Unknown, message)
        })
    }

    fn announce(&self) {
        self.tell(StoreEvent::LeaseOpened(self.lease()));
    }

    pub(crate) fn tell(&self, event: StoreEvent) {
        // A core that stopped listening has ended.
        let _ = self.events.send(event);
    }

    /// When the session was last known to be trusted for long enough to be granted a lock on.
    fn is_fresh(&self, now: Moment) -> bool {
        self.deadline().remaining(now) > self.timeout() / 12
    }
}

impl Trust {
    /// How often the connection has changed.
    fn changes(&mut self) -> u64 {
        while self.states.changed().now_or_never().is_some() {
            self.changes += 1;
        }
        self.changes
    }
}

/// Makes a node of the session's own, and its directory if that is missing.
async fn make(connection: &Connection, path: &str) -> Answered<()> {
    let made = connection.create(path, &[], CreateMode::Ephemeral).await;
    let Err(missing) = made else {
        return Ok(());
    };
    let Some(directory) = keys::parent(path).filter(|_| missing.is_absent()) else {
        return Err(missing);
    };
    connection.make_directory(directory).await?;
    connection.create(path, &[], CreateMode::Ephemeral).await.map(drop)
}

/// What is added to every counter of the namespace.
fn token_base(read: Answered<(Vec<u8>, Stat)>) -> Result<u64> {
    let data = match read {
        Ok((data, _)) => data,
        Err(missing) if missing.is_absent() => return Ok(0),
        Err(unanswered) => return Err(unanswered.into_error("read the token_base")),
    };
    let number = std::str::from_utf8(&data).ok().and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| {
        Error::not_applied(
            ErrorKind::Protocol,
            "the node %token_base is not a whole number in decimal digits",
        )
    })
}
