//! etcd servers on the loopback: one member or several, started with directories of their own,
//! counted, stopped, killed and started again.
//!
//! Data lies in memory (`/dev/shm`) where there is that, as etcd syncs every write. Members tick
//! fast, so that a leader is found in a fraction of a second and leases may be as short as one.
//!
//! # Invariants
//! - **testbed.etcd-1** A member that was started has answered a linearizable read.
//! - **testbed.etcd-2** A member keeps its addresses for life, also while it is down.
//! - **testbed.etcd-3** A member ends when dropped, and with the thread that started it, also when that is killed:
//!   start it on one that lives as long as it is needed, such as the one that blocks on the test.
//!
//! Not promised: a leader while members come and go; see [`Etcd::leader`].

mod member;
mod metrics;
mod setup;

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::{Certificates, Launch, Process, Scratch};
use member::{Blueprint, Member};

pub use metrics::{Metrics, Requests};
pub use setup::{Setup, current};

/// A running cluster of one member or more; gone when dropped.
#[derive(Debug)]
pub struct Etcd {
    // Processes go before the directories they write to.
    members: Vec<Member>,
    program: PathBuf,
    /// The arguments that all members have.
    common: Vec<String>,
    certificates: Option<Arc<Certificates>>,
    user: Option<String>,
    scratch: Scratch,
}

impl Etcd {
    /// One member of the installed etcd, without TLS and users.
    pub async fn start() -> io::Result<Self> {
        Setup::new().start().await
    }

    /// How many members there are, running or not.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Where clients connect to a member.
    pub fn addr(&self, member: usize) -> SocketAddr {
        self.members[member].addr()
    }

    /// The process ids of the members that run.
    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().filter_map(Member::pid).collect()
    }

    /// Every member as `host:port`.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.addr().to_string()).collect()
    }

    /// A store URL without prefix and options: `etcd://…` or, with TLS, `etcds://…`.
    pub fn url(&self) -> String {
        let scheme = if self.certificates.is_some() { "etcds" } else { "etcd" };
        format!("{scheme}://{}", self.endpoints().join(","))
    }

    /// What a member counts about itself.
    pub async fn metrics(&self, member: usize) -> io::Result<Metrics> {
        self.members[member].metrics().await
    }

    /// What clients have sent to all members since these started: requests by method, each message
    /// on a stream included. Counting sends nothing itself.
    pub async fn requests(&self) -> io::Result<Requests> {
        let mut all = Requests::default();
        for member in &self.members {
            all = all + member.metrics().await?.requests();
        }
        Ok(all)
    }

    /// The leader, as soon as exactly one of the members that run says that it is.
    pub async fn leader(&self) -> io::Result<usize> {
        let found = async {
            loop {
                let mut leaders = Vec::new();
                for (index, member) in self.members.iter().enumerate() {
                    if member.is_running() && member.leads().await {
                        leaders.push(index);
                    }
                }
                if let [leader] = leaders[..] {
                    return leader;
                }
                sleep(POLL).await;
            }
        };
        timeout(BOUND, found).await.map_err(|_elapsed| io::Error::other("no single etcd member leads"))
    }

    /// Stops a member (`SIGSTOP`); it has stopped when this returns.
    pub async fn stop(&mut self, member: usize) -> io::Result<()> {
        self.members[member].stop().await
    }

    /// Lets a stopped member go on.
    pub fn cont(&mut self, member: usize) -> io::Result<()> {
        self.members[member].cont()
    }

    /// Kills a member (`SIGKILL`); its data stays.
    pub async fn kill(&mut self, member: usize) -> io::Result<()> {
        self.members[member].kill().await
    }

    /// Starts a killed member again, on its data and addresses.
    pub async fn restart(&mut self, member: usize) -> io::Result<()> {
        self.members[member].spawn()?;
        self.members[member].ready().await
    }

    /// Kills every member, removes all data and starts them as a new cluster on the old addresses.
    pub async fn restart_without_data(&mut self) -> io::Result<()> {
        for member in &mut self.members {
            member.kill().await?;
            member.forget()?;
        }
        for member in &mut self.members {
            member.spawn()?;
        }
        for member in &self.members {
            member.ready().await?;
        }
        Ok(())
    }

    /// Adds a member that copies the data and has no vote; its number.
    pub async fn add_learner(&mut self) -> io::Result<usize> {
        let index = self.members.len();
        let blueprint = Blueprint::reserve(index)?;
        let peer = blueprint.as_peer();
        let (name, url) = peer.split_once('=').ok_or(io::ErrorKind::InvalidData)?;
        self.ctl(["member", "add", name, "--learner", &format!("--peer-urls={url}")]).await?;
        let peers: Vec<_> = self.members.iter().map(Member::as_peer).chain([peer.clone()]).collect();
        let mut args = self.common.clone();
        // The last one counts.
        args.push(format!("--initial-cluster={}", peers.join(",")));
        args.push("--initial-cluster-state=existing".to_owned());
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        let mut member = Member::new(blueprint, &self.program, scheme, &args, self.scratch.path())?;
        member.spawn()?;
        member.learns().await?;
        self.members.push(member);
        Ok(index)
    }

    /// Runs `etcdctl` on all members that run and returns what it prints.
    pub async fn ctl(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> io::Result<String> {
        let mut command = Command::new(ETCDCTL);
        command.args(self.ctl_flags()).args(args).env("ETCDCTL_API", "3").kill_on_drop(true);
        let failed = |said: &dyn fmt::Display| io::Error::other(format!("{ETCDCTL}: {said}"));
        let output = timeout(BOUND, command.output()).await.map_err(|elapsed| failed(&elapsed))?;
        let output = output.map_err(|error| failed(&error))?;
        if !output.status.success() {
            return Err(failed(&format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts `etcdctl` in the background with its lines piped, as `etcdctl lock` wants it.
    pub fn ctl_in_background(
        &self,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> io::Result<Process> {
        let mut launch = Launch::new(ETCDCTL, self.scratch.path()).args(self.ctl_flags()).args(args);
        launch = launch.env("ETCDCTL_API", "3").piped_lines();
        Ok(launch.spawn()?)
    }

    /// The keys that begin with `prefix`, in order.
    pub async fn keys(&self, prefix: &str) -> io::Result<Vec<String>> {
        let listed = self.ctl(["get", "--prefix", "--keys-only", prefix]).await?;
        Ok(listed.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    /// Turns users on: `root`, which `etcdctl` acts as from here on, and `user`, who may read and
    /// write what begins with `prefix` and nothing else.
    pub async fn enable_auth(&mut self, user: &str, password: &str, prefix: &str) -> io::Result<()> {
        let root = format!("root:{ROOT_PASSWORD}");
        self.ctl(["user", "add", &root]).await?;
        self.ctl(["user", "grant-role", "root", "root"]).await?;
        self.ctl(["role", "add", "locks"]).await?;
        self.ctl(["role", "grant-permission", "locks", "--prefix=true", "readwrite", prefix]).await?;
        self.ctl(["user", "add", &format!("{user}:{password}")]).await?;
        self.ctl(["user", "grant-role", user, "locks"]).await?;
        self.ctl(["auth", "enable"]).await?;
        self.user = Some(root);
        Ok(())
    }

    fn ctl_flags(&self) -> Vec<String> {
        let running = self.members.iter().filter(|member| member.is_running());
        let endpoints: Vec<_> = running.map(|member| member.addr().to_string()).collect();
        let mut flags = vec![format!("--endpoints={}", endpoints.join(","))];
        if let Some(certificates) = &self.certificates {
            let (certificate, key) = certificates.client();
            let flag = |name, path: &Path| format!("--{name}={}", path.display());
            flags.push(flag("cacert", &certificates.authority()));
            flags.push(flag("cert", &certificate));
            flags.push(flag("key", &key));
        }
        flags.extend(self.user.iter().map(|user| format!("--user={user}")));
        flags
    }
}

const ETCDCTL: &str = "etcdctl";
const ROOT_PASSWORD: &str = "testbed";

/// How long a server or a command gets for what takes a second at most.
const BOUND: Duration = Duration::from_secs(10);

/// How often something that cannot be waited for is looked at.
const POLL: Duration = Duration::from_millis(10);
