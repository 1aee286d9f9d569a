//! The slot of a key, and which server has a slot.

use std::collections::BTreeSet;

use leasehold_core::Result;
use redis::{Cmd, Value};

use super::tags::SlotRanges;
use crate::config::Address;
use crate::error;
use crate::scripts::{number, parts, text};

/// One of the parts into which a cluster divides its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct HashSlot(u16);

impl HashSlot {
    /// How many there are.
    pub(crate) const COUNT: usize = 16_384;

    /// That of a key: of what stands in its first braces, if anything does, or else of all of it.
    pub(crate) fn of(key: impl AsRef<[u8]>) -> Self {
        let key = key.as_ref();
        let behind = |bytes: &[u8], brace| bytes.iter().position(|byte| *byte == brace);
        let tag = behind(key, b'{').map(|open| &key[open + 1..]);
        let tag = tag.and_then(|tag| Some(&tag[..behind(tag, b'}')?])).filter(|tag| !tag.is_empty());
        Self(crc16(tag.unwrap_or(key)) % Self::COUNT as u16)
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(super) fn new(number: u64) -> Option<Self> {
        u16::try_from(number).ok().filter(|slot| usize::from(*slot) < Self::COUNT).map(Self)
    }
}

/// The checksum of XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    let shifted = |crc: u16| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
    bytes.iter().fold(0, |crc, byte| (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| shifted(crc)))
}

/// Which server has which slot, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotMap {
    /// Primaries, and the replicas of each.
    shards: Vec<Shard>,
    /// The index of the shard of each slot.
    owners: Vec<Option<u16>>,
}

/// A primary and its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) primary: Address,
    pub(crate) replicas: BTreeSet<Address>,
}

impl SlotMap {
    /// Whether each slot has the same primary: replicas that have failed are missing in some maps.
    pub(crate) fn has_the_owners_of(&self, other: &Self) -> bool {
        (0..HashSlot::COUNT).all(|slot| {
            let slot = HashSlot(slot as u16);
            self.owner(slot) == other.owner(slot)
        })
    }

    /// A map without slots.
    pub(crate) fn new() -> Self {
        Self { shards: Vec::new(), owners: vec![None; HashSlot::COUNT] }
    }

    /// The question about it.
    pub(crate) fn question() -> Cmd {
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("SLOTS");
        slots
    }

    /// Reads the answer of `CLUSTER SLOTS` from the server at `asked`. A server whose name it does not know is left out.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`](leasehold_core::ErrorKind::Protocol) for another form.
    pub(crate) fn read(answer: &Value, asked: &Address) -> Result<Self> {
        let wrong = || error::unexpected("to CLUSTER SLOTS");
        let Value::Array(ranges) = answer else { return Err(wrong()) };
        let mut map = Self::new();
        for range in ranges {
            let [first, last, primary, replicas @ ..] = parts(range) else { return Err(wrong()) };
            let slots = number(first).zip(number(last)).and_then(|(first, last)| {
                Some(usize::from(HashSlot::new(first)?.0)..=usize::from(HashSlot::new(last)?.0))
            });
            let (slots, primary) = slots.zip(node(primary, asked)).ok_or_else(wrong)?;
            let Some(primary) = primary else { continue };
            let shard = map.shard_of(primary);
            for replica in replicas {
                let replica = node(replica, asked).ok_or_else(wrong)?;
                map.shards[usize::from(shard)].replicas.extend(replica);
            }
            for slot in slots {
                map.owners[slot] = Some(shard);
            }
        }
        Ok(map)
    }

    /// The server that has a slot.
    pub(crate) fn owner(&self, slot: HashSlot) -> Option<&Address> {
        let shard = self.owners[usize::from(slot.0)]?;
        Some(&self.shards[usize::from(shard)].primary)
    }

    /// The slots of the server at `address`.
    pub(crate) fn slots_of(&self, address: &Address) -> SlotRanges {
        let mut ranges = SlotRanges::default();
        for slot in (0..HashSlot::COUNT).map(|slot| HashSlot(slot as u16)) {
            if self.owner(slot) == Some(address) {
                ranges.push(slot.0);
            }
        }
        ranges
    }

    /// A server has said that another one has a slot.
    pub(crate) fn moved(&mut self, slot: HashSlot, to: Address) {
        self.owners[usize::from(slot.0)] = Some(self.shard_of(to));
    }

    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// How many slots no server has.
    pub(crate) fn uncovered(&self) -> usize {
        self.owners.iter().filter(|owner| owner.is_none()).count()
    }

    /// The index of the shard with that primary.
    fn shard_of(&mut self, primary: Address) -> u16 {
        let known = self.shards.iter().position(|shard| shard.primary == primary);
        let index = known.unwrap_or_else(|| {
            self.shards.push(Shard { primary, replicas: BTreeSet::new() });
            self.shards.len() - 1
        });
        // There are not more of them than slots.
        index as u16
    }
}

/// Where a server of an answer is: no address if the answering server does not know that; `None` for another form.
fn node(node: &Value, asked: &Address) -> Option<Option<Address>> {
    let [endpoint, port, ..] = parts(node) else { return None };
    let port = u16::try_from(number(port)?).ok().filter(|port| *port > 0)?;
    match endpoint {
        Value::Nil => Some(address("", port, asked)),
        named => Some(address(text(named)?, port, asked)),
    }
}

/// The address of `host` and `port`, as the server at `asked` names it: empty for its own host, `?` for one that it does not
/// know.
pub(super) fn address(host: &str, port: u16, asked: &Address) -> Option<Address> {
    match (host, asked) {
        _ if port == 0 => None,
        ("?", _) | ("", Address::Unix(_)) => None,
        ("", Address::Tcp { host, .. }) => Some(Address::Tcp { host: host.clone(), port }),
        (host, _) => Some(Address::Tcp { host: host.to_owned(), port }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::ErrorKind;

    fn at(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    /// Slots are those that a server counts (CLUSTER KEYSLOT), also of keys with odd braces.
    #[test]
    fn slots_of_keys_are_the_servers() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (key, slot) in [
            ("foo", 12182),
            ("{foo}", 12182),
            ("leasehold:{foo}:q", 12182),
            ("a{foo}b{bar}", 12182),
            ("}a{foo}", 12182),
            ("{{foo}}", HashSlot::of("{foo").0),
            ("", 0),
        ] {
            assert_eq!(HashSlot::of(key), HashSlot(slot), "{key}");
        }
        // Of these all counts.
        for key in ["a{}{foo}", "{", "{}", "a{b", "a}b{"] {
            assert_eq!(HashSlot::of(key).0, crc16(key.as_bytes()) % 16_384, "{key}");
        }
    }

    fn answer(resp: &str) -> Value {
        redis::parse_redis_value(resp.replace(' ', "\r\n").as_bytes()).unwrap()
    }

    /// Whatever form of endpoint a server prefers, the addresses are those that clients use.
    #[test]
    fn every_form_of_endpoint_is_read() {
        let asked = at("10.0.0.1", 7000);
        for (endpoint, host) in [
            ("$8 10.0.0.2", Some("10.0.0.2")),
            ("$5 r2.io", Some("r2.io")),
            ("$-1", Some("10.0.0.1")),
            ("_", Some("10.0.0.1")),
            ("$0 ", Some("10.0.0.1")),
            ("$1 ?", None),
        ] {
            let resp = format!("*1 *4 :0 :16383 *4 {endpoint} :7001 $2 id *0 *4 $4 r.io :7002 $2 id *0 ");
            let map = SlotMap::read(&answer(&resp), &asked).unwrap();
            assert_eq!(
                map.owner(HashSlot::of("foo")),
                host.map(|host| at(host, 7001)).as_ref(),
                "{endpoint}"
            );
            let replicas: Vec<_> = map.shards().iter().flat_map(|shard| shard.replicas.clone()).collect();
            assert_eq!(replicas, if host.is_some() { vec![at("r.io", 7002)] } else { vec![] });
            assert_eq!(map.uncovered(), if host.is_some() { 0 } else { HashSlot::COUNT });
        }
    }

    /// A slot is where it was said last; one that no server has is nowhere.
    #[test]
    fn moved_slot_is_at_its_new_owner() {
        let resp = "*2 *3 :0 :5000 *2 $1 a :1 *3 :5002 :16383 *2 $1 b :1 ";
        let mut map = SlotMap::read(&answer(resp), &at("a", 1)).unwrap();
        assert_eq!(map.uncovered(), 1);
        let owners = [HashSlot(5000), HashSlot(5001), HashSlot(5002)].map(|slot| map.owner(slot).cloned());
        assert_eq!(owners, [Some(at("a", 1)), None, Some(at("b", 1))]);
        map.moved(HashSlot(5001), at("c", 1));
        map.moved(HashSlot(5000), at("b", 1));
        assert_eq!(map.owner(HashSlot(5001)), Some(&at("c", 1)));
        assert_eq!(map.owner(HashSlot(5000)), Some(&at("b", 1)));
        assert_eq!((map.shards().len(), map.uncovered()), (3, 0));
    }

    /// Bytes that are no answer to CLUSTER SLOTS are refused, and nothing panics.
    #[test]
    fn other_forms_are_refused() {
        for resp in [
            "+OK ",
            "*1 :1 ",
            "*1 *2 :0 :1 ",
            "*1 *3 :0 :16384 *2 $1 a :1 ",
            "*1 *3 :-1 :1 *2 $1 a :1 ",
            "*1 *3 :0 :1 *2 $1 a :0 ",
            "*1 *3 :0 :1 *2 $1 a :65536 ",
            "*1 *3 :0 :1 *1 $1 a ",
            "*1 *3 :0 :1 *2 :7 :1 ",
            "*1 *4 :0 :1 *2 $1 a :1 :3 ",
        ] {
            let refused = SlotMap::read(&answer(resp), &at("a", 1)).unwrap_err();
            assert_eq!(*refused.kind(), ErrorKind::Protocol, "{resp}");
        }
        assert!(SlotMap::read(&answer("*0 "), &at("a", 1)).unwrap().owner(HashSlot(0)).is_none());
    }
}
