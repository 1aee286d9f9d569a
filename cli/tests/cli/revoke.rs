//! `revoke`: what it did is said, and in the exit code.

use crate::fixture::{Fixture, exit_code, is_alive, line, value};

testbed::trials![
    every_outcome_has_its_word_and_code,
    a_grace_lets_the_command_finish,
    force_wants_to_be_confirmed,
];

async fn every_outcome_has_its_word_and_code() {
    let fixture = Fixture::with("?ttl=1s");
    let none = fixture.done(["revoke", "--json", "a"]).await;
    assert_eq!((none.code, none.json()["outcome"].as_str()), (1, Some("not_held")));
    let _holder = fixture.hold(["a"]).await;
    let asked = fixture.done(["revoke", "--json", "a"]).await;
    assert_eq!((asked.code, asked.json()["outcome"].as_str()), (0, Some("released")));
    let mut holder = fixture.hold(["a"]).await;
    holder.stop().await.unwrap();
    let unanswered = fixture.done(["revoke", "a"]).await;
    assert_eq!(unanswered.code, 75);
    assert!(unanswered.out.contains("--force"), "{}", unanswered.out);
    let taken = fixture.done(["revoke", "--force", "--yes", "a"]).await;
    assert_eq!(taken.code, 0);
    assert!(taken.out.contains("may not be notified yet"), "{}", taken.out);
    assert_eq!(fixture.inspect("a").await["held"], false);
    holder.cont().unwrap();
    assert_eq!(value(&mut holder).await["state"], "lost");
}

async fn a_grace_lets_the_command_finish() {
    let fixture = Fixture::new();
    let script = "trap 'echo finished; exit 0' TERM; echo $$; while :; do sleep 0.05; done";
    let mut running = fixture.start(["run", "a", "--", "sh", "-c", script]);
    line(&mut running).await;
    let revoked = fixture.done(["revoke", "--grace", "1m", "--json", "a"]).await;
    assert_eq!((revoked.code, revoked.json()["outcome"].as_str()), (0, Some("released")));
    assert_eq!(line(&mut running).await, "finished");
    assert_eq!(exit_code(&mut running).await, 0);

    let script = "trap 'echo heard' TERM; echo $$; while :; do sleep 0.05; done";
    let mut running = fixture.start(["run", "a", "--", "sh", "-c", script]);
    let command: u32 = line(&mut running).await.parse().unwrap();
    let revoked = fixture.done(["revoke", "--grace", "400ms", "a"]).await;
    assert_eq!(revoked.code, 0, "{revoked:?}");
    assert!(!is_alive(command), "the lock is free while the command runs");
    assert_eq!(line(&mut running).await, "heard");
    assert_eq!(exit_code(&mut running).await, 76);
    let said = std::fs::read_to_string(running.log()).unwrap();
    assert!(said.contains("revocation requested") && said.contains("killing the command"), "{said}");
    // Killed while there was time: it has not lost the lock.
    assert!(said.contains("the command was stopped: revocation of the lock \"a\""), "{said}");

    let refused = fixture.done(["revoke", "--grace", "25h", "a"]).await;
    assert_eq!(refused.code, 64);
    assert!(refused.err.contains("grace"), "{}", refused.err);
    assert_eq!(fixture.done(["revoke", "--grace", "1s", "--force", "--yes", "a"]).await.code, 64);
}

async fn force_wants_to_be_confirmed() {
    let fixture = Fixture::new();
    let _holder = fixture.hold(["a"]).await;
    let refused = fixture.done(["revoke", "--force", "a"]).await;
    assert_eq!(refused.code, 64);
    assert!(refused.err.contains("--yes"), "{}", refused.err);
    assert_eq!(fixture.inspect("a").await["held"], true);
    assert_eq!(fixture.done(["revoke", "--yes", "a"]).await.code, 64, "alone it means nothing");
}
