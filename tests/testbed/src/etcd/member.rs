//! One member: its process, its addresses, its data.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::time::timeout;

use super::BOUND;
use super::metrics::Metrics;
use crate::ports::ask;
use crate::scratch::in_memory;
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

    /// Its name and address, for the other members.
    pub(super) fn as_peer(&self) -> String {
        format!("{}=http://{}", self.name, self.peer.addr())
    }
}

#[derive(Debug)]
pub(super) struct Member {
    at: Blueprint,
    process: Option<Process>,
    is_stopped: bool,
    launch: Launch,
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
        let Blueprint { name, client, peer, metrics } = &blueprint;
        let room = in_memory(&format!("etcd-{name}"))?;
        let data = room.path().join("data");
        let logs = logs.join(name);
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
        Ok(Self { at: blueprint, process: None, is_stopped: false, launch, data, _room: room })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.at.client.addr()
    }

    /// Whether it can answer.
    pub(super) fn is_running(&self) -> bool {
        self.process.is_some() && !self.is_stopped
    }

    pub(super) fn spawn(&mut self) -> io::Result<()> {
        self.process = Some(self.launch.spawn()?);
        self.is_stopped = false;
        Ok(())
    }

    /// Waits until it answers a linearizable read, which is what it does for its own health.
    pub(super) async fn ready(&self) -> io::Result<()> {
        let healthy = || async move {
            let body = self.ask("/health").await.ok()?;
            body.contains(r#""health":"true""#).then_some(())
        };
        Ok(self.process()?.serves(BOUND, healthy).await?)
    }

    /// Waits until it follows a leader without a vote.
    pub(super) async fn learns(&self) -> io::Result<()> {
        let learns = || async move {
            let metrics = self.metrics().await.ok()?;
            let is = |what| metrics.sum(what, "") > 0.0;
            (is("etcd_server_is_learner") && is("etcd_server_has_leader")).then_some(())
        };
        Ok(self.process()?.serves(BOUND, learns).await?)
    }

    /// Its name and address, for the other members.
    pub(super) fn as_peer(&self) -> String {
        self.at.as_peer()
    }

    pub(super) async fn metrics(&self) -> io::Result<Metrics> {
        let body = timeout(BOUND / 5, self.ask("/metrics")).await?;
        Ok(Metrics::parse(&body?))
    }

    pub(super) async fn leads(&self) -> bool {
        self.metrics().await.is_ok_and(|metrics| metrics.sum("etcd_server_is_leader", "") > 0.0)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    pub(super) async fn stop(&mut self) -> io::Result<()> {
        self.process()?.stop().await?;
        self.is_stopped = true;
        Ok(())
    }

    pub(super) fn cont(&mut self) -> io::Result<()> {
        self.process()?.cont()?;
        self.is_stopped = false;
        Ok(())
    }

    pub(super) async fn kill(&mut self) -> io::Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill().await?;
        }
        Ok(())
    }

    /// Removes its data.
    pub(super) fn forget(&self) -> io::Result<()> {
        std::fs::remove_dir_all(&self.data)
    }

    /// Asks by plain HTTP, which every member also speaks at its metrics address.
    async fn ask(&self, path: &str) -> io::Result<String> {
        let question = format!("GET {path} HTTP/1.0\r\nHost: etcd\r\n\r\n");
        let answer = ask(self.at.metrics.addr(), &question).await?;
        let body = answer.split_once("\r\n\r\n").map(|(_head, body)| body.to_owned());
        body.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn process(&self) -> io::Result<&Process> {
        self.process.as_ref().ok_or_else(|| io::Error::other("this etcd member does not run"))
    }
}
