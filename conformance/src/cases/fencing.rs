//! Fencing: tokens of one name are unique and grow in the order of grants.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use leasehold_core::backend::{Grant, Revoke};
use leasehold_core::{ErrorKind, FenceGate, FencingToken, Mode};
use parking_lot::Mutex;

use crate::layer::{Below, Layer, shared};
use crate::session::dead_holder_in;
use crate::{Failure, Outcome, Task, World, case, dead_holder, ensure};

case::table! { "g3":
    tokens_grow_from_hold_to_hold [FENCED]: "a released lock is granted to any client with a larger counter",
    tokens_grow_across_expiry [FENCED|LEASED]: "a dead process's successor has a larger token",
    force_keeps_tokens_growing [FENCED]: "deleting an entry by force does not reset the counter",
    tokens_grow_across_sessions [FENCED]: "the counter outlives every session",
    tokens_follow_the_order_of_holding [FENCED]: "under contention tokens grow in the order of the \
         holds, between processes and within one",
    a_counter_that_went_back_is_refused [FENCED]: "a store that lost its counter is detected, and the grant \
         is released",
    a_late_writer_is_refused_at_the_gate [FENCED|LEASED]: "the resource refuses a client that lost the lock \
         without noticing",
    grants_that_exclude_each_other_have_growing_tokens [SHARED|FENCED]: "a writer is above the readers before it, and below those after it",
    joined_guards_have_tokens_of_their_own [SHARED|FENCED]: "tasks that share one hold have one token each, \
         all below the next writer's",
    a_late_reader_is_refused [SHARED|FENCED|LEASED]: "the resource refuses a reader after a later writer",
}

async fn tokens_grow_from_hold_to_hold(world: World) -> Outcome {
    let sessions = [world.session().await?, world.session().await?];
    let mut last = None;
    for round in 0..8 {
        let session = &sessions[round / 2 % 2];
        let grant = session.take("a").await?;
        ensure!(last < Some(grant.counter), "{} after {last:?}", grant.counter);
        ensure!(grant.counter <= FencingToken::MAX_COUNTER, "{} is not a valid token", grant.counter);
        last = Some(grant.counter);
        session.backend.release(&grant).await?;
    }
    Ok(())
}

async fn tokens_grow_across_expiry(world: World) -> Outcome {
    let mut last = 0;
    for _ in 0..3 {
        let grant = dead_holder(&world, "a").await?;
        ensure!(grant.counter > last, "{} after {last}", grant.counter);
        last = grant.counter;
        let next = world.session().await?;
        let grant = world.within(world.takeover(), "the next holder", next.acquire("a")).await??;
        ensure!(grant.counter > last, "{} after the expiry of {last}", grant.counter);
        last = grant.counter;
        next.backend.release(&grant).await?;
    }
    Ok(())
}

async fn force_keeps_tokens_growing(world: World) -> Outcome {
    let (holder, admin) = (world.session().await?, world.session().await?);
    let mut last = 0;
    for _ in 0..3 {
        let grant = holder.take("a").await?;
        ensure!(grant.counter > last, "{} after {last} was deleted by force", grant.counter);
        last = grant.counter;
        world
            .within(world.soon(), "the revocation", admin.backend.revoke(&grant.name, Revoke::Force))
            .await??;
    }
    Ok(())
}

async fn tokens_grow_across_sessions(world: World) -> Outcome {
    let mut last = 0;
    for _ in 0..3 {
        let session = world.session().await?;
        let grant = session.take("a").await?;
        ensure!(grant.counter > last, "{} in a new session, {last} in an older one", grant.counter);
        last = grant.counter;
        session.backend.close().await?;
    }
    Ok(())
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
    let fell = tokens.lock().windows(2).find(|pair| pair[0] >= pair[1]).map(<[_]>::to_vec);
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

async fn grants_that_exclude_each_other_have_growing_tokens(world: World) -> Outcome {
    let [one, other] = [world.session().await?, world.session().await?];
    let mut last = None;
    for _ in 0..3 {
        let readers = [&one, &other].map(|session| session.wants(Mode::SHARED));
        let shares = [readers[0].take("a").await?, readers[1].take("a").await?];
        ensure!(shares[0].counter != shares[1].counter, "two shares are both number {}", shares[0].counter);
        for (session, share) in readers.iter().zip(&shares) {
            ensure!(Some(share.counter) > last, "a share is number {} after {last:?}", share.counter);
            session.backend.release(share).await?;
        }
        let grant = one.take("a").await?;
        let below = shares.iter().all(|share| share.counter < grant.counter);
        ensure!(below, "a writer is number {} after {shares:?}", grant.counter);
        last = Some(grant.counter);
        one.backend.release(&grant).await?;
    }
    Ok(())
}

async fn joined_guards_have_tokens_of_their_own(world: World) -> Outcome {
    let manager = world.manager().await?;
    let lock = manager.lock("a")?.shared();
    let mut tokens = Vec::new();
    let mut guards = Vec::new();
    for _ in 0..4 {
        let guard = lock.acquire().await?;
        tokens.push(guard.token());
        guards.push(guard);
    }
    ensure!(tokens.is_sorted_by(|a, b| a < b), "the tokens of four readers: {tokens:?}");
    for guard in guards {
        guard.release().await?;
    }
    let guard = manager.lock("a")?.acquire().await?;
    ensure!(tokens.iter().all(|token| *token < guard.token()), "{} after {tokens:?}", guard.token());
    guard.release().await?;
    Ok(())
}

async fn a_late_reader_is_refused(world: World) -> Outcome {
    let gate = FenceGate::new();
    let next = world.manager().await?;
    let late = dead_holder_in(&world, "a", Mode::SHARED).await?;
    let late = FencingToken::new(late.counter, 0).ok_or_else(|| Failure::new("a counter is too large"))?;
    ensure!(gate.admit_read(late).is_ok(), "a reader that holds is refused");
    let guard = world.within(world.takeover(), "the writer", next.lock("a")?.acquire()).await??;
    ensure!(gate.admit(guard.token()).is_ok(), "a writer that holds is refused");
    ensure!(gate.admit_read(late).is_err(), "a reader was admitted behind a later writer");
    guard.release().await?;
    let guard = next.lock("a")?.shared().acquire().await?;
    ensure!(gate.admit_read(guard.token()).is_ok(), "a reader that holds is refused");
    guard.release().await?;
    Ok(())
}
