//! A namespace of locks, and holders on it.

use std::time::Duration;

use testbed::{Launch, Process, Scratch};

use crate::store::{STEADY, Store, TTL};

/// Longer than a whole contest takes; a bound against hanging, nothing is timed by it.
pub(crate) const BOUND: Duration = Duration::from_secs(120);

pub(crate) struct Rig {
    pub(crate) scratch: Scratch,
    pub(crate) leased: bool,
    url: String,
    store: Store,
}

impl Rig {
    pub(crate) fn new(store: Store) -> Self {
        let (scratch, url) = (Scratch::new("cross-process").unwrap(), store.fresh_url(TTL));
        Self { scratch, leased: store.leased, url, store }
    }

    /// The same, with leases that are to be kept.
    pub(crate) fn steady(self) -> Self {
        Self { url: self.store.fresh_url(STEADY), ..self }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Starts a holder and waits until its session is open.
    pub(crate) async fn holder(&self) -> Holder {
        let program = std::env::current_exe().unwrap();
        let launch = Launch::new(&program, self.scratch.path());
        let mut process = launch.args(["holder", &self.url]).piped_lines().spawn().unwrap();
        assert_eq!(process.next_line(BOUND).await.unwrap(), "ready");
        Holder { process }
    }
}

pub(crate) struct Holder {
    pub(crate) process: Process,
}

impl Holder {
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
