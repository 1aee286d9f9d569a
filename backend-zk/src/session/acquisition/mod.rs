//! Carries out the requests of a contender, until the lock is granted or its own node is gone.
//!
//! A caller may leave at any moment. That is one more event: the contender's node is removed whether a caller waits for
//! that or not.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Fuse, FusedFuture, join};
use leasehold_core::backend::{AcquireRequest, Attempt, Holder, StoreEvent};
use leasehold_core::clock::Moment;
use leasehold_core::{Error, ErrorKind, LockName, LostReason, Mode, Result};
use tokio_util::sync::CancellationToken;
use zookeeper_client::Error as ZkError;

use super::Session;
use crate::connection::{Fired, Made};
use crate::error::{Answered, Explain, Unanswered};
use crate::keys::{self, Listing, Next, Node, Note};
use crate::protocol::{Answer, Ask, Contender, End, Failure, Happening, Mine, Patience, Pause, Said, Step};

impl Session {
    /// Waits for the lock, or tries once, until its caller has `left`.
    ///
    /// # Errors
    ///
    /// `Lost` when the session or the entry ends before, and the clean-up continues; the caller may retry.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: &AcquireRequest,
        patience: Patience,
        left: &CancellationToken,
    ) -> Result<Attempt> {
        // A sharer lists: it has no number to count on, and uses up the number of the last exclusive hold.
        let next = self.next_number(&request.name, patience).filter(|_| request.mode == Mode::EXCLUSIVE);
        let (contender, first) = Contender::new(patience, request.mode, next);
        let mut acquisition = Acquisition::new(self, request);
        let mine = match acquisition.run(contender, first, left).await {
            End::Held(mine) => mine,
            End::Busy(first) => {
                let holder = match acquisition.holder.take() {
                    Some(read) => read,
                    None => self.holder_of(&request.name, &first).await,
                };
                return Ok(Attempt::Held { holder });
            }
            End::WornOut(child) => return Err(worn_out(&acquisition.path(&child))),
            End::Refused => return Err(acquisition.refusal.unwrap_or_else(|| self.lost())),
            End::SessionOver => return Err(self.lost()),
            End::Lost | End::Left => return Err(Error::lost(LostReason::Gone)),
        };
        let is_fresh = tokio::select! {
            biased;
            is_fresh = self.freshened() => is_fresh && !left.is_cancelled(),
            () = left.cancelled() => false,
        };
        let (own, passes) = (acquisition.watches.own, acquisition.has_waited);
        let granted = if is_fresh { self.hold(request, &mine, own, passes) } else { Err(self.lost()) };
        if granted.is_err() {
            self.give_back(request.clone(), mine);
        } else if acquisition.is_asked {
            self.asked_in_curators_word(request.owner);
        }
        let is_listed = patience == Patience::Tries && request.mode == Mode::EXCLUSIVE && granted.is_ok();
        if is_listed && self.untouched.lock().is_contended(&request.name) {
            self.list_during_hold(request.owner, 4 * acquisition.took);
        }
        granted.map(Attempt::Granted)
    }

    /// Removes the node of a grant that no caller takes, in the background.
    fn give_back(self: &Arc<Self>, request: AcquireRequest, mine: Mine) {
        let session = Arc::clone(self);
        self.site.env.spawn(async move {
            let (contender, first) = Contender::leaving(mine);
            Acquisition::new(&session, &request).run(contender, first, &CancellationToken::new()).await;
        });
    }

    /// The holder, by the name of its node.
    async fn holder_of(&self, name: &LockName, first: &str) -> Option<Holder> {
        let seen = self.seen.of(name);
        if let Some(holding) = seen.find(first, None) {
            return self.holder(holding.note.clone(), &holding.stat).ok();
        }
        let directory = self.site.namespace.directory(name);
        let holding = self.read_holding(&directory, first.to_owned()).await.ok()??;
        let holder = self.holder(holding.note.clone(), &holding.stat).ok();
        self.seen.keep_tried(name, holding);
        holder
    }

    /// Waits for a session's length, and for up to a fifth more, because many may have begun at the same time.
    async fn overdue(&self) {
        let fifth = self.timeout() / 5;
        self.site.env.sleep(4 * fifth + self.site.env.jittered(2 * fifth)).await;
    }
}

/// A contender and the means to carry it out.
struct Acquisition<'a> {
    session: &'a Session,
    request: &'a AcquireRequest,
    directory: String,
    watches: Watches,
    /// When our own node has stood long enough to be watched.
    stands: Moment,
    /// How often the connection had changed before our own node was made.
    changes: u64,
    /// A listing has shown a blocker.
    has_waited: bool,
    /// Curator's `Revoker` has written our node while it waited.
    is_asked: bool,
    /// How long the last request took.
    took: Duration,
    /// The holder that a losing try has read, if that was still there.
    holder: Option<Option<Holder>>,
    /// The last refusal of the server.
    refusal: Option<Error>,
}

/// The watches on the contender ahead and on our own node.
struct Watches {
    ahead: Fired,
    /// How often the connection had changed before the contender ahead was watched.
    changes: u64,
    own: Fired,
}

impl Watches {
    fn none() -> Self {
        Self { ahead: Fuse::terminated(), changes: 0, own: Fuse::terminated() }
    }

    /// The next happening of either.
    async fn fired(&mut self) -> Happening {
        tokio::select! {
            biased;
            own = &mut self.own => if own == Happening::Ended { Happening::Removed } else { Happening::Stands },
            // RACE: both may have fired since our own was polled, and then our own was the first.
            ahead = &mut self.ahead => match (&mut self.own).now_or_never() {
                Some(Happening::Ended) => Happening::Removed,
                // A later end of our node is not reported.
                Some(_) => Happening::Reconnected,
                None => ahead,
            },
        }
    }
}

impl<'a> Acquisition<'a> {
    fn new(session: &'a Session, request: &'a AcquireRequest) -> Self {
        let directory = session.site.namespace.directory(&request.name);
        Self {
            session,
            request,
            directory,
            watches: Watches::none(),
            stands: session.site.env.now(),
            changes: 0,
            has_waited: false,
            is_asked: false,
            took: Duration::ZERO,
            holder: None,
            refusal: None,
        }
    }

    async fn run(&mut self, mut contender: Contender, mut step: Step, left: &CancellationToken) -> End {
        let (session, env) = (self.session, &self.session.site.env);
        let mut reconnects = session.looked_into.subscribe();
        let mut abandoned = std::pin::pin!(left.cancelled().fuse());
        loop {
            let (pause, ask) = match step {
                Step::Ask(ask) => (None, ask),
                Step::Rest(pause, ask) => (Some(pause), ask),
                Step::End(end) => {
                    // A node that cannot be removed otherwise ends with the session.
                    if end == End::SessionOver {
                        session.end(LostReason::SessionLost);
                    }
                    return end;
                }
                Step::Wait => {
                    step = tokio::select! {
                        biased;
                        () = session.connection.over.cancelled() => contender.answered(Err(Failure::SessionOver)),
                        // Before the watches, which may be a grant.
                        () = async { env.sleep(self.stands.since(env.now())).await }, if self.watches.own.is_terminated() => {
                            self.stands = env.now() + session.timeout() / 10;
                            contender.happens(Happening::Stands)
                        }
                        fired = self.watches.fired() => {
                            if fired == Happening::Reconnected {
                                self.watch_own_again();
                            }
                            contender.happens(match fired {
                                // Watches that were set again may fire in any order, also before a check that has
                                // ended by now.
                                Happening::Ended | Happening::Changed
                                    if session.checked_changes() != Some(self.watches.changes) =>
                                {
                                    Happening::Reconnected
                                }
                                _ => fired,
                            })
                        }
                        () = &mut abandoned => contender.happens(Happening::Abandoned),
                        Ok(()) = reconnects.changed() => contender.happens(Happening::Reconnected),
                        () = async { session.overdue().await } => contender.happens(Happening::Overdue),
                    };
                    continue;
                }
            };
            let mut carried_out = std::pin::pin!(self.carried_out(pause, ask));
            let answer = if contender.has_made_nothing() {
                left.run_until_cancelled(&mut carried_out).await
            } else {
                Some((&mut carried_out).await)
            };
            // What has happened meanwhile counts with the answer, so it need not wake this task.
            if reconnects.has_changed().is_ok_and(|has| has) {
                reconnects.mark_unchanged();
                drop(contender.happens(Happening::Reconnected));
            }
            let abandoned = left.is_cancelled().then(|| contender.happens(Happening::Abandoned));
            step = match (abandoned, answer) {
                (Some(end @ Step::End(_)), _) => end,
                (_, Some(answer)) => contender.answered(answer),
                (_, None) => Step::End(End::Left),
            };
        }
    }

    /// Sends a request, and repeats it where that is safe, until there is an answer.
    async fn carried_out(&mut self, mut pause: Option<Pause>, ask: Ask) -> Answer {
        let (connection, env) = (&self.session.connection, &self.session.site.env);
        let bound = env.timing().op_timeout;
        if matches!(ask, Ask::Enter | Ask::Return(_)) {
            // An earlier refusal is not the cause of this one.
            self.refusal = None;
        }
        loop {
            if let Some(pause) = pause {
                let rest = env.sleep(if pause == Pause::Brief { bound / 16 } else { bound });
                connection.over.run_until_cancelled(rest).await.ok_or(Failure::SessionOver)?;
            }
            let sent = env.now();
            let (what, answered) = self.asked(&ask).await;
            self.took = env.now().since(sent);
            let unanswered = match answered {
                Ok(said) => return Ok(said),
                Err(unanswered) => unanswered,
            };
            let failure = unanswered.failure();
            // A missing node may be made yet; a refusal stays.
            if failure == Failure::Refused || (failure == Failure::Absent && self.refusal.is_none()) {
                self.refusal = Some(unanswered.into_error(what));
            }
            if failure != Failure::Unknown || !ask.is_asked_again() {
                return Err(failure);
            }
            pause = Some(Pause::Brief);
        }
    }

    async fn asked(&mut self, ask: &Ask) -> (&'static str, Answered<Said>) {
        let (session, connection) = (self.session, &self.session.connection);
        let done = |()| Said::Done;
        match ask {
            Ask::Enter => ("create the lock's node", self.entered().await),
            Ask::Return(next) => ("create the lock's node", self.returned(*next).await),
            Ask::Search => ("find the lock's node", self.searched().await),
            Ask::List => {
                let listed = connection.list(&self.directory).await;
                ("list the contenders", listed.map(|listing| Said::Listed(self.listed(listing))))
            }
            Ask::Watch(ahead) => ("watch the contender ahead", self.armed(ahead).await),
            Ask::WatchOwn(node) => ("watch the lock's node", self.covered(node).await),
            Ask::Confirm(contender) => {
                ("check the contender ahead", connection.confirm(&self.path(contender)).await.map(done))
            }
            Ask::Delete(node) => {
                ("delete the lock's node", session.remove(&node.path(&self.directory)).await.map(done))
            }
            Ask::GiveWay(node, first) => {
                let path = node.path(&self.directory);
                let (deleted, holder) =
                    join(session.remove(&path), session.holder_of(&self.request.name, first)).await;
                self.holder = Some(holder);
                ("delete the lock's node", deleted.map(done))
            }
            Ask::RemoveDirectory => {
                ("remove the lock's directory", connection.remove_directory(&self.directory).await.map(done))
            }
        }
    }

    async fn entered(&mut self) -> Answered<Said> {
        let (stem, note) = self.begun();
        let (made, listed) = self.session.connection.enter(&self.directory, stem, note).await?;
        Ok(Said::Made(self.mine(made)?, listed.map(|listing| self.listed(listing))))
    }

    async fn returned(&mut self, next: Next) -> Answered<Said> {
        let (stem, note) = self.begun();
        let (session, name) = (self.session, &self.request.name);
        let make = session.connection.make_contender(stem, note);
        let made = if session.is_to_be_watched(name) {
            // Polled in this order, so sent in this order.
            join(session.watch_directory(name), make).await.1
        } else {
            make.await
        };
        let mine = self.mine(made?)?;
        let is_back = session.is_in_same(name, next, mine.node.sequence());
        Ok(if is_back { Said::Back(mine) } else { Said::Made(mine, None) })
    }

    /// Begins with another node: its path without the number, and its data.
    fn begun(&mut self) -> (String, Vec<u8>) {
        let (session, request) = (self.session, self.request);
        // The watches, and a request for our node, are of an earlier node.
        (self.watches, self.is_asked) = (Watches::none(), false);
        self.stands = session.site.env.now() + session.timeout() / 10;
        self.changes = session.changes();
        let passes = session.connection.is_private() && request.mode == Mode::EXCLUSIVE;
        let passes = passes.then_some(request.owner);
        let note = Note::encoded(session.timeout(), &request.label, request.metadata.as_deref(), passes);
        (keys::stem_in(&self.directory, request.owner, request.mode), note)
    }

    /// Our node, as it was made.
    fn mine(&self, (number, stat): Made) -> Answered<Mine> {
        if stat.is_invalid() {
            // Some servers leave it out; then the contender searches for its node.
            return Err(Unanswered::Refused(ZkError::UnexpectedError("a node without its stat".to_owned())));
        }
        if stat.ephemeral_owner != self.session.id {
            // The node belongs to another session.
            self.session.end(LostReason::SessionLost);
            return Err(Unanswered::SessionOver);
        }
        Ok(Mine { node: Node::new(self.request.owner, self.request.mode, number), czxid: stat.czxid })
    }

    async fn searched(&mut self) -> Answered<Said> {
        self.session.write_own_node().await?;
        let connection = &self.session.connection;
        let listing = connection.list(&self.directory).await.if_there()?.unwrap_or_default();
        let Some(node) = listing.find(self.request.owner, self.request.mode) else {
            return Ok(Said::Done);
        };
        // A node of another session is not this contender's.
        let stat = connection.stat(&node.path(&self.directory)).await?;
        let ours = stat.filter(|stat| stat.ephemeral_owner == self.session.id);
        Ok(ours.map_or(Said::Done, |stat| {
            Said::Made(Mine { node, czxid: stat.czxid }, Some(self.listed(listing)))
        }))
    }

    async fn armed(&mut self, ahead: &str) -> Answered<Said> {
        (self.watches.ahead, self.watches.changes) = (Fuse::terminated(), self.session.changes());
        // Also if that is gone by now: a later contender may have listed both.
        self.has_waited = true;
        let watched = self.session.connection.watch(&self.path(ahead)).await.if_there()?;
        match (&mut self.watches.own).now_or_never() {
            Some(Happening::Ended) => return Ok(Said::Removed),
            // It was written, and may have been deleted after that.
            Some(_) => {
                self.watch_own_again();
                return self.listed_anew().await;
            }
            None => {}
        }
        let Some(((data, stat), watch)) = watched else {
            return self.nobody_ahead().await;
        };
        self.watches.ahead = watch.fired();
        let note = Note::decoded(ahead, &data);
        // A node that was written before may be written again.
        let passes = note.passes && stat.version == 0;
        if let Ok(holder) = self.session.holder(note, &stat) {
            let name = self.request.name.clone();
            self.session.site.events.tell(StoreEvent::Queued { name, holder });
        }
        Ok(Said::Watched { passes })
    }

    /// Our own node was written, which ended the watch on it: it is to be watched again at once (zk.contender-7).
    fn watch_own_again(&mut self) {
        self.stands = self.session.site.env.now();
    }

    /// The contender ahead is gone. A listing shows whether the own node is there, if no watch would have reported that.
    async fn nobody_ahead(&mut self) -> Answered<Said> {
        let session = self.session;
        let is_young = session.site.env.now() < self.stands && session.changes() == self.changes;
        if is_young || !self.watches.own.is_terminated() {
            return Err(Unanswered::ABSENT);
        }
        self.listed_anew().await
    }

    async fn listed_anew(&mut self) -> Answered<Said> {
        let listing = self.session.connection.list(&self.directory).await.if_there()?;
        Ok(Said::Listed(self.listed(listing.unwrap_or_default())))
    }

    async fn covered(&mut self, own: &Node) -> Answered<Said> {
        let watched = self.session.connection.watch(&own.path(&self.directory)).await.if_there()?;
        let Some(((data, _), watch)) = watched else {
            return Ok(Said::Removed);
        };
        self.is_asked |= data == keys::REVOKE;
        self.watches.own = watch.fired();
        Ok(Said::Done)
    }

    /// A listing, after a warning for a foreign contender in it.
    fn listed(&self, listing: Listing) -> Listing {
        if let Some(foreign) = listing.foreign()
            && self.session.foreign.lock().insert(self.request.name.clone())
        {
            let warning = format!(
                "{foreign:?} in the directory of the lock {:?} is a foreign contender: this client waits for \
                 it, but it may not wait for this client",
                self.request.name.as_str()
            );
            self.session.site.events.tell(StoreEvent::Warning(warning.into()));
        }
        let is_predicted = self.session.untouched.lock().is_predicted(&self.request.name);
        if is_predicted { listing } else { listing.uncounted() }
    }

    fn path(&self, child: &str) -> String {
        [&self.directory, "/", child].concat()
    }
}

/// The error of a lock whose directory has a `contender` with a number that is too large.
fn worn_out(contender: &str) -> Error {
    let message = format!(
        "{contender:?} has a number near ZooKeeper's largest, 2147483647: stop the clients that keep nodes \
         in that directory, then delete it to restart its numbers"
    );
    Error::not_applied(ErrorKind::Protocol, message)
}

#[cfg(test)]
mod tests;
