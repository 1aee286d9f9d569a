//! Slots that move under every request, step by step.

use std::time::Duration;

use leasehold_core::backend::StoreConfig;
use leasehold_core::backend::ledger::Written;
use leasehold_core::{ErrorKind, Lock, LockGuard, LockManager, Revoke};
use testbed::redis::{Reply, Server, Step};

use crate::cluster::{of, scripts_run, started, waits};
use crate::fixture::{BOUND, Beside, LONG, TTL, assert_lost, eventually, ok, open_for, pass, trials, within};
use crate::ledger::env;

trials![slot_moves_under_every_request];

/// What a server has said since [`reset`]: how often a request was to be asked of another one, was another one's, or was to
/// come again; and how many scripts it has run on the lock of that name: of the lock before, a release may come late.
async fn said(server: &Server, name: &str) -> [u64; 4] {
    let errors = server.info("errorstats").await.unwrap();
    let count = |code| {
        let count = errors.get(code).and_then(|count: &String| count.strip_prefix("count="));
        count.map_or(0, |count| count.parse().unwrap())
    };
    let [ask, moved, again] = ["errorstat_ASK", "errorstat_MOVED", "errorstat_TRYAGAIN"].map(count);
    let run =
        server.command(&["SLOWLOG", "GET", LOGGED]).await.unwrap().elements().into_iter().filter(|entry| {
            let words = entry.clone().elements().swap_remove(3).elements();
            let words: Vec<_> = words.iter().filter_map(Reply::text).collect();
            words[0] == "EVALSHA" && words[3].contains(name)
        });
    [ask, moved, again, run.count() as u64]
}

/// More requests than a server gets between two resets.
const LOGGED: &str = "100000";

/// A lock that is being acquired.
fn acquiring(lock: Lock) -> Beside<Option<LockGuard>> {
    Beside::start(async move { Some(lock.acquire().await.unwrap()) })
}

/// A request that meets a slot on its way, at any step of the move, is refused as the servers' page says, follows what they
/// say at once, and comes to what it would have come to without the move.
async fn slot_moves_under_every_request() {
    let cluster = started(3, 0).await;
    of(&cluster).load_scripts().await.unwrap();
    // A request goes on until the slot has moved, on a busy machine, too.
    let open = async || {
        let builder =
            LockManager::builder(of(&cluster)).ttl(LONG).op_timeout(BOUND / 3).connect_timeout(BOUND);
        builder.build().await.unwrap()
    };
    let (a, b, c) = (open().await, open().await, open().await);
    let reset = async || {
        for node in 0..3 {
            ok(cluster.server(node), &["CONFIG", "RESETSTAT"]).await;
            ok(cluster.server(node), &["SLOWLOG", "RESET"]).await;
        }
    };
    for node in 0..3 {
        let all = ["CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", LOGGED];
        ok(cluster.server(node), &all).await;
    }
    let maps_read = async || {
        let mut count = 0;
        for node in 0..3 {
            count += cluster.server(node).calls().await.unwrap().get("cluster|slots").copied().unwrap_or(0);
        }
        count
    };
    for step in [Step::Importing, Step::Migrating, Step::Keys, Step::Done] {
        for request in ["acquire", "wait", "renew", "release", "share", "revoke", "abandon", "list"] {
            let name = format!("{request} at {step:?}");
            let slot = cluster.slot_of(&format!("leasehold:{{{name}}}")).await.unwrap();
            let from = cluster.owner_of(slot).await.unwrap();
            let to = (from + 1) % 3;
            let lock = |locks: &LockManager| locks.lock(&name).unwrap();
            let move_to = async |step| cluster.move_slot(slot, to, step).await.unwrap();
            let is_fresh = ["acquire", "share"].contains(&request);
            let mut held = if is_fresh { None } else { Some(lock(&a).acquire().await.unwrap()) };
            let mut waiter = match request {
                "release" | "abandon" => Some(waits(&b, &name, &c).await),
                _ => None,
            };
            if step == Step::Done {
                eventually("no map is read, so that the move is news", async || {
                    let before = maps_read().await;
                    pass(Duration::from_millis(250)).await;
                    maps_read().await == before
                })
                .await;
            }
            move_to(step).await;
            reset().await;
            let (other, its_name) = (b.clone(), name.clone());
            let doing = match (request, held.take()) {
                ("share", _) => acquiring(lock(&a).shared()),
                ("acquire", _) => acquiring(lock(&a)),
                ("wait", its) => {
                    held = its;
                    acquiring(lock(&b))
                }
                ("renew", Some(held)) => Beside::start(async move {
                    held.renew().await.unwrap();
                    Some(held)
                }),
                ("release", Some(held)) => Beside::start(async move {
                    held.release().await.unwrap();
                    None
                }),
                ("revoke", its) => {
                    held = its;
                    Beside::start(async move {
                        other.revoke(&its_name, Revoke::Force).await.unwrap();
                        None
                    })
                }
                ("list", its) => Beside::start(async move {
                    let listed = other.list(&its_name).await.unwrap();
                    assert_eq!(
                        listed.iter().map(|state| state.name.as_str()).collect::<Vec<_>>(),
                        [its_name]
                    );
                    its
                }),
                (_, its) => {
                    waiter = None;
                    Beside::start(async { its })
                }
            };
            eventually(format!("{name}: the servers have answered"), async || {
                let [source, target] =
                    [said(cluster.server(from), &name).await, said(cluster.server(to), &name).await];
                match step {
                    Step::Importing => matches!((source, target), ([0, 0, 0, (1..)], [0, 0, 0, 0])),
                    Step::Migrating if !is_fresh => {
                        matches!((source, target), ([0, 0, (1..), 0], [0, 0, 0, 0]))
                    }
                    // It comes to the target with the slot.
                    Step::Migrating | Step::Keys => {
                        matches!((source, target), ([(1..), 0, 0, 0], [0, 0, 0, 0]))
                    }
                    // Its map is read first.
                    Step::Done if request == "list" => {
                        matches!((source, target), ([0, 0, 0, 0], [0, 0, 0, (1..)]))
                    }
                    // A waiter may know by then: its subscription has ended.
                    Step::Done if ["release", "abandon"].contains(&request) => {
                        matches!((source, target), ([0, _, 0, 0], [0, 0, 0, (1..)]))
                    }
                    // A second one is of the holder, who checks what it hears of the revocation.
                    Step::Done => matches!((source, target), ([0, 1 | 2, 0, 0], [0, 0, 0, (1..)])),
                }
            })
            .await;
            move_to(Step::Done).await;
            if request == "wait" {
                eventually("it waits", async || {
                    c.inspect(&name).await.is_ok_and(|state| state.contenders == 1)
                })
                .await;
                held.take().unwrap().release().await.unwrap();
            }
            let done = doing.end(&name).await;
            if let Some(revoked) = held {
                within(BOUND, "the loss is noticed", revoked.lost()).await;
            }
            if let Some(guard) = done {
                assert!(lock(&c).try_acquire().await.unwrap().is_none(), "{name}");
                guard.release().await.unwrap();
            }
            if let Some(waiter) = waiter {
                waiter.end(&name).await.unwrap().release().await.unwrap();
            }
            eventually("nothing is left", async || {
                c.inspect(&name).await.is_ok_and(|state| state.holder().is_none() && state.contenders == 0)
            })
            .await;
        }
    }

    // Where every key is that calls declare, a slot on its way serves all of them: none touches another key.
    let name = "all keys";
    let slot = cluster.slot_of(&format!("leasehold:{{{name}}}")).await.unwrap();
    let from = cluster.owner_of(slot).await.unwrap();
    let shared = a.lock(name).unwrap().shared().acquire().await.unwrap();
    let other_share = c.lock(name).unwrap().shared().acquire().await.unwrap();
    let waiter = waits(&b, name, &c).await;
    let keys =
        cluster.server(from).command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "9"]).await.unwrap();
    // And the origin of the slot.
    assert_eq!(keys.elements().len(), 5 + 1);
    cluster.move_slot(slot, (from + 1) % 3, Step::Migrating).await.unwrap();
    reset().await;
    shared.renew().await.unwrap();
    other_share.release().await.unwrap();
    let waiting = async |count| {
        eventually("they wait", async || c.inspect(name).await.unwrap().contenders == count).await;
    };
    for lock in [c.lock(name).unwrap(), c.lock(name).unwrap().shared()] {
        assert!(lock.try_acquire().await.unwrap().is_none());
        let queued = acquiring(lock);
        waiting(2).await;
        drop(queued);
        waiting(1).await;
    }
    let asking = c.clone();
    let revoking = Beside::start(async move { asking.revoke(name, Revoke::Ask { grace: LONG }).await });
    within(BOUND, "the holder hears of it", shared.revocation_requested()).await.unwrap();
    let is_served = async |node: usize| {
        let errors = cluster.server(node).info("errorstats").await.unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        assert!(scripts_run(cluster.server(node)).await > 0);
    };
    is_served(from).await;
    // The script removes keys, and is not served when it meets them again: the release is repeated once the slot has moved.
    let releasing = Beside::start(shared.release());
    eventually("the release has removed the share", async || {
        let sharers = cluster.server(from).command(&["EXISTS", "leasehold:{all keys}:h"]).await.unwrap();
        sharers.integer() != Some(1)
    })
    .await;
    cluster.move_slot(slot, (from + 1) % 3, Step::Done).await.unwrap();
    releasing.end("the share is released").await.unwrap();
    revoking.end("the revocation is seen to be followed").await.unwrap();
    waiter.end("the grant").await.unwrap().release().await.unwrap();

    // So does the ledger's.
    let ledger = of(&cluster).open(env(LONG).without_token_base()).await.unwrap().ledger().unwrap();
    let members = [env(LONG).owner_id(), env(LONG).owner_id()];
    let mut version = None;
    for member in members {
        let Written::Done(written) = ledger.write(version, b"1 old old").await.unwrap() else { panic!() };
        version = Some(written);
        ledger.sign(member, b"here").await.unwrap();
    }
    let slot = cluster.slot_of("leasehold:{%move}:until").await.unwrap();
    let from = cluster.owner_of(slot).await.unwrap();
    cluster.move_slot(slot, (from + 1) % 3, Step::Migrating).await.unwrap();
    reset().await;
    assert!(matches!(ledger.write(version, b"1 old old").await.unwrap(), Written::Done(_)));
    ledger.sign(members[0], b"still").await.unwrap();
    ledger.unsign(members[1]).await.unwrap();
    assert_eq!(ledger.members().await.unwrap().len(), 1);
    is_served(from).await;
    cluster.move_slot(slot, (from + 1) % 3, Step::Done).await.unwrap();
    assert_eq!(ledger.members().await.unwrap().len(), 1);

    // What needs one key is served where the slot goes to, once the keys are there.
    let slot = cluster.slot_of("leasehold:token_base").await.unwrap();
    let to = (cluster.owner_of(slot).await.unwrap() + 1) % 3;
    let store = of(&cluster).open(env(LONG)).await.unwrap();
    cluster.move_slot(slot, to, Step::Keys).await.unwrap();
    store.raise_token_base(7).await.unwrap();
    assert_eq!(store.token_base().await.unwrap().base, 7);
    cluster.move_slot(slot, to, Step::Done).await.unwrap();
    assert_eq!(store.token_base().await.unwrap().base, 7);

    // A hold outlasts a move that is shorter than its ttl. A longer move ends the hold in time, and grants the lock to no other
    // client.
    let short = open_for(of(&cluster), TTL).await;
    let held = short.lock("over").unwrap().acquire().await.unwrap();
    let slot = cluster.slot_of("leasehold:{over}").await.unwrap();
    let to = (cluster.owner_of(slot).await.unwrap() + 1) % 3;
    cluster.move_slot(slot, to, Step::Migrating).await.unwrap();
    pass(TTL / 2).await;
    cluster.move_slot(slot, to, Step::Done).await.unwrap();
    pass(TTL).await;
    held.ensure_held().unwrap();
    cluster.move_slot(slot, (to + 1) % 3, Step::Migrating).await.unwrap();
    let other = c.lock("over").unwrap();
    let is_lost = within(BOUND, "the loss", held.lost());
    let (refused, _) = tokio::join!(other.try_acquire(), is_lost);
    let refused = refused.unwrap_err();
    assert!(
        *refused.kind() == ErrorKind::Unavailable && refused.to_string().contains("moved"),
        "{refused:#}"
    );
    assert_lost(&held, "after its ttl");
    cluster.move_slot(slot, (to + 1) % 3, Step::Done).await.unwrap();
    c.lock("over").unwrap().acquire().await.unwrap().release().await.unwrap();
}
