//! The addresses of the servers, each on its own.
//!
//! The client crate bounds the TCP connection alone: a server that takes it and is silent would keep the others from their turn.

use futures_util::future::join_all;
use leasehold_core::{Env, Result};
use tokio::net::lookup_host;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::error;

/// The configuration of each address, in the order of the hosts. Unknown names are left out while any host is known.
pub(super) async fn addresses(env: &Env, config: &Config) -> Result<Vec<Config>> {
    let number = config.get_hosts().len().max(config.get_hostaddrs().len());
    let known: Vec<_> = join_all((0..number).map(|at| of_host(env, config, at))).await;
    let mut addresses = Vec::new();
    let mut unknown = None;
    for host in known {
        match host {
            Ok(of_host) => addresses.extend(of_host),
            Err(error) => unknown = Some(error),
        }
    }
    unknown.filter(|_| addresses.is_empty()).map_or(Ok(addresses), Err)
}

async fn of_host(env: &Env, config: &Config, at: usize) -> Result<Vec<Config>> {
    let ports = config.get_ports();
    let port =
        ports.get(at).or_else(|| ports.first()).copied().unwrap_or(crate::PostgresConfig::DEFAULT_PORT);
    let mut alone = without_hosts(config);
    alone.port(port);
    let address = config.get_hostaddrs().get(at);
    let name = match config.get_hosts().get(at) {
        #[cfg(unix)]
        Some(Host::Unix(path)) => {
            alone.host_path(path);
            return Ok(vec![alone]);
        }
        Some(Host::Tcp(name)) => name.clone(),
        None => address.map(ToString::to_string).unwrap_or_default(),
    };
    // The server's certificate has this name.
    alone.host(&name);
    let addresses = match address {
        Some(address) => vec![*address],
        None => {
            let bound = env.timing().op_timeout;
            let known = env.within(bound, lookup_host((name.as_str(), port))).await;
            let known = known.ok_or_else(|| error::silent(bound))?;
            known.map_err(|cause| error::unknown_host(&name, &cause))?.map(|address| address.ip()).collect()
        }
    };
    let with = |address| {
        let mut with = alone.clone();
        with.hostaddr(address);
        with
    };
    Ok(addresses.into_iter().map(with).collect())
}

fn without_hosts(config: &Config) -> Config {
    let mut alone = Config::new();
    if let Some(user) = config.get_user() {
        alone.user(user);
    }
    if let Some(password) = config.get_password() {
        alone.password(password);
    }
    if let Some(database) = config.get_dbname() {
        alone.dbname(database);
    }
    if let Some(options) = config.get_options() {
        alone.options(options);
    }
    if let Some(name) = config.get_application_name() {
        alone.application_name(name);
    }
    if let Some(bound) = config.get_connect_timeout() {
        alone.connect_timeout(*bound);
    }
    if let Some(bound) = config.get_tcp_user_timeout() {
        alone.tcp_user_timeout(*bound);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        alone.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        alone.keepalives_retries(retries);
    }
    alone
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    alone
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use leasehold_core::{ErrorKind, Timing};
    use tokio_postgres::config::{
        ChannelBinding, LoadBalanceHosts, SslMode, SslNegotiation, TargetSessionAttrs,
    };

    use super::*;

    /// Each address is reached by everything that the configuration says.
    #[tokio::test]
    async fn address_keeps_every_other_setting() {
        let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap();
        let mut all = Config::new();
        all.user("u").password("p").dbname("d").options("o").application_name("a");
        all.connect_timeout(Duration::from_secs(1)).tcp_user_timeout(Duration::from_secs(2));
        all.keepalives(false)
            .keepalives_idle(Duration::from_secs(3))
            .keepalives_interval(Duration::from_secs(4));
        all.keepalives_retries(5).ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
        all.target_session_attrs(TargetSessionAttrs::ReadWrite).channel_binding(ChannelBinding::Require);
        all.load_balance_hosts(LoadBalanceHosts::Random);
        let local = IpAddr::from(Ipv4Addr::LOCALHOST);
        let with = |port, address: &str| {
            let mut with = all.clone();
            with.host(address).port(port).hostaddr(address.parse().unwrap());
            with
        };
        let expected = [with(1, "127.0.0.1"), with(2, "127.0.0.2")];
        let mut two = all.clone();
        two.host("127.0.0.1").port(1).host("127.0.0.2").port(2);
        assert_eq!(addresses(&env, &two).await.unwrap(), expected);
        let mut unnamed = all.clone();
        unnamed.port(1).port(2).hostaddr(local).hostaddr("127.0.0.2".parse().unwrap());
        assert_eq!(addresses(&env, &unnamed).await.unwrap(), expected);

        let mut unknown = Config::new();
        // No resolver asks for a name that long.
        unknown.host("x".repeat(300)).port(1);
        let refused = addresses(&env, &unknown).await.unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{refused:#}");
        unknown.host("127.0.0.1");
        let mut known = Config::new();
        known.host("127.0.0.1").port(1).hostaddr(local);
        assert_eq!(addresses(&env, &unknown).await.unwrap(), [known]);
    }
}
