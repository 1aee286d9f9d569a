//! Carries out `Repair`, for a store that has lost its data or is lost for good, and `Clean`, which ends a move.
//!
//! # Invariants
//! - **remedy-1** Only a store that cannot be reached is taken for dead, and only after it was waited for.

use std::time::Duration;

use leasehold_core::backend::ledger::Written;
use leasehold_core::backend::stage::Side;
use leasehold_core::{Error, ErrorKind, Result};

use super::walk::may_pass;
use super::{Admin, Status, not_yet, status};
use crate::config::draw_id;
use crate::protocol::clean::{self, Clean};
use crate::protocol::member::Kind;
use crate::protocol::record::{MoveRecord, millis};
use crate::protocol::records::in_store;
use crate::protocol::repair::{Known, Repair, Task};
use crate::protocol::{Pair, SIDES};

impl Admin {
    /// Writes both records anew, after a store has lost its data: the phase of the newest record, in an epoch of larger tokens
    /// than any before. A store that cannot be reached for as long as `wait` counts as dead, and the locks are the other one's
    /// alone: `drain` without the old store, `shadow` without the new one. Waits for one ttl, that of the URL, so that every
    /// earlier hold has expired. If the deciding store has not lost its record, only the other store's record is written again,
    /// while processes work.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`] while a process takes part, or a session lives, in a store that can be asked;
    /// [`ErrorKind::Misuse`] when there is no move, or when one store is dead and the other's record says only that a move
    /// began; the store's, unless it cannot be reached; as
    /// [`status`](Self::status).
    ///
    /// # Cancel safety
    ///
    /// The next call completes an interrupted repair.
    pub async fn repair(&self, wait: Duration) -> Result<Status> {
        let mut repair = Repair::new(self.names(), millis(self.env.wall_time()), draw_id(&self.env));
        let mut dead = Pair { old: false, new: false };
        loop {
            match repair.task() {
                Task::Look => {
                    let known = self.known(wait).await?;
                    dead = Pair::each(|side| known[side] == Known::Dead);
                    repair.looked(&known)?;
                }
                Task::Alone => {
                    self.alone(dead).await?;
                    repair.alone();
                }
                Task::Outlast => {
                    let ttl = self.env.timing().ttl;
                    self.env.sleep(ttl + self.env.timing().margin(ttl)).await;
                    repair.outlasted();
                }
                Task::Measure(side) => {
                    repair.measured(self.stores[side].token_base().await?)?;
                }
                Task::Raise { side, base } => {
                    self.stores[side].raise_token_base(base).await?;
                    repair.done();
                }
                Task::Write { expected, record } => {
                    self.replace(expected, &record).await?;
                    repair.done();
                }
                Task::Done => return self.status().await,
            }
        }
    }

    /// Ends the move in the stores' records, when no process takes part any more. In `new` it ends the record of the new store,
    /// whose locks can then be moved again. The old store's record goes on refusing forgotten URLs, unless `old` releases that
    /// namespace for other locks. In `old` it ends both, so that the locks can be moved elsewhere. The same move does not begin
    /// once more after `new`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`] while a process takes part; [`ErrorKind::Misuse`] in another phase, or without a move;
    /// [`ErrorKind::Protocol`] if a store has lost its record; the store's.
    ///
    /// # Cancel safety
    ///
    /// The next call completes an interrupted end.
    pub async fn clean(&self, old: bool) -> Result<()> {
        let look = self.look().await;
        let mut in_use = None;
        for side in [Side::New, Side::Old] {
            let needed = old || side == Side::New || look.place().is_none();
            if let Some(error) = look.error(side).filter(|_| needed) {
                return Err(error.clone());
            }
        }
        let mut clean = Clean::new(&look.records(), &self.names(), look.error(Side::Old).is_none(), old)?;
        loop {
            match clean.task() {
                clean::Task::Nobody(side) => {
                    let nobody = self.nobody_moves(side).await;
                    clean.nobody(nobody.is_ok());
                    in_use = nobody.err();
                }
                clean::Task::Write { expected, record } => {
                    clean.written(self.replace(Some(expected), &record).await?);
                }
                clean::Task::Done => return Ok(()),
                clean::Task::InUse => return in_use.map_or(Ok(()), Err),
            }
        }
    }

    /// Both records, once each store has answered or the wait has ended.
    async fn known(&self, wait: Duration) -> Result<Pair<Known>> {
        let until = self.env.now() + wait;
        loop {
            let look = self.look().await;
            let errors = [&look.reads.old, &look.reads.new].map(|read| read.as_ref().err());
            let is_over = self.env.now() >= until;
            let ends =
                |error: &&&Error| !may_pass(error) || (is_over && *error.kind() != ErrorKind::Unavailable);
            if let Some(error) = errors.iter().flatten().find(ends) {
                return Err(Error::clone(error));
            }
            if is_over || errors.iter().all(Option::is_none) {
                if let [Some(error), Some(_)] = errors {
                    return Err(error.clone());
                }
                return Ok(Pair::each(|side| {
                    look.reads[side].as_ref().map_or(Known::Dead, |read| Known::Read(read.clone()))
                }));
            }
            self.pause().await;
        }
    }

    async fn replace(&self, expected: Option<u64>, record: &MoveRecord) -> Result<u64> {
        match self.stores[record.side].write(expected.map(in_store), record).await? {
            Written::Done(version) => Ok(version),
            Written::Conflict => {
                let message =
                    "another administrator changed the move record: nothing was done, try again".to_owned();
                Err(not_yet(message, Duration::ZERO))
            }
        }
    }

    /// No process takes part, and no session lives, in a store that is not dead.
    async fn alone(&self, dead: Pair<bool>) -> Result<()> {
        for side in SIDES.into_iter().filter(|side| !dead[*side]) {
            self.nobody_moves(side).await?;
            let census = self.stores[side].census().await?;
            if let Some(said) = status::foreign_sessions(&census, side, 0) {
                return Err(not_yet(said, Duration::ZERO));
            }
        }
        Ok(())
    }

    async fn nobody_moves(&self, side: Side) -> Result<()> {
        let census = self.stores[side].census().await?;
        let processes = census.members.iter().filter_map(|(_, member)| match member {
            Some(member) if member.kind == Kind::Admin => None,
            Some(member) => Some(status::called(member)),
            None => Some("a participant whose entry cannot be read".to_owned()),
        });
        let processes = status::few(processes.collect());
        if processes.is_empty() {
            return Ok(());
        }
        let message =
            format!("processes still take part in the {} store: {}", side.word(), processes.join(", "));
        Err(not_yet(message, Duration::ZERO))
    }
}
