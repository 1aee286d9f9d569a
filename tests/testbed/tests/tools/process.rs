//! Children do as they are told, and never outlive the value that stands for them.

use std::{fs, os::unix::process::ExitStatusExt, path::PathBuf, time::Duration};

use testbed::{Launch, Process, ProcessErrorKind, Scratch};
use tokio::{runtime::Runtime, time::timeout};

/// For what must happen; reached only by a failing test.
const SOON: Duration = Duration::from_secs(10);

/// For what must not happen. A pause too short misses a fault and never invents one.
const PAUSE: Duration = Duration::from_millis(50);

/// A script for the shell that speaks by lines.
fn script(scratch: &Scratch, script: &str) -> Launch {
    Launch::new("sh", scratch.path()).args(["-c", script]).piped_lines()
}

/// The process's line in /proc: its state, or None once it is dead *and* reaped.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_name, rest) = stat.rsplit_once(") ").expect("a stat line");
    rest.chars().next()
}

/// Lines go in and come out, in the environment asked for; the end of input ends it.
#[tokio::test]
async fn lines_go_in_and_come_out() {
    let scratch = Scratch::new("lines").unwrap();
    let mut child =
        script(&scratch, r#"echo "$GREETING"; exec cat"#).env("GREETING", "hello").spawn().unwrap();

    assert_eq!(child.next_line(SOON).await.unwrap(), "hello");
    child.send_line("and back").await.unwrap();
    assert_eq!(child.next_line(SOON).await.unwrap(), "and back");

    child.close_stdin();
    assert!(child.wait(SOON).await.unwrap().success());
    let ended = child.next_line(SOON).await.unwrap_err();
    assert_eq!(ended.kind(), ProcessErrorKind::Ended);
}

/// Each run has its own log, beside its scratch data, with both outputs.
#[tokio::test]
async fn every_run_has_a_log_of_its_own() {
    let scratch = Scratch::new("logs").unwrap();
    let mut launch = Launch::new("/bin/sh", scratch.path()).args(["-c", "echo out; echo err >&2"]);
    let mut logs: Vec<PathBuf> = Vec::new();

    for _run in 0..2 {
        let mut child = launch.spawn().unwrap();
        child.wait(SOON).await.unwrap();
        assert_eq!(fs::read_to_string(child.log()).unwrap(), "out\nerr\n");
        let not_piped = child.send_line("x").await.unwrap_err();
        assert_eq!(not_piped.kind(), ProcessErrorKind::NotPiped);
        logs.push(child.log().to_owned());
    }
    assert_ne!(logs[0], logs[1]);
    assert_eq!(logs[0].parent(), Some(scratch.path()));
}

/// testbed.process-1: stopped when `stop` returns, running when `cont` returns, however often.
#[tokio::test]
async fn stop_and_cont_are_in_force_when_they_return() {
    let scratch = Scratch::new("stop").unwrap();
    let mut child = script(&scratch, "exec cat").spawn().unwrap();

    for _round in 0..20 {
        child.stop().await.unwrap();
        assert_eq!(state(child.pid()), Some('T'));
        child.cont().unwrap();
        assert_ne!(state(child.pid()), Some('T'));
    }

    child.stop().await.unwrap();
    child.send_line("heard").await.unwrap();
    let silent = child.next_line(PAUSE).await.unwrap_err();
    assert_eq!(silent.kind(), ProcessErrorKind::TimedOut);
    child.cont().unwrap();
    assert_eq!(child.next_line(SOON).await.unwrap(), "heard");
}

/// A process that has ended is not signalled; its status remains.
#[tokio::test]
async fn an_ended_process_keeps_its_status_and_gets_no_signal() {
    let scratch = Scratch::new("ended").unwrap();
    let mut child = script(&scratch, "exit 3").spawn().unwrap();

    assert_eq!(child.wait(SOON).await.unwrap().code(), Some(3));
    assert_eq!(state(child.pid()), None);
    assert_eq!(child.kill().await.unwrap().code(), Some(3));
    assert_eq!(child.terminate(SOON).await.unwrap().code(), Some(3));
    for refused in [child.stop().await, child.cont()] {
        assert_eq!(refused.unwrap_err().kind(), ProcessErrorKind::Ended);
    }
}

/// Stopping a process that ends instead does not wait for ever.
#[tokio::test]
async fn stopping_a_zombie_says_that_it_has_ended() {
    let scratch = Scratch::new("zombie").unwrap();
    let mut child = script(&scratch, "exit 0").spawn().unwrap();
    let end = child.next_line(SOON).await.unwrap_err();
    assert_eq!(end.kind(), ProcessErrorKind::Ended);

    // The pipe closes shortly before the process is a zombie, and it may still stop between.
    let until_refused = async {
        loop {
            match child.stop().await {
                Ok(()) => child.cont().unwrap(),
                Err(refused) => break refused,
            }
        }
    };
    let refused = timeout(SOON, until_refused).await.unwrap();
    assert_eq!(refused.kind(), ProcessErrorKind::Ended);
    assert_eq!(state(child.pid()), Some('Z'));
}

/// A process gets the chance to end in order, and loses it with the bound.
#[tokio::test]
async fn terminate_asks_first_and_kills_at_the_bound() {
    let scratch = Scratch::new("term").unwrap();
    let polite = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    let deaf = "trap '' TERM; echo ready; exec sleep 1000";

    let mut child = script(&scratch, polite).spawn().unwrap();
    child.next_line(SOON).await.unwrap();
    assert_eq!(child.terminate(SOON).await.unwrap().code(), Some(7));

    let mut child = script(&scratch, deaf).spawn().unwrap();
    child.next_line(SOON).await.unwrap();
    assert_eq!(child.terminate(PAUSE).await.unwrap().signal(), Some(9));
    assert_eq!(state(child.pid()), None);
}

/// SIGKILL reaches a stopped process, too.
#[tokio::test]
async fn kill_ends_a_stopped_process() {
    let scratch = Scratch::new("kill").unwrap();
    let mut child = script(&scratch, "exec sleep 1000").spawn().unwrap();

    child.stop().await.unwrap();
    assert_eq!(child.kill().await.unwrap().signal(), Some(9));
    assert_eq!(state(child.pid()), None);
}

/// testbed.process-2: neither an orphan nor a zombie, running or stopped, in a runtime or after it.
#[test]
fn a_dropped_process_is_dead_and_reaped() {
    let scratch = Scratch::new("drop").unwrap();
    let runtime = Runtime::new().unwrap();
    let start = || -> Process { script(&scratch, "exec sleep 1000").spawn().unwrap() };

    let pid = runtime.block_on(async {
        let running = start();
        running.pid()
    });
    assert_eq!(state(pid), None);

    let (running, stopped) = runtime.block_on(async {
        let stopped = start();
        stopped.stop().await.unwrap();
        (start(), stopped)
    });
    drop(runtime);
    for child in [running, stopped] {
        let pid = child.pid();
        assert!(state(pid).is_some());
        drop(child);
        assert_eq!(state(pid), None);
    }
}

/// testbed.process-3: program, pid and the end of the log; a program that is not there is named as well.
#[tokio::test]
async fn errors_name_the_process_and_show_its_log() {
    let scratch = Scratch::new("errors").unwrap();
    let complain = "for i in $(seq 30); do echo \"complaint $i\" >&2; done";
    let mut child = script(&scratch, complain).spawn().unwrap();

    let error = child.next_line(SOON).await.unwrap_err().to_string();
    let named = format!("sh (pid {}): waiting for a line: ", child.pid());
    assert!(error.starts_with(&named), "{error}");
    assert!(error.ends_with("\ncomplaint 29\ncomplaint 30"), "{error}");
    assert!(!error.contains("complaint 10\n"), "{error}");

    let missing = Launch::new("no-such-program", scratch.path()).spawn();
    let error = missing.unwrap_err();
    assert_eq!(error.kind(), ProcessErrorKind::Os);
    assert!(error.to_string().starts_with("no-such-program: starting: "));
}
