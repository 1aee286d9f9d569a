//! The TLS options of the client crate. A build without TLS refuses a configuration with TLS.

use leasehold_core::{Result, Tls};
use tonic::transport::Endpoint;
#[cfg(feature = "tls")]
use {
    leasehold_core::Error,
    rustls::pki_types::CertificateDer,
    rustls::pki_types::pem::PemObject as _,
    tonic::transport::{Certificate, ClientTlsConfig, Identity},
};

/// Turns an endpoint into the same one over TLS.
pub(crate) type OverTls = Box<dyn Fn(Endpoint) -> Result<Endpoint, tonic::transport::Error>>;

/// `domain` is the name in the servers' certificates, if it is not the host's.
///
/// # Errors
///
/// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption) for an invalid certificate.
#[cfg(feature = "tls")]
pub(crate) fn over_tls(tls: &Tls, domain: Option<&str>) -> Result<OverTls> {
    let mut options = match tls.authorities() {
        Some(pem) => {
            holds_certificates("ca", pem)?;
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))
        }
        None => ClientTlsConfig::new().with_native_roots(),
    };
    if let Some((chain, key)) = tls.identity() {
        holds_certificates("cert", chain)?;
        options = options.identity(Identity::from_pem(chain, key));
    }
    if let Some(domain) = domain {
        options = options.domain_name(domain);
    }
    Ok(Box::new(move |endpoint| endpoint.tls_config(options.clone())))
}

#[cfg(not(feature = "tls"))]
pub(crate) fn over_tls(_: &Tls, _: Option<&str>) -> Result<OverTls> {
    Err(Tls::missing())
}

/// The client crate reads a file without a certificate as one that trusts no server.
#[cfg(feature = "tls")]
fn holds_certificates(option: &str, pem: &[u8]) -> Result<()> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(()),
        Ok(_none) => Err(Error::invalid_option(format!("`{option}` contains no certificate: expected PEM"))),
        Err(error) => Err(Error::invalid_option(format!("`{option}` is invalid: expected PEM: {error}"))),
    }
}
