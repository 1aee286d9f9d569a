//! How a connection to one endpoint is made, and why it is not.
//!
//! The connection is made here, not by the client: that one tries in the background and tells nobody
//! why it fails. Certificates are read before anything is connected to.

use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions};
use leasehold_core::{Effect, Error, Result};
use tonic::transport::Endpoint;

use crate::config::EtcdConfig;
use crate::error;

pub(crate) struct Connector {
    endpoints: Vec<Endpoint>,
    credentials: Option<(String, String)>,
}

impl Connector {
    /// For connections that are made within `bound`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption) for certificates that cannot be used.
    pub(crate) fn new(config: &EtcdConfig, urls: &[String], bound: Duration) -> Result<Self> {
        let certificates = config.certificates()?;
        let endpoint = |url: &String| {
            let endpoint = Endpoint::from_shared(url.clone())?
                .connect_timeout(bound)
                .tcp_keepalive(Some(HTTP_KEEPALIVE.0))
                .http2_keep_alive_interval(HTTP_KEEPALIVE.0)
                .keep_alive_timeout(HTTP_KEEPALIVE.1)
                .keep_alive_while_idle(false);
            match &certificates {
                Some(certificates) => certificates.on(endpoint),
                None => Ok(endpoint),
            }
        };
        let endpoints: Result<_, tonic::transport::Error> = urls.iter().map(endpoint).collect();
        let endpoints = endpoints.map_err(|error| {
            let why = error::cause(&error);
            Error::invalid_option("no connection can be made with these options").with_source(why)
        })?;
        let credentials = config.user().map(|(user, password)| (user.to_owned(), password.to_owned()));
        Ok(Self { endpoints, credentials })
    }

    /// Whether we say who we are.
    pub(crate) fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    /// A connection to the endpoint of that number, authenticated if the cluster asks for it.
    pub(crate) async fn connect(&self, index: usize) -> Result<Client> {
        let endpoint = &self.endpoints[index];
        let channel = endpoint.connect().await.map(Channel::Tonic);
        let channel = channel.map_err(|error| error::of_connecting(&error))?;
        let is_encrypted = endpoint.uri().scheme_str() == Some("https");
        self.authenticated(channel).await.map_err(|error| {
            let meant = if is_encrypted { error::of_first_request(error) } else { error::of_client(error) };
            meant.with_effect(Effect::NotApplied)
        })
    }

    async fn authenticated(&self, channel: Channel) -> Result<Client, etcd_client::Error> {
        let nobody = ConnectOptions::new().with_require_leader(true);
        if let Some((user, password)) = &self.credentials {
            let named = nobody.clone().with_user(user, password).with_auto_token_refresh(true);
            match Client::from_channel(channel.clone(), Some(named)).await {
                // Switched off at the cluster, perhaps for a while: as etcd's own clients go on, so do we.
                Err(error) if error::says(&error, error::AUTHENTICATION_IS_OFF) => {}
                answer => return answer,
            }
        }
        Client::from_channel(channel, Some(nobody)).await
    }
}

/// How often a busy connection is tried, and how long an answer may take: less often than servers
/// allow would let a dead connection go unnoticed, more often is refused by them.
const HTTP_KEEPALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3));
