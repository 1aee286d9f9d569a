//! Rights that are missing, and rights that are taken away during a hold or a wait.

use std::sync::Arc;

use leasehold_core::{ErrorKind, GuardState, LockManager, LostReason};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Error as ZkError, Permission};

use crate::fixture::{Beside, Fixture, Outside, Space, TTL, eventually, hold_aside, now, proxy};

/// With credentials nodes are for their creator: no other client reads, queues or removes.
pub(crate) async fn nodes_belong_to_their_creator(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let config = || space.config().credentials("me", "secret");
    let open = |config| LockManager::builder(config).ttl(TTL).build();
    let (one, same) = (open(config()).await.unwrap(), open(config()).await.unwrap());
    let guard = one.lock("a").unwrap().acquire().await.unwrap();
    assert!(same.lock("a").unwrap().try_acquire().await.unwrap().is_none());

    let directory = space.directory("a");
    let outside = space.outside().await;
    assert_eq!(outside.client.list_children(&directory).await.unwrap_err(), ZkError::NoAuth);
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let intruding = outside.client.create(&format!("{directory}/_c_x-lock-"), b"", &options).await;
    assert_eq!(intruding.unwrap_err(), ZkError::NoAuth);

    let insider =
        Client::connector().with_auth("digest", b"me:secret").connect(&space.hosts()).await.unwrap();
    let nodes = insider.list_children(&directory).await.unwrap();
    let node = format!("{directory}/{}", nodes[0]);
    assert_eq!(outside.client.delete(&node, None).await.unwrap_err(), ZkError::NoAuth);
    guard.ensure_held().unwrap();
    guard.release().await.unwrap();
    same.lock("a").unwrap().acquire().await.unwrap().release().await.unwrap();
}

/// Without each of these rights no session opens, and nothing is left.
pub(crate) async fn without_the_right_to_delete_nothing_is_opened(fixture: Arc<Fixture>) {
    let server = fixture.server().await;
    for rights in ["rwc", "rwd", "rcd", "wcd"] {
        let space = fixture.space().await;
        let config = space.config().acl(&format!("world:anyone:{rights}")).unwrap();
        let error = LockManager::builder(config).ttl(TTL).build().await.expect_err(rights);
        assert_eq!(*error.kind(), ErrorKind::Denied, "{rights}: {error:?}");
        eventually("its session is over", async || space.sessions(server).await.is_empty()).await;
    }
}

pub(crate) async fn a_node_that_is_gone_ends_no_session(fixture: Arc<Fixture>) {
    let (space, outside) = stage(&fixture).await;
    let locks = space.manager().await;
    let directory = space.directory("a");
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let bystander = locks.lock("b").unwrap().acquire().await.unwrap();
    let nodes = outside.has(&directory, 1).await;
    outside.allow(&directory, "rwc").await;
    outside.client.delete(&format!("{directory}/{}", nodes[0]), None).await.unwrap();
    let gone = guard.release().await.expect_err("it was removed");
    assert_eq!(gone.lost_reason(), Some(LostReason::Gone), "{gone:?}");
    bystander.release().await.unwrap();
}

/// A lock that could not be released ends its session once. It is denied until its rights are back.
pub(crate) async fn a_lock_that_cannot_be_let_go_is_not_taken_again(fixture: Arc<Fixture>) {
    let (space, outside) = stage(&fixture).await;
    let locks = space.manager().await;
    let directory = space.directory("a");
    outside.allow(&directory, "rwc").await;
    let guard = locks.lock("a").unwrap().try_acquire().await.unwrap().expect("it is free");
    assert_eq!(*guard.release().await.expect_err("nobody may delete").kind(), ErrorKind::Denied);
    let bystander = locks.lock("b").unwrap().acquire().await.unwrap();
    outside.has(&directory, 0).await;
    let tried = locks.lock("a").unwrap().try_acquire().await.map(drop).expect_err("it cannot be let go");
    assert_eq!(*tried.kind(), ErrorKind::Denied, "{tried:?}");
    assert_eq!(denied(&locks).end("it is told").await, ErrorKind::Denied);
    outside.has(&directory, 0).await;
    outside.allow(&directory, "rwcd").await;
    locks.lock("a").unwrap().acquire().await.unwrap().release().await.unwrap();
    bystander.release().await.unwrap();
}

pub(crate) async fn a_place_that_cannot_be_given_up_ends_with_the_session(fixture: Arc<Fixture>) {
    let (space, outside) = stage(&fixture).await;
    let (one, other) = (space.manager().await, space.manager().await);
    let directory = space.directory("a");
    let guard = one.lock("a").unwrap().acquire().await.unwrap();
    let waiting = hold_aside(&other, "a");
    let nodes = outside.has(&directory, 2).await;
    outside.allow(&directory, "rwc").await;
    drop(waiting);
    eventually("its place is gone", async || outside.children(&directory).await == nodes[..1]).await;
    guard.ensure_held().unwrap();
    // Nor one that was only tried for.
    let denied = other.lock("a").unwrap().try_acquire().await;
    eventually("its place is gone", async || outside.children(&directory).await == nodes[..1]).await;
    assert_eq!(*denied.expect_err("it cannot leave").kind(), ErrorKind::Denied);
    outside.allow(&directory, "rwcd").await;
    guard.release().await.unwrap();
}

pub(crate) async fn waiters_whose_directory_is_closed_are_denied(fixture: Arc<Fixture>) {
    for rights in ["d", ""] {
        let (space, outside) = stage(&fixture).await;
        let managers = [space.manager().await, space.manager().await, space.manager().await];
        let directory = space.directory("a");
        let guard = managers[0].lock("a").unwrap().acquire().await.unwrap();
        let second = denied(&managers[1]);
        outside.has(&directory, 2).await;
        let third = denied(&managers[2]);
        let nodes = outside.has(&directory, 3).await;
        outside.allow(&directory, rights).await;
        // The third lists again when the second one is gone, and may not.
        outside.client.delete(&format!("{directory}/{}", nodes[1]), None).await.unwrap();
        assert_eq!(third.end("it is told").await, ErrorKind::Denied, "{rights:?}");
        // The second one notices that it is gone, and may not queue again.
        assert_eq!(second.end("it is told").await, ErrorKind::Denied, "{rights:?}");
        assert_eq!(guard.release().await.is_ok(), rights == "d", "{rights:?}");
        eventually("nothing is left", async || outside.children(&directory).await.is_empty()).await;
    }
}

/// A session that may not write its own node cannot prove itself: its guards are lost in time, and the next one works.
pub(crate) async fn a_session_that_may_not_write_is_lost_in_time(fixture: Arc<Fixture>) {
    let (space, outside) = stage(&fixture).await;
    let server = fixture.server().await;
    // Its own nodes carry the right to change that.
    let open = || space.config().acl("world:anyone:rwcda").unwrap();
    let one = LockManager::builder(open()).ttl(TTL).build().await.unwrap();
    let other = space.manager().await;
    let guard = one.lock("a").unwrap().acquire().await.unwrap();
    let waiting = hold_aside(&other, "a");
    outside.has(&space.directory("a"), 2).await;
    let sessions = format!("{}/leasehold/%sessions", space.chroot);
    let holder = outside.holder(&space.directory("a")).await;
    outside.allow(&format!("{sessions}/{holder:016x}"), "rcd").await;
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert_eq!(guard.state(), GuardState::Lost(LostReason::Expired));
    waiting.end("it holds").await.release().await.unwrap();
    one.lock("a").unwrap().acquire().await.unwrap().release().await.unwrap();
    assert!(!space.sessions(server).await.contains(&holder));
}

pub(crate) async fn client_back_at_a_closed_entry_loses_in_time(fixture: Arc<Fixture>) {
    let (space, outside) = stage(&fixture).await;
    let proxy = proxy(fixture.server().await);
    let (locks, rival) = (space.by(proxy.addr()).manager().await, space.manager().await);
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let waiting = hold_aside(&rival, "a");
    outside.has(&space.directory("a"), 2).await;
    outside.allow(&format!("{}/leasehold/%sessions", space.chroot), "rw").await;
    let lost = guard.lost();
    let told = Beside::start(async move { (lost.await, now()) });
    proxy.reset().await;
    let next = waiting.end("it holds").await;
    let granted = now();
    let (reason, told) = told.end("it is told").await;
    assert_eq!(reason, LostReason::Expired);
    assert!(told <= granted, "the guard was held {:?} too long", told.since(granted));
    let refused = locks.lock("b").unwrap().acquire().await.map(drop).expect_err("nowhere to be announced");
    assert_eq!(*refused.kind(), ErrorKind::Denied, "{refused:?}");
    next.release().await.unwrap();
}

pub(crate) async fn entry_without_sight_of_the_one_ahead_is_denied(fixture: Arc<Fixture>) {
    let (space, outside) = stage(&fixture).await;
    let open = LockManager::builder(space.config().acl("world:anyone:rwcda").unwrap());
    let (one, other) = (open.ttl(TTL).build().await.unwrap(), space.manager().await);
    let guard = one.lock("a").unwrap().acquire().await.unwrap();
    let directory = space.directory("a");
    let nodes = outside.has(&directory, 1).await;
    outside.allow(&format!("{directory}/{}", nodes[0]), "").await;
    assert_eq!(denied(&other).end("it is told").await, ErrorKind::Denied);
    outside.has(&directory, 1).await;
    // It still sees that the lock is held.
    assert!(other.lock("a").unwrap().try_acquire().await.unwrap().is_none());
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    other.lock("a").unwrap().acquire().await.unwrap().release().await.unwrap();
}

/// Nodes give no right to change rights, so no foreign client can close them.
pub(crate) async fn a_stranger_cannot_change_the_rights(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let locks = space.manager().await;
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let outside = space.outside().await;
    let directory = space.directory("a");
    let node = format!("{directory}/{}", outside.has(&directory, 1).await[0]);
    let closed = [Acl::new(Permission::ALL, AuthId::new("digest", "x:eA=="))];
    for path in [&space.chroot, &format!("{}/leasehold", space.chroot), &directory, &node] {
        let refused = outside.client.set_acl(path, &closed, None).await.map(drop);
        assert_eq!(refused, Err(ZkError::NoAuth), "{path}");
    }
    locks.lock("b").unwrap().acquire().await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
    // The diagnosis reports older nodes that give it.
    let told = async |locks: &LockManager| {
        let findings = locks.diagnose().await.unwrap();
        findings.iter().any(|finding| finding.detail.contains("change the rights"))
    };
    assert!(!told(&locks).await);
    let (earlier, _) = stage(&fixture).await;
    assert!(told(&earlier.manager().await).await);
}

/// All nodes above the locks `a` and `b`, created by a user who may change their rights.
async fn stage(fixture: &Fixture) -> (Space, Outside) {
    let space = fixture.space().await;
    let outside = space.outside().await;
    outside.client.auth("digest", b"admin:secret").await.unwrap();
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let mut path = String::new();
    let below = format!("{}/leasehold", space.chroot);
    for segment in below.split('/').skip(1) {
        path = format!("{path}/{segment}");
        outside.client.create(&path, b"", &options).await.unwrap();
    }
    for name in ["%sessions", "%inboxes", "a", "b"] {
        outside.client.create(&format!("{below}/{name}"), b"", &options).await.unwrap();
    }
    (space, outside)
}

/// Waits for `a`; returns the error.
fn denied(locks: &LockManager) -> Beside<ErrorKind> {
    let lock = locks.lock("a").unwrap();
    Beside::start(async move { lock.acquire().await.map(drop).expect_err("it is denied").kind().clone() })
}

impl Outside {
    /// Sets the rights of all other users on a node.
    async fn allow(&self, path: &str, rights: &str) {
        let mut permission = Permission::NONE;
        for (right, permitted) in [
            ('r', Permission::READ),
            ('w', Permission::WRITE),
            ('c', Permission::CREATE),
            ('d', Permission::DELETE),
        ] {
            if rights.contains(right) {
                permission = permission | permitted;
            }
        }
        let acl = [Acl::new(Permission::ALL, AuthId::authed()), Acl::new(permission, AuthId::anyone())];
        self.client.set_acl(path, &acl, None).await.unwrap();
    }

    /// The session of the first contender.
    async fn holder(&self, directory: &str) -> i64 {
        let first = &self.children(directory).await[0];
        let stat = self.client.check_stat(&format!("{directory}/{first}")).await.unwrap();
        stat.expect("it holds").ephemeral_owner
    }
}
