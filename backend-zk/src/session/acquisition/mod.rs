//! Carries out what a contender asks for, and gives the caller the grant.
//!
//! It runs as a task of its own: a caller who leaves at any moment is one more thing that happens, and
//! what the contender made is removed whether anybody waits for that or not.

use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join, join_all};
use leasehold_core::backend::{AcquireRequest, Grant, Holder, StoreEvent};
use leasehold_core::{Error, ErrorKind, LostReason, OwnerId};

use super::Session;
use crate::connection::Answered;
use crate::error::Unanswered;
use crate::keys::{Listing, Node, Note};
use crate::protocol::{Answer, Ask, Contender, End, Failure, Happening, Mine, Owned, Pause, Step};

/// How an acquisition in one session ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Granted(Offer),
    /// Somebody else has it.
    Busy(Option<Holder>),
    /// The caller has left, and nothing is left of it.
    Left,
    /// The server refused.
    Refused(Error),
    /// The session or the entry is over: start again, as somebody else.
    Again,
}

/// A grant on its way to the caller; given back if nobody takes it.
#[derive(Debug)]
pub(crate) struct Offer {
    session: Arc<Session>,
    granted: Option<(Grant, Mine)>,
}

impl Offer {
    pub(crate) fn take(mut self) -> Grant {
        let (grant, _) = self.granted.take().expect("an offer is taken once");
        grant
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if let Some((grant, mine)) = self.granted.take() {
            let session = Arc::clone(&self.session);
            self.session.env.spawn(async move { give_back(&session, &grant, mine).await });
        }
    }
}

impl Session {
    /// Waits for the lock as `owner`, or tries once, until `abandoned` ends.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: &AcquireRequest,
        owner: OwnerId,
        waits: bool,
        abandoned: &mut (impl Future<Output = ()> + Unpin + Send),
    ) -> Outcome {
        if !self.freshened(abandoned).await {
            return Outcome::Again;
        }
        let (contender, first) =
            if waits { Contender::waiting(owner, self.id) } else { Contender::trying(owner, self.id) };
        let mut acquisition = Acquisition::new(self, request, owner);
        match acquisition.run(contender, first, abandoned).await {
            End::Held(mine) => {
                if self.freshened(abandoned).await {
                    let own = acquisition.watches.own.take();
                    return self.granted(request, owner, mine, own);
                }
                let (contender, first) = Contender::leaving(owner, self.id, mine);
                acquisition.run(contender, first, &mut std::future::pending()).await;
                Outcome::Again
            }
            End::Busy(first) => Outcome::Busy(acquisition.holder(&first).await),
            End::Left => Outcome::Left,
            End::Refused => match acquisition.refusal.take() {
                Some(refusal) => Outcome::Refused(refusal),
                None => Outcome::Again,
            },
            End::WornOut(child) => Outcome::Refused(worn_out(&acquisition.path(&child))),
            End::Lost => Outcome::Again,
            End::SessionOver => {
                // What cannot be cleaned up any other way ends with the session.
                self.end(LostReason::SessionLost);
                Outcome::Again
            }
        }
    }

    /// Watches the nodes of holds that have stood for a while, each once, so that one which somebody
    /// deletes is told. Short holds cost no such request; those that waited have the watch already.
    pub(super) fn watch_what_stands(self: &Arc<Self>) {
        let standing = self.standing();
        if standing.is_empty() {
            return;
        }
        let session = Arc::clone(self);
        self.env.spawn(async move {
            for some in standing.chunks(AT_ONCE) {
                join_all(some.iter().map(|(owner, path)| session.watch_hold(*owner, path))).await;
            }
        });
    }

    async fn watch_hold(self: &Arc<Self>, owner: OwnerId, path: &str) {
        match self.connection.watch(path).await {
            Ok((_, _, watch)) => {
                self.env.spawn(watch_the_hold(Arc::clone(self), owner, watch.fired().boxed()));
            }
            Err(gone) if gone.is_absent() => self.lost_its_node(owner),
            Err(_) => self.unwatched(owner),
        }
    }

    fn granted(
        self: &Arc<Self>,
        request: &AcquireRequest,
        owner: OwnerId,
        mine: Mine,
        own: Option<BoxFuture<'static, Happening>>,
    ) -> Outcome {
        let offer = |grant| Offer { session: Arc::clone(self), granted: Some((grant, mine.clone())) };
        match self.hold(request, owner, mine.clone(), own.is_some()) {
            Ok(grant) => {
                if let Some(own) = own {
                    self.env.spawn(watch_the_hold(Arc::clone(self), owner, own));
                }
                Outcome::Granted(offer(grant))
            }
            Err(error) => {
                let grant = Grant::new(request.name.clone(), owner, self.lease(), 0);
                drop(offer(grant));
                Outcome::Refused(error)
            }
        }
    }

    /// Waits for a session's length, and for up to a fifth more: many may have begun to at the same time.
    async fn overdue(&self) {
        let fifth = self.timeout() / 5;
        self.env.sleep(4 * fifth + self.env.jittered(2 * fifth)).await;
    }

    /// Waits until the session has enough left to be worth a grant; false if it ends instead, or
    /// nobody waits for that.
    async fn freshened(&self, abandoned: &mut (impl Future<Output = ()> + Unpin + Send)) -> bool {
        while !self.is_fresh(self.env.now()) {
            tokio::select! {
                biased;
                () = self.connection.over() => return false,
                () = &mut *abandoned => return false,
                () = self.env.sleep(self.timeout() / 48) => {}
            }
        }
        !self.connection.is_over()
    }
}

/// Tells of a hold whose node somebody else deletes.
async fn watch_the_hold(session: Arc<Session>, owner: OwnerId, own: BoxFuture<'static, Happening>) {
    tokio::select! {
        biased;
        () = session.connection.over() => {}
        happening = own => match happening {
            Happening::Ended => session.lost_its_node(owner),
            _ => session.unwatched(owner),
        },
    }
}

/// Removes the node of a grant that nobody wants.
async fn give_back(session: &Arc<Session>, grant: &Grant, mine: Mine) {
    session.holds.lock().ending(grant.owner, &grant.name);
    let request = AcquireRequest::new(grant.name.clone(), grant.owner, session.timeout());
    let (contender, first) = Contender::leaving(grant.owner, session.id, mine);
    let mut acquisition = Acquisition::new(session, &request, grant.owner);
    acquisition.run(contender, first, &mut std::future::pending()).await;
    session.holds.lock().ended(grant.owner);
}

/// A contender and the means to carry it out.
struct Acquisition<'a> {
    session: &'a Session,
    request: &'a AcquireRequest,
    owner: OwnerId,
    directory: String,
    watches: Watches,
    refusal: Option<Error>,
}

/// What is watched: the contender ahead, and our own node.
#[derive(Default)]
struct Watches {
    ahead: Option<BoxFuture<'static, Happening>>,
    own: Option<BoxFuture<'static, Happening>>,
}

impl Watches {
    /// What happens next to either.
    async fn fired(&mut self) -> Happening {
        let removed = |own| if own == Happening::Ended { Happening::Removed } else { own };
        tokio::select! {
            biased;
            own = fired(&mut self.own) => removed(own),
            // RACE: both may have fired since our own was looked at, and then that was the first.
            ahead = fired(&mut self.ahead) => fired(&mut self.own).now_or_never().map_or(ahead, removed),
        }
    }
}

impl<'a> Acquisition<'a> {
    fn new(session: &'a Session, request: &'a AcquireRequest, owner: OwnerId) -> Self {
        let directory = session.namespace.directory(&request.name);
        Self { session, request, owner, directory, watches: Watches::default(), refusal: None }
    }

    async fn run(
        &mut self,
        mut contender: Contender,
        mut step: Step,
        abandoned: &mut (impl Future<Output = ()> + Unpin + Send),
    ) -> End {
        let mut reconnects = self.session.reconnects();
        let mut left = false;
        loop {
            step = match step {
                Step::End(end) => return end,
                Step::Ask(ask) => {
                    if !matches!(ask, Ask::Confirm(_)) {
                        self.watches = Watches::default();
                    }
                    let mut carried_out = std::pin::pin!(self.carried_out(ask));
                    loop {
                        tokio::select! {
                            biased;
                            answer = &mut carried_out => break contender.answered(answer),
                            () = &mut *abandoned, if !left => {
                                left = true;
                                contender.happens(Happening::Abandoned);
                            }
                            Ok(()) = reconnects.changed() => {
                                contender.happens(Happening::Reconnected);
                            }
                        }
                    }
                }
                Step::Wait => {
                    let happening = tokio::select! {
                        biased;
                        () = self.session.connection.over() => return End::SessionOver,
                        fired = self.watches.fired() => match fired {
                            // Watches that were set again may fire in any order.
                            Happening::Removed => fired,
                            _ if self.session.is_trusted() => fired,
                            _ => Happening::Reconnected,
                        },
                        () = &mut *abandoned, if !left => {
                            left = true;
                            Happening::Abandoned
                        }
                        Ok(()) = reconnects.changed() => Happening::Reconnected,
                        () = async { self.session.overdue().await } => Happening::Overdue,
                    };
                    contender.happens(happening)
                }
            };
        }
    }

    async fn carried_out(&mut self, ask: Ask) -> Answer {
        let connection = &self.session.connection;
        match ask {
            Ask::Enter => self.entered().await,
            Ask::MakeDirectory => {
                let made = connection.make_directory(&self.directory).await;
                Answer::Done(self.noted(made, "make the lock's directory"))
            }
            Ask::Barrier => {
                let written = self.session.write_own_node().await;
                Answer::Done(written.map_err(|unanswered| unanswered.failure()))
            }
            Ask::List => {
                let listed = connection.list(&self.directory).await;
                Answer::Listed(self.listed(listed))
            }
            Ask::Look(node) => {
                let stat = connection.stat(&self.path(&node.name())).await;
                Answer::Looked(match stat {
                    Ok(Some(stat)) => Ok(Owned { session: stat.ephemeral_owner, czxid: stat.czxid }),
                    Ok(None) => Err(Failure::Absent),
                    Err(unanswered) => Err(unanswered.failure()),
                })
            }
            Ask::Watch { predecessor, own } => self.armed(&predecessor, own).await,
            Ask::Delete(node) => {
                let deleted = self.session.remove(&self.path(&node.name())).await;
                Answer::Done(self.noted(deleted, "delete the lock's node"))
            }
            Ask::RemoveDirectory => Answer::Done(connection.remove_directory(&self.directory).await),
            Ask::Confirm(contender) => {
                let there = connection.confirm(&self.path(&contender)).await;
                Answer::Done(there.map_err(|unanswered| unanswered.failure()))
            }
            Ask::Rest(pause) => {
                let bound = self.session.env.timing().op_timeout;
                let span = match pause {
                    Pause::Brief => bound / 16,
                    Pause::Request => bound,
                };
                tokio::select! {
                    biased;
                    () = connection.over() => Answer::Done(Err(Failure::SessionOver)),
                    () = self.session.env.sleep(span) => Answer::Done(Ok(())),
                }
            }
        }
    }

    async fn entered(&mut self) -> Answer {
        let (ttl, label) = (self.session.timeout(), &self.request.label);
        let note = Note::encoded(ttl, label, self.request.metadata.as_deref());
        let (made, listed) = self.session.connection.enter(&self.directory, self.owner, &note).await;
        let made = match made {
            // Another session's node is no place of ours.
            Ok((_, stat)) if !stat.is_invalid() && stat.ephemeral_owner != self.session.id => {
                self.session.end(LostReason::SessionLost);
                Err(Failure::SessionOver)
            }
            // Some servers leave the stat out; the node is looked for then.
            Ok((_, stat)) if stat.is_invalid() => Err(Failure::Unknown),
            Ok((node, stat)) => Ok(Mine { node, czxid: stat.czxid }),
            Err(unanswered) => self.noted(Err(unanswered), "create the lock's node"),
        };
        Answer::Entered { made, listed: self.listed(listed) }
    }

    async fn armed(&mut self, predecessor: &str, own: Option<Node>) -> Answer {
        let connection = &self.session.connection;
        let (ahead_path, own_path) = (self.path(predecessor), own.map(|node| self.path(&node.name())));
        let (ahead, own) = join(connection.watch(&ahead_path), async {
            match &own_path {
                Some(path) => connection.watch(path).await.map(Some),
                None => Ok(None),
            }
        })
        .await;
        let ahead = ahead.map(|(data, stat, watch)| {
            self.watches.ahead = Some(watch.fired().boxed());
            if let Ok(counter) = self.session.counter(stat.czxid) {
                let holder = Note::decoded(&data).into_holder(counter, stat.ctime);
                let name = self.request.name.clone();
                self.session.events.tell(StoreEvent::Queued { name, holder });
            }
        });
        let own = own.map(|own| self.watches.own = own.map(|(_, _, watch)| watch.fired().boxed()));
        let what = "watch the contender ahead";
        Answer::Watched { ahead: self.noted(ahead, what), own: self.noted(own, what) }
    }

    /// Who contends; the caller hears of it when there is one of another kind.
    fn listed(&mut self, listed: Answered<Listing>) -> Result<Listing, Failure> {
        if let Some(stranger) = listed.as_ref().ok().and_then(Listing::stranger)
            && self.session.strangers.lock().insert(self.request.name.clone())
        {
            let warning = format!(
                "{stranger:?} in the directory of the lock {:?} is a contender of another kind: we wait for it, \
                 but it may not wait for us",
                self.request.name.as_str()
            );
            self.session.events.tell(StoreEvent::Warning(warning.into()));
        }
        self.noted(listed, "list the contenders")
    }

    /// Whom the store names as the one ahead.
    async fn holder(&mut self, first: &str) -> Option<Holder> {
        let (data, stat) = self.session.connection.read(&self.path(first)).await.ok()?;
        let counter = self.session.counter(stat.czxid).ok()?;
        Some(Note::decoded(&data).into_holder(counter, stat.ctime))
    }

    /// Keeps what the server refused for the caller.
    fn noted<T>(&mut self, answered: Answered<T>, what: &str) -> Result<T, Failure> {
        answered.map_err(|unanswered: Unanswered| {
            let failure = unanswered.failure();
            if matches!(failure, Failure::Refused | Failure::Absent) {
                self.refusal = Some(unanswered.into_error(what));
            }
            failure
        })
    }

    fn path(&self, child: &str) -> String {
        format!("{}/{child}", self.directory)
    }
}

/// The error of a lock whose directory has a `contender` with a number that is too large.
fn worn_out(contender: &str) -> Error {
    let message = format!(
        "{contender:?} has a number near the largest that ZooKeeper gives out, 2147483647: end what keeps nodes in \
         that directory, and delete it, so that it counts anew"
    );
    Error::not_applied(ErrorKind::Protocol, message)
}

async fn fired(watch: &mut Option<BoxFuture<'static, Happening>>) -> Happening {
    match watch {
        Some(watch) => watch.await,
        None => std::future::pending().await,
    }
}

/// How many nodes are watched in one flight.
const AT_ONCE: usize = 64;

#[cfg(test)]
mod tests;
