//! What the file store costs beside the system calls of plain `flock(1)`.
//!
//! The question: what do durable tokens cost on top of a file lock, and does waiting through a helper
//! thread cost anything? `cargo bench -p leasehold-file`; put `TMPDIR` on the disk in question. `flock`
//! opens, locks and closes, as the command does; `flock_and_sync` also writes a record and waits until
//! it is on the disk, the least that a token which survives a crash needs.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use divan::Bencher;
use leasehold_core::{Lock, LockGuard, LockManager};
use leasehold_file::FileConfig;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

fn main() {
    match std::env::var(OTHER) {
        Ok(how) => other(&how),
        Err(_) => divan::main(),
    }
}

/// One process takes and releases a free lock.
#[divan::bench(args = ["leasehold", "flock", "flock_and_sync"])]
fn uncontended_cycle(bencher: Bencher<'_, '_>, how: &str) {
    let directory = directory();
    let contender = Contender::new(how, directory.path());
    bencher.bench_local(|| drop(contender.acquire()));
}

/// From the release in one process until another, which waits in the kernel, has said that it holds.
#[divan::bench(args = ["leasehold", "flock", "flock_and_sync"])]
fn hand_off_between_two_processes(bencher: Bencher<'_, '_>, how: &str) {
    let directory = directory();
    let contender = Contender::new(how, directory.path());
    let other = RefCell::new(Other::start(how, directory.path()));
    let waited_for = || {
        let held = contender.acquire();
        other.borrow_mut().wait();
        held
    };
    bencher.with_inputs(waited_for).bench_local_values(|held| {
        drop(held);
        other.borrow_mut().holds();
    });
}

/// One process's way to the one lock.
enum Contender {
    Leasehold { runtime: Runtime, lock: Lock },
    Flock { path: PathBuf, sync: bool },
}

/// Released when dropped, in place.
#[expect(dead_code, reason = "held, not looked at")]
enum Held {
    Leasehold(LockGuard),
    Flock(File),
}

impl Contender {
    fn new(how: &str, directory: &Path) -> Self {
        if how != "leasehold" {
            return Self::Flock { path: directory.join("a.lock"), sync: how == "flock_and_sync" };
        }
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let open = LockManager::builder(FileConfig::new(directory.join("locks"))).build();
        let locks = runtime.block_on(open).expect("the directory can be used");
        let lock = locks.lock("a").expect("the name is valid");
        Self::Leasehold { runtime, lock }
    }

    fn acquire(&self) -> Held {
        match self {
            Self::Leasehold { runtime, lock } => {
                Held::Leasehold(runtime.block_on(lock.acquire()).expect("the lock can be had"))
            }
            Self::Flock { path, sync } => {
                let mut options = OpenOptions::new();
                let file = options.create(true).truncate(false).write(true).open(path);
                let file = file.expect("the file can be made");
                file.lock().expect("the file can be locked");
                if *sync {
                    file.write_all_at(&[1; 256], 0).expect("the disk has room");
                    file.sync_data().expect("the disk works");
                }
                Held::Flock(file)
            }
        }
    }
}

/// This program, as another process that waits for the lock when told to.
struct Other {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Other {
    fn start(how: &str, directory: &Path) -> Self {
        let mut program = Command::new(std::env::current_exe().expect("this program has a path"));
        program.env(OTHER, how).env(DIRECTORY, directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = program.spawn().expect("this program starts");
        let answers = BufReader::new(child.stdout.take().expect("its output is piped"));
        Self { child, answers }
    }

    /// Returns when the kernel lists it as waiting for a lock; what it held before it has released.
    fn wait(&mut self) {
        let orders = self.child.stdin.as_mut().expect("its input is piped");
        orders.write_all(b"acquire\n").expect("it reads");
        let waits = format!(" {} ", self.child.id());
        let is_waiting = |line: &str| line.contains("-> ") && line.contains(&waits);
        while !std::fs::read_to_string("/proc/locks").expect("Linux lists locks").lines().any(is_waiting) {
            std::thread::yield_now();
        }
    }

    /// Returns when it holds the lock.
    fn holds(&mut self) {
        self.answers.read_line(&mut String::new()).expect("it answers");
        let orders = self.child.stdin.as_mut().expect("its input is piped");
        orders.write_all(b"release\n").expect("it reads");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // Its input ends, and so does it.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn other(how: &str) {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).expect("the directory is given"));
    let contender = Contender::new(how, &directory);
    let mut held = None;
    for order in std::io::stdin().lines() {
        held = match order.expect("orders are text").as_str() {
            "acquire" => {
                let now_held = contender.acquire();
                println!("held");
                Some(now_held)
            }
            _ => None,
        };
    }
    drop(held);
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("there is room for a directory")
}

const OTHER: &str = "LEASEHOLD_BENCH_OTHER";
const DIRECTORY: &str = "LEASEHOLD_BENCH_DIRECTORY";
