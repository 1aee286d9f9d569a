//! A running PostgreSQL server. It refuses to run as root: then it runs as the user `nobody`.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::sleep;

use crate::scratch::in_memory;
use crate::{Certificates, Launch, Port, Process, Scratch};

/// How a server is to be set up.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing runs before `start`"]
pub struct Setup {
    settings: Vec<String>,
    below: Option<PathBuf>,
    certificates: Option<(Certificates, bool)>,
}

impl Setup {
    /// Six hundred connections, no wait for the disk: what is written outlives the process that wrote it.
    pub fn new() -> Self {
        // A server that is killed leaves what it shares in its own directory.
        let settings = [
            "fsync=off",
            "max_connections=600",
            "unix_socket_directories=",
            "dynamic_shared_memory_type=mmap",
        ];
        Self { settings: settings.map(str::to_owned).into(), below: None, certificates: None }
    }

    /// Adds a setting of the form `name=value`.
    pub fn setting(mut self, setting: impl Into<String>) -> Self {
        self.settings.push(setting.into());
        self
    }

    /// Speaks TLS to everybody, or only to clients with a certificate of the same authority.
    pub fn tls(mut self, certificates: &Certificates, demands_ours: bool) -> Self {
        self.certificates = Some((certificates.clone(), demands_ours));
        self
    }

    /// Keeps its data below a directory, which is given to the server's user, and waits for the disk.
    pub fn below(self, directory: &Path) -> io::Result<Self> {
        give_away(directory)?;
        Ok(Self { below: Some(directory.to_owned()), ..self.setting("fsync=on") })
    }

    /// Keeps its log in a directory, for [`Setup::restore`].
    pub fn archive(self, directory: &Scratch) -> io::Result<Self> {
        give_away(directory.path())?;
        let copy = format!("archive_command=cp %p {}/%f", directory.path().display());
        Ok(self.setting("archive_mode=on").setting(copy))
    }

    /// Starts it; it serves when this returns.
    pub async fn start(self) -> io::Result<Server> {
        let data = data_directory(self.below.as_deref())?;
        self.start_on(data, None).await
    }

    /// Starts a standby of `primary`, which serves reads when this returns.
    pub async fn follow(self, primary: &Server) -> io::Result<Server> {
        let from = format!("primary_conninfo=host=127.0.0.1 port={} user=postgres", primary.port.number());
        self.setting(from).start_on(primary.backup().await?, Some("standby.signal")).await
    }

    /// Starts a server on a backup, and on the log that was archived since, up to the restore point of that name.
    pub async fn restore(self, backup: TempDir, archive: &Scratch, point: &str) -> io::Result<Server> {
        let fetch = format!("restore_command=cp {}/%f %p", archive.path().display());
        let (target, then) = (format!("recovery_target_name={point}"), "recovery_target_action=promote");
        let setup = self.setting(fetch).setting(target).setting(then);
        let server = setup.start_on(backup, Some("recovery.signal")).await?;
        let recovering = || async { server.sql("SELECT pg_is_in_recovery()").await.ok() };
        let is_done = || async { recovering().await.filter(|recovering| recovering == "f").map(drop) };
        server.process.serves(START, is_done).await?;
        Ok(server)
    }

    /// On a copy of another server's data, if there is a signal file that says how to go on from there.
    async fn start_on(self, data: TempDir, signal: Option<&str>) -> io::Result<Server> {
        let (port, scratch) = (Port::reserve()?, Scratch::new("postgres")?);
        give_away(scratch.path())?;
        let mut server_args = vec!["-D".to_owned(), data.path().display().to_string()];
        let listen = ["listen_addresses=127.0.0.1".to_owned(), format!("port={}", port.number())];
        let mut files = Vec::new();
        if let Some((certificates, _)) = &self.certificates {
            let (certificate, key) = certificates.server();
            files = vec![
                ("ssl_ca_file", certificates.authority()),
                ("ssl_cert_file", certificate),
                ("ssl_key_file", key),
            ];
        }
        let tls =
            files.iter().map(|(setting, _)| format!("{setting}={}", data.path().join(setting).display()));
        let tls = tls.chain((!files.is_empty()).then(|| "ssl=on".to_owned()));
        for setting in self.settings.iter().cloned().chain(listen).chain(tls) {
            server_args.extend(["-c".to_owned(), setting]);
        }
        let launch = unprivileged(&program("postgres")?, scratch.path()).args(server_args);
        let rules = match &self.certificates {
            None => {
                "host replication postgres all trust\nhost all postgres all trust\nhost all all all scram-sha-256\n"
            }
            Some((_, false)) => "hostssl all all all trust\n",
            Some((_, true)) => "hostssl all all all trust clientcert=verify-ca\n",
        };
        let disk = Disk { data, scratch, rules, files };
        match signal {
            Some(signal) => fs::write(disk.data.path().join(signal), "")?,
            None => disk.initialise().await?,
        }
        let mut launch = launch;
        let process = launch.spawn()?;
        let server = Server { process, launch, port, disk };
        server.ready().await?;
        Ok(server)
    }
}

/// A PostgreSQL server; killed, and its directories removed, when dropped.
#[derive(Debug)]
pub struct Server {
    /// Before the directories, in which it writes.
    process: Process,
    launch: Launch,
    port: Port,
    disk: Disk,
}

#[derive(Debug)]
struct Disk {
    data: TempDir,
    scratch: Scratch,
    rules: &'static str,
    files: Vec<(&'static str, PathBuf)>,
}

impl Disk {
    async fn initialise(&self) -> io::Result<()> {
        let args =
            ["--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "-D"];
        let launch = unprivileged(&program("initdb")?, self.scratch.path());
        let mut making = launch.args(args).args([self.data.path()]).spawn()?;
        if !making.wait(START).await?.success() {
            return Err(io::Error::other(fs::read_to_string(making.log())?));
        }
        fs::write(self.data.path().join("pg_hba.conf"), self.rules)?;
        for (name, source) in &self.files {
            let file = self.data.path().join(name);
            fs::copy(source, &file)?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
            give_away(&file)?;
        }
        Ok(())
    }
}

impl Server {
    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Runs a statement as the superuser; returns its rows, with a bar between columns.
    pub async fn sql(&self, statement: &str) -> io::Result<String> {
        self.sql_in("postgres", statement).await
    }

    /// In that database.
    pub async fn sql_in(&self, database: &str, statement: &str) -> io::Result<String> {
        run("psql", self.addr(), PSQL.into_iter().chain(["-A", "-t", "-d", database, "-c", statement])).await
    }

    /// Dumps its database, and restores that as a new one.
    pub async fn dump_into(&self, database: &str) -> io::Result<()> {
        self.sql(&format!("CREATE DATABASE {database}")).await?;
        let file = self.disk.scratch.path().join("dump");
        let file = file.display().to_string();
        run("pg_dump", self.addr(), ["-f", &file, "postgres"]).await?;
        run("psql", self.addr(), PSQL.into_iter().chain(["-d", database, "-f", &file])).await.map(drop)
    }

    /// A copy of its data, as of now.
    pub async fn backup(&self) -> io::Result<TempDir> {
        let (copy, program) = (data_directory(None)?, program("pg_basebackup")?);
        let port = self.port.number().to_string();
        let args = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-X", "stream", "-c", "fast"];
        let launch = unprivileged(&program, self.disk.scratch.path()).args(args).args(["--no-sync", "-D"]);
        let mut copying = launch.args([copy.path()]).spawn()?;
        match copying.wait(START).await?.success() {
            true => Ok(copy),
            false => Err(io::Error::other(fs::read_to_string(copying.log())?)),
        }
    }

    /// Makes a standby a primary; it takes writes when this returns.
    pub async fn promote(&self) -> io::Result<()> {
        self.sql("SELECT pg_promote()").await.map(drop)
    }

    /// What it has logged since it was started.
    pub fn log(&self) -> io::Result<String> {
        fs::read_to_string(self.process.log())
    }

    /// Waits until it serves.
    pub async fn ready(&self) -> io::Result<()> {
        let ask = || run("pg_isready", self.addr(), ["-d", "postgres"]);
        let serves = || async { ask().await.ok().map(drop) };
        Ok(self.process.serves(START, serves).await?)
    }

    /// Kills it: its processes end without writing anything more.
    pub async fn kill(&mut self) -> io::Result<()> {
        // It would start others meanwhile.
        self.process.stop().await?;
        // A zombie has given back its shared memory.
        let lives = |child: &Pid| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.as_raw_pid()));
            stat.is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
        };
        // One that has not ended keeps the next server from starting, and the list is not whole while some end.
        loop {
            let living: Vec<_> = self.children()?.into_iter().filter(lives).collect();
            if living.is_empty() {
                return Ok(self.process.kill().await.map(drop)?);
            }
            for child in living {
                let _ended = kill_process(child, Signal::KILL);
                while lives(&child) {
                    sleep(Duration::from_millis(1)).await;
                }
            }
        }
    }

    /// Starts it again on its data, after it was killed.
    pub async fn start_again(&mut self) -> io::Result<()> {
        self.process = self.launch.spawn()?;
        self.ready().await
    }

    /// Starts it again without data, after it was killed.
    pub async fn start_empty(&mut self) -> io::Result<()> {
        for entry in fs::read_dir(self.disk.data.path())? {
            let path = entry?.path();
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
        self.disk.initialise().await?;
        self.start_again().await
    }

    /// Stops it and its processes.
    pub async fn stop(&self) -> io::Result<()> {
        self.process.stop().await?;
        for child in self.children()? {
            kill_process(child, Signal::STOP)?;
        }
        Ok(())
    }

    /// Lets it go on.
    pub fn cont(&self) -> io::Result<()> {
        for child in self.children()? {
            kill_process(child, Signal::CONT)?;
        }
        Ok(self.process.cont()?)
    }

    /// Of all its processes, those of its clients among them.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        let children = self.children()?.into_iter().map(|child| child.as_raw_pid().cast_unsigned());
        Ok([self.process.pid()].into_iter().chain(children).collect())
    }

    fn children(&self) -> io::Result<Vec<Pid>> {
        let pid = self.process.pid();
        let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        Ok(listed.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect())
    }
}

impl Drop for Server {
    /// Its processes end once it is killed, but those that are stopped would not.
    fn drop(&mut self) {
        for child in self.children().unwrap_or_default() {
            let _ended = kill_process(child, Signal::CONT);
        }
    }
}

/// Runs one of PostgreSQL's own clients as the superuser; what it writes.
pub(crate) async fn run(
    name: &str,
    server: SocketAddr,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> io::Result<String> {
    let mut client = Command::new(program(name)?);
    client.args(["-h", &server.ip().to_string(), "-p", &server.port().to_string(), "-U", "postgres"]);
    let ran = client.args(args).kill_on_drop(true).output().await?;
    match ran.status.success() {
        true => Ok(String::from_utf8_lossy(&ran.stdout).trim_end().to_owned()),
        false => Err(io::Error::other(String::from_utf8_lossy(&ran.stderr).into_owned())),
    }
}

/// An empty one, which the server may write to.
fn data_directory(below: Option<&Path>) -> io::Result<TempDir> {
    let directory = below.map_or_else(|| in_memory("postgres"), tempfile::tempdir_in)?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700))?;
    give_away(directory.path())?;
    Ok(directory)
}

/// Below Debian's directory of the newest version, or on the path.
fn program(name: &str) -> io::Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest =
        versions.map(|entry| entry.path()).filter(|path| version(path).is_some()).max_by_key(version);
    Ok(newest.map_or_else(|| PathBuf::from(name), |path| path.join("bin").join(name)))
}

pub(crate) fn unprivileged(program: &Path, dir: &Path) -> Launch {
    if !geteuid().is_root() {
        return Launch::new(program, dir);
    }
    let nobody = NOBODY.to_string();
    Launch::new("setpriv", dir)
        .args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"])
        .args([program])
}

pub(crate) fn give_away(path: &Path) -> io::Result<()> {
    if geteuid().is_root() { chown(path, Some(NOBODY), Some(NOBODY)) } else { Ok(()) }
}

const NOBODY: u32 = 65_534;

/// Reads no start-up file, and ends at the first error.
pub(crate) const PSQL: [&str; 4] = ["-X", "-q", "-v", "ON_ERROR_STOP=1"];

/// How long a server may take to start, on a machine that is busy.
pub(crate) const START: Duration = Duration::from_secs(60);
