//! Says what kind of cluster is started.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Etcd;
use super::member::{Blueprint, Member};
use crate::{Certificates, Scratch, peers};

/// A cluster to start.
#[derive(Debug)]
#[must_use = "nothing runs before it is started"]
pub struct Setup {
    program: PathBuf,
    members: usize,
    certificates: Option<Arc<Certificates>>,
    demands_client_certificate: bool,
    heartbeat: Duration,
    signed_tokens: Option<Duration>,
    args: Vec<String>,
}

/// A server of a current version, if `make tools` has put one there.
pub fn current() -> Option<PathBuf> {
    let program = peers::tools().join("etcd-3.6");
    program.exists().then_some(program)
}

impl Setup {
    /// One member of the installed etcd.
    pub fn new() -> Self {
        Self {
            program: PathBuf::from("etcd"),
            members: 1,
            certificates: None,
            demands_client_certificate: false,
            heartbeat: Duration::from_millis(20),
            signed_tokens: None,
            args: Vec::new(),
        }
    }

    /// So many members. Several of them tick more slowly than one, so that a busy machine does not
    /// depose their leader.
    pub fn members(mut self, members: usize) -> Self {
        self.members = members;
        self.heartbeat = Duration::from_millis(if members == 1 { 20 } else { 100 });
        self
    }

    /// Another etcd than the installed one.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// Serves TLS with the server's certificate.
    pub fn tls(mut self, certificates: Arc<Certificates>) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// Serves TLS, and only clients that show a certificate of the same authority.
    pub fn mutual_tls(mut self, certificates: Arc<Certificates>) -> Self {
        self.demands_client_certificate = true;
        self.tls(certificates)
    }

    /// Stops accepting writes (NOSPACE) when the data takes more than `bytes`.
    pub fn quota(self, bytes: u64) -> Self {
        self.arg(format!("--quota-backend-bytes={bytes}"))
    }

    /// How long a user's token lives without being used.
    pub fn auth_token_ttl(self, seconds: u32) -> Self {
        self.arg(format!("--auth-token-ttl={seconds}"))
    }

    /// Gives users signed tokens (JWT), each of which is good for `ttl`, instead of ones that the
    /// servers keep in mind.
    pub fn signed_tokens(mut self, ttl: Duration) -> Self {
        self.signed_tokens = Some(ttl);
        self
    }

    /// Any other argument.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Starts the members and waits until each serves.
    pub async fn start(self) -> io::Result<Etcd> {
        let scratch = Scratch::new("etcd")?;
        let mut blueprints = Vec::new();
        for index in 0..self.members {
            blueprints.push(Blueprint::reserve(index)?);
        }
        let cluster: Vec<_> = blueprints.iter().map(Blueprint::as_peer).collect();
        let mut common = vec![
            format!("--initial-cluster={}", cluster.join(",")),
            format!("--heartbeat-interval={}", self.heartbeat.as_millis()),
            format!("--election-timeout={}", self.heartbeat.as_millis() * 10),
            "--logger=zap".to_owned(),
            "--log-level=warn".to_owned(),
            // Passwords are compared under the store's lock: at the default of 10, every other request waits for that.
            "--bcrypt-cost=4".to_owned(),
        ];
        common.extend(self.tls_args());
        common.extend(self.args.iter().cloned());
        if let Some(ttl) = self.signed_tokens {
            let key = scratch.path().join("token.key");
            std::fs::write(&key, "nobody else knows this")?;
            common.push(format!(
                "--auth-token=jwt,sign-method=HS256,priv-key={},ttl={}s",
                key.display(),
                ttl.as_secs()
            ));
        }
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        let mut members = Vec::new();
        for blueprint in blueprints {
            let member = Member::new(blueprint, &self.program, scheme, &common, scratch.path())?;
            members.push(member);
        }
        for member in &mut members {
            member.spawn()?;
        }
        for member in &members {
            member.ready().await?;
        }
        let Self { program, certificates, .. } = self;
        Ok(Etcd { members, program, common, certificates, user: None, scratch })
    }

    fn tls_args(&self) -> Vec<String> {
        let Some(certificates) = &self.certificates else {
            return Vec::new();
        };
        let (certificate, key) = certificates.server();
        let flag = |name, path: &Path| format!("--{name}={}", path.display());
        let mut args = vec![flag("cert-file", &certificate), flag("key-file", &key)];
        if self.demands_client_certificate {
            args.push("--client-cert-auth".to_owned());
            args.push(flag("trusted-ca-file", &certificates.authority()));
        }
        args
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}
