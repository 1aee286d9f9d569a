//! Credentials that change, asked for at each connection.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::backend::Credentials;
use crate::backend::panic::Panicked;
use crate::words::error::{Effect, Error, ErrorKind, Result};

/// Where credentials come from. Two are equal if one is a clone of the other.
#[derive(Clone)]
pub struct Login(Arc<Ask>);

type Ask = dyn Fn() -> BoxFuture<'static, Result<Credentials>> + Send + Sync;

impl Login {
    /// They are the answer of `ask`, at each connection.
    pub fn new<F>(ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(ask())))
    }

    /// The credentials of the next connection.
    ///
    /// # Errors
    ///
    /// As the program's function; not applied, as nothing was sent. `Unavailable` if the credentials have ended, `Protocol` if the
    /// function panicked.
    ///
    /// # Cancel safety
    ///
    /// That of the program's function.
    pub async fn ask(&self) -> Result<Credentials> {
        let asked = AssertUnwindSafe(async { (self.0)().await }).catch_unwind().await;
        let credentials = asked.unwrap_or_else(|panic| Err(Panicked::new(&*panic).into_error()));
        let credentials = credentials.map_err(|error| error.with_effect(Effect::NotApplied))?;
        if credentials.valid_for.is_some_and(|span| span.is_zero()) {
            let message = "the credentials have ended: `valid_for` is zero";
            return Err(Error::not_applied(ErrorKind::Unavailable, message));
        }
        Ok(credentials)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// They would be asked for again at once, for ever.
    #[tokio::test]
    async fn credentials_that_have_ended_are_refused() {
        let of = |span| Login::new(move || async move { Ok(Credentials::new("u", "p").valid_for(span)) });
        assert!(of(Duration::from_secs(1)).ask().await.is_ok());
        let refused = of(Duration::ZERO).ask().await.unwrap_err();
        assert_eq!((refused.kind(), refused.effect()), (&ErrorKind::Unavailable, Effect::NotApplied));
    }
}
