//! Processes of an earlier version on the same nodes, played by a plain client: their nodes, messages and
//! rules as they were.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::Revocation;
use leasehold_core::{GuardState, LostReason, Revoke};
use zookeeper_client::{Acls, Client, CreateMode, Error, Stat};

use crate::revocation::GRACE;
use crate::rig::{BOUND, Rig, Space, eventually, hold_aside, now};

#[path = "../../../tests/interop/earlier/zookeeper/inbox.rs"]
mod inbox;

/// What its notes say; longer than the session of anybody here.
const NOTED: Duration = Duration::from_millis(7_500);

/// A manager of the earlier version.
struct Earlier {
    client: Client,
    root: String,
    id: i64,
}

impl Earlier {
    async fn new(space: &Space) -> Self {
        let connector = Client::connector().with_session_timeout(BOUND);
        let client = connector.connect(&space.hosts()).await.unwrap();
        let id = client.session_id().0;
        let earlier = Self { client, root: format!("{}/leasehold", space.chroot), id };
        earlier.make_directory("/%sessions").await;
        earlier.make_directory("/%inboxes").await;
        for node in [format!("{}/%sessions/{id:016x}", earlier.root), earlier.inbox(id)] {
            let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
            earlier.client.create(&node, b"", &options).await.unwrap();
        }
        earlier
    }

    fn inbox(&self, session: i64) -> String {
        format!("{}/%inboxes/{session:016x}", self.root)
    }

    /// Containers, without data.
    async fn make_directory(&self, path: &str) {
        let path = format!("{}{path}", self.root);
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
        for end in ends {
            let options = CreateMode::Container.with_acls(Acls::anyone_all());
            match self.client.create(&path[..end], b"", &options).await {
                Ok(_) | Err(Error::NodeExists) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Queues; the name of its node, and the transaction.
    async fn enter(&self) -> (String, i64) {
        self.make_directory("/a").await;
        let uuid = format!("{:08x}-2c4c-4d0e-9c0e-8f3c1a5b7d21", self.id & 0xffff_ffff);
        let stem = format!("{}/a/_c_{uuid}-lock-", self.root);
        let note = format!("leasehold 1\n{}\nearlier", NOTED.as_millis());
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (stat, number) = self.client.create(&stem, note.as_bytes(), &options).await.unwrap();
        (format!("_c_{uuid}-lock-{number}"), stat.czxid)
    }

    /// Whoever it takes for the holder.
    async fn first(&self) -> Option<String> {
        let children = self.client.list_children(&format!("{}/a", self.root)).await.unwrap();
        let numbered = children.into_iter().filter_map(|child| Some((sequence(&child)?, child)));
        numbered.min().map(|(_, child)| child)
    }

    async fn is_first(&self, node: &str) -> bool {
        self.first().await.as_deref() == Some(node)
    }

    async fn leave(&self, node: &str) {
        self.client.delete(&format!("{}/a/{node}", self.root), None).await.unwrap();
    }

    /// Whether its inbox says that the hold of `czxid` is over.
    async fn is_revoked(&self, czxid: i64) -> bool {
        let (data, _) = self.client.get_data(&self.inbox(self.id)).await.unwrap();
        inbox::transactions(&data).contains(&czxid)
    }

    /// Tells the holder; what its node is known by.
    async fn revokes(&self) -> Stat {
        let holder = format!("{}/a/{}", self.root, self.first().await.expect("it is held"));
        let (_, holder) = self.client.get_data(&holder).await.unwrap();
        let path = self.inbox(holder.ephemeral_owner);
        let (data, stat) = self.client.get_data(&path).await.unwrap();
        let data = inbox::with_transaction(&data, holder.czxid);
        self.client.set_data(&path, &data, Some(stat.version)).await.unwrap();
        holder
    }
}

/// The place of a contender.
fn sequence(node: &str) -> Option<i32> {
    let (_, digits) = node.rsplit_once("lock-")?;
    let plain = digits.strip_prefix('-').unwrap_or(digits);
    let all_digits = plain.len() >= 9 && plain.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { digits.parse().ok() } else { None }
}

/// Whoever of the two holds, the other does not, and has its turn in order of arrival; whichever made the
/// directory.
pub(crate) async fn each_waits_for_the_other_in_turn(rig: Arc<Rig>) {
    for ours_first in [false, true] {
        let space = rig.space().await;
        let (old, locks, outside) =
            (Earlier::new(&space).await, space.manager().await, space.outside().await);
        if ours_first {
            locks.lock("a").unwrap().acquire().await.unwrap().release().await.unwrap();
        }
        let (theirs, _) = old.enter().await;
        assert!(old.is_first(&theirs).await);
        assert!(locks.lock("a").unwrap().try_acquire().await.unwrap().is_none());
        let waiting = hold_aside(&locks, "a");
        outside.has(&space.directory("a"), 2).await;
        let (next, _) = old.enter().await;
        assert!(!waiting.is_finished());
        old.leave(&theirs).await;
        let guard = waiting.end("it holds").await;
        assert!(!old.is_first(&next).await);
        guard.release().await.unwrap();
        assert!(old.is_first(&next).await);
        assert!(locks.lock("a").unwrap().try_acquire().await.unwrap().is_none());
        old.leave(&next).await;
    }
}

/// A holder of the earlier version that is asked with a grace hears that it is asked, and lets go at once;
/// the revoker waits for as long as that one's note allows.
pub(crate) async fn an_earlier_holder_hears_that_it_is_asked(rig: Arc<Rig>) {
    let space = rig.space().await;
    let (old, locks) = (Earlier::new(&space).await, space.manager().await);
    for grace in [GRACE, Duration::ZERO] {
        let (theirs, czxid) = old.enter().await;
        let holder = locks.inspect("a").await.unwrap().holder.expect("it is held");
        assert_eq!((holder.label.as_str(), holder.ttl), ("earlier", Some(NOTED)));
        let (revoked, ()) = tokio::join!(locks.revoke("a", Revoke::Ask { grace }), async {
            eventually("it is asked to let go", async || old.is_revoked(czxid).await).await;
            old.leave(&theirs).await;
        });
        assert_eq!(revoked.unwrap(), Revocation::Released);
    }
}

/// A revoker of the earlier version gives no time; also to whom another has given some.
pub(crate) async fn an_earlier_revoker_is_heard_and_leaves_no_grace(rig: Arc<Rig>) {
    let space = rig.space().await;
    let (old, locks, admin) = (Earlier::new(&space).await, space.manager().await, space.manager().await);
    for asked_before in [false, true] {
        let guard = locks.lock("a").unwrap().acquire().await.unwrap();
        let asking = async {
            if asked_before {
                let revoked = admin.revoke("a", Revoke::Ask { grace: GRACE }).await.unwrap();
                assert_eq!(revoked, Revocation::Released);
            }
        };
        let ending = async {
            if asked_before {
                let until = guard.until_asked().await.expect("it is held");
                assert!(GRACE / 2 < until.remaining(now()));
                assert_eq!(guard.state(), GuardState::Held);
            }
            let holder = old.revokes().await;
            assert_eq!(guard.lost().await, LostReason::Revoked);
            assert_eq!(guard.token().counter(), holder.czxid.cast_unsigned());
        };
        tokio::join!(asking, ending);
        eventually("it is let go", async || old.first().await.is_none()).await;
    }
}
