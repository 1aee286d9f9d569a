//! The bytes of a lock file and of the floor. Pure.
//!
//! A file has two pages, each with a slot and, for a lock, a note of how the hold in the *other*
//! page's slot ended. A new value goes into the slot that does not hold the newest one, so a write
//! that is cut short at any byte leaves the newest complete value readable. The note stands in the
//! page that is written next anyway: noting an end costs the next sync no page more.
//!
//! | at | content |
//! |---|---|
//! | 0, 4096 | a slot: magic, format version, length, sequence number, SHA-256, value |
//! | 4056, 8152 | a note: counter and sequence number of the record, whether that is durable, checksum |
//!
//! # Invariants
//! - **file.record-1** Reading returns the newest value whose checksum is right, or the reason why there is none; no bytes
//!   make it panic.
//! - **file.record-2** Foreign bytes, bytes of a newer format and torn ones have different errors.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use leasehold_core::{LockName, OwnerId};
use sha2::{Digest, Sha256};

/// A value with the number of its write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamped<T> {
    pub(crate) seq: u64,
    pub(crate) value: T,
}

pub(crate) trait Value: Sized {
    const MAGIC: [u8; 16];

    fn encode(&self, bytes: &mut Vec<u8>);
    fn decode(bytes: &mut Bytes<'_>) -> Option<Self>;
}

/// The newest grant of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileRecord {
    pub(crate) name: LockName,
    /// Counts grants; the namespace's `token_base` is not in it.
    pub(crate) counter: u64,
    pub(crate) session: SessionId,
    pub(crate) owner: OwnerId,
    pub(crate) ttl: Duration,
    pub(crate) since: Option<SystemTime>,
    pub(crate) label: String,
    pub(crate) metadata: Option<String>,
}

/// The value of a whole directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Floor {
    /// At least the counter of every lock file that was ever removed.
    pub(crate) counter: u64,
    /// Added to every counter of the directory, by sessions that begin later.
    pub(crate) token_base: u64,
}

/// The note that a hold was released. It names the hold, since it may outlast the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) counter: u64,
    /// The number of the record's write, which determines where the note goes.
    pub(crate) seq: u64,
    /// Whether the record is known to be on the disk.
    pub(crate) durable: bool,
}

/// One manager's session with a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId(pub(crate) u64);

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// A file of this library, but neither slot is whole.
    Damaged,
    /// A foreign file.
    Foreign,
    /// Written by a newer version of this library.
    Newer {
        /// Its format version.
        version: u16,
    },
}

/// The bytes of a slot; `None` when the value is too long for one.
pub(crate) fn slot<T: Value>(stamped: &Stamped<T>) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    stamped.value.encode(&mut value);
    let length = u16::try_from(value.len()).ok()?;
    let mut slot = Vec::with_capacity(HEADER + value.len());
    slot.extend(T::MAGIC);
    slot.extend(VERSION.to_le_bytes());
    slot.extend(length.to_le_bytes());
    slot.extend([0; 4]);
    slot.extend(stamped.seq.to_le_bytes());
    let sum = checksum(&slot, &value);
    slot.extend(sum);
    slot.extend(value);
    (slot.len() <= SLOT).then_some(slot)
}

/// Where the value with number `seq` goes.
pub(crate) const fn slot_at(seq: u64) -> u64 {
    (seq % 2) * PAGE as u64
}

/// The newest whole value in the bytes of a file. Of the other slot no checksum is made, unless this one is not whole.
pub(crate) fn newest<T: Value>(image: &[u8]) -> Result<Stamped<T>, Unreadable> {
    let slots = image.chunks(PAGE).take(2).map(|page| &page[..page.len().min(SLOT)]);
    let mut slots: Vec<_> = slots.filter(|slot| slot.starts_with(&T::MAGIC)).collect();
    let unreadable = if slots.is_empty() { Unreadable::Foreign } else { Unreadable::Damaged };
    let headers = slots.iter().filter_map(|slot| Header::read::<T>(slot));
    // A value of a newer format counts before a readable one.
    if let Some(version) = headers.map(|header| header.version).find(|version| *version > VERSION) {
        return Err(Unreadable::Newer { version });
    }
    slots.sort_by_key(|slot| Reverse(Header::read::<T>(slot).map(|header| header.seq)));
    slots.into_iter().find_map(whole).ok_or(unreadable)
}

impl Ending {
    /// Where the note stands in a file: behind the slot that is written after the record's.
    pub(crate) const fn at(self) -> u64 {
        slot_at(self.seq ^ 1) + SLOT as u64
    }

    pub(crate) fn to_bytes(self) -> [u8; ENDING] {
        let mut bytes = [0; ENDING];
        bytes[..8].copy_from_slice(&self.counter.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.seq.to_le_bytes());
        bytes[16] = self.durable.into();
        let sum = checksum(&bytes[..24], &[]);
        bytes[24..].copy_from_slice(&sum[..16]);
        bytes
    }

    /// The newest whole note in the bytes of a file.
    pub(crate) fn newest(image: &[u8]) -> Option<Self> {
        let notes = image.chunks_exact(PAGE).take(2).filter_map(|page| Self::said(&page[SLOT..]));
        let mut notes: Vec<_> = notes.collect();
        notes.sort_by_key(|(ending, _)| Reverse(ending.counter));
        notes.into_iter().find(|(ending, note)| ending.to_bytes() == **note).map(|(ending, _)| ending)
    }

    fn said(note: &[u8]) -> Option<(Self, &[u8])> {
        let mut bytes = Bytes(note);
        Some((Self { counter: bytes.u64()?, seq: bytes.u64()?, durable: bytes.take(1)? == [1] }, note))
    }
}

impl SessionId {
    pub(crate) fn to_hex(self) -> String {
        format!("{:016x}", self.0)
    }

    pub(crate) fn from_hex(hex: &str) -> Option<Self> {
        let session = Self(u64::from_str_radix(hex, 16).ok()?);
        (session.to_hex() == hex).then_some(session)
    }
}

impl Value for FileRecord {
    const MAGIC: [u8; 16] = *b"leasehold lock\n\0";

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.counter.to_le_bytes());
        bytes.extend(self.session.0.to_le_bytes());
        bytes.extend(self.owner.to_hex().as_bytes());
        bytes.extend(nanos(self.ttl).to_le_bytes());
        let since = self.since.and_then(|since| since.duration_since(SystemTime::UNIX_EPOCH).ok());
        bytes.extend(since.map_or(UNTOLD, nanos).to_le_bytes());
        put(bytes, self.name.as_str());
        put(bytes, &self.label);
        bytes.push(self.metadata.is_some().into());
        put(bytes, self.metadata.as_deref().unwrap_or_default());
    }

    fn decode(bytes: &mut Bytes<'_>) -> Option<Self> {
        let counter = bytes.u64()?;
        let session = SessionId(bytes.u64()?);
        let owner = OwnerId::from_hex(std::str::from_utf8(bytes.take(32)?).ok()?)?;
        let ttl = Duration::from_nanos(bytes.u64()?);
        let since = match bytes.u64()? {
            UNTOLD => None,
            nanos => SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(nanos)),
        };
        let name = LockName::new(bytes.text()?).ok()?;
        let label = bytes.text()?.to_owned();
        let told = bytes.take(1)? == [1];
        let metadata = Some(bytes.text()?.to_owned()).filter(|_| told);
        Some(Self { name, counter, session, owner, ttl, since, label, metadata })
    }
}

impl Value for Floor {
    const MAGIC: [u8; 16] = *b"leasehold floor\n";

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.counter.to_le_bytes());
        bytes.extend(self.token_base.to_le_bytes());
    }

    fn decode(bytes: &mut Bytes<'_>) -> Option<Self> {
        Some(Self { counter: bytes.u64()?, token_base: bytes.u64()? })
    }
}

/// The unread rest of a value.
pub(crate) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.u16()?;
        std::str::from_utf8(self.take(length.into())?).ok()
    }
}

/// The bytes before a value, whole or not.
struct Header<'a> {
    version: u16,
    length: u16,
    seq: u64,
    rest: Bytes<'a>,
}

impl<'a> Header<'a> {
    /// `None` when it is cut short; of a newer one only the version is certain.
    fn read<T: Value>(slot: &'a [u8]) -> Option<Self> {
        let mut rest = Bytes(slot.get(T::MAGIC.len()..)?);
        let version = rest.u16()?;
        if version > VERSION {
            return Some(Self { version, length: 0, seq: 0, rest });
        }
        let length = rest.u16()?;
        rest.take(4)?;
        let seq = rest.u64()?;
        Some(Self { version, length, seq, rest })
    }
}

/// The value of a slot; `None` when it is cut short or its checksum is wrong.
fn whole<T: Value>(slot: &[u8]) -> Option<Stamped<T>> {
    let Header { length, seq, mut rest, .. } = Header::read::<T>(slot)?;
    let sum = rest.take(32)?;
    let value = rest.take(length.into())?;
    if sum != checksum(&slot[..HEADER - 32], value) {
        return None;
    }
    Some(Stamped { seq, value: T::decode(&mut Bytes(value))? })
}

fn put(bytes: &mut Vec<u8>, text: &str) {
    // A length above this is above a slot's too, and found there.
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    bytes.extend(length.to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(UNTOLD)
}

fn checksum(head: &[u8], value: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(head).chain_update(value).finalize().into()
}

/// A block, so that writing one slot never rewrites a part of the other.
const PAGE: usize = 4096;
const SLOT: usize = PAGE - ENDING;
const HEADER: usize = 64;
const ENDING: usize = 40;
const VERSION: u16 = 1;
const UNTOLD: u64 = u64::MAX;

/// The whole of a lock file.
pub(crate) const FILE: usize = 2 * PAGE;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
