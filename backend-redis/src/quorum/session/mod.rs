//! One manager's session with several servers: a connection to each, and its entries.
//!
//! Sends the requests of the contenders of `protocol` to all servers at once. The caller polls them until a quorum has answered;
//! later answers are received in the background.
//!
//! | file | has |
//! |---|---|
//! | `member` | one server, and requests to all of them |
//! | `acquisition` | runs one contender |
//! | `vote_request` | sends its requests, and passes it the answers |
//! | `renewer` | renews holds |
//! | `pending_releases` | releases votes and queue entries |
//! | `recovery` | lets blank servers vote again |
//!
//! # Invariants
//! - **redis.quorum.session-1** Requests about one owner at one server are sent one by one, each after the answer to the last,
//!   except a release by redis.quorum.session-2: so no request for a vote overtakes a release (G5, G8).
//! - **redis.quorum.session-2** The release of a hold follows the first request for a vote before its answer, so that the next
//!   owner's request finds the vote free. A release that ends the vote of a first request is final, because that request has
//!   arrived and no other was sent. Otherwise it is sent again after the answer.

mod acquisition;
mod member;
mod pending_releases;
mod recovery;
mod renewer;
mod vote_request;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_core::backend::{Events, Holder, LeaseId, StoreEvent};
use leasehold_core::clock::Moment;
use leasehold_core::{Env, Error, ErrorKind, LockName, LostReason, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::member::{PushReceiver, Runs};
use super::agreed::Agreed;
use super::config::QuorumConfig;
use super::protocol::{Contender, ProposalBound, Size, Standing, Terms, Ticket, who_differs};
use super::scripts::{Ballot, disagrees, proposed};
use crate::connection::LinkEvent;
use crate::keys::Keys;
use crate::protocol::Unanswered;
use crate::scripts::{Inboxes, Message, News};
use crate::session::{Life, Opened};

pub(crate) use self::member::Member;
pub(crate) use self::vote_request::pauses;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) env: Env,
    pub(crate) size: Size,
    pub(crate) keys: Keys,
    space: String,
    pub(crate) inboxes: Inboxes,
    inbox: String,
    pub(crate) members: Vec<Member>,
    runs: Runs,
    pub(crate) agreed: Agreed,
    /// The same as text, as servers keep it.
    pub(crate) terms: String,
    pub(crate) life: Life<KeptVotes>,
    bound: Mutex<ProposalBound>,
    events: Events,
    /// A server may be blank.
    blank: Notify,
    /// Leases whose revocation a message announced, until the servers have answered about them.
    revoked: Mutex<BTreeSet<LeaseId>>,
    may_be_revoked: Notify,
    /// A server votes, or did, by the terms of this manager, so locks may be held by them.
    may_hold: AtomicBool,
}

/// The votes and queue entries of one owner.
#[derive(Debug)]
pub(crate) struct KeptVotes {
    name: LockName,
    lease: LeaseId,
    waits: bool,
    /// Shown by `inspect`.
    label: Arc<str>,
    metadata: Option<Arc<str>>,
    contender: Mutex<Contender>,
    /// None for most holds.
    asking: Mutex<Option<Arc<Asking>>>,
}

/// The requests of one owner.
#[derive(Debug)]
struct Asking {
    /// A message about it was received.
    received: Notify,
    members: Box<[MemberRequests]>,
}

/// The requests of one owner to one server.
#[derive(Debug, Default)]
struct MemberRequests {
    /// redis.quorum.session-1
    turn: tokio::sync::Mutex<()>,
    /// Requests for its vote that may still arrive.
    unanswered: Mutex<Unanswered>,
    failed: Mutex<Option<Error>>,
    /// The holder that it has voted for instead.
    holder: Mutex<Option<Box<Holder>>>,
}

impl Session {
    /// Connects to the servers.
    ///
    /// # Errors
    ///
    /// If there is no quorum of them, or one of them does not belong to it.
    pub(crate) async fn open(config: &QuorumConfig, env: Env, events: Events) -> Result<Opened<Self>> {
        let (keys, agreed) = (Keys::new(config.prefix(), None)?, config.agreed(env.timing().ttl));
        agreed.admits(env.timing().ttl)?;
        let (channels, inbox) = (keys.channels(), env.owner_id().to_hex());
        let closed = CancellationToken::new();
        // Dropping this future ends all connections.
        let open = closed.clone().drop_guard();
        let heard = Arc::new(OnceLock::new());
        let start = |(server, config)| {
            let receiver = PushReceiver { session: Arc::clone(&heard), server };
            Member::start(&env, config, (format!("{channels}{inbox}"), receiver), &closed)
        };
        let members = config.servers.iter().enumerate().map(start).collect::<Result<Vec<_>>>()?;
        let session = Arc::new(Self {
            size: agreed.size,
            space: keys.space(),
            keys,
            inboxes: Inboxes::new(&channels, config.signed_with()),
            inbox,
            runs: Arc::new(Mutex::new(vec![None; members.len()])),
            members,
            agreed,
            terms: agreed.to_string(),
            life: Life::new(env.clone(), closed),
            env,
            bound: Mutex::default(),
            events,
            blank: Notify::new(),
            revoked: Mutex::default(),
            may_be_revoked: Notify::new(),
            may_hold: AtomicBool::new(false),
        });
        let _ = heard.set(Arc::downgrade(&session));
        session.meet().await?;
        // Events before there was a session were dropped.
        for (server, member) in session.members.iter().enumerate() {
            if member.link.is_deaf() {
                session.hear(server, LinkEvent::Deaf);
            }
        }
        session.life.spawn(Arc::clone(&session).recover_blank());
        session.life.spawn(Arc::clone(&session).look_up_revocations());
        Ok(session.life.owned(Arc::clone(&session), open))
    }

    /// Waits for a quorum of servers, and lets the servers vote that can.
    async fn meet(&self) -> Result<()> {
        // Servers that are slow to answer are waited for as those that are slow to connect to.
        let bound = self.env.timing().connect_timeout * 9 / 10;
        let give_up_at = self.env.now() + bound;
        let meet = |enough| {
            self.ask_all(give_up_at, enough, |at, member| async move {
                member.begun().await?;
                member.look(self, at, None, bound).await
            })
        };
        let met = meet(self.size.quorum).await;
        let look: Vec<_> = met.iter().map(|met| met.as_ref()?.as_ref().ok().cloned()).collect();
        if let Some(server) = who_differs(&self.terms, &look)
            && let Some(standing) = &look[server]
        {
            // As far as it knows, no manager may hold by the terms that it keeps.
            let is_new = |own: &Standing| !own.whole && own.id.is_empty() && own.pause.is_zero();
            // A server that does not answer may vote.
            let is_unused = look.iter().flatten().all(is_new)
                && meet(self.size.servers)
                    .await
                    .iter()
                    .all(|met| matches!(met, Some(Ok(found)) if is_new(found)));
            let refused =
                if is_unused { proposed(&standing.terms, &self.space) } else { disagrees(&standing.terms) };
            return Err(refused.with_context("server", &self.members[server].address));
        }
        let does_not_belong =
            |error: &&Error| matches!(error.kind(), ErrorKind::InvalidOption | ErrorKind::Unsupported);
        if let Some(error) = met.iter().flatten().filter_map(|met| met.as_ref().err()).find(does_not_belong) {
            return Err(error.clone());
        }
        self.quorum_of(met)?;
        if self.recover(self.size.quorum).await.is_some() {
            self.blank.notify_one();
        }
        Ok(())
    }

    /// How much is left of the pause of a server that gives no votes, if that is known. After it, all are read.
    fn pause_left_at(&self, server: usize) -> Option<Duration> {
        let left = self.members[server].pause_left(self.env.now());
        if left.is_none_or(|left| left.is_zero()) {
            self.blank.notify_one();
        }
        left
    }

    /// When a request that begins now times out: before the core drops it.
    pub(crate) fn give_up_at(&self) -> Moment {
        self.env.now() + self.request_bound()
    }

    /// How long a request may take.
    pub(crate) fn request_bound(&self) -> Duration {
        self.env.timing().op_timeout * 9 / 10
    }

    /// How long a silent server is waited for if the others are enough.
    pub(crate) fn patience(&self) -> Duration {
        PATIENCE.min(self.env.timing().op_timeout / 4)
    }

    fn terms(&self, ttl: Duration) -> Terms {
        let margin = self.env.timing().margin(ttl);
        let poll = self.env.jittered(self.patience());
        Terms { size: self.size, ttl, margin, poll }
    }

    /// Applies a message or an event of a server's connection.
    fn hear(&self, server: usize, event: LinkEvent) {
        match event {
            LinkEvent::Message(payload, _) => {
                let message = Message::parse(&payload, self.inboxes.key());
                let entry = message
                    .as_ref()
                    .and_then(|message| self.life.entry_of(self.life.lease_of(message.owner)));
                match (message.map(|message| message.news), entry) {
                    (Some(News::Freed), Some(entry)) => {
                        entry.contender.lock().freed(self.env.now(), server);
                        entry.wake();
                    }
                    // The message may be forged.
                    (Some(News::Revoked), Some(entry)) => {
                        self.revoked.lock().insert(entry.lease);
                        self.may_be_revoked.notify_one();
                    }
                    _ => {}
                }
            }
            LinkEvent::Deaf => {
                self.blank.notify_one();
                if !self.members[server].reported_deaf.swap(true, Ordering::Relaxed) {
                    self.events.tell(StoreEvent::Warning(LinkEvent::UNHEARD.into()));
                }
            }
            // It may have come up, with another pause.
            LinkEvent::UpAgain => {
                *self.members[server].pauses_until.lock() = None;
                self.blank.notify_one();
            }
            LinkEvent::Foreign(_)
            | LinkEvent::OtherKey(_)
            | LinkEvent::SlotMessage(..)
            | LinkEvent::Slot { .. } => {}
        }
    }

    /// Ends the session, after releasing all that it holds or waits for, within the bound of a request.
    ///
    /// # Errors
    ///
    /// Unknown if the servers that can be reached did not confirm all of that.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<()> {
        let end = |entry: Arc<KeptVotes>| {
            entry.contender.lock().end(LostReason::Shutdown);
            entry.wake();
            self.leave(&entry);
        };
        self.life.close(self.give_up_at(), end).await
    }
}

impl KeptVotes {
    fn asking(&self, servers: usize) -> Arc<Asking> {
        let new = || {
            let members = (0..servers).map(|_| MemberRequests::default()).collect();
            Arc::new(Asking { received: Notify::new(), members })
        };
        Arc::clone(self.asking.lock().get_or_insert_with(new))
    }

    /// Drops the state of requests if none is pending.
    fn rest(&self) {
        let is_over = |asking: &mut Arc<Asking>| {
            let may_arrive = |member: &MemberRequests| !member.unanswered.lock().is_empty();
            Arc::strong_count(asking) == 1 && !asking.members.iter().any(may_arrive)
        };
        drop(self.asking.lock().take_if(is_over));
    }

    /// Wakes its caller.
    fn wake(&self) {
        if let Some(asking) = &*self.asking.lock() {
            asking.received.notify_one();
        }
    }

    fn ballot(&self) -> Ballot {
        let contender = self.contender.lock();
        Ballot { ticket: contender.ticket(), round: contender.round }
    }

    fn ticket(&self) -> Ticket {
        self.contender.lock().ticket()
    }

    fn ttl(&self) -> Duration {
        self.contender.lock().ttl()
    }
}

/// Much longer than an answer takes, and much shorter than a user notices.
const PATIENCE: Duration = Duration::from_millis(100);
