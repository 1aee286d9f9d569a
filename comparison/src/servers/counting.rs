//! What a server was asked and what it has sent, by its own count.
//!
//! | server | requests | messages sent | bytes both ways |
//! |---|---|---|---|
//! | Redis | `MONITOR`, which tells a client's commands from those that a script calls | not told | `total_net_…_bytes` of `INFO`, less what the count itself took |
//! | etcd | `grpc_server_msg_received_total` of `/metrics`, keep-alives of leases apart | `…_sent_total` | `etcd_network_client_grpc_…_bytes_total` |
//! | Postgres | `calls` of `pg_stat_statements`, renewals of our sessions apart | not told | not told |
//! | ZooKeeper | the number of the last request of each session, pings left out | packets sent to each session, as many pings left out | not told |
//!
//! What a release tells those who wait is no request: whoever counts requests alone takes a herd for silence.

use std::collections::BTreeMap;
use std::io;

use futures_util::future::try_join_all;
use testbed::{etcd, postgres, redis, zookeeper};
use tokio::task::JoinSet;

use super::Server;
use crate::error::{Error, Result};

/// A count that has begun. Nothing is timed meanwhile: counting slows Redis down.
#[derive(Debug)]
pub(crate) enum Counting<'a> {
    /// Each of them.
    Redis(Vec<Listening<'a>>),
    Etcd {
        server: &'a etcd::Etcd,
        before: Vec<etcd::Metrics>,
    },
    Postgres {
        server: &'a postgres::Server,
        before: Counted,
    },
    Zk {
        servers: &'a [zookeeper::Server],
        before: BTreeMap<i64, Packets>,
    },
}

/// What was counted; what is not told is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Renewals of sessions and pings left out: they go by the clock and not by the cycle.
    pub(crate) requests: u64,
    /// Such renewals.
    pub(crate) renewals: u64,
    /// Answers and whatever else the server sent.
    pub(crate) messages: Option<u64>,
    /// Both ways.
    pub(crate) bytes: Option<u64>,
}

impl Counted {
    pub(crate) fn asked_in_all(self) -> u64 {
        self.requests + self.renewals
    }

    /// Of both.
    fn and(self, other: Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a.unwrap_or(0) + b?);
        Self {
            requests: self.requests + other.requests,
            renewals: self.renewals + other.renewals,
            messages: sum(self.messages, other.messages),
            bytes: sum(self.bytes, other.bytes),
        }
    }
}

/// To one Redis.
#[derive(Debug)]
pub(crate) struct Listening<'a> {
    server: &'a redis::Server,
    before: Bytes,
    listener: JoinSet<Heard>,
}

/// Of one session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Packets {
    requests: u64,
    received: u64,
    sent: u64,
}

/// What Redis has received and sent, and the size of the answer that told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bytes {
    total: u64,
    answer: u64,
}

/// What was told to a listener.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heard {
    requests: u64,
    bytes: u64,
}

impl<'a> Counting<'a> {
    pub(super) async fn begin(server: &'a Server) -> Option<Self> {
        match server {
            Server::Foreign => None,
            Server::Redis(_) | Server::Watched(..) | Server::Cluster(_) => {
                let mut all = Vec::new();
                for server in server.redis() {
                    all.push(Listening::begin(server).await?);
                }
                Some(Self::Redis(all))
            }
            Server::Etcd(server) => Some(Self::Etcd { server, before: of_members(server).await.ok()? }),
            Server::Postgres(server) => {
                Some(Self::Postgres { server, before: of_statements(server).await.ok()? })
            }
            Server::Zk(servers) => Some(Self::Zk { servers, before: by_session(servers).await.ok()? }),
        }
    }

    /// Ends the count.
    pub(crate) async fn end(self) -> Result<Counted> {
        const DOING: &str = "asking the server for its count";
        match self {
            Self::Redis(all) => {
                let (mut requests, mut bytes) = (0, Some(0));
                for listening in all {
                    let counted = listening.end().await.map_err(Error::during(DOING))?;
                    requests += counted.requests;
                    bytes = bytes.zip(counted.bytes).map(|(sum, bytes)| sum + bytes);
                }
                Ok(Counted { requests, bytes, ..Counted::default() })
            }
            Self::Etcd { server, before } => {
                let after = of_members(server).await.map_err(Error::during(DOING))?;
                let all = before.iter().zip(&after).map(|(before, after)| of_etcd(before, after));
                Ok(all.fold(Counted::default(), Counted::and))
            }
            Self::Postgres { server, before } => {
                let after = of_statements(server).await.map_err(Error::during(DOING))?;
                let (requests, renewals) =
                    (after.requests - before.requests, after.renewals - before.renewals);
                Ok(Counted { requests, renewals, ..Counted::default() })
            }
            Self::Zk { servers, before } => {
                let after = by_session(servers).await.map_err(Error::during(DOING))?;
                Ok(of_zookeeper(&before, &after))
            }
        }
    }
}

impl<'a> Listening<'a> {
    async fn begin(server: &'a redis::Server) -> Option<Self> {
        let before = bytes(server).await?;
        let mut client = server.client().await.ok()?;
        client.command(&["MONITOR"]).await.ok()?;
        let mut listener = JoinSet::new();
        listener.spawn(listen(client));
        Some(Self { server, before, listener })
    }

    async fn end(self) -> io::Result<Counted> {
        let Self { server, before, mut listener } = self;
        server.command(&["ECHO", LAST]).await?;
        let counted = listener.join_next().await.and_then(std::result::Result::ok);
        let heard = counted.ok_or_else(|| io::Error::other("the server stopped telling what it is asked"))?;
        let after = bytes(server).await;
        let taken = before.answer + heard.bytes;
        let bytes = after.map(|after| (after.total - before.total).saturating_sub(taken));
        Ok(Counted { requests: heard.requests, bytes, ..Counted::default() })
    }
}

/// Less the keep-alives of leases, which are a stream of their own.
fn of_etcd(before: &etcd::Metrics, after: &etcd::Metrics) -> Counted {
    const RENEWAL: &str = "LeaseKeepAlive";
    let since = |name: &str, label: &str| whole(after.sum(name, label) - before.sum(name, label));
    let asked = after.requests() - &before.requests();
    let renewals = asked.of(RENEWAL);
    let sent = since("grpc_server_msg_sent_total", "");
    let renewed = since("grpc_server_msg_sent_total", RENEWAL);
    let bytes =
        ["received", "sent"].map(|way| since(&format!("etcd_network_client_grpc_{way}_bytes_total"), ""));
    Counted {
        requests: asked.total() - renewals,
        renewals,
        messages: Some(sent.saturating_sub(renewed)),
        bytes: Some(bytes.iter().sum()),
    }
}

/// Pings are what was received and has no number; each was answered.
fn of_zookeeper(before: &BTreeMap<i64, Packets>, after: &BTreeMap<i64, Packets>) -> Counted {
    let (mut requests, mut messages) = (0, 0);
    for (session, after) in after {
        let before = before.get(session).copied().unwrap_or_default();
        let asked = after.requests.saturating_sub(before.requests);
        let pings = after.received.saturating_sub(before.received).saturating_sub(asked);
        requests += asked;
        messages += after.sent.saturating_sub(before.sent).saturating_sub(pings);
    }
    Counted { requests, messages: Some(messages), ..Counted::default() }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number, not negative")]
fn whole(value: f64) -> u64 {
    value.max(0.0) as u64
}

async fn bytes(server: &redis::Server) -> Option<Bytes> {
    let text = server.command(&["INFO", "stats"]).await.ok()?.text()?;
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|value| value.trim().parse::<u64>().ok())
    };
    let total = field("total_net_input_bytes:")? + field("total_net_output_bytes:")?;
    Some(Bytes { total, answer: text.len() as u64 })
}

/// Counts until the mark is told.
async fn listen(mut client: redis::Client) -> Heard {
    // A sign before each line, and its end.
    const AROUND: u64 = 3;
    let mut heard = Heard::default();
    while let Ok(told) = client.reply().await {
        let told = told.text().unwrap_or_default();
        heard.bytes += told.len() as u64 + AROUND;
        if told.contains(LAST) {
            break;
        }
        heard.requests += u64::from(is_request(&told));
    }
    heard
}

/// `1700000000.123456 [0 127.0.0.1:6379] "get" "k"`, and `[0 lua]` for what a script calls.
fn is_request(told: &str) -> bool {
    told.split(['[', ']']).nth(1).is_some_and(|origin| !origin.ends_with(" lua"))
}

async fn of_members(server: &etcd::Etcd) -> io::Result<Vec<etcd::Metrics>> {
    try_join_all((0..server.size()).map(|member| server.metrics(member))).await
}

/// All statements but the count itself.
async fn of_statements(server: &postgres::Server) -> io::Result<Counted> {
    let counted = "SELECT coalesce(sum(calls) FILTER (WHERE NOT renews), 0), coalesce(sum(calls) FILTER (WHERE renews), 0) \
                   FROM (SELECT calls, query LIKE '%.renew(%' AS renews FROM pg_stat_statements \
                   WHERE query NOT LIKE '%pg_stat_statements%') counted";
    let told = server.sql(counted).await?;
    let counts = told.split_once('|').and_then(|(requests, renewals)| {
        Some(Counted {
            requests: requests.parse().ok()?,
            renewals: renewals.parse().ok()?,
            ..Counted::default()
        })
    });
    counts.ok_or_else(|| io::Error::other(format!("no counts: {told}")))
}

async fn by_session(servers: &[zookeeper::Server]) -> io::Result<BTreeMap<i64, Packets>> {
    let connections = try_join_all(servers.iter().map(zookeeper::Server::connections)).await?.concat();
    let packets = |connection: &zookeeper::Connection| {
        let zookeeper::Connection { session, requests, received, sent, .. } = *connection;
        (session, Packets { requests, received, sent })
    };
    Ok(connections.iter().map(packets).collect())
}

/// Ends a count.
const LAST: &str = "leasehold-compare-end-of-count";

#[cfg(test)]
mod tests {
    use super::*;

    /// A script is one request, whatever it calls.
    #[test]
    fn calls_inside_a_script_are_not_counted() {
        assert!(is_request(r#"1700000000.1 [0 127.0.0.1:1] "evalsha" "x" "[0 lua]""#));
        assert!(!is_request(r#"1700000000.1 [0 lua] "set" "k" "v""#));
        assert!(!is_request("OK"));
    }

    /// Events that a server sends to those who wait count, and what keeps sessions alive does not.
    #[test]
    fn message_to_waiters_is_counted() {
        let packets = |requests, received, sent| Packets { requests, received, sent };
        let before = BTreeMap::from([(1, packets(10, 12, 12)), (2, packets(5, 5, 5))]);
        // Two requests, a ping, and an event; a new session with a request.
        let after = BTreeMap::from([(1, packets(12, 15, 16)), (2, packets(5, 5, 8)), (3, packets(1, 1, 1))]);
        let counted = of_zookeeper(&before, &after);
        assert_eq!((counted.requests, counted.messages), (3, Some(7)));
    }
}
