//! The contract of a store: the rules of [`LockBackend`], as the conformance kit checks them.
//!
//! Implementers see this module; users see [`LockManager`](crate::LockManager). A store keeps
//! entries (contenders and holders) per name, and grants the oldest live ones for as long as [`Load`] admits
//! them: of exclusive ones the first. It has no renewal timer and no policy: the core sends the requests.
//!
//! # Invariants
//! - **B1** *One acquisition per name*: per backend and name the core keeps at most one acquisition alive at a time, and
//!   requests only a mode that its own grants and unconfirmed releases of the name admit ([`Load`]): with exclusive ones, one
//!   entry in all. An acquisition whose future was dropped no longer counts; the backend cleans it up. The core never requests
//!   a mode that the store does not promise ([`Mode::needs`]).
//! - **B2** *Clean-up*: the core never drops `acquire`'s future while a caller still waits for the
//!   lock. Once it is dropped, the backend removes its entry as soon as the store is reachable; without
//!   that the entry expires within one ttl (G5, G8).
//! - **B3** *Leases are announced*: everything that must be renewed is a [`Lease`], named in a [`Grant`] or
//!   by [`StoreEvent::LeaseOpened`]. Nothing else is renewed. The core ends a lease at its deadline
//!   on `Env`'s clock, when a renewal returns `Gone`, and at [`StoreEvent::LeaseLost`]. It ends a session's lease
//!   by [`LockBackend::end_session`], too, when a release in the session is refused finally or not confirmed
//!   within a ttl. An ended lease is never renewed, and no grant may name it. A backend with sessions watches its
//!   own deadlines: it ends the old session at the store, opens another with a new id, and announces it.
//!   Acquisitions that waited in the old session end `Lost`.
//!
//! Checked by the conformance cases named after each sentence, as `gN::property`.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use crate::backend::env::Env;
use crate::backend::finding::Finding;
use crate::backend::grant::{Grant, Lease, LeaseId};
use crate::backend::ledger::MoveLedger;
use crate::clock::Deadline;
use crate::words::error::{Effect, Error, ErrorKind, Result};
use crate::words::guarantees::Guarantees;
use crate::words::loss::LostReason;
use crate::words::name::LockName;
use crate::words::owner::OwnerId;
use crate::words::token::FencingToken;

pub use crate::words::holder::Holder;
pub use crate::words::mode::{Load, Mode};
pub use crate::words::revoke::{Revocation, Revoke};
pub use crate::words::state::LockState;

/// A store of locks.
///
/// # Contract
///
/// Every request ends within [`Timing::op_timeout`](crate::Timing::op_timeout), except the wait of [`acquire`](Self::acquire); a
/// request with blocking system calls ends with them. An error says whether the store may have acted
/// ([`Error::effect`]): without proof of the opposite it is `Unknown`. No bytes from the network cause a panic.
#[async_trait]
pub trait LockBackend: fmt::Debug + Send + Sync + 'static {
    /// Returns the guarantees of this store, which are constant. Every flag is checked by the cases that need it.
    fn guarantees(&self) -> Guarantees;

    /// Acquires the lock if the rule of [`Mode`] admits it now behind all holders and, with [`Guarantees::FIFO`],
    /// all waiters. It takes one round trip, or two if the queue has to be read first
    /// (`g9::try_takes_a_free_lock`, `g9::try_shared_next_to_readers`), never waits for a holder (`g9::try_does_not_wait`), and
    /// leaves no entry when it is not granted or its future is dropped
    /// (`g9::try_does_not_wait`, `g8::cancelled_try_leaves_nothing`).
    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt>;

    /// Acquires the lock, or queues for it in the same request and waits until the rule of [`Mode`] admits it
    /// (`g1::one_holder_at_a_time`, `g1::permits_stay_within_the_capacity`, `g7::grants_in_order_of_arrival`).
    ///
    /// The deadline of the grant counts from the sending of the granting request (`g2::deadline_counts_from_sending`). While
    /// queued, the entry's lease is announced and kept by the core's renewals (`g7::waiting_beyond_the_ttl_keeps_the_place`).
    ///
    /// If the entry or its session ends before the grant, or the grant has expired on arrival, the result is `Lost`
    /// with nothing applied ([`Error::lost`]; `g6::a_lost_wait_ends`). The core retries then, as another acquisition
    /// (`g6::a_lost_waiter_queues_again`). It also retries after [`ErrorKind::Unavailable`] if the entry was queued
    /// ([`StoreEvent::Queued`]); every other error ends the wait of the caller.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the acquisition. Without another poll the backend removes the entry, also one that a
    /// delayed request creates later or that was granted meanwhile (`g8::cancelled_acquire_leaves_nothing`). Entries that
    /// the rule admits then are granted, as after a release (`g7::a_leaving_writer_lets_readers_in`). An error, also
    /// `Lost`, cancels in the same way: the next acquisition of the name may begin before the clean-up. A queued
    /// acquisition survives a reconnect.
    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant>;

    /// Renews a batch of leases; returns one result per lease, in order.
    ///
    /// The core drops the call after `op_timeout`, which leaves the whole batch unknown: return the known results
    /// before that, with `Unknown` for the rest. A renewal extends only an existing entry of this owner and never
    /// creates one (`g4::renewing_a_released_lock_does_not_revive_it`). The deadline counts from the sending.
    async fn renew(&self, leases: &[LeaseId]) -> Vec<Renewal>;

    /// Releases a grant; returns `Ok` only when the store has released it (`g4::release_frees_the_lock`). Entries that the
    /// rule admits then are granted (`g7::one_release_wakes_one_contender`, `g7::one_release_admits_whoever_fits`).
    ///
    /// Another grant, also a share of the lock or a later grant of the same process, stays as it is, and the
    /// result is `Lost` (`g4::a_stale_release_changes_nothing`). [`LostReason::Gone`] means that the store has no such entry:
    /// after an unconfirmed attempt it is the confirmation. Any other reason says nothing about the entry.
    ///
    /// Every release ends (`g5::a_refused_release_ends`). An unconfirmed one is repeated: on an entry's own
    /// lease until that has ended, on a session's lease for at most one ttl. Then the core ends the session, as only its
    /// end ends the entry (B3). After a final refusal (`Denied`, `Unsupported`) it ends the session at
    /// once (`g5::a_refused_release_ends`).
    ///
    /// # Cancel safety
    ///
    /// The core drops the call after `op_timeout` and repeats it: it must be repeatable.
    async fn release(&self, grant: &Grant) -> Result<()>;

    /// Ends a session that the core has ended (B3): its guards are notified, and nothing may be granted in it
    /// any more. The backend ends it at the store in the background, and opens another for later
    /// requests (`g5::a_refused_release_ends`).
    ///
    /// It does not wait. A store without sessions has nothing to do.
    fn end_session(&self, _lease: LeaseId) {}

    /// Returns the events of the store, once, to the core. A second call returns a stream that ends.
    fn events(&self) -> BoxStream<'static, StoreEvent>;

    /// Returns the holders of `name` and the number of waiters, without a change (`g10::inspect_shows_the_holder`,
    /// `g10::inspect_shows_every_holder`).
    async fn inspect(&self, name: &LockName) -> Result<LockState>;

    /// Inspects `name` for a watch, which repeats it, if the store has a cheaper way. With `is_new` the state is the
    /// present one, as by [`inspect`](Self::inspect). Otherwise it may be an earlier one, but never older than the last
    /// returned one (`g10::watch_never_goes_back`).
    async fn inspect_for_watch(&self, name: &LockName, is_new: bool) -> Result<LockState> {
        let _ = is_new;
        self.inspect(name).await
    }

    /// Returns the names with this prefix that are held or waited for, in order
    /// (`g10::list_shows_names_in_use`).
    async fn list(&self, prefix: &str) -> Result<Vec<LockState>>;

    /// Sends a revocation to every holder of `name`, and returns these holders in order of arrival
    /// (`g4::revoke_asks_every_holder`); a holder that cannot be notified is [`foreign`](Holder::foreign). It does not
    /// wait for the release: [`inspect`](Self::inspect) shows that, whose holders have the same tokens, or
    /// the same labels, times and metadata if they have no token.
    ///
    /// Without force the holder's session gets [`StoreEvent::RevocationRequested`], within a third of its ttl if the message is
    /// lost. The core loses and releases the grant (`g4::revoke_ends_the_hold`) at the end of the grace period
    /// (`g4::a_grace_ends_the_hold`). Nothing happens to a holder that is dead or cannot be notified.
    ///
    /// With force the entries are deleted at once: until the holder is notified, G1 depends on fencing
    /// (`g3::force_keeps_tokens_growing`). No other name is touched (`g10::revoking_one_name_leaves_others_held`).
    async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Vec<Holder>>;

    /// Returns the findings about this store and its settings, for its administrator.
    async fn diagnose(&self) -> Result<Vec<Finding>>;

    /// Returns the findings about one name: its holders, and its key if that is not the name. Changes nothing.
    async fn diagnose_lock(&self, name: &LockName) -> Result<Vec<Finding>> {
        Ok(vec![Finding::of_state(&self.inspect(name).await?)])
    }

    /// The number that the namespace adds to the store's own numbers, and the numbers that a new base is measured by
    /// (`base::live_sessions_are_counted`).
    async fn token_base(&self) -> Result<TokenBase> {
        Err(no_token_base())
    }

    /// Makes the namespace's base `at_least` that large; it never becomes smaller (`base::base_never_decreases`,
    /// `base::highest_of_concurrent_raises_wins`). Sessions that live already go on with the base they have read; tokens of
    /// later ones are larger (`base::later_sessions_get_larger_tokens`).
    async fn raise_token_base(&self, at_least: u64) -> Result<()> {
        let _ = at_least;
        Err(no_token_base())
    }

    /// Returns the ledger of the namespace, which moves of its locks need; `None` if the store supports no
    /// moves.
    fn ledger(&self) -> Option<Arc<dyn MoveLedger>> {
        None
    }

    /// Ends the session with all its holds and waits (`g6::closing_frees_everything`).
    /// Requests after it are refused as `Closed`.
    async fn close(&self) -> Result<()>;
}

/// The configuration of a store; the typed form of its URL.
#[async_trait]
pub trait StoreConfig: fmt::Debug + Send + Sync + 'static {
    /// Returns the shortest ttl that this store keeps reliably.
    fn min_ttl(&self) -> Duration;

    /// Returns the servers of the store, such as `h1:2379,h2:2379`, never with credentials. The core adds them as
    /// `server` to every error of this store without one.
    fn server(&self) -> Option<String> {
        None
    }

    /// Returns the namespace: the servers and the prefix of the keys, such as `h1:2379/billing`; never with
    /// credentials. The record of a move has both of its namespaces in this form, for comparison.
    fn namespace(&self) -> Option<String> {
        self.server()
    }

    /// Opens a session. The core bounds it by [`Timing::connect_timeout`](crate::Timing::connect_timeout). It acquires no lock,
    /// so a failure was not applied, whatever its effect says.
    ///
    /// A store with a ledger asks [`stage::admit`](super::stage::admit) (`ledger::a_record_bars_plain_sessions`), and one with a
    /// `token_base` adds it if [`Env::adds_token_base`] says so (`ledger::move_adds_no_token_base`).
    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>>;
}

#[async_trait]
impl StoreConfig for Box<dyn StoreConfig> {
    fn min_ttl(&self) -> Duration {
        (**self).min_ttl()
    }

    fn server(&self) -> Option<String> {
        (**self).server()
    }

    fn namespace(&self) -> Option<String> {
        (**self).namespace()
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        (**self).open(env).await
    }
}

/// The request of an acquisition.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// The lock.
    pub name: LockName,
    /// The mode of the hold; only modes that the store promises.
    pub mode: Mode,
    /// The identity of this acquisition; every acquisition has its own, also within one wait.
    pub owner: OwnerId,
    /// The requested ttl; a store with one session for all locks uses the session's.
    pub ttl: Duration,
    /// The manager's label, for [`Holder::label`].
    pub label: Arc<str>,
    /// The metadata that `inspect` shows.
    pub metadata: Option<Arc<str>>,
}

impl AcquireRequest {
    /// Creates an exclusive request for `name` by `owner`, without label or metadata.
    pub fn new(name: LockName, owner: OwnerId, ttl: Duration) -> Self {
        Self { name, mode: Mode::EXCLUSIVE, owner, ttl, label: "".into(), metadata: None }
    }
}

/// The result of [`LockBackend::try_acquire`].
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "an attempt is granted or it is not")]
pub enum Attempt {
    /// The lock is granted.
    Granted(Grant),
    /// Another entry holds the lock, or is earlier in the queue.
    Held {
        /// One of the blockers, if the store names one.
        holder: Option<Holder>,
    },
}

impl Attempt {
    /// The grant of a request that waits: [`LockBackend::acquire`] never returns a holder.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] for a request that the store answered as a try.
    pub fn granted(self) -> Result<Grant> {
        match self {
            Self::Granted(grant) => Ok(grant),
            Self::Held { .. } => Err(Error::new(
                ErrorKind::Protocol,
                Effect::Unknown,
                "the store answered a waiting request as a try",
            )),
        }
    }
}

/// The error of a request to a session that was closed.
pub fn closed() -> Error {
    Error::not_applied(ErrorKind::Closed, "the session with the store was closed")
}

/// The result of [`LockBackend::renew`] for one lease.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "a renewal succeeded, failed for good, or is unknown")]
pub enum Renewal {
    /// Renewed; until [`Deadline::Never`] on a store without leases.
    Until(Deadline),
    /// The lease has certainly ended.
    Gone(LostReason),
    /// The result is unknown; the core retries before the deadline.
    Unknown(Error),
}

/// An event that a store reports on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreEvent {
    /// A lease began that no grant names yet: a session's, or a waiting entry's.
    LeaseOpened(Lease),
    /// A lease has ended, with all its grants.
    LeaseLost {
        /// Which.
        lease: LeaseId,
        /// Why; [`LostReason::Released`] if its acquisition was cancelled.
        reason: LostReason,
    },
    /// One grant has ended (deleted, revoked); its lease continues.
    GrantLost {
        /// The lock.
        name: LockName,
        /// The grant's counter.
        counter: u64,
        /// Why.
        reason: LostReason,
    },
    /// The revocation of one grant is requested, which ends after `within`, counted from this event. Of
    /// several requests the earliest end counts.
    RevocationRequested {
        /// The lock.
        name: LockName,
        /// The grant's counter.
        counter: u64,
        /// The grace period.
        within: Duration,
    },
    /// An acquisition is queued behind `holder`: from now on an unavailable store does not end its wait.
    Queued {
        /// The lock.
        name: LockName,
        /// The holder that the store names.
        holder: Holder,
    },
    /// A warning for the administrator.
    Warning(Cow<'static, str>),
    /// A condition of the store that weakens what it promises for as long as it lasts, reported when a session is opened;
    /// [`diagnose`](LockBackend::diagnose) reports it, too.
    Condition(Cow<'static, str>),
}

/// The number that a namespace adds to the numbers of its store to get its counters. So tokens keep
/// growing after a restore of the store, or a move from another one (G3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TokenBase {
    /// The added number.
    pub base: u64,
    /// The lower bound of the store's own numbers of later grants.
    pub floor: u64,
    /// The number of other open sessions of the namespace, which keep the base that they have read; `None` if the store
    /// does not know. Sessions of a move add no base and are not counted (`ledger::moving_process_is_not_counted`).
    pub sessions: Option<usize>,
}

impl TokenBase {
    /// Creates the token base `base`, with the lower bound `floor` and `sessions` other open sessions.
    pub fn new(base: u64, floor: u64, sessions: Option<usize>) -> Self {
        Self { base, floor, sessions }
    }

    /// Returns the base with which every later token is larger than `token`: the present or a larger one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] if no room for tokens would remain.
    pub fn above(&self, token: FencingToken) -> Result<u64> {
        let base = self.base.max((token.counter() + 1).saturating_sub(self.floor));
        let first = base.checked_add(self.floor).filter(|first| *first < FencingToken::MAX_COUNTER);
        first.map(|_| base).ok_or_else(|| {
            Error::invalid_option(format!("token {token} is too large: no larger token fits into 63 bits"))
        })
    }
}

fn no_token_base() -> Error {
    Error::not_applied(ErrorKind::Unsupported, "this store has no token base")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(counter: u64) -> FencingToken {
        FencingToken::new(counter, FencingToken::MAX_INDEX).unwrap()
    }

    /// The first counter that a store can give after the raise is above the token's; a base that is
    /// large enough stays, and one that leaves no room is refused.
    #[test]
    fn a_base_puts_every_later_token_above_one() {
        for (base, floor, counter) in
            [(0, 7, 1_000), (50, 7, 1_000), (50, 0, 20), (0, 2_000, 1_000), (5, 1, 5)]
        {
            let today = TokenBase { base, floor, sessions: None };
            let raised = today.above(token(counter)).unwrap();
            assert!(raised >= base && raised + floor > counter, "{today:?}, {counter}: {raised}");
            assert!(raised == base || raised + floor == counter + 1, "no larger than it must be");
        }
        let today = TokenBase { base: 0, floor: 3, sessions: None };
        let error = today.above(token(FencingToken::MAX_COUNTER)).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidOption);
    }
}
