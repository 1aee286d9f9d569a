//! `hold`: a line per change, until standard input closes or a signal comes.

use rustix::process::Signal;
use serde_json::json;

use crate::fixture::{Fixture, exit_code, finish, line, rest, send, value};

testbed::trials![
    a_line_is_written_per_change,
    a_signal_releases,
    a_loss_is_told_with_its_reason,
    a_held_lock_is_waited_for_as_asked,
    an_input_at_its_end_is_refused,
    a_hold_can_be_bounded,
];

async fn a_line_is_written_per_change() {
    let fixture = Fixture::new();
    let mut first = fixture.start(["hold", "a", "--owner", "first", "--metadata", "why"]);
    let waiting = json!({ "state": "waiting", "name": "a", "token": null, "remaining_ms": null });
    assert_eq!(value(&mut first).await, waiting);
    let held = value(&mut first).await;
    let token = held["token"].as_u64().unwrap();
    assert_eq!(held, json!({ "state": "held", "name": "a", "token": token, "remaining_ms": null }));
    let seen = fixture.inspect("a").await;
    assert_eq!(seen["holder"]["label"], "first");
    assert_eq!(seen["holder"]["metadata"], "why");
    assert_eq!(seen["holder"]["token"], token);
    let mut second = fixture.start(["hold", "a"]);
    assert_eq!(value(&mut second).await, waiting);
    fixture.until_contended("a", 1).await;
    first.close_stdin();
    let released = json!({ "state": "released", "name": "a", "token": token, "remaining_ms": 0 });
    assert_eq!(value(&mut first).await, released);
    assert_eq!(exit_code(&mut first).await, 0);
    assert!(value(&mut second).await["token"].as_u64().unwrap() > token);
}

async fn a_signal_releases() {
    let fixture = Fixture::new();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut holder = fixture.start(["hold", "--ignore-stdin", "a"]);
        holder.close_stdin();
        line(&mut holder).await;
        assert_eq!(value(&mut holder).await["state"], "held");
        send(&holder, signal);
        assert_eq!(value(&mut holder).await["state"], "released");
        assert_eq!(exit_code(&mut holder).await, 0);
    }
    assert_eq!(fixture.inspect("a").await["held"], false);
}

async fn a_loss_is_told_with_its_reason() {
    let fixture = Fixture::new();
    let (mut holder, held) = fixture.held(["a"]).await;
    let token = held["token"].clone();
    assert_eq!(fixture.done(["revoke", "a"]).await.code, 0);
    let lost =
        json!({ "state": "lost", "name": "a", "token": token, "remaining_ms": 0, "reason": "revoked" });
    assert_eq!(value(&mut holder).await, lost);
    assert_eq!(exit_code(&mut holder).await, 76);
}

/// What cannot be had is an error, not a line; whoever stops waiting leaves nothing behind.
async fn a_held_lock_is_waited_for_as_asked() {
    let fixture = Fixture::new();
    let _holder = fixture.hold(["a"]).await;
    let busy = fixture.done(["hold", "--try", "--ignore-stdin", "--json", "a"]).await;
    assert_eq!((busy.code, busy.out.as_str()), (75, ""));
    assert_eq!(busy.error()["kind"], "busy");
    // Told to end while it waits: by a signal, and by the end of input.
    let mut waiter = fixture.start(["hold", "a"]);
    line(&mut waiter).await;
    fixture.until_contended("a", 1).await;
    send(&waiter, Signal::TERM);
    assert_eq!(exit_code(&mut waiter).await, 143);
    let mut waiter = fixture.start(["hold", "a"]);
    line(&mut waiter).await;
    finish(&mut waiter).await;
    assert_eq!(rest(&mut waiter).await, [""; 0]);
    fixture.until_contended("a", 0).await;
}

async fn an_input_at_its_end_is_refused() {
    let fixture = Fixture::new();
    let refused = fixture.done(["hold", "a"]).await;
    assert_eq!((refused.code, refused.out.as_str()), (64, ""));
    assert!(refused.err.contains("--ignore-stdin"), "{refused:?}");
}

async fn a_hold_can_be_bounded() {
    let fixture = Fixture::new();
    let mut holder = fixture.hold(["--max-hold", "0.2", "a"]).await;
    assert_eq!(value(&mut holder).await["state"], "released");
    assert_eq!(exit_code(&mut holder).await, 76);
}
