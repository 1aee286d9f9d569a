//! What the core itself costs, on the in-memory store: no network, no disk, no server.
//!
//! The question: does the library stay far below the fastest store's round trip (about 10 µs on
//! loopback)? The goals are in the table; `cargo bench -p leasehold-core` prints the figures, allocations
//! per iteration included.
//!
//! | benchmark | goal |
//! |---|---|
//! | `uncontended_cycles` | ≤ 1.5 µs and ≤ 10 allocations a cycle |
//! | `local_hand_offs` | ≤ 2 µs a hand-off |
//! | `cycles_of_64_tasks` | ≥ 500 000 cycles/s |
//! | `held_locks` | ≤ 1 KiB a lock (its bytes allocated, over 10 000 locks) |
//! | `ensure_held` | ≤ 100 ns |

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher, black_box};
use leasehold_core::memory::MemoryConfig;
use leasehold_core::{Lock, LockGuard, LockManager};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// One task takes and releases a free lock, a thousand times.
#[divan::bench]
fn uncontended_cycles(bencher: Bencher<'_, '_>) {
    const CYCLES: usize = 1_000;
    let (runtime, locks) = opened();
    let lock = named(&locks, "a");
    bencher.counter(ItemsCount::new(CYCLES)).bench_local(|| {
        runtime.block_on(async {
            for _ in 0..CYCLES {
                held(&lock).await.release().await.expect("memory releases");
            }
        });
    });
}

/// A lock goes back and forth between two tasks that always want it.
#[divan::bench]
fn local_hand_offs(bencher: Bencher<'_, '_>) {
    contended(bencher, 2, 1_000);
}

/// 64 tasks on one lock; every cycle but one in 257 is a local hand-off.
#[divan::bench]
fn cycles_of_64_tasks(bencher: Bencher<'_, '_>) {
    contended(bencher, 64, 200);
}

/// 10 000 locks held at once: what they allocate and keep.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn held_locks(bencher: Bencher<'_, '_>) {
    const LOCKS: usize = 10_000;
    let (runtime, locks) = opened();
    let all: Vec<_> = (0..LOCKS).map(|index| named(&locks, &format!("held/{index}"))).collect();
    bencher.counter(ItemsCount::new(LOCKS)).bench_local(|| {
        runtime.block_on(async {
            let mut guards = Vec::with_capacity(LOCKS);
            for lock in &all {
                guards.push(held(lock).await);
            }
            black_box(guards)
        })
    });
}

/// Whether a guard is still held.
#[divan::bench]
fn ensure_held(bencher: Bencher<'_, '_>) {
    let (runtime, locks) = opened();
    let guard = runtime.block_on(held(&named(&locks, "a")));
    bencher.bench_local(|| black_box(&guard).ensure_held());
}

fn contended(bencher: Bencher<'_, '_>, tasks: usize, cycles: usize) {
    let (runtime, locks) = opened();
    let lock = named(&locks, "a");
    bencher.counter(ItemsCount::new(tasks * cycles)).bench_local(|| {
        runtime.block_on(async {
            let mut all = JoinSet::new();
            for _ in 0..tasks {
                let lock = lock.clone();
                all.spawn(async move {
                    for _ in 0..cycles {
                        let guard = held(&lock).await;
                        // While the others run, and queue up.
                        tokio::task::yield_now().await;
                        guard.release().await.expect("memory releases");
                    }
                });
            }
            all.join_all().await;
        });
    });
}

fn opened() -> (Runtime, LockManager) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let manager = LockManager::builder(MemoryConfig::private()).build();
    let locks = runtime.block_on(manager).expect("memory opens");
    (runtime, locks)
}

fn named(locks: &LockManager, name: &str) -> Lock {
    locks.lock(name).expect("the name is valid")
}

async fn held(lock: &Lock) -> LockGuard {
    lock.acquire().await.expect("memory grants")
}
