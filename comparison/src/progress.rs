//! Tells how far the comparison is: with a bar at a terminal, with a line for each step elsewhere.

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(steps: usize) -> Self {
        let template = "{bar:30} {pos:>3}/{len} {elapsed_precise}, {eta} left {wide_msg}";
        let style = ProgressStyle::with_template(template).expect("the template is valid");
        Self(ProgressBar::new(steps as u64).with_style(style))
    }

    /// The next step begins.
    pub(crate) fn begin(&self, what: &str) {
        let bar = &self.0;
        if bar.is_hidden() {
            let (step, steps) = (bar.position() + 1, bar.length().unwrap_or_default());
            eprintln!("{step}/{steps} {what}, after {}", HumanDuration(bar.elapsed()));
        }
        self.doing(what.to_owned());
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
