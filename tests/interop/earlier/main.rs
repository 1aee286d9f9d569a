//! Processes of an earlier version on the same locks: what they write, how they read it, and the rights that
//! their documents name, kept as they were and played here, beside managers of today.
//!
//! | part | where |
//! |---|---|
//! | what holds between the two on every store | `scenarios` |
//! | a process of the earlier version, by store | `etcd`, `file`, `redis`, `zookeeper` |
//! | a process of today, to be killed: this program, called with `hold URL` | `ours` |
//!
//! The earlier version knew no grace: asked, it gives up at once, and as a revoker it gives no time.

#![allow(clippy::unwrap_used, clippy::future_not_send, reason = "test binary")]

mod etcd;
mod file;
mod ours;
mod played;
mod redis;
mod scenarios;
mod zookeeper;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use crate::played::Store;

/// Every scenario on one store.
fn of<S: Store>() -> Vec<Trial> {
    macro_rules! scenarios {
        ($($name:ident)*) => {
            vec![$(testbed::trial(format!("{}::{}", S::NAME, stringify!($name)), scenarios::$name::<S>)),*]
        };
    }
    scenarios! {
        each_waits_for_the_other_in_turn
        each_passes_over_the_others_dead
        a_holder_that_knows_no_grace_is_asked
        a_holder_is_asked_by_one_that_knows_no_grace
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some("hold") {
        return ours::hold(&words.next().unwrap());
    }
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(8);
    let trials = [
        of::<zookeeper::Nodes>(),
        of::<etcd::Keys>(),
        of::<redis::Scripts>(),
        of::<file::Directory>(),
        etcd::trials(),
        file::trials(),
        redis::trials(),
        zookeeper::trials(),
    ];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit_code()
}
