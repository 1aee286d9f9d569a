//! Certificates, as the client library takes them, and as we try them ourselves. All of them are read and
//! held against each other before anything is connected to.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_core::backend::Endpoint;
use leasehold_core::{Error, Result, Tls};
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription as Alert, ClientConfig, Error as TlsError, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use zookeeper_client::{Client, Connector, TlsOptions};

/// A connection next to the client library's.
pub(crate) type Protected = TlsStream<TcpStream>;

/// The trusted authorities, and our identity.
#[derive(Debug)]
pub(crate) struct Certificates {
    library: TlsOptions,
    ours: Arc<ClientConfig>,
}

impl Certificates {
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption) for an invalid certificate or key, for a key of
    /// another certificate, if the system's authorities are not found, and for a server whose name no certificate can have: the
    /// client library relies on that.
    pub(super) fn read(tls: &Tls, servers: &[Endpoint]) -> Result<Self> {
        for host in servers.iter().map(Endpoint::host) {
            ServerName::try_from(host).map_err(|source| {
                let refused =
                    format!("server {host:?} is invalid with TLS: no certificate can have this name");
                Error::invalid_option(refused).with_source(source)
            })?;
        }
        let authorities = match tls.authorities() {
            Some(pem) => text(pem)?.to_owned(),
            None => system_authorities(std::env::var_os("SSL_CERT_FILE").map(PathBuf::from))?,
        };
        let mut library = TlsOptions::new().with_pem_ca(&authorities).map_err(unusable)?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(authorities.as_bytes())?);
        let revoked = CertificateRevocationListDer::pem_slice_iter(authorities.as_bytes());
        let revoked: Vec<_> = revoked.collect::<Result<_, _>>().map_err(unusable)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let verifier = verifier.with_crls(revoked).build().map_err(unusable)?;
        let ours = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let ours = ours.map_err(unusable)?.with_webpki_verifier(verifier);
        let ours = match tls.identity() {
            None => ours.with_no_client_auth(),
            Some((chain, key)) => {
                library = library.with_pem_identity(text(chain)?, text(key)?).map_err(unusable)?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(unusable)?;
                ours.with_client_auth_cert(certificates(chain)?, key).map_err(unusable)?
            }
        };
        Ok(Self { library, ours: Arc::new(ours) })
    }

    /// Opens a session through the client library.
    pub(super) async fn open(
        &self,
        connector: Connector,
        servers: &str,
    ) -> Result<Client, zookeeper_client::Error> {
        connector.with_tls(self.library.clone()).secure_connect(servers).await
    }

    /// Makes a TLS connection next to the client library's.
    pub(crate) async fn shake_hands(&self, host: &str, stream: TcpStream) -> io::Result<Protected> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(&self.ours)).connect(name, stream).await
    }

    /// Whether one side refused the other's certificate or its protocol. An answer that is no TLS comes from something
    /// else in the place of a server.
    pub(crate) fn are_refused(error: &io::Error) -> bool {
        match error.get_ref().and_then(|source| source.downcast_ref::<TlsError>()) {
            Some(TlsError::AlertReceived(alert)) => {
                !matches!(alert, Alert::InternalError | Alert::UserCanceled | Alert::CloseNotify)
            }
            Some(
                TlsError::InvalidCertificate(_)
                | TlsError::InvalidCertRevocationList(_)
                | TlsError::NoCertificatesPresented
                | TlsError::UnsupportedNameType
                | TlsError::PeerIncompatible(_),
            ) => true,
            _ => false,
        }
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(unusable)
}

fn unusable(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::invalid_option("cannot use the TLS certificates").with_source(source)
}

fn text(pem: &[u8]) -> Result<&str> {
    std::str::from_utf8(pem).map_err(|_| Error::invalid_option("a certificate is invalid: expected PEM"))
}

/// The authorities that the system trusts; the client library knows none by itself. A file that the environment names replaces
/// all of them: if it cannot be read, no other is used.
fn system_authorities(named: Option<PathBuf>) -> Result<String> {
    let read = |bundle: &Path| std::fs::read_to_string(bundle);
    match named {
        Some(named) => read(&named)
            .map_err(|error| Error::invalid_option(format!("cannot read SSL_CERT_FILE={named:?}: {error}"))),
        None => BUNDLES.iter().find_map(|bundle| read(Path::new(bundle)).ok()).ok_or_else(|| {
            Error::invalid_option("cannot find the system's certificate authorities: set `ca`")
        }),
    }
}

/// Where systems keep the authorities that they trust.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    /// A file that the environment names is read, or nothing is.
    #[test]
    fn no_other_authorities_stand_in_for_those_that_are_named() {
        let certificates = testbed::Certificates::new("client").unwrap();
        let read = system_authorities(Some(certificates.authority())).unwrap();
        assert_eq!(read, std::fs::read_to_string(certificates.authority()).unwrap());
        let refused = system_authorities(Some("/nowhere/ca.pem".into())).unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::InvalidOption);
        assert!(refused.to_string().contains("cannot read SSL_CERT_FILE=\"/nowhere/ca.pem\""), "{refused}");
    }

    /// Options that do not fit together are refused before anything is connected to.
    #[test]
    fn certificates_are_held_against_each_other() {
        let (ours, theirs) =
            (testbed::Certificates::new("a").unwrap(), testbed::Certificates::new("b").unwrap());
        let pem = |path: PathBuf| std::fs::read(path).unwrap();
        let trusting = || Tls::new().ca(pem(ours.authority()));
        let (certificate, key) = ours.client();
        let (_, other) = theirs.client();
        let fitting = trusting().client_certificate(pem(certificate.clone()), pem(key.clone()));
        Certificates::read(&fitting, &[]).unwrap();
        for (what, tls) in [
            ("another's key", trusting().client_certificate(pem(certificate.clone()), pem(other))),
            ("no key", trusting().client_certificate(pem(certificate.clone()), pem(certificate.clone()))),
            ("no certificate", trusting().client_certificate(pem(key.clone()), pem(key.clone()))),
            ("no authority", Tls::new().ca(pem(key))),
            ("garbage", Tls::new().ca("-----BEGIN CERTIFICATE-----\n\u{1}\n-----END CERTIFICATE-----\n")),
        ] {
            let refused = Certificates::read(&tls, &[]).expect_err(what);
            assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{what}: {refused:?}");
        }
    }
}
