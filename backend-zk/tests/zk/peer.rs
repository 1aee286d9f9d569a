//! Other libraries on the same locks: small programs of `tests/foreign/zookeeper`, driven by lines.

use std::path::{Path, PathBuf};
use std::time::Duration;

use testbed::{Launch, Process, ProcessErrorKind, Scratch, peers};

use crate::fixture::BOUND;

pub(crate) struct Peer {
    process: Process,
    _scratch: Scratch,
}

impl Peer {
    /// A client of Curator, or `None` with a message if it is not installed.
    pub(crate) async fn curator(hosts: &str, session: Duration) -> Option<Self> {
        let missing = JARS.iter().find(|jar| !jar_path(jar).exists());
        if let Some(missing) = missing {
            peers::skip("Curator", &format!("{missing}.jar is missing; `make tools` installs it"));
            return None;
        }
        let class_path: Vec<_> = JARS.iter().map(|jar| jar_path(jar).display().to_string()).collect();
        let session = session.as_millis().to_string();
        let program = program("CuratorPeer.java");
        let arguments = [
            "java",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            &class_path.join(":"),
            &program,
            hosts,
            &session,
        ];
        Some(Self::start(&arguments).await)
    }

    /// A client of kazoo, or `None` with a message if it is not installed.
    pub(crate) async fn kazoo(hosts: &str, session: Duration) -> Option<Self> {
        let Some(python) = peers::python() else {
            peers::skip("kazoo", "there is no Python with it; `make tools` installs it");
            return None;
        };
        let session = session.as_secs_f64().to_string();
        let program = program("kazoo_peer.py");
        Some(Self::start(&[&python.display().to_string(), &program, hosts, &session]).await)
    }

    /// A client of go-zookeeper, or `None` with a message if it is not installed.
    pub(crate) async fn go(hosts: &str, session: Duration) -> Option<Self> {
        let peer = peers::tools().join("go-zookeeper/peer");
        if !peer.exists() {
            peers::skip("go-zookeeper", &format!("{} is missing; `make tools` builds it", peer.display()));
            return None;
        }
        let session = session.as_secs_f64().to_string();
        Some(Self::start(&[&peer.display().to_string(), hosts, &session]).await)
    }

    /// It ends with the test, whatever it waits for.
    async fn start(arguments: &[&str]) -> Self {
        let scratch = Scratch::new("zk-peer").unwrap();
        let launch = Launch::new("setpriv", scratch.path()).args(["--pdeathsig", "KILL", "--"]);
        let process = launch.args(arguments).piped_lines().spawn().unwrap();
        let mut peer = Self { process, _scratch: scratch };
        assert_eq!(peer.answer().await, "ready");
        peer
    }

    pub(crate) async fn order(&mut self, order: &str) {
        self.process.send_line(order).await.unwrap();
    }

    pub(crate) async fn answer(&mut self) -> String {
        self.process.next_line(BOUND).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Checks that it has not answered.
    pub(crate) async fn is_silent(&mut self) {
        let answer = self.process.next_line(Duration::from_millis(100)).await;
        let silent = answer.as_ref().is_err_and(|error| error.kind() == ProcessErrorKind::TimedOut);
        assert!(silent, "{answer:?}");
    }

    pub(crate) async fn ask(&mut self, order: &str) -> String {
        self.order(order).await;
        self.answer().await
    }
}

fn program(file: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/foreign/zookeeper");
    directory.join(file).display().to_string()
}

fn jar_path(jar: &str) -> PathBuf {
    Path::new("/usr/share/java").join(format!("{jar}.jar"))
}

/// The JAR files of Curator's recipes.
const JARS: [&str; 7] = [
    "curator-recipes",
    "curator-framework",
    "curator-client",
    "zookeeper",
    "guava",
    "slf4j-api",
    "slf4j-nop",
];
