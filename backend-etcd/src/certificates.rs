//! Whom to trust and who we are, as the client takes it. A build without TLS has none, and refuses a
//! configuration that asks for it.

#[cfg(not(feature = "tls"))]
pub(crate) use missing::Certificates;
#[cfg(feature = "tls")]
pub(crate) use spoken::Certificates;

#[cfg(feature = "tls")]
mod spoken {
    use leasehold_core::{Error, Result, Tls};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

    pub(crate) struct Certificates(ClientTlsConfig);

    impl Certificates {
        /// `domain` is the name in the servers' certificates, if it is not the host's.
        ///
        /// # Errors
        ///
        /// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption) for what is no certificate.
        pub(crate) fn read(tls: &Tls, domain: Option<&str>) -> Result<Self> {
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
            Ok(Self(options))
        }

        /// The same endpoint, over TLS.
        pub(crate) fn on(&self, endpoint: Endpoint) -> Result<Endpoint, tonic::transport::Error> {
            endpoint.tls_config(self.0.clone())
        }
    }

    /// The client takes a file without a certificate for one that trusts nobody.
    fn holds_certificates(option: &str, pem: &[u8]) -> Result<()> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        match read {
            Ok(certificates) if !certificates.is_empty() => Ok(()),
            Ok(_none) => Err(Error::invalid_option(format!("{option} holds no certificate: it must be PEM"))),
            Err(error) => Err(Error::invalid_option(format!("{option} is not PEM: {error}"))),
        }
    }
}

#[cfg(not(feature = "tls"))]
mod missing {
    use leasehold_core::{Result, Tls};
    use tonic::transport::Endpoint;

    pub(crate) enum Certificates {}

    impl Certificates {
        pub(crate) fn read(_: &Tls, _: Option<&str>) -> Result<Self> {
            Err(Tls::missing())
        }

        pub(crate) fn on(&self, _: Endpoint) -> Result<Endpoint, tonic::transport::Error> {
            match *self {}
        }
    }
}
