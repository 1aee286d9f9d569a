//! How a server is to be set up: what goes into its configuration file and its command line.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::{Ensemble, Server};
use crate::scratch::in_memory;
use crate::{Certificates, Launch, Port, Scratch};

/// The settings of servers to start.
#[derive(Clone, Debug)]
#[must_use = "nothing runs before `start`"]
pub struct Setup {
    longest_session: Duration,
    certificates: Option<Certificates>,
    lines: Vec<String>,
    properties: Vec<String>,
    counters: Vec<String>,
}

impl Setup {
    /// The tick: sessions last two of them or more, and end up to one late.
    pub const TICK: Duration = Duration::from_millis(100);

    /// A tick of 100 ms, sessions of 200 ms to 60 s, no TLS.
    pub fn new() -> Self {
        Self {
            longest_session: Duration::from_secs(60),
            certificates: None,
            lines: Vec::new(),
            properties: Vec::new(),
            counters: Vec::new(),
        }
    }

    /// The longest session a client can have.
    pub fn longest_session(mut self, longest: Duration) -> Self {
        self.longest_session = longest;
        self
    }

    /// Listens for TLS on a second port, and admits clients with a certificate of the same authority.
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.certificates = Some(certificates.clone());
        self
    }

    /// Adds a line to the configuration file.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Sets a Java property, such as `znode.container.checkIntervalMs`.
    pub fn property(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.properties.push(format!("-D{name}={value}"));
        self
    }

    /// Begins with an empty container `path` that has such data, and has numbered so many children;
    /// Java's tools for developers are needed for that.
    pub fn counted(mut self, path: &str, counter: i32, data: &str) -> Self {
        self.counters.push(format!("{path}={counter}={data}"));
        self
    }

    /// Starts one server; it is ready when this returns.
    pub async fn start(self) -> io::Result<Server> {
        let server = self.prepare("", None)?;
        server.ready().await?;
        Ok(server)
    }

    /// Starts `size` servers that agree among each other; all of them are ready when this returns.
    pub async fn start_ensemble(self, size: usize) -> io::Result<Ensemble> {
        Ensemble::start(self, size).await
    }

    /// Starts a server whose configuration ends with `more`, and does not wait for it. `member` is
    /// its number among several.
    pub(super) fn prepare(&self, more: &str, member: Option<usize>) -> io::Result<Server> {
        let port = Port::reserve()?;
        let tls_port = self.certificates.as_ref().map(|_| Port::reserve()).transpose()?;
        let (scratch, data) = (Scratch::new("zookeeper")?, in_memory("zookeeper")?);
        let config = self.config(&scratch, &data, &port, tls_port.as_ref(), more)?;
        std::fs::write(scratch.path().join("zoo.cfg"), config)?;
        if let Some(member) = member {
            std::fs::write(data.path().join("myid"), member.to_string())?;
        }
        if !self.counters.is_empty() {
            self.seed(&data)?;
        }
        Server::spawn(self.launch(scratch.path()), port, tls_port, scratch, data)
    }

    /// Writes the data that the server begins with.
    fn seed(&self, data: &TempDir) -> io::Result<()> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/zookeeper/Seed.java");
        let mut seed = std::process::Command::new("java");
        seed.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", &class_path()])
            .arg(program)
            .arg(data.path())
            .args(&self.counters);
        let output = seed.output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("the data of a server could not be written: {said}")))
    }

    fn config(
        &self,
        scratch: &Scratch,
        data: &TempDir,
        port: &Port,
        tls_port: Option<&Port>,
        more: &str,
    ) -> io::Result<String> {
        let (tick, number) = (Self::TICK.as_millis(), port.number());
        let mut text = format!(
            "tickTime={tick}\nminSessionTimeout={}\nmaxSessionTimeout={}\ndataDir={}\nclientPort={number}\n\
             clientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n\
             4lw.commands.whitelist=*\n",
            2 * tick,
            self.longest_session.as_millis(),
            data.path().display(),
        );
        if let (Some(certificates), Some(port)) = (&self.certificates, tls_port) {
            // The server wants key and certificate in one file.
            let both = scratch.path().join("server.pem");
            let (certificate, key) = certificates.server();
            std::fs::write(&both, [std::fs::read(key)?, std::fs::read(certificate)?].concat())?;
            let _infallible = write!(
                text,
                "secureClientPort={}\nsecureClientPortAddress=127.0.0.1\n\
                 serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 ssl.keyStore.type=PEM\nssl.keyStore.location={}\n\
                 ssl.trustStore.type=PEM\nssl.trustStore.location={}\n",
                port.number(),
                both.display(),
                certificates.authority().display(),
            );
        }
        for line in &self.lines {
            text.push_str(line);
            text.push('\n');
        }
        text.push_str(more);
        Ok(text)
    }

    fn launch(&self, dir: &Path) -> Launch {
        // `setpriv` becomes the server, after it has asked the kernel to kill it with its parent.
        Launch::new("setpriv", dir)
            .args(["--pdeathsig", "KILL", "--", "java", "-Xmx256m", "-XX:+UseSerialGC"])
            .args(["-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024"])
            .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Djava.net.preferIPv4Stack=true"])
            .args(&self.properties)
            .args(["-cp", &class_path(), "org.apache.zookeeper.server.quorum.QuorumPeerMain", "./zoo.cfg"])
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

/// What `zookeeper.jar` does not ask for itself: a logger, and what TLS needs.
fn class_path() -> String {
    ["zookeeper", "slf4j-simple", "netty-codec", "netty-resolver"]
        .map(|jar| format!("{JARS}/{jar}.jar"))
        .join(":")
}

/// Where Debian's packages put them.
const JARS: &str = "/usr/share/java";
