//! What the file store says when it cannot be used: which path, which lock, and why, each once.

use std::path::Path;

use leasehold::file::FileConfig;
use leasehold::{ErrorKind, LockManager};
use leasehold_conformance::words::said;

async fn open(directory: &Path) -> leasehold::Result<LockManager> {
    LockManager::builder(FileConfig::new(directory)).build().await
}

#[tokio::test]
async fn paths_and_locks_are_named_once() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    let told = |path: &Path| path.display().to_string();
    std::fs::write(at("file"), "").unwrap();
    let refused = open(&at("file/locks")).await.unwrap_err();
    assert_eq!(
        said(&refused, &told(&at("file/locks")), None),
        format!(
            "cannot inspect the path to the lock directory: another kind of file is in the place of a file or directory of this library (path: \
             {}): Not a directory (os error 20)",
            told(&at("file/locks"))
        )
    );

    let locks = open(&at("locks")).await.unwrap();
    locks.lock("invoice/42").unwrap().acquire().await.unwrap().release().await.unwrap();
    let mut made = std::fs::read_dir(at("locks")).unwrap().map(|entry| entry.unwrap().path());
    let file = made.find(|path| path.extension().is_some_and(|it| it == "lock")).unwrap();
    std::fs::write(&file, "not ours").unwrap();
    let refused = locks.lock("invoice/42").unwrap().acquire().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Protocol);
    assert_eq!(
        said(&refused, &told(&file), Some("invoice/42")),
        format!(
            "the file is not a lock file: move it away, or lock in another directory (path: \
             {}, lock: invoice/42)",
            told(&file)
        )
    );

    std::fs::remove_dir_all(at("locks")).unwrap();
    let refused = locks.lock("invoice/42").unwrap().acquire().await.unwrap_err();
    assert_eq!(
        said(&refused, &told(&at("locks")), Some("invoice/42")),
        format!(
            "cannot open the floor: the lock directory or a part of it is missing, or was removed while in use (path: {}/.leasehold/floor, lock: \
             invoice/42): No such file or directory (os error 2)",
            told(&at("locks"))
        )
    );
}
