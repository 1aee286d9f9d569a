//! Names are independent: holding one never affects another, in any store.

use leasehold_core::backend::{Revocation, Revoke};
use leasehold_core::{LockGuard, LockManager, LockName, Mode};

use crate::{Outcome, Session, Task, World, case, ensure};

case::table! { "g10":
    names_that_encodings_merge_stay_distinct: "every confusable name is held at once, by one \
         process and by another",
    a_path_blocks_neither_parent_nor_neighbour: "holding a/b blocks neither a nor ab, nor they it",
    names_of_any_length_are_held: "one byte, 512 bytes, 512 bytes of other scripts",
    inspect_shows_the_holder: "`inspect` shows the holder, its token and metadata, and the number of waiters",
    list_shows_names_in_use: "`list` shows exactly the held and awaited locks, in order",
    a_prefix_is_no_pattern: "the wildcards of a store's search have no meaning in a prefix",
    revoking_one_name_leaves_others_held: "other locks of the same holder stay, also after a \
         revocation by force",
    inspect_shows_every_holder [SHARED]: "holders are shown in order of arrival, with the mode of each",
    inspect_shows_permits [PERMITS]: "holders are shown with the number of permits of each",
}

const CONFUSABLE: [&str; 34] = [
    "a", "A", "/a", "a/", "//a", "a//", "/", "//", "a/b", "a//b", "a%2Fb", "a%2fb", "a%252Fb", "a\\b", "ab",
    "a b", "a+b", "a%20b", " a", "a ", ".", "..", "./a", "../a", "a/.", "a/..", "{a}", "a*", "a?", "[a]",
    "\u{e9}", "e\u{301}", "\u{df}", "ss",
];

async fn names_that_encodings_merge_stay_distinct(world: World) -> Outcome {
    let mut guards = Vec::new();
    let managers = [world.manager().await?, world.manager().await?];
    for (name, manager) in CONFUSABLE.into_iter().zip(managers.iter().cycle()) {
        let lock = manager.lock(name)?;
        let guard = world.within(world.soon(), "the answer", lock.try_acquire()).await??;
        ensure!(guard.is_some(), "{name:?} is blocked by one of {CONFUSABLE:?}");
        guards.extend(guard);
    }
    let mut listed: Vec<_> = world.list().await?.into_iter().map(|state| state.name.to_string()).collect();
    let mut expected: Vec<_> = CONFUSABLE.map(str::to_owned).into();
    listed.sort();
    expected.sort();
    ensure!(listed == expected, "listed as {listed:?}");
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

async fn a_path_blocks_neither_parent_nor_neighbour(world: World) -> Outcome {
    for (held, others) in [("a/b", ["a", "ab", "a/"]), ("a", ["a/b", "ab", "a/b/c"])] {
        let (holder, rival) = (world.session().await?, world.session().await?);
        let grant = holder.take(held).await?;
        for other in others {
            let granted = rival.try_acquire(other).await?;
            ensure!(granted.is_some(), "holding {held:?} blocks {other:?}");
        }
        rival.backend.close().await?;
        holder.backend.release(&grant).await?;
    }
    Ok(())
}

async fn names_of_any_length_are_held(world: World) -> Outcome {
    let (holder, rival) = (world.session().await?, world.session().await?);
    let long = "x".repeat(LockName::MAX_BYTES);
    let other = format!("{}y", "x".repeat(LockName::MAX_BYTES - 1));
    let wide = "\u{20ac}".repeat(LockName::MAX_BYTES / 3);
    for name in ["x", &long, &other, &wide] {
        let grant = holder.take(name).await?;
        ensure!(grant.name.as_str() == name, "{:?} was granted instead", grant.name);
        ensure!(rival.try_acquire(name).await?.is_none(), "held twice");
    }
    ensure!(world.list().await?.len() == 4, "of four names held, listed {:?}", world.list().await?);
    Ok(())
}

async fn inspect_shows_the_holder(world: World) -> Outcome {
    ensure!(world.inspect("a").await?.holder().is_none(), "an unused name is held");
    let holder = world.manager_with(|builder| builder.owner_label("label of the holder")).await?;
    let guard = holder.lock("a")?.metadata("what it is for").acquire().await?;
    let waiting = Task::acquire(world.manager().await?.lock("a")?);
    world.queued("a", 1).await?;
    for state in [world.inspect("a").await?, holder.inspect("a").await?] {
        let Some(shown) = state.holders.into_iter().next() else {
            return Err(crate::Failure::new("a held lock is shown without holder"));
        };
        ensure!(shown.label == "label of the holder", "labelled {:?}", shown.label);
        ensure!(shown.metadata.as_deref() == Some("what it is for"), "with metadata {:?}", shown.metadata);
        let token = shown.token;
        ensure!(token.is_none_or(|token| token == guard.token()), "{token:?} is not {}", guard.token());
    }
    guard.release().await?;
    world.joined(world.soon(), "the waiter's turn", waiting).await?.release().await?;
    ensure!(world.inspect("a").await?.holder().is_none(), "a released lock is shown as held");
    Ok(())
}

async fn names_listed(session: &Session, prefix: &str) -> Outcome<Vec<String>> {
    Ok(session.backend.list(prefix).await?.into_iter().map(|state| state.name.to_string()).collect())
}

async fn list_shows_names_in_use(world: World) -> Outcome {
    let session = world.session().await?;
    ensure!(names_listed(&session, "").await?.is_empty(), "an empty store lists something");
    let mut grants = Vec::new();
    for name in ["b/2", "a", "b/1", "b", "c"] {
        grants.push(session.take(name).await?);
    }
    if let Some(free) = grants.pop() {
        session.backend.release(&free).await?;
    }
    let all = names_listed(&session, "").await?;
    ensure!(all == ["a", "b", "b/1", "b/2"], "all names: {all:?}");
    let some = names_listed(&session, "b/").await?;
    ensure!(some == ["b/1", "b/2"], "names with b/: {some:?}");
    let none = names_listed(&session, "d").await?;
    ensure!(none.is_empty(), "names with d: {none:?}");
    Ok(())
}

async fn a_prefix_is_no_pattern(world: World) -> Outcome {
    let session = world.session().await?;
    for name in ["axb", "a*b", "a?b", "a%b", "[a]b", "a"] {
        session.take(name).await?;
    }
    for (prefix, expected) in [("a*", "a*b"), ("a?", "a?b"), ("a%", "a%b"), ("[a]", "[a]b")] {
        let listed = names_listed(&session, prefix).await?;
        ensure!(listed == [expected], "the prefix {prefix:?} lists {listed:?}");
    }
    Ok(())
}

async fn revoking_one_name_leaves_others_held(world: World) -> Outcome {
    let (holder, admin) = (world.manager().await?, world.manager().await?);
    let others = [holder.lock("b")?.acquire().await?, holder.lock("a/b")?.acquire().await?];
    for how in [Revoke::AT_ONCE, Revoke::Force] {
        let guard = holder.lock("a")?.acquire().await?;
        let revoked = world.within(world.soon(), "the revocation", admin.revoke("a", how)).await??;
        ensure!(revoked == Revocation::Released, "a living holder's answer to {how:?} was {revoked:?}");
        world.within(world.soon(), "the holder is notified", guard.lost()).await?;
        ensure!(guard.ensure_held().is_err(), "held after it was revoked");
        still_held(&world, &others, &admin).await?;
    }
    Ok(())
}

/// Beyond a ttl, so that their renewals have gone on too.
async fn still_held(world: &World, guards: &[LockGuard], rival: &LockManager) -> Outcome {
    for _ in 0..5 {
        for guard in guards {
            guard.ensure_held()?;
            let stolen = rival.lock(guard.name())?.try_acquire().await?;
            ensure!(stolen.is_none(), "{} went with the one that was revoked", guard.name());
        }
        world.pass(world.ttl() / 3).await;
    }
    Ok(())
}

async fn inspect_shows_every_holder(world: World) -> Outcome {
    let mut guards = Vec::new();
    for label in ["first", "second", "third"] {
        let manager = world.manager_with(|builder| builder.owner_label(label)).await?;
        guards.push(manager.lock("a")?.shared().acquire().await?);
    }
    let shown = world.inspect("a").await?.holders;
    let labels: Vec<_> = shown.iter().map(|holder| holder.label.as_str()).collect();
    ensure!(labels == ["first", "second", "third"], "three hold, and {labels:?} are shown");
    ensure!(shown.iter().all(|holder| holder.mode == Mode::SHARED), "readers are shown as {shown:?}");
    for (guard, holder) in guards.iter().zip(&shown) {
        ensure!(holder.token.is_none_or(|token| token == guard.token()), "{holder:?} is not {guard:?}");
    }
    let listed = world.list().await?;
    ensure!(listed.len() == 1 && listed[0].holders.len() == 3, "listed as {listed:?}");
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

async fn inspect_shows_permits(world: World) -> Outcome {
    let session = world.session().await?.wants(Mode::permits(2, 5)?);
    let grant = session.take("a").await?;
    let shown = world.inspect("a").await?.holders;
    ensure!(shown.len() == 1 && shown[0].mode == Mode::permits(2, 5)?, "two of five are shown as {shown:?}");
    session.backend.release(&grant).await?;
    Ok(())
}
