//! Carries out what a contender asks for, until the lock is granted or its own node is gone.
//!
//! A caller who leaves at any moment is one more thing that happens: what the contender made is removed
//! whether anybody waits for that or not.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, OptionFuture, join};
use leasehold_core::backend::{AcquireRequest, Attempt, Holder, StoreEvent};
use leasehold_core::{Error, ErrorKind, LostReason, Result};
use tokio_util::sync::CancellationToken;
use zookeeper_client::{Error as ZkError, Stat};

use super::Session;
use crate::error::{Answered, Explain, Unanswered};
use crate::keys::{Listing, Node, Note};
use crate::protocol::{Answer, Ask, Contender, End, Failure, Happening, Mine, Patience, Pause, Said, Step};

impl Session {
    /// Waits for the lock, or tries once, until its caller has `left`.
    ///
    /// # Errors
    ///
    /// `Lost` when the session or the entry is over before, and the clean-up is owed; it is for the caller to
    /// ask again.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: &AcquireRequest,
        patience: Patience,
        left: &CancellationToken,
    ) -> Result<Attempt> {
        let (contender, first) = Contender::new(request.owner, self.id, patience);
        let mut acquisition = Acquisition::new(self, request);
        match acquisition.run(contender, first, left).await {
            End::Held(mine) => {
                let own = acquisition.watches.own.take();
                self.granted(request, mine, own, left).await
            }
            End::Busy(first) => Ok(Attempt::Held { holder: acquisition.holder(&first).await }),
            End::WornOut(child) => Err(worn_out(&acquisition.path(&child))),
            End::Refused => Err(acquisition.refusal.unwrap_or_else(|| self.lost())),
            End::SessionOver => Err(self.lost()),
            End::Lost | End::Left => Err(Error::lost(LostReason::Gone)),
        }
    }

    async fn granted(
        self: &Arc<Self>,
        request: &AcquireRequest,
        mine: Mine,
        own: Option<BoxFuture<'static, Happening>>,
        left: &CancellationToken,
    ) -> Result<Attempt> {
        let is_fresh = tokio::select! {
            biased;
            () = left.cancelled() => false,
            is_fresh = self.freshened() => is_fresh,
        };
        let held = if is_fresh { self.hold(request, mine.clone(), own.is_some()) } else { Err(self.lost()) };
        match held {
            Ok(grant) => {
                if let Some(own) = own {
                    self.watch_over(request.owner, own);
                }
                Ok(Attempt::Granted(grant))
            }
            Err(error) => {
                self.give_back(request.clone(), mine);
                Err(error)
            }
        }
    }

    /// Removes the node of a grant that nobody can use, in the background.
    fn give_back(self: &Arc<Self>, request: AcquireRequest, mine: Mine) {
        let session = Arc::clone(self);
        self.site.env.spawn(async move {
            let (contender, first) = Contender::leaving(request.owner, session.id, mine);
            Acquisition::new(&session, &request).run(contender, first, &CancellationToken::new()).await;
        });
    }

    /// Waits for a session's length, and for up to a fifth more: many may have begun to at the same time.
    async fn overdue(&self) {
        let fifth = self.timeout() / 5;
        self.site.env.sleep(4 * fifth + self.site.env.jittered(2 * fifth)).await;
    }

    /// Whoever made a node, as it is shown.
    fn shown(&self, (data, stat): &(Vec<u8>, Stat)) -> Result<Holder> {
        Ok(Note::decoded(data).into_holder(self.counter(stat.czxid)?, stat.ctime))
    }
}

/// A contender and the means to carry it out.
struct Acquisition<'a> {
    session: &'a Session,
    request: &'a AcquireRequest,
    directory: String,
    watches: Watches,
    /// What the server refused last.
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
    fn new(session: &'a Session, request: &'a AcquireRequest) -> Self {
        let directory = session.site.namespace.directory(&request.name);
        Self { session, request, directory, watches: Watches::default(), refusal: None }
    }

    async fn run(&mut self, mut contender: Contender, mut step: Step, left: &CancellationToken) -> End {
        let mut reconnects = self.session.reconnects.subscribe();
        let mut abandoned = std::pin::pin!(left.cancelled().fuse());
        loop {
            let (pause, ask) = match step {
                Step::Ask(ask) => (None, ask),
                Step::Rest(pause, ask) => (Some(pause), ask),
                Step::End(end) => {
                    // What cannot be cleaned up any other way ends with the session.
                    if end == End::SessionOver {
                        self.session.end(LostReason::SessionLost);
                    }
                    return end;
                }
                Step::Wait => {
                    step = tokio::select! {
                        biased;
                        () = self.session.connection.over.cancelled() => contender.answered(Err(Failure::SessionOver)),
                        fired = self.watches.fired() => contender.happens(match fired {
                            // Watches that were set again may fire in any order.
                            Happening::Ended | Happening::Changed if !self.session.is_trusted() => {
                                Happening::Reconnected
                            }
                            _ => fired,
                        }),
                        () = &mut abandoned => contender.happens(Happening::Abandoned),
                        Ok(()) = reconnects.changed() => contender.happens(Happening::Reconnected),
                        () = async { self.session.overdue().await } => contender.happens(Happening::Overdue),
                    };
                    continue;
                }
            };
            let mut carried_out = std::pin::pin!(self.carried_out(pause, ask));
            step = loop {
                tokio::select! {
                    biased;
                    answer = &mut carried_out => break contender.answered(answer),
                    () = &mut abandoned => drop(contender.happens(Happening::Abandoned)),
                    Ok(()) = reconnects.changed() => drop(contender.happens(Happening::Reconnected)),
                }
            };
        }
    }

    async fn carried_out(&mut self, pause: Option<Pause>, ask: Ask) -> Answer {
        if !matches!(ask, Ask::Confirm(_)) {
            self.watches = Watches::default();
        }
        let (session, connection) = (self.session, &self.session.connection);
        let bound = session.site.env.timing().op_timeout;
        let span = pause.map(|pause| if pause == Pause::Brief { bound / 16 } else { bound });
        if let Some(span) = span {
            tokio::select! {
                biased;
                () = connection.over.cancelled() => return Err(Failure::SessionOver),
                () = session.site.env.sleep(span) => {}
            }
        }
        let done = |()| Said::Done;
        let (what, answered) = match ask {
            Ask::Enter => ("create the lock's node", self.entered().await),
            Ask::MakeDirectory => {
                ("make the lock's directory", connection.make_directory(&self.directory).await.map(done))
            }
            Ask::Barrier => ("write the session's node", session.write_own_node().await.map(done)),
            Ask::List => ("list the contenders", connection.list(&self.directory).await.map(Said::Listed)),
            Ask::Look(node) => ("look at the lock's node", self.owned(&node).await),
            Ask::Watch { predecessor, own } => {
                ("watch the contender ahead", self.armed(&predecessor, own).await)
            }
            Ask::Delete(node) => {
                ("delete the lock's node", session.remove(&self.path(&node.name())).await.map(done))
            }
            Ask::RemoveDirectory => {
                ("remove the lock's directory", connection.remove_directory(&self.directory).await.map(done))
            }
            Ask::Confirm(contender) => {
                ("look at the contender ahead", connection.confirm(&self.path(&contender)).await.map(done))
            }
        };
        if let Ok(Said::Made(_, Some(listing)) | Said::Listed(listing)) = &answered {
            self.warn_of_strangers(listing);
        }
        answered.map_err(|unanswered| {
            let failure = unanswered.failure();
            // What is not there may be made yet; a refusal stays one.
            if failure == Failure::Refused || (failure == Failure::Absent && self.refusal.is_none()) {
                self.refusal = Some(unanswered.into_error(what));
            }
            failure
        })
    }

    async fn entered(&mut self) -> Answered<Said> {
        let (ttl, label) = (self.session.timeout(), &self.request.label);
        let note = Note::encoded(ttl, label, self.request.metadata.as_deref());
        let entered = self.session.connection.enter(&self.directory, self.request.owner, &note).await;
        let (node, stat, listed) = entered?;
        if stat.is_invalid() {
            // Some servers leave it out; the node is looked for then.
            return Err(Unanswered::Refused(ZkError::UnexpectedError("a node without its stat".to_owned())));
        }
        if stat.ephemeral_owner != self.session.id {
            // Another session's node is no place of ours.
            self.session.end(LostReason::SessionLost);
            return Err(Unanswered::SessionOver);
        }
        Ok(Said::Made(Mine { node, czxid: stat.czxid }, listed))
    }

    async fn owned(&mut self, node: &Node) -> Answered<Said> {
        let stat = self.session.connection.stat(&self.path(&node.name())).await?;
        let stat = stat.ok_or(Unanswered::ABSENT)?;
        Ok(Said::Owned { session: stat.ephemeral_owner, czxid: stat.czxid })
    }

    async fn armed(&mut self, predecessor: &str, own: Option<Node>) -> Answered<Said> {
        let connection = &self.session.connection;
        let (ahead, own) = (self.path(predecessor), own.map(|node| self.path(&node.name())));
        let own = OptionFuture::from(own.as_deref().map(|own| connection.watch(own)));
        let (ahead, own) = join(connection.watch(&ahead), own).await;
        self.watches.own = own.transpose()?.map(|(_, watch)| watch.fired().boxed());
        let Some((read, watch)) = ahead.if_there()? else {
            return Ok(Said::NobodyAhead);
        };
        self.watches.ahead = Some(watch.fired().boxed());
        if let Ok(holder) = self.session.shown(&read) {
            let name = self.request.name.clone();
            self.session.site.events.tell(StoreEvent::Queued { name, holder });
        }
        Ok(Said::Done)
    }

    /// The caller hears of it when there is a contender of another kind.
    fn warn_of_strangers(&self, listing: &Listing) {
        if let Some(stranger) = listing.stranger()
            && self.session.strangers.lock().insert(self.request.name.clone())
        {
            let warning = format!(
                "{stranger:?} in the directory of the lock {:?} is a contender of another kind: we wait for it, \
                 but it may not wait for us",
                self.request.name.as_str()
            );
            self.session.site.events.tell(StoreEvent::Warning(warning.into()));
        }
    }

    /// Whom the store names as the one ahead.
    async fn holder(&mut self, first: &str) -> Option<Holder> {
        let read = self.session.connection.read(&self.path(first)).await.ok()?;
        self.session.shown(&read).ok()
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

#[cfg(test)]
mod tests;
