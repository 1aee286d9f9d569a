//! The schema in the server: its version, its rights, its eras, and its messages.

use leasehold::postgres::PostgresConfig;
use leasehold::{ErrorKind, Revoke, connect};
use testbed::postgres::{Server, Setup};
use testbed::{Beside, Server as _, eventually};

use super::{connect_user, open, url};
use crate::fixture::{NAME, VERY_LONG, hold, options, queued};

pub(super) async fn other_version_is_refused_with_both_numbers() {
    let server = Setup::new().start().await.unwrap();
    open(server.addr(), "").await.shutdown().await.unwrap();
    let other =
        "CREATE OR REPLACE FUNCTION leasehold.schema_version() RETURNS int LANGUAGE sql AS 'SELECT 7'";
    server.sql(other).await.unwrap();
    let refused = connect(&url(server.addr(), "")).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:#}");
    let said = refused.to_string();
    assert!(said.contains("version 7") && said.contains("knows 1"), "{said}");
    server.sql("CREATE SCHEMA theirs").await.unwrap();
    let refused = connect(&url(server.addr(), "&schema=theirs")).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused:#}");
    // Its owner can install into it.
    let (text, creates) = (PostgresConfig::schema_text("theirs").unwrap(), "CREATE SCHEMA \"theirs\";\n");
    server.sql(&format!("BEGIN; {} COMMIT", text.replace(creates, ""))).await.unwrap();
    open(server.addr(), "&schema=theirs").await.shutdown().await.unwrap();
    let refused = connect(&url(server.addr(), "&schema=own&replicas=sync")).await.unwrap_err();
    assert!(refused.to_string().contains("synchronous_standby_names"), "{refused:#}");
}

/// A user without it gets an error that says how to install the schema, and one with it reads and writes no table.
pub(super) async fn executing_functions_is_the_only_right_needed() {
    let server = Setup::new().start().await.unwrap();
    for statement in ["CREATE ROLE app LOGIN", "ALTER ROLE app PASSWORD 'secret'"] {
        server.sql(statement).await.unwrap();
    }
    let app = url(format!("app:secret@{}", server.addr()), "");
    let refused = connect(&format!("{app}&create=false")).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:#}");
    assert!(refused.to_string().contains("postgres-schema"), "{refused}");
    open(server.addr(), "").await.shutdown().await.unwrap();
    for grant in ["USAGE ON SCHEMA leasehold", "EXECUTE ON ALL FUNCTIONS IN SCHEMA leasehold"] {
        server.sql(&format!("GRANT {grant} TO app")).await.unwrap();
    }
    let locks = connect(&app).await.unwrap();
    let guard = hold(&locks).await;
    assert_eq!(locks.inspect(NAME).await.unwrap().holders.len(), 1);
    guard.release().await.unwrap();
    let own = "SET ROLE app; SELECT count(*) FROM leasehold.contender";
    assert!(server.sql(own).await.unwrap_err().to_string().contains("permission denied"));
    // What it creates there would run with the rights of the schema's owner.
    server.sql("GRANT CREATE ON SCHEMA leasehold TO app").await.unwrap();
    let refused = connect(&app).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:#}");
    assert!(refused.to_string().contains("`CREATE`"), "{refused}");
}

/// Behind a pooler the connections cannot set it themselves.
pub(super) async fn repeatable_read_is_refused_by_name() {
    let server = Setup::new().start().await.unwrap();
    open(server.addr(), "").await.shutdown().await.unwrap();
    let set = "ALTER DATABASE postgres SET default_transaction_isolation = 'repeatable read'";
    server.sql(set).await.unwrap();
    let refused = connect(&url(server.addr(), "&listen=false")).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:#}");
    assert!(refused.to_string().contains("default_transaction_isolation"), "{refused}");
    hold(&open(server.addr(), "").await).await.release().await.unwrap();
    for function in [
        "acquire(1,1,'a','o',1,1,true,0,true,'l',NULL)",
        "flushed()",
        "release(1,'a',1,0,true,true)",
        "abandon(1,'a','o',true)",
        "renew(1)",
        "mine(1)",
        "open_session('p','',1000,200,false)",
        "end_session(1)",
        "revoke('p','a',0,true,true)",
        "write_record('p',NULL,'x')",
        "sign(1,'o','v')",
        "unsign('p','o')",
        "members('p')",
        "token_base('p',0)",
        "raise_token_base('p',1)",
    ] {
        let refused = server.sql(&format!("SELECT leasehold.{function}")).await.unwrap_err();
        assert!(refused.to_string().contains("needs the isolation level"), "{function}: {refused}");
    }
}

/// The mark of the server differs, as after a restore: a session that lives goes on, and tokens grow.
pub(super) async fn another_history_begins_a_larger_era() {
    let server = Setup::new().start().await.unwrap();
    let locks = open(server.addr(), "").await;
    let before = hold(&locks).await;
    for mark in ["timeline = 9", "system = 7", "counter = 7"] {
        let token = before.token();
        server.sql(&format!("UPDATE leasehold.origin SET {mark}")).await.unwrap();
        let other = open(server.addr(), "").await;
        let later = other.lock("later").unwrap().acquire().await.unwrap();
        assert!(later.token().counter() >> 40 > token.counter() >> 40, "{mark}: {later:?} after {token}");
        before.ensure_held().unwrap();
        server.sql("UPDATE leasehold.origin SET era = era + 1").await.unwrap();
        later.release().await.unwrap();
    }
    before.release().await.unwrap();
}

pub(super) async fn half_used_counter_begins_anew() {
    let server = Setup::new().start().await.unwrap();
    let before = hold(&open(server.addr(), "").await).await.token();
    server.sql("SELECT setval('leasehold.counter', 549755813888)").await.unwrap();
    let later = hold(&open(server.addr(), "").await).await.token();
    assert_eq!(later.counter() >> 40, (before.counter() >> 40) + 1);
    assert!(later.counter() & 0xff_ffff_ffff < 100, "{later}");
}

/// A number that was not on the disk would come again. An era that a crash used up would, too, on another timeline.
pub(super) async fn numbers_leap_after_a_crash() {
    let mut server = Setup::new().start().await.unwrap();
    let before = hold(&open(server.addr(), "").await).await.token();
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    let later = hold(&open(server.addr(), "").await).await.token();
    assert!(later.counter() >= before.counter() + (1 << 24), "{later} after {before}");
    assert_eq!(later.counter() >> 40, before.counter() >> 40);
}

/// A crash does not bring it back: its entries would be before those of later holders.
pub(super) async fn end_of_a_session_waits_for_the_disk() {
    let server = Setup::new().start().await.unwrap();
    let (one, (mut user, _connection)) = (open(server.addr(), "").await, connect_user(server.addr()).await);
    let _guard = hold(&one).await;
    for end in ["settle(x.space, c.name, 0, NULL, false)", "end_session(x.id)"] {
        let transaction = user.transaction().await.unwrap();
        let ends = format!(
            "SET LOCAL search_path = leasehold; SET LOCAL synchronous_commit = off; \
             UPDATE session SET expires_at = '-infinity'; \
             SELECT {end} FROM session x JOIN contender c ON c.session = x.id"
        );
        transaction.batch_execute(&ends).await.unwrap();
        let row = transaction.query_one("SELECT current_setting('synchronous_commit')", &[]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), "on", "{end}");
        transaction.rollback().await.unwrap();
    }
}

/// A server comes back as it was before a promotion, and a client has a bound of the numbers of the other one.
pub(super) async fn bound_of_a_lost_history_does_not_count() {
    let server = Setup::new().start().await.unwrap();
    let (one, other) = (open(server.addr(), "").await, open(server.addr(), "").await);
    let is_in_era =
        async |era: u8| server.sql(&format!("UPDATE leasehold.origin SET era = {era}")).await.unwrap();
    is_in_era(5).await;
    hold(&one).await.release().await.unwrap();
    is_in_era(1).await;
    let guard = hold(&other).await;
    assert!(one.lock(NAME).unwrap().try_acquire().await.unwrap().is_none(), "two hold");
    guard.release().await.unwrap();
}

/// The lock is held for longer than a statement waits: opening asks again.
pub(super) async fn opening_outlasts_a_lock_that_it_needs() {
    let server = Setup::new().start().await.unwrap();
    open(server.addr(), "").await.shutdown().await.unwrap();
    let (mut user, _connection) = connect_user(server.addr()).await;
    let transaction = user.transaction().await.unwrap();
    let lock = "SELECT pg_advisory_xact_lock(1818585186, id) FROM leasehold.space";
    transaction.execute(lock, &[]).await.unwrap();
    let url = url(server.addr(), "");
    let opening = Beside::start(async move { connect(&url).await.unwrap() });
    let is_refused = async || server.log().unwrap().contains("due to lock timeout");
    eventually("a statement has waited in vain", is_refused).await;
    transaction.commit().await.unwrap();
    let locks = opening.end("it is open").await;
    hold(&locks).await.release().await.unwrap();
}

/// The row of a session is locked while a renewal waits for its commit. The victim hears no message: its renewal tells it.
pub(super) async fn removal_waits_for_no_session_and_is_told_without_messages() {
    let server = Setup::new().start().await.unwrap();
    let (one, other) = (open(server.addr(), "&listen=false").await, open(server.addr(), "").await);
    let (guard, kept) = (hold(&one).await, one.lock("kept").unwrap().acquire().await.unwrap());
    let (user, _connection) = connect_user(server.addr()).await;
    user.batch_execute("BEGIN; SELECT FROM leasehold.session FOR UPDATE").await.unwrap();
    other.revoke(NAME, Revoke::Force).await.unwrap();
    user.batch_execute("COMMIT").await.unwrap();
    hold(&other).await.release().await.unwrap();
    eventually("the hold is lost", async || guard.ensure_held().is_err()).await;
    kept.release().await.unwrap();
}

/// A waiter that listens is notified by a holder that does not.
pub(super) async fn holder_without_messages_notifies_a_waiter() {
    let server = Setup::new().start().await.unwrap();
    let one = open(server.addr(), "&listen=false").await;
    // Its waiter looks by itself from a quarter of the ttl.
    let other = Server::url(server.addr(), "special", &options(VERY_LONG));
    let other = connect(&other).await.unwrap();
    let guard = hold(&one).await;
    let waiting = queued(&other, 0, &one).await;
    guard.release().await.unwrap();
    waiting.end("it holds").await.release().await.unwrap();
}
