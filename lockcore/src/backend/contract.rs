//! The contract of a store: what [`LockBackend`] must do, in the words the conformance kit checks.
//!
//! Implementers see this module; users see [`LockManager`](crate::LockManager). A store keeps
//! entries (contenders and holders) per name, and grants the oldest live ones for as long as [`Load`] admits
//! them: of exclusive ones the first. It has no renewal timer and no policy: the core decides what to ask and when.
//!
//! # Invariants
//! - **B1** *One acquisition per name*: per backend and name the core keeps at most one acquisition alive at
//!   a time, and asks only for what its own grants and unconfirmed releases of the name admit ([`Load`]): with
//!   exclusive ones, for one entry in all. An acquisition whose future was dropped no longer counts;
//!   cleaning it up is the backend's own business. What a store does not promise ([`Mode::needs`]) it is
//!   not asked for.
//! - **B2** *Who cleans up*: the core never drops `acquire`'s future while somebody still wants the
//!   lock. Once dropped, the backend removes what is left of it as soon as the store can be reached;
//!   nothing stays beyond one ttl even if it never can (G5, G8).
//! - **B3** *Leases are announced*: whatever must be renewed is a [`Lease`], named in a [`Grant`] or
//!   by [`StoreEvent::LeaseOpened`]. Nothing else is renewed. The core gives a lease up at its deadline
//!   on `Env`'s clock, when a renewal answers `Gone`, at [`StoreEvent::LeaseLost`], and, if it is a
//!   session's, when a release in it is refused for good or not confirmed within a ttl, which it says by
//!   [`LockBackend::give_up`]. It is never renewed again then, and no grant may name it. A backend with sessions watches its own deadlines: it
//!   ends the old session at the store, opens another with a new id, and announces it. What waited in the
//!   old one ends `Lost`.
//!
//! Checked by the conformance cases named beside each sentence, as `gN::property`.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use crate::backend::env::Env;
use crate::backend::finding::Finding;
use crate::backend::ledger::Ledger;
use crate::clock::Deadline;
use crate::words::error::{Error, ErrorKind, Result};
use crate::words::guarantees::Guarantees;
use crate::words::loss::LostReason;
use crate::words::name::LockName;
use crate::words::owner::OwnerId;
use crate::words::token::FencingToken;

pub use crate::words::holder::{Holder, LockState};
pub use crate::words::mode::{Load, Mode};
pub use crate::words::revoke::{Revocation, Revoke};

/// A store of locks.
///
/// # Contract
///
/// Every request ends within [`Timing::op_timeout`](crate::Timing::op_timeout), waiting in [`acquire`](Self::acquire) apart; a
/// store whose system calls run in place ends when they do. An error says whether the store may have acted ([`Error::effect`]);
/// what is not provably unapplied is `Unknown`. Nothing panics on bytes from the network.
#[async_trait]
pub trait LockBackend: fmt::Debug + Send + Sync + 'static {
    /// What this store promises; constant. Every flag is checked by the cases that need it.
    fn guarantees(&self) -> Guarantees;

    /// Takes the lock if the rule of [`Mode`] admits that now, behind all who hold it or, with [`Guarantees::FIFO`],
    /// wait for it: one round trip when it does, two where the queue has to be read first
    /// (`g9::try_takes_a_free_lock`, `g9::try_shared_next_to_readers`), never waits for a holder (`g9::try_does_not_wait`), and
    /// leaves no trace when it is not granted or its future is dropped
    /// (`g9::try_leaves_no_trace`, `g8::cancelled_try_leaves_nothing`).
    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt>;

    /// Takes the lock, or queues for it in the same request and waits until the rule of [`Mode`] admits it
    /// (`g1::one_holder_at_a_time`, `g1::permits_stay_within_the_capacity`, `g7::grants_in_order_of_arrival`).
    ///
    /// The deadline of the grant is counted from when the granting request was sent (`g2::deadline_counts_from_sending`). While
    /// queued, the entry's lease is announced and kept by the core's renewals (`g7::waiting_beyond_the_ttl_keeps_the_place`).
    ///
    /// When the entry or its session is over before it was granted, or the grant that arrives is over already, it ends `Lost`
    /// with nothing applied ([`Error::lost`]; `g6::a_lost_wait_ends`). The core asks again then, as another acquisition
    /// (`g6::a_lost_waiter_queues_again`). So it does after [`ErrorKind::Unavailable`] if the entry had been queued
    /// ([`StoreEvent::Queued`]); every other error ends the wait of the caller.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons: without being polled again the backend removes the entry, also one that a delayed request
    /// creates later or that was granted meanwhile (`g8::cancelled_acquire_leaves_nothing`); whoever the rule admits then is
    /// granted, as after a release (`g7::a_leaving_writer_lets_readers_in`). Returning an error abandons in the same way,
    /// `Lost` too: the next acquisition of the name may begin before that is cleaned up. A queued acquisition survives a
    /// reconnect.
    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant>;

    /// Renews leases, batched; one answer per lease, in order.
    ///
    /// The core waits for at most `op_timeout` and drops the call then, which leaves the whole batch unknown: answer what is
    /// known by then, `Unknown` for the rest. Only an entry that exists and is ours is extended, never created again
    /// (`g4::renewing_a_released_lock_does_not_revive_it`). The deadline is counted from sending.
    async fn renew(&self, leases: &[LeaseId]) -> Vec<Renewal>;

    /// Releases a grant: `Ok` only when the store has let go (`g4::release_frees_the_lock`); whoever
    /// the rule admits then is granted (`g7::one_release_wakes_one_contender`, `g7::one_release_admits_whoever_fits`).
    ///
    /// Anybody else's grant, one that shares the lock or a later one of the same process included, stays as it is, and the
    /// answer is `Lost` (`g4::a_stale_release_changes_nothing`). [`LostReason::Gone`] means that the store has no such entry:
    /// after an earlier try without answer it is the confirmation. Any other reason says nothing of the entry.
    ///
    /// Every release ends (`g5::a_release_that_is_unavailable_ends`). What is not confirmed is asked again: on an entry's own
    /// lease until that has ended, on a session's lease for at most one ttl; then the core gives the session up, as only its
    /// end ends the entry (B3). A refusal that asking again cannot change (`Denied`, `Unsupported`) gives the session up at
    /// once (`g5::a_release_that_is_denied_ends`).
    ///
    /// # Cancel safety
    ///
    /// The core drops it when it exceeds `op_timeout`, and calls again: it must be repeatable.
    async fn release(&self, grant: &Grant) -> Result<()>;

    /// The core has given up a session (B3): its guards have been told, and nothing is to be granted in it
    /// any more. The backend ends it at the store, in the background, and opens another for what comes
    /// next (`g5::a_release_that_is_denied_ends`).
    ///
    /// Does not wait. Leases of entries are never given up, so a store without sessions has nothing to do.
    fn give_up(&self, _lease: LeaseId) {}

    /// What the store has to tell; taken once, by the core. A second call gives a stream that ends.
    fn events(&self) -> BoxStream<'static, StoreEvent>;

    /// Who holds `name` and how many wait (`g10::inspect_shows_the_holder`, `g10::inspect_shows_every_holder`). Changes
    /// nothing.
    async fn inspect(&self, name: &LockName) -> Result<LockState>;

    /// The same for a watch, which inspects again and again, for stores on which that costs less. If `is_new`, a stream
    /// has begun that has shown nothing: the state is that of now, as by [`inspect`](Self::inspect). Otherwise it may be
    /// an earlier one, but never older than the last one that was returned (`g10::watch_never_goes_back`).
    async fn inspect_for_watch(&self, name: &LockName, is_new: bool) -> Result<LockState> {
        let _ = is_new;
        self.inspect(name).await
    }

    /// The names that begin with `prefix` and are held or waited for, in order
    /// (`g10::list_shows_names_in_use`).
    async fn list(&self, prefix: &str) -> Result<Vec<LockState>>;

    /// Passes a request on to every holder of `name`, and says whom it found, in order of arrival
    /// (`g4::revoke_asks_every_holder`); one that cannot be asked as [`foreign`](Holder::foreign). Does not wait
    /// for the answer: that is seen by [`inspect`](Self::inspect), whose holders have the same tokens then, or
    /// the same labels, times and metadata if they have none.
    ///
    /// Asked, the holder's session hears [`StoreEvent::GrantAsked`], within a third of its ttl if the message itself is
    /// lost, and the core loses and releases the grant (`g4::revoke_ends_the_hold`) when the grace is over
    /// (`g4::a_grace_ends_the_hold`). A holder that is dead or deaf hears nothing, and is not harmed.
    ///
    /// Forced, their entries are deleted at once: until the holder has heard of it, G1 rests on fencing
    /// (`g3::force_keeps_tokens_growing`). No other name is touched (`g10::revoking_one_name_leaves_others_held`).
    async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Vec<Holder>>;

    /// What an administrator should know about this store and its settings.
    async fn diagnose(&self) -> Result<Vec<Finding>>;

    /// The same of one name: who holds it and, where that is not as plain as the name, under which key. Changes
    /// nothing.
    async fn diagnose_lock(&self, name: &LockName) -> Result<Vec<Finding>> {
        Ok(vec![Finding::of_state(&self.inspect(name).await?)])
    }

    /// What the namespace adds to the store's own numbers, and what a new base has to be measured by
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

    /// The ledger of the namespace, by which its locks can be moved from this store and to it; `None` on a store
    /// that cannot.
    fn ledger(&self) -> Option<Arc<dyn Ledger>> {
        None
    }

    /// Ends the session and everything it holds or waits for (`g6::closing_frees_everything`).
    /// Requests after it are refused as `Closed`.
    async fn close(&self) -> Result<()>;
}

/// How to open a store; the typed form of its URL.
#[async_trait]
pub trait StoreConfig: fmt::Debug + Send + Sync + 'static {
    /// The shortest ttl this store keeps reliably.
    fn min_ttl(&self) -> Duration;

    /// Where the store is, such as `h1:2379,h2:2379`, never with credentials: the core adds it as `server`
    /// to every error of this store that does not name one itself.
    fn server(&self) -> Option<String> {
        None
    }

    /// Which namespace this is: where the store is, and what the keys begin with, such as `h1:2379/billing`; never with
    /// credentials. The record of a move names both of its namespaces by that, and it is compared.
    fn namespace(&self) -> Option<String> {
        self.server()
    }

    /// Opens a session. The core bounds it by [`Timing::connect_timeout`](crate::Timing::connect_timeout). No lock is asked for
    /// here, so what fails was not applied, whatever an error says.
    ///
    /// A store with a ledger asks [`stage::admit`](super::stage::admit) (`ledger::a_record_bars_plain_sessions`), and one with a
    /// `token_base` adds it if [`Env::adds_token_base`] says so (`ledger::who_moves_adds_no_base`).
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

/// What an acquisition asks for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// The lock.
    pub name: LockName,
    /// How it is to be held; only what the store promises.
    pub mode: Mode,
    /// The identity of this acquisition; another one has another, of the same wait too.
    pub owner: OwnerId,
    /// The lease asked for; a store with one session for all locks uses the session's.
    pub ttl: Duration,
    /// The manager's label, for [`Holder::label`].
    pub label: Arc<str>,
    /// What the caller wants `inspect` to show.
    pub metadata: Option<Arc<str>>,
}

impl AcquireRequest {
    /// A request for `name` by `owner`, exclusive, without label or metadata.
    pub fn new(name: LockName, owner: OwnerId, ttl: Duration) -> Self {
        Self { name, mode: Mode::EXCLUSIVE, owner, ttl, label: "".into(), metadata: None }
    }
}

/// The answer of [`LockBackend::try_acquire`].
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "an attempt is granted or it is not")]
pub enum Attempt {
    /// The lock is ours.
    Granted(Grant),
    /// Somebody holds it, or is before us.
    Held {
        /// One that stands in the way, if the store names one.
        holder: Option<Holder>,
    },
}

/// One grant of a name by the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Grant {
    /// The lock.
    pub name: LockName,
    /// The identity of the acquisition it answers, which is the request's.
    pub owner: OwnerId,
    /// What keeps it. Grants with the same lease id live and die together.
    pub lease: Lease,
    /// The store's own number, larger for every later grant of the name that this one excludes, and no
    /// other's (G3), the namespace's
    /// `token_base` included, which is read once per session; at most [`FencingToken::MAX_COUNTER`](crate::FencingToken::MAX_COUNTER).
    pub counter: u64,
}

impl Grant {
    /// The store's grant number `counter` of `name` to `owner`, for as long as `lease` lives.
    pub fn new(name: LockName, owner: OwnerId, lease: Lease, counter: u64) -> Self {
        Self { name, owner, lease, counter }
    }
}

/// Bounded-time ownership at the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Lease {
    /// Its identity.
    pub id: LeaseId,
    /// What it belongs to.
    pub scope: LeaseScope,
    /// The ttl that the store *granted*, which may differ from what was asked.
    pub ttl: Duration,
    /// Until when it can be trusted.
    pub deadline: Deadline,
}

impl Lease {
    /// The lease `id`, granted for `ttl` and trusted until `deadline`.
    pub fn new(id: LeaseId, scope: LeaseScope, ttl: Duration, deadline: Deadline) -> Self {
        Self { id, scope, ttl, deadline }
    }
}

/// The identity of a lease, unique within its backend and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(u64);

impl LeaseId {
    /// The lease that the backend knows as `id`.
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// The backend's number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// How long a lease is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a lease serves one entry or all of them")]
pub enum LeaseScope {
    /// One entry: renewed until that entry's grant is released or lost, or the lease is.
    Entry,
    /// A session: renewed until it is lost, whatever it holds.
    Session,
}

/// The answer to one lease of [`LockBackend::renew`].
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a renewal succeeded, failed for good, or is unknown")]
pub enum Renewal {
    /// Renewed; until [`Deadline::Never`] on a store without leases.
    Until(Deadline),
    /// The lease is over, certainly.
    Gone(LostReason),
    /// No certain answer; the core asks again before the deadline.
    Unknown(Error),
}

/// What a store tells without being asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreEvent {
    /// A lease exists that no grant has named yet: a session, or an entry that waits.
    LeaseOpened(Lease),
    /// A lease is over, and with it all its grants.
    LeaseLost {
        /// Which.
        lease: LeaseId,
        /// Why; [`LostReason::Released`] when its entry was abandoned.
        reason: LostReason,
    },
    /// One grant is over (deleted, revoked); its lease goes on.
    GrantLost {
        /// The lock.
        name: LockName,
        /// The grant's counter.
        counter: u64,
        /// Why.
        reason: LostReason,
    },
    /// Somebody asks for one grant, which ends when `within` is over, counted from this event. Told again,
    /// the earliest end counts.
    GrantAsked {
        /// The lock.
        name: LockName,
        /// The grant's counter.
        counter: u64,
        /// How long it may go on.
        within: Duration,
    },
    /// An acquisition is queued behind `holder`: from here on the core outlasts a store that is unavailable.
    Queued {
        /// The lock.
        name: LockName,
        /// Whom the store named.
        holder: Holder,
    },
    /// Something an administrator should know.
    Warning(Cow<'static, str>),
}

/// What a namespace adds to the numbers of its store, which are its counters then: so tokens go on
/// growing after a store was restored, or after a move from another one (G3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TokenBase {
    /// What is added.
    pub base: u64,
    /// No later grant's own number is below this.
    pub floor: u64,
    /// How many other sessions of the namespace live, which go on with the base they have read; `None` if the store cannot
    /// tell. One that takes part in a move adds none, and is not counted (`ledger::who_moves_is_not_counted`).
    pub sessions: Option<usize>,
}

impl TokenBase {
    /// `base` is added, no later grant's own number is below `floor`, and `sessions` others live.
    pub fn new(base: u64, floor: u64, sessions: Option<usize>) -> Self {
        Self { base, floor, sessions }
    }

    /// The base with which every later token is larger than `token`: today's, or a larger one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] when no room for tokens would be left.
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
