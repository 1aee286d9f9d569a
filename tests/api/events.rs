//! What an operator reads: warnings that must be there, secrets that must not.

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use leasehold::backend::{Grant, StoreEvent};
use leasehold::clock::{Clock, TokioClock};
use leasehold::memory::MemoryConfig;
use leasehold::{Error, ErrorKind, LockManager, LockName};
use leasehold_conformance::layer::{Below, Layer, shared};
use testbed::pass;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Level};

const TTL: Duration = Duration::from_secs(15);

/// What was written since it was installed, on this thread.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn install() -> (Self, DefaultGuard) {
        // While there is one subscriber, `tracing` asks only the thread that first meets an event whether that is
        // wanted, and keeps the answer for all threads.
        static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));
        LazyLock::force(&SECOND);
        let written = Self::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::TRACE)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (written, tracing::subscriber::set_default(subscriber))
    }

    fn text(&self) -> String {
        let bytes = self.0.lock().expect("nothing panics while writing").clone();
        String::from_utf8(bytes).expect("events are text")
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nothing panics while writing").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A task that waits for itself waits for ever, and a warning says so after one to two ttls, once.
#[tokio::test(start_paused = true)]
async fn waiting_for_oneself_is_warned_of() {
    let (written, _installed) = Written::install();
    let clock = TokioClock::new();
    let builder = LockManager::builder(MemoryConfig::private()).ttl(TTL).clock(Arc::new(clock));
    let locks = builder.build().await.unwrap();
    let lock = locks.lock("a").unwrap();
    let guard = lock.acquire().await.unwrap();
    let waited = lock.clone().wait(TTL - Duration::from_secs(1)).acquire().await;
    assert!(waited.is_err());
    assert!(!written.text().contains("re-entrant"), "{}", written.text());
    let waited = lock.clone().wait(5 * TTL).acquire().await;
    assert!(waited.is_err());
    assert_eq!(written.text().matches("re-entrant").count(), 1, "{}", written.text());
    // Whoever stopped waiting is not waited for by the warning.
    let waited = lock.clone().wait(Duration::from_secs(1)).acquire().await;
    assert!(waited.is_err());
    clock.sleep_until(clock.now() + 5 * TTL).await;
    assert_eq!(written.text().matches("re-entrant").count(), 1, "{}", written.text());
    guard.release().await.unwrap();
}

/// Work that blocks the runtime stops renewals: a warning says so when the watchdog was late, once a minute.
#[tokio::test(start_paused = true)]
async fn blocked_runtime_is_warned_of() {
    let (written, _installed) = Written::install();
    let builder = LockManager::builder(MemoryConfig::private()).ttl(TTL).clock(Arc::new(TokioClock::new()));
    let locks = builder.build().await.unwrap();
    let _guard = locks.lock("a").unwrap().acquire().await.unwrap();
    pass(Duration::from_millis(1)).await;
    // A renewal is due after a third of the ttl, and no task runs in these steps.
    for (blocked, warnings) in [(TTL / 3 + TTL / 7, 0), (TTL / 3 + TTL / 5, 1), (TTL / 3 + TTL / 5, 1)] {
        tokio::time::advance(blocked).await;
        pass(Duration::from_millis(1)).await;
        assert_eq!(written.text().matches("the runtime was blocked").count(), warnings, "{}", written.text());
    }
    assert!(written.text().contains("late="), "{}", written.text());
    pass(Duration::from_secs(60)).await;
    tokio::time::advance(TTL).await;
    pass(Duration::from_millis(1)).await;
    assert_eq!(written.text().matches("the runtime was blocked").count(), 2, "{}", written.text());
}

/// Every turn of a lock's life leaves an event with its name; an owner id never does.
#[tokio::test(start_paused = true)]
async fn events_tell_the_life_of_a_lock_and_no_secret() {
    let (written, _installed) = Written::install();
    let (store, clock) = (MemoryConfig::private(), TokioClock::new());
    let open = || LockManager::builder(store.clone()).ttl(TTL).clock(Arc::new(clock)).build();
    let (locks, others) = (open().await.unwrap(), open().await.unwrap());
    let lock = locks.lock("invoice/42").unwrap();
    let first = lock.acquire().await.unwrap();
    let second = lock.acquire();
    tokio::pin!(second);
    assert!(futures_util::poll!(&mut second).is_pending());
    first.release().await.unwrap();
    let second = second.await.unwrap();
    let elsewhere = others.lock("invoice/42").unwrap().wait(Duration::from_secs(1)).acquire().await;
    assert!(elsewhere.is_err());
    store.store().evict(&LockName::new("invoice/42").unwrap(), &clock, true);
    second.lost().await;
    clock.sleep_until(clock.now() + TTL).await;
    let text = written.text();
    for part in [
        "acquired",
        "waiting in the local queue",
        "passed to the next local waiter",
        "waiting at the store",
        "lost",
    ] {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
    let long_hex = |word: &str| word.len() >= 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = text.split(|character: char| !character.is_ascii_alphanumeric());
    assert!(!words.into_iter().any(long_hex), "{text}");
}

/// Text of a server or of a foreign entry begins no line of its own and steers no terminal.
#[tokio::test(start_paused = true)]
async fn foreign_text_is_logged_escaped() {
    let (written, _installed) = Written::install();
    let builder = LockManager::builder(shared(Arc::new(Hostile))(Box::new(MemoryConfig::private())));
    let locks = builder.clock(Arc::new(TokioClock::new())).build().await.unwrap();
    locks.lock("a").unwrap().with(async |_held| tokio::task::yield_now().await).await.unwrap();
    let text = written.text();
    assert_eq!(text.matches("forged").count(), 2, "{text}");
    let steers = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!text.contains(steers) && !text.contains("\nforged"), "{text:?}");
}

const FOREIGN: &str = "sorry\u{1b}[2J\u{202e}\nforged";

/// A server whose every text is meant for a terminal.
#[derive(Debug)]
struct Hostile;

#[async_trait]
impl Layer for Hostile {
    async fn release(&self, _below: &Below, _grant: &Grant) -> leasehold::Result<()> {
        Err(Error::not_applied(ErrorKind::Closed, "refused").with_source(FOREIGN))
    }

    fn events(&self, below: &Below) -> BoxStream<'static, StoreEvent> {
        let warning = stream::iter([StoreEvent::Warning(FOREIGN.into())]);
        warning.chain(below.backend.events()).boxed()
    }
}
