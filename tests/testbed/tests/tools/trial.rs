//! The words of a trial: what they wait for, and that they end.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use testbed::{Beside, eventually, trial, trial_within, until, within};

const SHORT: Duration = Duration::from_millis(50);

fn run(trial: Trial) -> libtest_mimic::Conclusion {
    // Nobody is to read of failures that are meant.
    let arguments = Arguments { logfile: Some("/dev/null".to_owned()), ..Arguments::default() };
    libtest_mimic::run(&arguments, vec![trial])
}

#[test]
fn a_trial_that_panics_or_hangs_has_failed() {
    assert_eq!(run(trial("returns", async || ())).num_failed, 0);
    assert_eq!(run(trial("panics", async || panic!("as it must"))).num_failed, 1);
    assert_eq!(run(trial_within(SHORT, "hangs", std::future::pending)).num_failed, 1);
}

#[tokio::test]
#[should_panic(expected = "the sky falls: not within 50ms")]
async fn missed_event_is_named() {
    within(SHORT, "the sky falls", until(async || false)).await;
}

#[tokio::test]
async fn background_task_ends_with_its_handle() {
    assert_eq!(Beside::start(async { 7 }).end("a number").await, 7);
    let kept = Arc::new(());
    let theirs = Arc::clone(&kept);
    let beside = Beside::start(async move {
        std::future::pending::<()>().await;
        drop(theirs);
    });
    assert!(!beside.is_finished());
    drop(beside);
    eventually("it has ended", async || Arc::strong_count(&kept) == 1).await;
}

#[tokio::test]
#[should_panic(expected = "panicked")]
async fn a_panic_beside_is_not_lost() {
    Beside::start(async { panic!("as it must") }).end("never").await
}
