//! Several servers that agree, with a network between them that can be cut.
//!
//! Each server reaches each other one through a proxy of its own, for what a follower says to its
//! leader. Elections do not go through them, so a follower that is cut off knows who leads and does
//! not get through.

use std::fmt::Write as _;
use std::io;
use std::ops::{Index, IndexMut};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Role, Server, Setup};
use crate::{Mode, Port, Proxy};

/// Servers that agree among each other.
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<Server>,
    /// By the connecting server, then by the other one.
    links: Vec<Vec<Option<Proxy>>>,
    _ports: Vec<(Port, Port)>,
}

impl Ensemble {
    pub(super) async fn start(setup: Setup, size: usize) -> io::Result<Self> {
        let ports: Vec<_> =
            (0..size).map(|_| Ok((Port::reserve()?, Port::reserve()?))).collect::<io::Result<_>>()?;
        let setup = setup.line("initLimit=50").line("syncLimit=10");
        let (mut servers, mut links) = (Vec::new(), Vec::new());
        for me in 0..size {
            let mut config = String::new();
            let mut mine = Vec::new();
            for (other, (quorum, election)) in ports.iter().enumerate() {
                let link = (other != me).then(|| Proxy::start(quorum.addr())).transpose()?;
                let quorum = link.as_ref().map_or_else(|| quorum.number(), |link| link.addr().port());
                let _infallible = writeln!(config, "server.{other}=127.0.0.1:{quorum}:{}", election.number());
                mine.push(link);
            }
            servers.push(setup.prepare(&config, Some(me))?);
            links.push(mine);
        }
        let ensemble = Self { servers, links, _ports: ports };
        for server in &ensemble.servers {
            server.ready().await?;
        }
        Ok(ensemble)
    }

    /// How many servers it has, dead ones included.
    pub fn size(&self) -> usize {
        self.servers.len()
    }

    /// `zk://host:port,host:port`, without a path.
    pub fn url(&self) -> String {
        format!("zk://{}", self.endpoints().join(","))
    }

    /// Where clients connect.
    pub fn endpoints(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.addr().to_string()).collect()
    }

    /// Which server leads.
    pub async fn leader(&self) -> io::Result<usize> {
        let found = async {
            loop {
                for (index, server) in self.servers.iter().enumerate() {
                    if let Ok(Ok(Some(Role::Leader))) = timeout(FIRST_ANSWER, server.role()).await {
                        return index;
                    }
                }
                sleep(POLL).await;
            }
        };
        let found = timeout(ELECTION, found).await;
        found.map_err(|_elapsed| io::Error::new(io::ErrorKind::TimedOut, "no server leads"))
    }

    /// Cuts a server off from the others: nothing passes either way, and no connection is closed.
    pub async fn cut(&self, server: usize) {
        self.set(server, &Mode::Blackhole).await;
    }

    /// Everything passes again.
    pub async fn heal(&self, server: usize) {
        self.set(server, &Mode::Pass).await;
    }

    async fn set(&self, server: usize, mode: &Mode) {
        for (from, links) in self.links.iter().enumerate() {
            for (to, link) in links.iter().enumerate() {
                if let Some(link) = link
                    && (from == server || to == server)
                {
                    link.set_both(mode.clone()).await;
                }
            }
        }
    }
}

impl Index<usize> for Ensemble {
    type Output = Server;

    fn index(&self, server: usize) -> &Server {
        &self.servers[server]
    }
}

impl IndexMut<usize> for Ensemble {
    fn index_mut(&mut self, server: usize) -> &mut Server {
        &mut self.servers[server]
    }
}

/// How long an election may take, on a machine that is busy.
const ELECTION: Duration = Duration::from_secs(60);

/// How long one server is waited for before the next is asked: it may be stopped.
const FIRST_ANSWER: Duration = Duration::from_millis(300);

/// How often the servers are asked.
const POLL: Duration = Duration::from_millis(10);
