//! What a server says to a connection of its own: about itself, and why it does not take ours.
//!
//! The client library keeps to its log why no session can be opened. TLS is refused for good, by one
//! side's certificate, so whoever waits for a session has to hear it, and at once.

use std::io;
use std::time::Duration;

use futures_util::future::join_all;
use lockcore::{Env, Error, ErrorKind};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::config::ZkConfig;

/// Asks a server for its status, in the encoding of sessions.
pub(crate) async fn of_server(config: &ZkConfig, host: &str, port: u16) -> io::Result<String> {
    let stream = TcpStream::connect((host, port)).await?;
    match config.handshakes() {
        None => status(stream).await,
        Some(tls) => status(tls.connect(name(host)?, stream).await?).await,
    }
}

async fn status(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<String> {
    stream.write_all(b"srvr").await?;
    let mut said = Vec::new();
    // A server may close without a farewell.
    match stream.take(STATUS_BYTES).read_to_end(&mut said).await {
        Err(error) if said.is_empty() => Err(error),
        _ => Ok(String::from_utf8_lossy(&said).into_owned()),
    }
}

/// Why no session can be opened, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Reasons(Mutex<String>);

impl Reasons {
    /// What each server said last, to be put behind a sentence.
    pub(crate) fn said(&self) -> String {
        self.0.lock().clone()
    }

    /// Ends when all servers have refused TLS for good. They are asked when opening takes long.
    pub(crate) async fn refusal(&self, config: &ZkConfig, env: &Env) -> Error {
        let pause = PAUSE.min(env.timing().connect_timeout / 8);
        loop {
            env.sleep(pause).await;
            if !config.is_encrypted() {
                std::future::pending::<()>().await;
            }
            let servers = config.endpoints().unwrap_or_default();
            let tried = join_all(servers.iter().map(|(host, port)| async move {
                let tried = tokio::select! {
                    biased;
                    tried = handshake(config, host, *port, env) => tried,
                    () = env.sleep(env.timing().connect_timeout / 2) => Ok(()),
                };
                tried.err().map(|error| (is_final(&error), format!("{host}:{port}: {error}")))
            }))
            .await;
            let failed: Vec<_> = tried.iter().flatten().collect();
            let said = failed.iter().map(|(_, said)| said.as_str()).collect::<Vec<_>>().join("; ");
            if failed.len() == tried.len() && failed.iter().all(|(is_final, _)| *is_final) {
                return Error::not_applied(ErrorKind::Denied, format!("TLS is refused by {said}"));
            }
            *self.0.lock() = if said.is_empty() { said } else { format!("; {said}") };
        }
    }
}

/// Shakes hands with a server, and waits for its second thoughts: it reads our certificate after we have
/// taken its own.
async fn handshake(config: &ZkConfig, host: &str, port: u16, env: &Env) -> io::Result<()> {
    let Some(tls) = config.handshakes() else {
        return Ok(());
    };
    let stream = TcpStream::connect((host, port)).await?;
    let mut stream = tls.connect(name(host)?, stream).await?;
    tokio::select! {
        biased;
        // It has nothing to say before it is asked.
        read = stream.read_u8() => read.map(drop),
        () = env.sleep(PAUSE) => Ok(()),
    }
}

fn name(host: &str) -> io::Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).map_err(io::Error::other)
}

/// Whether one side did not take the other's certificate, or its protocol.
fn is_final(error: &io::Error) -> bool {
    use rustls::{AlertDescription as Alert, Error as TlsError};
    match error.get_ref().and_then(|source| source.downcast_ref::<TlsError>()) {
        Some(TlsError::AlertReceived(alert)) => {
            !matches!(alert, Alert::InternalError | Alert::UserCanceled | Alert::CloseNotify)
        }
        Some(
            TlsError::InvalidCertificate(_)
            | TlsError::InvalidCertRevocationList(_)
            | TlsError::NoCertificatesPresented
            | TlsError::UnsupportedNameType
            | TlsError::PeerIncompatible(_)
            | TlsError::InvalidMessage(_),
        ) => true,
        _ => false,
    }
}

/// How long a normal opening takes at most, and how long a server thinks about a certificate.
const PAUSE: Duration = Duration::from_millis(500);
const STATUS_BYTES: u64 = 16 * 1024;
