//! Who holds a lock, told whenever that has changed.
//!
//! The store is looked at as by `inspect`, so this is the same on every store, whoever holds and waits pays no request
//! for it, and nothing is left when it is dropped. All streams of a manager for one name share its looks: whoever polls
//! one of them carries out the look that all of them wait for.
//!
//! # Invariants
//! - **watch-1** What is shown is what one look has answered, and a look begins when the last one has ended: nothing is
//!   shown that was over before what had been shown already. The first look that a stream shows begins after the stream.
//! - **watch-2** The end of a hold is a change, as its beginning is.
//! - **watch-3** A store that cannot be looked at is told once; the first look that is answered after that is shown, whether
//!   it has changed or not.
//! - **watch-4** However many streams there are, one name is looked at four times per `op_timeout`, and once more for
//!   each stream that comes after a look has begun.
//!
//! Checked by the conformance cases `g10::watch_*` and `counts::a_watch_is_one_look_for_all_streams`.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use futures_util::future::{BoxFuture, FutureExt, Shared};
use futures_util::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::api::manager::LockManager;
use crate::backend::{Holder, LockState};
use crate::clock::Moment;
use crate::words::error::Result;
use crate::words::name::LockName;

/// The names that one manager and its clones watch.
pub(super) type Watched = Mutex<HashMap<LockName, Weak<Looks>>>;

/// One stream.
struct Watch {
    looks: Arc<Looks>,
    /// The look that was begun last when the stream was opened, and later the one that it has seen.
    seen: u64,
    is_new: bool,
    shown: Shown,
}

/// What was told last.
enum Shown {
    Nothing,
    /// That the store cannot be looked at.
    Failure,
    Holders(Vec<Holder>),
}

/// The looks of one manager at one name.
pub(super) struct Looks {
    pace: Arc<Pace>,
    /// The one that is waited for, and its number.
    current: Mutex<Option<(u64, Look)>>,
}

/// A look: its number and its answer; nothing once the manager is shut down.
type Look = Shared<BoxFuture<'static, (u64, Option<Arc<Result<LockState>>>)>>;

/// When the next look begins.
struct Pace {
    locks: LockManager,
    name: LockName,
    /// How many have begun, and when the next one is to.
    begun: Mutex<(u64, Moment)>,
    /// That is sooner by now.
    hurries: Notify,
}

impl LockManager {
    /// The state of `name`, and again whenever its holders have changed: somebody else holds it, somebody more or
    /// less, or nobody. The latest state only: what came and went between two looks is not shown. Decides nothing, and
    /// is no request to hold.
    ///
    /// The store is looked at while a stream is polled, four times per [`op_timeout`](crate::Timing::op_timeout),
    /// however many streams of this manager there are for the name, and once more for one that comes later: whoever holds for longer than that is shown within that time, as long as
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
        let looks = self.looks_at(name);
        let seen = looks.pace.begun.lock().0;
        let watch = Watch { looks, seen, is_new: true, shown: Shown::Nothing };
        Ok(stream::unfold(watch, Watch::next).fuse().boxed())
    }

    fn looks_at(&self, name: LockName) -> Arc<Looks> {
        let mut watched = self.watched.lock();
        if let Some(looks) = watched.get(&name).and_then(Weak::upgrade) {
            return looks;
        }
        watched.retain(|_, looks| looks.strong_count() > 0);
        let begun = Mutex::new((0, self.core().env().now()));
        let pace = Pace { locks: self.clone(), name: name.clone(), begun, hurries: Notify::new() };
        let looks = Arc::new(Looks { pace: Arc::new(pace), current: Mutex::default() });
        watched.insert(name, Arc::downgrade(&looks));
        looks
    }
}

impl Watch {
    async fn next(mut self) -> Option<(Result<LockState>, Self)> {
        loop {
            let is_new = std::mem::take(&mut self.is_new);
            let (number, looked) = self.looks.look(self.seen, is_new).await;
            let looked = looked?;
            // INVARIANT(watch-1)
            if number <= self.seen {
                continue;
            }
            self.seen = number;
            // INVARIANT(watch-2) INVARIANT(watch-3)
            let (news, shown) = match (&*looked, &self.shown) {
                (Ok(state), Shown::Holders(shown)) if same(shown, &state.holders) => continue,
                (Ok(state), _) => (true, Shown::Holders(state.holders.clone())),
                (Err(_), shown) => (!matches!(shown, Shown::Failure), Shown::Failure),
            };
            self.shown = shown;
            if news {
                return Some(((*looked).clone(), self));
            }
        }
    }
}

impl Looks {
    /// Waits for the next look that ends; for a stream that is new, one that is under way since it was opened, or one
    /// that begins now.
    async fn look(&self, seen: u64, is_new: bool) -> (u64, Option<Arc<Result<LockState>>>) {
        let look = {
            let mut current = self.current.lock();
            let begun = self.pace.begun.lock().0;
            let is_under_way = |(number, _): &(u64, Look)| seen < *number && *number == begun;
            if is_new && !current.as_ref().is_some_and(is_under_way) {
                self.pace.hurry();
            }
            let next = || {
                let number = begun + 1;
                (number, Arc::clone(&self.pace).look(number).boxed().shared())
            };
            current.get_or_insert_with(next).1.clone()
        };
        let looked = look.await;
        self.current.lock().take_if(|(number, _)| *number == looked.0);
        looked
    }
}

impl Pace {
    /// The next look begins now.
    fn hurry(&self) {
        self.begun.lock().1 = self.locks.core().env().now();
        self.hurries.notify_one();
    }

    /// Looks when it is time to; nothing once the manager is shut down.
    async fn look(self: Arc<Self>, number: u64) -> (u64, Option<Arc<Result<LockState>>>) {
        let core = Arc::clone(self.locks.core());
        loop {
            let look_at = self.begun.lock().1;
            if look_at <= core.env().now() {
                break;
            }
            tokio::select! {
                biased;
                () = core.closing.cancelled() => return (number, None),
                () = self.hurries.notified() => {}
                () = core.env().sleep_until(look_at) => {}
            }
        }
        *self.begun.lock() = (number, core.env().now() + core.env().timing().op_timeout / 4);
        let looked = tokio::select! {
            biased;
            looked = self.locks.look(&self.name) => looked,
            () = core.closing.cancelled() => return (number, None),
        };
        (number, (!core.is_closed()).then(|| Arc::new(looked)))
    }
}

fn same(shown: &[Holder], now: &[Holder]) -> bool {
    shown.len() == now.len() && shown.iter().zip(now).all(|(shown, now)| shown.is_same_grant(now))
}
