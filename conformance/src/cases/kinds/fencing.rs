//! Fencing: whom a writer excludes it fences off, and readers each other not.

use leasehold_core::{FenceGate, Mode};

use super::{NAME, reader, writer};
use crate::session::dead_holder_in;
use crate::{Failure, Outcome, World, case, ensure};

case::table! { "g3":
    grants_that_exclude_each_other_have_growing_tokens [SHARED|FENCED]: "a writer is above the readers before it, and below those after it",
    joined_guards_have_tokens_of_their_own [SHARED|FENCED]: "tasks that share one hold have one token each, \
         all below the next writer's",
    a_late_reader_is_refused [SHARED|FENCED|LEASED]: "the resource refuses a reader after a later writer",
}

async fn grants_that_exclude_each_other_have_growing_tokens(world: World) -> Outcome {
    let name = world.name(NAME)?;
    let [one, other] = [world.session().await?, world.session().await?];
    let mut last = None;
    for _ in 0..3 {
        let readers = [&one, &other].map(|session| session.wants(Mode::SHARED));
        let shares = [readers[0].take(&name).await?, readers[1].take(&name).await?];
        ensure!(shares[0].counter != shares[1].counter, "two shares are both number {}", shares[0].counter);
        for (session, share) in readers.iter().zip(&shares) {
            ensure!(Some(share.counter) > last, "a share is number {} after {last:?}", share.counter);
            session.backend.release(share).await?;
        }
        let grant = one.take(&name).await?;
        let below = shares.iter().all(|share| share.counter < grant.counter);
        ensure!(below, "a writer is number {} after {shares:?}", grant.counter);
        last = Some(grant.counter);
        one.backend.release(&grant).await?;
    }
    Ok(())
}

async fn joined_guards_have_tokens_of_their_own(world: World) -> Outcome {
    let manager = world.manager().await?;
    let lock = reader(&manager)?;
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
    let guard = writer(&manager)?.acquire().await?;
    ensure!(tokens.iter().all(|token| *token < guard.token()), "{} after {tokens:?}", guard.token());
    guard.release().await?;
    Ok(())
}

async fn a_late_reader_is_refused(world: World) -> Outcome {
    let gate = FenceGate::new();
    let next = world.manager().await?;
    let late = dead_holder_in(&world, &world.name(NAME)?, Mode::SHARED).await?;
    let token = |counter| {
        let token = leasehold_core::FencingToken::new(counter, 0);
        token.ok_or_else(|| Failure::new(format!("{counter} is too large a counter")))
    };
    let late = token(late.counter)?;
    ensure!(gate.admit_read(late).is_ok(), "a reader that holds is refused");
    let guard = world.within(world.takeover(), "the writer", writer(&next)?.acquire()).await??;
    ensure!(gate.admit(guard.token()).is_ok(), "a writer that holds is refused");
    ensure!(gate.admit_read(late).is_err(), "a reader was admitted behind a later writer");
    guard.release().await?;
    let guard = reader(&next)?.acquire().await?;
    ensure!(gate.admit_read(guard.token()).is_ok(), "a reader that holds is refused");
    guard.release().await?;
    Ok(())
}
