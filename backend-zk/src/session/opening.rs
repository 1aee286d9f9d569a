//! Opens a session: proved by a write, and only with the rights that a release needs.

use std::sync::{Arc, OnceLock};

use futures_util::future::{join, join5};
use leasehold_core::backend::{StoreEvent, stage};
use leasehold_core::{Effect, Error, ErrorKind, OwnerId, Result};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use zookeeper_client::{CreateMode, Error as ZkError, Stat};

use super::{Changes, Session, Site, renewer};
use crate::config::Servers;
use crate::connection::Connection;
use crate::connection::status::Reasons;
use crate::error::{Answered, Explain, Unanswered};
use crate::keys;
use crate::protocol::{Liveness, Purpose, Write, Writers};

impl Session {
    /// Opens a session within the bound of opening, announces it, and watches it. If there `was_a_session`, no refused
    /// certificate is final.
    pub(crate) async fn open(site: &Arc<Site>, was_a_session: bool) -> Result<Arc<Self>> {
        let env = &site.env;
        let (servers, bound) = (site.config.servers()?, env.timing().connect_timeout);
        let reasons = Reasons::default();
        tokio::select! {
            biased;
            // No request for a lock was sent before there is a session.
            opened = Self::open_unbounded(site, &servers) => opened.map_err(|error| error.with_effect(Effect::NotApplied)),
            refusal = reasons.refusal(&servers, env, was_a_session) => Err(refusal),
            () = async { env.sleep(bound).await } => {
                Err(reasons.explain(format!("cannot open a session within {bound:?}"), &servers.advice()))
            }
        }
    }

    async fn open_unbounded(site: &Arc<Site>, servers: &Servers) -> Result<Arc<Self>> {
        let secret = site.config.may_be_private().then(|| site.env.owner_id());
        if let Some(session) = Self::open_as(secret, site, servers).await? {
            return Ok(session);
        }
        let session = Self::open_as(None, site, servers).await?;
        session.ok_or_else(|| Unanswered::SessionOver.into_error(OPEN))
    }

    /// `None` if no server takes the secret, or it is of no use: every client may do everything.
    async fn open_as(
        secret: Option<OwnerId>,
        site: &Arc<Site>,
        servers: &Servers,
    ) -> Result<Option<Arc<Self>>> {
        let Site { config, namespace, env, .. } = &**site;
        let ttl = env.timing().ttl;
        let (asked, client) = loop {
            let asked = env.now();
            match servers.connect(ttl, env.timing().connect_timeout).await {
                // The library times out after about a session's timeout; this bound is another.
                Err(ZkError::Timeout) => {}
                // Too late for a first renewal to be confirmed in time.
                Ok(client) if client.session_timeout() / 2 < env.now().since(asked) => {}
                connected => break (asked, connected.map_err(Unanswered::Refused).or_not(OPEN)?),
            }
        };
        let (id, timeout) = (client.session_id().0, client.session_timeout());
        let margin = env.timing().margin(timeout);
        if timeout < margin * 2 {
            return Err(Error::invalid_option(format!(
                "drift_margin {margin:?} is more than half of the session timeout {timeout:?} that ZooKeeper \
                 granted: lower it, or raise maxSessionTimeout"
            )));
        }
        let states = client.state_watcher();
        let mut changes = Changes::new(states.clone());
        // After a shorter session than requested, answers are needed sooner.
        let bound = env.timing().op_timeout.min(timeout / 3);
        let connection = Connection::new(client, env.clone(), bound, config.rights(), secret);
        let (node, inbox) = (namespace.session(id), namespace.inbox(id));
        if !env.adds_token_base() {
            // First, so that a count of sessions sees this one with it, or not at all.
            let moves = namespace.moves(id);
            connection.create_below(&moves, &[], CreateMode::Ephemeral).await.or_not(OPEN)?;
        }
        // In one flight, unless a directory is missing. Before the session has its own identity: nodes with
        // the rights of their creator are to need another.
        let (made, inbox_made) = join(
            connection.create_below(&node, &[], CreateMode::Ephemeral),
            connection.create_below(&inbox, &[], CreateMode::Ephemeral),
        )
        .await;
        made.and(inbox_made).or_not(OPEN)?;
        let mut liveness = Liveness::new(asked, timeout, margin);
        // As every renewal does, so that a missing right to write is found here. The base, the record and the format
        // are read when the session counts.
        let sent = env.now();
        let private = format!("{node}-private");
        let ((authenticated, is_kept_out), written, may, base, (record, root)) = join5(
            join(connection.authenticate(), connection.is_kept_out(&private)),
            connection.write(&node, &[], None),
            connection.try_rights(&format!("{node}-rights")),
            connection.read_if_there(&namespace.token_base()),
            join(connection.read_if_there(&namespace.record()), connection.read_if_there(namespace.node())),
        )
        .await;
        if matches!(authenticated, Err(Unanswered::Refused(ZkError::AuthFailed))) {
            return Ok(None);
        }
        authenticated.or_not(OPEN)?;
        let version = written.or_not(OPEN)?.version;
        may?;
        if connection.is_private() && !is_kept_out {
            return Ok(None);
        }
        let (base, _) = stored_base(base)?;
        let token_base = if env.adds_token_base() { base } else { 0 };
        let root = root.or_not("read the format of the namespace")?;
        keys::understood(root.as_ref().map_or(&[], |(data, _)| data))?;
        let record = record.or_not("read the record of a move")?;
        stage::admit(env, record.as_ref().map(|(data, _)| data.as_slice()))?;
        let write = Write { sent, answered: env.now(), purpose: Purpose::Renewal };
        if changes.count() == 0 && !liveness.proved(write) {
            return Err(Unanswered::Silent(bound).into_error(OPEN));
        }
        let (watches, to_watch) = mpsc::unbounded_channel();
        let session = Arc::new(Self {
            connection,
            site: Arc::clone(site),
            id,
            node,
            writers: Mutex::new(Writers::new(version)),
            knocked: Notify::new(),
            token_base,
            why_over: OnceLock::new(),
            liveness: Mutex::new(liveness),
            changes: Mutex::new(changes),
            looked_into: watch::Sender::new(0),
            holds: Mutex::default(),
            watches,
            foreign: Mutex::default(),
            untouched: Mutex::default(),
            seen: super::KnownHolders::default(),
        });
        if timeout != ttl {
            let late = if timeout < env.timing().op_timeout * 3 {
                "; `op_timeout` is too long for that"
            } else {
                ""
            };
            let warning = format!("requested a session of {ttl:?}, ZooKeeper granted {timeout:?}{late}");
            site.events.tell(StoreEvent::Condition(warning.into()));
        }
        session.announce();
        env.spawn(renewer::run(Arc::clone(&session), states, to_watch));
        Ok(Some(session))
    }
}

/// The base in the data of its node, and that node's version; without a node 0.
pub(crate) fn stored_base(read: Answered<Option<(Vec<u8>, Stat)>>) -> Result<(u64, Option<i32>)> {
    let Some((data, stat)) = read.or_not("read the token_base")? else {
        return Ok((0, None));
    };
    let number = std::str::from_utf8(&data).ok().and_then(|text| text.trim().parse().ok());
    let number = number.ok_or_else(|| {
        Error::not_applied(
            ErrorKind::Protocol,
            "the node %token_base is invalid: expected a whole number in decimal digits",
        )
    })?;
    Ok((number, Some(stat.version)))
}

const OPEN: &str = "open a session";
