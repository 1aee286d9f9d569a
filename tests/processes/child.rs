//! The program that holds locks, as its parent sees it.

use std::time::Duration;

use testbed::{Launch, Process, Scratch};

/// Longer than anything here takes; a bound against hanging, nothing is timed by it.
const BOUND: Duration = Duration::from_secs(120);

pub(crate) struct Holder {
    pub(crate) process: Process,
}

impl Holder {
    /// Starts one and waits until its session is open.
    pub(crate) async fn start(scratch: &Scratch, url: &str) -> Self {
        let mut holder = Self::launch(scratch, url);
        assert_eq!(holder.answer().await, "ready");
        holder
    }

    /// Starts one, which says `ready` or why it is not.
    pub(crate) fn launch(scratch: &Scratch, url: &str) -> Self {
        let program = std::env::current_exe().unwrap();
        let launch = Launch::new(&program, scratch.path());
        Self { process: launch.args(["holder", url]).piped_lines().spawn().unwrap() }
    }

    pub(crate) async fn order(&mut self, order: &str) {
        self.process.send_line(order).await.unwrap();
    }

    pub(crate) async fn answer(&mut self) -> String {
        self.process.next_line(BOUND).await.unwrap()
    }

    pub(crate) async fn ask(&mut self, order: &str) -> String {
        self.order(order).await;
        self.answer().await
    }

    /// Takes the lock; the token.
    pub(crate) async fn acquire(&mut self, name: &str) -> u64 {
        self.order(&format!("acquire {name}")).await;
        self.token().await
    }

    /// The token of a lock that was ordered before.
    pub(crate) async fn token(&mut self) -> u64 {
        let answer = self.answer().await;
        let token = answer.strip_prefix("held ").unwrap_or_else(|| panic!("answered {answer:?}"));
        token.parse().unwrap()
    }
}
