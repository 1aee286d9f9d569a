//! Rights that change while locks are held and waited for, with tokens of either kind, on both versions; what a user
//! without rights is denied is in `tests/servers` of the workspace.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use leasehold_core::LostReason;
use leasehold_core::backend::Credentials;
use leasehold_etcd::EtcdConfig;
use parking_lot::Mutex;
use testbed::etcd::{Etcd, Setup, current};
use testbed::{Direction, Mode, Proxy};

use crate::fixture::{
    BOUND, EARLY, PREFIX, TTL, eventually, hold, hold_aside, open, open_with_ttl, trials, within,
};

trials![
    changes_of_others_disturb_nobody,
    abandoned_acquisition_without_the_right_frees_the_lock,
    a_watch_without_the_right_is_given_up,
    a_session_that_may_not_watch_itself_is_over,
    switching_authentication_off_and_on_disturbs_nobody,
    a_token_that_ran_out_is_renewed,
    password_that_changes_is_asked_for_again,
];

/// Runs `test` with tokens of either kind at the same time, on every version there is.
async fn everywhere(token_ttl: u32, test: impl AsyncFn(Etcd)) {
    for program in [None, current()] {
        let setup = || {
            let setup = Setup::new().auth_token_ttl(token_ttl);
            program.iter().fold(setup, |setup, program| setup.program(program))
        };
        let signed = setup().signed_tokens(Duration::from_secs(token_ttl.into()));
        let run = async |setup: Setup| {
            println!("{setup:?}");
            let mut etcd = setup.start().await.unwrap();
            etcd.enable_auth("alice", "secret", "locks/").await.unwrap();
            ctl(&etcd, "user add bob:secret").await;
            ctl(&etcd, "user grant-role bob locks").await;
            test(etcd).await;
        };
        join(Box::pin(run(setup())), Box::pin(run(signed))).await;
        if current().is_none() {
            return testbed::peers::skip("etcd 3.6", "there is none in target/tools; run: make tools");
        }
    }
}

/// Long enough that no token expires.
const LONG: u32 = 300;

async fn ctl(etcd: &Etcd, command: &str) {
    etcd.ctl(command.split(' ')).await.unwrap();
}

fn user(etcd: &Etcd, name: &str) -> EtcdConfig {
    EtcdConfig::new(etcd.endpoints()).prefix(PREFIX).credentials(name, "secret")
}

async fn waiting(etcd: &Etcd, name: &str, waiters: usize) {
    let keys = async || etcd.keys(&format!("{PREFIX}/{name}/")).await.unwrap().len();
    eventually("they queue", async || keys().await == waiters + 1).await;
}

async fn changes_of_others_disturb_nobody() {
    everywhere(LONG, async |etcd| {
        let (one, other) = (open(user(&etcd, "alice")).await, open(user(&etcd, "bob")).await);
        let guard = hold(&one, "n").await;
        let next = hold_aside(&other, "n");
        waiting(&etcd, "n", 1).await;
        ctl(&etcd, "role add others").await;
        ctl(&etcd, "user add carol:secret").await;

        within(BOUND, "the release ends", guard.release()).await.unwrap();
        let guard = next.end("the other holds").await;
        ctl(&etcd, "user grant-role carol others").await;
        let next = hold_aside(&one, "n");
        waiting(&etcd, "n", 1).await;
        guard.renew().await.unwrap();
        guard.release().await.unwrap();
        next.end("the first holds again").await.release().await.unwrap();
    })
    .await;
}

/// The right that alice keeps without her first role.
async fn only_sessions(etcd: &Etcd) {
    ctl(etcd, "role add rest").await;
    ctl(etcd, "role grant-permission rest --prefix=true readwrite locks/%session/").await;
    ctl(etcd, "user grant-role alice rest").await;
}

/// An acquisition was cancelled, its reply was lost, and the right to look for its entry is missing: the session ends, and
/// the entry with its lease.
async fn abandoned_acquisition_without_the_right_frees_the_lock() {
    everywhere(LONG, async |etcd| {
        only_sessions(&etcd).await;
        let proxy = Proxy::start(etcd.addr(0)).unwrap();
        let behind = EtcdConfig::new([proxy.addr().to_string()]).prefix(PREFIX);
        let one = open(behind.credentials("alice", "secret")).await;
        let other = open(user(&etcd, "bob")).await;
        let bystander = hold(&one, "m").await;
        proxy.set(Direction::ServerToClient, Mode::Hold).await;
        let acquiring = hold_aside(&one, "n");
        waiting(&etcd, "n", 0).await;
        drop(acquiring);
        ctl(&etcd, "user revoke-role alice locks").await;
        proxy.reset().await;
        proxy.set(Direction::ServerToClient, Mode::Pass).await;

        let reason = within(BOUND, "the other hold is lost", bystander.lost()).await;
        assert_eq!(reason, LostReason::SessionLost);
        hold(&other, "n").await.release().await.unwrap();
        let revokes = etcd.requests().await.unwrap().of("LeaseRevoke");
        assert!(revokes <= 2, "{revokes} requests to end a lease, without the right to");
    })
    .await;
}

/// The right to watch the key of a hold is missing: the watch is removed, and opened again only after a while. When the
/// right is back, a deletion is noticed.
async fn a_watch_without_the_right_is_given_up() {
    everywhere(LONG, async |etcd| {
        only_sessions(&etcd).await;
        let manager = open(user(&etcd, "alice")).await;
        let guard = hold(&manager, "n").await;
        ctl(&etcd, "user revoke-role alice locks").await;
        let renewals = async || etcd.requests().await.unwrap().of("LeaseKeepAlive");
        // One of them finds a hold that is old enough to be watched.
        let first = renewals().await;
        eventually("renewals", async || renewals().await >= first + 2).await;

        let streams = async || {
            let metrics = etcd.metrics(0).await.unwrap();
            metrics.sum("grpc_server_started_total", "grpc_method=\"Watch\"")
        };
        let before = streams().await;
        let first = renewals().await;
        eventually("renewals", async || renewals().await >= first + 2).await;
        let opened = streams().await - before;
        assert!(opened <= 1.0, "{opened} streams in two renewals");
        guard.ensure_held().unwrap();

        ctl(&etcd, "user grant-role alice locks").await;
        ctl(&etcd, "del --prefix locks/n/").await;
        let reason = within(BOUND, "the deletion is noticed", guard.lost()).await;
        assert_eq!(reason, LostReason::Gone);
    })
    .await;
}

/// A session may read its key, but not its inbox: without its watch it ends.
async fn a_session_that_may_not_watch_itself_is_over() {
    everywhere(LONG, async |etcd| {
        let manager = open(user(&etcd, "alice")).await;
        let keys = etcd.keys("locks/%session/").await.unwrap();
        ctl(&etcd, "role add rest").await;
        ctl(&etcd, &format!("role grant-permission rest readwrite {}", keys[0])).await;
        ctl(&etcd, "user grant-role alice rest").await;
        let guard = hold(&manager, "n").await;
        ctl(&etcd, "user revoke-role alice locks").await;
        // The hold is watched only later, which ends the stream.
        // Newer servers refuse the renewal, too.
        let reason = within(BOUND, "it is over", guard.lost()).await;
        assert!(matches!(reason, LostReason::SessionLost | LostReason::Expired), "{reason}");
    })
    .await;
}

/// After authentication was disabled and enabled again, a token is too old, and a connection that was made meanwhile has
/// none.
async fn switching_authentication_off_and_on_disturbs_nobody() {
    everywhere(LONG, async |etcd| {
        let (one, other) = (open(user(&etcd, "alice")).await, open(user(&etcd, "bob")).await);
        let in_queue = async |waiters| {
            let queue = async || other.inspect("n").await.unwrap().contenders;
            eventually("it queues", async || queue().await == waiters).await;
        };
        let guard = hold(&one, "n").await;
        let next = hold_aside(&other, "n");
        in_queue(1).await;
        ctl(&etcd, "auth disable").await;
        within(BOUND, "the release ends", guard.release()).await.unwrap();
        let guard = next.end("the other holds").await;

        let next = hold_aside(&one, "n");
        in_queue(1).await;
        let opened = open(user(&etcd, "alice")).await;
        let without_user = etcd_client::Client::connect(etcd.endpoints(), None).await.unwrap();
        without_user.auth_client().auth_enable().await.unwrap();
        within(BOUND, "the release ends", guard.release()).await.unwrap();
        let guard = next.end("the first holds again").await;
        within(BOUND, "the release ends", guard.release()).await.unwrap();
        let guard = hold(&opened, "n").await;
        within(BOUND, "the release ends", guard.release()).await.unwrap();
    })
    .await;
}

async fn a_token_that_ran_out_is_renewed() {
    const TOKEN_TTL: u32 = 1;
    everywhere(TOKEN_TTL, async |etcd| {
        // Renewed every ten seconds: nothing else is sent.
        let (one, other) = (
            open_with_ttl(user(&etcd, "alice"), 10 * TTL).await.unwrap(),
            open_with_ttl(user(&etcd, "bob"), 10 * TTL).await.unwrap(),
        );
        let guard = hold(&one, "n").await;
        let next = hold_aside(&other, "n");
        tokio::time::sleep(3 * Duration::from_secs(TOKEN_TTL.into())).await; // The token's life, and more.

        guard.release().await.unwrap();
        next.end_within(EARLY, "the other holds").await.release().await.unwrap();
        tokio::time::sleep(3 * Duration::from_secs(TOKEN_TTL.into())).await; // The same without a hold.
        // On a new name: the streams are as old as the token.
        let guard = hold(&one, "fresh").await;
        let next = hold_aside(&other, "fresh");
        eventually("it queues", async || one.inspect("fresh").await.unwrap().contenders == 1).await;
        guard.release().await.unwrap();
        next.end_within(EARLY, "the other holds").await.release().await.unwrap();
    })
    .await;
}

/// It costs neither a hold nor a place: the next connection asks for the new one.
async fn password_that_changes_is_asked_for_again() {
    everywhere(LONG, async |etcd| {
        let password = Arc::new(Mutex::new("secret"));
        let asked = Arc::clone(&password);
        let ask = move || std::future::ready(Ok(Credentials::new("alice", *asked.lock())));
        let config = EtcdConfig::new(etcd.endpoints()).prefix(PREFIX).credentials_from(ask);
        let (one, other) = (open(config.clone()).await, open(config).await);
        let guard = hold(&one, "n").await;
        let next = hold_aside(&other, "n");
        waiting(&etcd, "n", 1).await;
        *password.lock() = "changed";
        let root = etcd_client::ConnectOptions::new().with_user("root", "testbed");
        let mut root = etcd_client::Client::connect(etcd.endpoints(), Some(root)).await.unwrap();
        root.user_change_password("alice", "changed").await.unwrap();
        eventually("it is renewed", async || guard.renew().await.is_ok()).await;
        within(BOUND, "the release ends", guard.release()).await.unwrap();
        next.end("the other holds").await.release().await.unwrap();
    })
    .await;
}
