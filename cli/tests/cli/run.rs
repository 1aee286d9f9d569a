//! `run`: what the command gets, what comes back, and who has to wait.

use rustix::process::Signal;

use crate::fixture::{
    Fixture, LEASEHOLD, exit_code, finish, is_alive, job_runs_once, kill, line, rest, send, until_gone,
    until_said,
};

testbed::trials![
    the_commands_exit_code_is_passed_on,
    the_command_finds_name_and_token,
    input_reaches_the_command,
    a_held_lock_makes_others_give_up_in_time,
    a_signal_ends_the_wait,
    signals_are_forwarded,
    ignored_signals_are_not_forwarded,
    the_command_dies_with_us,
    a_short_command_holds_for_longer,
    background_child_is_not_waited_for,
    a_command_can_be_bounded,
    a_command_that_does_not_end_is_killed_if_asked,
    several_locks_are_held_at_once,
];

/// The command's own exit code is ours; a signal, and a command that cannot be run, are told as
/// shells do.
async fn the_commands_exit_code_is_passed_on() {
    let fixture = Fixture::new();
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143), ("kill -KILL $$", 137)] {
        assert_eq!(fixture.done(["run", "a", "--", "sh", "-c", script]).await.code, code, "{script}");
    }
    let missing = fixture.done(["run", "a", "--", "no-such-program"]).await;
    assert_eq!(missing.code, 127);
    assert!(missing.err.contains("no-such-program"), "{}", missing.err);
    assert_eq!(fixture.done(["run", "a", "--", "/dev/null"]).await.code, 126);
    let missing = fixture.done(["run", "--json", "a", "--", "no-such-program"]).await;
    assert_eq!(missing.error()["exit_code"], 127);
    assert_eq!(fixture.inspect("a").await["held"], false);
}

/// The command knows the lock and a token that grows; its arguments arrive as they are.
async fn the_command_finds_name_and_token() {
    let fixture = Fixture::new();
    let mut last = 0;
    for _ in 0..3 {
        let script = "echo $LEASEHOLD_NAME; echo $LEASEHOLD_TOKEN; echo \"$1|$2\"";
        let ran = fixture.done(["run", "a b", "--", "sh", "-c", script, "sh", "--json", "x  y"]).await;
        let lines: Vec<_> = ran.out.lines().collect();
        assert_eq!([lines[0], lines[2]], ["a b", "--json|x  y"]);
        let token: u64 = lines[1].parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

async fn input_reaches_the_command() {
    let fixture = Fixture::new();
    let mut cat = fixture.start(["run", "a", "--", "cat"]);
    cat.send_line("as it is").await.unwrap();
    assert_eq!(line(&mut cat).await, "as it is");
    finish(&mut cat).await;
}

async fn a_held_lock_makes_others_give_up_in_time() {
    let fixture = Fixture::new();
    let mut holder = fixture.running(["run", "--owner", "me", "a", "--", "cat"]).await;
    let forms: [(&[&str], i32); 7] = [
        (&["--try"], 75),
        (&["-n"], 75),
        (&["--nonblock"], 75),
        (&["--wait", "200ms"], 75),
        (&["-w", "0.1"], 75),
        (&["-n", "-E", "9"], 9),
        (&["-n", "-E", "0"], 0),
    ];
    for (form, code) in forms {
        let words = ["run"].iter().chain(form).chain(&["a", "--", "echo", "never"]).copied();
        let gave_up = fixture.done(words).await;
        assert_eq!(gave_up.code, code, "{form:?}");
        assert_eq!(gave_up.out, "");
        // A wait may be over before the store has said whose it is; a try is answered.
        let whose = if form[0].starts_with("-w") || form[0] == "--wait" { "" } else { "me" };
        let is_said = gave_up.err.contains(&format!("held by {whose}"));
        assert!(if code == 0 { gave_up.err.is_empty() } else { is_said }, "{gave_up:?}");
    }
    let gave_up = fixture.done(["run", "--json", "--try", "a", "--", "true"]).await;
    assert_eq!(gave_up.error()["kind"], "busy");
    assert_eq!(gave_up.error()["holder"]["label"], "me");
    finish(&mut holder).await;
    assert_eq!(fixture.done(["run", "--try", "a", "--", "true"]).await.code, 0);
}

async fn a_signal_ends_the_wait() {
    let fixture = Fixture::new();
    let _holder = fixture.running(["run", "a", "--", "cat"]).await;
    let mut waiter = fixture.start(["run", "a", "--", "echo", "never"]);
    fixture.until_contended("a", 1).await;
    send(&waiter, Signal::INT);
    assert_eq!(exit_code(&mut waiter).await, 130);
    assert_eq!(rest(&mut waiter).await, [""; 0]);
    fixture.until_contended("a", 0).await;
}

const DETACHED: [&str; 3] = ["--at-least", "10m", "--detach"];

async fn signals_are_forwarded() {
    let fixture = Fixture::new();
    let traps = "for s in HUP INT QUIT TERM; do trap \"echo $s; exit 7\" $s; done";
    let script = format!("{traps}; echo ready; while :; do sleep 0.05; done");
    for (options, signal, word) in [
        (&[][..], Signal::HUP, "HUP"),
        (&[], Signal::INT, "INT"),
        (&[], Signal::QUIT, "QUIT"),
        (&[], Signal::TERM, "TERM"),
        (&DETACHED, Signal::HUP, "HUP"),
        (&DETACHED, Signal::INT, "INT"),
        (&DETACHED, Signal::QUIT, "QUIT"),
        (&DETACHED, Signal::TERM, "TERM"),
    ] {
        let mut running = fixture.start([&["run"], options, &["a", "--", "sh", "-c", &script]].concat());
        assert_eq!(line(&mut running).await, "ready");
        send(&running, signal);
        assert_eq!(line(&mut running).await, word);
        assert_eq!(exit_code(&mut running).await, 7);
    }
}

async fn ignored_signals_are_not_forwarded() {
    let fixture = Fixture::new();
    let script = "trap 'echo TERM; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let outer = format!("trap '' HUP; exec {} run a -- sh -c \"{script}\"", LEASEHOLD);
    let mut running = fixture.start_program("sh", ["-c", &outer]);
    assert_eq!(line(&mut running).await, "ready");
    // Of two pending signals, that with the smaller number is delivered first.
    send(&running, Signal::HUP);
    send(&running, Signal::TERM);
    assert_eq!(line(&mut running).await, "TERM");
    assert_eq!(exit_code(&mut running).await, 7);
}

async fn the_command_dies_with_us() {
    let fixture = Fixture::new();
    for options in [&[][..], &DETACHED] {
        let command = ["a", "--", "sh", "-c", "echo $$; exec sleep 1000"];
        let mut running = fixture.start([&["run"], options, &command].concat());
        let command: u32 = line(&mut running).await.parse().unwrap();
        running.kill().await.unwrap();
        until_gone(command).await;
        // The process that holds the lock may end after the command.
        assert_eq!(fixture.done(["run", "--wait", "10s", "a", "--", "true"]).await.code, 0);
    }
}

/// With `--at-least` others find the lock held after the command has ended, until the time is over or a signal comes.
async fn a_short_command_holds_for_longer() {
    let fixture = Fixture::new();
    let job = ["a", "--", "sh", "-c", "echo $$; exit 3"];
    let mut run = fixture.start([&["run", "--at-least", "10m"][..], &job].concat());
    until_gone(line(&mut run).await.parse().unwrap()).await;
    assert_eq!(fixture.done(["run", "--try", "a", "--", "true"]).await.code, 75);
    send(&run, Signal::TERM);
    assert_eq!(exit_code(&mut run).await, 3);
    let ran = fixture.done([&["run", "--try", "--at-least", "200ms"][..], &job].concat()).await;
    assert_eq!((ran.code, &*ran.err), (3, ""));
    assert_eq!(fixture.done(["run", "--try", "a", "--", "true"]).await.code, 0);
    job_runs_once(&fixture).await;
}

/// With `--leave-running` the lock is free when the command has ended; what it started lives on.
async fn background_child_is_not_waited_for() {
    let fixture = Fixture::new();
    let script = "sleep 1000 >/dev/null 2>&1 & echo $!; exit 5";
    let left = fixture.done(["run", "--leave-running", "a", "--", "sh", "-c", script]).await;
    assert_eq!(left.code, 5);
    let sleeper: u32 = left.out.trim().parse().unwrap();
    assert!(is_alive(sleeper));
    kill(sleeper);
    assert_eq!(fixture.inspect("a").await["held"], false);
}

/// A command that runs for too long is asked to end, is killed if it does not, and 76 tells so.
async fn a_command_can_be_bounded() {
    let fixture = Fixture::new();
    let polite = "trap 'echo asked; exit 0' TERM; echo in; while :; do sleep 0.01; done";
    let ran = fixture.done(["run", "--max-hold", "0.2", "a", "--", "sh", "-c", polite]).await;
    assert_eq!((ran.code, ran.out.as_str()), (76, "in\nasked\n"), "{ran:?}");
    assert!(ran.err.contains("`--max-hold` reached") && ran.err.contains("200ms"), "{ran:?}");
    let deaf = "trap '' TERM; while :; do sleep 0.01; done";
    // Without `--kill-after` it gets ten seconds.
    for kill_after in [&["--kill-after", "0.2"][..], &[]] {
        let bounds = ["run", "--json", "--max-hold", "0.2"].iter().chain(kill_after).copied();
        let ran = fixture.done(bounds.chain(["a", "--", "sh", "-c", deaf])).await;
        assert_eq!((ran.code, &ran.error()["kind"]), (76, &"max_hold".into()), "{ran:?}");
    }
    assert_eq!(fixture.inspect("a").await["held"], false);
}

async fn a_command_that_does_not_end_is_killed_if_asked() {
    let fixture = Fixture::new();
    let deaf = "trap '' TERM; echo $$; while :; do sleep 0.01; done";
    let mut running = fixture.start(["run", "--kill-after", "0.2", "a", "--", "sh", "-c", deaf]);
    line(&mut running).await;
    send(&running, Signal::TERM);
    assert_eq!(exit_code(&mut running).await, 137);
    // Never without the option: then it is said what is waited for, and how it is ended.
    let mut running = fixture.start(["run", "a", "--", "sh", "-c", deaf]);
    let command: u32 = line(&mut running).await.parse().unwrap();
    send(&running, Signal::TERM);
    let waits = format!("leasehold: waiting for {command} (sh)");
    until_said(&running, &waits).await;
    until_said(&running, &format!("`kill -s KILL -- -{command}` ends it at once")).await;
    kill(command);
    assert_eq!(exit_code(&mut running).await, 137);
}

/// All or none: the command finds the token of each, nobody else has any of them meanwhile, and the one that is busy is
/// named; what is around it tells of other locks.
async fn several_locks_are_held_at_once() {
    let fixture = Fixture::new();
    let script = "echo \"$LEASEHOLD_TOKENS\"; echo ${LEASEHOLD_TOKEN-none} ${LEASEHOLD_NAME-none}; \
                  \"$0\" run --try b -- true; echo $?; read line; true";
    let outer =
        ["run", "around", "--", LEASEHOLD, "run", "--all", "b", "a c", "--", "sh", "-c", script, LEASEHOLD];
    let mut run = fixture.start(outer);
    for name in ["a c", "b"] {
        let told = line(&mut run).await;
        let (named, token) = told.rsplit_once(' ').expect("a name and a token");
        assert!(named == name && token.parse::<u64>().is_ok(), "{told}");
    }
    assert_eq!([line(&mut run).await, line(&mut run).await], ["none none", "64"]);
    let busy = fixture.done(["run", "--try", "--all", "free", "b", "--", "true"]).await;
    assert!(busy.code == 75 && busy.err.contains("\"b\" is held by"), "{busy:?}");
    for (names, code, said) in [
        (&["free"][..], 0, ""),
        (&["x", "y"], 64, "use `--all`"),
        (&["--all", "x", "x"], 64, "names the lock \"x\" twice"),
    ] {
        let done = fixture.done([&["run", "--try"], names, &["--", "true"]].concat()).await;
        assert!(done.code == code && done.err.contains(said), "{done:?}");
    }
    finish(&mut run).await;
    assert_eq!(fixture.done(["ls", "--json"]).await.json(), serde_json::json!([]));
}
