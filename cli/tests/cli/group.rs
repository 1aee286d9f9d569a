//! `run`: the process group of the command, and what is left of it.

use rustix::process::Signal;

use crate::fixture::{Fixture, exit_code, is_alive, kill, line, send, until_gone, until_leader};

testbed::trials![
    the_lock_is_held_while_the_group_lives,
    signals_reach_grandchildren,
    a_lost_lock_kills_the_group,
];

async fn the_lock_is_held_while_the_group_lives() {
    let fixture = Fixture::new();
    let script = "sleep 1000 >/dev/null 2>&1 & echo $!; exit 5";
    let mut running = fixture.start(["run", "a", "--", "sh", "-c", script]);
    let sleeper: u32 = line(&mut running).await.parse().unwrap();
    assert_eq!(fixture.done(["run", "--wait", "300ms", "a", "--", "true"]).await.code, 75);
    kill(sleeper);
    assert_eq!(exit_code(&mut running).await, 5);
    assert_eq!(fixture.done(["run", "--try", "a", "--", "true"]).await.code, 0);
}

async fn signals_reach_grandchildren() {
    let fixture = Fixture::new();
    let grandchild = "trap - TERM; exec sh -c 'echo $$; exec sleep 1000'";
    let script = format!("trap '' TERM; ({grandchild}) & wait; echo waited");
    let mut running = fixture.start(["run", "a", "--", "sh", "-c", &script]);
    let sleeper: u32 = line(&mut running).await.parse().unwrap();
    send(&running, Signal::TERM);
    assert_eq!(line(&mut running).await, "waited");
    assert_eq!(exit_code(&mut running).await, 0);
    until_gone(sleeper).await;
}

async fn a_lost_lock_kills_the_group() {
    let fixture = Fixture::new();
    let script = "trap '' TERM HUP INT; sleep 1000 & echo $!; setsid sleep 1000 & echo $!; wait";
    let mut running = fixture.start(["run", "a", "--", "sh", "-c", script]);
    let inside: u32 = line(&mut running).await.parse().unwrap();
    let outside: u32 = line(&mut running).await.parse().unwrap();
    until_leader(outside).await;
    let revoked = fixture.done(["revoke", "a"]).await;
    assert_eq!(revoked.code, 0, "{revoked:?}");
    assert_eq!(exit_code(&mut running).await, 76);
    until_gone(inside).await;
    assert!(is_alive(outside));
    kill(outside);
    let said = std::fs::read_to_string(running.log()).unwrap();
    assert!(said.contains("\"a\" was lost: it was revoked"), "{said}");
}
