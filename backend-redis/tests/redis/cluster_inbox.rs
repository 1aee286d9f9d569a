//! Messages in a cluster: by the bus to every server, or by channels of slots, which move with their slots.

use leasehold_core::{LockGuard, LockManager, Result, Revoke};
use testbed::redis::{Cluster, Step};

use crate::cluster::{of, owner, started, waits};
use crate::fixture::{BOUND, Beside, LONG, eventually, ok, open_for, trials, within};

trials![messages_stay_at_the_server_of_the_slot, channel_follows_its_slot];

const HANDOFFS: u64 = 20;

/// How many messages of clients the servers have sent to each other.
pub(crate) async fn passed_on(cluster: &Cluster) -> u64 {
    let mut count = 0;
    for node in 0..3 {
        let said = cluster.server(node).command(&["CLUSTER", "INFO"]).await.unwrap().text().unwrap();
        let sent = said.lines().filter_map(|line| line.split_once("_sent:"));
        let sent = sent.filter(|(kind, _)| *kind == "cluster_stats_messages_publish");
        count += sent.map(|(_, sent)| sent.trim().parse::<u64>().unwrap()).sum::<u64>();
    }
    count
}

/// A waiter whose entry names the channel of its slot.
pub(crate) async fn waits_by_channel(
    cluster: &Cluster,
    locks: &LockManager,
    name: &str,
    observer: &LockManager,
) -> Beside<Result<LockGuard>> {
    let waiter = waits(locks, name, observer).await;
    let key = format!("leasehold:{{{name}}}:e");
    let server = cluster.server(owner(cluster, &key).await);
    eventually("the entry names the channel", async || {
        let fields = server.command(&["HVALS", &key]).await.unwrap().elements();
        fields.iter().any(|field| field.text().is_some_and(|text| text.contains(" {")))
    })
    .await;
    waiter
}

/// A hand-off by the bus is a message for each other server; by the channel of the slot it is none. Managers of both kinds share
/// a prefix. Those of users who may not subscribe to channels of slots, or not publish there, have the bus.
async fn messages_stay_at_the_server_of_the_slot() {
    let cluster = started(3, 0).await;
    of(&cluster).load_scripts().await.unwrap();
    for (node, user) in (0..3).flat_map(|node| [(node, "ssubscribe"), (node, "spublish")]) {
        let lacks = format!("-{user}");
        let rights = ["ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all", &lacks];
        ok(cluster.server(node), &rights).await;
    }
    let [deaf, mute] = ["ssubscribe", "spublish"]
        .map(|user| of(&cluster).servers(|server| server.credentials(user, "secret")));
    for (releases, waits_there, is_heard, sent) in [
        (of(&cluster), of(&cluster).sharded_inbox(false), false, 2 * HANDOFFS),
        (of(&cluster), of(&cluster), true, 0),
        (of(&cluster), deaf, false, 2 * HANDOFFS),
        (mute, of(&cluster), true, 2 * HANDOFFS),
    ] {
        let (a, b) = (open_for(releases, LONG).await, open_for(waits_there, LONG).await);
        let mut handoffs = Vec::new();
        for number in 0..HANDOFFS {
            let name = format!("n{number}");
            let held = a.lock(&name).unwrap().acquire().await.unwrap();
            let waiter = match is_heard {
                true => waits_by_channel(&cluster, &b, &name, &a).await,
                false => waits(&b, &name, &a).await,
            };
            handoffs.push((held, waiter));
        }
        let before = passed_on(&cluster).await;
        let mut granted = Vec::new();
        for (held, waiter) in handoffs {
            held.release().await.unwrap();
            granted.push(waiter.end("the message of the grant").await.unwrap());
        }
        assert_eq!(passed_on(&cluster).await - before, sent);
        println!("{HANDOFFS} hand-offs: {sent} messages between 3 servers");
        // The holder gets its message by the channel, too.
        let revoked = granted.pop().unwrap();
        let name = revoked.name().to_string();
        let other = a.clone();
        let revoking = Beside::start(async move { other.revoke(&name, Revoke::Ask { grace: LONG }).await });
        within(BOUND, "the holder hears of it", revoked.revocation_requested()).await.unwrap();
        revoked.release().await.unwrap();
        revoking.end("the revocation").await.unwrap();
        for guard in granted {
            guard.release().await.unwrap();
        }
    }
}

/// A waiter gets its message wherever its slot has moved, also if it is granted the lock before it has subscribed there, and after
/// its connection was lost.
async fn channel_follows_its_slot() {
    let cluster = started(3, 0).await;
    let a = open_for(of(&cluster), LONG).await;
    let b = open_for(of(&cluster), LONG).await;
    let name = "moves";
    let slot = cluster.slot_of(&format!("leasehold:{{{name}}}")).await.unwrap();
    for case in ["heard at the new server", "granted before", "connection lost"] {
        let held = a.lock(name).unwrap().acquire().await.unwrap();
        let waiter = waits_by_channel(&cluster, &b, name, &a).await;
        let from = cluster.owner_of(slot).await.unwrap();
        let to = (from + 1) % 3;
        if case == "connection lost" {
            let killed = cluster.server(from).command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.unwrap();
            assert!(killed.integer().is_some_and(|count| count > 0));
        } else {
            cluster.move_slot(slot, to, Step::Done).await.unwrap();
        }
        if case == "heard at the new server" {
            eventually("the waiter has subscribed there", async || {
                let channels = cluster.server(to).command(&["PUBSUB", "SHARDCHANNELS"]).await.unwrap();
                !channels.elements().is_empty()
            })
            .await;
        }
        held.release().await.unwrap();
        let granted = waiter.end(case).await.unwrap();
        assert!(a.lock(name).unwrap().try_acquire().await.unwrap().is_none());
        granted.release().await.unwrap();
    }
}
