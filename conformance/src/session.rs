//! A process that speaks the raw contract: no queue, no watchdog, nothing that renews.

#![expect(clippy::missing_errors_doc, reason = "an error is the failure of the case")]

use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use leasehold_core::backend::ledger::MoveLedger;
use leasehold_core::backend::{
    AcquireRequest, Attempt, Grant, Lease, LeaseId, LeaseScope, LockBackend, Mode, Renewal, StoreEvent,
};
use leasehold_core::{Env, Guarantees, LockName, OwnerId};

use crate::failure::{Failure, Outcome};
use crate::subject::Pace;
use crate::task::Task;
use crate::world::World;

/// One session of the store under test.
#[derive(Clone, Debug)]
pub struct Session {
    world: World,
    /// The session itself.
    pub backend: Arc<dyn LockBackend>,
    /// Its surroundings.
    pub env: Env,
    /// How it asks for locks.
    mode: Mode,
}

impl Session {
    pub(crate) fn new(world: World, backend: Arc<dyn LockBackend>, env: Env) -> Self {
        Self { world, backend, env, mode: Mode::EXCLUSIVE }
    }

    /// The same session, asking for locks in `mode`.
    #[must_use]
    pub fn wants(&self, mode: Mode) -> Self {
        Self { mode, ..self.clone() }
    }

    /// A fresh acquisition of `name`.
    pub fn request(&self, name: &str) -> Outcome<AcquireRequest> {
        let mut request = AcquireRequest::new(LockName::new(name)?, self.env.owner_id(), self.world.ttl());
        request.mode = self.mode;
        Ok(request)
    }

    /// Waits for the lock; owned, so that it can be polled and dropped at will. If the lease ends meanwhile,
    /// because it is not renewed, it acquires again, as the core does.
    pub fn acquire(&self, name: &str) -> BoxFuture<'static, Outcome<Grant>> {
        let (session, name) = (self.clone(), name.to_owned());
        Box::pin(async move {
            loop {
                let granted = session.backend.acquire(&session.request(&name)?).await;
                match granted {
                    Err(error) if error.lost_reason().is_some() => session.world.settle().await,
                    granted => return Ok(granted?),
                }
            }
        })
    }

    /// Waits for the lock in a task.
    pub fn acquire_aside(&self, name: &str) -> Task<Outcome<Grant>> {
        Task::start(self.acquire(name))
    }

    /// Asks once; `None` when the lock is held.
    pub async fn try_acquire(&self, name: &str) -> Outcome<Option<Grant>> {
        match self.backend.try_acquire(&self.request(name)?).await? {
            Attempt::Granted(grant) => Ok(Some(grant)),
            Attempt::Held { .. } => Ok(None),
        }
    }

    /// Takes a lock that must be free.
    pub async fn take(&self, name: &str) -> Outcome<Grant> {
        let granted = self.try_acquire(name).await?;
        granted.ok_or_else(|| Failure::new(format!("{name} is not free")))
    }

    /// The ledger of the namespace, which a case asks for only on a store that has one.
    pub fn ledger(&self) -> Outcome<Arc<dyn MoveLedger>> {
        self.backend.ledger().ok_or_else(|| Failure::new("the store has no ledger"))
    }

    /// Renews one lease.
    pub async fn renew(&self, lease: LeaseId) -> Outcome<Renewal> {
        let answers = self.backend.renew(&[lease]).await;
        answers.into_iter().next().ok_or_else(|| Failure::new("a renewal without answer"))
    }

    /// Keeps a grant alive as the core would, with the sessions that the store has announced (B3), deaf to everything else.
    pub fn keep(&self, grant: &Grant) -> Task<()> {
        let (session, lease) = (self.clone(), grant.lease.id);
        Task::start(async move {
            let (mut events, mut leases) = (session.backend.events(), vec![lease]);
            loop {
                session.world.pass(session.world.ttl() / 3).await;
                while let Some(Some(event)) = events.next().now_or_never() {
                    if let StoreEvent::LeaseOpened(opened) = event
                        && opened.scope == LeaseScope::Session
                        && opened.id != lease
                    {
                        leases.push(opened.id);
                    }
                }
                // What it answers is what this process is deaf to.
                let _ = session.backend.renew(&leases).await;
            }
        })
    }
}

/// A process takes `name` and dies.
///
/// In real time it has a runtime of its own, which is stopped under it. In virtual time it is never
/// polled again, or, where a store knows no lease, closed as the kernel closes a dead process's
/// files: by dropping its session.
pub async fn dead_holder(world: &World, name: &str) -> Outcome<Grant> {
    dead_holder_in(world, name, Mode::EXCLUSIVE).await
}

/// The same in any mode.
pub(crate) async fn dead_holder_in(world: &World, name: &str, mode: Mode) -> Outcome<Grant> {
    let (world_there, name_there) = (world.clone(), name.to_owned());
    let holder = live(world, async move {
        let session = world_there.session().await?.wants(mode);
        let grant = session.take(&name_there).await?;
        Ok((session, grant))
    });
    let ((session, grant), _dies) = holder.await?;
    if world.guarantees().contains(Guarantees::LEASED) {
        world.bury(session);
    }
    Ok(grant)
}

/// A process queues for `name`, where `ahead` others wait already, and dies.
pub async fn dead_waiter(world: &World, name: &str, ahead: usize) -> Outcome {
    let (world_there, name_there) = (world.clone(), name.to_owned());
    let waiter = live(world, async move {
        let session = world_there.session().await?;
        let mut acquisition = session.acquire(&name_there);
        tokio::select! {
            biased;
            _ = &mut acquisition => return Err(Failure::new("was granted instead of queued")),
            queued = world_there.queued(&name_there, ahead + 1) => queued?,
        }
        Ok((session, acquisition))
    });
    let (dead, _dies) = waiter.await?;
    world.bury(dead);
    Ok(())
}

/// A process signs in the ledger and dies.
pub(crate) async fn dead_member(world: &World) -> Outcome<(OwnerId, Lease)> {
    let world_there = world.clone();
    let member = live(world, async move {
        let session = world_there.moving_session().await?;
        let id = session.env.owner_id();
        let lease = session.ledger()?.sign(id, b"dies").await?;
        Ok((session, id, lease))
    });
    let ((session, id, lease), _dies) = member.await?;
    world.bury(session);
    Ok((id, lease))
}

/// A process's life until here, and what dies with it.
async fn live<T: Send + 'static>(
    world: &World,
    life: impl Future<Output = Outcome<T>> + Send + 'static,
) -> Outcome<(T, Mortal)> {
    if world.pace() == Pace::Virtual {
        return Ok((life.await?, Mortal(None)));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("no runtime for a process: {error}")))?;
    let life = runtime.spawn(life);
    let mortal = Mortal(Some(runtime));
    let lived = life.await.map_err(|error| Failure::new(format!("a process died too early: {error}")))??;
    Ok((lived, mortal))
}

/// The runtime of a process, stopped when dropped.
struct Mortal(Option<tokio::runtime::Runtime>);

impl Drop for Mortal {
    /// A runtime must not be dropped where others wait.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
