//! The knowledge and the claims of the process. Every change is under one mutex, and nothing in it waits: I/O is left to
//! `todo`.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::backend::{
    AcquireRequest, Events, Grant, Holder, Lease, LeaseId, LeaseScope, StoreEvent,
};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{Error, ErrorKind, LockName, LostReason};
use tokio::sync::Notify;

use super::claim::{Claim, Slot, Stage, Upgrade};
use super::leases::Leases;
use super::pending_cleanup::PendingCleanup;
use super::signature::Signature;
use super::watched::Watched;
use crate::protocol::member::ForeignClients;
use crate::protocol::parts::{Act, Part};
use crate::protocol::view::{Knowledge, View};
use crate::protocol::{Class, Pair, SIDES};

pub(super) struct Book {
    knowledge: Knowledge,
    /// It may have changed since the view was made of it.
    has_learned: bool,
    /// A hold, or the lack of a view, contradicts it.
    owes_acknowledgement: bool,
    /// The view that follows, as every claim knows it.
    view: Option<View>,
    pub(super) entries: Pair<Signature>,
    /// Why the process does not know a store's record.
    pub(super) trouble: Pair<Option<Error>>,
    /// The move: its id, and the namespaces as its records name them.
    pub(super) of: Option<(u64, Pair<String>)>,
    pub(super) slots: BTreeMap<LockName, Box<Slot>>,
    pub(super) leases: Leases,
    /// The manager's label in its requests.
    pub(super) label: Arc<str>,
    /// Until when the old store is not waited for (phase `drain`).
    pub(super) shunned_until: Option<Moment>,
    pub(super) foreign_clients: Option<ForeignClients>,
    /// Until when no further meeting is written down.
    pub(super) noted_until: Option<Moment>,
    /// How many meetings are being written.
    pub(super) noting: Arc<Watched<usize>>,
    /// The last name whose holder in the old store was checked.
    pub(super) looked_at: Option<LockName>,
    pub(super) events: Events,
    pub(super) todo: Vec<Todo>,
}

/// The I/O that is due once the mutex is free.
pub(super) enum Todo {
    Wake(Arc<Notify>),
    /// Read that store, and write the entry if it has changed.
    Poke(Side),
    /// Release it until that has ended.
    Settle(Arc<PendingCleanup>),
    /// Acquire the lock that a hold needs.
    Upgrade(Upgrade),
    /// Write down that a foreign client holds it in the old store.
    Note(LockName),
    /// A session of which only the end ends its entries.
    GiveUp(Side, LeaseId),
}

impl Todo {
    /// The pending releases of a claim.
    fn settle(cleanups: Pair<Option<Arc<PendingCleanup>>>) -> impl Iterator<Item = Self> {
        cleanups.new.into_iter().chain(cleanups.old).map(Self::Settle)
    }
}

impl Book {
    pub(super) fn new(events: Events, noting: Arc<Watched<usize>>) -> Self {
        Self {
            knowledge: Knowledge::default(),
            has_learned: false,
            owes_acknowledgement: false,
            view: None,
            entries: Pair::default(),
            trouble: Pair::default(),
            of: None,
            slots: BTreeMap::new(),
            leases: Leases::new(),
            label: "".into(),
            shunned_until: None,
            foreign_clients: None,
            noted_until: None,
            noting,
            looked_at: None,
            events,
            todo: Vec::new(),
        }
    }

    pub(super) fn view(&self) -> Option<View> {
        self.view
    }

    pub(super) fn drains(&self) -> bool {
        self.view.is_some_and(|view| view.phase == Phase::Drain)
    }

    pub(super) fn why_blind(&self) -> Error {
        let of = |side: Side| self.trouble[side].clone().filter(|_| self.knowledge.known(side).is_none());
        of(Side::Old).or_else(|| of(Side::New)).unwrap_or_else(|| {
            let message = "cannot read the phase of the move";
            Error::not_applied(ErrorKind::Unavailable, message)
        })
    }

    pub(super) fn pass_to(&mut self, now: Moment) {
        self.leases.now = now;
        let mut lapsed = false;
        for side in SIDES {
            if self.knowledge.is_signed(side) && self.backed_until(side).has_passed(now) {
                self.lapse(side);
                lapsed = true;
            }
        }
        if lapsed {
            self.settle();
        }
    }

    /// Advances every claim that has changed since the last reading.
    pub(super) fn settle(&mut self) {
        if std::mem::take(&mut self.has_learned) {
            let view = self.knowledge.view();
            if self.view != view {
                self.view = view;
                self.follow_view();
            }
            self.acknowledge();
        } else if self.owes_acknowledgement {
            self.acknowledge();
        }
    }

    pub(super) fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    pub(super) fn learning(&mut self) -> &mut Knowledge {
        self.has_learned = true;
        &mut self.knowledge
    }

    /// Until when the process's entry at `side` is shown.
    pub(super) fn backed_until(&self, side: Side) -> Deadline {
        let Some(lease) = self.entries[side].lease.as_ref().filter(|_| self.knowledge.is_signed(side)) else {
            return Deadline::At(Moment::from_nanos(0));
        };
        self.leases.deadline(side, lease)
    }

    /// Its entry there may not be seen any more.
    pub(super) fn lapse(&mut self, side: Side) {
        self.learning().lapsed(side);
        self.entries[side].lease = None;
        self.entries[side].signed_at = None;
        self.todo.push(Todo::Poke(side));
        for name in self.names() {
            self.unback(&name, side);
        }
    }

    /// The grant of the claim on `name` at `side` must not be counted on: it is released.
    fn unback(&mut self, name: &LockName, side: Side) {
        let Some(claim) = self.claim(name) else { return };
        let act = match &mut claim.stage {
            Stage::Asking { lapsed, .. } => {
                lapsed[side] = true;
                let wake = Arc::clone(&claim.wake);
                self.todo.push(Todo::Wake(wake));
                None
            }
            Stage::Holding { hold, .. } => hold.unbacked(side).1,
        };
        self.act(name, act);
        self.advance(name);
    }

    /// Acknowledges the versions that no hold contradicts, and has the entry written.
    fn acknowledge(&mut self) {
        self.owes_acknowledgement = false;
        for side in SIDES {
            let known = self.knowledge.known(side).map(|seen| seen.version);
            if known.is_none() || known == self.knowledge.acknowledged(side) {
                continue;
            }
            // Checked at every reading while a claim rests there: the search ends with the first.
            let is_alone = self.slots.values().any(|slot| slot.rests_on(side));
            if self.knowledge.acknowledge(side, is_alone) {
                self.resign(side);
            } else {
                self.owes_acknowledgement = true;
            }
        }
    }

    /// Every claim gets the new view.
    fn follow_view(&mut self) {
        let view = self.view;
        for name in self.names() {
            let trusted = self.trusted(&name);
            let Some(claim) = self.claim(&name) else { continue };
            let Stage::Holding { hold, told, .. } = &mut claim.stage else {
                let wake = Arc::clone(&claim.wake);
                self.todo.push(Todo::Wake(wake));
                continue;
            };
            let mut after = *hold;
            after.viewed(view);
            // A part that was not needed may have been renewed less than the guard relies on (session-3).
            let weak = |side: &Side| {
                let counts = hold.parts.held(*side) && after.needs(*side) && !hold.needs(*side);
                counts && trusted[*side] < Some(*told)
            };
            let weak: Vec<_> = SIDES.into_iter().filter(weak).collect();
            for side in &weak {
                hold.uncounted(*side);
            }
            hold.viewed(view);
            for side in weak {
                self.resign(side);
            }
            self.advance(&name);
        }
    }

    /// A grant at `side` counts once it lasts as long as its guard is trusted: for that the entry is signed anew.
    pub(super) fn resign(&mut self, side: Side) {
        self.entries[side].news += 1;
        self.todo.push(Todo::Poke(side));
    }

    /// Carries out the next actions of a hold.
    pub(super) fn advance(&mut self, name: &LockName) {
        loop {
            let Some(Claim { stage: Stage::Holding { hold, .. }, .. }) = self.claim(name) else { return };
            // What is left of one that is over goes when the core, which is notified first, releases it.
            if hold.over {
                self.tell_over(name);
                return;
            }
            let Some(act) = hold.step() else { return };
            self.act(name, Some(act));
        }
    }

    pub(super) fn act(&mut self, name: &LockName, act: Option<Act>) {
        match act {
            None => {}
            Some(Act::Release(side)) => self.begin_release(name, side),
            Some(Act::Drop(side)) => {
                if let Some(slot) = self.slots.get_mut(name) {
                    slot.stop_asking(name, side, self.leases.now);
                }
                // It may have been granted, and not counted on yet.
                self.begin_release(name, side);
            }
            Some(Act::Ask(side)) => self.ask_for_hold(name, side),
        }
    }

    /// The grant of the claim on `name` at `side` is to be released.
    pub(super) fn begin_release(&mut self, name: &LockName, side: Side) {
        if let Some(slot) = self.slots.get_mut(name) {
            self.todo.extend(slot.begin_release(side, &mut self.leases, &self.events).map(Todo::Settle));
        }
    }

    /// The part of the claim on `name` at `side` has ended at the store. An entry is released all the same.
    pub(super) fn part_over(&mut self, name: &LockName, side: Side) {
        let Some(claim) = self.claim(name) else { return };
        let Some(grant) = claim.parts[side].take() else { return };
        let (id, lease) = (claim.id, grant.lease);
        match &mut claim.stage {
            Stage::Asking { lost, .. } => {
                lost[side] = true;
                let wake = Arc::clone(&claim.wake);
                self.todo.push(Todo::Wake(wake));
            }
            Stage::Holding { hold, .. } if hold.parts.held(side) => drop(hold.gone(side)),
            // It was granted, and not counted on yet.
            Stage::Holding { hold, .. } => hold.failed(side),
        }
        self.leases.absorb(side, &lease, &self.events);
        if let Some(slot) = self.slots.get_mut(name).filter(|_| lease.scope == LeaseScope::Entry) {
            let cleanup = PendingCleanup::of_grant(id, side, false, grant, self.leases.now);
            slot.cleanups[side] = Some(Arc::clone(&cleanup));
            self.todo.push(Todo::Settle(cleanup));
        }
        self.advance(name);
    }

    /// Reports the end of a hold to the core, once.
    fn tell_over(&mut self, name: &LockName) {
        let Some(claim) = self.claim(name) else { return };
        if let Stage::Holding { told_over, .. } = &mut claim.stage
            && !std::mem::replace(told_over, true)
        {
            let lease = claim.id;
            self.events.tell(StoreEvent::LeaseLost { lease, reason: LostReason::Gone });
        }
    }

    /// The names of the claims with a part that hangs on that lease.
    pub(super) fn hanging_on(&self, side: Side, lease: LeaseId) -> Vec<LockName> {
        let hangs = |slot: &Slot| {
            let part = slot.claim.as_ref().and_then(|claim| claim.parts[side].as_ref());
            part.is_some_and(|part| part.lease.id == lease)
        };
        self.slots.iter().filter(|(_, slot)| hangs(slot)).map(|(name, _)| name.clone()).collect()
    }

    /// No further request uses a session of `side`: only its end ends its entries.
    pub(super) fn give_up(&mut self, side: Side, lease: LeaseId) {
        self.lease_over(side, lease, LostReason::SessionLost);
        self.todo.push(Todo::GiveUp(side, lease));
    }

    pub(super) fn lease_over(&mut self, side: Side, lease: LeaseId, reason: LostReason) {
        self.leases.lost(side, lease, reason, &self.events);
        if reason == LostReason::Released {
            return;
        }
        for name in self.hanging_on(side, lease) {
            self.part_over(&name, side);
        }
        let is_entry = |entry: &Lease| entry.scope == LeaseScope::Session && entry.id == lease;
        if self.entries[side].lease.as_ref().is_some_and(is_entry) {
            self.lapse(side);
        }
    }

    /// The same holder of `name` with the token that every process knows, if there is one: exactly for a hold of this
    /// process, and by the number of the store that decides for others.
    pub(super) fn known_to_all(&self, side: Side, name: &LockName, mut holder: Holder) -> Holder {
        let counts = |view: View| (view.class() == Class::Old) == (side == Side::Old);
        let stand = self.view.filter(|view| counts(*view)).map(|view| view.seen.stand);
        let raw = holder.token.take().map(|token| token.counter());
        let counter = raw.and_then(|raw| {
            self.counter_of(side, name, raw).or_else(|| stand.and_then(|stand| stand.counter(raw)))
        });
        match counter {
            Some(counter) => holder.with_counter(counter),
            None => holder,
        }
    }

    pub(super) fn claim(&mut self, name: &LockName) -> Option<&mut Claim> {
        self.slots.get_mut(name)?.claim.as_mut()
    }

    /// Wakes the acquisition, which checks again.
    pub(super) fn wake_all(&mut self) {
        let claims = self.slots.values().filter_map(|slot| slot.claim.as_ref());
        self.todo.extend(claims.map(|claim| Todo::Wake(Arc::clone(&claim.wake))));
    }

    pub(super) fn names(&self) -> Vec<LockName> {
        let claimed = self.slots.iter().filter(|(_, slot)| slot.claim.is_some());
        claimed.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn begin(&mut self, request: &AcquireRequest) -> (LeaseId, Arc<Notify>) {
        if self.label != request.label {
            self.label = Arc::clone(&request.label);
            self.resign(Side::Old);
            self.resign(Side::New);
        }
        let slot = self.slots.entry(request.name.clone()).or_default();
        // An ended claim may not have been released.
        let left = slot.let_go(&request.name, &mut self.leases, &self.events);
        self.todo.extend(Todo::settle(left));
        let id = self.leases.fresh();
        (id, slot.claim(id, request, self.view))
    }

    /// The claim `id` on `name` is not wanted any more, if it is still there.
    pub(super) fn let_go(&mut self, name: &LockName, id: LeaseId) {
        let slot = self.slots.get_mut(name).filter(|slot| slot.claimed_as() == Some(id));
        if let Some(slot) = slot {
            let left = slot.let_go(name, &mut self.leases, &self.events);
            self.todo.extend(Todo::settle(left));
        }
    }

    /// The core abandons a lease that passed its deadline, and releases it only if the loss was reported.
    pub(super) fn let_go_of_what_is_given_up(&mut self, now: Moment) {
        for (name, slot) in &mut self.slots {
            let stage = slot.claim.as_ref().map(|claim| &claim.stage);
            if matches!(stage, Some(Stage::Holding { told, .. }) if told.has_passed(now)) {
                let left = slot.let_go(name, &mut self.leases, &self.events);
                self.todo.extend(Todo::settle(left));
            }
        }
    }

    /// The releases of `name` in progress at `side`.
    pub(super) fn pending_cleanup(&self, name: &LockName, side: Side) -> Option<Arc<PendingCleanup>> {
        self.slots.get(name)?.cleanups[side].clone()
    }

    pub(super) fn settled(&mut self, cleanup: &Arc<PendingCleanup>) {
        let (name, side) = (&cleanup.name, cleanup.side);
        let Some(slot) = self.slots.get_mut(name) else { return };
        if !slot.cleanups[side].as_ref().is_some_and(|pending| Arc::ptr_eq(pending, cleanup)) {
            return;
        }
        slot.cleanups[side] = None;
        if let Some(claim) = slot.claim.as_mut().filter(|claim| claim.id == cleanup.claim) {
            match &mut claim.stage {
                Stage::Asking { contender, .. } if contender.parts[side] == Part::Leaving => {
                    contender.gone(side)
                }
                Stage::Holding { hold, .. } if hold.parts[side] == Part::Leaving => drop(hold.gone(side)),
                _ => {}
            }
            self.todo.push(Todo::Wake(Arc::clone(&claim.wake)));
        }
        if slot.claim.is_some() {
            self.advance(name);
        }
    }

    /// A grant to the claim `id` on `name` at `side`. A claim that has ended releases it.
    pub(super) fn granted(&mut self, name: &LockName, id: LeaseId, side: Side, grant: Grant) {
        let (raw, lease) = (grant.counter, grant.lease);
        let is_over = self.leases.is_over(side, &lease);
        let Some(claim) = self.claim(name).filter(|claim| claim.id == id) else {
            self.todo.push(Todo::Settle(PendingCleanup::of_grant(id, side, false, grant, self.leases.now)));
            return;
        };
        claim.parts[side] = Some(grant);
        if let Stage::Asking { contender, .. } = &mut claim.stage {
            contender.granted(side, raw);
        }
        let was_lost = claim.early[side].lost.take() == Some(raw);
        if is_over || was_lost {
            self.unback(name, side);
        }
    }

    /// Counts on the grants of the hold of `name`, once they last as long as the guard trusts it.
    pub(super) fn admit(&mut self, name: &LockName) {
        let trusted = self.trusted(name);
        let Some(Claim { stage: Stage::Holding { hold, told, .. }, parts, .. }) = self.claim(name) else {
            return;
        };
        for side in SIDES {
            let Some(part) = &parts[side] else { continue };
            if !hold.parts.held(side) && trusted[side].is_some_and(|until| until >= *told) {
                hold.granted(side, part.counter);
            }
        }
    }

    /// Until when each part of the claim on `name` can be trusted.
    pub(super) fn trusted(&self, name: &LockName) -> Pair<Option<Deadline>> {
        let claim = self.slots.get(name).and_then(|slot| slot.claim.as_ref());
        claim.map_or_else(Pair::default, |claim| claim.trusted(&self.leases, self.backed()))
    }

    /// Until when the process's entries are shown.
    pub(super) fn backed(&self) -> Pair<Deadline> {
        Pair::each(|side| self.backed_until(side))
    }
}
