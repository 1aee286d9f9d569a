//! `migrate`, from Redis to etcd and back, with processes at work that were deployed once.

use serde_json::Value;
use testbed::Server;
use testbed::etcd::Etcd;
use testbed::redis::Server as Redis;

use crate::fixture::{Done, Fixture, exit_code, line, rest};
use crate::schema;

testbed::trials![
    locks_move_and_come_back_while_they_are_used,
    blocker_is_reported,
    store_that_refuses_the_password_is_not_dead,
    locks_that_move_are_revoked_and_their_stores_looked_at,
    foreign_clients_keep_the_last_step_from_being_taken,
];

/// How many processes take one lock after the other, and for how long one may wait for it.
const LOOPS: usize = 3;
const WAIT: &str = "30s";
/// Longer than a busy machine lets a process wait for its turn.
const TTL: &str = "10s";

/// Takes a lock, counts up under it, again and again: without exclusion counts are lost.
const COUNTS: &str = r#"
while [ ! -e stop ]; do
    "$0" run --wait "$1" counter -- sh -c 'read n < count; echo $((n + 1)) > count; echo $LEASEHOLD_TOKEN >> tokens' \
        || echo "$?" >> failures
    echo done
done
"#;

struct Stores {
    redis: Redis,
    etcd: Etcd,
}

impl Stores {
    async fn start() -> Self {
        Self {
            redis: <Redis as Server>::start().await.expect("it starts"),
            etcd: <Etcd as Server>::start().await.expect("it starts"),
        }
    }

    fn moving(&self) -> Fixture {
        self.moving_with("")
    }

    fn moving_with(&self, options: &str) -> Fixture {
        let new = <Etcd as Server>::url(self.etcd.addr(0), "cli", "").replace('&', "%26");
        Fixture::on(<Redis as Server>::url(
            self.redis.addr(),
            "cli",
            &format!("ttl={TTL}{options}&migrate_to={}", new.trim_end_matches('?')),
        ))
    }
}

/// What a file says; nothing, if it is not there.
fn read(fixture: &Fixture, file: &str) -> String {
    std::fs::read_to_string(fixture.scratch.path().join(file)).unwrap_or_default()
}

/// The tokens under which it was counted, in that order.
fn tokens(fixture: &Fixture) -> Vec<u64> {
    read(fixture, "tokens").lines().map(|token| token.parse().expect("a number")).collect()
}

async fn status(fixture: &Fixture) -> Value {
    let shown = fixture.done(["migrate", "status", "--json"]).await;
    assert_eq!(shown.code, 0, "{shown:?}");
    shown.json()
}

/// Says what stood in the way, and where the move is then.
async fn walk(fixture: &Fixture, words: &[&str]) -> (Done, Value) {
    let walked =
        fixture.done(["migrate"].iter().chain(words).copied().chain(["--wait", "60s", "--json"])).await;
    assert_eq!(walked.code, 0, "{words:?}: {walked:?}");
    let status = walked.json();
    schema::check("migrate", &status);
    (walked, status)
}

/// Everybody was deployed once, holds on or takes one lock after the other, and is moved there and back: nobody loses
/// a lock, no two hold one, and tokens grow.
async fn locks_move_and_come_back_while_they_are_used() {
    let stores = Stores::start().await;
    let fixture = stores.moving();
    fixture.write("count", "0\n");
    let mut holder = fixture.hold(["whole"]).await;
    let mut loops: Vec<_> = (0..LOOPS)
        .map(|_| fixture.start_program("sh", ["-c", COUNTS, crate::fixture::LEASEHOLD, WAIT]))
        .collect();
    for each in &mut loops {
        line(each).await;
    }

    let before = status(&fixture).await;
    assert_eq!(before["phase"], "old", "{before}");
    assert!(before["next"].as_str().unwrap().contains("shadow"), "{before}");
    let mut last = tokens(&fixture).len();
    for (words, phase) in [
        (&["advance"][..], "shadow"),
        (&["advance", "--to", "drain"], "drain"),
        (&["advance", "--to", "new", "--quiet-for", "0s"], "new"),
        (&["rollback", "--to", "both"], "both"),
        (&["rollback", "--to", "old"], "old"),
        (&["advance", "--to", "new", "--quiet-for", "0s"], "new"),
    ] {
        let (_, status) = walk(&fixture, words).await;
        assert_eq!(status["phase"], phase, "{status}");
        // Somebody works in every phase.
        for each in &mut loops {
            line(each).await;
            line(each).await;
        }
        let now = tokens(&fixture).len();
        assert!(now > last, "nobody counts in {phase}");
        last = now;
        assert_eq!(fixture.inspect("whole").await["held"], true, "{phase}");
    }
    let listed = fixture.done(["ls", "--json"]).await;
    assert!(listed.out.contains("whole"), "{listed:?}");

    // A command with the old store's URL says where the locks are, now and when the move has ended.
    let forgotten = Fixture::on(<Redis as Server>::url(stores.redis.addr(), "cli", &format!("ttl={TTL}")));
    let has_moved = format!("the locks of this namespace have moved to {}", stores.etcd.addr(0));
    let refused = forgotten.done(["run", "counter", "--", "true"]).await;
    assert!(refused.code == 64 && refused.err.contains(&has_moved), "{refused:?}");
    let later = Fixture::on(<Etcd as Server>::url(stores.etcd.addr(0), "cli", &format!("ttl={TTL}")));
    assert_eq!(later.inspect("whole").await["held"], true, "the plain URL is admitted in `new`");

    fixture.write("stop", "");
    let mut counted = 0;
    for mut each in loops {
        counted += rest(&mut each).await.len();
        assert_eq!(exit_code(&mut each).await, 0);
    }
    assert_eq!(read(&fixture, "failures"), "", "every lock was granted, held and released");
    let tokens = tokens(&fixture);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert_eq!(read(&fixture, "count").trim(), tokens.len().to_string(), "nothing was counted twice, or not");
    assert!(tokens.len() > counted, "{} and {counted}", tokens.len());
    holder.close_stdin();
    let said = rest(&mut holder).await;
    assert!(said.iter().all(|line| !line.contains("lost") && !line.contains("at_risk")), "{said:?}");
    assert_eq!(exit_code(&mut holder).await, 0);

    let ended = fixture.done(["migrate", "clean"]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    let refused = forgotten.done(["run", "counter", "--", "true"]).await;
    assert!(refused.code == 64 && refused.err.contains(&has_moved), "{refused:?}");
    let over = fixture.done(["migrate", "status"]).await;
    assert!(over.code == 64 && over.err.contains("is over"), "{over:?}");
}

async fn blocker_is_reported() {
    let mut stores = Stores::start().await;
    let fixture = stores.moving();
    let plain = Fixture::on(<Redis as Server>::url(stores.redis.addr(), "cli", &format!("ttl={TTL}")));
    let mut forgotten = plain.hold(["old"]).await;
    let own = <Redis as Server>::url(stores.redis.addr(), "cli", "");
    let own = format!("migrate_to={}", own.trim_end_matches(['?', '&']).replace('&', "%26"));
    let twice = Fixture::on(<Redis as Server>::url(stores.redis.addr(), "cli", &own));
    let refused = twice.done(["migrate", "status"]).await;
    assert!(refused.code == 64 && refused.err.contains("prefix of its own"), "{refused:?}");
    // The same by another name of the host is found in the store: the process that found it has left no entry.
    let alias = Fixture::on(<Redis as Server>::url(
        stores.redis.addr(),
        "cli",
        &own.replace("127.0.0.1", "localhost"),
    ));
    let refused = alias.done(["ls"]).await;
    assert!(refused.code == 64 && refused.err.contains("prefix of its own"), "{refused:?}");
    let not_begun = fixture.done(["migrate", "advance", "--wait", "1s"]).await;
    assert!(not_begun.code == 75 && not_begun.err.contains("deploy"), "{not_begun:?}");
    assert_eq!(fixture.done(["ls"]).await.code, 0, "the first process begins the move");
    assert_eq!(status(&fixture).await["members"], Value::Array(Vec::new()), "every process has left");
    let stepped = fixture.done(["migrate", "advance"]).await;
    assert!(stepped.code == 0 && stepped.out.contains("phase: shadow"), "{stepped:?}");
    let refused = fixture.done(["migrate", "advance", "--wait", "2s"]).await;
    assert!(refused.code == 75 && refused.err.contains("1 session of the old store"), "{refused:?}");
    let shown = fixture.done(["migrate", "status"]).await;
    assert!(shown.out.contains("blocked by: 1 session"), "{shown:?}");
    forgotten.close_stdin();
    exit_code(&mut forgotten).await;
    walk(&fixture, &["advance"]).await;

    stores.etcd.kill(0).await.unwrap();
    let down = fixture.done(["migrate", "advance", "--wait", "1s"]).await;
    assert!(down.code == 69, "{down:?}");
    walk(&fixture, &["rollback", "--to", "old"]).await;
    stores.etcd.restart(0).await.unwrap();
    walk(&fixture, &["advance", "--to", "new", "--quiet-for", "0s"]).await;
    stores.redis.kill().await.unwrap();
    let alone = fixture.done(["migrate", "status", "--json"]).await.json();
    assert_eq!((&alone["phase"], alone["old"]["error"].is_string()), (&Value::from("new"), true), "{alone}");
}

async fn store_that_refuses_the_password_is_not_dead() {
    let stores = Stores::start().await;
    let old = <Etcd as Server>::url(stores.etcd.addr(0), "back", &format!("ttl={TTL}"));
    let new = <Redis as Server>::url(stores.redis.addr(), "back", "");
    let new = new.trim_end_matches(['?', '&']).replace('&', "%26");
    let fixture = Fixture::on(format!("{old}&migrate_to={new}"));
    assert_eq!(fixture.done(["ls"]).await.code, 0, "the first process begins the move");
    let before = status(&fixture).await;
    let wrong =
        Fixture::on(format!("{old}&migrate_to={}", new.replace("redis://", "redis://nobody:wrong%40")));
    let shown = wrong.done(["migrate", "status"]).await;
    assert!(shown.code == 0 && shown.out.contains("phase: old"), "{shown:?}");
    assert!(shown.out.contains("blocked by: cannot read the new store"), "{shown:?}");
    for words in [&["advance"][..], &["repair", "--yes"]] {
        let refused = wrong.done(["migrate"].iter().chain(words).copied().chain(["--wait", "1s"])).await;
        assert!(refused.code != 0 && refused.err.contains("WRONGPASS"), "{words:?}: {refused:?}");
    }
    assert_eq!(status(&fixture).await, before, "nothing was written");
    assert_eq!(wrong.done(["run", "a", "--", "true"]).await.code, 0, "it does no harm in `old`");
}

/// Whoever asks for a lock, or takes it away, does so wherever it is held; and `doctor` looks at both stores.
async fn locks_that_move_are_revoked_and_their_stores_looked_at() {
    let stores = Stores::start().await;
    let fixture = stores.moving();
    for phase in ["old", "both", "drain", "new"] {
        if phase != "old" {
            let (_, status) = walk(&fixture, &["advance", "--to", phase, "--quiet-for", "0s"]).await;
            assert_eq!(status["phase"], phase, "{status}");
        }
        for how in [&["revoke"][..], &["revoke", "--force", "--yes"]] {
            let mut holder = fixture.hold(["a"]).await;
            let revoked = fixture.done(how.iter().copied().chain(["a"])).await;
            assert_eq!(revoked.code, 0, "{how:?} in {phase}: {revoked:?}");
            // The next one has to have it in every store that counts.
            let next = fixture.done(["run", "--wait", WAIT, "a", "--", "true"]).await;
            assert_eq!(next.code, 0, "{how:?} in {phase}: {next:?}");
            let said = rest(&mut holder).await;
            assert!(
                exit_code(&mut holder).await == 0 || said.concat().contains("lost"),
                "{how:?} in {phase}: {said:?}"
            );
        }
        let looked = fixture.done(["doctor", "--json"]).await;
        for told in ["in the old store", "in the new store", &format!("phase {phase}")] {
            assert!(looked.out.contains(told), "{phase}: {told}: {}", looked.out);
        }
    }
}

/// Short processes of ours never keep each other from the last step, and one foreign client that one of them has met does, when
/// all have ended, too.
async fn foreign_clients_keep_the_last_step_from_being_taken() {
    let stores = Stores::start().await;
    let fixture = stores.moving_with("&format=string");
    fixture.write("count", "0\n");
    let mut loops: Vec<_> = (0..LOOPS)
        .map(|_| fixture.start_program("sh", ["-c", COUNTS, crate::fixture::LEASEHOLD, WAIT]))
        .collect();
    for each in &mut loops {
        line(each).await;
    }
    walk(&fixture, &["advance", "--to", "drain"]).await;
    let early = fixture.done(["migrate", "advance", "--to", "new", "--wait", "0s"]).await;
    assert!(early.code == 75 && early.err.contains("requires 1day without a foreign client"), "{early:?}");
    let (walked, _) = walk(&fixture, &["advance", "--to", "new", "--quiet-for", "2s"]).await;
    assert!(!walked.err.contains("a foreign client held"), "{walked:?}");
    walk(&fixture, &["rollback", "--to", "drain"]).await;
    fixture.write("stop", "");
    for mut each in loops {
        rest(&mut each).await;
        assert_eq!(exit_code(&mut each).await, 0);
    }
    assert_eq!(read(&fixture, "failures"), "");

    // As redis-py does.
    let mut foreign = stores.redis.client().await.unwrap();
    foreign.command(&["SET", "report", "cafe", "NX", "PX", "600000"]).await.unwrap();
    let busy = fixture.done(["run", "--try", "report", "--", "true"]).await;
    assert_eq!(busy.code, 75, "{busy:?}");
    foreign.command(&["DEL", "report"]).await.unwrap();
    let refused =
        fixture.done(["migrate", "advance", "--to", "new", "--quiet-for", "1h", "--wait", "1s"]).await;
    assert!(refused.code == 75 && refused.err.contains("a foreign client held `report`"), "{refused:?}");
    assert!(refused.err.contains("`--quiet-for` requires 1h without"), "{refused:?}");
    assert_eq!(refused.err.lines().count(), 2, "a line when something changes, and the error: {refused:?}");
    walk(&fixture, &["advance", "--to", "new", "--quiet-for", "2s"]).await;
}
