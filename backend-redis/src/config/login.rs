//! Credentials that change, asked for at each connection.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use leasehold_core::backend::Credentials;
use leasehold_core::{Effect, Result};

/// Where credentials come from. Two are equal if one is a clone of the other.
#[derive(Clone)]
pub(crate) struct Login(Arc<Ask>);

type Ask = dyn Fn() -> BoxFuture<'static, Result<Credentials>> + Send + Sync;

impl Login {
    pub(super) fn new<F>(ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(ask())))
    }

    /// The credentials of the next connection.
    ///
    /// # Errors
    ///
    /// As the program's function; not applied, as nothing was sent.
    pub(crate) async fn ask(&self) -> Result<Credentials> {
        (self.0)().await.map_err(|error| error.with_effect(Effect::NotApplied))
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[asked for]")
    }
}

impl PartialEq for Login {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Login {}
