//! One running server.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::timeout;

use super::wire;
use super::words::{self, Connection, Counters, Role};
use crate::ports::ask;
use crate::{Launch, Port, Process, Scratch};

/// A server; killed when dropped, and its files removed.
#[derive(Debug)]
pub struct Server {
    /// Before the directories, in which it writes.
    process: Process,
    launch: Launch,
    port: Port,
    tls_port: Option<Port>,
    _scratch: Scratch,
    data: TempDir,
}

impl Server {
    pub(super) fn spawn(
        mut launch: Launch,
        port: Port,
        tls_port: Option<Port>,
        scratch: Scratch,
        data: TempDir,
    ) -> io::Result<Self> {
        let process = launch.spawn()?;
        Ok(Self { process, launch, port, tls_port, _scratch: scratch, data })
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Where clients connect with TLS.
    pub fn tls_addr(&self) -> SocketAddr {
        self.tls_port.as_ref().expect("set up with TLS").addr()
    }

    /// `zk://host:port`, without a path.
    pub fn url(&self) -> String {
        format!("zk://{}", self.addr())
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Kills it; its data stay.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.process.kill().await?;
        Ok(())
    }

    /// Starts it again on its data, after it was killed; [`ready`](Self::ready) waits for it.
    pub fn restart(&mut self) -> io::Result<()> {
        self.process = self.launch.spawn()?;
        Ok(())
    }

    /// Removes what it has written down, after it was killed. It is no member of an ensemble.
    pub fn forget(&self) -> io::Result<()> {
        std::fs::remove_dir_all(self.data.path())?;
        std::fs::create_dir(self.data.path())
    }

    /// Waits until it serves, and returns as what.
    pub async fn ready(&self) -> io::Result<Role> {
        // A server that is just beginning may take a question and never answer it.
        let serves = || async move { timeout(FIRST_ANSWER, self.role()).await.ok()?.ok()? };
        Ok(self.process.serves(START, serves).await?)
    }

    /// As what it serves; `None` while it does not.
    pub async fn role(&self) -> io::Result<Option<Role>> {
        Ok(words::role(&self.ask("srvr").await?))
    }

    /// What it has counted since it was started: everything of `mntr` that is a number.
    pub async fn counters(&self) -> io::Result<Counters> {
        Ok(words::counters(&self.ask("mntr").await?))
    }

    /// The sessions that are connected to this server, as it counts them.
    pub async fn connections(&self) -> io::Result<Vec<Connection>> {
        Ok(words::connections(&self.ask("cons").await?))
    }

    /// The ephemeral nodes, by the session they belong to.
    pub async fn ephemerals(&self) -> io::Result<BTreeMap<i64, Vec<String>>> {
        Ok(words::ephemerals(&self.ask("dump").await?))
    }

    /// The sessions that own an ephemeral node below `path`.
    pub async fn sessions_below(&self, path: &str) -> io::Result<Vec<i64>> {
        let owners = self.ephemerals().await?.into_iter();
        let below = |nodes: &[String]| nodes.iter().any(|node| node.starts_with(path));
        Ok(owners.filter(|(_, nodes)| below(nodes)).map(|(session, _)| session).collect())
    }

    /// Ends a session from outside, its ephemeral nodes with it: its client finds it expired.
    pub async fn end_session(&self, session: i64) -> io::Result<()> {
        wire::end_session(self.addr(), session).await
    }

    /// Asks a question of four letters.
    pub async fn ask(&self, word: &str) -> io::Result<String> {
        timeout(ANSWER, ask(self.addr(), word)).await?
    }
}

/// How long a server may take to start, on a machine that is busy.
const START: Duration = Duration::from_secs(60);

/// How long a starting server is waited for before it is asked again.
const FIRST_ANSWER: Duration = Duration::from_millis(300);

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);
