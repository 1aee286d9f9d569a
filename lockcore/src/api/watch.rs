//! A stream of the holders of a lock, with an item per change.
//!
//! The store is read as by `inspect`. So a watch works alike on every store, costs holders and waiters no request, and
//! leaves nothing in the store. All streams of a manager for one name share their reads: the stream that is polled
//! sends the request for all of them.
//!
//! # Invariants
//! - **watch-1** An item is the result of one read, and a read begins after the end of the one before. So an older
//!   state never follows a newer one. The first read of a stream begins after the stream, and the store answers it as
//!   it answers `inspect`.
//! - **watch-2** The end of a hold is a change, as its beginning is.
//! - **watch-3** An unreachable store is reported once; the next successful read is shown, changed or not.
//! - **watch-4** One name is read four times per `op_timeout` for any number of streams, and once more for each stream
//!   that is opened after a read has begun.
//! - **watch-5** A stream that was not polled for a while shows the latest read, not the one that it waited for.
//!
//! Checked by the conformance cases `g10::watch_*`, and by
//! `requests::a_watch_is_one_look_for_all_streams` of `tests/servers`.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use futures_util::future::{BoxFuture, FutureExt, Shared};
use futures_util::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::api::state::{answered, with_own};
use crate::backend::{Holder, LockState};
use crate::clock::Moment;
use crate::core::Core;
use crate::words::error::Result;
use crate::words::name::LockName;

/// The names that one manager and its clones watch.
pub(super) type Watched = Mutex<HashMap<LockName, Weak<Looks>>>;

/// One stream.
struct Watch {
    looks: Arc<Looks>,
    /// The last read that had begun when the stream was opened, and later the last one that it has shown.
    seen: u64,
    is_new: bool,
    shown: Shown,
}

/// The last item.
enum Shown {
    Nothing,
    /// The store cannot be read.
    Failure,
    Holders(Vec<Holder>),
}

/// The reads of one name by one manager.
pub(super) struct Looks {
    pace: Arc<Pace>,
    /// The read in progress, and its number.
    current: Mutex<Option<(u64, Look)>>,
}

/// Nothing once the manager is shut down.
type Look = Shared<BoxFuture<'static, Option<Looked>>>;

/// The number of a read and its answer.
type Looked = (u64, Arc<Result<LockState>>);

/// When the next read begins.
struct Pace {
    core: Arc<Core>,
    name: LockName,
    begun: Mutex<Begun>,
    /// The last read that has ended.
    latest: Mutex<Option<Looked>>,
    /// That is sooner by now.
    hurries: Notify,
}

#[derive(Clone, Copy)]
struct Begun {
    /// How many reads have begun.
    number: u64,
    /// When the next one is to.
    next: Moment,
    /// The number of the last read that a new stream requires.
    wanted: u64,
}

/// A stream of the states of `name`, which shares its looks with the others that are `watched`.
pub(super) fn watch(
    watched: &Watched,
    core: &Arc<Core>,
    name: LockName,
) -> BoxStream<'static, Result<LockState>> {
    let looks = looks_at(watched, core, name);
    let seen = looks.pace.begun.lock().number;
    let watch = Watch { looks, seen, is_new: true, shown: Shown::Nothing };
    stream::unfold(watch, Watch::next).fuse().boxed()
}

fn looks_at(watched: &Watched, core: &Arc<Core>, name: LockName) -> Arc<Looks> {
    let mut watched = watched.lock();
    if let Some(looks) = watched.get(&name).and_then(Weak::upgrade) {
        return looks;
    }
    watched.retain(|_, looks| looks.strong_count() > 0);
    let begun = Mutex::new(Begun { number: 0, next: core.context.env.now(), wanted: 0 });
    let (latest, hurries) = (Mutex::default(), Notify::new());
    let pace = Pace { core: Arc::clone(core), name: name.clone(), begun, latest, hurries };
    let looks = Arc::new(Looks { pace: Arc::new(pace), current: Mutex::default() });
    watched.insert(name, Arc::downgrade(&looks));
    looks
}

impl Watch {
    async fn next(mut self) -> Option<(Result<LockState>, Self)> {
        loop {
            let is_new = std::mem::take(&mut self.is_new);
            let (number, looked) = self.looks.look(&mut self.seen, is_new).await?;
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
    /// Waits for the next read that ends. For a new stream, this is a read that begins now, or one that another new stream has
    /// begun since this one was opened.
    async fn look(&self, seen: &mut u64, is_new: bool) -> Option<Looked> {
        let (number, look) = {
            let mut current = self.current.lock();
            let begun = *self.pace.begun.lock();
            let is_under_way = |(number, _): &(u64, Look)| {
                *seen < *number && *number == begun.number && *number == begun.wanted
            };
            if is_new && !current.as_ref().is_some_and(is_under_way) {
                *seen = begun.number;
                self.pace.hurry();
            }
            let next = || {
                let number = begun.number + 1;
                (number, Arc::clone(&self.pace).look(number).boxed().shared())
            };
            current.get_or_insert_with(next).clone()
        };
        let looked = look.await;
        self.current.lock().take_if(|(current, _)| *current == number);
        looked?;
        // INVARIANT(watch-5)
        self.pace.latest.lock().clone()
    }
}

impl Pace {
    /// The next read begins now, for a new stream.
    fn hurry(&self) {
        let mut begun = self.begun.lock();
        (begun.next, begun.wanted) = (self.core.context.env.now(), begun.number + 1);
        self.hurries.notify_one();
    }

    /// Reads when it is due; nothing once the manager is shut down.
    async fn look(self: Arc<Self>, number: u64) -> Option<Looked> {
        let (core, name) = (&self.core, &self.name);
        loop {
            let next = self.begun.lock().next;
            if next <= core.context.env.now() {
                break;
            }
            tokio::select! {
                biased;
                () = core.context.closing.cancelled() => return None,
                () = self.hurries.notified() => {}
                () = core.context.env.sleep_until(next) => {}
            }
        }
        let is_new = {
            let mut begun = self.begun.lock();
            (begun.number, begun.next) =
                (number, core.context.env.now() + core.context.env.timing().op_timeout / 4);
            begun.wanted == number
        };
        let inspected = answered(core, core.context.backend.inspect_for_watch(name, is_new));
        let looked = tokio::select! {
            biased;
            state = inspected => with_own(core, name, state),
            () = core.context.closing.cancelled() => return None,
        };
        if core.context.is_closed() {
            return None;
        }
        if looked.is_err() {
            // The read that a new stream requires is still to come.
            self.begun.lock().wanted = number + 1;
        }
        let looked = (number, Arc::new(looked));
        *self.latest.lock() = Some(looked.clone());
        Some(looked)
    }
}

fn same(shown: &[Holder], now: &[Holder]) -> bool {
    shown.len() == now.len() && shown.iter().zip(now).all(|(shown, now)| shown.is_same_grant(now))
}
