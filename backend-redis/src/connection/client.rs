//! Makes connections, whose replies are [metered](super::meter).

use std::io;
use std::net::SocketAddr;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_ok;
use leasehold_core::backend::{Credentials, Login};
use leasehold_core::{Result, Tls};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpStream, lookup_host};

use super::meter::Metered;
use crate::config::Address;

/// Connects to one server; nothing is sent before that.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    address: Address,
    settings: RedisConnectionInfo,
    #[cfg(feature = "tls")]
    tls: Option<Arc<rustls::ClientConfig>>,
    op_timeout: Duration,
    /// Where the next credentials come from, and for how long these are valid, if they end.
    pub(super) renewal: Option<(Login, Duration)>,
}

impl Client {
    /// A request that the server's host has not confirmed for `op_timeout` ends it.
    ///
    /// # Errors
    ///
    /// `InvalidOption` for certificates that cannot be used.
    pub(crate) fn new(
        address: Address,
        settings: RedisConnectionInfo,
        tls: Option<&Tls>,
        op_timeout: Duration,
    ) -> Result<Self> {
        // A configuration with TLS is refused where there is none.
        #[cfg(not(feature = "tls"))]
        let _ = tls;
        Ok(Self {
            address,
            settings,
            #[cfg(feature = "tls")]
            tls: tls.map(encrypted::configured).transpose()?,
            op_timeout,
            renewal: None,
        })
    }

    /// The same client of the server at another address.
    pub(crate) fn at(&self, address: Address) -> Self {
        Self { address, ..self.clone() }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The same client with the credentials of the next connection.
    ///
    /// # Errors
    ///
    /// As [`Login::ask`].
    pub(super) async fn logging_in(mut self, login: &Login) -> Result<Self> {
        let Credentials { user, password, valid_for } = login.ask().await?;
        self.settings = self.settings.set_username(user).set_password(password);
        self.renewal = valid_for.map(|span| (login.clone(), span));
        Ok(self)
    }

    /// A connection over `stream`, and what reads and writes it, to be polled along.
    pub(crate) async fn connect(
        &self,
        stream: impl Stream + 'static,
        options: AsyncConnectionConfig,
    ) -> RedisResult<(MultiplexedConnection, impl Future<Output = ()> + Send + 'static)> {
        MultiplexedConnection::new_with_config(&self.settings, Metered::new(stream), options).await
    }

    /// Logs in over `stream` as the client crate does, and returns the stream: the server sends nothing more then.
    pub(crate) async fn log_in(&self, mut stream: Box<dyn Stream>) -> RedisResult<Box<dyn Stream>> {
        let (near, mut far) = tokio::io::duplex(4096);
        let options = AsyncConnectionConfig::new().set_response_timeout(None);
        tokio::select! {
            biased;
            broken = copy_bidirectional(&mut stream, &mut far) => {
                broken?;
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            logged_in = self.connect(near, options) => drop(logged_in?),
        }
        Ok(stream)
    }

    /// A stream to the server, and the address that it leads to; to `same` address, if that is given: a name may have several.
    pub(crate) async fn dial(
        &self,
        same: Option<SocketAddr>,
    ) -> io::Result<(Box<dyn Stream>, Option<SocketAddr>)> {
        let (host, port) = match &self.address {
            Address::Tcp { host, port } => (host.as_str(), *port),
            #[cfg(unix)]
            Address::Unix(path) => {
                return Ok((Box::new(tokio::net::UnixStream::connect(path).await?), None));
            }
            #[cfg(not(unix))]
            Address::Unix(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        let addresses = match same {
            Some(address) => vec![address],
            None => lookup_host((host, port)).await?.collect(),
        };
        let attempts: Vec<_> =
            addresses.into_iter().map(|address| Box::pin(TcpStream::connect(address))).collect();
        if attempts.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("the name {host:?} has no address")));
        }
        let (stream, _slower) = select_ok(attempts).await?;
        self.tune(&stream)?;
        let address = stream.peer_addr()?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return Ok((encrypted::greet(Arc::clone(tls), host, stream).await?, Some(address)));
        }
        Ok((Box::new(stream), Some(address)))
    }

    /// A connection that is given up is reset, and the system gives up one whose data is not confirmed. So a request that
    /// is overdue is not delivered when a cut ends.
    fn tune(&self, stream: &TcpStream) -> io::Result<()> {
        let socket = SockRef::from(stream);
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
        #[cfg(any(target_os = "android", target_os = "linux"))]
        socket.set_tcp_user_timeout(Some(self.op_timeout))?;
        #[cfg(not(any(target_os = "android", target_os = "linux")))]
        let _ = self.op_timeout;
        socket.set_linger(Some(Duration::ZERO))
    }
}

/// Encrypted or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

#[cfg(feature = "tls")]
mod encrypted {
    use std::io;
    use std::sync::Arc;

    use leasehold_core::{Error, Result, Tls};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;

    use super::Stream;

    /// The authorities to trust, and our certificate.
    pub(super) fn configured(tls: &Tls) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        match tls.authorities() {
            Some(pem) => {
                for certificate in certificates(pem)? {
                    roots.add(certificate).map_err(unusable)?;
                }
            }
            None => {
                let known = rustls_native_certs::load_native_certs();
                if let Some(error) = known.errors.into_iter().next() {
                    return Err(unusable(error));
                }
                roots.add_parsable_certificates(known.certs);
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(unusable)?.with_root_certificates(roots);
        Ok(Arc::new(match tls.identity() {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key).map_err(unusable)?;
                config.with_client_auth_cert(certificates(chain)?, key).map_err(unusable)?
            }
        }))
    }

    /// Makes a connection a private one.
    pub(super) async fn greet(
        config: Arc<ClientConfig>,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<Box<dyn Stream>> {
        let server = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Box::new(TlsConnector::from(config).connect(server, stream).await?))
    }

    fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(unusable)
    }

    fn unusable(source: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::invalid_option("address or certificates cannot be used").with_source(source)
    }
}

/// How long a connection is idle before the system asks whether the peer still lives.
const KEEPALIVE: Duration = Duration::from_secs(10);

#[cfg(any(target_os = "android", target_os = "linux"))]
#[cfg(test)]
mod tests {
    use super::*;

    /// A request that is not confirmed does not outlive a request's bound, nor a connection that is given up.
    #[tokio::test]
    async fn unconfirmed_data_ends_the_connection() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(server.local_addr().unwrap()).await.unwrap();
        let bound = Duration::from_millis(700);
        crate::RedisConfig::new("h", 1).client(bound).unwrap().tune(&stream).unwrap();
        let socket = SockRef::from(&stream);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(bound));
        assert_eq!(socket.linger().unwrap(), Some(Duration::ZERO));
        assert!(socket.tcp_nodelay().unwrap());
    }
}
