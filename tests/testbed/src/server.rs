//! One server of any kind, for tests that are the same for all of them; and what tells them apart.

use std::fmt::Display;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::{Certificates, Proxy, etcd, postgres, redis, zookeeper};

/// A single server that can be broken; gone when dropped, and with the thread that started it.
pub trait Server: Send + Sync + Sized + 'static {
    /// What it is called, and the scheme of its URLs.
    const NAME: &'static str;

    /// A lease that a busy machine renews in time, and whose end is not too long to wait for.
    const TTL: Duration;

    /// A lease that a restart does not outlast.
    const RESTART: Duration;

    /// How long after its end the server may find that a lease has ended.
    const NOTICES_WITHIN: Duration;

    /// For how long a client that receives nothing may still be received, and keep its lease with that.
    const HEARS_THE_DEAF_FOR: Duration;

    /// Starts one that keeps its data through [`restart`](Self::restart), and waits until it
    /// serves.
    fn start() -> impl Future<Output = io::Result<Self>> + Send;

    /// Starts one with a user called `billing`, whose password is `secret` and who may do everything below
    /// the namespace of that name.
    fn start_guarded() -> impl Future<Output = io::Result<Self>> + Send;

    /// Where clients connect.
    fn addr(&self) -> SocketAddr;

    /// The URL of a namespace, by way of `hosts`, with options of the form `ttl=3s&op_timeout=1s`.
    fn url(hosts: impl Display, namespace: &str, options: &str) -> String {
        format!("{}://{hosts}/{namespace}?{options}", Self::NAME)
    }

    /// Starts one that speaks TLS, to every client or only to clients with a certificate of the same
    /// authority.
    fn start_secured(
        certificates: &Arc<Certificates>,
        demands_ours: bool,
    ) -> impl Future<Output = io::Result<Self>> + Send;

    /// Where one that speaks TLS does.
    fn secured_addr(&self) -> SocketAddr;

    /// As [`url`](Self::url), over TLS.
    fn secured_url(hosts: impl Display, namespace: &str, options: &str) -> String;

    /// A way to it that can be broken.
    fn proxy(&self) -> io::Result<Proxy>;

    /// Kills it, and starts it again on what it had written down.
    fn restart(&mut self) -> impl Future<Output = io::Result<()>>;

    /// Kills it, and starts it again without data.
    fn restart_empty(&mut self) -> impl Future<Output = io::Result<()>>;

    /// Stops it: it keeps its connections, and sends nothing.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call stops it nonetheless, soon.
    fn stop(&mut self) -> impl Future<Output = io::Result<()>>;

    /// Lets it go on.
    fn cont(&mut self) -> io::Result<()>;
}

impl Server for redis::Server {
    const NAME: &'static str = "redis";
    const TTL: Duration = Duration::from_secs(2);
    const RESTART: Duration = Duration::from_secs(6);
    const NOTICES_WITHIN: Duration = Duration::ZERO;
    const HEARS_THE_DEAF_FOR: Duration = Duration::ZERO;

    async fn start() -> io::Result<Self> {
        // What is written outlives the process that wrote it, without waiting for the disk.
        let settings = redis::Settings::new().set("appendonly", &["yes"]).set("appendfsync", &["no"]);
        settings.start().await
    }

    fn addr(&self) -> SocketAddr {
        self.addr()
    }

    fn url(hosts: impl Display, namespace: &str, options: &str) -> String {
        format!("redis://{hosts}?prefix={namespace}&{options}")
    }

    async fn start_guarded() -> io::Result<Self> {
        let server = redis::Settings::new().start().await?;
        let words = ["ACL", "SETUSER", "billing", "on", ">secret", "~billing:*", "&billing:*", "+@all"];
        server.command(&words).await?;
        Ok(server)
    }

    async fn start_secured(certificates: &Arc<Certificates>, demands_ours: bool) -> io::Result<Self> {
        let server = redis::Settings::new().tls(certificates).start().await?;
        let demands = if demands_ours { "yes" } else { "no" };
        server.command(&["CONFIG", "SET", "tls-auth-clients", demands]).await?;
        Ok(server)
    }

    fn secured_addr(&self) -> SocketAddr {
        self.tls_addr().expect("it speaks TLS")
    }

    fn secured_url(hosts: impl Display, namespace: &str, options: &str) -> String {
        format!("rediss://{hosts}?prefix={namespace}&{options}")
    }

    fn proxy(&self) -> io::Result<Proxy> {
        Proxy::start_framed(self.addr(), redis::frame)
    }

    async fn restart(&mut self) -> io::Result<()> {
        self.kill().await?;
        self.start_again().await
    }

    async fn restart_empty(&mut self) -> io::Result<()> {
        self.kill().await?;
        self.start_empty().await
    }

    async fn stop(&mut self) -> io::Result<()> {
        Ok(self.process().stop().await?)
    }

    fn cont(&mut self) -> io::Result<()> {
        Ok(self.process().cont()?)
    }
}

impl Server for etcd::Etcd {
    const NAME: &'static str = "etcd";
    const TTL: Duration = Duration::from_secs(3);
    const RESTART: Duration = Duration::from_secs(12);
    const NOTICES_WITHIN: Duration = Duration::from_millis(500);
    const HEARS_THE_DEAF_FOR: Duration = Duration::ZERO;

    async fn start() -> io::Result<Self> {
        Self::start().await
    }

    fn addr(&self) -> SocketAddr {
        self.addr(0)
    }

    async fn start_guarded() -> io::Result<Self> {
        let mut server = Self::start().await?;
        server.enable_auth("billing", "secret", "billing/").await?;
        Ok(server)
    }

    async fn start_secured(certificates: &Arc<Certificates>, demands_ours: bool) -> io::Result<Self> {
        let (setup, certificates) = (etcd::Setup::new(), Arc::clone(certificates));
        let setup = if demands_ours { setup.mutual_tls(certificates) } else { setup.tls(certificates) };
        setup.start().await
    }

    fn secured_addr(&self) -> SocketAddr {
        self.addr(0)
    }

    fn secured_url(hosts: impl Display, namespace: &str, options: &str) -> String {
        format!("etcds://{hosts}/{namespace}?{options}")
    }

    fn proxy(&self) -> io::Result<Proxy> {
        Proxy::start(self.addr(0))
    }

    async fn restart(&mut self) -> io::Result<()> {
        self.kill(0).await?;
        self.restart(0).await
    }

    async fn restart_empty(&mut self) -> io::Result<()> {
        self.restart_without_data().await
    }

    async fn stop(&mut self) -> io::Result<()> {
        self.stop(0).await
    }

    fn cont(&mut self) -> io::Result<()> {
        self.cont(0)
    }
}

impl Server for zookeeper::Server {
    const NAME: &'static str = "zk";
    const TTL: Duration = Duration::from_secs(3);
    const RESTART: Duration = Duration::from_secs(30);
    const NOTICES_WITHIN: Duration = zookeeper::Setup::TICK;
    // A client that receives nothing reconnects, which keeps the session alive: 2.4 time-outs in all.
    const HEARS_THE_DEAF_FOR: Duration = Duration::from_secs(5);

    async fn start() -> io::Result<Self> {
        zookeeper::Setup::new().start().await
    }

    fn addr(&self) -> SocketAddr {
        self.addr()
    }

    /// The creator of a node sets its owner: there the first user. The superuser's password is `admin`.
    async fn start_guarded() -> io::Result<Self> {
        let superuser = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=";
        let setup = zookeeper::Setup::new();
        setup.property("zookeeper.DigestAuthenticationProvider.superDigest", superuser).start().await
    }

    async fn start_secured(certificates: &Arc<Certificates>, demands_ours: bool) -> io::Result<Self> {
        let demands = if demands_ours { "need" } else { "none" };
        let setup = zookeeper::Setup::new().tls(certificates).property("zookeeper.ssl.clientAuth", demands);
        setup.start().await
    }

    fn secured_addr(&self) -> SocketAddr {
        self.tls_addr()
    }

    fn secured_url(hosts: impl Display, namespace: &str, options: &str) -> String {
        <Self as Server>::url(hosts, namespace, &format!("tls=true&{options}"))
    }

    fn proxy(&self) -> io::Result<Proxy> {
        Proxy::start_framed(self.addr(), zookeeper::frame)
    }

    async fn restart(&mut self) -> io::Result<()> {
        self.kill().await?;
        self.restart()?;
        self.ready().await.map(drop)
    }

    async fn restart_empty(&mut self) -> io::Result<()> {
        self.kill().await?;
        self.forget()?;
        self.restart()?;
        self.ready().await.map(drop)
    }

    async fn stop(&mut self) -> io::Result<()> {
        Ok(self.process().stop().await?)
    }

    fn cont(&mut self) -> io::Result<()> {
        Ok(self.process().cont()?)
    }
}

impl Server for postgres::Server {
    const NAME: &'static str = "postgres";
    // A connection costs the server a process: a busy machine takes a while for each.
    const TTL: Duration = Duration::from_secs(5);
    const RESTART: Duration = Duration::from_secs(12);
    const NOTICES_WITHIN: Duration = Duration::from_millis(100);
    const HEARS_THE_DEAF_FOR: Duration = Duration::ZERO;

    async fn start() -> io::Result<Self> {
        // It counts statements.
        postgres::Setup::new().setting("shared_preload_libraries=pg_stat_statements").start().await
    }

    fn addr(&self) -> SocketAddr {
        self.addr()
    }

    fn url(hosts: impl Display, namespace: &str, options: &str) -> String {
        let hosts = hosts.to_string();
        let user = if hosts.contains('@') { "" } else { "postgres@" };
        format!("postgres://{user}{hosts}/postgres?prefix={namespace}&{options}")
    }

    async fn start_guarded() -> io::Result<Self> {
        let server = postgres::Setup::new().start().await?;
        server.sql("CREATE ROLE billing LOGIN PASSWORD 'secret'").await?;
        server.sql("GRANT CREATE ON DATABASE postgres TO billing").await?;
        Ok(server)
    }

    async fn start_secured(certificates: &Arc<Certificates>, demands_ours: bool) -> io::Result<Self> {
        postgres::Setup::new().tls(certificates, demands_ours).start().await
    }

    fn secured_addr(&self) -> SocketAddr {
        self.addr()
    }

    fn secured_url(hosts: impl Display, namespace: &str, options: &str) -> String {
        <Self as Server>::url(hosts, namespace, &format!("sslmode=verify-full&{options}"))
    }

    fn proxy(&self) -> io::Result<Proxy> {
        Proxy::start(self.addr())
    }

    async fn restart(&mut self) -> io::Result<()> {
        self.kill().await?;
        self.start_again().await
    }

    async fn restart_empty(&mut self) -> io::Result<()> {
        self.kill().await?;
        self.start_empty().await
    }

    async fn stop(&mut self) -> io::Result<()> {
        Self::stop(self).await
    }

    fn cont(&mut self) -> io::Result<()> {
        Self::cont(self)
    }
}
