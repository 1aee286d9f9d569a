//! Who holds a lock, told whenever that has changed.
//!
//! The store is looked at as by `inspect`, so this is the same on every store, whoever holds and waits pays no request
//! for it, and nothing is left when it is dropped.
//!
//! # Invariants
//! - **watch-1** What is shown is what one look has answered, and a look begins when the last one has ended: nothing is
//!   shown that was over before what had been shown already.
//! - **watch-2** The end of a hold is a change, as its beginning is.
//! - **watch-3** A store that cannot be looked at is told once; the first look that is answered after that is shown, whether
//!   it has changed or not.
//!
//! Checked by the conformance cases `g10::watch_*`.

use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};

use crate::api::manager::LockManager;
use crate::backend::{Holder, LockState};
use crate::clock::Moment;
use crate::words::error::Result;
use crate::words::name::LockName;

/// One that looks at a lock.
struct Watch {
    locks: LockManager,
    name: LockName,
    shown: Shown,
    look_at: Moment,
}

/// What was told last.
enum Shown {
    Nothing,
    /// That the store cannot be looked at.
    Failure,
    Holders(Vec<Holder>),
}

impl LockManager {
    /// The state of `name`, and again whenever its holders have changed: somebody else holds it, somebody more or
    /// less, or nobody. The latest state only: what came and went between two looks is not shown. Decides nothing, and
    /// is no request to hold.
    ///
    /// The store is looked at while the stream is polled, four times per
    /// [`op_timeout`](crate::Timing::op_timeout): whoever holds for longer than that is shown within that time, as long as
    /// the store can be reached. While it cannot, one item is the error, and the stream goes on; its next item is the state
    /// by then. It ends when the manager is shut down, and keeps the manager's session until it is dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName).
    ///
    /// # Cancel safety
    ///
    /// An item that was not waited for to its end is told by the next call. Nothing is changed in the store, so nothing is
    /// left.
    pub fn watch(&self, name: impl AsRef<str>) -> Result<BoxStream<'static, Result<LockState>>> {
        let name = LockName::new(name)?;
        let look_at = self.core().env().now();
        let watch = Watch { locks: self.clone(), name, shown: Shown::Nothing, look_at };
        Ok(stream::unfold(watch, Watch::next).fuse().boxed())
    }
}

impl Watch {
    async fn next(mut self) -> Option<(Result<LockState>, Self)> {
        loop {
            let looked = self.look().await?;
            // INVARIANT(watch-2) INVARIANT(watch-3)
            let (news, shown) = match (&looked, &self.shown) {
                (Ok(state), Shown::Holders(shown)) => (!same(shown, &state.holders), Shown::of(state)),
                (Ok(state), Shown::Nothing | Shown::Failure) => (true, Shown::of(state)),
                (Err(_), shown) => (!matches!(shown, Shown::Failure), Shown::Failure),
            };
            self.shown = shown;
            if news {
                return Some((looked, self));
            }
        }
    }

    /// Looks when it is time to; nothing once the manager is shut down.
    async fn look(&mut self) -> Option<Result<LockState>> {
        let core = Arc::clone(self.locks.core());
        tokio::select! {
            biased;
            () = core.closing.cancelled() => return None,
            () = core.env().sleep_until(self.look_at) => {}
        }
        // INVARIANT(watch-1)
        self.look_at = core.env().now() + core.env().timing().op_timeout / 4;
        let looked = tokio::select! {
            biased;
            looked = self.locks.inspect(&self.name) => looked,
            () = core.closing.cancelled() => return None,
        };
        if core.is_closed() { None } else { Some(looked) }
    }
}

impl Shown {
    fn of(state: &LockState) -> Self {
        Self::Holders(state.holders.clone())
    }
}

fn same(shown: &[Holder], now: &[Holder]) -> bool {
    shown.len() == now.len() && shown.iter().zip(now).all(|(shown, now)| shown.is_same_grant(now))
}
