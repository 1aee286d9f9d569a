//! One lock, shared with the libraries of others: each is the real library, in a process of its own. Every trial has a
//! server of its own.
//!
//! Those of Redis are the peers of the comparison (`comparison/peers`), and ours speaks the same lines, in a process of its
//! own, too (this program, called with `contend URL`). Times are read from the clock that all processes share.
//!
//! At depth `soak` the two sides contend for a minute, and every library moves the whole way.
//!
//! | part | shows |
//! |---|---|
//! | `exclusion` | tries, waiting, the end of a lease, renewal, the release of a lock that another client holds; in both directions. What ShedLock does by default |
//! | `contest` | many of both: every count is there once, and both sides get their turns |
//! | `keys` | where the lock is, as `docs/src/from-another-library.md` says, and that a format can be left in Redis itself |
//! | `wire` | what is in the server while each of them holds, and the messages of the release, as in the folder |
//! | `story` | a fleet leaves its library for us, one by one, and then its server for etcd, and counts all the while |
//! | `queue` | a library in one queue with ours: waiting, tokens, what is shown, force; in both directions |
//! | `etcd`, `zookeeper` | `queue` with `etcdctl`, Curator, kazoo and go-zookeeper, and what is special to each |

#![allow(clippy::unwrap_used, clippy::future_not_send, reason = "test binary")]

mod contender;
mod contest;
mod etcd;
mod exclusion;
mod hand;
mod keys;
mod library;
#[path = "../../comparison/src/worker/ours.rs"]
mod ours;
mod queue;
mod setup;
mod story;
mod wire;
mod zookeeper;

use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::Arguments;
use testbed::Depth;

use crate::library::LIBRARIES;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("contend") {
        return contend(&arguments.collect::<Vec<_>>());
    }
    let depth = Depth::of_run();
    let span = Duration::from_secs(depth.pick(CONTEST_SECONDS, CONTEST_SECONDS, 60));
    let mut trials = zookeeper::trials();
    trials.extend(etcd::trials());
    trials.push(exclusion::trial_of_shedlock_by_default());
    for library in &LIBRARIES {
        let of_one = exclusion::trials(library);
        if library.name == WAITS_OTHERWISE && depth != Depth::Soak {
            trials.extend(of_one.into_iter().take(1));
            continue;
        }
        trials.extend(of_one);
        trials.push(contest::trial(library, span));
        if depth == Depth::Soak || [THE_SIMPLEST, TOLD_ALWAYS].contains(&library.name) {
            trials.push(contest::trial_of_a_busy_process(library, span));
        }
        trials.push(wire::trial(library));
        if library.name == THE_SIMPLEST {
            trials.extend(keys::trials(library));
        }
        if library.name == TOLD_ALWAYS || depth == Depth::Soak && library.has_a_story {
            trials.push(story::trial(library));
        }
    }
    let mut arguments = Arguments::from_args();
    // The tests mostly wait for leases to end, and for virtual machines to start.
    arguments.test_threads.get_or_insert(8);
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// One of us, as the lines on standard input say.
fn contend(urls: &[String]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(contender_protocol::run::<ours::Ours>(urls)).unwrap();
    ExitCode::SUCCESS
}

/// It is `spring` but for how it waits.
const WAITS_OTHERWISE: &str = "spring-spin";

/// It stands for all libraries that lock by a string of that name.
const THE_SIMPLEST: &str = "redis-py";

/// Some times as long as we keep a lock among ourselves before others get their turn.
const CONTEST_SECONDS: u64 = 6;

/// The library that moves the whole way in every run; it takes some 20 s.
const TOLD_ALWAYS: &str = "redisson";
