//! In whose hands the directory is: what others put there is neither followed nor removed, and a
//! directory that others can change is not used.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use leasehold_core::backend::{Finding, Revoke, Severity, StoreEvent};
use leasehold_core::{Effect, Error, ErrorKind};
use leasehold_file::FileConfig;

use crate::fixture::{Fixture, Manager, name};

/// What is said of a directory to which something was done.
type Spoiled = (&'static str, fn(&Fixture));

async fn refusal(config: &FileConfig) -> Error {
    match Manager::open(config).await {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A sweep removes files of our own form only, also in our own directories, and what it finds there
/// does not stop it.
#[tokio::test]
async fn a_sweep_removes_nothing_of_others() {
    let fixture = Fixture::new();
    fixture.open().await.cycle("a").await;
    let mut foreign = Vec::new();
    for part in ["sessions", "waiting", "revoke", "new", "out"] {
        for file in ["thesis.txt", "0123456789abcdeF", "a.0123456789ABCDEF"] {
            foreign.push(fixture.file(".leasehold").join(part).join(file));
        }
    }
    for file in &foreign {
        fs::write(file, "not ours").unwrap();
    }
    assert_eq!(fixture.config().sweep().await.unwrap(), 1);
    for file in &foreign {
        assert!(file.exists(), "{} is gone", file.display());
    }
    // A name of ours does not make a directory or a pipe one of our files.
    for part in ["sessions", "new"] {
        fs::create_dir(fixture.file(".leasehold").join(part).join("00000000000000bb")).unwrap();
        mkfifo(&fixture.file(".leasehold").join(part).join("00000000000000aa"));
    }
    fixture.open().await.cycle("a").await;
    assert_eq!(fixture.config().sweep().await.unwrap(), 1);
    assert_eq!((fixture.traces("sessions"), fixture.traces("new")), (5, 5));
}

/// A link in the place of one of our directories is an error, and nothing behind it is touched.
#[tokio::test]
async fn links_to_directories_of_others_are_not_followed() {
    for part in ["", "sessions", "waiting", "revoke", "new", "out"] {
        let (fixture, others) = (Fixture::new(), tempfile::tempdir().unwrap());
        fixture.open().await.cycle("a").await;
        let own = fixture.file(".leasehold").join(part);
        fs::remove_dir_all(&own).unwrap();
        for file in ["00000000000000aa", "a.00000000000000aa", "a"] {
            fs::write(others.path().join(file), "").unwrap();
        }
        symlink(others.path(), own.components().as_path()).unwrap();
        let swept = fixture.config().sweep().await.unwrap_err();
        let opened = refusal(&fixture.config()).await;
        for error in [swept, opened] {
            assert_eq!(*error.kind(), ErrorKind::Protocol, "{part}: {error}");
            assert!(error.to_string().contains("another kind of file"), "{part}: {error}");
        }
        assert_eq!(fs::read_dir(others.path()).unwrap().count(), 3, "{part}");
    }
}

/// Our directories stay open: a link that takes their place later is not followed.
#[tokio::test]
async fn links_that_come_later_are_not_followed() {
    let (fixture, others) = (Fixture::new(), tempfile::tempdir().unwrap());
    let (a, b) = (fixture.open().await, fixture.open().await);
    for part in ["waiting", "revoke", "new", "out"] {
        let part = fixture.file(".leasehold").join(part);
        fs::rename(&part, part.with_extension("old")).unwrap();
        symlink(others.path(), &part).unwrap();
    }
    a.grant("a").await;
    assert!(!b.backend.revoke(&name("a"), Revoke::Force).await.unwrap().is_empty());
    b.grant("a").await;
    assert_eq!(fs::read_dir(others.path()).unwrap().count(), 0);
}

/// Nor is a request to a holder written through a link, or read through one: it wants the lock at once,
/// as does whatever else has its name.
#[tokio::test]
async fn a_request_is_not_written_or_read_through_a_link() {
    let (fixture, others) = (Fixture::new(), tempfile::tempdir().unwrap());
    let target = others.path().join("target");
    fs::write(&target, "grace 30000\n").unwrap();
    let mut a = fixture.open().await;
    let session = fs::read_dir(fixture.file(".leasehold/sessions")).unwrap().next().unwrap().unwrap();
    let session = session.file_name().into_string().unwrap();
    let b = fixture.open().await;
    let cases: [fn(&Path, &Path); 3] = [
        |target, request| symlink(target, request).unwrap(),
        |_, request| mkfifo(request),
        |_, request| {
            fs::create_dir(request).unwrap();
        },
    ];
    for spoil in cases {
        let held = a.grant("a").await;
        let request = fixture.file(".leasehold/revoke").join(format!("a.{:x}.{session}", held.counter));
        spoil(&target, &request);
        let how = Revoke::Ask { grace: Duration::from_secs(30) };
        assert!(!b.backend.revoke(&name("a"), how).await.unwrap().is_empty());
        let at_once = StoreEvent::RevocationRequested {
            name: name("a"),
            counter: held.counter,
            within: Duration::ZERO,
        };
        assert_eq!(a.event().await, at_once, "{}", request.display());
        a.release(&held).await;
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "grace 30000\n");
    assert_eq!(fixture.traces("revoke"), 1, "a directory is not removed");
}

/// A pipe, a directory or a link with the name of a session is not alive, and hides no lock.
#[tokio::test]
async fn file_named_like_a_session_is_not_alive() {
    let fixture = Fixture::new();
    let a = fixture.open().await;
    a.grant("a").await;
    let sessions = fixture.file(".leasehold/sessions");
    mkfifo(&sessions.join("00000000000000aa"));
    fs::create_dir(sessions.join("00000000000000bb")).unwrap();
    symlink("00000000000000aa", sessions.join("00000000000000cc")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(sessions.join("00000000000000dd")).unwrap();
    for session in ["aa", "bb", "cc", "dd"] {
        fs::write(fixture.file(".leasehold/waiting").join(format!("a.00000000000000{session}")), "").unwrap();
    }
    assert_eq!(a.contenders("a").await, 0);
    let listed = a.backend.list("").await.unwrap();
    assert!(listed.len() == 1 && listed[0].holder().is_some() && listed[0].contenders == 0, "{listed:?}");
    let own = finding(&a, "bookkeeping").await;
    assert!(own.severity == Severity::Warning && own.detail.starts_with("4 "), "{own:?}");
    drop(socket);
}

/// A directory that others own or can replace, or whose parts or whose way are theirs, is refused before
/// anything is made there; with leave it is used, said so, and called broken.
#[tokio::test]
async fn a_directory_in_the_hands_of_others_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root can give files to others");
        return;
    }
    let cases: [Spoiled; 9] = [
        ("belongs to user 65534", |fixture| give(&fixture.path())),
        ("belongs to user 65534", |fixture| give(&fixture.file(".leasehold"))),
        ("belongs to user 65534", |fixture| give(&fixture.file(".leasehold/new"))),
        ("belongs to user 65534", |fixture| give(fixture.path().parent().unwrap())),
        ("belongs to user 65534", |fixture| {
            let real = fixture.path().with_extension("real");
            fs::rename(fixture.path(), &real).unwrap();
            symlink(real, fixture.path()).unwrap();
            std::os::unix::fs::lchown(fixture.path(), Some(65534), None).unwrap();
        }),
        ("writable by everybody (mode 0777)", |fixture| set_mode(&fixture.path(), 0o777)),
        ("writable by everybody (mode 1777)", |fixture| set_mode(&fixture.file(".leasehold/out"), 0o1777)),
        ("writable by everybody (mode 0777)", |fixture| set_mode(fixture.path().parent().unwrap(), 0o777)),
        ("writable by group 65534 (mode 0775)", |fixture| {
            chown(fixture.path(), None, Some(65534)).unwrap();
            set_mode(&fixture.path(), 0o775);
        }),
    ];
    for (says, spoil) in cases {
        let fixture = Fixture::new();
        fixture.open().await.cycle("a").await;
        spoil(&fixture);
        let swept = fixture.config().sweep().await.unwrap_err();
        for error in [swept, refusal(&fixture.config()).await] {
            assert_eq!((error.kind(), error.effect()), (&ErrorKind::Denied, Effect::NotApplied));
            assert!(error.to_string().contains(says), "{error}");
            assert!(error.to_string().contains("allow_untrusted_path"), "{error}");
        }
        let mut a = Manager::open(&fixture.config().allow_untrusted_path(true)).await.unwrap();
        let StoreEvent::Warning(warning) = a.event().await else { panic!("no warning") };
        assert!(warning.contains(says), "{warning}");
        a.cycle("a").await;
        assert_eq!(finding(&a, "path").await.severity, Severity::Broken);
    }
    // Nothing is made where others lead.
    let (fixture, others) = (Fixture::new(), tempfile::tempdir().unwrap());
    symlink(others.path(), fixture.path()).unwrap();
    std::os::unix::fs::lchown(fixture.path(), Some(65534), None).unwrap();
    for config in [fixture.config(), FileConfig::new(fixture.file("deep/er"))] {
        assert_eq!(*refusal(&config).await.kind(), ErrorKind::Denied);
    }
    assert_eq!(fs::read_dir(others.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn users_of_one_mode_trust_each_other() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root can give files to others");
        return;
    }
    let fixture = Fixture::new();
    fs::create_dir(fixture.path()).unwrap();
    chown(fixture.path(), None, Some(65534)).unwrap();
    set_mode(&fixture.path(), 0o2770);
    let config = fixture.config().mode(0o660);
    Manager::open(&config).await.unwrap().cycle("a").await;
    for part in ["", "sessions", "waiting", "revoke", "new", "out"] {
        give(&fixture.file(".leasehold").join(part));
    }
    let a = Manager::open(&config).await.unwrap();
    assert_eq!(finding(&a, "path").await.severity, Severity::Ok);
    refusal(&fixture.config()).await;
}

/// Whoever can read a file can keep its lock; that is said.
#[tokio::test]
async fn files_that_others_may_read_are_warned_about() {
    let fixture = Fixture::new();
    let a = fixture.open().await;
    a.cycle("a").await;
    assert_eq!(finding(&a, "permissions").await.severity, Severity::Ok);
    set_mode(&fixture.path(), 0o755);
    assert_eq!(finding(&a, "permissions").await.severity, Severity::Ok);
    set_mode(&fixture.file("a.lock"), 0o644);
    let permissions = finding(&a, "permissions").await;
    assert_eq!(permissions.severity, Severity::Warning);
    assert!(permissions.detail.contains("other users can read"), "{permissions:?}");
}

async fn finding(manager: &Manager, subject: &str) -> Finding {
    let findings = manager.backend.diagnose().await.unwrap();
    findings.into_iter().find(|finding| finding.subject == subject).unwrap()
}

fn give(path: &Path) {
    chown(path, Some(65534), None).unwrap();
}

fn mkfifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}
