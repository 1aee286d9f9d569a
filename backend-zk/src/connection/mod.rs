//! Requests on one connection, each bounded and each answered by the session's end at the latest.
//!
//! The client library queues requests while it is disconnected, without a bound, and keeps the session alive while there is a
//! handle on it. So the one handle is here, and is dropped when the session ends. Some pending requests have another one, and
//! their callers may not be polled for long. So they are on a [shelf](shelf), which drops them.
//!
//! # Invariants
//! - **zk.connection-1** Every request ends within the bound of a request, or at once when the session
//!   ends.
//! - **zk.connection-2** Once the connection is closed, nothing holds it open, so the server is notified.
//! - **zk.connection-3** No answer makes a task of this crate panic.

mod rights;
mod shelf;
mod silence;
pub(crate) mod status;

pub(crate) use silence::Silence;

use std::future::{Future, pending, poll_fn, ready};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, Fuse, join};
use leasehold_core::{Env, OwnerId};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use zookeeper_client::{
    Acl, Acls, Client, CreateMode, Error as ZkError, EventType, MultiWriter, OneshotWatcher, Stat,
};

use crate::error::{Answered, Explain, Unanswered};
use crate::keys::{self, Listing};
use crate::protocol::{Failure, Happening};

use shelf::Shelf;
use silence::Bell;

/// The way to the server.
#[derive(Debug)]
pub(crate) struct Connection {
    requests: Shelf<Client>,
    env: Env,
    /// The runtime of the library's task.
    runtime: Handle,
    /// The bound of a request.
    bound: Duration,
    rights: Arc<[Acl]>,
    /// The rights on the nodes of our contenders.
    contender_rights: Arc<[Acl]>,
    /// The secret of the session's own identity, if it has one: that alone may write the nodes of its contenders.
    secret: Option<OwnerId>,
    /// The session has ended.
    pub(crate) over: CancellationToken,
}

impl Connection {
    pub(crate) fn new(
        client: Client,
        env: Env,
        bound: Duration,
        rights: Vec<Acl>,
        secret: Option<OwnerId>,
    ) -> Self {
        let alone = secret.map(|secret| rights::alone_writes(secret, &rights));
        Self {
            requests: Shelf::new(client),
            env,
            runtime: Handle::current(),
            bound,
            contender_rights: alone.unwrap_or_else(|| rights.clone()).into(),
            rights: rights.into(),
            secret,
            over: CancellationToken::new(),
        }
    }

    /// The session has ended: no request is sent any more, and pending ones get no answer.
    pub(crate) fn end(&self) {
        self.over.cancel();
        self.requests.end();
    }

    /// Ends the session at the server, as soon as that can be reached.
    pub(crate) fn close(&self) {
        self.requests.close();
    }

    /// Waits until the session has ended at the server, or is known to have.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let states = self.requests.handle().map(|client| client.state_watcher());
        async move {
            if let Some(mut states) = states {
                while !states.state().is_terminated() {
                    states.changed().await;
                }
            }
        }
    }

    /// Makes a contender in `directory` and lists it, in one flight; the directory first, if it is missing.
    pub(crate) async fn enter(&self, directory: &str, stem: String, data: Vec<u8>) -> Answered<Entered> {
        if let Some(entered) = self.enter_existing(directory, stem.clone(), data.clone()).await.if_there()? {
            return Ok(entered);
        }
        // Whether it is made, and by which client, the next attempt shows.
        let made = self.make_directory(directory).await;
        made.or_else(|failed| if failed.failure() == Failure::Unknown { Ok(()) } else { Err(failed) })?;
        self.enter_existing(directory, stem, data).await
    }

    async fn enter_existing(&self, directory: &str, stem: String, data: Vec<u8>) -> Answered<Entered> {
        // Polled in this order, so sent in this order.
        let (made, listed) = join(self.make_contender(stem, data), self.list(directory)).await;
        Ok((made?, listed.ok()))
    }

    /// Makes a contender in an existing directory. Its path is `stem` and the number that it gets.
    pub(crate) async fn make_contender(&self, stem: String, data: Vec<u8>) -> Answered<Made> {
        let rights = Arc::clone(&self.contender_rights);
        let made = self.ask(async move |client| {
            let options = CreateMode::EphemeralSequential.with_acls(Acls::new(&rights));
            client.create(&stem, &data, &options).await
        });
        let (stat, sequence) = made.await?;
        let number = i32::try_from(sequence.into_i64()).map_err(|_| {
            Unanswered::Refused(ZkError::UnexpectedError("a sequence beyond 32 bits".to_owned()))
        })?;
        Ok((number, stat))
    }

    /// Makes a directory and its missing parents, as nodes that the server removes when they are empty.
    pub(crate) async fn make_directory(&self, path: &str) -> Answered<()> {
        let mut missing = vec![path];
        // Down and up again, and once more: the server may remove a directory that we make.
        for _ in 0..4 * path.split('/').count() {
            let Some(next) = missing.last().copied() else {
                return Ok(());
            };
            match self.create(next, OURS, CreateMode::Container).await {
                Ok(_) | Err(Unanswered::Refused(ZkError::NodeExists)) => drop(missing.pop()),
                Err(failed) if failed.is_absent() => missing.push(keys::parent(next).ok_or(failed)?),
                Err(failed) => return Err(failed),
            }
        }
        Err(Unanswered::ABSENT)
    }

    /// Removes an empty directory, if it is as this store makes it.
    pub(crate) async fn remove_directory(&self, path: &str) -> Answered<()> {
        let (data, stat) = self.read(path).await?;
        if data != OURS {
            return Err(Unanswered::Refused(ZkError::BadVersion));
        }
        self.ask(|client| client.delete(path, Some(stat.version))).await
    }

    /// Makes a node of exactly that name.
    pub(crate) async fn create(&self, path: &str, data: &[u8], mode: CreateMode) -> Answered<Stat> {
        let (path, data, rights) = (path.to_owned(), data.to_owned(), Arc::clone(&self.rights));
        self.ask(async move |client| {
            let options = mode.with_acls(Acls::new(&rights));
            client.create(&path, &data, &options).await.map(|(stat, _)| stat)
        })
        .await
    }

    /// The same, and its directory if that is missing.
    pub(crate) async fn create_below(&self, path: &str, data: &[u8], mode: CreateMode) -> Answered<()> {
        if self.create(path, data, mode).await.if_there()?.is_none() {
            self.make_directory(keys::parent(path).ok_or(Unanswered::ABSENT)?).await?;
            self.create(path, data, mode).await?;
        }
        Ok(())
    }

    /// Replaces a node of another session by one of this session.
    pub(crate) async fn replace(&self, path: &str, data: &[u8]) -> Answered<()> {
        let (path, data, rights) = (path.to_owned(), data.to_owned(), Arc::clone(&self.rights));
        self.transact(move |all| {
            all.add_delete(&path, None)?;
            all.add_create(&path, &data, &CreateMode::Ephemeral.with_acls(Acls::new(&rights)))
        })
        .await
    }

    /// Writes this session's contender node and deletes it, so that its watchers are notified of a change.
    pub(crate) async fn pass(&self, path: &str) -> Answered<()> {
        let path = path.to_owned();
        self.transact(move |all| {
            all.add_set_data(&path, &[], None)?;
            all.add_delete(&path, None)
        })
        .await
    }

    /// Checks at the leader whether there is a node, because the server of the session may have lost a change. The leader
    /// checks every transaction, and this one changes nothing.
    pub(crate) async fn confirm(&self, path: &str) -> Answered<()> {
        let path = path.to_owned();
        self.transact(move |all| all.add_check_version(&path, ANY_VERSION)).await
    }

    /// Carries out all that is added, or nothing.
    async fn transact(
        &self,
        add: impl FnOnce(&mut MultiWriter<'_>) -> Result<(), ZkError> + Send + 'static,
    ) -> Answered<()> {
        self.ask(async move |client| {
            let mut transaction = client.new_multi_writer();
            add(&mut transaction)?;
            transaction.commit().await.map(drop).map_err(ZkError::from)
        })
        .await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answered<()> {
        self.ask(|client| client.delete(path, None)).await
    }

    pub(crate) async fn list(&self, path: &str) -> Answered<Listing> {
        self.list_at(path).await.map(|(listing, _)| listing)
    }

    /// The same, with the transaction of the last change of the children.
    pub(crate) async fn list_at(&self, path: &str) -> Answered<(Listing, i64)> {
        let listed = self.ask(|client| client.get_children(path)).await?;
        let changed = listed.1.pzxid;
        Ok((listing(listed), changed))
    }

    /// Writes a node; in any version, or only in one.
    pub(crate) async fn write(&self, path: &str, data: &[u8], version: Option<i32>) -> Answered<Stat> {
        self.ask(|client| client.set_data(path, data, version)).await
    }

    /// Writes a node in the version that was read, or makes a persistent one if none was. `None` if there is another version by
    /// now, or the node is gone.
    pub(crate) async fn compare_and_set(
        &self,
        path: &str,
        data: &[u8],
        seen: Option<i32>,
    ) -> Answered<Option<Stat>> {
        let written = match seen {
            None => self.create(path, data, CreateMode::Persistent).await,
            Some(_) => self.write(path, data, seen).await,
        };
        match written {
            Err(Unanswered::Refused(ZkError::NodeExists | ZkError::BadVersion)) => Ok(None),
            Err(gone) if gone.is_absent() && seen.is_some() => Ok(None),
            written => written.map(Some),
        }
    }

    pub(crate) async fn read(&self, path: &str) -> Answered<(Vec<u8>, Stat)> {
        self.ask(|client| client.get_data(path)).await
    }

    pub(crate) async fn read_if_there(&self, path: &str) -> Answered<Option<(Vec<u8>, Stat)>> {
        self.read(path).await.if_there()
    }

    pub(crate) async fn stat(&self, path: &str) -> Answered<Option<Stat>> {
        self.ask(|client| client.check_stat(path)).await
    }

    /// Reads a node and watches its next change. A missing node is not watched.
    pub(crate) async fn watch(&self, path: &str) -> Answered<((Vec<u8>, Stat), Watch)> {
        let path = path.to_owned();
        let read = self.ask(async move |client| client.get_and_watch_data(&path).await).await;
        read.map(|(data, stat, watcher)| ((data, stat), Watch { watcher, runtime: self.runtime.clone() }))
    }

    /// Watches a directory, and returns the watch with the transaction that made the directory. `None` if it is not as we
    /// make them, or may not be read: then its rights may be changed. From 3.8.4 and 3.9.2 on, servers do not report the
    /// end of a node to a client that may no longer read it.
    pub(crate) async fn watch_directory(&self, path: &str) -> Answered<Option<(i64, Silence)>> {
        let ((data, stat), watch) = match self.watch(path).await {
            Err(refused) if refused.failure() == Failure::Refused => return Ok(None),
            watched => watched?,
        };
        let is_as_made = data == OURS && is_as_made(&stat);
        Ok(is_as_made.then(|| (stat.czxid, watch.silence())))
    }

    /// Lets the server of the session catch up with the leader, for reads that are only shown.
    pub(crate) async fn catch_up(&self, path: &str) -> Answered<()> {
        let path = path.to_owned();
        self.ask(async move |client| client.sync(&path).await).await
    }

    /// Sends a request, in the order of the calls.
    async fn ask<T, F>(&self, request: impl FnOnce(Arc<Client>) -> F) -> Answered<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ZkError>> + Send + 'static,
    {
        let asked = self.requests.ask(|client| caught(request(client))).ok_or(Unanswered::SessionOver)?;
        let answer = self.within_the_bound(asked).await?;
        answer.ok_or(Unanswered::SessionOver)?.map_err(Unanswered::Refused)
    }

    /// Waits for at most the bound of a request, and while the session lasts (zk.connection-1).
    pub(crate) async fn bounded<T>(&self, wait: impl Future<Output = T>) -> Answered<T> {
        let waited = self.over.run_until_cancelled(self.within_the_bound(wait)).await;
        waited.ok_or(Unanswered::SessionOver)?
    }

    async fn within_the_bound<T>(&self, wait: impl Future<Output = T>) -> Answered<T> {
        tokio::select! {
            biased;
            waited = wait => Ok(waited),
            () = async { self.env.sleep(self.bound).await } => Err(Unanswered::Silent(self.bound)),
        }
    }
}

/// The number of this session's new contender, and the stat of its node.
pub(crate) type Made = (i32, Stat);
/// The same, with the listing of the directory if that was answered, too.
pub(crate) type Entered = (Made, Option<Listing>);

fn listing((children, directory): (Vec<String>, Stat)) -> Listing {
    let may_be_ours = usize::try_from(directory.data_length) == Ok(OURS.len());
    let listing = Listing::new(children, may_be_ours);
    if may_be_ours && is_as_made(&directory) {
        listing.counted(directory.czxid, directory.cversion)
    } else {
        listing
    }
}

/// Whether the data and the rights of a directory were never changed.
fn is_as_made(directory: &Stat) -> bool {
    (directory.version, directory.aversion) == (0, 0)
}

/// A request whose answer may be garbled: the client library panics on some that are too short.
async fn caught<T>(request: impl Future<Output = Result<T, ZkError>>) -> Result<T, ZkError> {
    let answer = AssertUnwindSafe(request).catch_unwind().await;
    answer
        .unwrap_or_else(|_| Err(ZkError::UnexpectedError("the reply does not match the request".to_owned())))
}

/// The next change of a node, reported once; a terminated one reports nothing.
pub(crate) type Fired = Fuse<BoxFuture<'static, Happening>>;

/// A watch on one node, good for one change.
#[derive(Debug)]
pub(crate) struct Watch {
    watcher: OneshotWatcher,
    runtime: Handle,
}

impl Watch {
    /// Waits for the change. The end of the session is none; it is reported elsewhere.
    pub(crate) fn fired(self) -> Fired {
        when_woken(self.fired_in_a_set()).boxed().fuse()
    }

    /// The same, to be polled only when it was woken, as by `FuturesUnordered`.
    pub(crate) fn fired_in_a_set(self) -> Fired {
        // Small, since there is one for each hold: an `async` block would keep the watcher twice.
        let fired = self.watcher.changed().then(|event| match event.event_type {
            EventType::NodeDeleted => Either::Left(ready(Happening::Ended)),
            EventType::Session => Either::Right(pending()),
            _ => Either::Left(ready(Happening::Changed)),
        });
        unless_ending(self.runtime, fired).boxed().fuse()
    }

    /// Only remembers whether the change has come.
    fn silence(self) -> Silence {
        let ends = is_ending(&self.runtime);
        Silence::new(self.watcher.changed().map(drop), ends)
    }
}

/// Polls `fired` for the first time, and then only when it was woken.
fn when_woken<T>(mut fired: impl Future<Output = T> + Unpin) -> impl Future<Output = T> {
    let (bell, mut is_first) = (Arc::<Bell>::default(), true);
    poll_fn(move |cx| {
        let has_rung = bell.has_rung(cx.waker());
        if !std::mem::take(&mut is_first) && !has_rung {
            return Poll::Pending;
        }
        fired.poll_unpin(&mut Context::from_waker(&Waker::from(Arc::clone(&bell))))
    })
}

/// Polls `fired` for the first time, and then unless its `runtime` is ending.
///
/// RACE: the library's task may end with the runtime before this one. That wakes its waiters, and they panic when polled.
fn unless_ending<T>(runtime: Handle, fired: impl Future<Output = T>) -> impl Future<Output = T> {
    let (mut fired, mut is_first) = (Box::pin(fired), true);
    poll_fn(move |cx| {
        let is_over = !std::mem::take(&mut is_first) && is_ending(&runtime);
        if is_over { Poll::Pending } else { fired.as_mut().poll(cx) }
    })
}

/// Whether a runtime is ending, so that it begins no more tasks.
fn is_ending(runtime: &Handle) -> bool {
    runtime.spawn(ready(())).now_or_never().is_some_and(|begun| begun.is_err())
}

const ANY_VERSION: i32 = -1;
/// The data of the directories that we make. No server shows that they are containers.
const OURS: &[u8] = b"leasehold";

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    /// A caller that is polled for other reasons neither polls its watch nor begins a task. Once the runtime has ended, a
    /// report does not poll it either: its sender may be gone.
    #[test]
    fn watch_is_polled_only_when_woken() {
        for ends in [false, true] {
            let home = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let ((tell, mut told), polls) = (oneshot::channel(), AtomicUsize::new(0));
            let counted = poll_fn(|cx| {
                polls.fetch_add(1, Ordering::Relaxed);
                told.poll_unpin(cx).map(|told| told.expect("the sender lives"))
            });
            let watch = std::pin::pin!(unless_ending(home.handle().clone(), counted));
            let mut watch = std::pin::pin!(when_woken(watch));
            assert!((0..3).all(|_| watch.as_mut().now_or_never().is_none()));
            assert_eq!((polls.load(Ordering::Relaxed), home.metrics().num_alive_tasks()), (1, 0));
            if ends {
                drop((home, tell));
                assert_eq!(watch.now_or_never(), None);
            } else {
                tell.send(7).unwrap();
                assert_eq!(watch.now_or_never(), Some(7));
            }
        }
    }

    /// An answer that the client library cannot take is an error, of unknown effect.
    #[tokio::test]
    async fn a_garbled_answer_is_an_error() {
        let garbled = caught::<()>(async { panic!("attempt to subtract with overflow") }).await;
        assert!(matches!(garbled, Err(ZkError::UnexpectedError(_))), "{garbled:?}");
        assert_eq!(caught(async { Ok(7) }).await, Ok(7));
    }
}
