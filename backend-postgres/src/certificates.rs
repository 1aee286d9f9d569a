//! TLS for the client crate. A build without it refuses a configuration with TLS.

#[cfg(not(feature = "tls"))]
pub(crate) use plain::Encryption;
#[cfg(feature = "tls")]
pub(crate) use with_tls::Encryption;

#[cfg(not(feature = "tls"))]
mod plain {
    use leasehold_core::{Result, Tls};

    /// No build with TLS has one.
    #[derive(Clone, Debug)]
    pub(crate) enum Encryption {}

    impl Encryption {
        pub(crate) fn read(_: &Tls) -> Result<Self> {
            Err(Tls::missing())
        }
    }
}

#[cfg(feature = "tls")]
mod with_tls {
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use futures_util::future::BoxFuture;
    use leasehold_core::{Error, Result, Tls};
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
    use tokio_rustls::TlsConnector;

    /// The trusted authorities, and our identity.
    #[derive(Clone, Debug)]
    pub(crate) struct Encryption(Arc<ClientConfig>);

    impl Encryption {
        /// # Errors
        ///
        /// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption) for an invalid certificate.
        pub(crate) fn read(tls: &Tls) -> Result<Self> {
            let mut roots = RootCertStore::empty();
            let trusted = match tls.authorities() {
                Some(pem) => certificates("ca", pem)?,
                None => rustls_native_certs::load_native_certs().certs,
            };
            roots.add_parsable_certificates(trusted);
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            let config = config.map_err(unusable)?.with_root_certificates(roots);
            let config = match tls.identity() {
                None => config.with_no_client_auth(),
                Some((chain, key)) => {
                    let key = PrivateKeyDer::from_pem_slice(key).map_err(unusable)?;
                    config.with_client_auth_cert(certificates("cert", chain)?, key).map_err(unusable)?
                }
            };
            Ok(Self(Arc::new(config)))
        }
    }

    fn certificates(option: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        match read {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            Ok(_none) => {
                Err(Error::invalid_option(format!("`{option}` contains no certificate: expected PEM")))
            }
            Err(error) => Err(Error::invalid_option(format!("`{option}` is invalid: expected PEM: {error}"))),
        }
    }

    fn unusable(source: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::invalid_option("cannot use the TLS certificates").with_source(source)
    }

    /// One connection in the making: to whom.
    pub(crate) struct Handshake {
        encryption: Encryption,
        host: String,
    }

    /// An encrypted connection.
    pub(crate) struct Encrypted<S>(tokio_rustls::client::TlsStream<S>);

    impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Encryption {
        type Stream = Encrypted<S>;
        type TlsConnect = Handshake;
        type Error = io::Error;

        fn make_tls_connect(&mut self, domain: &str) -> io::Result<Handshake> {
            Ok(Handshake { encryption: self.clone(), host: domain.to_owned() })
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
        type Stream = Encrypted<S>;
        type Error = io::Error;
        type Future = BoxFuture<'static, io::Result<Encrypted<S>>>;

        fn connect(self, stream: S) -> Self::Future {
            Box::pin(async move {
                let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
                TlsConnector::from(self.encryption.0).connect(name, stream).await.map(Encrypted)
            })
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
        fn channel_binding(&self) -> ChannelBinding {
            ChannelBinding::none()
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, buf)
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(cx, buf)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }
}
