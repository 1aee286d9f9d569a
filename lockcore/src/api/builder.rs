//! The configuration of a manager, and its opening.

use std::sync::Arc;
use std::time::Duration;

use crate::api::manager::LockManager;
use crate::backend::env::{Entropy, Env};
use crate::backend::{Backoff, LockBackend, StoreConfig};
use crate::clock::Clock;
use crate::clock::timing::Timing;
use crate::core;
use crate::core::context::Context;
use crate::words::error::{Effect, Error, ErrorKind, Result};

/// The configuration of a [`LockManager`]; the defaults are those of [`Timing`].
#[derive(Debug)]
#[must_use = "nothing is opened before `build`"]
pub struct Builder {
    store: Box<dyn StoreConfig>,
    pub(super) ttl: Duration,
    pub(super) op_timeout: Option<Duration>,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) connect_wait: Duration,
    pub(super) drift_margin: Option<Duration>,
    pub(super) handoff_limit: Option<u16>,
    handoff_window: Option<Duration>,
    pub(super) label: Option<String>,
    clock: Option<Arc<dyn Clock>>,
    entropy: Option<Arc<dyn Entropy>>,
}

impl LockManager {
    /// Starts the configuration of a manager on `store`.
    pub fn builder(store: impl StoreConfig) -> Builder {
        Builder::new(Box::new(store))
    }
}

impl Builder {
    /// The longest owner label, in bytes.
    pub const MAX_LABEL_BYTES: usize = 256;

    pub(crate) fn new(store: Box<dyn StoreConfig>) -> Self {
        Self {
            store,
            ttl: Timing::DEFAULT_TTL,
            op_timeout: None,
            connect_timeout: None,
            connect_wait: Duration::ZERO,
            drift_margin: None,
            handoff_limit: None,
            handoff_window: None,
            label: None,
            clock: None,
            entropy: None,
        }
    }

    /// Sets all times and bounds, as a configuration file may give them, but [`connect_wait`](Self::connect_wait).
    pub fn timing(mut self, timing: Timing) -> Self {
        let Timing { ttl, op_timeout, connect_timeout, drift_margin, handoff_limit, handoff_window } = timing;
        (self.ttl, self.drift_margin, self.handoff_limit) = (ttl, drift_margin, Some(handoff_limit));
        (self.op_timeout, self.connect_timeout) = (Some(op_timeout), Some(connect_timeout));
        self.handoff_window = Some(handoff_window);
        self
    }

    /// Sets how long a lease lasts without a renewal.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the bound of one request to the store.
    pub fn op_timeout(mut self, bound: Duration) -> Self {
        self.op_timeout = Some(bound);
        self
    }

    /// Sets the bound of one attempt to open the store.
    pub fn connect_timeout(mut self, bound: Duration) -> Self {
        self.connect_timeout = Some(bound);
        self
    }

    /// Sets how long [`build`](Self::build) retries while the store is unavailable; the default is zero, one
    /// attempt.
    pub fn connect_wait(mut self, wait: Duration) -> Self {
        self.connect_wait = wait;
        self
    }

    /// Sets how much earlier than at the store a lease counts as expired.
    pub fn drift_margin(mut self, margin: Duration) -> Self {
        self.drift_margin = Some(margin);
        self
    }

    /// Sets the number of successive local hand-offs; 0 switches them off.
    pub fn handoff_limit(mut self, limit: u16) -> Self {
        self.handoff_limit = Some(limit);
        self
    }

    /// Sets how long after the store's grant local hand-offs are allowed.
    pub fn handoff_window(mut self, window: Duration) -> Self {
        self.handoff_window = Some(window);
        self
    }

    /// Sets the label that other clients see; the default is the host name and the process id.
    pub fn owner_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Replaces the host's clock, for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Replaces the system's source of random bits, for tests.
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = Some(entropy);
        self
    }

    /// Checks the configuration, contacts the store and opens the session.
    ///
    /// An unavailable store is retried with growing pauses during [`connect_wait`](Self::connect_wait). Every
    /// other error is final.
    ///
    /// Timers, renewals and requests run on the runtime of this call. They stop while a current-thread runtime
    /// is not polled, and end with the runtime.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidOption`]: an option is invalid; before any request.
    /// - [`ErrorKind::Unavailable`]: the store was not opened within the connect timeout and `connect_wait`.
    /// - [`ErrorKind::Misuse`]: outside a tokio runtime, or in one without timers.
    ///   There tokio prints a panic first, which ends a program that is built with `panic = "abort"`.
    /// - Otherwise the store's error.
    ///
    /// # Cancel safety
    ///
    /// A session that is already open ends with its lease.
    pub async fn build(self) -> Result<LockManager> {
        let env = self.env()?;
        let label = self.label()?;
        let min_ttl = self.store.min_ttl();
        let store_env = env.sibling();
        let server = self.store.server();
        let backend = open(&*self.store, &env, &store_env, self.connect_wait).await?;
        let context = Context::new(env, store_env, backend, server, label.into(), min_ttl);
        Ok(LockManager::new(core::start(context)))
    }

    /// Returns the environment of the store for callers without a manager, without a request.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build), without the store's.
    pub fn env(&self) -> Result<Env> {
        let mut env = Env::new(self.times()?)?;
        if let Some(clock) = &self.clock {
            env = env.with_clock(Arc::clone(clock));
        }
        if let Some(entropy) = &self.entropy {
            env = env.with_entropy(Arc::clone(entropy));
        }
        Ok(env)
    }

    fn times(&self) -> Result<Timing> {
        let defaults = Timing::for_ttl(self.ttl);
        let timing = Timing {
            ttl: self.ttl,
            op_timeout: self.op_timeout.unwrap_or(defaults.op_timeout),
            connect_timeout: self.connect_timeout.unwrap_or(defaults.connect_timeout),
            drift_margin: self.drift_margin,
            handoff_limit: self.handoff_limit.unwrap_or(defaults.handoff_limit),
            handoff_window: self.handoff_window.unwrap_or(defaults.handoff_window),
        };
        timing.validate(self.store.min_ttl())?;
        Ok(timing)
    }

    fn label(&self) -> Result<String> {
        let Some(label) = &self.label else {
            let host = rustix::system::uname();
            let host = host.nodename().to_string_lossy();
            return Ok(format!("{host}/{}", std::process::id()));
        };
        if label.len() > Self::MAX_LABEL_BYTES || label.chars().any(char::is_control) {
            return Err(Error::invalid_option(format!(
                "the owner label of {} bytes is invalid: expected at most {} bytes without control \
                 characters",
                label.len(),
                Self::MAX_LABEL_BYTES
            )));
        }
        Ok(label.clone())
    }
}

/// Opens the store; retries for at most `wait` while it is unavailable.
async fn open(
    store: &dyn StoreConfig,
    env: &Env,
    store_env: &Env,
    wait: Duration,
) -> Result<Arc<dyn LockBackend>> {
    let until = env.now() + wait;
    let mut bound = env.timing().connect_timeout;
    let mut backoff = Backoff::new(SHORTEST_PAUSE, LONGEST_PAUSE);
    let mut last: Option<Error> = None;
    let placed = |error: Error| match store.server() {
        Some(server) => error.with_context("server", server),
        None => error,
    };
    loop {
        let error = match env.within(bound, store.open(store_env.clone())).await {
            // An attempt that the end of the wait has cut short says nothing of the store.
            None => last.filter(|_| bound < env.timing().connect_timeout).unwrap_or_else(|| {
                let message = format!("timed out while opening the store after {bound:?}");
                placed(Error::not_applied(ErrorKind::Unavailable, message))
            }),
            // No lock was requested, and the entries of a session end with its lease.
            Some(opened) => match opened.map_err(|error| placed(error.with_effect(Effect::NotApplied))) {
                Err(error) if *error.kind() == ErrorKind::Unavailable => error,
                opened => return opened,
            },
        };
        let again_at = env.now() + backoff.next(env);
        if until <= again_at {
            return Err(error);
        }
        tracing::warn!(error = ?format!("{error:#}"), "cannot open the store; retrying");
        last = Some(error);
        env.sleep_until(again_at).await;
        bound = env.timing().connect_timeout.min(until.since(env.now()));
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
