//! The user and the password for a server that requires them.

use std::fmt;

use crate::backend::url::StoreUrl;
use crate::words::error::{Error, Result};

/// A user and a password. `Debug` shows the user only.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a server asks for these two")]
pub struct Credentials {
    /// The user.
    pub user: String,
    /// The proof of the user.
    pub password: String,
}

impl Credentials {
    /// Creates credentials of `user`.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into() }
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
