//! A running Redis server.

use std::{collections::BTreeMap, fs, io, net::SocketAddr, path::PathBuf, time::Duration};

use tokio::time::{sleep, timeout};

use super::{Client, Reply, Settings};
use crate::{Launch, Port, Process, Scratch};

/// A Redis server; killed, and its directory removed, when dropped.
#[derive(Debug)]
pub struct Server {
    /// Before the directory, which it writes to until it is dropped.
    process: Process,
    launch: Launch,
    port: Port,
    tls_port: Option<Port>,
    scratch: Scratch,
}

impl Server {
    pub(super) async fn start(settings: &Settings) -> io::Result<Self> {
        let (port, scratch) = (Port::reserve()?, Scratch::new("redis")?);
        let data = scratch.path().join(DATA);
        fs::create_dir(&data)?;
        let mut args = [
            ("port", port.number().to_string()),
            ("bind", "127.0.0.1".to_owned()),
            ("dir", data.display().to_string()),
            ("unixsocket", scratch.path().join(SOCKET).display().to_string()),
            ("save", String::new()),
            ("repl-diskless-sync-delay", "0".to_owned()),
        ]
        .into_iter()
        .flat_map(|(directive, value)| [format!("--{directive}"), value])
        .collect::<Vec<_>>();
        let tls_port = settings.tls.as_ref().map(|_| Port::reserve()).transpose()?;
        if let (Some(files), Some(port)) = (&settings.tls, &tls_port) {
            args.extend(["--tls-port".to_owned(), port.number().to_string()]);
            args.extend(["--tls-auth-clients".to_owned(), "optional".to_owned()]);
            let (certificate, key) = files.server();
            let files = [("ca-cert-file", files.authority()), ("cert-file", certificate), ("key-file", key)];
            for (directive, path) in files {
                args.extend([format!("--tls-{directive}"), path.display().to_string()]);
            }
        }
        if let Some(primary) = settings.primary {
            args.extend(["--replicaof".to_owned(), primary.ip().to_string(), primary.port().to_string()]);
        }
        args.extend_from_slice(&settings.args);
        let mut launch = Launch::new(&settings.program, scratch.path()).args(args);
        if let Some(clock) = &settings.clock {
            launch = clock.rule(launch);
        }
        if let Some(disk) = &settings.disk {
            launch = disk.rule(launch);
        }
        let process = launch.spawn()?;
        ready(port.addr(), &process).await?;
        Ok(Self { process, launch, port, tls_port, scratch })
    }

    /// Where it listens without TLS.
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// `redis://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr())
    }

    /// Where it speaks TLS, if it does.
    pub fn tls_addr(&self) -> Option<SocketAddr> {
        self.tls_port.as_ref().map(Port::addr)
    }

    /// Its unix socket.
    pub fn socket(&self) -> PathBuf {
        self.scratch.path().join(SOCKET)
    }

    /// A connection to it.
    pub async fn client(&self) -> io::Result<Client> {
        Client::connect(self.addr()).await
    }

    /// Sends one command on a connection of its own.
    pub async fn command(&self, words: &[&str]) -> io::Result<Reply> {
        self.client().await?.command(words).await
    }

    /// The fields of a section of INFO.
    pub async fn info(&self, section: &str) -> io::Result<BTreeMap<String, String>> {
        let text = self.command(&["INFO", section]).await?.text().unwrap_or_default();
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Ok(fields.map(|(field, value)| (field.to_owned(), value.to_owned())).collect())
    }

    /// How often each command was called, as the server has counted since it started or since
    /// `CONFIG RESETSTAT`; subcommands as `client|list`. Commands that a script calls are counted, too.
    pub async fn calls(&self) -> io::Result<BTreeMap<String, u64>> {
        let fields = self.info("commandstats").await?;
        let calls = fields.into_iter().filter_map(|(field, value)| {
            let command = field.strip_prefix("cmdstat_")?.to_owned();
            let calls = value.strip_prefix("calls=")?.split(',').next()?.parse().ok()?;
            Some((command, calls))
        });
        Ok(calls.collect())
    }

    /// Its process: to be stopped and continued.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Kills it. What it had not written to the disk is lost.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call kills it nonetheless, soon.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.process.kill().await?;
        Ok(())
    }

    /// Starts it again, after [`kill`](Self::kill), with what it finds on the disk.
    pub async fn start_again(&mut self) -> io::Result<()> {
        self.process = self.launch.spawn()?;
        ready(self.port.addr(), &self.process).await
    }

    /// Starts it again, after [`kill`](Self::kill), with an empty disk.
    pub async fn start_empty(&mut self) -> io::Result<()> {
        let data = self.scratch.path().join(DATA);
        fs::remove_dir_all(&data)?;
        fs::create_dir(&data)?;
        self.start_again().await
    }

    /// Waits until it follows its primary, and the primary knows: that is up to a second later.
    pub async fn follows(&self) -> io::Result<()> {
        let following = async {
            let mut fields = self.info("replication").await?;
            while fields.get("master_link_status").map(String::as_str) != Some("up") {
                sleep(POLL).await;
                fields = self.info("replication").await?;
            }
            let primary = format!("{}:{}", fields["master_host"], fields["master_port"]);
            let mut primary = Client::connect(primary.parse().map_err(io::Error::other)?).await?;
            let replicas = primary.command(&["INFO", "replication"]).await?.text().unwrap_or_default();
            let replicas = replicas.lines().find_map(|line| line.strip_prefix("connected_slaves:"));
            // A message without subscribers is replicated like a write, and changes nothing.
            primary.command(&["PUBLISH", "testbed", "follow"]).await?;
            primary.command(&["WAIT", replicas.unwrap_or("1"), "0"]).await?;
            Ok(())
        };
        timeout(READY, following).await.map_err(io::Error::from)?
    }
}

/// A server listens before it has read its data, and answers that it is loading until it has.
async fn ready(addr: SocketAddr, process: &Process) -> io::Result<()> {
    let answers = || async move {
        let answer = Client::connect(addr).await.ok()?.command(&["PING"]).await.ok()?;
        (answer == Reply::Simple("PONG".to_owned())).then_some(())
    };
    Ok(process.serves(READY, answers).await?)
}

const DATA: &str = "data";

const SOCKET: &str = "redis.sock";

/// How long a server gets until it answers or follows; it needs a few milliseconds.
const READY: Duration = Duration::from_secs(10);

/// How often it is asked.
const POLL: Duration = Duration::from_millis(2);
