//! Behind PgBouncer in transaction mode, where each transaction may have another connection of the server.

use leasehold::{Effect, ErrorKind, connect};
use testbed::pgbouncer::Bouncer;
use testbed::postgres::Setup;
use testbed::{BOUND, Beside, Depth, Proxy, within};

use super::{connect_user, end_connections, open, url};
use crate::fixture::{NAME, hold};

pub(super) async fn pooler_is_found_out_by_name() {
    let server = Setup::new().start().await.unwrap();
    let pooler = Bouncer::start(&server, 10).await.unwrap();
    let refused = within(BOUND, "an answer", connect(&url(pooler.addr(), ""))).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.effect()),
        (&ErrorKind::Unsupported, Effect::NotApplied),
        "{refused:#}"
    );
    assert!(refused.to_string().contains("`listen=false`"), "{refused:#}");
}

/// A pooler that comes in between later has other connections, which have not prepared the statements of a cycle.
pub(super) async fn pooler_that_comes_later_costs_no_lock() {
    let server = Setup::new().start().await.unwrap();
    let pooler = Bouncer::start(&server, 6).await.unwrap();
    let way = Proxy::start(server.addr()).unwrap();
    let locks = open(way.addr(), "").await;
    hold(&locks).await.release().await.unwrap();
    way.lead_to(pooler.addr()).await;
    way.reset().await;
    hold(&locks).await.release().await.unwrap();
    // The pooler gives the connection that was used last to the next client.
    let (user, _connection) = connect_user(pooler.addr()).await;
    user.batch_execute("BEGIN; SELECT 1").await.unwrap();
    hold(&locks).await.release().await.unwrap();
    user.batch_execute("COMMIT").await.unwrap();
}

/// More sessions than connections of the server. Those are ended meanwhile, which loses nothing.
pub(super) async fn waiters_behind_a_pooler_hold_one_by_one() {
    let cycles = Depth::of_run().pick(5, 10, 200);
    let server = Setup::new().start().await.unwrap();
    let pooler = Bouncer::start(&server, 6).await.unwrap();
    server.sql("CREATE TABLE counted (token bigint)").await.unwrap();
    let mut contending = Vec::new();
    for _ in 0..8 {
        let (locks, addr) = (open(pooler.addr(), "&listen=false").await, server.addr());
        contending.push(Beside::start(async move {
            let (user, _connection) = connect_user(addr).await;
            for _ in 0..cycles {
                let guard = locks.lock(NAME).unwrap().acquire().await.unwrap();
                // Two that hold at a time would see the same last token, or write in another order.
                let count =
                    "INSERT INTO counted SELECT $1::bigint WHERE $1 > ALL (SELECT token FROM counted)";
                assert_eq!(user.execute(count, &[&guard.token().get_i64()]).await.unwrap(), 1);
                guard.release().await.unwrap();
            }
        }));
    }
    let ended = end_connections(&server, "application_name = 'leasehold'").await;
    assert!(ended > 0, "the pooler has connections of ours");
    for contender in contending {
        contender.end("it has held as often").await;
    }
    let counted = server.sql("SELECT count(*) FROM counted").await.unwrap();
    assert_eq!(counted, (8 * cycles).to_string());
}
