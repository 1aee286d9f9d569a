//! How a connection to one endpoint is made, and why it is not.
//!
//! The connection is made here and not by the client crate, which connects in the background and reports no cause of a
//! failure. Certificates are read before a connection is made.

use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use leasehold_core::backend::Credentials;
use leasehold_core::{Effect, Error, Result};
use tonic::transport::Endpoint;
use tower::ServiceExt;

use super::gathered::Gathered;
use crate::config::EtcdConfig;
use crate::error;

/// An endpoint for each URL, to be connected to within `bound`.
///
/// # Errors
///
/// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption) for certificates that cannot be used.
pub(super) fn endpoints(config: &EtcdConfig, urls: &[String], bound: Duration) -> Result<Vec<Endpoint>> {
    let over_tls = config.over_tls()?;
    let endpoint = |url: &String| {
        let endpoint = Endpoint::from_shared(url.clone())?
            .connect_timeout(bound)
            .http2_keep_alive_interval(HTTP_KEEPALIVE.0)
            .keep_alive_timeout(HTTP_KEEPALIVE.1)
            .keep_alive_while_idle(false);
        match &over_tls {
            Some(over_tls) => over_tls(endpoint),
            None => Ok(endpoint),
        }
    };
    let endpoints: Result<_, tonic::transport::Error> = urls.iter().map(endpoint).collect();
    endpoints.map_err(|error| {
        let why = error::cause(&error);
        Error::invalid_option("cannot connect with these options").with_source(why)
    })
}

/// A connection to an endpoint, authenticated if the cluster requires it.
pub(super) async fn connect(endpoint: &Endpoint, credentials: Option<&Credentials>) -> Result<Client> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(HTTP_KEEPALIVE.0));
    connector.set_connect_timeout(endpoint.get_connect_timeout());
    let connector = connector.map_response(|stream| TokioIo::new(Gathered::new(stream.into_inner())));
    let channel = endpoint.connect_with_connector(connector).await.map(Channel::Tonic);
    let channel = channel.map_err(|error| error::of_connecting(&error))?;
    let is_encrypted = endpoint.uri().scheme_str() == Some("https");
    authenticated(channel, credentials).await.map_err(|error| {
        let meant = if is_encrypted { error::of_first_request(error) } else { error::of_client(error) };
        meant.with_effect(Effect::NotApplied)
    })
}

async fn authenticated(
    channel: Channel,
    credentials: Option<&Credentials>,
) -> Result<Client, etcd_client::Error> {
    let nobody = ConnectOptions::new().with_require_leader(true);
    if let Some(Credentials { user, password, .. }) = credentials {
        let named = nobody.clone().with_user(user, password).with_auto_token_refresh(true);
        match Client::from_channel(channel.clone(), Some(named)).await {
            // Authentication is disabled, perhaps for a while. etcd's own clients go on in this case, too.
            Err(error) if error::says(&error, error::AUTHENTICATION_IS_OFF) => {}
            answer => return answer,
        }
    }
    Client::from_channel(channel, Some(nobody)).await
}

/// How often a busy connection is checked, and how long the reply may take. Servers refuse more frequent checks; less
/// frequent ones would notice a dead connection late.
const HTTP_KEEPALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3));
