//! What holds on every store with leases: the same scenes, on the store they are given.

use std::time::Duration;

use libtest_mimic::Trial;
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use testbed::{Port, Server, trial};

use crate::fixture::{Fixture, exit_code, finish, job_runs_once, line, rest, send, until_gone, value};
use crate::schema;

/// The scenes of a store, each called as it is; and what is said of a server that is not there.
pub(crate) fn trials<S: Server>(is_down: &'static str) -> Vec<Trial> {
    async fn start<S: Server>() -> S {
        S::start().await.unwrap()
    }
    let name = |scene| format!("{}::{scene}", S::NAME);
    vec![
        trial(name("the_commands_work"), async || {
            let server = start::<S>().await;
            the_commands_work(&server).await;
            job_runs_once(&asking(&server)).await;
            a_stopped_holder_ends_its_command(&server).await;
        }),
        trial(name("a_lock_is_held_by_several_or_refused"), async || {
            let server = start::<S>().await;
            readers_hold_together_or_are_refused(&server).await;
            permits_are_taken_or_refused(&server).await;
        }),
        trial(name("a_grace_is_told_whole"), async || {
            a_grace_is_told_whole_and_lengthens_nothing(&start::<S>().await).await;
        }),
        trial(name("a_command_ends_before_its_lease"), async || {
            a_command_ends_before_its_lease(start::<S>().await).await;
        }),
        trial(name("risk_and_loss_are_told"), async || risk_and_loss_are_told(start::<S>().await).await),
        trial(name("a_wait_says_that_the_store_is_silent"), async || {
            a_wait_says_that_the_store_is_silent(start::<S>().await).await;
        }),
        trial(name("a_server_that_is_down"), move || a_store_that_is_down_is_unavailable::<S>(is_down)),
    ]
}

/// The ttl of every lock here, but for those with more time.
pub(crate) const TTL: Duration = Duration::from_secs(3);

pub(crate) fn fixture<S: Server>(server: &S) -> Fixture {
    Fixture::on(S::url(server.addr(), "cli", "ttl=3s&connect_wait=30s"))
}

/// With more time between a renewal that is overdue and the deadline.
fn patient<S: Server>(server: &S) -> Fixture {
    Fixture::on(S::url(server.addr(), "cli", "ttl=6s&op_timeout=500ms&connect_wait=30s"))
}

/// With all the time there is for questions.
pub(crate) fn asking<S: Server>(server: &S) -> Fixture {
    Fixture::on(S::url(server.addr(), "cli", "op_timeout=10s&ttl=30s"))
}

pub(crate) async fn the_commands_work<S: Server>(server: &S) {
    let fixture = asking(server);
    let mut first =
        fixture.running(["run", "--owner", "first", "--metadata", "why", "a/b", "--", "cat"]).await;
    let mut second = fixture.start(["run", "a/b", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN; read line"]);
    fixture.until_contended("a/b", 1).await;
    let seen = fixture.inspect("a/b").await;
    assert_eq!(seen["holder"]["label"], "first");
    assert_eq!(seen["holder"]["metadata"], "why");
    let token = seen["holder"]["token"].as_u64().unwrap();
    assert_eq!(fixture.done(["run", "--try", "a/b", "--", "true"]).await.code, 75);
    let by_cron = fixture.done(["run", "cron", "--", "true"]).await;
    assert_eq!((by_cron.code, &*by_cron.out, &*by_cron.err), (0, "", ""), "success is sent by mail");
    assert_eq!(fixture.done(["run", "--wait", "200ms", "a/b", "--", "true"]).await.code, 75);
    let listed = fixture.done(["ls", "--json", "a/"]).await.json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    finish(&mut first).await;
    let next: u64 = line(&mut second).await.parse().unwrap();
    assert!(next > token, "{next} after {token}");
    let revoked = fixture.done(["revoke", "--json", "a/b"]).await;
    assert_eq!((revoked.code, revoked.json()["outcome"].as_str()), (0, Some("released")));
    schema::check("revoke", &revoked.json());
    assert_eq!(exit_code(&mut second).await, 76);
    assert_eq!(fixture.done(["revoke", "a/b"]).await.code, 1);
    let (mut holder, held) = fixture.held(["a/b"]).await;
    schema::check("hold", &held);
    assert!(held["token"].as_u64().unwrap() > next, "{held}");
    let remaining = Duration::from_millis(held["remaining_ms"].as_u64().unwrap());
    assert!(!remaining.is_zero() && remaining < 10 * TTL, "{held}");
    send(&holder, Signal::TERM);
    assert_eq!(value(&mut holder).await["state"], "released");
    assert_eq!(exit_code(&mut holder).await, 0);
    let diagnosis = fixture.done(["doctor", "--json"]).await.json();
    schema::check("doctor", &diagnosis);
    let leased = diagnosis["guarantees"].as_array().unwrap().iter().find(|it| it["name"] == "LEASED");
    assert_eq!(leased.unwrap()["promised"], true);
}

pub(crate) async fn readers_hold_together_or_are_refused<S: Server>(server: &S) {
    let fixture = asking(server);
    if !promises(&fixture, "SHARED").await {
        return refuses(&fixture, &["--shared"], "SHARED").await;
    }
    let reader = |owner| fixture.hold(["-s", "--owner", owner, "s"]);
    let (mut first, mut second) = (reader("first").await, reader("second").await);
    assert_eq!(fixture.done(["run", "--try", "s", "--", "true"]).await.code, 75);
    assert_eq!(fixture.done(["run", "--shared", "--try", "s", "--", "true"]).await.code, 0);
    for (mode, code) in [(&["--shared"][..], 0), (&[], 75)] {
        let both = [&["run", "--try", "--all"], mode, &["s", "t", "--", "true"]].concat();
        assert_eq!(fixture.done(both).await.code, code, "{mode:?}");
    }
    let mut writer = fixture.start(["hold", "--owner", "writer", "s"]);
    assert_eq!(value(&mut writer).await["state"], "waiting");
    fixture.until_contended("s", 1).await;
    assert_eq!(fixture.done(["run", "--shared", "--try", "s", "--", "true"]).await.code, 75);
    let seen = fixture.inspect("s").await;
    let holders = seen["holders"].as_array().unwrap().iter();
    let shown: Vec<_> =
        holders.map(|it| [&it["label"], &it["mode"]].map(|it| it.as_str().unwrap())).collect();
    assert_eq!(shown, [["first", "shared"], ["second", "shared"]], "{seen}");
    assert_eq!(seen["holder"], seen["holders"][0]);
    assert_eq!(fixture.done(["ls", "s"]).await.out.matches(" shared ").count(), 2);
    for reader in [&mut first, &mut second] {
        finish(reader).await;
    }
    assert_eq!(value(&mut writer).await["state"], "held");
    assert_eq!(fixture.inspect("s").await["holder"]["mode"], "exclusive");
    finish(&mut writer).await;
}

pub(crate) async fn permits_are_taken_or_refused<S: Server>(server: &S) {
    let fixture = asking(server);
    if !promises(&fixture, "PERMITS").await {
        return refuses(&fixture, &["--permits", "2/3"], "PERMITS").await;
    }
    let mut two = fixture.hold(["--permits", "2/3", "p"]).await;
    assert_eq!(fixture.inspect("p").await["holders"][0]["mode"], "2/3");
    for (permits, code) in [("1/3", 0), ("2/3", 75), ("1/2", 75)] {
        let tried = fixture.done(["run", "--try", "--permits", permits, "p", "--", "true"]).await;
        assert_eq!(tried.code, code, "{permits}: {tried:?}");
    }
    finish(&mut two).await;
}

async fn promises(fixture: &Fixture, promise: &str) -> bool {
    let diagnosis = fixture.done(["doctor", "--json"]).await.json();
    let promised = diagnosis["guarantees"].as_array().unwrap().iter().find(|it| it["name"] == promise);
    promised.unwrap_or_else(|| panic!("{diagnosis}"))["promised"] == true
}

async fn refuses(fixture: &Fixture, mode: &[&str], promise: &str) {
    let words = ["run", "--json"].iter().chain(mode).chain(&["s", "--", "true"]);
    let refused = fixture.done(words.copied()).await;
    assert_eq!((refused.code, &refused.error()["kind"]), (64, &"unsupported".into()), "{refused:?}");
    let told = &refused.error()["message"];
    let instead = format!(
        "use a store that promises {promise}, such as etcd, or leave out `{}` for an exclusive lock",
        mode[0]
    );
    assert!(told.as_str().unwrap().contains(&instead), "{refused:?}");
    assert_eq!(fixture.inspect("s").await["held"], false);
}

/// Who holds by lines of text reads how long it may go on, which is not what is left of the lease; and a
/// command that is asked for has no longer for that than it may hold the lock at all.
pub(crate) async fn a_grace_is_told_whole_and_lengthens_nothing<S: Server>(server: &S) {
    let fixture = fixture(server);
    let mut holder = fixture.hold(["a"]).await;
    let mut asks = fixture.start(["revoke", "--grace", "5m", "a"]);
    let asked = value(&mut holder).await;
    assert_eq!(asked["state"], "revocation_requested");
    assert!(asked["remaining_ms"].as_u64().unwrap() > 200_000, "{asked}");
    send(&holder, Signal::TERM);
    assert_eq!(value(&mut holder).await["state"], "released");
    assert_eq!(exit_code(&mut asks).await, 0);

    let script = "trap 'echo heard' TERM; echo $$; while :; do sleep 0.05; done";
    let bounds = ["--max-hold", "5s", "--kill-after", "200ms"];
    let mut running = fixture.start(["run"].into_iter().chain(bounds).chain(["a", "--", "sh", "-c", script]));
    line(&mut running).await;
    let mut asks = fixture.start(["revoke", "--grace", "5m", "a"]);
    assert_eq!(line(&mut running).await, "heard");
    // It ends now, and not in five minutes.
    assert_eq!(exit_code(&mut running).await, 76);
    assert_eq!(exit_code(&mut asks).await, 0);
}

/// When the store falls silent, a command is asked to end, and one that does not is killed before the
/// lease can have ended.
pub(crate) async fn a_command_ends_before_its_lease<S: Server>(mut server: S) {
    let fixture = patient(&server);
    let clock = "trap 'echo TERM' TERM; while :; do cut -d' ' -f1 /proc/uptime; sleep 0.02; done";
    let mut running = fixture.start(["run", "--json", "a", "--", "sh", "-c", clock]);
    line(&mut running).await;
    server.stop().await.unwrap();
    // Whatever was renewed was renewed before this.
    let over = boot_time() + 2 * TTL;
    let lines = rest(&mut running).await;
    assert!(lines.iter().any(|line| line == "TERM"), "it was not asked: {lines:?}");
    let last = lines.iter().rev().find_map(|line| line.parse().ok());
    let last = Duration::from_secs_f64(last.expect("it told the time"));
    assert!(last < over, "it lived until {last:?}, its lease until {over:?} at most");
    assert_eq!(exit_code(&mut running).await, 76);
    let said = std::fs::read_to_string(running.log()).unwrap();
    let error: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(error["error"]["kind"], "lost", "{said}");
    // Not even by our own clock had it run out.
    assert!(error["error"]["message"].as_str().unwrap().contains("was not renewed in time"), "{said}");
}

/// A command that ends when it is asked to has not lost the lock, and its work may be half done: that
/// is told. One that comes to a good end all the same is not stopped, if the store comes back.
#[cfg(feature = "redis")]
pub(crate) async fn a_risk_that_passes<S: Server>(mut server: S) {
    let fixture = patient(&server);
    for (end, code) in [("0", 0), ("3", 76)] {
        let script = format!("trap 'echo TERM' TERM; echo ready; until read line; do :; done; exit {end}");
        let mut running = fixture.start(["run", "a", "--", "sh", "-c", &script]);
        assert_eq!(line(&mut running).await, "ready");
        server.stop().await.unwrap();
        assert_eq!(line(&mut running).await, "TERM");
        server.cont().unwrap();
        running.send_line("end").await.unwrap();
        assert_eq!(exit_code(&mut running).await, code);
    }
}

pub(crate) async fn risk_and_loss_are_told<S: Server>(mut server: S) {
    let fixture = patient(&server);
    let (mut holder, held) = fixture.held(["a"]).await;
    for end in ["held", "lost"] {
        server.stop().await.unwrap();
        let at_risk = value(&mut holder).await;
        assert_eq!(at_risk["state"], "at_risk");
        assert_eq!(at_risk["token"], held["token"]);
        assert!(at_risk["remaining_ms"].as_u64().unwrap() < held["remaining_ms"].as_u64().unwrap());
        if end == "held" {
            server.cont().unwrap();
        }
        let next = value(&mut holder).await;
        schema::check("hold", &next);
        assert_eq!(next["state"], end, "{next}");
    }
    server.cont().unwrap();
    assert_eq!(exit_code(&mut holder).await, 76);
}

pub(crate) async fn a_stopped_holder_ends_its_command<S: Server>(server: &S) {
    let fixture = fixture(server);
    let mut running = fixture.start(["run", "a", "--", "sh", "-c", "echo $$; exec sleep 1000"]);
    let command: u32 = line(&mut running).await.parse().unwrap();
    running.stop().await.unwrap();
    assert_eq!(fixture.done(["run", "--wait", "30s", "a", "--", "true"]).await.code, 0);
    running.cont().unwrap();
    assert_eq!(exit_code(&mut running).await, 76);
    until_gone(command).await;
}

pub(crate) async fn a_wait_says_that_the_store_is_silent<S: Server>(mut server: S) {
    let fixture = fixture(&server);
    let mut holder = fixture.hold(["a"]).await;
    let mut waiting = fixture.start(["run", "--json", "--wait", "8s", "a", "--", "true"]);
    fixture.until_contended("a", 1).await;
    server.stop().await.unwrap();
    assert_eq!(exit_code(&mut waiting).await, 75);
    let said = std::fs::read_to_string(waiting.log()).unwrap();
    let error: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let (message, causes) = (&error["error"]["message"], &error["error"]["causes"]);
    assert!(message.as_str().unwrap().starts_with("\"a\" is held by "), "{said}");
    assert!(causes[0].as_str().unwrap().contains(&format!("(server: {})", server.addr())), "{said}");
    holder.close_stdin();
}

/// A store that is down is unavailable, whatever it is asked; where it should be is told once, and why it is
/// not there. The password in the URL is not repeated.
pub(crate) async fn a_store_that_is_down_is_unavailable<S: Server>(message: &str) {
    let port = Port::reserve().unwrap();
    let fixture = Fixture::on(S::url(format!("me:sesame@{}", port.addr()), "cli", "connect_timeout=500ms"));
    for words in [
        &["ls"] as &[&str],
        &["doctor"],
        &["inspect", "a"],
        &["revoke", "a"],
        &["run", "a", "--", "true"],
        &["hold", "--ignore-stdin", "a"],
    ] {
        let failed = fixture.done(["--json"].iter().chain(words).copied()).await;
        assert_eq!(failed.code, 69, "{words:?}: {failed:?}");
        assert_eq!(failed.error()["kind"], "unavailable", "{words:?}");
        assert_eq!(failed.error()["effect"], "not_applied", "{words:?}");
        assert!(!failed.err.contains("sesame"), "{}", failed.err);
    }
    let told = fixture.done(["ls"]).await.err;
    let first = format!("leasehold: {message} (server: {})\n", port.addr());
    let is_told =
        told.starts_with(&first) && told.ends_with("\n  because: Connection refused (os error 111)\n");
    assert!(is_told, "{told}");
}

/// What `doctor` found about a subject, the worst first, and with which code it ended.
pub(crate) async fn found(fixture: &Fixture, subject: &str) -> (Vec<String>, String, i32) {
    let diagnosis = fixture.done(["doctor", "--json"]).await;
    let found = diagnosis.json();
    let findings = found["findings"].as_array().unwrap().iter();
    let mut about: Vec<_> = findings.filter(|finding| finding["subject"] == subject).collect();
    about.sort_by_key(|finding| finding["severity"] != "broken");
    let text = |finding: &&Value, field: &str| finding[field].as_str().unwrap().to_owned();
    let severities = about.iter().map(|finding| text(finding, "severity")).collect();
    let details: Vec<_> = about.iter().map(|finding| text(finding, "detail")).collect();
    assert!(!about.is_empty(), "nothing about {subject}: {found}");
    (severities, details.join("\n"), diagnosis.code)
}

pub(crate) async fn breaks(fixture: &Fixture, subject: &str, words: &[&str]) {
    let (severities, details, code) = found(fixture, subject).await;
    assert_eq!((severities[0].as_str(), code), ("broken", 1), "{details}");
    assert!(words.iter().all(|word| details.contains(word)), "{details}");
}

pub(crate) async fn warns(fixture: &Fixture, subject: &str, words: &[&str]) {
    let (severities, details, _) = found(fixture, subject).await;
    assert!(severities.iter().any(|severity| severity == "warning"), "{severities:?}: {details}");
    assert!(words.iter().all(|word| details.contains(word)), "{details}");
}

/// The host's time since it was started, which a command reads from `/proc/uptime`.
fn boot_time() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).expect("less than a second"))
}
