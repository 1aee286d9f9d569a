//! Tells how far the comparison is, and about how long it goes on: with a bar at a terminal, with a line for each step
//! elsewhere.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use contender_protocol::now;
use indicatif::{ProgressBar, ProgressStyle};

#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// How long each step takes, as planned, in seconds.
    plan: Vec<f64>,
    began: u64,
    step_began: Mutex<u64>,
}

impl Progress {
    pub(crate) fn new(plan: Vec<f64>) -> Self {
        let bar = ProgressBar::new(plan.len() as u64);
        let template = "{bar:30} {pos:>3}/{len} {elapsed_precise} {prefix} {wide_msg}";
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.expect("the template is one"));
        Self { bar, plan, began: now(), step_began: Mutex::new(now()) }
    }

    /// The next step begins.
    pub(crate) fn begin(&self, what: &str) {
        *self.step_began.lock().unwrap_or_else(PoisonError::into_inner) = now();
        let bar = &self.bar;
        if bar.is_hidden() {
            let (step, steps) = (bar.position() + 1, bar.length().unwrap_or_default());
            eprintln!("{step}/{steps} {what}, {}", self.left());
        }
        self.doing(what);
    }

    /// What is being done now.
    pub(crate) fn doing(&self, what: impl Into<String>) {
        self.bar.set_prefix(self.left());
        self.bar.set_message(what.into());
        self.bar.tick();
    }

    /// A step is done.
    pub(crate) fn step(&self) {
        self.bar.inc(1);
    }

    /// Prints a line above the bar, or where errors go if there is none.
    pub(crate) fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            eprintln!("{line}");
        } else {
            self.bar.println(line);
        }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// How long it goes on.
    fn left(&self) -> String {
        let step_began = *self.step_began.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |then: u64| Duration::from_nanos(now().saturating_sub(then)).as_secs_f64();
        let done = usize::try_from(self.bar.position()).unwrap_or(usize::MAX);
        let took = since(self.began) - since(step_began);
        match left(&self.plan, done, took, since(step_began)) {
            seconds if seconds < 60.0 => "less than a minute left".to_owned(),
            seconds => format!("about {:.0} min left", (seconds / 60.0).ceil()),
        }
    }
}

/// By the plan, at the pace so far of the steps that are done.
fn left(plan: &[f64], done: usize, took: f64, in_this_step: f64) -> f64 {
    let (before, after) = plan.split_at(done.min(plan.len()));
    let planned: f64 = before.iter().sum();
    // What little was done first says nothing yet.
    let pace = (took + FIRST) / (planned + FIRST);
    let this = after.first().copied().unwrap_or_default();
    let later: f64 = after.iter().skip(1).sum();
    (this * pace - in_this_step).max(0.0) + later * pace
}

/// In seconds.
const FIRST: f64 = 30.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// It begins with what is planned, shrinks while a step goes on and no further than to its end, and follows the pace.
    #[test]
    fn what_is_left_follows_the_pace() {
        let plan = [60.0, 120.0, 300.0];
        assert!((left(&plan, 0, 0.0, 0.0) - 480.0).abs() < 1e-9);
        assert!((left(&plan, 0, 0.0, 20.0) - 460.0).abs() < 1e-9);
        assert!((left(&plan, 0, 0.0, 500.0) - 420.0).abs() < 1e-9);
        assert!((left(&plan, 1, 150.0, 0.0) - 840.0).abs() < 1e-9);
        assert!(left(&plan, 3, 480.0, 0.0) < 1e-9);
        assert!(left(&plan, 4, 480.0, 0.0) < 1e-9);
    }
}
