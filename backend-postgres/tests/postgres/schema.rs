//! The schema in the server: its version, its rights, its eras, and its messages.

use leasehold_core::{ErrorKind, LockManager, Revoke};
use leasehold_postgres::PostgresConfig;

use crate::fixture::{BOUND, Beside, Fixture, NAME, eventually, hold, open, trials};

trials!(
    other_version_is_refused_with_both_numbers,
    executing_functions_is_the_only_right_needed,
    repeatable_read_is_refused_by_name,
    another_history_begins_a_larger_era,
    half_used_counter_begins_anew,
    numbers_leap_after_a_crash,
    end_of_a_session_waits_for_the_disk,
    bound_of_a_lost_history_does_not_count,
    opening_outlasts_a_lock_that_it_needs,
    removal_waits_for_no_session_and_is_told_without_messages,
    holder_without_messages_notifies_a_waiter,
);

async fn other_version_is_refused_with_both_numbers() {
    let fixture = Fixture::start().await;
    fixture.manager().await.shutdown().await.unwrap();
    let other =
        "CREATE OR REPLACE FUNCTION leasehold.schema_version() RETURNS int LANGUAGE sql AS 'SELECT 7'";
    fixture.server.sql(other).await.unwrap();
    let refused = open(fixture.config()).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:#}");
    let said = refused.to_string();
    assert!(said.contains("version 7") && said.contains("knows 1"), "{said}");
    fixture.server.sql("CREATE SCHEMA theirs").await.unwrap();
    let refused = open(fixture.config().schema("theirs")).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused:#}");
    // Its owner can install into it.
    let (text, creates) = (PostgresConfig::schema_text("theirs").unwrap(), "CREATE SCHEMA \"theirs\";\n");
    fixture.server.sql(&format!("BEGIN; {} COMMIT", text.replace(creates, ""))).await.unwrap();
    open(fixture.config().schema("theirs")).await.unwrap().shutdown().await.unwrap();
    let refused = open(fixture.config().schema("own").synchronous_replicas()).await.unwrap_err();
    assert!(refused.to_string().contains("synchronous_standby_names"), "{refused:#}");
}

/// A user without it gets an error that says how to install the schema, and one with it reads and writes no table.
async fn executing_functions_is_the_only_right_needed() {
    let fixture = Fixture::start().await;
    for statement in ["CREATE ROLE app LOGIN", "ALTER ROLE app PASSWORD 'secret'"] {
        fixture.server.sql(statement).await.unwrap();
    }
    let app = || {
        let mut server = tokio_postgres::Config::new();
        let addr = fixture.server.addr();
        server
            .host(addr.ip().to_string())
            .port(addr.port())
            .user("app")
            .password("secret")
            .dbname("postgres");
        PostgresConfig::from(server)
    };
    let refused = open(app().create(false)).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:#}");
    assert!(refused.to_string().contains("postgres-schema"), "{refused}");
    fixture.manager().await.shutdown().await.unwrap();
    for grant in ["USAGE ON SCHEMA leasehold", "EXECUTE ON ALL FUNCTIONS IN SCHEMA leasehold"] {
        fixture.server.sql(&format!("GRANT {grant} TO app")).await.unwrap();
    }
    let locks = open(app()).await.unwrap();
    let guard = hold(&locks).await;
    assert_eq!(locks.inspect(NAME).await.unwrap().holders.len(), 1);
    guard.release().await.unwrap();
    let own = "SET ROLE app; SELECT count(*) FROM leasehold.contender";
    assert!(fixture.server.sql(own).await.unwrap_err().to_string().contains("permission denied"));
    // What it creates there would run with the rights of the schema's owner.
    fixture.server.sql("GRANT CREATE ON SCHEMA leasehold TO app").await.unwrap();
    let refused = open(app()).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:#}");
    assert!(refused.to_string().contains("`CREATE`"), "{refused}");
}

/// Behind a pooler the connections cannot set it themselves.
async fn repeatable_read_is_refused_by_name() {
    let fixture = Fixture::start().await;
    fixture.manager().await.shutdown().await.unwrap();
    let set = "ALTER DATABASE postgres SET default_transaction_isolation = 'repeatable read'";
    fixture.server.sql(set).await.unwrap();
    let refused = open(fixture.config().listen(false)).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:#}");
    assert!(refused.to_string().contains("default_transaction_isolation"), "{refused}");
    hold(&fixture.manager().await).await.release().await.unwrap();
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
        let refused = fixture.server.sql(&format!("SELECT leasehold.{function}")).await.unwrap_err();
        assert!(refused.to_string().contains("needs the isolation level"), "{function}: {refused}");
    }
}

/// The mark of the server differs, as after a restore: a session that lives goes on, and tokens grow.
async fn another_history_begins_a_larger_era() {
    let fixture = Fixture::start().await;
    let locks = fixture.manager().await;
    let before = hold(&locks).await;
    for mark in ["timeline = 9", "system = 7", "counter = 7"] {
        let token = before.token();
        fixture.server.sql(&format!("UPDATE leasehold.origin SET {mark}")).await.unwrap();
        let other = fixture.manager().await;
        let later = other.lock("later").unwrap().acquire().await.unwrap();
        assert!(later.token().counter() >> 40 > token.counter() >> 40, "{mark}: {later:?} after {token}");
        before.ensure_held().unwrap();
        fixture.server.sql("UPDATE leasehold.origin SET era = era + 1").await.unwrap();
        later.release().await.unwrap();
    }
    before.release().await.unwrap();
}

async fn half_used_counter_begins_anew() {
    let fixture = Fixture::start().await;
    let before = hold(&fixture.manager().await).await.token();
    fixture.server.sql("SELECT setval('leasehold.counter', 549755813888)").await.unwrap();
    let later = hold(&fixture.manager().await).await.token();
    assert_eq!(later.counter() >> 40, (before.counter() >> 40) + 1);
    assert!(later.counter() & 0xff_ffff_ffff < 100, "{later}");
}

/// A number that was not on the disk would come again. An era that a crash used up would, too, on another timeline.
async fn numbers_leap_after_a_crash() {
    let mut fixture = Fixture::start().await;
    let before = hold(&fixture.manager().await).await.token();
    fixture.server.kill().await.unwrap();
    fixture.server.start_again().await.unwrap();
    let later = hold(&fixture.manager().await).await.token();
    assert!(later.counter() >= before.counter() + (1 << 24), "{later} after {before}");
    assert_eq!(later.counter() >> 40, before.counter() >> 40);
}

/// A crash does not bring it back: its entries would be before those of later holders.
async fn end_of_a_session_waits_for_the_disk() {
    let fixture = Fixture::start().await;
    let (one, (mut user, _connection)) = (fixture.manager().await, fixture.user().await);
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
async fn bound_of_a_lost_history_does_not_count() {
    let fixture = Fixture::start().await;
    let (one, other) = (fixture.manager().await, fixture.manager().await);
    let is_in_era = async |era: u8| {
        fixture.server.sql(&format!("UPDATE leasehold.origin SET era = {era}")).await.unwrap()
    };
    is_in_era(5).await;
    hold(&one).await.release().await.unwrap();
    is_in_era(1).await;
    let guard = hold(&other).await;
    assert!(one.lock(NAME).unwrap().try_acquire().await.unwrap().is_none(), "two hold");
    guard.release().await.unwrap();
}

/// The lock is held for longer than a statement waits: opening asks again.
async fn opening_outlasts_a_lock_that_it_needs() {
    let fixture = Fixture::start().await;
    fixture.manager().await.shutdown().await.unwrap();
    let (mut user, _connection) = fixture.user().await;
    let transaction = user.transaction().await.unwrap();
    let lock = "SELECT pg_advisory_xact_lock(1818585186, id) FROM leasehold.space";
    transaction.execute(lock, &[]).await.unwrap();
    let opening = Beside::start(open(fixture.config()));
    let is_refused = async || fixture.server.log().unwrap().contains("due to lock timeout");
    eventually("a statement has waited in vain", is_refused).await;
    transaction.commit().await.unwrap();
    let locks = opening.end("it is open").await.unwrap();
    hold(&locks).await.release().await.unwrap();
}

/// The row of a session is locked while a renewal waits for its commit. The victim hears no message: its renewal tells it.
async fn removal_waits_for_no_session_and_is_told_without_messages() {
    let fixture = Fixture::start().await;
    let (one, other) = (open(fixture.config().listen(false)).await.unwrap(), fixture.manager().await);
    let (guard, kept) = (hold(&one).await, one.lock("kept").unwrap().acquire().await.unwrap());
    let (user, _connection) = fixture.user().await;
    user.batch_execute("BEGIN; SELECT FROM leasehold.session FOR UPDATE").await.unwrap();
    other.revoke(NAME, Revoke::Force).await.unwrap();
    user.batch_execute("COMMIT").await.unwrap();
    hold(&other).await.release().await.unwrap();
    eventually("the holder is told", async || guard.ensure_held().is_err()).await;
    kept.release().await.unwrap();
}

/// A waiter that listens is notified by a holder that does not.
async fn holder_without_messages_notifies_a_waiter() {
    let fixture = Fixture::start().await;
    let one = open(fixture.config().listen(false)).await.unwrap();
    // Its waiter looks by itself from a quarter of the ttl.
    let other = LockManager::builder(fixture.config()).ttl(4 * BOUND).connect_timeout(BOUND);
    let other = other.build().await.unwrap();
    let guard = hold(&one).await;
    let lock = other.lock(NAME).unwrap();
    let waiting = Beside::start(async move { lock.acquire().await.unwrap() });
    eventually("it waits", async || one.inspect(NAME).await.unwrap().contenders > 0).await;
    guard.release().await.unwrap();
    waiting.end("it holds").await.release().await.unwrap();
}
