//! `inspect`, `ls` and `doctor`: the same for people and for programs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;

#[cfg(feature = "redis")]
use crate::fixture::until_said;
use crate::fixture::{Fixture, LEASEHOLD, exit_code, line, send, value};
use crate::schema;

testbed::trials![
    a_lock_is_shown,
    a_lock_is_watched,
    #[cfg(feature = "redis")]
    watch_ends_by_a_signal_before_the_store_is_open,
    locks_in_use_are_listed,
    a_store_is_diagnosed,
    verbosity_tells_of_state_changes,
    log_lines_steer_no_terminal,
];

/// It would clear a terminal, colour it, and turn the letters around.
const METADATA: &str = "line\u{1b}[2J\n\u{7f}\u{9b}1m\u{202e}enil";

async fn a_lock_is_shown() {
    let fixture = Fixture::new();
    let (_holder, held) = fixture.held(["a", "--owner", "me", "--metadata", METADATA]).await;
    let token = held["token"].as_u64().unwrap();
    let mut waiter = fixture.start(["hold", "a"]);
    line(&mut waiter).await;
    fixture.until_contended("a", 1).await;
    let seen = fixture.inspect("a").await;
    assert_eq!((&seen["held"], &seen["name"]), (&true.into(), &"a".into()));
    assert_eq!(seen["holder"]["metadata"], METADATA);
    assert!(seen["holder"]["since"].as_str().unwrap().ends_with('Z'), "{seen}");
    let words = fixture.done(["inspect", "a"]).await.out;
    for shown in ["me", &token.to_string(), "line\\u{1b}[2J\\n\\u{7f}\\u{9b}1m\\u{202e}enil", "ago)"] {
        assert!(words.contains(shown), "{words}");
    }
    let listed = fixture.done(["ls"]).await.out;
    let json = fixture.done(["inspect", "--json", "a"]).await.out + &fixture.done(["ls", "--json"]).await.out;
    let busy = fixture.done(["run", "--json", "--try", "a", "--", "true"]).await.err;
    for written in [words, listed, json, busy] {
        assert!(
            written.contains("enil") && !written.contains(['\u{1b}', '\u{7f}', '\u{9b}', '\u{202e}']),
            "{written}"
        );
    }
    let free = fixture.inspect("free").await;
    assert_eq!(
        free,
        serde_json::json!({ "name": "free", "held": false, "holder": null, "holders": [], "waiting": 0 })
    );
    assert!(fixture.done(["inspect", "free"]).await.out.contains("none"));
    let other = fixture.hold(["b"]).await;
    let shown = fixture.inspect("b").await["holder"].clone();
    assert!(shown["label"].as_str().unwrap().ends_with(&format!("/{}", other.pid())), "{shown}");
    assert_eq!((&shown["metadata"], &shown["mode"]), (&serde_json::Value::Null, &"exclusive".into()));
}

async fn a_lock_is_watched() {
    let fixture = Fixture::new();
    let mut watch = fixture.start(["watch", "a"]);
    let free = value(&mut watch).await;
    schema::check("watch", &free);
    assert_eq!((&free["name"], &free["held"]), (&"a".into(), &false.into()));
    for owner in ["one", "two"] {
        let mut holder = fixture.start(["hold", "a", "--owner", owner]);
        let waiting = value(&mut holder).await;
        assert_eq!(waiting["state"], "waiting");
        let held = value(&mut watch).await;
        assert_eq!((&held["holder"]["label"], &held["held"]), (&owner.into(), &true.into()));
        holder.close_stdin();
        let free = value(&mut watch).await;
        assert_eq!((&free["holder"], &free["holders"]), (&serde_json::Value::Null, &serde_json::json!([])));
    }
    send(&watch, Signal::TERM);
    assert_eq!(exit_code(&mut watch).await, 0);
}

/// A store that is waited for does not keep the keyboard's signal from the command.
#[cfg(feature = "redis")]
async fn watch_ends_by_a_signal_before_the_store_is_open() {
    let away = Fixture::on("redis://127.0.0.1:1?connect_wait=10m");
    let mut watch = away.start(["watch", "a"]);
    until_said(&watch, "retrying").await;
    send(&watch, Signal::INT);
    assert_eq!(exit_code(&mut watch).await, 130);
}

async fn locks_in_use_are_listed() {
    let fixture = Fixture::new();
    assert_eq!(fixture.done(["ls", "--json"]).await.json(), serde_json::json!([]));
    let mut holders = Vec::new();
    for name in ["b/2", "a", "b/1"] {
        holders.push(fixture.hold([name, "--owner", "me"]).await);
    }
    let names = |listed: serde_json::Value| -> Vec<String> {
        let states = listed.as_array().unwrap().iter();
        states.map(|state| state["name"].as_str().unwrap().to_owned()).collect()
    };
    let listed = fixture.done(["ls", "--json"]).await.json();
    schema::check("ls", &listed);
    assert_eq!(names(listed), ["a", "b/1", "b/2"]);
    assert_eq!(names(fixture.done(["ls", "--json", "b/"]).await.json()), ["b/1", "b/2"]);
    let words = fixture.done(["ls", "b/"]).await.out;
    let lines: Vec<_> = words.lines().collect();
    assert!(lines[0].starts_with("NAME") && lines[1].starts_with("b/1") && lines.len() == 3, "{words}");
}

async fn a_store_is_diagnosed() {
    let fixture = Fixture::with("?mode=0666");
    let well = fixture.done(["doctor", "--json"]).await;
    assert_eq!(well.code, 0, "{well:?}");
    let found = well.json();
    assert_eq!(found["broken"], false);
    assert!(found["store"].as_str().unwrap().starts_with("file:///"), "{found}");
    let promises = found["guarantees"].as_array().unwrap();
    let fenced = promises.iter().find(|promise| promise["name"] == "FENCED").unwrap();
    assert_eq!(fenced["promised"], true);
    let directory = fixture.scratch.path().join("locks");
    fs::set_permissions(directory, Permissions::from_mode(0o777)).unwrap();
    let words = fixture.done(["doctor"]).await;
    assert_eq!(words.code, 0);
    assert!(words.out.contains("warning") && words.out.contains("other users can write"), "{}", words.out);
    assert!(words.out.contains("Nothing breaks a guarantee."), "{}", words.out);
    let private = fixture.url().replace("?mode=0666", "");
    let words = fixture.done(["--url", &private, "doctor"]).await;
    assert_eq!(words.code, 1);
    assert!(words.out.contains("broken") && words.out.contains("by everybody (mode 0777)"), "{}", words.out);
    assert_eq!(fixture.done(["--url", &private, "ls"]).await.code, 77);
}

async fn verbosity_tells_of_state_changes() {
    let fixture = Fixture::new();
    assert_eq!(fixture.done(["run", "a", "--", "true"]).await.err, "");
    let told = fixture.done(["run", "-v", "a", "--", "true"]).await.err;
    assert!(told.contains("acquired") && told.contains("releasing"), "{told}");
}

/// Whichever layer writes it: here a name turns letters around, as a server's text might.
async fn log_lines_steer_no_terminal() {
    let (fixture, name) = (Fixture::new(), "a\u{202e}b");
    let verbose = fixture.done(["run", "-v", name, "--", "true"]).await;
    let loses = format!("{LEASEHOLD} revoke '{name}'; exec sleep 60");
    let lost = fixture.done(["run", name, "--", "sh", "-c", &loses]).await;
    assert_eq!((verbose.code, lost.code), (0, 76), "{lost:?}");
    for told in [verbose.err, lost.err] {
        assert!(told.contains("lock=a\\u{202e}b") && !told.contains('\u{202e}'), "{told}");
    }
}
