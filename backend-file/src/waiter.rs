//! Waits in the kernel for locked files: one plain thread per contended file of this process, and for a while after
//! that for the next one.
//!
//! A thread blocks in the system's lock call, which cannot be interrupted. So it belongs to no manager: it passes the lock
//! to the first waiter of this process, and unlocks the file if there is none. Later waiters for the same file share the
//! thread. The runtime's pool for blocking calls is not used, because a runtime waits for that when it ends.
//!
//! # Invariants
//! - **file.waiter-1** A file has a line here exactly while a thread waits for it.
//! - **file.waiter-2** A locked file is passed to a waiter, or unlocked: on its way it unlocks when dropped (G8).
//! - **file.waiter-3** Nothing waits for a thread, neither closing, nor dropping, nor the end of the process.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::directory::{Inode, Locked, Opened};

/// A place in the line for a file; leaves it when dropped.
#[derive(Debug)]
pub(crate) struct WaitSlot {
    inode: Inode,
    id: u64,
    turn: oneshot::Receiver<io::Result<Locked>>,
}

/// The waiters of this process for one file, in order of arrival.
type Line = VecDeque<Wanter>;

#[derive(Debug)]
struct Wanter {
    id: u64,
    turn: oneshot::Sender<io::Result<Locked>>,
    /// The file that the thread waits with next; the first waiter's is in use.
    file: Option<Opened>,
}

/// Waits for the lock of `file`.
///
/// # Errors
///
/// When no thread can be started.
pub(crate) fn join(file: Opened) -> io::Result<WaitSlot> {
    let inode = file.inode();
    let (sender, turn) = oneshot::channel();
    let mut lines = LINES.lock();
    let waits = lines.contains_key(&inode);
    let (file, spare) = if waits { (None, Some(file)) } else { (Some(file), None) };
    if let Some(file) = file {
        start(Wait { inode, file })?;
    }
    let id = JOINED.fetch_add(1, Ordering::Relaxed);
    lines.entry(inode).or_default().push_back(Wanter { id, turn: sender, file: spare });
    Ok(WaitSlot { inode, id, turn })
}

impl WaitSlot {
    pub(crate) fn inode(&self) -> Inode {
        self.inode
    }

    /// The locked file; `None` when the place in the line is lost.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub(crate) async fn turn(&mut self) -> Option<io::Result<Locked>> {
        (&mut self.turn).await.ok()
    }
}

impl Drop for WaitSlot {
    fn drop(&mut self) {
        let mut lines = LINES.lock();
        let left = lines.get_mut(&self.inode).and_then(|line| {
            // RACE: this may be a later line for the same file, which is why ids are unique.
            let at = line.iter().position(|wanter| wanter.id == self.id)?;
            line.remove(at)
        });
        drop(lines);
        drop(left);
    }
}

/// A thread that has nothing to wait for, and its channel.
struct Idle {
    id: u64,
    told: mpsc::Sender<Wait>,
}

struct Wait {
    inode: Inode,
    file: Opened,
}

/// Passes a wait to an idle thread, or to a new one.
fn start(wait: Wait) -> io::Result<()> {
    let idle = IDLE.lock().pop();
    let Some(idle) = idle else {
        let life = move || live(wait);
        return thread::Builder::new()
            .name("leasehold-wait".to_owned())
            .stack_size(STACK)
            .spawn(life)
            .map(drop);
    };
    // Removed from the idle threads, it listens until it gets a wait.
    idle.told.send(wait).map_err(|_gone| io::Error::from(io::ErrorKind::BrokenPipe))
}

fn live(mut next: Wait) {
    loop {
        next.until_nobody_wants_it();
        match hear() {
            Some(wait) => next = wait,
            None => return,
        }
    }
}

/// The next wait; `None` after a while without one.
fn hear() -> Option<Wait> {
    let (told, hears) = mpsc::channel();
    let id = JOINED.fetch_add(1, Ordering::Relaxed);
    IDLE.lock().push(Idle { id, told });
    if let Ok(wait) = hears.recv_timeout(KEPT) {
        return Some(wait);
    }
    let mut idle = IDLE.lock();
    let place = idle.iter().position(|idle| idle.id == id);
    let listens_no_more = place.map(|place| idle.remove(place));
    drop(idle);
    // RACE: the sender that has removed it since sends a wait.
    if listens_no_more.is_some() { None } else { hears.recv().ok() }
}

impl Wait {
    fn until_nobody_wants_it(self) {
        let Self { inode, mut file } = self;
        while let Some(next) = hand_over(inode, lock(file)) {
            file = next;
        }
    }
}

/// Passes the result of a wait to the first waiter that still wants it; the file to wait with next, if others wait.
fn hand_over(inode: Inode, mut locked: io::Result<Locked>) -> Option<Opened> {
    // Nothing is sent or dropped under the mutex: it may wake a task that leaves a line itself.
    while let Some(wanter) = change(inode, VecDeque::pop_front) {
        match wanter.turn.send(locked) {
            Ok(()) => return change(inode, |line| line.front_mut()?.file.take()),
            Err(unwanted) => locked = unwanted,
        }
    }
    None
}

/// The next value of a line; without one the line ends (file.waiter-1).
fn change<R>(inode: Inode, next: impl FnOnce(&mut Line) -> Option<R>) -> Option<R> {
    let mut lines = LINES.lock();
    let next = next(lines.get_mut(&inode)?);
    let over = if next.is_none() { lines.remove(&inode) } else { None };
    drop(lines);
    drop(over);
    next
}

fn lock(file: Opened) -> io::Result<Locked> {
    loop {
        match file.file().lock() {
            Ok(()) => return Ok(Locked::got(file)),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Idle threads; the one that became idle last is the last.
static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());
/// Numbers the waiters and the idle threads of this process.
static JOINED: AtomicU64 = AtomicU64::new(0);
static LINES: Mutex<BTreeMap<Inode, Line>> = Mutex::new(BTreeMap::new());

/// After so long an idle thread ends. To start one takes longer than to wake one.
const KEPT: Duration = Duration::from_secs(1);

const STACK: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::{Env, LockName, Timing};

    use super::*;
    use crate::config::FileConfig;
    use crate::directory::Directory;
    use crate::keys::Key;

    /// A served waiter leaves its place later, when others may wait for the same file in a new line.
    #[tokio::test]
    async fn a_place_that_is_left_late_evicts_nobody() {
        let scratch = tempfile::tempdir().unwrap();
        let env = Env::new(Timing::for_ttl(Duration::from_secs(3))).unwrap();
        let directory = Directory::open(&FileConfig::new(scratch.path()), &env).unwrap();
        let key = Key::of(&LockName::new("a").unwrap());
        let path = directory.lock_path(&key);
        std::fs::write(&path, "").unwrap();
        let open = || directory.open_lock(&key).unwrap().unwrap();

        let held = Locked::try_lock(open(), &path).unwrap().unwrap();
        let mut first = join(open()).unwrap();
        drop(held);
        let held = first.turn().await.unwrap().unwrap();
        testbed::eventually("the line ends", async || !LINES.lock().contains_key(&first.inode())).await;

        let mut second = join(open()).unwrap();
        drop(first);
        drop(held);
        assert!(second.turn().await.is_some(), "its place was taken from it");
    }
}
