//! tokio's clock, for virtual time.

use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::{Clock, Moment};

/// The time of the tokio runtime: virtual under `tokio::time::pause`.
///
/// For tests and simulations; copies share one origin. It stops while the host is suspended, so no real lock may depend on it.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: Instant,
}

impl TokioClock {
    /// A clock whose origin lies one second before now.
    pub fn new() -> Self {
        #[expect(clippy::disallowed_methods, reason = "this clock is tokio's")]
        Self { origin: Instant::now() }
    }

    const HEAD_START: Duration = Duration::from_secs(1);
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        #[expect(clippy::disallowed_methods, reason = "this clock is tokio's")]
        let elapsed = Instant::now().saturating_duration_since(self.origin);
        Moment::from_nanos(0) + Self::HEAD_START + elapsed
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        let at = self.origin + at.since(Moment::from_nanos(0) + Self::HEAD_START);
        Box::pin(tokio::time::sleep_until(at))
    }

    /// As virtual as the rest, so that runs replay.
    fn wall_time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.now().as_nanos())
    }
}
