//! A running PgBouncer in transaction mode: a connection of a client has another connection of the server for each
//! transaction. It refuses to run as root, as PostgreSQL does.

use std::net::SocketAddr;
use std::{fs, io};

use crate::postgres::{PSQL, START, Server, give_away, run, unprivileged};
use crate::{Port, Process, Scratch};

/// A PgBouncer; killed when dropped.
#[derive(Debug)]
pub struct Bouncer {
    _process: Process,
    port: Port,
    _scratch: Scratch,
}

impl Bouncer {
    /// Starts one with `connections` to a server, and lets every client in as the superuser. It serves when this returns.
    pub async fn start(server: &Server, connections: usize) -> io::Result<Self> {
        let (port, scratch) = (Port::reserve()?, Scratch::new("pgbouncer")?);
        let (addr, listens) = (server.addr(), port.number());
        let settings = format!(
            "[databases]\n* = host={} port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {listens}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = transaction\nmax_client_conn = 1000\nserver_login_retry = 1\n\
             default_pool_size = {connections}\n",
            addr.ip(),
            addr.port(),
        );
        let file = scratch.path().join("settings");
        fs::write(&file, settings)?;
        give_away(scratch.path())?;
        let process = unprivileged("pgbouncer".as_ref(), scratch.path()).args([&file]).spawn()?;
        let ask = || run("psql", port.addr(), PSQL.into_iter().chain(["-d", "postgres", "-c", "SELECT 1"]));
        process.serves(START, || async { ask().await.ok().map(drop) }).await?;
        Ok(Self { _process: process, port, _scratch: scratch })
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }
}
