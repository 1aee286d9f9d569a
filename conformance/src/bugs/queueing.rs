//! Waiting without the store's queue: by asking again and again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{AcquireRequest, Attempt, Grant, LockState};
use leasehold_core::{LockName, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{store, table};
use crate::layer::{Below, For, Layer};

table! {
    last_come_first_served, g7::grants_in_order_of_arrival, store(Asking::new(Manner::Stack)),
        "waiters are served last in, first out";
    polls_with_back_off, g7::waiting_beyond_the_ttl_keeps_the_place, store(Asking::new(Manner::BackOff)),
        "the longest waiter retries least often; most locks on Redis";
    wakes_everybody, g7::one_release_wakes_one_contender, store(Asking::new(Manner::Herd)),
        "a release notifies all waiters, and all of them retry: the herd";
}

#[derive(Debug)]
struct Asking {
    manner: Manner,
    board: Arc<Mutex<Board>>,
    released: Notify,
}

#[derive(Debug, PartialEq, Eq)]
enum Manner {
    Stack,
    BackOff,
    Herd,
}

/// The waiters of each name.
#[derive(Debug, Default)]
struct Board {
    next: u64,
    waiting: HashMap<LockName, Vec<u64>>,
}

/// A place on the board, left when dropped.
struct Ticket {
    board: Arc<Mutex<Board>>,
    name: LockName,
    number: u64,
}

impl Asking {
    fn new(manner: Manner) -> Self {
        Self { manner, board: Arc::default(), released: Notify::new() }
    }

    fn ticket(&self, name: &LockName) -> Ticket {
        let mut board = self.board.lock();
        board.next += 1;
        let number = board.next;
        board.waiting.entry(name.clone()).or_default().push(number);
        Ticket { board: Arc::clone(&self.board), name: name.clone(), number }
    }
}

impl Ticket {
    fn is_newest(&self) -> bool {
        let board = self.board.lock();
        board.waiting.get(&self.name).and_then(|waiting| waiting.last()) == Some(&self.number)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(waiting) = self.board.lock().waiting.get_mut(&self.name) {
            waiting.retain(|number| *number != self.number);
        }
    }
}

#[async_trait]
impl Layer for Asking {
    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        let ticket = self.ticket(&request.name);
        let ttl = below.env.timing().ttl;
        let mut pause: Duration = ttl / 1_000;
        loop {
            let released = self.released.notified();
            let may_ask = self.manner != Manner::Stack || ticket.is_newest();
            if may_ask && let Attempt::Granted(grant) = below.backend.try_acquire(request).await? {
                return Ok(grant);
            }
            match self.manner {
                Manner::Stack => below.env.sleep(pause).await,
                Manner::BackOff => {
                    below.env.sleep(pause).await;
                    pause = (pause * 2).min(ttl);
                }
                Manner::Herd => released.await,
            }
        }
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        let released = below.backend.release(grant).await;
        self.released.notify_waiters();
        released
    }

    async fn inspect(&self, below: &Below, name: &LockName, whom: For) -> Result<LockState> {
        let mut state = whom.inspect(&*below.backend, name).await?;
        state.contenders = self.board.lock().waiting.get(name).map_or(0, Vec::len);
        Ok(state)
    }
}
