//! What the watches of a process tell, and how little they may tell.

use super::super::super::*;
use super::super::mutant::Mutant;
use super::super::process::{AHEAD, NOW, Stream};
use super::super::store::{Reply, Request, What, key};
use super::World;

impl World {
    /// The watch on the queue that stands when a request is sent.
    pub(super) fn covering(&self, who: usize) -> Option<WatchId> {
        let process = &self.processes[who];
        match &process.told.queue {
            Some(watch) => watch.since.map(|_| watch.id),
            // The one to come.
            None => matches!(self.mutant, Some(Mutant::BackdatesTheWatch | Mutant::CoversByNumber))
                .then_some(process.last_watch + 1),
        }
    }

    /// How much of a queue an answer shows is free; it says that it shows all only if it does.
    pub(super) fn shown(&self, who: usize, mut seen: QueueSnapshot, choice: u16) -> QueueSnapshot {
        let mode = self.processes[who].mode;
        let shows = 1 + usize::from(choice / 16 % 3);
        let all = std::mem::take(&mut seen.older);
        seen.older = all.iter().take(shows).cloned().collect();
        seen.is_far = choice.is_multiple_of(7);
        let is_all = all.len() <= shows && !choice.is_multiple_of(5);
        if !is_all && !all.is_empty() {
            seen.beyond = Beyond::Unknown;
            let other = all.iter().find(|rival| rival.mode != mode);
            match other.filter(|_| self.mutant != Some(Mutant::ReaderSeesReadersOnly)) {
                // A count, or what lies in other ranges.
                None if mode != Mode::EXCLUSIVE => seen.beyond = Beyond::Alike(all.len() - seen.older.len()),
                Some(other) if mode == Mode::SHARED && !seen.older.contains(other) => {
                    seen.older.push(other.clone());
                }
                _ => {}
            }
        }
        self.mistaken(who, seen, &all)
    }

    /// What a driver makes of that which gets it wrong.
    fn mistaken(&self, who: usize, mut seen: QueueSnapshot, all: &[Rival]) -> QueueSnapshot {
        let mode = self.processes[who].mode;
        let is_permit = !matches!(mode, Mode::EXCLUSIVE | Mode::SHARED);
        match self.mutant {
            Some(Mutant::KeepsTheWitness) if self.processes[who].told.queue.is_some() => {
                seen.beyond = Beyond::Nobody;
            }
            Some(Mutant::ReaderWatchesPredecessor) if mode == Mode::SHARED => {
                (seen.older, seen.beyond) = (predecessor(all), Beyond::Unknown);
            }
            Some(Mutant::PermitWatchesPredecessor) if is_permit => {
                (seen.older, seen.beyond) = (predecessor(all), Beyond::Unknown);
            }
            Some(Mutant::ReaderIgnoresShared) if mode == Mode::SHARED => {
                seen.older.retain(|rival| rival.mode != mode);
            }
            Some(Mutant::OwnCapacity) if is_permit => {
                for rival in &mut seen.older {
                    let weight = rival.mode.weight().min(mode.capacity());
                    rival.mode = Mode::permits(weight, mode.capacity()).expect("permits");
                }
            }
            Some(Mutant::TakesAllForAlike) if is_permit && seen.beyond == Beyond::Unknown => {
                seen.beyond = Beyond::Alike(all.len() - seen.older.len());
            }
            _ => {}
        }
        if seen.older.is_empty() && seen.beyond == Beyond::Unknown {
            seen.beyond = Beyond::Nobody;
        }
        seen
    }

    /// Opens a watch, perhaps at a member that lags behind.
    pub(super) fn open_watch(&mut self, who: usize, target: Target, luck: u16) {
        let now = self.store.revision - Revision::from(luck % 3);
        let process = &mut self.processes[who];
        process.last_watch += 1;
        let id = process.last_watch;
        let (key, from) = match target {
            Target::Queue => (None, None),
            Target::Key(key, from) => (Some(key), from),
        };
        let since = match (self.mutant, &key) {
            (Some(Mutant::BackdatesTheWatch), None) | (Some(Mutant::BackdatesAKeyWatch), Some(_)) => 0,
            _ => from.map_or(now, |from| from - 1),
        };
        if self.mutant == Some(Mutant::EvictsTheWitness) && key.is_some() {
            process.watches.retain(|watch| watch.key.is_none());
            for other in process.told.keys.clone().into_keys() {
                process.told.close(Some(&other));
            }
        }
        process.told.open(key.as_ref(), id);
        process.told.stands(key.as_ref(), since);
        let upto = if since == 0 { now } else { since };
        process.watches.push(Stream { key, upto, is_stalled: false });
    }

    /// One of the watches tells everything of the next revision, or of the last one again.
    pub(super) fn tell(&mut self, who: usize, luck: u16) -> Result<(), String> {
        let process = &mut self.processes[who];
        if process.watches.is_empty() {
            return Ok(());
        }
        let (which, again) = (usize::from(luck / 64) % process.watches.len(), !self.is_calm && luck % 5 == 1);
        let watch = &mut process.watches[which];
        let after = if again { watch.upto - 1 } else { watch.upto };
        let (of, own) = (watch.key.clone(), key(process.session, process.mode));
        let is_told = |(at, key): &&(Revision, Key)| *at > after && of.as_ref().is_none_or(|of| of == key);
        let Some(revision) = self.store.deletions.iter().filter(is_told).map(|(at, _)| *at).min() else {
            return Ok(());
        };
        if watch.is_stalled {
            return Ok(());
        }
        watch.upto = watch.upto.max(revision);
        let deleted = self.store.deletions.iter().filter(is_told).filter(|(at, _)| *at == revision);
        let keys: Vec<_> = deleted.map(|(_, key)| key.clone()).collect();
        let told_at = match self.mutant {
            Some(Mutant::CountsOldDeletions) => revision + 100,
            _ => revision,
        };
        let deletion = |key: &Key| Change { revision: told_at, key: key.clone(), value: None };
        let hides = self.mutant == Some(Mutant::HoldsWithoutItself);
        let changes: Vec<_> = keys.iter().filter(|key| !hides || **key != own).map(deletion).collect();
        process.told.tell(of.as_ref(), &changes, true);
        if self.mutant == Some(Mutant::CountsKeyWatches) {
            process.told.tell(None, &changes, true);
        }
        if of.is_some()
            && self.mutant == Some(Mutant::WitnessGrants)
            && let Some(place) = process.contender.as_ref().and_then(Contender::place)
            && place.create < revision
        {
            let create = place.create;
            return self.end(who, End::Granted(create));
        }
        // Whoever waits has heard it before the session does.
        if keys.contains(&own) {
            self.hear_of_deletion(who, revision)?;
        }
        Ok(())
    }

    /// The stream is cut: all watches of a process end.
    pub(super) fn cut(&mut self, who: usize) {
        let process = &mut self.processes[who];
        if self.mutant == Some(Mutant::MissesTheGap) {
            for watch in &mut process.watches {
                watch.upto = self.store.revision;
            }
            return;
        }
        let queue = process.told.queue.take();
        process.watches.clear();
        process.told.cut();
        if self.mutant == Some(Mutant::CoversByNumber)
            && let Some(mut watch) = queue
        {
            // Opened again, perhaps at a member that lags.
            let since = self.store.revision - 2;
            watch.since = Some(since);
            process.watches.push(Stream { key: None, upto: since, is_stalled: false });
            process.told.queue = Some(watch);
        } else {
            process.told_early = 0;
        }
    }

    /// All watches of a process fall silent.
    pub(super) fn stall(&mut self, who: usize) {
        self.processes[who].watches.iter_mut().for_each(|watch| watch.is_stalled = true);
    }

    /// A watch is closed: on the queue, as nobody would open one now, or on a key that is not in use.
    pub(super) fn give_up_a_watch(&mut self, who: usize, luck: u16) {
        let process = &mut self.processes[who];
        let used =
            process.contender.as_ref().and_then(Contender::place).map_or(&[][..], QueuePosition::watched);
        if process.watches.is_empty() {
            return;
        }
        let which = usize::from(luck) % process.watches.len();
        let key = process.watches[which].key.clone();
        if key.as_ref().is_none_or(|key| used.iter().all(|used| used.key != *key)) {
            process.watches.remove(which);
            process.told.close(key.as_ref());
            process.told_early = 0;
        }
    }

    /// A waiting client reads its own entry and its blocking set. If one of them is gone, the watch that did not report it is
    /// opened again.
    pub(super) fn check_place(&mut self, who: usize) {
        let process = &self.processes[who];
        let Some(place) = process.contender.as_ref().and_then(Contender::place) else {
            return;
        };
        let step = process.contender.as_ref().map(|contender| contender.next(NOW, AHEAD, &process.told));
        if process.reply.is_some() || process.has_expired || step != Some(Step::Wait) {
            return;
        }
        let (session, create, hears_all) = (process.session, place.create, place.hears_all());
        let (mut blocking_set, watched) = (place.blocking_set(&process.told), place.watched().to_vec());
        let knows_little = blocking_set.is_empty();
        match self.mutant {
            Some(Mutant::ChecksItselfOnly) => blocking_set.clear(),
            Some(Mutant::ChecksByName) => {
                for rival in &mut blocking_set {
                    let entries = self.store.entries();
                    let there = entries.iter().find(|(id, entry)| key(*id, entry.mode) == rival.key);
                    rival.create = there.map_or(rival.create, |(_, entry)| entry.create);
                }
            }
            _ => {}
        }
        let reply = self.store.apply(&Request { session, what: What::Check(create, blocking_set) });
        if matches!(reply, Reply::Checked(false)) || knows_little {
            let process = &mut self.processes[who];
            if hears_all {
                process.watches.retain(|watch| watch.key.is_some());
                process.told.close(None);
            }
            for rival in watched {
                process.watches.retain(|watch| watch.key.as_ref() != Some(&rival.key));
                process.told.close(Some(&rival.key));
            }
            process.contender.as_mut().into_iter().for_each(Contender::doubt);
        }
    }
}

/// The one before an entry, as if it kept everybody out.
fn predecessor(all: &[Rival]) -> Vec<Rival> {
    let first = all.first().cloned();
    first.map(|first| Rival { mode: Mode::EXCLUSIVE, ..first }).into_iter().collect()
}
