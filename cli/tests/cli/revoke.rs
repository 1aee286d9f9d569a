//! `revoke`: what it did is said, and in the exit code.

use crate::rig::{Rig, line, value};

/// Nobody held it; the holder let go; the holder did not answer; it was taken away.
#[tokio::test]
async fn every_outcome_has_its_word_and_code() {
    let rig = Rig::with("?ttl=300ms");
    let none = rig.done(["revoke", "--json", "a"]).await;
    assert_eq!((none.code, none.json()["outcome"].as_str()), (1, Some("not_held")));
    let mut holder = rig.start(["hold", "a"]);
    line(&mut holder).await;
    assert_eq!(value(&mut holder).await["state"], "held");
    let asked = rig.done(["revoke", "--json", "a"]).await;
    assert_eq!((asked.code, asked.json()["outcome"].as_str()), (0, Some("released")));
    let mut holder = rig.start(["hold", "a"]);
    line(&mut holder).await;
    assert_eq!(value(&mut holder).await["state"], "held");
    holder.stop().await.unwrap();
    let unanswered = rig.done(["revoke", "a"]).await;
    assert_eq!(unanswered.code, 75);
    assert!(unanswered.out.contains("--force"), "{}", unanswered.out);
    let taken = rig.done(["revoke", "--force", "--yes", "a"]).await;
    assert_eq!(taken.code, 0);
    assert!(taken.out.contains("may not know yet"), "{}", taken.out);
    assert_eq!(rig.inspect("a").await["held"], false);
    holder.cont().unwrap();
    assert_eq!(value(&mut holder).await["state"], "lost");
}

/// Force is not used by accident: with nobody at a terminal to ask, it must be confirmed in words.
#[tokio::test]
async fn force_wants_to_be_confirmed() {
    let rig = Rig::new();
    let mut holder = rig.start(["hold", "a"]);
    line(&mut holder).await;
    assert_eq!(value(&mut holder).await["state"], "held");
    let refused = rig.done(["revoke", "--force", "a"]).await;
    assert_eq!(refused.code, 64);
    assert!(refused.err.contains("--yes"), "{}", refused.err);
    assert_eq!(rig.inspect("a").await["held"], true);
    assert_eq!(rig.done(["revoke", "--yes", "a"]).await.code, 64, "alone it means nothing");
}
