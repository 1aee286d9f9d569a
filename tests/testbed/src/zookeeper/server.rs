//! One running server.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::words::{self, Connection, Counters, Role};
use super::{setup, wire};
use crate::{Launch, Port, Process, ProcessError, Scratch};

/// A server; killed when dropped, and its files removed.
#[derive(Debug)]
pub struct Server {
    /// Before the directories: who writes in them must be gone.
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
        setup::installed()?;
        let process = launch.spawn().map_err(io::Error::other)?;
        Ok(Self { process, launch, port, tls_port, _scratch: scratch, data })
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Where clients connect with TLS.
    ///
    /// # Panics
    ///
    /// If it was set up without.
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

    /// Stops it: it keeps its connections and says nothing.
    ///
    /// # Errors
    ///
    /// As [`Process::stop`].
    pub async fn stop(&self) -> Result<(), ProcessError> {
        self.process.stop().await
    }

    /// Lets it run again.
    ///
    /// # Errors
    ///
    /// As [`Process::cont`].
    pub fn cont(&self) -> Result<(), ProcessError> {
        self.process.cont()
    }

    /// Kills it; its data stay.
    ///
    /// # Errors
    ///
    /// As [`Process::kill`].
    pub async fn kill(&mut self) -> Result<(), ProcessError> {
        self.process.kill().await.map(drop)
    }

    /// Starts it again on its data, after it was killed; [`ready`](Self::ready) waits for it.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn restart(&mut self) -> Result<(), ProcessError> {
        self.process = self.launch.spawn()?;
        Ok(())
    }

    /// Removes what it has written down, after it was killed. It is no member of an ensemble.
    ///
    /// # Errors
    ///
    /// When the files cannot be removed.
    pub fn forget(&self) -> io::Result<()> {
        std::fs::remove_dir_all(self.data.path())?;
        std::fs::create_dir(self.data.path())
    }

    /// Waits until it serves, and returns as what.
    ///
    /// # Errors
    ///
    /// When it has ended, or does not serve within a minute.
    pub async fn ready(&self) -> io::Result<Role> {
        let serves = async {
            loop {
                // A server that is just beginning may take a question and never answer it.
                if let Ok(Ok(Some(role))) = timeout(FIRST_ANSWER, self.role()).await {
                    break role;
                }
                sleep(POLL).await;
            }
        };
        timeout(START, serves).await.map_err(|_elapsed| {
            let log = std::fs::read_to_string(self.process.log()).unwrap_or_default();
            io::Error::new(io::ErrorKind::TimedOut, format!("the server does not serve; its log:\n{log}"))
        })
    }

    /// As what it serves; `None` while it does not.
    ///
    /// # Errors
    ///
    /// When it cannot be asked.
    pub async fn role(&self) -> io::Result<Option<Role>> {
        Ok(words::role(&self.ask("srvr").await?))
    }

    /// What it has counted since it was started: everything of `mntr` that is a number.
    ///
    /// # Errors
    ///
    /// When it cannot be asked.
    pub async fn counters(&self) -> io::Result<Counters> {
        Ok(words::counters(&self.ask("mntr").await?))
    }

    /// The sessions that are connected to this server, as it counts them.
    ///
    /// # Errors
    ///
    /// When it cannot be asked.
    pub async fn connections(&self) -> io::Result<Vec<Connection>> {
        Ok(words::connections(&self.ask("cons").await?))
    }

    /// The ephemeral nodes, by the session they belong to.
    ///
    /// # Errors
    ///
    /// When it cannot be asked.
    pub async fn ephemerals(&self) -> io::Result<BTreeMap<i64, Vec<String>>> {
        Ok(words::ephemerals(&self.ask("dump").await?))
    }

    /// The sessions that own an ephemeral node below `path`.
    ///
    /// # Errors
    ///
    /// When it cannot be asked.
    pub async fn sessions_below(&self, path: &str) -> io::Result<Vec<i64>> {
        let owners = self.ephemerals().await?.into_iter();
        let below = |nodes: &[String]| nodes.iter().any(|node| node.starts_with(path));
        Ok(owners.filter(|(_, nodes)| below(nodes)).map(|(session, _)| session).collect())
    }

    /// Ends a session from outside, its ephemeral nodes with it: its client finds it expired.
    ///
    /// # Errors
    ///
    /// `NotFound` when the server does not know the session.
    pub async fn end_session(&self, session: i64) -> io::Result<()> {
        wire::end_session(self.addr(), session).await
    }

    /// Asks a question of four letters.
    ///
    /// # Errors
    ///
    /// When it does not answer within ten seconds.
    pub async fn ask(&self, word: &str) -> io::Result<String> {
        let answer = async {
            let mut stream = TcpStream::connect(self.addr()).await?;
            stream.write_all(word.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok(answer)
        };
        timeout(ANSWER, answer).await.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

/// How long a server may take to start, on a machine that is busy.
const START: Duration = Duration::from_secs(60);

/// How often a starting server is looked at.
const POLL: Duration = Duration::from_millis(10);

/// How long a starting server is waited for before it is asked again.
const FIRST_ANSWER: Duration = Duration::from_millis(300);

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);
