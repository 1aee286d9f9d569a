//! The grant of a store: a name for an owner, for as long as a lease lasts.

use std::time::Duration;

use crate::clock::Deadline;
use crate::words::name::LockName;
use crate::words::owner::OwnerId;

/// One grant of a name by the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Grant {
    /// The lock.
    pub name: LockName,
    /// The owner of the request.
    pub owner: OwnerId,
    /// Its lease. Grants with the same lease id end at the same time.
    pub lease: Lease,
    /// The store's unique number, larger for every later grant of the name that this one excludes
    /// (G3). It includes the namespace's `token_base`, which is read once per session; at most [`FencingToken::MAX_COUNTER`](crate::FencingToken::MAX_COUNTER).
    pub counter: u64,
}

impl Grant {
    /// Creates the grant `counter` of `name` to `owner`, which lives as long as `lease`.
    pub fn new(name: LockName, owner: OwnerId, lease: Lease, counter: u64) -> Self {
        Self { name, owner, lease, counter }
    }
}

/// An ownership at the store for a bounded time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Lease {
    /// Its identity.
    pub id: LeaseId,
    /// Whether it belongs to an entry or a session.
    pub scope: LeaseScope,
    /// The ttl that the store *granted*, which may differ from the requested one.
    pub ttl: Duration,
    /// The deadline until which it is trusted.
    pub deadline: Deadline,
}

impl Lease {
    /// Creates the lease `id`, granted for `ttl` and trusted until `deadline`.
    pub fn new(id: LeaseId, scope: LeaseScope, ttl: Duration, deadline: Deadline) -> Self {
        Self { id, scope, ttl, deadline }
    }
}

/// The identity of a lease, unique within its backend and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(u64);

impl LeaseId {
    /// Creates the identity of the lease that the backend knows as `id`.
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// Returns the backend's number.
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
    /// A session: renewed until it is lost, with or without holds.
    Session,
}
