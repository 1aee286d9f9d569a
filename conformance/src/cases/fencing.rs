//! Fencing: tokens of one name are unique and grow in the order of grants.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use leasehold_core::backend::{Grant, Revoke};
use leasehold_core::{ErrorKind, FenceGate, FencingToken};
use parking_lot::Mutex;

use crate::layer::{Below, Layer, shared};
use crate::{Failure, Outcome, Task, World, case, dead_holder, ensure};

case::table! { "g3":
    tokens_grow_from_hold_to_hold [FENCED]: "a released lock is granted to any client with a larger counter",
    tokens_grow_across_waiting [FENCED]: "a waiter's counter is larger than that of the hold it waited for",
    tokens_grow_across_expiry [FENCED|LEASED]: "a dead process's successor has a larger token",
    force_keeps_tokens_growing [FENCED]: "deleting an entry by force does not reset the counter",
    tokens_grow_across_sessions [FENCED]: "the counter outlives every session",
    tokens_grow_across_local_hand_off [FENCED]: "a local hand-off raises the token, and the next process \
         gets a larger one",
    tokens_follow_the_order_of_holding [FENCED]: "under contention tokens grow in the order of the holds",
    a_counter_that_went_back_is_refused [FENCED]: "a store that lost its counter is detected, and the grant \
         is released",
    a_late_writer_is_refused_at_the_gate [FENCED|LEASED]: "the resource refuses a client that lost the lock \
         without noticing",
}

async fn tokens_grow_from_hold_to_hold(world: World) -> Outcome {
    let name = world.name("a")?;
    let sessions = [world.session().await?, world.session().await?];
    let mut last = None;
    for round in 0..8 {
        let session = &sessions[round / 2 % 2];
        let grant = session.take(&name).await?;
        ensure!(last < Some(grant.counter), "{} after {last:?}", grant.counter);
        ensure!(grant.counter <= FencingToken::MAX_COUNTER, "{} is not a valid token", grant.counter);
        last = Some(grant.counter);
        session.backend.release(&grant).await?;
    }
    Ok(())
}

async fn tokens_grow_across_waiting(world: World) -> Outcome {
    let name = world.name("a")?;
    let mut session = world.session().await?;
    let mut held = session.take(&name).await?;
    for _ in 0..5 {
        let next = world.session().await?;
        let waiting = next.acquire_aside(&name);
        world.queued(&name, 1).await?;
        session.backend.release(&held).await?;
        let grant = world.joined(world.soon(), "the waiter's turn", waiting).await?;
        ensure!(grant.counter > held.counter, "{} after {}", grant.counter, held.counter);
        (session, held) = (next, grant);
    }
    Ok(())
}

async fn tokens_grow_across_expiry(world: World) -> Outcome {
    let name = world.name("a")?;
    let mut last = 0;
    for _ in 0..3 {
        let grant = dead_holder(&world, &name).await?;
        ensure!(grant.counter > last, "{} after {last}", grant.counter);
        last = grant.counter;
        let next = world.session().await?;
        let grant = world.within(world.takeover(), "the next holder", next.acquire(&name)).await??;
        ensure!(grant.counter > last, "{} after the expiry of {last}", grant.counter);
        last = grant.counter;
        next.backend.release(&grant).await?;
    }
    Ok(())
}

async fn force_keeps_tokens_growing(world: World) -> Outcome {
    let name = world.name("a")?;
    let (holder, admin) = (world.session().await?, world.session().await?);
    let mut last = 0;
    for _ in 0..3 {
        let grant = holder.take(&name).await?;
        ensure!(grant.counter > last, "{} after {last} was deleted by force", grant.counter);
        last = grant.counter;
        world.within(world.soon(), "the revocation", admin.backend.revoke(&name, Revoke::Force)).await??;
    }
    Ok(())
}

async fn tokens_grow_across_sessions(world: World) -> Outcome {
    let name = world.name("a")?;
    let mut last = 0;
    for _ in 0..3 {
        let session = world.session().await?;
        let grant = session.take(&name).await?;
        ensure!(grant.counter > last, "{} in a new session, {last} in an older one", grant.counter);
        last = grant.counter;
        session.backend.close().await?;
    }
    Ok(())
}

async fn tokens_grow_across_local_hand_off(world: World) -> Outcome {
    let (first, second) = (world.manager().await?, world.manager().await?);
    let tokens = Arc::new(Mutex::new(Vec::new()));
    for manager in [&first, &second] {
        let guard = manager.lock("a")?.acquire().await?;
        let mut waiting = Vec::new();
        for _ in 0..5 {
            let (lock, tokens) = (manager.lock("a")?, Arc::clone(&tokens));
            waiting.push(Task::start(async move {
                let guard = lock.acquire().await?;
                tokens.lock().push(guard.token());
                guard.release().await
            }));
        }
        world.settle().await;
        tokens.lock().push(guard.token());
        guard.release().await?;
        for waiter in waiting {
            waiter.await??;
        }
    }
    strictly_growing(&tokens.lock())
}

async fn tokens_follow_the_order_of_holding(world: World) -> Outcome {
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let mut workers = Vec::new();
    for _ in 0..4 {
        let manager = world.manager().await?;
        for _ in 0..2 {
            let (lock, tokens, world) = (manager.lock("a")?, Arc::clone(&tokens), world.clone());
            workers.push(Task::start(async move {
                for _ in 0..6 {
                    let guard = lock.acquire().await?;
                    tokens.lock().push(guard.token());
                    world.pass(world.ttl() / 5_000).await;
                    guard.release().await?;
                }
                Ok::<_, Failure>(())
            }));
        }
    }
    Task::all(workers).await?;
    strictly_growing(&tokens.lock())
}

fn strictly_growing(tokens: &[FencingToken]) -> Outcome {
    let fell = tokens.windows(2).find(|pair| pair[0] >= pair[1]);
    ensure!(fell.is_none(), "in order of holding, one after the other: {fell:?}");
    Ok(())
}

/// A store restored from a backup after its first grant.
#[derive(Debug, Default)]
struct Restored {
    /// The first grant's own counter; zero before it.
    first: AtomicU64,
}

#[async_trait]
impl Layer for Restored {
    fn granted(&self, _below: &Below, mut grant: Grant) -> Grant {
        if self.first.load(Ordering::Relaxed) == 0 {
            self.first.store(grant.counter, Ordering::Relaxed);
            grant.counter = FencingToken::MAX_COUNTER;
        }
        grant
    }

    /// A store may compare the whole grant, so it gets back the one it gave.
    async fn release(&self, below: &Below, grant: &Grant) -> Result<(), leasehold_core::Error> {
        let mut grant = grant.clone();
        if grant.counter == FencingToken::MAX_COUNTER {
            grant.counter = self.first.load(Ordering::Relaxed);
        }
        below.backend.release(&grant).await
    }
}

async fn a_counter_that_went_back_is_refused(world: World) -> Outcome {
    let manager = world.behind(shared(Arc::new(Restored::default()))).manager().await?;
    let lock = manager.lock("a")?;
    lock.acquire().await?.release().await?;
    let refused = lock.acquire().await;
    let error = refused.as_ref().err().filter(|error| *error.kind() == ErrorKind::Protocol);
    let says_what_helps = error.is_some_and(|error| error.to_string().contains("token_base"));
    ensure!(says_what_helps, "a smaller counter came to {refused:?}");
    world.empty(world.soon(), "the refused grant is given back").await
}

async fn a_late_writer_is_refused_at_the_gate(world: World) -> Outcome {
    let (network, manager) = world.far().await?;
    let late = manager.lock("a")?.acquire().await?;
    network.cut();
    let gate = FenceGate::new();
    ensure!(gate.admit(late.token()).is_ok(), "the first writer was refused");
    let next = world.manager().await?.lock("a")?;
    let next = world.within(world.takeover(), "the next holder", next.acquire()).await??;
    ensure!(gate.admit(next.token()).is_ok(), "the next holder was refused");
    ensure!(gate.admit(late.token()).is_err(), "the late writer was admitted");
    Ok(())
}
