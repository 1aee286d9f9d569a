//! Children obey signals, and never outlive the value that stands for them.

use std::os::unix::process::ExitStatusExt;
use std::{fs, time::Duration};

use testbed::{Launch, Process, ProcessErrorKind, Scratch};
use tokio::runtime::Runtime;

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

#[tokio::test]
async fn terminate_kills_at_its_bound() {
    let scratch = Scratch::new("terminate").unwrap();
    let mut child = script(&scratch, "trap '' TERM; echo ready; exec sleep 1000").spawn().unwrap();
    child.next_line(SOON).await.unwrap();
    assert_eq!(child.terminate(PAUSE).await.unwrap().signal(), Some(9));
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
