//! The locks of programs that are not async: the scenes of `tests/api`, on a server.

#[path = "../api/blocking/scenes.rs"]
mod scenes;

use leasehold::blocking::{LockManager, connect};

use crate::fixture::{LONG, Scene, options};
use crate::store::Store;

/// Two processes that are not async, beside the runtime of the test.
async fn two<S: Store>(scene: &Scene<S>, play: impl FnOnce([LockManager; 2]) + Send + 'static) {
    let url = S::url(scene.server().await.addr(), scene.namespace(), &options(LONG));
    let played = std::thread::spawn(move || play([(); 2].map(|()| connect(&url).unwrap())));
    played.join().unwrap();
}

pub(crate) async fn threads_exclude_each_other<S: Store>(scene: Scene<S>) {
    two(&scene, |two| scenes::threads_of_two_managers_exclude_each_other(two, 10)).await;
}

pub(crate) async fn waits_end<S: Store>(scene: Scene<S>) {
    two(&scene, scenes::waits_and_holds_end_as_those_of_the_async_api).await;
}

pub(crate) async fn watch_is_an_iterator<S: Store>(scene: Scene<S>) {
    two(&scene, scenes::watch_is_an_iterator).await;
}

pub(crate) async fn several_locks<S: Store>(scene: Scene<S>) {
    two(&scene, scenes::several_locks_are_acquired_without_async).await;
}
