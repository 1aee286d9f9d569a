//! The status of a server, and why it refuses a connection, by connections next to the client library's.
//!
//! The client library only logs why no session can be opened. So it is found out here which servers refuse the connection,
//! and which refuse TLS. A refusal of TLS by one side's certificate is final, so a manager that starts with the wrong one
//! fails at once.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::backend::Endpoint;
use leasehold_core::{Env, Error, ErrorKind, Tls};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::either::Either;

use crate::config::{Certificates, Servers};

/// Requests a server's status, in the encoding of sessions.
pub(crate) async fn of_server(servers: &Servers, server: &Endpoint) -> io::Result<String> {
    let mut stream = servers.dial(server.host(), (server.host(), server.port())).await?;
    stream.write_all(b"srvr").await?;
    let mut said = Vec::new();
    // A server may close without a farewell.
    match stream.take(STATUS_BYTES).read_to_end(&mut said).await {
        Err(error) if said.is_empty() => Err(error),
        _ => Ok(String::from_utf8_lossy(&said).into_owned()),
    }
}

/// Every address of a server's name, each once.
pub(crate) async fn addresses(server: &Endpoint) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<_> = tokio::net::lookup_host((server.host(), server.port())).await?.collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// Why no session can be opened, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Reasons(Mutex<String>);

impl Reasons {
    /// The same error with the last answer of each server as its cause; with `advice` if none answered.
    pub(crate) fn explain(&self, message: String, advice: &str) -> Error {
        let said = self.0.lock().clone();
        if said.is_empty() {
            return Error::not_applied(ErrorKind::Unavailable, format!("{message}: {advice}"));
        }
        Error::not_applied(ErrorKind::Unavailable, message).with_source(said)
    }

    /// Ends when all servers have refused TLS for good, at every address of theirs, twice in a row. They are tried when opening
    /// takes long. If there `was_a_session` it never ends: then a certificate is being exchanged, and the configuration has no
    /// mistake.
    pub(crate) async fn refusal(&self, servers: &Servers, env: &Env, was_a_session: bool) -> Error {
        let pause = PAUSE.min(env.timing().connect_timeout / 8);
        let mut was_refused = false;
        loop {
            env.sleep(pause).await;
            let asked = servers.all.iter().map(|server| async move {
                match addresses(server).await {
                    Ok(addresses) => ask(servers, env, server.host(), &addresses).await,
                    Err(error) => {
                        let (place, why) = (server.to_string(), error.to_string());
                        vec![Some(Failed { is_final: false, place, why })]
                    }
                }
            });
            let tried = join_all(asked).await.concat();
            let said = told(&tried);
            let is_refused = are_final(&tried);
            if is_refused && was_refused && !was_a_session {
                return Error::not_applied(ErrorKind::Denied, "cannot connect: TLS was refused")
                    .with_source(said);
            }
            was_refused = is_refused;
            *self.0.lock() = said;
        }
    }
}

/// Why one address cannot be used.
#[derive(Clone, Debug)]
struct Failed {
    is_final: bool,
    place: String,
    why: String,
}

/// Why no address can be used; once if it is the same everywhere, as the error names the servers.
fn told(tried: &[Option<Failed>]) -> String {
    let failed: Vec<_> = tried.iter().flatten().collect();
    match failed.first() {
        Some(first) if failed.len() == tried.len() && failed.iter().all(|other| other.why == first.why) => {
            first.why.clone()
        }
        _ => failed
            .iter()
            .map(|Failed { place, why, .. }| format!("{place}: {why}"))
            .collect::<Vec<_>>()
            .join("; "),
    }
}

/// Whether every address has refused us for good.
fn are_final(tried: &[Option<Failed>]) -> bool {
    !tried.is_empty() && tried.iter().all(|tried| tried.as_ref().is_some_and(|failed| failed.is_final))
}

/// Shakes hands at every address of a name. A slow server has not refused the connection.
async fn ask(servers: &Servers, env: &Env, host: &str, addresses: &[SocketAddr]) -> Vec<Option<Failed>> {
    let asked = addresses.iter().map(|address| async move {
        let handshake = handshake(servers, env, host, *address);
        let error = env.within(env.timing().connect_timeout / 2, handshake).await?.err()?;
        let at = if addresses.len() > 1 { format!(" at {}", address.ip()) } else { String::new() };
        Some(Failed {
            is_final: Certificates::are_refused(&error),
            place: format!("{host}:{}{at}", address.port()),
            why: Tls::in_words(&error.to_string()),
        })
    });
    join_all(asked).await
}

/// Shakes hands with a server, and waits for a late refusal: it reads our certificate after we have accepted its own.
async fn handshake(servers: &Servers, env: &Env, host: &str, address: SocketAddr) -> io::Result<()> {
    let Either::Right(mut stream) = servers.dial(host, address).await? else {
        return Ok(());
    };
    // It sends nothing before a request.
    env.within(PAUSE, stream.read_u8()).await.map_or(Ok(()), |read| read.map(drop))
}

/// How long a normal opening takes at most, and how long a server takes to refuse a certificate.
const PAUSE: Duration = Duration::from_millis(500);
const STATUS_BYTES: u64 = 16 * 1024;

#[cfg(feature = "tls")]
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::Timing;
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::ZkConfig;

    /// Answers one hello after the other.
    async fn serve(listener: &TcpListener, answers: &[&[u8]]) {
        for answer in answers {
            let (mut client, _) = listener.accept().await.unwrap();
            let _ = client.read_u8().await;
            let _ = client.write_all(answer).await;
        }
    }

    /// Where TLS is to be spoken, so that a whole round takes little.
    fn stage(address: SocketAddr) -> (Servers, Env) {
        let certificates = testbed::Certificates::new("client").unwrap();
        let authority = std::fs::read(certificates.authority()).unwrap();
        let mut timing = Timing::for_ttl(Duration::from_secs(3));
        timing.connect_timeout = Duration::from_millis(800);
        let config = ZkConfig::new([address.to_string()]).tls(Tls::new().ca(authority));
        (config.servers().unwrap(), Env::new(timing).unwrap())
    }

    /// One address of a name that may take us keeps the refusals of the others from being final.
    #[tokio::test]
    async fn every_address_of_a_name_is_asked() {
        let (refusing, silent) = (
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        );
        let (bad, good) = (refusing.local_addr().unwrap(), silent.local_addr().unwrap());
        let (servers, env) = stage(bad);
        for (addresses, refused) in
            [(vec![bad, bad], true), (vec![bad, good], false), (vec![good, bad], false)]
        {
            let answers = vec![REFUSAL; addresses.iter().filter(|address| **address == bad).count()];
            let (tried, ()) =
                tokio::join!(ask(&servers, &env, "127.0.0.1", &addresses), serve(&refusing, &answers));
            assert_eq!(are_final(&tried), refused, "{tried:?}");
            assert!(
                tried.iter().flatten().all(|failed| failed.place.ends_with(" at 127.0.0.1")),
                "{tried:?}"
            );
        }
        assert!(!are_final(&[]));
    }

    /// A finding of all servers is reported once; one of some, with their names.
    #[test]
    fn reasons_are_grouped() {
        let failed = |place: &str, why: &str| {
            Some(Failed { is_final: false, place: place.to_owned(), why: why.to_owned() })
        };
        let (a, b, c) = (failed("a:1", "refused"), failed("b:1", "refused"), failed("c:1", "reset"));
        for (tried, words) in [
            (vec![], ""),
            (vec![None], ""),
            (vec![a.clone()], "refused"),
            (vec![a.clone(), b.clone()], "refused"),
            (vec![a.clone(), None], "a:1: refused"),
            (vec![a, b, c], "a:1: refused; b:1: refused; c:1: reset"),
        ] {
            assert_eq!(told(&tried), words);
        }
    }

    /// A refusal is final when it comes twice in a row, and as long as there never was a session.
    #[tokio::test]
    async fn a_refusal_is_final_the_second_time() {
        const GARBAGE: &[u8] = b"HTTP/1.1 400 Bad Request";
        for (was_a_session, answers, ends) in [
            (false, [REFUSAL, REFUSAL, REFUSAL, REFUSAL], Some(2)),
            (false, [REFUSAL, GARBAGE, REFUSAL, GARBAGE], None),
            (false, [GARBAGE, REFUSAL, GARBAGE, REFUSAL], None),
            (true, [REFUSAL, REFUSAL, REFUSAL, REFUSAL], None),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (servers, env) = stage(listener.local_addr().unwrap());
            let (reasons, served) = (Reasons::default(), std::cell::Cell::new(0));
            let serving = async {
                for answer in answers {
                    serve(&listener, &[answer]).await;
                    served.set(served.get() + 1);
                }
                // The next request shows that the last reply was received.
                listener.accept().await.map(drop).unwrap();
            };
            tokio::select! {
                biased;
                refusal = reasons.refusal(&servers, &env, was_a_session) => {
                    assert_eq!(*refusal.kind(), ErrorKind::Denied);
                    assert_eq!(Some(served.get()), ends, "{refusal:?}");
                }
                () = serving => assert_eq!(ends, None, "{reasons:?}"),
            }
        }
    }

    /// An alert, fatal: the handshake failed.
    const REFUSAL: &[u8] = &[0x15, 3, 3, 0, 2, 2, 40];
}
