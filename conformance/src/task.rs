//! What a case does on the side: a task that ends with its handle.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use leasehold_core::{Lock, LockGuard};
use tokio::task::JoinHandle;

use crate::failure::{Failure, Outcome};

/// A running task; dropping it stops it. Awaited, it yields what the task came to.
#[derive(Debug)]
#[must_use = "a task that is dropped at once does nothing"]
pub struct Task<T>(JoinHandle<T>);

impl<T: Send + 'static> Task<T> {
    /// Starts `work` beside the caller.
    pub fn start(work: impl Future<Output = T> + Send + 'static) -> Self {
        #[expect(clippy::disallowed_methods, reason = "owned by the handle, which stops it when dropped")]
        Self(tokio::spawn(work))
    }

    /// Whether it has come to its end.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Task<Outcome> {
    /// Waits for all of them.
    ///
    /// # Errors
    ///
    /// That of the first that failed.
    pub async fn all(tasks: Vec<Self>) -> Outcome {
        for task in tasks {
            task.await??;
        }
        Ok(())
    }
}

impl Task<Outcome<LockGuard>> {
    /// Waits for a lock in a task.
    pub fn acquire(lock: Lock) -> Self {
        Self::start(async move { Ok(lock.acquire().await?) })
    }
}

impl<T> Future for Task<T> {
    type Output = Outcome<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<T>> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map_err(|error| Failure::new(format!("a task of the case died: {error}")))
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
