//! Files: the earlier version's, and how it reads them, as they were, written here by hand.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Revocation, Revoke};
use libtest_mimic::Trial;
use sha2::{Digest, Sha256};
use testbed::{Beside, Scratch, eventually, within};

use crate::ours::{GRACE, manager, revoke, take};
use crate::played::{NAME, Process, Store};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        testbed::trial("file::a_holder_is_asked_until_it_hears", a_holder_is_asked_until_it_hears),
        testbed::trial("file::who_goes_on_asking_ends_at_once", who_goes_on_asking_ends_at_once),
    ]
}

/// It takes what asks for a grant that it is still putting on the disk, and hears nothing of it: it is asked
/// again, until it has heard.
async fn a_holder_is_asked_until_it_hears() {
    let store = Directory::start().await;
    let locks = manager(&store).await;
    for how in [Revoke::AT_ONCE, GRACE] {
        let mut theirs = store.process(Directory::TTL).await;
        theirs.enters().await.expect("it is free");
        let revoked = revoke(&locks, how);
        for _ in 0..3 {
            theirs.is_asked().await;
        }
        theirs.leaves().await;
        assert_eq!(revoked.end("it has answered").await, Revocation::Released, "{how:?}");
        eventually("nothing is left of that", async || store.messages().await == 0).await;
    }
}

/// A manager that goes on asking one is not kept from its end by that.
async fn who_goes_on_asking_ends_at_once() {
    let store = Directory::start().await;
    let (locks, mut theirs) = (manager(&store).await, store.process(Directory::TTL).await);
    theirs.enters().await.expect("it is free");
    let asks = locks.clone();
    let answer = Beside::start(async move { asks.revoke(NAME, GRACE).await });
    theirs.is_asked().await;
    within(Duration::from_secs(5), "the shutdown", locks.shutdown()).await.unwrap();
    drop(answer);
}

/// A lock directory in which the lock was used before.
pub(crate) struct Directory {
    scratch: Scratch,
    sessions: AtomicU64,
}

impl Directory {
    fn path(&self) -> PathBuf {
        self.scratch.path().join("locks")
    }
}

impl Store for Directory {
    const NAME: &str = "file";
    const TTL: Duration = Duration::from_secs(3);
    const ORDERED: bool = false;
    const NOTED: Option<Duration> = Some(Duration::from_secs(5));
    type Process = Earlier;

    async fn start() -> Self {
        let store = Self { scratch: Scratch::new("earlier").unwrap(), sessions: AtomicU64::new(0xe1) };
        let locks = manager(&store).await;
        take(&locks).await.release().await.unwrap();
        locks.shutdown().await.unwrap();
        store
    }

    /// Nothing here hangs on a lease, and longer bounds would only have it look more seldom.
    fn url(&self, _options: &str) -> String {
        format!("file://{}?ttl=3s", self.path().display())
    }

    async fn process(&self, _ttl: Duration) -> Earlier {
        Earlier::open(self.path(), self.sessions.fetch_add(1, Ordering::Relaxed))
    }

    async fn messages(&self) -> usize {
        let files = |part: &str| fs::read_dir(self.path().join(".leasehold").join(part)).unwrap().count();
        files("revoke") + files("new")
    }
}

/// A session, which may hold the lock.
pub(crate) struct Earlier {
    directory: PathBuf,
    session: u64,
    _presence: File,
    lock: File,
}

/// What it reads in a lock file: the number of the write, and of the record what it needs here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    seq: u64,
    counter: u64,
    session: u64,
}

impl Earlier {
    fn open(directory: PathBuf, session: u64) -> Self {
        let presence = directory.join(".leasehold/sessions").join(format!("{session:016x}"));
        let presence = OpenOptions::new().read(true).write(true).create_new(true).open(presence).unwrap();
        presence.try_lock().unwrap();
        let lock = OpenOptions::new().read(true).write(true).open(lock_file(&directory)).unwrap();
        Self { directory, session, _presence: presence, lock }
    }

    /// The newest whole record.
    fn see(&self) -> Record {
        let image = fs::read(lock_file(&self.directory)).unwrap();
        assert_eq!(image.len(), 8192);
        let slots = image.chunks(4096).filter_map(|page| read_slot(&page[..4056]));
        slots.max_by_key(|record| record.seq).unwrap()
    }

    /// Whether a note says that the hold of `record` has ended.
    fn is_over(&self, record: Record) -> bool {
        let image = fs::read(lock_file(&self.directory)).unwrap();
        let notes = image.chunks(4096).map(|page| &page[4056..]);
        notes
            .filter(|note| Sha256::digest(&note[..24])[..16] == note[24..])
            .any(|note| record.counter <= number(note))
    }

    /// What it finds and what it writes, if it has the lock now.
    fn try_acquire(&self) -> Option<(Record, Record)> {
        self.lock.try_lock().ok()?;
        let seen = self.see();
        let next = Record { seq: seen.seq + 1, counter: seen.counter + 1, session: self.session };
        self.lock.write_all_at(&slot(next), (next.seq % 2) * 4096).unwrap();
        self.lock.sync_data().unwrap();
        Some((seen, next))
    }

    /// The same, as soon as it can.
    async fn acquire(&self) -> (Record, Record) {
        let mut acquired = None;
        eventually("the file can be locked", async || {
            acquired = self.try_acquire();
            acquired.is_some()
        })
        .await;
        acquired.unwrap()
    }

    /// The requests to it, by key: counters. They are taken by their names, whatever is in them.
    fn take_requests(&self) -> BTreeMap<String, u64> {
        let mut requests = BTreeMap::new();
        for file in fs::read_dir(self.directory.join(".leasehold/revoke")).unwrap() {
            let file = file.unwrap();
            let file_name = file.file_name().into_string().unwrap();
            let (rest, session) = file_name.rsplit_once('.').unwrap();
            let (key, counter) = rest.rsplit_once('.').unwrap();
            if session == format!("{:016x}", self.session) {
                fs::remove_file(file.path()).unwrap();
                requests.insert(key.to_owned(), u64::from_str_radix(counter, 16).unwrap());
            }
        }
        requests
    }

    fn request_to(&self, holder: Record) -> PathBuf {
        let request = format!("{NAME}.{:x}.{:016x}", holder.counter, holder.session);
        self.directory.join(".leasehold/revoke").join(request)
    }
}

fn lock_file(directory: &Path) -> PathBuf {
    directory.join(format!("{NAME}.lock"))
}

impl Process for Earlier {
    async fn enters(&mut self) -> Option<u64> {
        let (_, held) = self.try_acquire()?;
        Some(held.counter)
    }

    async fn is_next(&mut self) -> u64 {
        let (before, held) = self.acquire().await;
        // That one let go, and did not die.
        assert!(self.is_over(before), "{before:?}");
        held.counter
    }

    async fn outlasts(&mut self) -> u64 {
        self.acquire().await.1.counter
    }

    async fn leaves(&mut self) {
        let held = self.see();
        let mut note = Vec::new();
        note.extend(held.counter.to_le_bytes());
        note.extend(held.seq.to_le_bytes());
        note.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        note.extend(&Sha256::digest(&note)[..16]);
        self.lock.write_all_at(&note, ((held.seq ^ 1) % 2) * 4096 + 4056).unwrap();
        self.lock.unlock().unwrap();
    }

    async fn sees_a_holder(&mut self) -> bool {
        self.try_acquire().is_none() && !self.is_over(self.see())
    }

    async fn is_asked(&mut self) {
        let mut asked = BTreeMap::new();
        eventually("it is asked to let go", async || {
            asked = self.take_requests();
            !asked.is_empty()
        })
        .await;
        assert_eq!(asked, BTreeMap::from([(NAME.to_owned(), self.see().counter)]));
    }

    /// As often as it looks whether that one has let go; then it takes its request back.
    async fn asks(&mut self) -> Option<u64> {
        let holder = self.see();
        let request = self.request_to(holder);
        eventually("it has let go", async || {
            OpenOptions::new().write(true).create(true).truncate(false).open(&request).unwrap();
            self.is_over(holder)
        })
        .await;
        let _ = fs::remove_file(request);
        Some(holder.counter)
    }

    async fn ends(self) {}
}

fn read_slot(slot: &[u8]) -> Option<Record> {
    let value = slot.strip_prefix(b"leasehold lock\n\0")?;
    assert_eq!(value[..2], [1, 0], "the version of the format");
    let length = usize::from(u16::from_le_bytes([value[2], value[3]]));
    let (sum, value) = (&slot[32..64], &slot[64..64 + length]);
    let whole = Sha256::new().chain_update(&slot[..32]).chain_update(value).finalize();
    assert!(value.windows(3).any(|text| text == b"\x01\0a"), "the name and its length");
    (whole[..] == *sum).then(|| Record {
        seq: number(&slot[24..]),
        counter: number(value),
        session: number(&value[8..]),
    })
}

fn slot(record: Record) -> Vec<u8> {
    let mut value = Vec::new();
    value.extend(record.counter.to_le_bytes());
    value.extend(record.session.to_le_bytes());
    value.extend(b"00112233445566778899aabbccddeeff");
    value.extend(Duration::from_millis(5_000).as_nanos().to_le_bytes()[..8].iter());
    value.extend(u64::MAX.to_le_bytes());
    value.extend(b"\x01\0a\x07\0earlier\0\0\0");
    let mut slot = b"leasehold lock\n\0\x01\0".to_vec();
    slot.extend(u16::try_from(value.len()).unwrap().to_le_bytes());
    slot.extend([0; 4]);
    slot.extend(record.seq.to_le_bytes());
    let sum = Sha256::new().chain_update(&slot).chain_update(&value).finalize();
    slot.extend(sum);
    slot.extend(value);
    slot
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}
