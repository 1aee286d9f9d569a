//! One manager's session with several servers: a connection to each, and its entries.
//!
//! Carries out what the contenders of `protocol` ask for. Requests are sent to all servers at once, and driven by whoever waits
//! for them, until a quorum has answered; what a straggler answers after that is heard in the background.
//!
//! | file | says |
//! |---|---|
//! | `member` | one server, and asking all of them |
//! | `acquisition` | drives one contender |
//! | `errand` | sends what it wants, and hears the answers |
//! | `keeper` | keeps holds alive |
//! | `leaving` | gives back what is not wanted any more |
//! | `recovery` | tells servers that came up what they may have forgotten |
//!
//! # Invariants
//! - **redis.quorum.session-1** What concerns one owner at one server is sent in turn, each after the answer before it: so
//!   a release is never overtaken by a request for a vote (G5, G8).

mod acquisition;
mod errand;
mod keeper;
mod leaving;
mod member;
mod recovery;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_core::backend::{Events, Holder, Lease, LeaseId, LeaseScope, StoreEvent};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{Env, Error, ErrorKind, LockName, LostReason, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::member::{Ear, Runs};
use super::agreed::Agreed;
use super::config::QuorumConfig;
use super::keys::QuorumKeys;
use super::protocol::{Contender, Horizon, Size, Standing, Terms, Ticket, who_differs};
use super::scripts::{Ballot, disagrees, proposed};
use crate::connection::{LinkEvent, Timer};
use crate::protocol::Unanswered;
use crate::scripts::{Inboxes, Message, News};
use crate::session::{Life, Opened};

pub(crate) use self::errand::UNTOLD;
pub(crate) use self::member::Member;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) env: Env,
    pub(crate) size: Size,
    pub(crate) keys: QuorumKeys,
    space: String,
    pub(crate) inboxes: Inboxes,
    inbox: String,
    pub(crate) members: Vec<Member>,
    runs: Runs,
    pub(crate) agreed: Agreed,
    /// The same as servers keep it.
    pub(crate) terms: String,
    pub(crate) life: Life<Entry>,
    horizon: Mutex<Horizon>,
    events: Events,
    /// For those who wait for answers.
    alarm: Timer,
    /// A server may not know what it has forgotten.
    blank: Notify,
    /// What messages say was revoked, until that is looked up.
    revoked: Mutex<BTreeSet<LeaseId>>,
    told_revoked: Notify,
    /// A server votes by our terms, or did, so locks may be held by them.
    found_a_voter: AtomicBool,
}

/// What we have at the servers for one owner id.
#[derive(Debug)]
pub(crate) struct Entry {
    name: LockName,
    ticket: Ticket,
    lease: LeaseId,
    ttl: Duration,
    waits: bool,
    /// What `inspect` shows of us.
    label: Arc<str>,
    metadata: Option<Arc<str>>,
    contender: Mutex<Contender>,
    /// Nothing, of most that are held.
    asking: Mutex<Option<Arc<Asking>>>,
}

/// What is under way between one owner and the servers.
#[derive(Debug)]
struct Asking {
    /// Something was heard about it.
    heard: Notify,
    seats: Box<[Seat]>,
}

/// What is under way between one owner and one server.
#[derive(Debug, Default)]
struct Seat {
    /// redis.quorum.session-1
    turn: tokio::sync::Mutex<()>,
    /// Requests for its vote that may still arrive.
    unanswered: Mutex<Unanswered>,
    failed: Mutex<Option<Error>>,
    /// Whom it has voted for instead.
    holder: Mutex<Option<Box<Holder>>>,
}

impl Session {
    /// Connects to the servers.
    ///
    /// # Errors
    ///
    /// When there is no quorum of them, or one of them does not belong to it.
    pub(crate) async fn open(config: &QuorumConfig, env: Env, events: Events) -> Result<Opened<Self>> {
        let (keys, agreed) = (QuorumKeys::new(config.prefix())?, config.agreed(env.timing().ttl));
        agreed.admits(env.timing().ttl)?;
        let (channels, inbox) = (keys.prefixed.channels(), env.owner_id().to_hex());
        let closed = CancellationToken::new();
        // Whoever gives up opening ends what was begun.
        let open = closed.clone().drop_guard();
        let heard = Arc::new(OnceLock::new());
        let start = |(server, config)| {
            let ear = Ear { session: Arc::clone(&heard), server };
            Member::start(&env, config, (format!("{channels}{inbox}"), ear), &closed)
        };
        let members = config.servers.iter().enumerate().map(start).collect::<Result<Vec<_>>>()?;
        let session = Arc::new(Self {
            size: agreed.size,
            space: keys.prefixed.space(),
            keys,
            inboxes: Inboxes::new(&channels, config.signed_with()),
            inbox,
            runs: Arc::new(Mutex::new(vec![None; members.len()])),
            members,
            agreed,
            terms: agreed.to_string(),
            alarm: Timer::new(env.clone()),
            life: Life::new(env.clone(), closed),
            env,
            horizon: Mutex::default(),
            events,
            blank: Notify::new(),
            revoked: Mutex::default(),
            told_revoked: Notify::new(),
            found_a_voter: AtomicBool::new(false),
        });
        // It is new.
        let _ = heard.set(Arc::downgrade(&session));
        let watching = Arc::clone(&session);
        session.life.spawn(async move {
            loop {
                watching.alarm.watch().await;
            }
        });
        session.meet().await?;
        // What they said before there was a session went unheard.
        for (server, member) in session.members.iter().enumerate() {
            if member.link.is_deaf() {
                session.hear(server, LinkEvent::Deaf);
            }
        }
        session.life.spawn(Arc::clone(&session).recover_blank());
        session.life.spawn(Arc::clone(&session).look_up_revocations());
        Ok(Opened { session, _open: open })
    }

    /// Waits for a quorum of servers, and for what those that came up are told.
    async fn meet(&self) -> Result<()> {
        let give_up_at = self.env.now() + self.env.timing().connect_timeout * 9 / 10;
        let meet = |enough| {
            self.ask_all(give_up_at, enough, |at, member| async move {
                member.begun().await?;
                member.look(self, at, None).await
            })
        };
        let met = meet(self.size.quorum).await;
        let look: Vec<_> = met.iter().map(|met| met.as_ref()?.as_ref().ok().cloned()).collect();
        if let Some(server) = who_differs(&self.terms, &look)
            && let Some(standing) = &look[server]
        {
            let is_new = |standing: &Standing| !standing.whole && standing.are_terms_proposed();
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

    /// Whether anything of ours may be held.
    fn may_hold(&self) -> bool {
        self.found_a_voter.load(Ordering::Relaxed)
    }

    fn found_a_voter(&self) {
        if !self.may_hold() {
            self.found_a_voter.store(true, Ordering::Relaxed);
        }
    }

    /// A server gives no votes: how much of its pause is left, if that is known. Once that is over, somebody is to look.
    fn pause_left_at(&self, server: usize) -> Option<Duration> {
        let left = self.members[server].pause_left(self.env.now());
        if left.is_none_or(|left| left.is_zero()) {
            self.blank.notify_one();
        }
        left
    }

    /// When a request that begins now is given up: before the core drops it.
    pub(crate) fn give_up_at(&self) -> Moment {
        self.give_up_after(self.env.now())
    }

    /// The same of one that began then.
    fn give_up_after(&self, began: Moment) -> Moment {
        began + self.env.timing().op_timeout * 9 / 10
    }

    /// How long a server that is silent is waited for where the others are enough.
    pub(crate) fn patience(&self) -> Duration {
        PATIENCE.min(self.env.timing().op_timeout / 4)
    }

    fn terms(&self, ttl: Duration) -> Terms {
        let margin = self.env.timing().margin(ttl);
        let poll = self.env.jittered(self.patience());
        Terms { size: self.size, ttl, margin, poll }
    }

    /// A server has told its time, in answer to what was sent then.
    fn heard_time(&self, server: usize, sent_at: Moment, micros: u64) {
        self.horizon.lock().heard_time(server, self.env.now(), sent_at, micros);
    }

    /// Takes in what a server tells unasked.
    fn hear(&self, server: usize, event: LinkEvent) {
        match event {
            LinkEvent::Message(payload) => {
                let message = Message::parse(&payload, self.inboxes.key());
                let entry = message.as_ref().and_then(|message| self.life.entry_of(message.owner));
                match (message.map(|message| message.news), entry) {
                    (Some(News::Freed), Some(entry)) => {
                        entry.contender.lock().freed(self.env.now(), server);
                        entry.wake();
                    }
                    // It may be made up.
                    (Some(News::Revoked), Some(entry)) => {
                        self.revoked.lock().insert(entry.lease);
                        self.told_revoked.notify_one();
                    }
                    _ => {}
                }
            }
            LinkEvent::Deaf => {
                self.blank.notify_one();
                if self.members[server].became_deaf() {
                    self.events.tell(StoreEvent::Warning(LinkEvent::UNHEARD.into()));
                }
            }
            // It may have come up, and what was known of its pause is that of an earlier episode.
            LinkEvent::UpAgain => {
                self.members[server].pauses_until(None);
                self.blank.notify_one();
            }
            LinkEvent::Foreign(_) | LinkEvent::OtherKey(_) => {}
        }
    }

    /// Tells the core if somebody wants what `entry` holds.
    fn tell_asked(&self, entry: &Entry) {
        let wanted = entry.contender.lock().wanted(self.env.now());
        if let Some((counter, within)) = wanted {
            self.events.tell(StoreEvent::RevocationRequested { name: entry.name.clone(), counter, within });
        }
    }

    /// Ends the session: what it holds or waits for is released first, within the bound of a request.
    ///
    /// # Errors
    ///
    /// Unknown when the servers that can be reached did not confirm all of that.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<()> {
        let end = |entry: Arc<Entry>| {
            entry.contender.lock().end(LostReason::Shutdown);
            entry.wake();
            self.leave(&entry);
        };
        self.life.close(self.give_up_at(), end).await
    }
}

impl Entry {
    /// What is under way, from now on at the latest.
    fn asking(&self, servers: usize) -> Arc<Asking> {
        let new = || {
            let seats = (0..servers).map(|_| Seat::default()).collect();
            Arc::new(Asking { heard: Notify::new(), seats })
        };
        Arc::clone(self.asking.lock().get_or_insert_with(new))
    }

    /// Keeps nothing of what is over.
    fn rest(&self) {
        let is_over = |asking: &mut Arc<Asking>| {
            let may_arrive = |seat: &Seat| !seat.unanswered.lock().is_empty();
            Arc::strong_count(asking) == 1 && !asking.seats.iter().any(may_arrive)
        };
        drop(self.asking.lock().take_if(is_over));
    }

    /// Whoever waits for it is to look.
    fn wake(&self) {
        if let Some(asking) = &*self.asking.lock() {
            asking.heard.notify_one();
        }
    }

    /// The latest round.
    fn ballot(&self) -> Ballot {
        Ballot { ticket: self.ticket, round: self.contender.lock().round() }
    }

    fn lease(&self, deadline: Deadline) -> Lease {
        Lease::new(self.lease, LeaseScope::Entry, self.ttl, deadline)
    }
}

/// Much longer than an answer takes, and much shorter than anybody notices.
const PATIENCE: Duration = Duration::from_millis(100);
