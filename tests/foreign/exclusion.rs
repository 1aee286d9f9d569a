//! One of us and one of them, in both directions.

use std::time::Duration;

use contender_protocol::now;
use leasehold::LostReason;
use libtest_mimic::Trial;
use testbed::pass;

use crate::contender::Contender;
use crate::contest::nanos;
use crate::library::{Library, UNSAFE};
use crate::setup::{LONG, NAME, SHORT, Setup, trial};

pub(crate) fn trials(library: &'static Library) -> Vec<Trial> {
    vec![
        trial(library, "release_wakes_the_waiter", LONG, release_wakes_the_waiter),
        trial(library, "a_killed_holder_is_followed", SHORT, a_killed_holder_is_followed),
        trial(library, "a_hold_outlasts_its_lease", SHORT, a_hold_outlasts_its_lease),
        trial(library, "nobody_releases_what_is_not_theirs", LONG, nobody_releases_what_is_not_theirs),
        trial(library, "foreign_value_is_left_alone", LONG, foreign_value_is_left_alone),
    ]
}

pub(crate) fn trial_of_shedlock_by_default() -> Trial {
    trial(&UNSAFE, "late_job_deletes_our_lock_and_loss_is_reported", SHORT, late_job_deletes_our_lock)
}

/// By default a job of ShedLock that ends after its lease deletes our lock, and two hold. Our guard reports the loss at its
/// next renewal. With `safeUpdate(true)` [our lock stays](nobody_releases_what_is_not_theirs).
async fn late_job_deletes_our_lock(setup: Setup, [mut ours, mut late]: [Contender; 2]) {
    late.acquires(NAME).await;
    let locks = leasehold::connect(&format!("{}&ttl=6s", setup.url())).await.unwrap();
    let guard = locks.lock(NAME).unwrap().acquire().await.unwrap();
    // The next renewal is as far away as it can be.
    guard.renew().await.unwrap();
    let deleted = late.releases().await;
    assert!(ours.tries(NAME).await, "ours is still there");
    assert_eq!(guard.lost().await, LostReason::Gone);
    let reported = Duration::from_nanos(now() - deleted);
    println!("shedlock by default: our lock was deleted, which was reported after {reported:?}");
    assert!(reported < Duration::from_secs(3) && guard.ensure_held().is_err(), "{reported:?}");
    ours.releases().await;
    locks.shutdown().await.unwrap();
    setup.is_clean().await;
}

/// While the one holds the other's try is refused; the other waits, and has the lock soon after the release, when no
/// lease is over yet.
async fn release_wakes_the_waiter(setup: Setup, mut pair: [Contender; 2]) {
    for who in ["they", "we"] {
        let [holder, waiter] = &mut pair;
        let mut woken = [Duration::ZERO; ROUNDS];
        for woken in &mut woken {
            assert!(holder.tries(NAME).await, "it is free");
            assert!(!waiter.tries(NAME).await, "two hold");
            waiter.asks_for(NAME).await;
            // By then it waits.
            pass(LONGEST_PAUSE).await;
            let released = holder.releases().await;
            *woken = Duration::from_nanos(waiter.held().await.saturating_sub(released));
            assert!(*woken < LONG / 3, "{who} were not woken by the release: {woken:?}");
            assert!(!holder.tries(NAME).await, "two hold");
            waiter.releases().await;
        }
        println!("{}: {who} waited, and held after {woken:?}", setup.library.name);
        // A machine that is busy for a while is not busy for all of them.
        assert!(woken.iter().any(|woken| *woken < Duration::from_secs(1)), "{who} are slow: {woken:?}");
        pair.reverse();
    }
    setup.is_clean().await;
}

const ROUNDS: usize = 3;

/// Longer than anybody pauses between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// The holder is killed: the waiter has the lock when the lease has ended, and not before.
async fn a_killed_holder_is_followed(setup: Setup, [mut ours, mut theirs]: [Contender; 2]) {
    theirs.acquires(NAME).await;
    let waited = is_followed_by(&setup, &mut theirs, &mut ours).await;
    println!("{}: killed, we held {waited:?} after the end of the lease", setup.library.name);
    ours.releases().await;
    ours.acquires(NAME).await;
    let mut theirs = setup.theirs().await.expect("it was there before");
    let waited = is_followed_by(&setup, &mut ours, &mut theirs).await;
    println!("{}: we were killed, they held {waited:?} after the end of the lease", setup.library.name);
    theirs.releases().await;
}

/// How long after the end of the lease the waiter held.
async fn is_followed_by(setup: &Setup, holder: &mut Contender, waiter: &mut Contender) -> Duration {
    waiter.asks_for(NAME).await;
    pass(LONGEST_PAUSE).await;
    holder.is_killed().await;
    let looked = now();
    let lease = setup.lease().await;
    assert!(lease <= setup.ttl, "the lease is longer than was said: {lease:?}");
    // The server counts in whole milliseconds.
    let ends = looked + nanos(lease.saturating_sub(Duration::from_millis(2)));
    let held = waiter.held().await;
    assert!(held >= ends, "held {:?} before the end of the lease", Duration::from_nanos(ends - held));
    Duration::from_nanos(held - ends)
}

/// Held for two leases and more, renewed by the library or by its user: the other stays outside all the time.
async fn a_hold_outlasts_its_lease(setup: Setup, mut pair: [Contender; 2]) {
    for renews in [true, setup.library.renews] {
        let [holder, other] = &mut pair;
        let since = holder.acquires(NAME).await;
        while now() < since + nanos(2 * setup.ttl + setup.ttl / 2) {
            assert!(!other.tries(NAME).await, "two hold");
            pass(setup.ttl / 4).await;
            if !renews {
                holder.extends().await;
            }
        }
        assert!(!other.tries(NAME).await, "two hold");
        holder.releases().await;
        pair.reverse();
    }
    setup.is_clean().await;
}

/// The lock was deleted, and the other one holds: the release of the former holder does not touch that, and fails where
/// the library reports it.
async fn nobody_releases_what_is_not_theirs(setup: Setup, mut pair: [Contender; 2]) {
    for tells in [true, setup.library.tells_of_loss] {
        let [loser, holder] = &mut pair;
        loser.acquires(NAME).await;
        setup.command(&["DEL", &setup.key()]).await;
        holder.acquires(NAME).await;
        let held = setup.dump().await;
        let said = loser.tries_to_release().await;
        assert_eq!(said.is_err(), tells, "{said:?}");
        assert_eq!(setup.dump().await, held, "the holder's lock was touched");
        assert!(!loser.tries(NAME).await, "two hold");
        holder.releases().await;
        pair.reverse();
    }
    setup.is_clean().await;
}

/// A key of another type is no lock and is not overwritten: we return an error, they do or report it as held.
async fn foreign_value_is_left_alone(setup: Setup, [mut ours, mut theirs]: [Contender; 2]) {
    let key = &*setup.key();
    setup.command(&["RPUSH", key, "something"]).await;
    let said = ours.may_try(NAME).await.unwrap_err();
    assert!(said.contains("no lock") && said.contains(NAME), "{said}");
    let said = theirs.may_try(NAME).await;
    assert_ne!(said, Ok(true), "they have taken it");
    assert_eq!(setup.command(&["TYPE", key]).await.text().as_deref(), Some("list"));
    setup.command(&["DEL", key]).await;
    setup.is_clean().await;
}
