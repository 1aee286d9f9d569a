//! What a namespace adds to the store's own numbers.

use futures_util::future::try_join_all;
use leasehold_core::{FenceGate, FencingToken, LockManager};

use crate::{Failure, Outcome, World, case, ensure};

case::table! { "base":
    base_never_decreases: "a raise to less changes nothing, and no later grant's own number is below the floor",
    highest_of_concurrent_raises_wins: "raises of several sessions never undo each other",
    later_sessions_get_larger_tokens [FENCED]: "after a raise above a token, for every name; earlier sessions keep their base",
    live_sessions_are_counted: "the others: neither this one nor one that was closed or dropped",
}

async fn base_never_decreases(world: World) -> Outcome {
    let session = world.session().await?;
    let base = session.backend.token_base().await?.base;
    ensure!(base == 0, "a new namespace adds {base}");
    for (at_least, expected) in
        [(9, 9), (7, 9), (10, 10), (0, 10), (FencingToken::MAX_COUNTER, FencingToken::MAX_COUNTER)]
    {
        session.backend.raise_token_base(at_least).await?;
        let raised = session.backend.token_base().await?;
        ensure!(raised.base == expected, "{raised:?} after a raise to {at_least}");
        // Its session began before the raises, so this is the store's own number.
        let grant = session.take("a").await?;
        ensure!(raised.floor <= grant.counter, "{} is below the floor of {raised:?}", grant.counter);
        session.backend.release(&grant).await?;
    }
    Ok(())
}

async fn highest_of_concurrent_raises_wins(world: World) -> Outcome {
    let sessions = [world.session().await?, world.session().await?];
    let raises = (1..=16).map(|base| sessions[base % 2].backend.raise_token_base((base * 37 % 16) as u64));
    try_join_all(raises).await?;
    let base = sessions[0].backend.token_base().await?.base;
    ensure!(base == 15, "the base is {base}, and one raise was to 15");
    Ok(())
}

async fn later_sessions_get_larger_tokens(world: World) -> Outcome {
    let token = async |manager: &LockManager, name: &str| {
        let guard = manager.lock(name)?.acquire().await?;
        let token = guard.token();
        guard.release().await?;
        Outcome::Ok(token)
    };
    let earlier = world.manager().await?;
    let seen = FencingToken::new(FencingToken::MAX_COUNTER / 2, 7);
    let seen = seen.ok_or_else(|| Failure::new("half of the largest counter is no token"))?;
    let gates = [FenceGate::new(), FenceGate::new()];
    ensure!(gates.iter().all(|gate| gate.admit(seen).is_ok()), "a new resource refuses {seen}");
    earlier.raise_token_base(seen).await?;
    let own = token(&earlier, "a").await?;
    ensure!(
        own < seen && gates[0].admit(own).is_err(),
        "{own} of a session from before the raise above {seen}"
    );
    let later = world.manager().await?;
    for (name, gate) in ["a", "b"].into_iter().zip(&gates) {
        let raised = token(&later, name).await?;
        ensure!(raised > seen && gate.admit(raised).is_ok(), "{raised} after the raise above {seen}");
    }
    let base = later.token_base().await?.base;
    later.raise_token_base(seen).await?;
    let again = later.token_base().await?.base;
    ensure!(again == base, "{base} was large enough, and became {again}");
    Ok(())
}

async fn live_sessions_are_counted(world: World) -> Outcome {
    let [counts, closes, drops] = [world.manager().await?, world.manager().await?, world.manager().await?];
    // Some stores cannot tell that there is no other session; the observer of the case is one more.
    let others = async || Outcome::Ok(counts.token_base().await?.sessions.unwrap_or(0));
    let before = others().await?;
    ensure!(before == 3, "two others and the observer are {before} sessions");
    closes.shutdown().await?;
    let after = others().await?;
    ensure!(after == 2, "{after} sessions after one of three was closed");
    drop(drops);
    let bound = world.takeover() + world.soon();
    world.eventually(bound, "the dropped session is over", || async { Ok(others().await? == 1) }).await
}
