//! A certificate authority of its own, for servers and clients on the loopback.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

use crate::Scratch;

/// Key pairs in PEM files, all signed by one authority of its own.
///
/// Clones are the same files. The server's certificate is for `localhost` and `127.0.0.1`; the client's common name is chosen.
#[derive(Clone, Debug)]
pub struct Certificates {
    scratch: Arc<Scratch>,
}

impl Certificates {
    /// Makes an authority, a server and a client called `client`.
    pub fn new(client: &str) -> io::Result<Self> {
        Self::of(client, ["localhost", "127.0.0.1"])
    }

    /// The same with a server of other names.
    pub fn of<const N: usize>(client: &str, hosts: [&str; N]) -> io::Result<Self> {
        let scratch = Scratch::new("certificates")?;
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        authority.distinguished_name.push(DnType::CommonName, "testbed authority");
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let authority = CertifiedIssuer::self_signed(authority, key).map_err(io::Error::other)?;
        std::fs::write(scratch.path().join("ca.pem"), authority.pem())?;

        let hosts = hosts.map(str::to_owned).to_vec();
        for (file, name, hosts) in [("server", "testbed server", hosts), ("client", client, Vec::new())] {
            let mut leaf = CertificateParams::new(hosts).map_err(io::Error::other)?;
            leaf.distinguished_name.push(DnType::CommonName, name);
            let key = KeyPair::generate().map_err(io::Error::other)?;
            let leaf = leaf.signed_by(&key, &authority).map_err(io::Error::other)?;
            std::fs::write(scratch.path().join(format!("{file}.pem")), leaf.pem())?;
            std::fs::write(scratch.path().join(format!("{file}.key")), key.serialize_pem())?;
        }
        Ok(Self { scratch: Arc::new(scratch) })
    }

    /// The authority's certificate.
    pub fn authority(&self) -> PathBuf {
        self.scratch.path().join("ca.pem")
    }

    /// The server's certificate and key (PKCS#8).
    pub fn server(&self) -> (PathBuf, PathBuf) {
        pair(self.scratch.path(), "server")
    }

    /// The client's certificate and key (PKCS#8).
    pub fn client(&self) -> (PathBuf, PathBuf) {
        pair(self.scratch.path(), "client")
    }
}

fn pair(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
    (directory.join(format!("{name}.pem")), directory.join(format!("{name}.key")))
}
