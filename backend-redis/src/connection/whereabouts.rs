//! Where a link finds its server, asked at each attempt to connect.

use std::fmt;

use async_trait::async_trait;
use leasehold_core::Result;
use leasehold_core::backend::{Finding, Login};
use leasehold_core::clock::Moment;

use super::Client;

/// How a link finds the server that it connects to.
#[async_trait]
pub(crate) trait Whereabouts: fmt::Debug + Send + Sync {
    /// The client for the server that has the locks now.
    ///
    /// # Errors
    ///
    /// Not applied: why no server is known until `give_up_at`, or why there are no credentials.
    async fn client(&self, give_up_at: Moment) -> Result<Client>;

    /// Ends when another server has the locks than the one that `client` leads to.
    async fn left(&self, client: &Client);

    /// Whether others say which server it is, who may be wrong, so that it is asked for its role.
    fn is_told(&self) -> bool {
        false
    }

    /// The server may be another one by now.
    fn doubt(&self);

    /// The findings of `doctor` about the way to the server, if there is anything to say.
    async fn diagnose(&self, _give_up_at: Moment) -> Option<Finding> {
        None
    }
}

/// One address, which may be a name.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) client: Client,
    pub(crate) login: Option<Login>,
}

#[async_trait]
impl Whereabouts for Fixed {
    async fn client(&self, _give_up_at: Moment) -> Result<Client> {
        logging_in(self.client.clone(), self.login.as_ref()).await
    }

    async fn left(&self, _client: &Client) {
        std::future::pending().await
    }

    fn doubt(&self) {}
}

/// The client with the credentials of the next connection, if they are asked for.
pub(super) async fn logging_in(client: Client, login: Option<&Login>) -> Result<Client> {
    match login {
        Some(login) => client.logging_in(login).await,
        None => Ok(client),
    }
}
