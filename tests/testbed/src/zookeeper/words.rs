//! Reads the answers to ZooKeeper's four-letter words.

use std::collections::BTreeMap;

/// As what a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// One of several that follow a leader.
    Follower,
    /// The one the others follow.
    Leader,
    /// The only one.
    Standalone,
}

/// What a server has counted.
#[derive(Clone, Debug)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// A counter by its name in `mntr`, the `zk_` before it left out.
    #[track_caller]
    pub fn get(&self, name: &str) -> u64 {
        *self.0.get(name).unwrap_or_else(|| panic!("this server has no counter {name:?}"))
    }
}

/// A client's connection, as the server counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connection {
    /// Where the client is.
    pub client: String,
    /// Its session.
    pub session: i64,
    /// Packets received, pings included.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// The number its client gave to the last request that is no ping: clients count from 1, so it
    /// is how many requests the session has made.
    pub requests: u64,
}

pub(super) fn role(srvr: &str) -> Option<Role> {
    let mode = srvr.lines().find_map(|line| line.strip_prefix("Mode: "))?;
    match mode.trim() {
        "follower" => Some(Role::Follower),
        "leader" => Some(Role::Leader),
        "standalone" => Some(Role::Standalone),
        _ => None,
    }
}

pub(super) fn counters(mntr: &str) -> Counters {
    let counter = |line: &str| {
        let (name, value) = line.strip_prefix("zk_")?.split_once('\t')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    Counters(mntr.lines().filter_map(counter).collect())
}

pub(super) fn connections(cons: &str) -> Vec<Connection> {
    cons.lines().filter_map(connection).collect()
}

/// ` /127.0.0.1:49386[1](queued=0,recved=12,sent=12,sid=0x1000…,lop=PING,…,lcxid=0x9,…)`; who asked
/// is listed, too, without a session.
fn connection(line: &str) -> Option<Connection> {
    let (client, rest) = line.trim().strip_prefix('/')?.split_once('[')?;
    let (_, rest) = rest.split_once('(')?;
    let fields: BTreeMap<&str, &str> =
        rest.trim_end_matches(')').split(',').filter_map(|field| field.split_once('=')).collect();
    let number = |name| fields.get(name)?.parse().ok();
    Some(Connection {
        client: client.to_owned(),
        session: hex(fields.get("sid")?)?,
        received: number("recved")?,
        sent: number("sent")?,
        // Absent until the first request, or the mark of one that has no number.
        requests: fields
            .get("lcxid")
            .and_then(|xid| hex(xid))
            .and_then(|xid| xid.try_into().ok())
            .unwrap_or(0),
    })
}

/// Sessions, each on a line with a colon, and below it their nodes, indented.
pub(super) fn ephemerals(dump: &str) -> BTreeMap<i64, Vec<String>> {
    let (_, dump) = dump.split_once("Sessions with Ephemerals").unwrap_or_default();
    let mut sessions: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    let mut session = None;
    for line in dump.lines().skip(1) {
        if let Some(node) = line.strip_prefix('\t') {
            if let Some(session) = session {
                sessions.entry(session).or_default().push(node.to_owned());
            }
        } else {
            session = line.strip_suffix(':').and_then(hex);
        }
    }
    sessions
}

fn hex(text: &str) -> Option<i64> {
    let bits = u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
    Some(bits.cast_signed())
}
