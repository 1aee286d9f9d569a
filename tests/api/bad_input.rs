//! Bad input is refused before any request, by an error that names the value and the rule.

use std::time::Duration;

use leasehold::{ErrorKind, LockManager, Timing, connect, memory::MemoryConfig};

async fn refusal(url: &str) -> (ErrorKind, String) {
    let error = connect(url).await.expect_err("the URL cannot work");
    (error.kind().clone(), error.to_string())
}

#[tokio::test]
async fn urls_that_cannot_work_are_refused() {
    let cases = [
        ("memory", "expected scheme://"),
        ("memory://u:1/2@h", "an @ after its host"),
        ("mysql://h/", "unknown scheme \"mysql\"; known: "),
        ("memory://?tll=15s", "unknown option \"tll\""),
        ("memory://?ttl=soon", "ttl=\"soon\" is invalid: expected a length of time"),
        ("memory://?ttl=0s", "`ttl` must be longer than 0s"),
        ("memory://?ttl=50ms", "this store needs at least 100ms"),
        ("memory://?ttl=25h", "at most 24h"),
        ("memory://?ttl=3s&op_timeout=2s", "shorter than 3 × `op_timeout`"),
        ("memory://?ttl=1s&drift_margin=600ms", "more than half of the `ttl`"),
        ("memory://?ttl=1s&ttl=2s", "given twice"),
        ("memory://?handoff_limit=1024", "at most 1023"),
        ("memory://?handoff_limit=many", "a whole number from 0 to 1023"),
        ("memory://?connect_timeout=0s", "connect_timeout"),
        ("memory://?op_timeout=18446744073709551615s", "shorter than 3 × `op_timeout`"),
        ("memory://?drift_margin=18446744073709551615s", "more than half"),
        ("memory://a/b?prefix=c", "the prefix is given twice"),
    ];
    for (url, part) in cases {
        let (kind, message) = refusal(url).await;
        assert_eq!(kind, ErrorKind::InvalidOption, "{url}: {message}");
        assert!(message.contains(part), "{url}: {message}");
    }
}

#[cfg(feature = "file")]
#[tokio::test]
async fn file_urls_that_cannot_work_are_refused() {
    for (url, part) in [
        ("file://host/dir", "host"),
        ("file://", "directory"),
        ("file:///dir?keep=all", "keep=\"all\""),
        ("file:///dir?mode=rw", "mode=\"rw\""),
        ("file:///dir?prefix=p", "prefix"),
        ("file:///dir?ttl=50ms", "at least 100ms"),
    ] {
        let (kind, message) = refusal(url).await;
        assert_eq!(kind, ErrorKind::InvalidOption, "{url}: {message}");
        assert!(message.contains(part), "{url}: {message}");
    }
}

#[tokio::test]
async fn refusals_do_not_repeat_a_password() {
    for url in [
        "redis://u:sesame@h/0",
        "memory://u:sesame@h?x=1",
        "nosuch://u:sesame@h",
        "redis://u:sesame/1@h/0",
        "redis://:sesame?1@h/0",
        "etcd://u:1234/sesame@h1,h2/p",
        "zk://u:1234/sesame@h1,h2",
        "file://u:1/sesame@h",
    ] {
        let error = connect(url).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("sesame"), "{url}");
    }
}

/// Names are checked by `lock`, before anything else happens.
#[tokio::test]
async fn names_are_checked_by_lock() {
    let locks = connect("memory://").await.unwrap();
    for name in ["", "a\0", "a\tb", &"x".repeat(513)] {
        let error = locks.lock(name).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidName, "{name:?}");
        let error = locks.inspect(name).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidName, "{name:?}");
    }
}

/// A lock's own options are checked when it is acquired, against the manager's and the store's.
#[tokio::test]
async fn options_of_a_lock_are_checked_by_acquire() {
    let locks = connect("memory://?op_timeout=1s").await.unwrap();
    let lock = locks.lock("a").unwrap();
    let refused = [
        (lock.clone().ttl(Duration::ZERO), "longer than 0s"),
        (lock.clone().ttl(Duration::from_secs(2)), "shorter than 3 × `op_timeout`"),
        (lock.clone().ttl(Timing::MAX_TTL * 2), "at most 24h"),
        (lock.clone().handoff_limit(1024), "at most 1023"),
        (lock.clone().metadata("x".repeat(1025)), "1025 bytes"),
    ];
    for (lock, part) in refused {
        for error in [lock.acquire().await.unwrap_err(), lock.try_acquire().await.unwrap_err()] {
            assert_eq!(*error.kind(), ErrorKind::InvalidOption);
            assert!(error.to_string().contains(part), "{error}");
        }
    }
    assert!(locks.list("").await.unwrap().is_empty());
}

/// Labels go to other people's terminals: no control characters, no novels.
#[tokio::test]
async fn owner_labels_are_checked() {
    for label in ["a\nb".to_owned(), "x".repeat(257)] {
        let builder = LockManager::builder(MemoryConfig::private()).owner_label(label);
        assert_eq!(*builder.build().await.unwrap_err().kind(), ErrorKind::InvalidOption);
    }
}

/// Outside a runtime nothing could renew, so nothing opens.
#[test]
fn a_manager_needs_a_runtime() {
    let opened = futures_util::FutureExt::now_or_never(connect("memory://"));
    let error = opened.expect("refused at once").unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Misuse);
}
