//! `leasehold watch`: the holders of a lock, with a line per change.

use futures_util::StreamExt;
use leasehold::LockManager;
use serde::Serialize;

use crate::arguments::Store;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::signals::Signals;
use crate::store::{self, Place};

/// A line with the reason why no state can be shown.
#[derive(Debug, Serialize)]
struct Unseen<'a> {
    name: &'a str,
    error: Failure,
}

pub(crate) async fn watch(store: &Store, name: &str) -> Result<Exit, Failure> {
    let mut signals = Signals::of_the_end()?;
    let locks = Place::of(store)?.open_until_a_signal(&mut signals).await?;
    let told = tell(&locks, name, &mut signals).await;
    store::close_until_a_signal(&locks, &mut signals).await;
    told
}

async fn tell(locks: &LockManager, name: &str, signals: &mut Signals) -> Result<Exit, Failure> {
    let mut states = locks.watch(name)?;
    loop {
        let state = tokio::select! {
            biased;
            _signal = signals.next() => return Ok(Exit::SUCCESS),
            state = states.next() => state,
        };
        match state {
            Some(Ok(state)) => output::json(&output::State::from(&state))?,
            Some(Err(error)) => output::json(&Unseen { name, error: error.into() })?,
            None => return Ok(Exit::SUCCESS),
        }
    }
}
