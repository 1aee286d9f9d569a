//! A future that goes on after its caller has left.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::backend::env::Env;

/// Polled by its caller, and by a task from when the caller leaves: it always runs to its end.
#[must_use = "futures do nothing unless polled"]
pub struct Background<T: Send + 'static> {
    env: Env,
    left: CancellationToken,
    future: Option<BoxFuture<'static, T>>,
}

impl<T: Send + 'static> Background<T> {
    /// `left` notifies `future` when its caller leaves; its output is dropped then.
    pub fn new(env: &Env, left: CancellationToken, future: BoxFuture<'static, T>) -> Self {
        Self { env: env.clone(), left, future: Some(future) }
    }
}

impl<T: Send + 'static> Future for Background<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Not left here: a future that panics is not polled again.
        let mut future = self.future.take().expect("polled until it is ready");
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() {
            self.future = Some(future);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Background<T> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.left.cancel();
            self.env.spawn(async move { drop(future.await) });
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Background<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;
    use crate::Timing;

    /// A request is notified when its caller leaves, and continues; a completed one does not.
    #[tokio::test]
    async fn abandoned_request_continues() {
        let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap();
        for (polled, ended) in [(false, false), (true, false), (true, true)] {
            let (left, (end, ends), (told, hears)) =
                (CancellationToken::new(), oneshot::channel::<()>(), oneshot::channel());
            let future = async move {
                let _ = ends.await;
                let _ = told.send(());
            };
            let mut background = Background::new(&env, left.clone(), future.boxed());
            if ended {
                end.send(()).unwrap();
                background.await;
            } else {
                if polled {
                    assert!((&mut background).now_or_never().is_none());
                }
                drop(background);
                end.send(()).unwrap();
            }
            assert_eq!(left.is_cancelled(), !ended);
            hears.await.expect("it goes on to its end");
        }
    }
}
