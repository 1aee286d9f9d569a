//! Credentials that end while a manager is open.

use leasehold_core::{ErrorKind, LostReason};
use libtest_mimic::Trial;
use testbed::redis::Server;

use crate::fixture::{BOUND, Waiter, assert_lost, command, direct, hold, ok, open, server, trial, within};

pub(crate) fn trials() -> Vec<Trial> {
    let changes: [(&str, &[&str]); 4] = [
        ("rights_that_were_taken", &[TAKES_RIGHTS]),
        ("a_password_that_was_changed", &["resetpass", ">other"]),
        ("a_user_that_was_switched_off", &["off"]),
        ("a_user_that_was_deleted", &[]),
    ];
    let trials = changes.into_iter().map(|(name, change)| {
        trial(format!("ageing::{name}_end_everything_in_time"), move || {
            every_caller_is_denied_in_time(change)
        })
    });
    trials.collect()
}

/// The connections stay, and their requests are refused.
const TAKES_RIGHTS: &str = "-@all";

/// Changes the user, or deletes it. Connections that would live on are cut, and cannot be made again.
async fn change(server: &Server, change: &[&str]) {
    if change.is_empty() {
        assert_eq!(command(server, &["ACL", "DELUSER", "app"]).await.integer(), Some(1));
        return;
    }
    ok(server, &[&["ACL", "SETUSER", "app"], change].concat()).await;
    if change != [TAKES_RIGHTS] {
        command(server, &["CLIENT", "KILL", "USER", "app"]).await;
    }
}

/// A release says why it was not confirmed. The holder loses its lock, the waiter is refused, closing ends, and other users
/// go on.
async fn every_caller_is_denied_in_time(change: &[&str]) {
    let server = server().await;
    ok(&server, &["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"]).await;
    let app = || direct(&server).credentials("app", "secret");
    let (a, b, other) = (open(app()).await, open(app()).await, open(direct(&server)).await);
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &other).await;

    let released = a.lock("released").unwrap().try_acquire().await.unwrap().expect("it is free");
    self::change(&server, change).await;
    let release = within(BOUND, "a release ends", released.release()).await;
    let denied = release.unwrap_err();
    assert_eq!(*denied.kind(), ErrorKind::Denied, "{denied}");
    assert_eq!(guard.lost().await, LostReason::Expired);
    // Its entry ends, and it asks to enter again.
    let refused = within(BOUND, "the waiter is refused", waiting.outcome()).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Denied, "{refused}");
    let refused = a.lock("another").unwrap().try_acquire().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Denied, "{refused}");
    assert!(!format!("{refused:?} {denied:?}").contains("secret"));

    let next = hold(&other).await;
    assert_lost(&guard, "when the next one holds");
    next.release().await.unwrap();
    let next = other.lock("released").unwrap().wait(BOUND).acquire().await.unwrap();
    next.release().await.unwrap();
    for locks in [a, b] {
        // Whether there was anything left to release differs.
        drop(within(BOUND, "closing ends", locks.shutdown()).await);
    }
}
