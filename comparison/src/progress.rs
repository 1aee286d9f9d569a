//! Tells how far the comparison is: with a bar at a terminal, with a line for each step elsewhere.

use indicatif::{ProgressBar, ProgressStyle};

#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(steps: usize) -> Self {
        let bar = ProgressBar::new(steps as u64);
        let style = ProgressStyle::with_template("{bar:30} {pos:>3}/{len} {elapsed_precise} {wide_msg}");
        bar.set_style(style.expect("the template is one"));
        Self(bar)
    }

    /// The next step begins.
    pub(crate) fn begin(&self, what: &str) {
        let bar = &self.0;
        if bar.is_hidden() {
            eprintln!("{}/{} {what}", bar.position() + 1, bar.length().unwrap_or_default());
        }
        self.doing(what);
    }

    /// What is being done now.
    pub(crate) fn doing(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
        self.0.tick();
    }

    /// A step is done.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    /// Prints a line above the bar, or where errors go if there is none.
    pub(crate) fn say(&self, line: &str) {
        if self.0.is_hidden() {
            eprintln!("{line}");
        } else {
            self.0.println(line);
        }
    }

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
