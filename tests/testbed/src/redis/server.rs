//! A running Redis server.

use std::{collections::BTreeMap, fs, io, net::SocketAddr, path::PathBuf, time::Duration};

use tokio::time::{sleep, timeout};

use super::{Client, Reply, Settings};
use crate::{Launch, Port, Process, ProcessErrorKind, Scratch};

/// A Redis server; killed, and its directory removed, when dropped.
#[derive(Debug)]
pub struct Server {
    /// Before the directory, which it writes to until it is dropped.
    process: Process,
    launch: Launch,
    port: Port,
    tls_port: Option<Port>,
    primary: Option<SocketAddr>,
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
            for (directive, path) in [
                ("ca-cert-file", &files.authority),
                ("cert-file", &files.certificate),
                ("key-file", &files.key),
            ] {
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
        let mut process = spawn(&mut launch)?;
        ready(port.addr(), &mut process).await?;
        Ok(Self { process, launch, port, tls_port, primary: settings.primary, scratch })
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
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub async fn client(&self) -> io::Result<Client> {
        Client::connect(self.addr()).await
    }

    /// Sends one command on a connection of its own.
    ///
    /// # Errors
    ///
    /// When it is not running. A refusal by the server is [`Reply::Error`].
    pub async fn command(&self, words: &[&str]) -> io::Result<Reply> {
        self.client().await?.command(words).await
    }

    /// The fields of a section of INFO.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub async fn info(&self, section: &str) -> io::Result<BTreeMap<String, String>> {
        let text = self.command(&["INFO", section]).await?.text().unwrap_or_default();
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Ok(fields.map(|(field, value)| (field.to_owned(), value.to_owned())).collect())
    }

    /// How often each command was called, as the server has counted since it started or since
    /// `CONFIG RESETSTAT`; subcommands as `client|list`. Commands that a script calls are counted, too.
    ///
    /// # Errors
    ///
    /// When it is not running.
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
    /// # Errors
    ///
    /// When it does not die.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call kills it nonetheless, soon.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.process.kill().await.map_err(io::Error::other)?;
        Ok(())
    }

    /// Starts it again, after [`kill`](Self::kill), with what it finds on the disk.
    ///
    /// # Errors
    ///
    /// As [`Settings::start`].
    ///
    /// # Cancel safety
    ///
    /// A cancelled call leaves it running or killed.
    pub async fn start_again(&mut self) -> io::Result<()> {
        self.process = spawn(&mut self.launch)?;
        ready(self.port.addr(), &mut self.process).await
    }

    /// Starts it again, after [`kill`](Self::kill), with an empty disk.
    ///
    /// # Errors
    ///
    /// As [`Settings::start`].
    ///
    /// # Cancel safety
    ///
    /// As [`start_again`](Self::start_again).
    pub async fn start_empty(&mut self) -> io::Result<()> {
        let data = self.scratch.path().join(DATA);
        fs::remove_dir_all(&data)?;
        fs::create_dir(&data)?;
        self.start_again().await
    }

    /// Waits until it follows its primary, and the primary knows: that is up to a second later.
    ///
    /// # Errors
    ///
    /// When one of them is not running, it has no primary, or does not follow within ten seconds.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub async fn follows(&self) -> io::Result<()> {
        let primary = self.primary.ok_or(io::ErrorKind::NotConnected)?;
        let following = async {
            while self.info("replication").await?.get("master_link_status").map(String::as_str) != Some("up")
            {
                sleep(POLL).await;
            }
            // A message to nobody is copied like a write, and changes nothing.
            let mut primary = Client::connect(primary).await?;
            let replicas = primary.command(&["INFO", "replication"]).await?.text().unwrap_or_default();
            let replicas = replicas.lines().find_map(|line| line.strip_prefix("connected_slaves:"));
            primary.command(&["PUBLISH", "testbed", "follow"]).await?;
            primary.command(&["WAIT", replicas.unwrap_or("1"), "0"]).await?;
            Ok(())
        };
        timeout(READY, following).await.map_err(io::Error::from)?
    }
}

fn spawn(launch: &mut Launch) -> io::Result<Process> {
    launch.spawn().map_err(|error| match std::error::Error::source(&error) {
        Some(source) if error.kind() == ProcessErrorKind::Os && is_missing(source) => io::Error::new(
            io::ErrorKind::NotFound,
            format!("{error}: it is not installed; run `make tools`, which installs it"),
        ),
        _ => io::Error::other(error),
    })
}

fn is_missing(source: &(dyn std::error::Error + 'static)) -> bool {
    source.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// A server listens before it has read its data, and answers that it is loading until it has.
async fn ready(addr: SocketAddr, process: &mut Process) -> io::Result<()> {
    let answers = async {
        loop {
            let answer = async { Client::connect(addr).await?.command(&["PING"]).await };
            if answer.await.ok() == Some(Reply::Simple("PONG".to_owned())) {
                return;
            }
            sleep(POLL).await;
        }
    };
    tokio::select! {
        answered = timeout(READY, answers) => answered.map_err(|_| {
            let log = fs::read_to_string(process.log()).unwrap_or_default();
            io::Error::new(io::ErrorKind::TimedOut, format!("the server did not answer; it logged:\n{log}"))
        }),
        ended = process.wait(READY * 2) => {
            let log = fs::read_to_string(process.log()).unwrap_or_default();
            Err(io::Error::other(format!("the server has ended ({ended:?}); it logged:\n{log}")))
        }
    }
}

const DATA: &str = "data";

const SOCKET: &str = "redis.sock";

/// How long a server gets until it answers or follows; it needs a few milliseconds.
const READY: Duration = Duration::from_secs(10);

/// How often it is asked.
const POLL: Duration = Duration::from_millis(2);
