//! Revocation: what is written, and from when the grace period counts.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{AcquireRequest, Revocation, StoreConfig};
use leasehold_core::clock::Deadline;
use leasehold_core::{
    Builder, Env, ErrorKind, GuardState, LockGuard, LockManager, LockName, LostReason, Revoke, Timing,
};
use testbed::zookeeper::{Op, Setup};
use testbed::{Direction, Mode};
use zookeeper_client::{Acls, CreateMode, Stat};

use crate::fixture::{
    BOUND, Beside, Fixture, Outside, Space, TTL, eventually, hold_aside, noted, now, proxy, server, within,
};
use crate::sharing::{R, take};

/// Outlasts the test: no hold ends by its grace period.
pub(crate) const GRACE: Duration = BOUND.saturating_mul(4);

fn ask(grace: Duration) -> Revoke {
    Revoke::Ask { grace }
}

/// The inbox of the session that made a node.
fn inbox_of(space: &Space, node: &Stat) -> String {
    format!("{}/leasehold/%inboxes/{:016x}", space.chroot, node.ephemeral_owner)
}

/// The nodes of a lock, the oldest first.
async fn nodes(space: &Space, outside: &Outside, name: &str, count: usize) -> Vec<(String, Stat)> {
    let directory = space.directory(name);
    let mut nodes = Vec::new();
    for child in outside.has(&directory, count).await {
        let path = format!("{directory}/{child}");
        let (_, stat) = outside.client.get_data(&path).await.unwrap();
        nodes.push((path, stat));
    }
    nodes
}

/// The deadline of a requested revocation, once it is requested.
async fn asked(guard: &LockGuard) -> Deadline {
    guard.revocation_requested().await.expect("it is held, and asked for")
}

/// Requests a revocation in the background, as the command does.
async fn asks(space: &Space, grace: Duration) -> Beside<Revocation> {
    let admin = space.manager().await;
    Beside::start(async move { admin.revoke("a", ask(grace)).await.unwrap() })
}

/// The revoker finds the holder and adds to its inbox; the holder reads that once.
pub(crate) async fn an_ask_is_six_requests_and_heard_by_one(fixture: Arc<Fixture>) {
    const SYNC: Op = Op::Other(9);
    let space = fixture.space().await;
    let way = proxy(fixture.server().await);
    let env = || Env::new(Timing::for_ttl(BOUND)).unwrap();
    let admin = space.by(way.addr()).config().open(env()).await.unwrap();
    let way_of_holder = proxy(fixture.server().await);
    let (holder, env) = (space.by(way_of_holder.addr()).config().open(env()).await.unwrap(), env());
    let name = LockName::new("a").unwrap();
    let grant = holder.try_acquire(&AcquireRequest::new(name.clone(), env.owner_id(), BOUND)).await.unwrap();
    let (seen, read) = (noted(&way).await, noted(&way_of_holder).await);
    let found = admin.revoke(&name, ask(GRACE)).await.unwrap().pop().expect("it is held");
    assert_eq!(*seen.lock(), [SYNC, Op::List, Op::Get, Op::Get, Op::SetData, Op::SetData]);
    eventually("it is heard", async || !read.lock().is_empty()).await;
    let shown = admin.inspect(&name).await.unwrap().holders.pop().expect("it is held");
    assert_eq!((found.token, found.ttl), (shown.token, shown.ttl));
    assert!(shown.ttl.is_some());
    assert_eq!(*read.lock(), [Op::Get]);
    drop(grant);

    let outside = space.outside().await;
    let (_, node) = nodes(&space, &outside, "a", 1).await.remove(0);
    let (inbox, _) = outside.client.get_data(&inbox_of(&space, &node)).await.unwrap();
    let czxid = node.czxid;
    assert_eq!(String::from_utf8(inbox).unwrap(), format!("{czxid} {}", GRACE.as_millis()));
}

/// All sharers get the request, or are forced out, in one flight, and the holds of one session by one message.
pub(crate) async fn all_who_share_are_asked_in_one_flight(fixture: Arc<Fixture>) {
    const SYNC: Op = Op::Other(9);
    for force in [false, true] {
        let server = server(Setup::new().longest_session(3 * BOUND)).await;
        let space = fixture.space_on([server.addr()]);
        let way = proxy(&server);
        // No other request is sent meanwhile, and no reply is late.
        let patient = |builder: Builder| builder.ttl(3 * BOUND).op_timeout(BOUND);
        let admin = space.by(way.addr()).manager_with(patient).await;
        let [one, other] = [space.manager_with(patient).await, space.manager_with(patient).await];
        let guards = [take(&one, R).await, take(&other, R).await, take(&one, R).await];
        let seen = noted(&way).await;
        way.set(Direction::ServerToClient, Mode::Hold).await;
        let how = if force { Revoke::Force } else { ask(GRACE) };
        let revoking = Beside::start(async move { admin.revoke("a", how).await.unwrap() });
        let mut flights =
            vec![vec![SYNC, Op::List], vec![Op::Get; 3], vec![Op::Get; 2], vec![Op::SetData; 4]];
        flights.extend(force.then(|| vec![Op::Delete; 3]));
        for flight in flights {
            way.held(Direction::ServerToClient, flight.len()).await;
            assert_eq!(std::mem::take(&mut *seen.lock()), flight);
            way.release_held(Direction::ServerToClient).await;
        }
        way.set(Direction::ServerToClient, Mode::Pass).await;
        for guard in &guards {
            let _until = within(BOUND, "it is asked", guard.revocation_requested()).await;
        }
        drop(guards);
        assert_eq!(revoking.end("an answer").await, Revocation::Released);
    }
}

pub(crate) async fn one_that_cannot_be_asked_keeps_nobody_from_it(fixture: Arc<Fixture>) {
    let (space, outside) = (fixture.space().await, fixture.space().await.outside().await);
    outside.client.auth("digest", b"admin:secret").await.unwrap();
    let open = async || {
        let config = space.config().acl("world:anyone:rwcda").unwrap();
        LockManager::builder(config).ttl(TTL).build().await.unwrap()
    };
    let managers = [open().await, open().await, open().await];
    let admin = space.manager().await;
    for closed in 0..managers.len() {
        let mut guards = Vec::new();
        for locks in &managers {
            guards.push(take(locks, R).await);
        }
        let inbox = inbox_of(&space, &nodes(&space, &outside, "a", managers.len()).await[closed].1);
        outside.client.set_acl(&inbox, &Acls::creator_all(), None).await.unwrap();
        let refused = admin.revoke("a", ask(GRACE)).await.expect_err("one cannot be asked");
        assert_eq!(*refused.kind(), ErrorKind::Denied, "{refused:?}");
        for (at, guard) in guards.iter().enumerate().filter(|(at, _)| *at != closed) {
            let until = within(BOUND, "it is asked", guard.revocation_requested()).await;
            assert!(until.is_some(), "{at}");
        }
        outside.client.set_acl(&inbox, &Acls::anyone_all(), None).await.unwrap();
        for guard in guards {
            guard.release().await.unwrap();
        }
    }
}

/// The notification of a change is lost; the next renewal finds the request.
pub(crate) async fn a_message_that_is_not_told_of_is_heard_with_the_next_renewal(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let way = proxy(fixture.server().await);
    let locks = space.by(way.addr()).manager().await;
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    // What the server says of its own accord has this number.
    let told = |frame: &[u8]| frame.get(4..8) == Some(&(-1_i32).to_be_bytes());
    way.set(Direction::ServerToClient, Mode::drop_frames(told)).await;
    for grace in [GRACE, Duration::ZERO] {
        let revoking = asks(&space, grace).await;
        let heard = async {
            match grace {
                Duration::ZERO => assert_eq!(guard.lost().await, LostReason::Revoked),
                _ => drop(asked(&guard).await),
            }
        };
        within(BOUND, "it hears", heard).await;
        if grace.is_zero() {
            assert_eq!(revoking.end("an answer").await, Revocation::Released);
        }
    }
}

/// A message for a waiter is reported with its grant, with the grace period that is left.
pub(crate) async fn waiter_asked_to_release_has_the_grace_left(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let (first, second) = (space.manager().await, space.manager().await);
    let (outside, guard) = (space.outside().await, first.lock("a").unwrap().acquire().await.unwrap());
    let waiting = hold_aside(&second, "a");
    let (_, node) = nodes(&space, &outside, "a", 2).await.remove(1);
    let (inbox, message) = (inbox_of(&space, &node), format!("{} 60000", node.czxid));
    outside.client.set_data(&inbox, message.as_bytes(), None).await.unwrap();
    // A hold of the same session, asked for by the same inbox, shows that it was read.
    let other = second.lock("b").unwrap().acquire().await.unwrap();
    let (_, its_node) = nodes(&space, &outside, "b", 1).await.remove(0);
    let message = format!("{message}\n{} 0", its_node.czxid);
    outside.client.set_data(&inbox, message.as_bytes(), None).await.unwrap();
    assert_eq!(other.lost().await, LostReason::Revoked);
    let read_at = now();
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    let guard = waiting.end("it holds").await;
    let until = asked(&guard).await;
    assert!(until.remaining(read_at) <= Duration::from_secs(60), "{:?}", until.remaining(read_at));
    assert_eq!(guard.state(), GuardState::Held);
    guard.release().await.unwrap();
}

/// Nothing is written to the nodes of Curator's other recipes.
pub(crate) async fn other_recipes_keep_their_data(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let (locks, outside) = (space.manager().await, space.outside().await);
    locks.lock("a").unwrap().acquire().await.unwrap().release().await.unwrap();
    let latch = format!("{}/_c_51e3f9c4-2c4c-4d0e-9c0e-8f3c1a5b7d21-latch-", space.directory("a"));
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, number) = outside.client.create(&latch, b"theirs", &options).await.unwrap();
    assert_eq!(locks.revoke("a", Revoke::AT_ONCE).await.unwrap(), Revocation::Foreign);
    let (data, _) = outside.client.get_data(&format!("{latch}{number}")).await.unwrap();
    assert_eq!(data, b"theirs");
}
