//! One member: its process, its addresses, its data.

use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::metrics::Metrics;
use super::{BOUND, POLL};
use crate::{Launch, Port, Process};

/// What a member is called and where it listens.
#[derive(Debug)]
pub(super) struct Blueprint {
    name: String,
    client: Port,
    peer: Port,
    metrics: Port,
}

impl Blueprint {
    pub(super) fn reserve(index: usize) -> io::Result<Self> {
        Ok(Self {
            name: format!("m{index}"),
            client: Port::reserve()?,
            peer: Port::reserve()?,
            metrics: Port::reserve()?,
        })
    }

    /// As the other members are told of it.
    pub(super) fn as_peer(&self) -> String {
        format!("{}=http://{}", self.name, self.peer.addr())
    }
}

#[derive(Debug)]
pub(super) struct Member {
    /// As the other members are told of it.
    peer: String,
    process: Option<Process>,
    is_stopped: bool,
    launch: Launch,
    pub(super) client: Port,
    metrics: Port,
    _peer: Port,
    data: PathBuf,
    _room: TempDir,
}

impl Member {
    pub(super) fn new(
        blueprint: Blueprint,
        program: &Path,
        scheme: &str,
        common: &[String],
        logs: &Path,
    ) -> io::Result<Self> {
        let told = blueprint.as_peer();
        let Blueprint { name, client, peer, metrics } = blueprint;
        let room = in_memory(&name)?;
        let data = room.path().join("data");
        let logs = logs.join(&name);
        std::fs::create_dir(&logs)?;
        let (client_url, peer_url) =
            (format!("{scheme}://{}", client.addr()), format!("http://{}", peer.addr()));
        let args = [
            format!("--name={name}"),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={client_url}"),
            format!("--advertise-client-urls={client_url}"),
            format!("--listen-peer-urls={peer_url}"),
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--listen-metrics-urls=http://{}", metrics.addr()),
        ];
        // By exec, so that it is still one process, with the program's own signals.
        let launch = Launch::new("setpriv", logs).args(["--pdeathsig=KILL", "--"]);
        let launch = launch.args([program]).args(args).args(common);
        Ok(Self {
            peer: told,
            process: None,
            is_stopped: false,
            launch,
            client,
            metrics,
            _peer: peer,
            data,
            _room: room,
        })
    }

    /// Whether it can answer.
    pub(super) fn is_running(&self) -> bool {
        self.process.is_some() && !self.is_stopped
    }

    pub(super) fn spawn(&mut self) -> io::Result<()> {
        self.process = Some(self.launch.spawn().map_err(io::Error::other)?);
        self.is_stopped = false;
        Ok(())
    }

    /// Waits until it answers a linearizable read, which is what it does for its own health.
    pub(super) async fn ready(&self) -> io::Result<()> {
        let healthy = async {
            loop {
                match self.ask("/health").await {
                    Ok(body) if body.contains(r#""health":"true""#) => return,
                    _not_yet => sleep(POLL).await,
                }
            }
        };
        timeout(BOUND, healthy).await.map_err(|_elapsed| self.error("does not become healthy"))
    }

    /// Waits until it follows a leader without a vote.
    pub(super) async fn learns(&self) -> io::Result<()> {
        let learns = async {
            loop {
                let metrics = self.metrics().await.unwrap_or_default();
                let is = |what| metrics.sum(what, "") > 0.0;
                if is("etcd_server_is_learner") && is("etcd_server_has_leader") {
                    return;
                }
                sleep(POLL).await;
            }
        };
        timeout(BOUND, learns).await.map_err(|_elapsed| self.error("does not become a learner"))
    }

    /// As the other members are told of it: a name and an address.
    pub(super) fn as_peer(&self) -> &str {
        &self.peer
    }

    pub(super) async fn metrics(&self) -> io::Result<Metrics> {
        let bound = BOUND / 5;
        let body = timeout(bound, self.ask("/metrics")).await;
        Ok(Metrics::parse(&body.map_err(|_elapsed| self.error("does not show its metrics"))??))
    }

    pub(super) async fn leads(&self) -> bool {
        self.metrics().await.is_ok_and(|metrics| metrics.sum("etcd_server_is_leader", "") > 0.0)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    pub(super) async fn stop(&mut self) -> io::Result<()> {
        self.process()?.stop().await.map_err(io::Error::other)?;
        self.is_stopped = true;
        Ok(())
    }

    pub(super) fn cont(&mut self) -> io::Result<()> {
        self.process()?.cont().map_err(io::Error::other)?;
        self.is_stopped = false;
        Ok(())
    }

    pub(super) async fn kill(&mut self) -> io::Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill().await.map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Removes its data.
    pub(super) fn forget(&self) -> io::Result<()> {
        std::fs::remove_dir_all(&self.data)
    }

    /// Asks by plain HTTP, which every member also speaks at its metrics address.
    async fn ask(&self, path: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(self.metrics.addr()).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: etcd\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let body = answer.split_once("\r\n\r\n").map(|(_head, body)| body.to_owned());
        body.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn process(&self) -> io::Result<&Process> {
        self.process.as_ref().ok_or_else(|| io::Error::other("this etcd member does not run"))
    }

    fn error(&self, what: &str) -> io::Error {
        let log = self.process.as_ref().and_then(|process| std::fs::read_to_string(process.log()).ok());
        let log = log.unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n");
        io::Error::other(format!("etcd at {} {what}; the end of its log:\n{tail}", self.client.addr()))
    }
}

/// A directory in memory where there is such a place, else where temporary files go.
fn in_memory(name: &str) -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    let prefix = format!("leasehold-etcd-{name}-");
    let builder = builder.prefix(&prefix);
    builder.tempdir_in("/dev/shm").or_else(|_no_such_place| builder.tempdir())
}

const LOG_TAIL_LINES: usize = 20;
