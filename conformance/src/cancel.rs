//! Cancels an operation at every point at which it can be cancelled.
//!
//! A scene builds an operation, has it polled so many times and dropped, and checks what is left.
//! It is played with zero polls, one, two, … until the operation finishes; directly on the store,
//! where requests may complete at the first poll, and behind a network. The drop comes right after
//! the last poll, or later: by so much that a request on the network has not arrived yet, that its
//! answer has not, and that the answer has not been read.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use leasehold_core::LockManager;

use crate::ensure;
use crate::failure::{Failure, Outcome};
use crate::network::Network;
use crate::session::Session;
use crate::world::World;

/// One way to be interrupted.
#[derive(Clone)]
pub(crate) struct Scene {
    /// Where the operation's process is.
    pub(crate) there: World,
    /// Where everybody else is.
    pub(crate) world: World,
    /// Two other processes, which live through all plays.
    pub(crate) holder: LockManager,
    pub(crate) next: LockManager,
    /// After how many polls it is dropped,
    pub(crate) polls: usize,
    /// and how much later.
    pub(crate) linger: Duration,
    /// Whether it came to its end before that.
    finished: Arc<AtomicBool>,
}

/// Plays a scene for every number of polls.
pub(crate) async fn at_every_poll<F>(world: &World, play: impl Fn(Scene) -> F + Send + Sync) -> Outcome
where
    F: Future<Output = Outcome> + Send,
{
    let crossing = world.crossing();
    let distant = world.behind(Network::new(crossing).wrap());
    let whole = Scene::whole(world.clone()).await?;
    for there in [world, &distant] {
        for half_crossings in [0, 1, 3, 5] {
            let mut scene = whole.clone();
            (scene.there, scene.linger) = (there.clone(), crossing / 2 * half_crossings);
            loop {
                play(scene.clone()).await.map_err(|failure| scene.failed(&failure))?;
                if scene.finished.load(Ordering::Relaxed) {
                    break;
                }
                scene.polls += 1;
                ensure!(scene.polls < MANY, "not finished after {MANY} polls");
            }
        }
    }
    Ok(())
}

impl Scene {
    /// Polls `operation` as often as this scene says, each time when it is woken, and drops it;
    /// what it came to if it finished by then.
    pub(crate) async fn interrupt<T, E>(
        &self,
        operation: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<Option<T>, E> {
        let mut operation = pin!(operation);
        let mut left = self.polls;
        let done = std::future::poll_fn(|cx| {
            if left == 0 {
                return Poll::Ready(None);
            }
            left -= 1;
            match operation.as_mut().poll(cx) {
                Poll::Ready(done) => Poll::Ready(Some(done)),
                Poll::Pending if left == 0 => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        if done.is_none() {
            // A wake-up of the operation has no effect meanwhile.
            self.world.pass(self.linger).await;
        }
        self.finished.store(done.is_some(), Ordering::Relaxed);
        done.transpose()
    }

    /// The same of an acquisition; a grant is released.
    pub(crate) async fn interrupts_acquire(&self, session: &Session, name: &str) -> Outcome {
        if let Some(grant) = self.interrupt(session.acquire(name)).await? {
            session.backend.release(&grant).await?;
        }
        Ok(())
    }

    fn failed(&self, failure: &Failure) -> Failure {
        let Self { polls, linger, .. } = self;
        Failure::new(format!("dropped {linger:?} after {polls} polls: {failure}"))
    }

    /// An operation that is not interrupted.
    pub(crate) async fn whole(world: World) -> Outcome<Self> {
        let (holder, next) = (world.manager().await?, world.manager().await?);
        let (polls, linger) = (0, Duration::ZERO);
        Ok(Self { there: world.clone(), world, holder, next, polls, linger, finished: Arc::default() })
    }

    /// The same after an operation of `session`, which is closed then: its last request may arrive only now, and a session that
    /// is dropped would leave that to the lease, in the way of the next play.
    pub(crate) async fn ensure_free_of(&self, session: Session) -> Outcome {
        self.ensure_free().await?;
        Ok(session.backend.close().await?)
    }

    /// Nothing is left soon, and the next client holds soon.
    pub(crate) async fn ensure_free(&self) -> Outcome {
        self.world.empty(self.world.soon(), "it was dropped").await?;
        let next = self.next.lock(NAME)?;
        let guard = self.world.within(self.world.soon(), "the next client", next.acquire()).await??;
        Ok(guard.release().await?)
    }
}

/// The lock of every scene.
pub(crate) const NAME: &str = "a";

const MANY: usize = 200;
