//! The contract on top of the engine: one session of one manager.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tokio::sync::oneshot;

use super::engine::{EngineReply, Front, Granted, Now, SessionId};
use super::ledger::MemoryLedger;
use super::store::{MemoryStore, StoreState};
use crate::backend::env::Env;
use crate::backend::ledger::MoveLedger;
use crate::backend::stage;
use crate::backend::{
    AcquireRequest, Attempt, Finding, Grant, Holder, Inbox, Lease, LeaseId, LeaseScope, LockBackend,
    LockState, Renewal, Revoke, Severity, StoreEvent, TokenBase, closed,
};
use crate::clock::Moment;
use crate::words::error::{Error, Result};
use crate::words::guarantees::Guarantees;
use crate::words::loss::LostReason;
use crate::words::name::LockName;
use crate::words::owner::OwnerId;

#[derive(Debug)]
pub(super) struct MemoryBackend {
    store: MemoryStore,
    env: Env,
    session: SessionId,
    inbox: Inbox,
    /// Added to the engine's counters, which otherwise start again.
    token_base: u64,
    closed: Arc<AtomicBool>,
}

impl MemoryBackend {
    pub(super) fn open(store: MemoryStore, env: Env) -> Result<Self> {
        let (session, inbox, token_base) = store.act(&**env.clock(), |state, _, _| {
            stage::admit(&env, state.book.record.as_ref().map(|record| &*record.value))?;
            let token_base = if env.adds_token_base() { state.token_base } else { 0 };
            let (session, inbox) = state.open_session(token_base, !env.adds_token_base());
            Ok((session, inbox, token_base))
        })?;
        Ok(Self { store, env, session, inbox, token_base, closed: Arc::default() })
    }

    /// One request: answered, or queued with a receiver of the grant.
    fn request(
        &self,
        request: &AcquireRequest,
        queue: bool,
    ) -> (EngineReply, Option<oneshot::Receiver<Granted>>) {
        self.store.act(&**self.env.clock(), |state, now, pushes| {
            let answer = state.engine.acquire(now, self.session, request, queue, pushes);
            let EngineReply::Queued { lease, holder } = &answer else {
                return (answer, None);
            };
            let lease = self.lease(*lease, request.ttl, now.asker);
            state.tell(self.session, StoreEvent::LeaseOpened(lease));
            let (name, holder) = (request.name.clone(), self.holder(holder));
            state.tell(self.session, StoreEvent::Queued { name, holder });
            let granted = state.wait_for(request.owner);
            (answer, Some(granted))
        })
    }

    /// Waits for a queued entry's grant; `None` when the entry is gone.
    async fn granted(
        &self,
        request: &AcquireRequest,
        lease: LeaseId,
        mut granted: oneshot::Receiver<Granted>,
    ) -> Option<Granted> {
        let mut place =
            WaitGuard { backend: self, name: &request.name, owner: request.owner, lease, over: false };
        loop {
            let left = self.store.act(&**self.env.clock(), |state, now, pushes| {
                state.engine.settle(&request.name, now, pushes);
                state.engine.next_expiry(&request.name, now).map(|expires| expires.since(now.store))
            });
            tokio::select! {
                biased;
                granted = &mut granted => {
                    place.over = true;
                    return granted.ok();
                }
                () = async {
                    match left {
                        Some(left) => self.env.sleep(left).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
        }
    }

    fn grant(&self, name: &LockName, granted: Granted) -> Grant {
        let Granted { owner, lease, ttl, sent_at, counter } = granted;
        let counter = counter.saturating_add(self.token_base);
        Grant { name: name.clone(), owner, lease: self.lease(lease, ttl, sent_at), counter }
    }

    fn lease(&self, id: LeaseId, ttl: std::time::Duration, sent_at: Moment) -> Lease {
        Lease { id, scope: LeaseScope::Entry, ttl, deadline: self.env.deadline(sent_at, ttl) }
    }

    fn holder(&self, front: &Front) -> Holder {
        let counter = front.counter.saturating_add(self.token_base);
        let mut holder = Holder::new(&*front.label).with_counter(counter);
        holder.since = self.env.wall_time().checked_sub(front.held_for);
        holder.metadata = front.metadata.as_deref().map(str::to_owned);
        (holder.mode, holder.ttl) = (front.mode, Some(front.ttl));
        holder
    }

    fn state(&self, state: &StoreState, name: LockName, now: Now) -> LockState {
        let (holders, contenders) = state.engine.inspect(&name, now);
        LockState::new(name, holders.iter().map(|holder| self.holder(holder)), contenders)
    }

    /// Ends the entry of `owner` at `name`; returns whether there was one.
    fn let_go(&self, name: &LockName, owner: OwnerId) -> bool {
        self.store.act(&**self.env.clock(), |state, now, pushes| {
            state.waiting.remove(&owner);
            state.engine.release(now, name, owner, pushes)
        })
    }

    fn open_or_refuse(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) { Err(closed()) } else { Ok(()) }
    }
}

#[async_trait]
impl LockBackend for MemoryBackend {
    fn guarantees(&self) -> Guarantees {
        let modes = Guarantees::SHARED | Guarantees::PERMITS;
        let leases = Guarantees::LEASED | Guarantees::PER_LOCK_TTL;
        modes | leases | Guarantees::FENCED | Guarantees::FIFO | Guarantees::RUNTIME_FREE
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.open_or_refuse()?;
        Ok(match self.request(request, false).0 {
            EngineReply::Granted(granted) => Attempt::Granted(self.grant(&request.name, granted)),
            EngineReply::Queued { holder, .. } | EngineReply::Busy { holder } => {
                Attempt::Held { holder: Some(self.holder(&holder)) }
            }
        })
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant> {
        self.open_or_refuse()?;
        let granted = match self.request(request, true) {
            (EngineReply::Granted(granted), _) => Some(granted),
            (EngineReply::Queued { lease, .. }, Some(granted)) => self.granted(request, lease, granted).await,
            (EngineReply::Queued { .. } | EngineReply::Busy { .. }, _) => None,
        };
        match granted {
            Some(granted) => Ok(self.grant(&request.name, granted)),
            None => {
                self.open_or_refuse()?;
                Err(Error::lost(LostReason::Gone))
            }
        }
    }

    async fn renew(&self, leases: &[LeaseId]) -> Vec<Renewal> {
        self.store.act(&**self.env.clock(), |state, now, pushes| {
            let renew = |lease: &LeaseId| match state.engine.renew(now, self.session, *lease, pushes) {
                Some(ttl) => Renewal::Until(self.env.deadline(now.asker, ttl)),
                None => Renewal::Gone(LostReason::Gone),
            };
            leases.iter().map(renew).collect()
        })
    }

    async fn release(&self, grant: &Grant) -> Result<()> {
        if self.let_go(&grant.name, grant.owner) { Ok(()) } else { Err(Error::lost(LostReason::Gone)) }
    }

    fn events(&self) -> BoxStream<'static, StoreEvent> {
        self.inbox.stream()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.open_or_refuse()?;
        Ok(self.store.act(&**self.env.clock(), |state, now, pushes| {
            state.engine.settle(name, now, pushes);
            self.state(state, name.clone(), now)
        }))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.open_or_refuse()?;
        Ok(self.store.act(&**self.env.clock(), |state, now, pushes| {
            let mut states = Vec::new();
            for name in state.engine.names(prefix) {
                state.engine.settle(&name, now, pushes);
                states.push(self.state(state, name, now));
            }
            states.retain(|state| state.holder().is_some());
            states
        }))
    }

    async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        self.open_or_refuse()?;
        Ok(self.store.act(&**self.env.clock(), |state, now, pushes| {
            state.engine.settle(name, now, pushes);
            let holders = self.state(state, name.clone(), now).holders;
            for target in state.engine.targets(name) {
                match how {
                    Revoke::Ask { grace } => {
                        let (name, counter) = (name.clone(), state.counter_of(target));
                        state.tell(
                            target.session,
                            StoreEvent::RevocationRequested { name, counter, within: grace },
                        );
                    }
                    Revoke::Force => {
                        state.engine.release(now, name, target.owner, pushes);
                        state.tell_lost(name, target, LostReason::Revoked);
                    }
                }
            }
            holders
        }))
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.open_or_refuse()?;
        Ok(vec![Finding::new(Severity::Ok, "scope", "locks exclude tasks of this process only")])
    }

    async fn token_base(&self) -> Result<TokenBase> {
        self.open_or_refuse()?;
        Ok(self.store.act(&**self.env.clock(), |state, _, _| TokenBase {
            base: state.token_base,
            floor: state.engine.counter,
            sessions: Some(state.others(self.session)),
        }))
    }

    async fn raise_token_base(&self, at_least: u64) -> Result<()> {
        self.open_or_refuse()?;
        self.store.act(&**self.env.clock(), |state, _, _| state.raise_token_base(at_least));
        Ok(())
    }

    fn ledger(&self) -> Option<Arc<dyn MoveLedger>> {
        let (store, env, closed) = (self.store.clone(), self.env.clone(), Arc::clone(&self.closed));
        Some(Arc::new(MemoryLedger { store, env, closed }))
    }

    async fn close(&self) -> Result<()> {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.store.act(&**self.env.clock(), |state, now, pushes| {
                state.engine.close(now, self.session, pushes);
                state.close_session(self.session);
            });
        }
        Ok(())
    }
}

/// A place in the store's queue, which is left when the acquisition is dropped.
struct WaitGuard<'a> {
    backend: &'a MemoryBackend,
    name: &'a LockName,
    owner: OwnerId,
    lease: LeaseId,
    over: bool,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let Self { backend, name, owner, lease, .. } = *self;
        backend.let_go(name, owner);
        backend.store.act(&**backend.env.clock(), |state, _, _| {
            state.tell(backend.session, StoreEvent::LeaseLost { lease, reason: LostReason::Released });
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::{FutureExt, StreamExt};

    use super::*;
    use crate::Timing;
    use crate::backend::Mode;
    use crate::clock::{Clock, TokioClock};

    /// Each session gets events about its holds with the counters that it was granted, whatever base others add.
    #[tokio::test]
    async fn a_hold_is_named_by_the_counter_of_its_session() {
        let store = MemoryStore::new();
        let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap();
        let open = |env: Env| MemoryBackend::open(store.clone(), env).unwrap();
        let early = open(env.clone());
        early.raise_token_base(100).await.unwrap();
        let (later, moving) = (open(env.clone()), open(env.without_token_base()));
        let name = LockName::new("a").unwrap();
        for (session, adds) in [(&early, 0), (&later, 100), (&moving, 0)] {
            let own = store.act(&**session.env.clock(), |state, _, _| state.engine.counter) + 1;
            let request = AcquireRequest::new(name.clone(), session.env.owner_id(), Timing::DEFAULT_TTL);
            let Attempt::Granted(grant) = session.try_acquire(&request).await.unwrap() else {
                panic!("it is free");
            };
            assert_eq!(grant.counter, own + adds);
            let within = Duration::from_secs(1);
            early.revoke(&name, Revoke::Ask { grace: within }).await.unwrap();
            early.revoke(&name, Revoke::Force).await.unwrap();
            let heard = session.events().take(2).collect::<Vec<_>>().now_or_never().unwrap();
            let (name, counter) = (name.clone(), grant.counter);
            let asked = StoreEvent::RevocationRequested { name: name.clone(), counter, within };
            let lost = StoreEvent::GrantLost { name, counter, reason: LostReason::Revoked };
            assert_eq!(heard, [asked, lost]);
        }
    }

    /// A waiter behind a dead writer is granted when the writer's lease ends, also if that came to the front meanwhile.
    #[tokio::test(start_paused = true)]
    async fn dead_entry_at_the_front_delays_no_longer() {
        const TTL: Duration = Duration::from_secs(12);
        let (clock, store) = (TokioClock::new(), MemoryStore::new());
        let env = Env::new(Timing::for_ttl(TTL)).unwrap().with_clock(Arc::new(clock));
        let session = MemoryBackend::open(store, env.clone()).unwrap();
        let name = LockName::new("a").unwrap();
        let asks = |mode| AcquireRequest { mode, ..AcquireRequest::new(name.clone(), env.owner_id(), TTL) };
        let (reads, dies, leaves, waits) =
            (asks(Mode::SHARED), asks(Mode::EXCLUSIVE), asks(Mode::EXCLUSIVE), asks(Mode::SHARED));
        let began = clock.now();
        let read = session.acquire(&reads).await.unwrap();
        let (mut leaving, mut dead) = (session.acquire(&leaves), session.acquire(&dies));
        assert!((&mut leaving).now_or_never().is_none() && (&mut dead).now_or_never().is_none());
        env.sleep(TTL / 2).await;
        // The first two live: their leases are the first that were opened.
        session.renew(&[LeaseId::new(1), LeaseId::new(2)]).await;
        let mut waiting = session.acquire(&waits);
        assert!((&mut waiting).now_or_never().is_none());
        drop(leaving);
        assert!((&mut waiting).now_or_never().is_none());
        let beside = waiting.await.unwrap();
        assert_eq!(clock.now(), began + TTL);
        assert!(read.counter < beside.counter);
        drop(dead);
    }

    /// A wait in a closed session ends, wherever it is polled.
    #[tokio::test]
    async fn a_wait_ends_with_its_session() {
        let store = MemoryStore::new();
        let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap();
        let open = || MemoryBackend::open(store.clone(), env.clone()).unwrap();
        let (holds, waits) = (open(), open());
        let name = LockName::new("a").unwrap();
        let request = || AcquireRequest::new(name.clone(), env.owner_id(), Timing::DEFAULT_TTL);
        let (first, second) = (request(), request());
        let held = holds.acquire(&first).await.unwrap();
        let mut waiting = waits.acquire(&second);
        assert!((&mut waiting).now_or_never().is_none());
        waits.close().await.unwrap();
        let refused = waiting.now_or_never().expect("it ends with the session").unwrap_err();
        assert_eq!(*refused.kind(), crate::ErrorKind::Closed);
        holds.release(&held).await.unwrap();
        assert!(store.is_empty());
    }
}
