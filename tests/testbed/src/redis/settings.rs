//! How a Redis server is started.

use std::{io, net::SocketAddr, path::PathBuf};

use super::{Server, WallClock, preload::Preload};
use crate::{Certificates, peers};

/// The settings of a server; by default a single one on TCP that keeps nothing on the disk.
#[derive(Clone, Debug)]
#[must_use = "nothing runs before it is started"]
pub struct Settings {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) tls: Option<Certificates>,
    pub(super) primary: Option<SocketAddr>,
    pub(super) clock: Option<WallClock>,
    pub(super) disk: Option<Preload>,
}

/// The server of Valkey, if `make tools` has put it there; it speaks no TLS.
pub fn valkey() -> Option<PathBuf> {
    let program = peers::tools().join("valkey/valkey-server");
    program.exists().then_some(program)
}

impl Default for Settings {
    fn default() -> Self {
        let (args, tls, primary, clock, disk) = Default::default();
        Self { program: "redis-server".into(), args, tls, primary, clock, disk }
    }
}

impl Settings {
    /// The defaults, of the installed Redis.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another server than the installed Redis, such as [`valkey`]'s.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// Sets a directive of `redis.conf`, its words after the name separated.
    pub fn set(mut self, directive: &str, words: &[&str]) -> Self {
        self.args.push(format!("--{directive}"));
        self.args.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Writes every change to the disk before it is answered, so that a kill loses nothing.
    pub fn append_only(self) -> Self {
        self.set("appendonly", &["yes"]).set("appendfsync", &["always"])
    }

    /// Allows `bytes` of memory, and removes keys by `policy` (`noeviction` for none) beyond that.
    pub fn memory(self, bytes: u64, policy: &str) -> Self {
        self.set("maxmemory", &[&bytes.to_string()]).set("maxmemory-policy", &[policy])
    }

    /// Allows the command DEBUG.
    pub fn debug_commands(self) -> Self {
        self.set("enable-debug-command", &["yes"])
    }

    /// Follows the server at `primary`, which may be a proxy's address.
    pub fn replica_of(mut self, primary: SocketAddr) -> Self {
        self.primary = Some(primary);
        self
    }

    /// Speaks TLS on a second port, with or without a certificate of the client.
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(certificates.clone());
        self
    }

    /// Goes by `clock` instead of the host's.
    pub fn clock(mut self, clock: &WallClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Needs a second for each flush to the disk, and writes no more until that is over: what a kill loses then, a power cut
    /// loses on any disk. Not together with a clock.
    pub fn slow_disk(mut self) -> io::Result<Self> {
        self.disk = Some(Preload::compile(include_str!("disk.c"))?);
        Ok(self)
    }

    /// Starts a server and waits until it answers.
    pub async fn start(self) -> io::Result<Server> {
        Server::start(&self).await
    }
}
