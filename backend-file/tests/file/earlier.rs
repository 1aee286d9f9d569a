//! Managers of an earlier version in the same directory: its files and how it reads them, as they were,
//! written here by hand. It knows no grace, and takes its own requests back.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::LostReason;
use leasehold_core::backend::{Revocation, Revoke};
use leasehold_core::{GuardState, LockManager};
use sha2::{Digest, Sha256};
use testbed::{Beside, until};

use crate::rig::{Rig, name};

const GRACE: Revoke = Revoke::Ask { grace: Duration::from_secs(60) };

/// A session of the earlier version, which may hold "a".
struct Earlier {
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
    /// On a directory in which "a" was used.
    fn open(rig: &Rig, session: u64) -> Self {
        let presence = rig.file(".leasehold/sessions").join(format!("{session:016x}"));
        let presence = OpenOptions::new().read(true).write(true).create_new(true).open(presence).unwrap();
        presence.try_lock().unwrap();
        let lock = OpenOptions::new().read(true).write(true).open(rig.file("a.lock")).unwrap();
        Self { directory: rig.path(), session, _presence: presence, lock }
    }

    /// The newest whole record.
    fn see(&self) -> Record {
        let image = fs::read(self.directory.join("a.lock")).unwrap();
        assert_eq!(image.len(), 8192);
        let slots = image.chunks(4096).filter_map(|page| read_slot(&page[..4056]));
        slots.max_by_key(|record| record.seq).unwrap()
    }

    /// Whether a note says that the hold of `record` has ended.
    fn is_over(&self, record: Record) -> bool {
        let image = fs::read(self.directory.join("a.lock")).unwrap();
        let notes = image.chunks(4096).map(|page| &page[4056..]);
        notes
            .filter(|note| Sha256::digest(&note[..24])[..16] == note[24..])
            .any(|note| record.counter <= number(note))
    }

    /// The counter, if it has the lock now.
    fn try_acquire(&self) -> Option<u64> {
        self.lock.try_lock().ok()?;
        let seen = self.see();
        let next = Record { seq: seen.seq + 1, counter: seen.counter + 1, session: self.session };
        self.lock.write_all_at(&slot(next), (next.seq % 2) * 4096).unwrap();
        self.lock.sync_data().unwrap();
        Some(next.counter)
    }

    fn release(&self) {
        let held = self.see();
        let mut note = Vec::new();
        note.extend(held.counter.to_le_bytes());
        note.extend(held.seq.to_le_bytes());
        note.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        note.extend(&Sha256::digest(&note)[..16]);
        self.lock.write_all_at(&note, ((held.seq ^ 1) % 2) * 4096 + 4056).unwrap();
        self.lock.unlock().unwrap();
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
        let request = format!("a.{:x}.{:016x}", holder.counter, holder.session);
        self.directory.join(".leasehold/revoke").join(request)
    }

    /// Asks whoever holds, as often as it looks whether that has let go.
    fn ask(&self, holder: Record) {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).open(self.request_to(holder)).unwrap();
    }

    /// Waits no longer for an answer.
    fn take_back(&self, holder: Record) {
        let _ = fs::remove_file(self.request_to(holder));
    }
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

/// Neither gets what the other holds, and counters go on.
#[tokio::test]
async fn each_excludes_the_other() {
    let rig = Rig::new();
    let ours = rig.open().await;
    ours.cycle("a").await;
    let earlier = Earlier::open(&rig, 0xe1);
    for _ in 0..2 {
        let held = ours.grant("a").await;
        assert_eq!(earlier.try_acquire(), None);
        let seen = earlier.see();
        assert!(seen.counter == held.counter && !earlier.is_over(seen), "{seen:?}");
        ours.release(&held).await;
        assert!(earlier.is_over(seen));

        assert_eq!(earlier.try_acquire(), Some(held.counter + 1));
        let holder = ours.refusal("a").await.unwrap();
        assert_eq!((holder.label.as_str(), holder.ttl), ("earlier", Some(Duration::from_secs(5))));
        assert_eq!(holder.token.unwrap().counter(), held.counter + 1);
        earlier.release();
        assert_eq!(ours.cycle("a").await, held.counter + 2);
    }
}

/// Asked with a grace, an earlier holder hears that the lock is wanted, and gives it up at once.
#[tokio::test]
async fn an_earlier_holder_hears_an_ask_with_a_grace() {
    let rig = Rig::new();
    rig.open().await.cycle("a").await;
    for (session, how) in [(0xe1, GRACE), (0xe2, Revoke::AT_ONCE)] {
        let earlier = Earlier::open(&rig, session);
        let counter = earlier.try_acquire().unwrap();
        let admin = LockManager::builder(rig.config()).build().await.unwrap();
        let answer = Beside::start(async move { admin.revoke("a", how).await.unwrap() });
        let asked = loop {
            let asked = earlier.take_requests();
            if !asked.is_empty() {
                break asked;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(asked, BTreeMap::from([("a".to_owned(), counter)]));
        earlier.release();
        assert_eq!(answer.end("the answer").await, Revocation::Released);
        assert_eq!((rig.traces("revoke"), rig.traces("new")), (0, 0));
    }
}

/// An earlier holder takes what asks for a grant that it is still putting on the disk, and hears nothing of
/// it: it is asked again, until it has heard.
#[tokio::test]
async fn an_earlier_holder_is_asked_until_it_hears() {
    let rig = Rig::new();
    rig.open().await.cycle("a").await;
    for (session, how) in [(0xe1, Revoke::AT_ONCE), (0xe2, GRACE)] {
        let earlier = Earlier::open(&rig, session);
        let counter = earlier.try_acquire().unwrap();
        let admin = LockManager::builder(rig.config()).build().await.unwrap();
        let mut answer = Beside::start(async move { admin.revoke("a", how).await.unwrap() });
        for _ in 0..3 {
            let mut asked = BTreeMap::new();
            let hears = until(async || {
                asked = earlier.take_requests();
                !asked.is_empty()
            });
            tokio::select! {
                answer = &mut answer => panic!("{answer:?}"),
                () = hears => {}
            }
            assert_eq!(asked, BTreeMap::from([("a".to_owned(), counter)]));
        }
        earlier.release();
        assert_eq!(answer.end("the answer").await, Revocation::Released);
        assert_eq!((rig.traces("revoke"), rig.traces("new")), (0, 0));
    }
}

/// An earlier revoker is understood as one that gives no grace, also by a holder that another has given
/// one, heard or not.
#[tokio::test]
async fn an_earlier_revoker_gives_no_grace() {
    let rig = Rig::new();
    let (ours, admin) = (rig.config(), rig.open().await);
    let ours = LockManager::builder(ours).build().await.unwrap();
    admin.cycle("a").await;
    let earlier = Arc::new(Earlier::open(&rig, 0xe1));
    for (is_asked, is_heard) in [(false, false), (true, false), (true, true)] {
        let guard = ours.lock("a").unwrap().acquire().await.unwrap();
        if is_asked {
            admin.backend.revoke(&name("a"), GRACE).await.unwrap();
        }
        if is_heard {
            assert!(guard.until_asked().await.is_some());
            assert_eq!(guard.state(), GuardState::Held);
        }
        let holder = earlier.see();
        let asker = Arc::clone(&earlier);
        let let_go = Beside::start(async move {
            while !asker.is_over(holder) {
                asker.ask(holder);
                tokio::task::yield_now().await;
            }
            asker.take_back(holder);
        });
        let_go.end("the release").await;
        assert_eq!(guard.lost().await, LostReason::Revoked);
        assert_eq!(rig.traces("revoke"), 0);
    }
}
