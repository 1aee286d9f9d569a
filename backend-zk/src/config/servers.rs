//! The servers of an ensemble, and how they are spoken to.

use std::fmt;
use std::time::Duration;

use leasehold_core::backend::{Credentials, Endpoint};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio_util::either::Either;
use zookeeper_client::{Client, Error as ZkError};

use super::{Certificates, Protected};

/// The addresses, the credentials, and the protection of the connection.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) all: Vec<Endpoint>,
    pub(super) credentials: Option<Credentials>,
    pub(super) tls: Option<Certificates>,
}

impl Servers {
    /// Opens a session of about `timeout` at the server; not bounded here, but so that one server after
    /// the other is tried within `bound`.
    pub(crate) async fn connect(&self, timeout: Duration, bound: Duration) -> Result<Client, ZkError> {
        let silence = silence(timeout, bound, self.all.len());
        let mut connector =
            Client::connector().with_session_timeout(timeout).with_connection_timeout(silence);
        if let Some(Credentials { user, password, .. }) = &self.credentials {
            connector = connector.with_auth("digest", format!("{user}:{password}").as_bytes());
        }
        let servers = self.to_string();
        match &self.tls {
            Some(tls) => tls.open(connector, &servers).await,
            None => connector.connect(&servers).await,
        }
    }

    /// A connection next to the client library's, protected in the same way.
    pub(crate) async fn dial(
        &self,
        host: &str,
        address: impl ToSocketAddrs,
    ) -> std::io::Result<Either<TcpStream, Box<Protected>>> {
        let stream = TcpStream::connect(address).await?;
        let Some(tls) = &self.tls else {
            return Ok(Either::Left(stream));
        };
        Ok(Either::Right(Box::new(tls.shake_hands(host, stream).await?)))
    }

    /// The points to check when no server answers.
    pub(crate) fn advice(&self) -> String {
        let spoken = if self.tls.is_some() { "TLS" } else { "plain text" };
        format!("check that the servers speak {spoken} on these ports and have a quorum")
    }
}

impl fmt::Display for Servers {
    /// As the client library reads them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.all.iter().map(Endpoint::to_string).collect::<Vec<_>>().join(","))
    }
}

/// How long a server may be silent before another one is tried, when opening and later: a quarter of the session, so that a
/// pause does not end the connection, and a silent server leaves time to renew through another. If as many are silent as leave
/// the others a quorum, there is time to open it in `bound`.
fn silence(timeout: Duration, bound: Duration, servers: usize) -> Duration {
    let servers = u32::try_from(servers).unwrap_or(u32::MAX);
    let minority = (servers.saturating_sub(1) / 2).max(u32::from(servers > 1));
    (timeout / 4).min(bound / (minority + 1)).max(SHORTEST_SILENCE)
}

/// A busy server may need so long for an answer.
const SHORTEST_SILENCE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    /// As many silent servers as there may be leave time to open and to renew a session.
    #[test]
    fn silent_servers_leave_time_for_the_others() {
        const SECOND: Duration = Duration::from_secs(1);
        for servers in 2..12 {
            let minority = (servers as u32 - 1) / 2;
            for ttl in [4, 15, 60] {
                let silence = silence(ttl * SECOND, 5 * SECOND, servers);
                assert!(silence * minority.max(1) < 5 * SECOND, "{servers} {ttl}");
                assert!(silence * 4 <= ttl * SECOND, "{servers} {ttl}");
            }
        }
        let of_fifteen = |servers| silence(15 * SECOND, 5 * SECOND, servers).as_millis();
        assert_eq!([1, 2, 3, 5, 9].map(of_fifteen), [3_750, 2_500, 2_500, 1_666, 1_000]);
        assert_eq!(silence(SECOND, SECOND, 3), SHORTEST_SILENCE);
    }
}
