//! Locks between processes of one host, held by a small program that this test starts, stops and
//! kills: itself, called with `holder URL`.

#![allow(clippy::unwrap_used, reason = "test binary")]

mod contest;
mod faults;
mod holder;
mod rig;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("holder") {
        return holder::run(&arguments.next().unwrap());
    }
    libtest_mimic::run(&Arguments::from_args(), trials()).exit_code()
}

fn trials() -> Vec<Trial> {
    vec![
        trial(
            "no_count_is_lost_while_processes_are_killed",
            contest::no_count_is_lost_while_processes_are_killed,
        ),
        trial("a_killed_holder_frees_the_lock_at_once", faults::a_killed_holder_frees_the_lock_at_once),
        trial("a_stopped_holder_keeps_the_lock", faults::a_stopped_holder_keeps_the_lock),
        trial(
            "a_child_of_the_holder_does_not_keep_the_lock",
            faults::a_child_of_the_holder_does_not_keep_the_lock,
        ),
        trial("a_killed_waiter_disturbs_nobody", faults::a_killed_waiter_disturbs_nobody),
        trial("another_process_is_seen_and_revoked", faults::another_process_is_seen_and_revoked),
        trial(
            "tokens_grow_across_a_restart_of_everything",
            faults::tokens_grow_across_a_restart_of_everything,
        ),
        faults::full_disk(),
    ]
}

fn trial<F: Future<Output = ()> + 'static>(name: &str, test: fn() -> F) -> Trial {
    Trial::test(format!("file::{name}"), move || {
        Runtime::new().map_err(|error| Failed::from(error.to_string()))?.block_on(test());
        Ok(())
    })
}
