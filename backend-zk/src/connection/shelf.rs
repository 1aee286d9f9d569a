//! The requests in flight, each polled by its caller.
//!
//! A pending request may have a handle on the client, and its caller may not be polled for long. So the shelf keeps the
//! requests, drops them at its end, and wakes their callers.
//!
//! # Invariants
//! - **zk.shelf-1** Once the shelf has ended, no request has a handle, and every caller gets `None`.
//! - **zk.shelf-2** A caller that is not polled delays no other one: the shelf is not locked while a request is polled or
//!   dropped, or a waker is called.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use slab::Slab;

/// The handle on a client, and the requests that may have another one.
#[derive(Debug)]
pub(super) struct Shelf<H> {
    state: Mutex<ShelfState<H>>,
}

#[derive(Debug)]
struct ShelfState<H> {
    handle: Option<Arc<H>>,
    /// `None` once the shelf has ended.
    requests: Option<Slab<Arc<dyn Ends>>>,
}

/// A request whose answer does not matter here.
trait Ends: Send + Sync {
    /// Drops the request; returns the waker of its caller.
    fn end(&self) -> Option<Waker>;
}

impl std::fmt::Debug for dyn Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("request")
    }
}

/// A request with the waker of its caller, until the shelf ends.
type Request<T> = Mutex<Option<(BoxFuture<'static, T>, Waker)>>;

impl<T> Ends for Request<T> {
    fn end(&self) -> Option<Waker> {
        let taken = self.lock().take();
        taken.map(|(request, caller)| {
            drop(request);
            caller
        })
    }
}

impl<H> Shelf<H> {
    pub(super) fn new(handle: H) -> Self {
        Self { state: Mutex::new(ShelfState { handle: Some(Arc::new(handle)), requests: Some(Slab::new()) }) }
    }

    /// The handle, until the shelf is closed.
    pub(super) fn handle(&self) -> Option<Arc<H>> {
        self.state.lock().handle.clone()
    }

    /// Begins a request; `None` if the shelf has ended.
    pub(super) fn ask<T, F>(&self, begin: impl FnOnce(Arc<H>) -> F) -> Option<Asked<'_, H, T>>
    where
        T: 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let handle = {
            let state = self.state.lock();
            state.requests.as_ref()?;
            state.handle.clone()?
        };
        let request: Arc<Request<T>> =
            Arc::new(Mutex::new(Some((Box::pin(begin(handle)), Waker::noop().clone()))));
        // RACE: it may have ended since; then the request is dropped.
        let kept = Arc::<Request<T>>::clone(&request);
        let key = self.state.lock().requests.as_mut()?.insert(kept);
        Some(Asked { shelf: self, key, request })
    }

    /// Drops the requests, and takes no more.
    pub(super) fn end(&self) {
        let requests = self.state.lock().requests.take();
        let callers: Vec<_> =
            requests.into_iter().flatten().filter_map(|(_, request)| request.end()).collect();
        // Behind the last handle: a waker may panic.
        callers.into_iter().for_each(Waker::wake);
    }

    /// Ends, and drops the handle.
    pub(super) fn close(&self) {
        let handle = self.state.lock().handle.take();
        drop(handle);
        self.end();
    }
}

/// A request, as its caller polls it; `None` if the shelf ends before. Dropped, it cancels the request.
pub(super) struct Asked<'a, H, T> {
    shelf: &'a Shelf<H>,
    key: usize,
    request: Arc<Request<T>>,
}

impl<H, T> Future for Asked<'_, H, T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let waker = cx.waker().clone();
        let mut kept = self.request.lock();
        let Some((request, caller)) = &mut *kept else {
            return Poll::Ready(None);
        };
        let polled = request.as_mut().poll(cx);
        let former = std::mem::replace(caller, waker);
        drop(kept);
        // Foreign code: not with the request locked.
        drop(former);
        polled.map(Some)
    }
}

impl<H, T> Drop for Asked<'_, H, T> {
    fn drop(&mut self) {
        let kept = self.shelf.state.lock().requests.as_mut().map(|requests| requests.remove(self.key));
        drop(kept);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Weak;

    use futures_util::FutureExt;

    use super::*;

    /// A shelf, and whether a handle of it is left.
    fn shelf() -> (Shelf<()>, Weak<()>) {
        let shelf = Shelf::new(());
        let handle = Arc::downgrade(&shelf.handle().unwrap());
        (shelf, handle)
    }

    /// A request that is not answered, and has a handle.
    fn ask(shelf: &Shelf<()>) -> Option<Asked<'_, (), ()>> {
        shelf.ask(|handle| async move {
            let _handle = handle;
            pending().await
        })
    }

    /// The end drops the handles of all requests, also of one that was never polled, and wakes the callers (zk.shelf-1).
    #[tokio::test]
    async fn end_drops_handles_of_idle_callers() {
        let (shelf, handle) = shelf();
        let (idle, mut polled) = (ask(&shelf).unwrap(), ask(&shelf).unwrap());
        assert!((&mut polled).now_or_never().is_none());
        let end = async {
            shelf.end();
            assert_eq!(handle.strong_count(), 1, "the shelf's own");
        };
        let (answer, ()) = futures_util::future::join(polled, end).await;
        assert_eq!((answer, idle.await), (None, None));
        assert!(ask(&shelf).is_none());
        shelf.close();
        assert_eq!(handle.strong_count(), 0);
    }

    /// A request that is answered or cancelled has no handle any more, and leaves its place to another.
    #[test]
    fn answered_or_cancelled_request_leaves_the_shelf() {
        let (shelf, handle) = shelf();
        let (first, second) = (ask(&shelf), shelf.ask(|_handle| async { 7 }));
        assert_eq!(second.unwrap().now_or_never(), Some(Some(7)));
        drop(first);
        assert_eq!(handle.strong_count(), 1);
        let (again, other) = (ask(&shelf), ask(&shelf));
        drop(again);
        assert_eq!(handle.strong_count(), 2);
        drop(other);
        assert!(shelf.state.lock().requests.as_ref().unwrap().is_empty());
    }
}
