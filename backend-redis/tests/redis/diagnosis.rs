//! What `diagnose` says of real servers.

use leasehold_core::LockManager;
use leasehold_core::backend::Severity;
use testbed::redis::{Settings, WallClock};

use crate::fixture::{LONG, direct, ok, open_for, start, trials};

trials![
    a_good_server_is_ok = || a_good_server_is_ok(Settings::new()),
    broken_promise_is_reported,
    valkey_is_called_by_its_name,
    a_pause_is_named,
];

/// The worst severity of the findings about `subject`, and their texts.
pub(crate) async fn of(locks: &LockManager, subject: &str) -> (Severity, String) {
    let all = locks.diagnose().await.unwrap();
    let said: Vec<_> = all.iter().filter(|finding| finding.subject == subject).collect();
    let worst = said.iter().map(|finding| finding.severity).max();
    let text = said.iter().map(|finding| finding.detail.as_str()).collect::<Vec<_>>().join("; ");
    (worst.unwrap_or_else(|| panic!("nothing about {subject}: {all:?}")), text)
}

/// A server as the page says it should be has no finding but `ok`, and the product is named with its own version.
async fn a_good_server_is_ok(settings: Settings) {
    let server = start(settings.append_only().memory(1 << 30, "noeviction")).await;
    let locks = open_for(direct(&server), LONG).await;
    let findings = locks.diagnose().await.unwrap();
    assert!(findings.iter().all(|finding| finding.severity == Severity::Ok), "{findings:?}");
    let info = server.info("server").await.unwrap();
    let valkey = info.get("valkey_version").map(|version| format!("Valkey {}", version.trim()));
    let product = valkey.unwrap_or_else(|| format!("Redis {}", info["redis_version"].trim()));
    assert!(of(&locks, "version").await.1.contains(&product), "{findings:?}");
}

async fn valkey_is_called_by_its_name() {
    match testbed::redis::valkey() {
        Some(program) => a_good_server_is_ok(Settings::new().program(program)).await,
        None => testbed::peers::skip("Valkey", "there is none in target/tools; run: make tools"),
    }
}

async fn a_pause_is_named() {
    let server = start(Settings::new()).await;
    let locks = open_for(direct(&server).pause_after_restart(LONG), LONG).await;
    let (severity, text) = of(&locks, "restart").await;
    assert!(severity == Severity::Ok && text.contains("600s") && text.contains("are left"), "{text}");
    assert_eq!(of(&locks, "persistence").await.0, Severity::Ok);
}

async fn broken_promise_is_reported() {
    let clock = WallClock::new().unwrap();
    let server = start(Settings::new().clock(&clock)).await;
    let locks = open_for(direct(&server), LONG).await;
    let (severity, text) = of(&locks, "persistence").await;
    assert!(severity == Severity::Warning && text.contains("appendonly"), "{text}");
    assert_eq!(of(&locks, "clock").await.0, Severity::Ok);

    ok(&server, &["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]).await;
    ok(&server, &["CONFIG", "SET", "maxmemory", "1000000000"]).await;
    let (severity, text) = of(&locks, "eviction").await;
    assert_eq!(severity, Severity::Broken);
    assert!(text.contains("volatile-ttl") && text.contains("noeviction"), "{text}");
    ok(&server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    assert_eq!(of(&locks, "eviction").await.0, Severity::Ok);

    clock.shift_by(60).unwrap();
    let (severity, text) = of(&locks, "clock").await;
    assert!(severity == Severity::Warning && text.contains("differ by"), "{text}");

    let replica = start(Settings::new().replica_of(server.addr())).await;
    replica.follows().await.unwrap();
    let (severity, text) = of(&locks, "replication").await;
    assert!(severity == Severity::Warning && text.contains("wait_replicas"), "{text}");
    let ofreplica = open_for(direct(&replica), LONG).await;
    assert_eq!(of(&ofreplica, "replication").await.0, Severity::Broken);
    let confirmed = open_for(direct(&server).wait_replicas(2), LONG).await;
    assert_eq!(of(&confirmed, "replication").await.0, Severity::Broken);

    ok(
        &server,
        &["ACL", "SETUSER", "app", "on", ">secret", "~*", "resetchannels", "+@all", "-info", "-config|get"],
    )
    .await;
    let restricted = open_for(direct(&server).credentials("app", "secret"), LONG).await;
    for subject in ["info", "eviction", "messages"] {
        assert_eq!(of(&restricted, subject).await.0, Severity::Warning, "{subject}");
    }
}
