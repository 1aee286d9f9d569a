//! The sentinels of one primary: real processes that watch it and its replicas, and promote one of these.

use std::{collections::BTreeMap, fs, io, net::SocketAddr, time::Duration};

use tokio::time::{sleep, timeout};

use super::{Client, Reply};
use crate::{Launch, Port, Process, Scratch};

/// Sentinels that agree on a primary; killed, and their directories removed, when dropped.
#[derive(Debug)]
pub struct Sentinels(Vec<Sentinel>);

/// One of them.
#[derive(Debug)]
struct Sentinel {
    /// Before the directory, which it writes to until it is dropped.
    process: Process,
    launch: Launch,
    port: Port,
    _scratch: Scratch,
}

impl Sentinels {
    /// The name of the primary.
    pub const MASTER: &str = "main";

    /// Starts `count` sentinels of `primary`, of which a majority promotes a replica once the primary was silent for
    /// `down_after`; and waits until each knows the others and so many `replicas`, any of which can be promoted.
    pub async fn start(
        primary: SocketAddr,
        replicas: usize,
        count: usize,
        down_after: Duration,
    ) -> io::Result<Self> {
        let mut sentinels = Vec::new();
        for _ in 0..count {
            sentinels.push(Sentinel::start(primary, count / 2 + 1, down_after).await?);
        }
        let sentinels = Self(sentinels);
        sentinels.know("num-other-sentinels", count - 1).await?;
        sentinels.settled(replicas).await?;
        Ok(sentinels)
    }

    /// Where they listen.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.0.iter().map(|sentinel| sentinel.port.addr()).collect()
    }

    /// Sends one command to one of them.
    pub async fn command(&self, sentinel: usize, words: &[&str]) -> io::Result<Reply> {
        Client::connect(self.0[sentinel].port.addr()).await?.command(words).await
    }

    /// The fields of what one of them says of the primary.
    pub async fn master(&self, sentinel: usize) -> io::Result<BTreeMap<String, String>> {
        Ok(fields(self.command(sentinel, &["SENTINEL", "MASTER", Self::MASTER]).await?))
    }

    /// Waits until each that runs knows so many replicas, all of which follow the primary: any of them can be promoted.
    pub async fn settled(&self, replicas: usize) -> io::Result<()> {
        let settled = async {
            for sentinel in 0..self.0.len() {
                while !self.has_settled(sentinel, replicas).await? {
                    sleep(POLL).await;
                }
            }
            Ok(())
        };
        timeout(READY, settled).await.map_err(io::Error::from)?
    }

    async fn has_settled(&self, sentinel: usize, replicas: usize) -> io::Result<bool> {
        let master = self.master(sentinel).await?;
        let known = self.command(sentinel, &["SENTINEL", "REPLICAS", Self::MASTER]).await?.elements();
        let known: Vec<_> = known.into_iter().map(fields).collect();
        let follows = |replica: &BTreeMap<_, _>| {
            let is = |field: &str, value: &str| replica.get(field).is_some_and(|is: &String| is == value);
            is("flags", "slave") && is("master-link-status", "ok") && is("master-port", &master["port"])
        };
        Ok(master["flags"] == "master" && known.len() == replicas && known.iter().all(follows))
    }

    /// Waits until all that run name the server at `primary`.
    pub async fn name(&self, primary: SocketAddr) -> io::Result<()> {
        self.know("port", usize::from(primary.port())).await
    }

    /// Lets one of them promote a replica of `primary`, although that may serve, and waits until all name another server. They
    /// have to be [`settled`](Self::settled).
    pub async fn fail_over(&self, primary: SocketAddr) -> io::Result<()> {
        let port = primary.port().to_string();
        let promoted = async {
            // Again after each attempt that was given up: an attempt ends if no replica has answered lately.
            loop {
                let fields = self.master(0).await?;
                if fields.get("port") != Some(&port) {
                    break;
                }
                if !fields["flags"].contains("failover_in_progress") {
                    self.command(0, &["SENTINEL", "FAILOVER", Self::MASTER]).await?;
                }
                sleep(POLL).await;
            }
            self.until(|fields| fields.get("port") != Some(&port)).await
        };
        timeout(READY, promoted).await.map_err(io::Error::from)?
    }

    /// Its process: to be stopped and continued.
    pub fn process(&self, sentinel: usize) -> &Process {
        &self.0[sentinel].process
    }

    /// Kills one of them.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call kills it nonetheless, soon.
    pub async fn kill(&mut self, sentinel: usize) -> io::Result<()> {
        self.0[sentinel].process.kill().await?;
        Ok(())
    }

    /// Starts it again, after [`kill`](Self::kill), with what it has written down.
    pub async fn start_again(&mut self, sentinel: usize) -> io::Result<()> {
        let Sentinel { process, launch, port, .. } = &mut self.0[sentinel];
        *process = launch.spawn()?;
        ready(port.addr(), process).await
    }

    async fn know(&self, field: &str, number: usize) -> io::Result<()> {
        let known = self.until(|fields| fields.get(field) == Some(&number.to_string()));
        timeout(READY, known).await.map_err(io::Error::from)?
    }

    /// Waits until `holds` says yes of the fields of all that answer.
    async fn until(&self, holds: impl Fn(&BTreeMap<String, String>) -> bool) -> io::Result<()> {
        for sentinel in 0..self.0.len() {
            // One that was killed or stopped has no say.
            while timeout(SILENT, self.master(sentinel))
                .await
                .is_ok_and(|fields| fields.is_ok_and(|fields| !holds(&fields)))
            {
                sleep(POLL).await;
            }
        }
        Ok(())
    }
}

impl Sentinel {
    async fn start(primary: SocketAddr, quorum: usize, down_after: Duration) -> io::Result<Self> {
        let (port, scratch) = (Port::reserve()?, Scratch::new("sentinel")?);
        let (number, dir, master) = (port.number(), scratch.path().display(), Sentinels::MASTER);
        let (ip, of, down_after) = (primary.ip(), primary.port(), down_after.as_millis());
        // It writes to this file what it learns.
        let config = scratch.path().join("sentinel.conf");
        let text = format!(
            "port {number}\nbind 127.0.0.1\ndir {dir}\nsentinel monitor {master} {ip} {of} {quorum}\n\
             sentinel down-after-milliseconds {master} {down_after}\n\
             sentinel failover-timeout {master} {FAILOVER_TIMEOUT}\n"
        );
        fs::write(&config, text)?;
        let mut launch = Launch::new("redis-server", scratch.path());
        launch = launch.args([config.as_os_str(), "--sentinel".as_ref()]);
        let process = launch.spawn()?;
        ready(port.addr(), &process).await?;
        Ok(Self { process, launch, port, _scratch: scratch })
    }
}

/// Waits until it answers, and lets it look every 100 to 500 ms instead of every 1 to 10 s.
async fn ready(addr: SocketAddr, process: &Process) -> io::Result<()> {
    let answers = || async move {
        let mut words = vec!["SENTINEL", "DEBUG"];
        words.extend(OFTEN);
        let answer = Client::connect(addr).await.ok()?.command(&words).await.ok()?;
        (answer == ok()).then_some(())
    };
    Ok(process.serves(READY, answers).await?)
}

/// An answer of names and values.
fn fields(answer: Reply) -> BTreeMap<String, String> {
    let words: Vec<_> = answer.elements().iter().filter_map(Reply::text).collect();
    words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

/// Their periods. `ping-period` stays at a second: a replica whose last answer is older than five of these is not promoted, and
/// the information of it is only a second old at best once the primary is down. Sentinels that ask each other more often than
/// every half second, `ask-period`, begin an election all at once, each with its own vote, and the next one seconds later. Four
/// times as long as `publish-period` others wait for news of a promotion, and then undo it. A machine that stands still for less
/// than `tilt-trigger` does not make them wait.
const OFTEN: [&str; 10] = [
    "info-period",
    "400",
    "ask-period",
    "500",
    "publish-period",
    "500",
    "min-link-reconnect-period",
    "100",
    "tilt-trigger",
    "20000",
];

/// In milliseconds: half as long as a failed attempt to promote keeps the next one waiting.
const FAILOVER_TIMEOUT: u32 = 2_000;

/// How long they get to answer, and to agree.
const READY: Duration = Duration::from_secs(60);

/// One that answers nothing for so long is stopped.
const SILENT: Duration = Duration::from_secs(3);

/// How often one is asked.
const POLL: Duration = Duration::from_millis(10);
