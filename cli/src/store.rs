//! Which store a command works on, and how it is opened.
//!
//! Without a URL that is a directory of the user on this host: in the user's runtime directory, or
//! where there is none, in the system's directory for temporary files, where it must belong to the
//! user and let nobody else in.

use leasehold::{Builder, LockManager, StoreUrl};

use crate::arguments::{Store, Terms};
use crate::failure::Failure;

/// Reads what the command line says about the store; contacts nobody.
pub(crate) fn configure(store: &Store) -> Result<Builder, Failure> {
    match url(store) {
        Some(url) => Ok(leasehold::registry().configure(url)?),
        None => host::configure(),
    }
}

/// Opens the store.
pub(crate) async fn open(store: &Store) -> Result<LockManager, Failure> {
    Ok(configure(store)?.build().await?)
}

/// Opens the store to hold a lock there.
pub(crate) async fn open_for(store: &Store, terms: &Terms) -> Result<LockManager, Failure> {
    let mut builder = configure(store)?;
    #[cfg(feature = "metrics")]
    if let Some(address) = terms.metrics_addr {
        crate::metrics::serve(address).await?;
    }
    if let Some(ttl) = terms.ttl {
        builder = builder.ttl(ttl);
    }
    if let Some(owner) = &terms.owner {
        builder = builder.owner_label(owner);
    }
    Ok(builder.build().await?)
}

/// Ends the session. What is not confirmed ends with its lease, and is no failure.
pub(crate) async fn close(locks: &LockManager) {
    if let Err(error) = locks.shutdown().await {
        tracing::warn!(error = %format_args!("{error:#}"), "the session was not closed in order");
    }
}

/// The store in words, without user, password and options.
pub(crate) fn shown(store: &Store) -> String {
    let Some(url) = url(store) else {
        return host::shown();
    };
    match url.parse::<StoreUrl>() {
        Ok(url) => format!("{}://{}{}", url.scheme(), url.hosts().join(","), url.path()),
        Err(_unreadable) => "a URL that cannot be read".to_owned(),
    }
}

fn url(store: &Store) -> Option<&str> {
    // An empty variable is a way of saying "not set".
    store.url.as_deref().filter(|url| !url.is_empty())
}

#[cfg(feature = "file")]
mod host {
    //! The store of one user on one host.

    use std::env;
    use std::fs::{self, DirBuilder, Metadata};
    use std::io;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    use std::path::{Path, PathBuf};

    use leasehold::file::FileConfig;
    use leasehold::{Builder, LockManager};

    use crate::failure::Failure;

    pub(super) fn configure() -> Result<Builder, Failure> {
        Ok(LockManager::builder(FileConfig::new(directory()?)))
    }

    pub(super) fn shown() -> String {
        directory()
            .map_or_else(|failure| failure.message().to_owned(), |at| format!("file://{}", at.display()))
    }

    fn directory() -> Result<PathBuf, Failure> {
        let user = rustix::process::geteuid().as_raw();
        let named = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        // Programs without a login session, such as cron's, find the one of the user's session, too.
        let usual = PathBuf::from(format!("/run/user/{user}"));
        if let Some(runtime) = named.into_iter().chain([usual]).find(|place| is_runtime(place, user)) {
            return Ok(runtime.join("leasehold"));
        }
        let place = env::temp_dir().join(format!("leasehold-{user}"));
        private(&place, user).map_err(|error| Failure::system(refused(&place), error))?;
        Ok(place)
    }

    /// Whether the user may keep things there. Somebody else's is what `su` leaves in the environment.
    fn is_runtime(place: &Path, user: u32) -> bool {
        place.is_absolute() && fs::metadata(place).is_ok_and(|found| is_private(&found, user))
    }

    /// Makes a directory that nobody else can enter, or makes sure that it is one.
    fn private(place: &Path, user: u32) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(place) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _made_or_there => {}
        }
        // In a directory that everybody writes to, what is there may be somebody else's, or a link.
        match is_private(&fs::symlink_metadata(place)?, user) {
            true => Ok(()),
            false => Err(io::Error::other("it is not a directory of this user alone")),
        }
    }

    fn is_private(found: &Metadata, user: u32) -> bool {
        found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0
    }

    fn refused(place: &Path) -> String {
        format!("{} cannot be used for locks; give --url or LEASEHOLD_URL", place.display())
    }

    #[cfg(test)]
    mod tests {
        use std::fs::Permissions;
        use std::os::unix::fs::{PermissionsExt, symlink};

        use super::*;

        /// Made once and found again; somebody else's, one that lets others in, and a link are refused.
        #[test]
        fn only_a_directory_of_ones_own_is_used() {
            let scratch = tempfile::tempdir().unwrap();
            let user = rustix::process::geteuid().as_raw();
            let place = scratch.path().join("locks");
            private(&place, user).unwrap();
            private(&place, user).unwrap();
            assert_eq!(fs::metadata(&place).unwrap().mode() & 0o777, 0o700);
            private(&place, user + 1).unwrap_err();
            let link = scratch.path().join("link");
            symlink(&place, &link).unwrap();
            private(&link, user).unwrap_err();
            fs::set_permissions(&place, Permissions::from_mode(0o750)).unwrap();
            private(&place, user).unwrap_err();
        }

        /// A runtime directory is taken only if it is what the name says.
        #[test]
        fn a_runtime_directory_belongs_to_the_user() {
            let scratch = tempfile::tempdir().unwrap();
            let user = rustix::process::geteuid().as_raw();
            let place = scratch.path().join("runtime");
            private(&place, user).unwrap();
            assert!(is_runtime(&place, user));
            assert!(!is_runtime(&place, user + 1));
            assert!(!is_runtime(Path::new("relative"), user));
            assert!(!is_runtime(&scratch.path().join("missing"), user));
        }
    }
}

#[cfg(not(feature = "file"))]
mod host {
    //! This build has no store without a server.

    use leasehold::Builder;

    use crate::failure::Failure;

    pub(super) fn configure() -> Result<Builder, Failure> {
        Err(Failure::usage("this build has no store of this host: give --url or LEASEHOLD_URL"))
    }

    pub(super) fn shown() -> String {
        "no store".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(url: &str) -> Store {
        Store { url: Some(url.to_owned()) }
    }

    /// What is shown of a URL has no secret in it.
    #[test]
    fn secrets_are_not_shown() {
        let shown_url = shown(&store("rediss://me:sesame@h1:1,h2:2/0?password=sesame"));
        assert_eq!(shown_url, "rediss://h1:1,h2:2/0");
    }

    /// An empty variable is as good as none.
    #[test]
    fn an_empty_url_is_no_url() {
        assert_eq!(url(&store("")), None);
    }
}
