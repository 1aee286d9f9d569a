//! The task of a session: it watches the connection, the inbox, the holds and the time.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold_core::LostReason;
use leasehold_core::backend::Backoff;
use tokio::sync::mpsc;
use zookeeper_client::{CreateMode, StateWatcher};

use super::{HoldWatch, Session};
use crate::connection::Watch;
use crate::error::{Answered, Explain, Unanswered};

/// Runs until the session has ended.
pub(crate) async fn run(
    session: Arc<Session>,
    states: StateWatcher,
    to_watch: mpsc::UnboundedReceiver<HoldWatch>,
) {
    let watched = async {
        tokio::select! {
            biased;
            () = session.connection.over.cancelled() => {}
            () = session.site.closed.cancelled() => session.end(LostReason::Shutdown),
            () = watch_the_time(&session) => {}
            () = watch_the_renewals(&session) => {}
            () = watch_the_connection(&session, states) => {}
            () = watch_the_inbox(&session) => {}
            () = watch_the_holds(&session, to_watch) => {}
        }
    };
    if AssertUnwindSafe(watched).catch_unwind().await.is_err() {
        session.end(LostReason::SessionLost);
    }
    // From here on the next contender may hold, so no guard may. The timer is explained below.
    let left = session.deadline().remaining(session.site.env.now());
    tokio::select! {
        biased;
        () = session.site.closed.cancelled() => {}
        () = session.connection.closed() => {}
        () = tokio::time::sleep(left) => {}
    }
    session.connection.close();
}

/// Ends a session that was not renewed.
///
/// By a real timer and not the timers of `Env`: the client library keeps the session alive by real timers, so the timer that
/// ends it must not stop while they run. The decision reads `Env`'s clock.
async fn watch_the_time(session: &Session) {
    let seldom = session.timeout() / 12;
    while let Some(left) = session.time_left() {
        tokio::time::sleep(left.min(seldom)).await;
    }
    session.end(LostReason::Expired);
}

/// Confirms a renewal whose successor is late, and watches the nodes of holds that last.
async fn watch_the_renewals(session: &Arc<Session>) {
    let pause = session.timeout() / 24;
    loop {
        // By a timer of the clock itself: one that only compares the time when it is polled would renew the session of a host
        // whose timers stand still, as the library's tasks poll this one.
        let env = &session.site.env;
        env.clock().sleep_until(env.now() + pause).await;
        session.watch_what_stands();
        session.confirm_if_late().await;
    }
}

/// Checks every connection that was made again, and believes the library that the session has ended.
async fn watch_the_connection(session: &Session, mut states: StateWatcher) {
    let (mut state, mut retries) = (states.state(), retries(session));
    loop {
        if state.is_terminated() {
            session.end(LostReason::SessionLost);
            return;
        }
        if session.must_look() && session.look_into_the_connection().await.is_err() {
            retries.pause(&session.site.env).await;
            state = states.state();
            continue;
        }
        retries.reset();
        state = states.changed().await;
    }
}

/// Reads the inbox when it changes, after every reconnect, and when another client has written the session's node.
async fn watch_the_inbox(session: &Session) {
    let (mut reconnects, mut retries) = (session.looked_into.subscribe(), retries(session));
    loop {
        match read_the_inbox(session).await {
            Ok(changed) => {
                retries.reset();
                tokio::select! {
                    biased;
                    _ = changed.fired() => {}
                    _ = reconnects.changed() => {}
                    () = session.knocked.notified() => {}
                }
            }
            Err(_) => retries.pause(&session.site.env).await,
        }
    }
}

/// Waits for the watches on the nodes of holds. One task for all of them, because there may be very many.
async fn watch_the_holds(session: &Session, mut to_watch: mpsc::UnboundedReceiver<HoldWatch>) {
    let mut watches = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some((owner, happening)) = watches.next() => session.heard_of(owner, happening),
            // The sender lives in `session`.
            Some((owner, own)) = to_watch.recv() => watches.push(own.map(move |happening| (owner, happening))),
        }
    }
}

async fn read_the_inbox(session: &Session) -> Answered<Watch> {
    let inbox = session.site.namespace.inbox(session.id);
    let Some(((data, _), watch)) = session.connection.watch(&inbox).await.if_there()? else {
        session.connection.create(&inbox, &[], CreateMode::Ephemeral).await?;
        return Err(Unanswered::ABSENT);
    };
    session.asked_for(&data);
    Ok(watch)
}

/// Pauses that leave time to renew: the connection is checked before a renewal.
fn retries(session: &Session) -> Backoff {
    let bound = session.site.env.timing().op_timeout;
    Backoff::new(bound / 32, bound / 8)
}
