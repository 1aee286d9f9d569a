//! The trusted authorities and the client's certificate, for every store with TLS.
//!
//! The names and URL options are the same everywhere: `ca`, `cert` and `key`, each a PEM file.

use std::fmt;

use crate::backend::url::StoreUrl;
use crate::words::error::{Error, ErrorKind, Result};

/// Certificates for encrypted connections, in PEM. `Debug` shows none of them.
#[derive(Clone, Default, PartialEq, Eq)]
#[must_use = "certificates are set by the `tls` of a configuration"]
pub struct Tls {
    ca: Option<Vec<u8>>,
    client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// Trusts the authorities that the system trusts, and shows no certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts only the authorities in `pem`.
    pub fn ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(pem.into());
        self
    }

    /// Shows servers that ask for one the certificate `chain`, whose private key (PKCS#8) is `key`.
    pub fn client_certificate(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.client = Some((chain.into(), key.into()));
        self
    }

    /// Takes the options `ca`, `cert` and `key` of a URL and reads the files they name; none if none is
    /// given.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for a file that cannot be read, or
    /// a certificate without its key.
    pub fn take_from(url: &mut StoreUrl) -> Result<Option<Self>> {
        let (ca, cert, key) = (file(url, "ca")?, file(url, "cert")?, file(url, "key")?);
        let client = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(Error::invalid_option("`cert` and `key` must be given together")),
        };
        Ok((ca.is_some() || client.is_some()).then_some(Self { ca, client }))
    }

    /// Returns the error of a store in a build without TLS.
    pub fn missing() -> Error {
        Error::not_applied(
            ErrorKind::Unsupported,
            "this build has no TLS: enable the Cargo feature `tls` of leasehold",
        )
    }

    /// Rewords the refusal of a certificate by a TLS library, whose texts are names in its program. Every other text
    /// stays.
    pub fn in_words(said: &str) -> String {
        let Some((before, why)) = said.split_once(REFUSED) else {
            return said.to_owned();
        };
        let known = WORDS.iter().find(|(name, _)| why.contains(name)).map(|(_, words)| *words);
        // Behind a name that is not in it, a certificate's own are listed as data.
        let why = known.unwrap_or_else(|| why.split("; certificate is only valid for").next().unwrap_or(why));
        format!("{before}{REFUSED}{why}")
    }

    /// The authorities to trust instead of the system's.
    pub fn authorities(&self) -> Option<&[u8]> {
        self.ca.as_deref()
    }

    /// Our certificate chain and its key.
    pub fn identity(&self) -> Option<(&[u8], &[u8])> {
        self.client.as_ref().map(|(chain, key)| (&**chain, &**key))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("ca", &self.ca.is_some()).field("client", &self.client.is_some()).finish()
    }
}

const REFUSED: &str = "invalid peer certificate: ";

const WORDS: [(&str, &str); 6] = [
    ("UnknownIssuer", "its issuer is not trusted: set `ca` to the issuer's certificate"),
    ("CaUsedAsEndEntity", "it is an authority's certificate, not a server's"),
    ("NotValidForName", "it is for another server name"),
    ("NotValidYet", "it is not valid yet"),
    ("Revoked", "it was revoked"),
    ("BadSignature", "its issuer's certificate in `ca` does not match its signature"),
];

fn file(url: &mut StoreUrl, option: &'static str) -> Result<Option<Vec<u8>>> {
    let Some(path) = url.take(option)? else {
        return Ok(None);
    };
    match std::fs::read(&path) {
        Ok(pem) => Ok(Some(pem)),
        Err(error) => {
            Err(Error::invalid_option(format!("cannot read the file of option {option}={path:?}: {error}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(url: &str) -> Result<Option<Tls>> {
        Tls::take_from(&mut url.parse().unwrap())
    }

    /// The files are read at once, and a missing one is named.
    #[test]
    fn options_name_files() {
        let this = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let text = std::fs::read(this).unwrap();
        let given = taken(&format!("etcds://h/?ca={this}&cert={this}&key={this}")).unwrap();
        assert_eq!(given, Some(Tls::new().ca(text.clone()).client_certificate(text.clone(), text)));
        assert_eq!(taken("etcds://h/").unwrap(), None);
        let error = taken("etcds://h/?ca=/no/such.pem").unwrap_err().to_string();
        assert!(error.contains("cannot read the file of option ca=\"/no/such.pem\""), "{error}");
        let error = taken(&format!("etcds://h/?cert={this}")).unwrap_err().to_string();
        assert!(error.contains("`cert` and `key`"), "{error}");
    }

    /// Refusals of certificates are reworded; every other text stays.
    #[test]
    fn refusals_are_in_words() {
        for (said, words) in [
            (
                "invalid peer certificate: UnknownIssuer",
                "its issuer is not trusted: set `ca` to the issuer's certificate",
            ),
            (
                "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))",
                "it is an authority's certificate, not a server's",
            ),
            (
                "invalid peer certificate: certificate not valid for name \"h\"; certificate is only valid for \
                 DnsName(\"other\")",
                "certificate not valid for name \"h\"",
            ),
            ("invalid peer certificate: certificate expired: a day ago", "certificate expired: a day ago"),
        ] {
            assert_eq!(Tls::in_words(said), format!("invalid peer certificate: {words}"));
        }
        assert_eq!(Tls::in_words("Connection refused (os error 111)"), "Connection refused (os error 111)");
    }

    /// Keys do not reach logs.
    #[test]
    fn debug_shows_nothing() {
        let shown = format!("{:?}", Tls::new().client_certificate("chain", "sesame"));
        assert!(!shown.contains("115") && !shown.contains("sesame"), "{shown}");
    }
}
