//! The user and the password for a server that requires them.

use std::fmt;
use std::time::Duration;

use crate::backend::url::StoreUrl;
use crate::words::error::{Error, Result};

/// A user and a password. `Debug` shows the user only.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a server asks for the first two, and a token has an end")]
pub struct Credentials {
    /// The user.
    pub user: String,
    /// The proof of the user.
    pub password: String,
    /// For how long the server accepts it, if it is a token that ends.
    pub valid_for: Option<Duration>,
}

impl Credentials {
    /// Creates credentials of `user`, which do not end.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into(), valid_for: None }
    }

    /// Says for how long the server accepts them, from when they are handed over.
    pub fn valid_for(mut self, span: Duration) -> Self {
        self.valid_for = Some(span);
        self
    }

    /// Reads the credentials of a URL, for a store that knows no user without a password; none if it has neither.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for one without the other.
    pub fn of_url(url: &StoreUrl) -> Result<Option<Self>> {
        match (url.user(), url.password()) {
            (Some(user), Some(password)) => Ok(Some(Self::new(user, password))),
            (None, None) => Ok(None),
            _ => {
                let scheme = url.scheme();
                Err(Error::invalid_option(format!(
                    "the {scheme}:// URL has only one of user and password: give both or neither"
                )))
            }
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A URL has both or neither; the error shows no password.
    #[test]
    fn a_url_has_both_or_neither() {
        let of = |url: &str| Credentials::of_url(&url.parse().unwrap());
        assert_eq!(of("etcd://me:s%40cret@h").unwrap(), Some(Credentials::new("me", "s@cret")));
        assert_eq!(of("etcd://h").unwrap(), None);
        for one in ["etcd://me@h", "etcd://:secret@h"] {
            let error = of(one).unwrap_err().to_string();
            assert_eq!(error, "the etcd:// URL has only one of user and password: give both or neither");
        }
    }

    /// Passwords do not reach logs.
    #[test]
    fn debug_shows_no_password() {
        let shown = format!("{:?}", Credentials::new("me", "sesame"));
        assert!(shown.contains("me") && !shown.contains("sesame"), "{shown}");
    }
}
