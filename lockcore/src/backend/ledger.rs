//! The ledger of a namespace: the record of a move to another store, and the participants of the move.
//!
//! A store that has one can be moved from and to ([`LockBackend::ledger`](super::LockBackend::ledger)). The record has the
//! phase of the move; its participants are processes, each with an entry that lives as long as a lease. This module interprets
//! none of their values; [`Stage`](super::stage::Stage) reads a part of the record.
//!
//! # Invariants
//! - **ledger-1** The record changes only by a write that expected the version in force, and every write
//!   of it has a version of its own, larger than all before it.
//! - **ledger-2** *Write, then read*: after a confirmed write (of the record or an entry) or a granted lock, a process
//!   reads every write that the store carried out before. So of two processes that write and then read each
//!   other's value, at least one sees it.
//! - **ledger-3** An entry is shown for at least as long as its lease's deadline has not passed on the
//!   signer's clock, unless it was unsigned or the store has lost its data.
//!
//! | store | how it keeps ledger-2 |
//! |---|---|
//! | on one server that does one thing after the other | nothing |
//! | on several, with reads by quorum | linearizable reads |
//! | on several, with reads from any one | writes and reads on one and the same session: no `sync`, no other connection |
//!
//! Checked by `ledger::*` of the conformance kit, on every store that has a ledger.

use std::fmt;

use async_trait::async_trait;

use super::Lease;
use crate::words::error::{Error, ErrorKind, Result};
use crate::words::owner::OwnerId;

/// The largest value of a record or an entry, in bytes.
pub const MAX_VALUE: usize = 4096;

/// The most entries of participants that are read. A client that may write to the store can make more.
pub const MOST_MEMBERS: usize = 10_000;

/// The record and the members of one namespace.
///
/// Every request ends within [`Timing::op_timeout`](crate::Timing::op_timeout), a reconnect included, and an
/// error says whether the store may have acted, as in [`LockBackend`](super::LockBackend). After its
/// `close` requests are refused as [`ErrorKind::Closed`].
///
/// # Cancel safety
///
/// Dropping a future is a lost answer: its request may be carried out now, later, or never. No request depends on another's
/// end, so each may be made again at once.
#[async_trait]
pub trait MoveLedger: fmt::Debug + Send + Sync + 'static {
    /// The record; `None` before the first write of it. ledger-2 defines which writes it sees
    /// (`ledger::a_read_sees_what_was_written_before`).
    async fn read(&self) -> Result<Option<Entry>>;

    /// Replaces the record by `value` if its version is `expected`, `None` meaning that there is none yet
    /// (`ledger::a_record_is_replaced_only_at_its_version`, `ledger::versions_never_return`).
    ///
    /// [`Written::Conflict`] means that *this* write was certainly not carried out. So a store that repeats a write after a
    /// lost answer must not return the conflict with itself: it answers with an error whose effect is unknown, and the caller
    /// reads (`ledger::a_lost_answer_is_unknown`).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Misuse`] for more than [`MAX_VALUE`] bytes, by [`fits`]
    /// (`ledger::oversized_value_is_refused`).
    async fn write(&self, expected: Option<u64>, value: &[u8]) -> Result<Written>;

    /// Makes the entry of `member`, or extends the existing one, with `value` from now on
    /// (`ledger::an_entry_has_its_latest_value`). Its lease has the ttl of the [`Timing`](crate::Timing), and the deadline is
    /// counted from sending (`ledger::a_signature_counts_from_sending`).
    ///
    /// A lease of scope `Entry` is kept by signing again, and by nothing else: no event announces it and
    /// `renew` does not know it. Its id stays while the entry lives and is a new one after it
    /// has lapsed (`ledger::entries_end_with_their_lease`). One of scope `Session` is the session's own, kept as
    /// that is; when it is lost the entry is, and the next session has none until it is signed there.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    async fn sign(&self, member: OwnerId, value: &[u8]) -> Result<Lease>;

    /// Removes the entry of `member`, if there is one (`ledger::unsigned_entry_is_removed`). A request whose answer was lost is
    /// repeated, or the entry is left to its lease.
    async fn unsign(&self, member: OwnerId) -> Result<()>;

    /// Returns the live entries, in any order. After an own write (ledger-2) they include every entry that was
    /// signed before it (`ledger::members_shows_whoever_signed_before`).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] for more than [`MOST_MEMBERS`], by [`readable`]: of entries that are not read nothing is known.
    async fn members(&self) -> Result<Vec<Participant>>;
}

/// The present record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "stores construct it")]
pub struct Entry {
    /// The store's number of the write, larger than that of every earlier one. The difference means nothing.
    pub version: u64,
    /// The written bytes.
    pub value: Vec<u8>,
}

/// The answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the version was in force or it was not")]
pub enum Written {
    /// The record has the written value, and this version.
    Done(u64),
    /// Another version is in force; nothing was done.
    Conflict,
}

/// A participant of a move.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "stores construct it")]
pub struct Participant {
    /// The identity of its entry.
    pub id: OwnerId,
    /// The value of its last signature.
    pub value: Vec<u8>,
}

/// Whether a ledger takes `value`; each store checks this before it sends anything.
///
/// # Errors
///
/// [`ErrorKind::Misuse`] for more than [`MAX_VALUE`] bytes.
pub fn fits(value: &[u8]) -> Result<()> {
    if value.len() <= MAX_VALUE {
        return Ok(());
    }
    let size = value.len();
    Err(Error::not_applied(
        ErrorKind::Misuse,
        format!("the record of {size} bytes is too long: expected at most {MAX_VALUE} bytes"),
    ))
}

/// Whether so many entries of participants are read; each store checks this before it reads them.
///
/// # Errors
///
/// [`ErrorKind::Protocol`] for more than [`MOST_MEMBERS`].
pub fn readable(entries: usize) -> Result<()> {
    if entries <= MOST_MEMBERS {
        return Ok(());
    }
    let message = format!(
        "this store has at least {entries} participants of a move, but at most {MOST_MEMBERS} can be read: \
         delete forged entries"
    );
    Err(Error::not_applied(ErrorKind::Protocol, message))
}
