//! Other processes: this test binary, started again to play one part.

use std::env;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use leasehold_core::backend::{Revoke, StoreEvent};
use leasehold_core::{Effect, ErrorKind};
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

use crate::fixture::{Fixture, Manager, name};

/// Another process in `part`, ready.
struct Other {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Other {
    fn start(part: &str, directory: &Path) -> Self {
        Self::start_as(None, part, directory)
    }

    /// Of the user and the group of these numbers, if given.
    fn start_as(who: Option<(u32, u32)>, part: &str, directory: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        if let Some((user, group)) = who {
            command.uid(user).gid(group).current_dir("/");
        }
        command.args(["--ignored", "--exact", "--nocapture", part]);
        command.env(DIRECTORY, directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// Ends once the other has said `word`.
    fn says(&mut self, word: &str) {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "it ended without saying {word}");
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn manager() -> Manager {
    let directory = env::var_os(DIRECTORY).expect("started by another test");
    Manager::open(&leasehold_file::FileConfig::new(directory)).await.unwrap()
}

#[tokio::test]
#[ignore = "a part for another process"]
async fn maker() {
    manager().await.cycle("a").await;
    println!("made");
}

#[tokio::test]
#[ignore = "a part for another process"]
async fn limited() {
    let (mut a, b) = (manager().await, manager().await);
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(40), maximum }).unwrap();
    let mut held = Vec::new();
    let error = loop {
        match a.attempt(&format!("job/{}", held.len())).await {
            Ok(leasehold_core::backend::Attempt::Granted(grant)) => held.push(grant),
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!((error.kind(), error.effect()), (&ErrorKind::Unavailable, Effect::NotApplied));
    assert!(error.to_string().contains("ulimit -n`, now 40"), "{error}");
    let rest: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
    let told = a.event().await;
    assert!(
        matches!(&told, StoreEvent::Warning(text) if text.contains("cannot read revocation requests")),
        "{told:?}"
    );
    drop(rest);
    let freed = held.len();
    a.release(&held.pop().unwrap()).await;
    b.backend.revoke(&name("job/0"), Revoke::AT_ONCE).await.unwrap();
    // One warning, and requests are read again.
    let asked = StoreEvent::RevocationRequested {
        name: name("job/0"),
        counter: held[0].counter,
        within: Duration::ZERO,
    };
    assert_eq!(a.event().await, asked);
    for grant in &held {
        a.release(grant).await;
    }
    // Names that are not held cost none.
    for lock in 0..200 {
        a.cycle(&format!("other/{lock}")).await;
    }
    println!("limited after {freed}");
}

#[tokio::test]
#[ignore = "a part for another process"]
async fn revoker() {
    let (mut a, b) = (manager().await, manager().await);
    let held = a.grant("a").await;
    let in_secs = |secs| Revoke::Ask { grace: Duration::from_secs(secs) };
    b.backend.revoke(&name("a"), in_secs(30)).await.unwrap();
    let requests = Path::new(&env::var_os(DIRECTORY).unwrap()).join(".leasehold/revoke");
    let request = fs::read_dir(&requests).unwrap().next().unwrap().unwrap().path();
    // As another user leaves it whose umask lets us read.
    set_mode(&request, 0o400);
    let refused = b.backend.revoke(&name("a"), in_secs(10)).await.unwrap_err();
    assert_eq!((refused.kind(), refused.effect()), (&ErrorKind::Denied, Effect::NotApplied), "{refused}");
    b.backend.revoke(&name("a"), Revoke::AT_ONCE).await.unwrap();
    let asked =
        StoreEvent::RevocationRequested { name: name("a"), counter: held.counter, within: Duration::ZERO };
    assert_eq!(a.event().await, asked);

    // By force a lock is removed also without a request to its holder, which checks its file, too.
    a.grant("b").await;
    b.backend.revoke(&name("b"), in_secs(30)).await.unwrap();
    for request in fs::read_dir(&requests).unwrap() {
        set_mode(&request.unwrap().path(), 0o400);
    }
    set_mode(&requests, 0o500);
    assert!(!b.backend.revoke(&name("b"), Revoke::Force).await.unwrap().is_empty());
    set_mode(&requests, 0o700);
    b.grant("b").await;
    println!("asked");
}

/// The limit of open files is an error with advice; a release needs none. Meanwhile requests are not read, which is a
/// warning.
#[tokio::test]
async fn the_limit_of_open_files_is_an_error() {
    let fixture = Fixture::new();
    let mut other = Other::start("processes::limited", &fixture.path());
    other.says("limited after");
}

/// A request that is there and cannot be added to keeps no ask from its holder: one for at once takes its
/// place, and any other is refused.
#[tokio::test]
async fn an_ask_that_cannot_be_added_is_not_lost() {
    let fixture = Fixture::new();
    let user = geteuid().is_root().then_some(65534);
    fs::create_dir(fixture.path()).unwrap();
    chown(fixture.path(), user, user).unwrap();
    set_mode(&fixture.path(), 0o700);
    set_mode(fixture.path().parent().unwrap(), 0o755);
    let mut other = Other::start_as(user.map(|user| (user, user)), "processes::revoker", &fixture.path());
    other.says("asked");
}

#[tokio::test]
async fn the_gate_of_another_user_keeps_nobody_from_a_new_name() {
    let fixture = Fixture::new();
    let own = fixture.file(".leasehold");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("gate"), "").unwrap();
    let (user, gate) = if geteuid().is_root() { (Some(65534), 0o600) } else { (None, 0o000) };
    set_mode(&own.join("gate"), gate);
    for directory in [fixture.path(), own] {
        chown(&directory, user, user).unwrap();
        set_mode(&directory, 0o700);
    }
    set_mode(fixture.path().parent().unwrap(), 0o755);
    let mut other = Other::start_as(user.map(|user| (user, user)), "processes::maker", &fixture.path());
    other.says("made");
    assert!(fixture.file("a.lock").exists());
}

/// A user's own group stays his where his process has another one.
#[tokio::test]
async fn a_users_own_group_is_known_by_the_owner() {
    if !geteuid().is_root() {
        eprintln!("left out: only root can start processes of others");
        return;
    }
    let fixture = Fixture::new();
    fs::create_dir(fixture.path()).unwrap();
    chown(fixture.path(), Some(65534), Some(65534)).unwrap();
    set_mode(&fixture.path(), 0o775);
    set_mode(fixture.path().parent().unwrap(), 0o755);
    let mut other = Other::start_as(Some((65534, 33)), "processes::maker", &fixture.path());
    other.says("made");
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

const DIRECTORY: &str = "LEASEHOLD_TEST_DIRECTORY";
