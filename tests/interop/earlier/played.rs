//! What a process of the earlier version can do, on whatever store.

use std::time::Duration;

/// The name of the lock of every trial.
pub(crate) const NAME: &str = "a";

/// A store where nobody has been, and its users, who have no rights but those that the earlier version's
/// documents name.
pub(crate) trait Store: Sized + 'static {
    const NAME: &str;

    /// A lease whose end is waited for.
    const TTL: Duration;

    /// Whether contenders hold in order of arrival.
    const ORDERED: bool;

    /// What the earlier version writes of itself and of its lease, as far as it does.
    const LABEL: &str = "earlier";
    const METADATA: Option<&str> = None;
    const NOTED: Option<Duration> = None;

    type Process: Process;

    async fn start() -> Self;

    /// Where managers of today are at work.
    fn url(&self, options: &str) -> String;

    /// A process of the earlier version, with leases of `ttl`.
    async fn process(&self, ttl: Duration) -> Self::Process;

    /// How much is left of what holders were asked.
    async fn messages(&self) -> usize;
}

/// A process of the earlier version, which contends for the lock; its entries end when it is dropped, or
/// with its lease.
pub(crate) trait Process {
    /// Queues, where there is a queue; the counter of its token if it holds at once.
    async fn enters(&mut self) -> Option<u64>;

    /// Waits until it holds because the holder before it let go; the counter.
    async fn is_next(&mut self) -> u64;

    /// Waits until it holds, also where nobody lets go; the counter.
    async fn outlasts(&mut self) -> u64 {
        self.is_next().await
    }

    async fn leaves(&mut self);

    /// Whether it finds that somebody holds.
    async fn sees_a_holder(&mut self) -> bool;

    /// Waits until it hears that it is to let go.
    async fn is_asked(&mut self);

    /// Asks whoever holds to let go; which grant it took that for, where it looks.
    async fn asks(&mut self) -> Option<u64>;

    /// Ends its session.
    async fn ends(self);
}
