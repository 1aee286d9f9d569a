//! How many requests a server was asked, by its own count.
//!
//! | server | what counts |
//! |---|---|
//! | Redis | `MONITOR`, which tells a client's commands from those that a script calls; `INFO commandstats` adds them up |
//! | etcd | `grpc_server_msg_received_total` of `/metrics` |
//! | ZooKeeper | the number of the last request of each session, pings left out |

use std::collections::BTreeMap;

use testbed::{etcd, redis, zookeeper};
use tokio::task::JoinSet;

use super::Server;
use crate::error::{Error, Result};

/// A count that has begun. Nothing is timed meanwhile: counting slows Redis down.
#[derive(Debug)]
pub(crate) enum Counting<'a> {
    Redis { server: &'a redis::Server, listener: JoinSet<u64> },
    Etcd { server: &'a etcd::Etcd, before: etcd::Requests },
    Zk { server: &'a zookeeper::Server, before: BTreeMap<i64, u64> },
}

impl<'a> Counting<'a> {
    pub(super) async fn begin(server: &'a Server) -> Option<Self> {
        match server {
            Server::Foreign => None,
            Server::Redis(server) => {
                let mut client = server.client().await.ok()?;
                client.command(&["MONITOR"]).await.ok()?;
                let mut listener = JoinSet::new();
                listener.spawn(listen(client));
                Some(Self::Redis { server, listener })
            }
            Server::Etcd(server) => Some(Self::Etcd { server, before: server.requests().await.ok()? }),
            Server::Zk(server) => Some(Self::Zk { server, before: by_session(server).await.ok()? }),
        }
    }

    /// Ends the count.
    pub(crate) async fn end(self) -> Result<u64> {
        const DOING: &str = "asking the server for its count";
        match self {
            Self::Redis { server, mut listener } => {
                server.command(&["ECHO", LAST]).await.map_err(Error::during(DOING))?;
                let counted = listener.join_next().await.and_then(std::result::Result::ok);
                counted.ok_or_else(|| Error::new("the server stopped telling what it is asked"))
            }
            Self::Etcd { server, before } => {
                let after = server.requests().await.map_err(Error::during(DOING))?;
                Ok((after - &before).total())
            }
            Self::Zk { server, before } => {
                let after = by_session(server).await.map_err(Error::during(DOING))?;
                let new =
                    |(session, asked): (&i64, &u64)| asked - before.get(session).unwrap_or(&0).min(asked);
                Ok(after.iter().map(new).sum())
            }
        }
    }
}

/// Counts until the mark is told.
async fn listen(mut client: redis::Client) -> u64 {
    let mut requests = 0;
    while let Ok(told) = client.reply().await {
        let told = told.text().unwrap_or_default();
        if told.contains(LAST) {
            break;
        }
        requests += u64::from(is_request(&told));
    }
    requests
}

/// `1700000000.123456 [0 127.0.0.1:6379] "get" "k"`, and `[0 lua]` for what a script calls.
fn is_request(told: &str) -> bool {
    told.split(['[', ']']).nth(1).is_some_and(|origin| !origin.ends_with(" lua"))
}

async fn by_session(server: &zookeeper::Server) -> std::io::Result<BTreeMap<i64, u64>> {
    let connections = server.connections().await?;
    Ok(connections.iter().map(|connection| (connection.session, connection.requests)).collect())
}

/// Ends a count.
const LAST: &str = "leasehold-compare-end-of-count";

#[cfg(test)]
mod tests {
    use super::*;

    /// A script is one request, whatever it calls.
    #[test]
    fn what_a_script_calls_is_no_request() {
        assert!(is_request(r#"1700000000.1 [0 127.0.0.1:1] "evalsha" "x" "[0 lua]""#));
        assert!(!is_request(r#"1700000000.1 [0 lua] "set" "k" "v""#));
        assert!(!is_request("OK"));
    }
}
