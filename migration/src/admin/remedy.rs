//! What is done when a store has lost its data or is dead for good, and what is left when a move is over.
//!
//! # Invariants
//! - **remedy-1** Both are for when nobody takes part any more: they look at the members and the sessions, and refuse.
//! - **remedy-2** A record is ended, never removed: whoever writes there next goes on with larger versions.

use leasehold_core::backend::TokenBase;
use leasehold_core::backend::ledger::Written;
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::{Effect, Error, ErrorKind, Result};
use std::time::Duration;

use super::{Admin, Look, NOT_BEGUN, Status, not_yet, status};
use crate::protocol::member::Kind;
use crate::protocol::record::{Record, Stand};
use crate::protocol::records::Place;
use crate::protocol::tokens::Exhausted;
use crate::protocol::{Class, Pair};

impl Admin {
    /// Writes both records anew, after a store has lost its data: the phase that the newest of them says, in an epoch
    /// of larger tokens than any before. Where one store cannot be asked it is taken for dead, and the locks are the
    /// other one's alone: `drain` without the store that is left, `shadow` without the one moved to. Waits for one ttl,
    /// that of the URL, so that whatever was held is over. While the store that is left decides and the other one has lost
    /// its record, that is written again and nothing else, beside whoever works.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`] while a process takes part, or a session lives, in a store that can be asked;
    /// [`ErrorKind::Misuse`] when there is no move; as [`status`](Self::status).
    ///
    /// # Cancel safety
    ///
    /// What is left halfway is repaired by the next call.
    pub async fn repair(&self) -> Result<Status> {
        let look = self.look().await;
        if let Some(status) = self.copy_again(&look).await? {
            return Ok(status);
        }
        self.alone(&look).await?;
        let ttl = self.env.timing().ttl;
        self.env.sleep(ttl + self.env.timing().margin(ttl)).await;
        let look = self.look().await;
        self.alone(&look).await?;
        let records = look.records();
        records.of_one_move(&self.at())?;
        let live = |side| records.live(side).map(|read| &read.record);
        let (Some(known), phase) = (live(Side::Old).or_else(|| live(Side::New)), phase_to_repair(&look))
        else {
            return Err(Error::not_applied(
                ErrorKind::Misuse,
                "there is no move to repair: neither store has a record",
            ));
        };
        let counts = match Class::of(phase) {
            Class::Old => Side::Old,
            Class::Bridge | Class::New => Side::New,
        };
        let base = self.stores[counts].token_base().await?;
        let newest = match (live(Side::Old), live(Side::New)) {
            (Some(old), Some(new)) => old.stand.newest(new.stand),
            _ => known.stand,
        };
        let bounded = anew(newest, phase, base).map_err(|Exhausted| no_tokens())?;
        // In a phase that may last for ever the window has no end, in the record that decides.
        let lasts = matches!(phase, Phase::Old | Phase::New);
        let stand = if lasts { Stand { window: bounded.window.open(), ..bounded } } else { bounded };
        if phase != Phase::Both {
            self.stores[counts].raise_token_base(stand.window.offset).await?;
        }
        // Whichever record closes a store is written before the other one opens it.
        let order = match counts {
            Side::Old => [Side::New, Side::Old],
            Side::New if phase == Phase::Both => [Side::New, Side::Old],
            Side::New => [Side::Old, Side::New],
        };
        for side in order.into_iter().filter(|side| look.error(*side).is_none()) {
            let expected = records[side].as_ref().map(|read| read.version);
            let stand = match (side, phase) {
                (Side::Old, Phase::New) => bounded.with(Phase::Drain),
                (Side::New, Phase::Shadow) => bounded.with(Phase::Old),
                _ => stand,
            };
            self.replace(side, expected, &self.record(known.id, side, stand)).await?;
        }
        self.status().await
    }

    /// Ends the move in the stores' records, when nobody takes part any more: in `new` that of the store moved to,
    /// whose locks can be moved again then; the other one's goes on refusing forgotten URLs unless `old` says that it
    /// is to be used for other locks from now on. In `old` both, so that the locks can be moved elsewhere.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`] while a process takes part; [`ErrorKind::Misuse`] in another phase, or without a move;
    /// the store's.
    ///
    /// # Cancel safety
    ///
    /// What is left halfway is ended by the next call.
    pub async fn clean(&self, old: bool) -> Result<()> {
        let look = self.look().await;
        let records = look.records();
        let over = records.new.as_ref().is_some_and(|read| read.record.over);
        let phase = look.place().map(Place::phase);
        let ended: &[Side] = match (phase, old) {
            (Some(Phase::New), false) => &[Side::New],
            (Some(Phase::New), true) => &[Side::New, Side::Old],
            (Some(Phase::Old), _) => &[Side::New, Side::Old],
            // The first half was done.
            (None, true) if over => &[Side::Old],
            (None, false) if over => return Ok(()),
            (Some(phase), _) => {
                let message =
                    format!("the move is in phase `{phase}`: it can end in `new`, or go back to `old`");
                return Err(Error::not_applied(ErrorKind::Misuse, message));
            }
            (None, _) => return Err(Error::not_applied(ErrorKind::Misuse, NOT_BEGUN)),
        };
        if phase.is_some() {
            records.of_one_move(&self.at())?;
        }
        for side in ended {
            let read = match &look.reads[*side] {
                Ok(read) => read.as_ref().filter(|read| !read.record.over),
                Err(error) => return Err(super::again(error)),
            };
            let Some(read) = read else { continue };
            self.nobody_moves(*side).await?;
            let version = self.replace(*side, Some(read.version), &read.record.clone().ended()).await?;
            // Whoever has signed before that is seen now, and whoever comes later finds no move.
            if let Err(somebody) = self.nobody_moves(*side).await {
                self.replace(*side, Some(version), &read.record).await?;
                return Err(somebody);
            }
        }
        Ok(())
    }

    /// While the store that is left decides, the other one's record may be written anew beside whoever works.
    async fn copy_again(&self, look: &Look) -> Result<Option<Status>> {
        let records = look.records();
        let decides = records.live(Side::Old).filter(|read| read.record.stand.phase <= Phase::Shadow);
        let Some(old) = decides.filter(|_| records.lost() == Some(Side::New)) else { return Ok(None) };
        if look.error(Side::New).is_some() {
            return Ok(None);
        }
        let stand = old.record.stand.with(Phase::Old);
        self.replace(Side::New, None, &self.record(old.record.id, Side::New, stand)).await?;
        self.status().await.map(Some)
    }

    async fn replace(&self, side: Side, expected: Option<u64>, record: &Record) -> Result<u64> {
        match self.stores[side].write(expected, record).await? {
            Written::Done(version) => Ok(version),
            Written::Conflict => {
                let message = "another administrator is at work: nothing was done, try again";
                Err(not_yet(message.to_owned(), Duration::ZERO))
            }
        }
    }

    /// Nobody takes part, and no session lives, wherever that can be asked; somewhere it can.
    async fn alone(&self, look: &Look) -> Result<()> {
        if let Pair { old: Err(error), new: Err(_) } = &look.reads {
            return Err(super::again(error));
        }
        for side in [Side::Old, Side::New].into_iter().filter(|side| look.error(*side).is_none()) {
            self.nobody_moves(side).await?;
            let strangers = self.stores[side].census().await?.strangers.unwrap_or(0);
            if strangers > 0 {
                let sessions = if strangers == 1 { "session" } else { "sessions" };
                let of = format!("of the {} store live", side.word());
                let message = format!("{strangers} other {sessions} {of}: stop what has them");
                return Err(not_yet(message, Duration::ZERO));
            }
        }
        Ok(())
    }

    async fn nobody_moves(&self, side: Side) -> Result<()> {
        let census = self.stores[side].census().await?;
        let processes = census.members.iter().filter_map(|(_, member)| match member {
            Some(member) if member.kind == Kind::Admin => None,
            Some(member) => Some(status::called(member)),
            None => Some("a member whose entry is not understood".to_owned()),
        });
        let processes: Vec<_> = processes.collect();
        if processes.is_empty() {
            return Ok(());
        }
        let message = format!("in the {} store's list there is still {}", side.word(), processes.join(", "));
        Err(not_yet(message, Duration::ZERO))
    }
}

/// The phase to go on with.
fn phase_to_repair(look: &Look) -> Phase {
    let records = look.records();
    if look.error(Side::Old).is_some() {
        return records
            .live(Side::New)
            .map_or(Phase::Drain, |read| read.record.stand.phase.max(Phase::Drain));
    }
    if look.error(Side::New).is_some() {
        return records
            .live(Side::Old)
            .map_or(Phase::Shadow, |read| read.record.stand.phase.min(Phase::Shadow));
    }
    match (look.place(), records.live(Side::Old), records.live(Side::New)) {
        (Some(place), ..) => place.phase(),
        // It decided before it lost its data.
        (None, Some(_), _) => Phase::Drain,
        (None, None, Some(new)) => new.record.stand.phase,
        (None, None, None) => Phase::Old,
    }
}

/// The next epoch after whatever is known, of the store that counts then.
fn anew(newest: Stand, phase: Phase, store: TokenBase) -> Result<Stand, Exhausted> {
    let window = newest.window.bounded(store)?.next(store)?;
    Ok(Stand { phase, epoch: newest.epoch + 1, window })
}

fn no_tokens() -> Error {
    let message = "there are no tokens left for another epoch";
    Error::new(ErrorKind::Unsupported, Effect::NotApplied, message)
}
