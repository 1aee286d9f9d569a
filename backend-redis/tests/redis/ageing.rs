//! Authentication that was good when a manager was opened and is not any more.

use leasehold_core::{ErrorKind, LostReason};
use libtest_mimic::Trial;
use testbed::redis::Server;

use crate::rig::{
    BOUND, TTL, Waiter, assert_lost, command, direct, eventually, hold, ok, open, open_for, server, trial,
    within,
};

pub(crate) fn trials() -> Vec<Trial> {
    let kinds = [
        ("rights_that_were_taken", Ageing::RightsTaken),
        ("a_password_that_was_changed", Ageing::PasswordChanged),
        ("a_user_that_was_switched_off", Ageing::SwitchedOff),
        ("a_user_that_was_deleted", Ageing::Deleted),
    ];
    let trials = kinds.into_iter().flat_map(|(name, ageing)| {
        [
            trial(format!("ageing::{name}_end_everything_in_time"), move || everybody_hears_in_time(ageing)),
            trial(format!("ageing::{name}_and_come_back_cost_nothing"), move || {
                unchanged_reply_costs_nothing(ageing)
            }),
        ]
    });
    trials.collect()
}

#[derive(Clone, Copy, PartialEq)]
enum Ageing {
    /// The connections stay, and what they ask is refused.
    RightsTaken,
    /// Connections would live on; they are cut, and cannot be made again.
    PasswordChanged,
    SwitchedOff,
    /// The server cuts the connections itself.
    Deleted,
}

impl Ageing {
    async fn begin(self, server: &Server) {
        match self {
            Self::RightsTaken => ok(server, &["ACL", "SETUSER", "app", "-@all"]).await,
            Self::PasswordChanged => ok(server, &["ACL", "SETUSER", "app", "resetpass", ">other"]).await,
            Self::SwitchedOff => ok(server, &["ACL", "SETUSER", "app", "off"]).await,
            Self::Deleted => {
                assert_eq!(command(server, &["ACL", "DELUSER", "app"]).await.integer(), Some(1));
            }
        }
        if matches!(self, Self::PasswordChanged | Self::SwitchedOff) {
            command(server, &["CLIENT", "KILL", "USER", "app"]).await;
        }
    }
}

/// The user as it is meant to be.
async fn allow(server: &Server) {
    ok(server, &["ACL", "SETUSER", "app", "reset", "on", ">secret", "~*", "&*", "+@all"]).await;
}

/// It lasts: a release says why it was not confirmed, the holder loses its lock, who waits is refused, closing
/// ends, and others go on.
async fn everybody_hears_in_time(ageing: Ageing) {
    let server = server().await;
    allow(&server).await;
    let app = || direct(&server).credentials("app", "secret");
    let (a, b, other) = (open(app()).await, open(app()).await, open(direct(&server)).await);
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &other).await;

    let released = a.lock("released").unwrap().try_acquire().await.unwrap().expect("it is free");
    ageing.begin(&server).await;
    let release = within(BOUND, "a release ends", released.release()).await;
    let denied = release.unwrap_err();
    assert_eq!(*denied.kind(), ErrorKind::Denied, "{denied}");
    assert_eq!(guard.lost().await, LostReason::Expired);
    // Its entry ends, and it asks to enter again.
    let refused = within(BOUND, "who waits hears of it", waiting.outcome()).await.unwrap_err();
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

/// It is mended before leases end: holder and contender have heard nothing worse than a renewal that was
/// refused.
async fn unchanged_reply_costs_nothing(ageing: Ageing) {
    let server = server().await;
    allow(&server).await;
    let app = || direct(&server).credentials("app", "secret");
    let ttl = 5 * TTL;
    let (a, b, other) = (open_for(app(), ttl).await, open_for(app(), ttl).await, open(direct(&server)).await);
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &other).await;

    ageing.begin(&server).await;
    // The first one may be on its way when the connection is cut.
    eventually("renewals are denied", async || {
        guard.renew().await.is_err_and(|refused| *refused.kind() == ErrorKind::Denied)
    })
    .await;
    guard.ensure_held().unwrap();
    allow(&server).await;
    eventually("the hold is renewed", async || guard.remaining() > ttl * 9 / 10).await;
    assert!(waiting.is_waiting());
    let token = guard.token();
    guard.release().await.unwrap();
    let next = waiting.held().await;
    assert!(next.token() > token);
    next.release().await.unwrap();
}
