//! Which store a command works on, and how it is opened.
//!
//! A command without a URL is refused, so that it never locks on one host by accident. With `--local` the store is a directory
//! of the user on this host: in the user's runtime directory, or if there is none, in the system's directory for temporary
//! files, where it must belong to the user and admit no other user.

use std::env::{self, VarError};
use std::fs;
#[cfg(feature = "migrate")]
use std::sync::{Arc, OnceLock};

use leasehold::backend::StoreUrl;
#[cfg(feature = "migrate")]
use leasehold::migrate::{Admin, Migration};
use leasehold::{Builder, Guarantees, LockManager, Registry};
use sha2::{Digest, Sha256};

use crate::arguments::{Store, Terms, promises};
use crate::failure::Failure;
use crate::signals::Signals;
use crate::wait::Patience;

/// The stores of this build, and how to install a command with the others.
pub(crate) fn registry() -> Registry {
    let mut registry = leasehold::registry();
    for (remedy, schemes) in REMEDIES {
        for scheme in schemes {
            if !registry.schemes().any(|known| known == *scheme) {
                registry.missing(scheme, remedy);
            }
        }
    }
    // The new store must exclude other processes, too.
    registry.missing("memory", "it excludes only tasks of one process");
    registry
}

const REMEDIES: [(&str, &[&str]); 5] = [
    ("cargo install leasehold-cli --features file", &["file"]),
    (
        "cargo install leasehold-cli --features redis",
        &[
            "redis",
            "rediss",
            "redis+unix",
            "redis+sentinel",
            "rediss+sentinel",
            "redis+cluster",
            "rediss+cluster",
            "redis+quorum",
            "rediss+quorum",
        ],
    ),
    ("cargo install leasehold-cli --features etcd, which needs protoc", &["etcd", "etcds"]),
    ("cargo install leasehold-cli --features postgres", &["postgres", "postgresql"]),
    ("cargo install leasehold-cli --features zk", &["zk", "zookeeper"]),
];

/// The message to a user who names no store.
const WAYS: &str = "use `--url URL`, `--url-file FILE` or the environment variable LEASEHOLD_URL; `--local` locks on this \
     host only";

/// The store that was named, or that of this host.
#[derive(Debug)]
pub(crate) struct Place {
    url: Option<String>,
    required: Guarantees,
}

impl Place {
    /// Reads command line and environment, without a request.
    pub(crate) fn of(store: &Store) -> Result<Self, Failure> {
        let url = match (&store.url, &store.url_file) {
            (_, Some(file)) => {
                let read = fs::read_to_string(file);
                let text = read.map_err(|error| Failure::unreadable(file, &error))?;
                Some(named(text.trim(), "the file of `--url-file` is empty")?)
            }
            (Some(url), None) => Some(named(url, "`--url` is empty")?),
            (None, None) if store.local => None,
            (None, None) => Some(match env::var("LEASEHOLD_URL") {
                Ok(url) => named(&url, &format!("LEASEHOLD_URL is empty: {WAYS}"))?,
                Err(VarError::NotPresent) => {
                    return Err(Failure::usage(format!("no store is named: {WAYS}")));
                }
                Err(VarError::NotUnicode(_)) => return Err(Failure::usage("LEASEHOLD_URL is not UTF-8")),
            }),
        };
        Self::at(url, store.require.iter().copied().collect())
    }

    fn at(url: Option<String>, required: Guarantees) -> Result<Self, Failure> {
        let scheme = url.as_deref().and_then(|url| url.split_once(':')).map(|(scheme, _)| scheme);
        match scheme {
            Some(HIDDEN_SCHEME) => Err(Failure::usage(
                "the store's URL is hidden from this process by `run --hide-url`: use `--url` or \
                 `--url-file`",
            )),
            Some(scheme) if scheme.eq_ignore_ascii_case("memory") => Err(Failure::usage(
                "memory:// excludes only tasks of one process, and each command is a process of its own: \
                 use file:///DIR for this host",
            )),
            _ => Ok(Self { url, required }),
        }
    }

    /// The URL, if one was given.
    #[cfg(feature = "redis")]
    pub(crate) fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// The store's configuration.
    pub(crate) fn configure(&self) -> Result<Builder, Failure> {
        match &self.url {
            Some(url) => Ok(registry().configure(url)?),
            None => host::configure(),
        }
    }

    /// The administration of the move of the URL.
    #[cfg(feature = "migrate")]
    pub(crate) async fn admin(&self) -> Result<Admin, Failure> {
        const NONE: &str =
            "the URL has no option `migrate_to=URL`: use the URL of the processes that take part in the move";
        let url = self.url.as_deref().ok_or_else(|| Failure::usage(NONE))?;
        let found = Arc::new(OnceLock::new());
        let finds = Arc::clone(&found);
        let mut registry = registry();
        registry.option("migrate_to", move |registry, old, url| {
            let migration = Migration::new(old, registry.store(url)?);
            Ok(Box::new(finds.get_or_init(|| migration).clone()))
        });
        let env = registry.configure(url)?.env()?;
        let migration: &Migration = found.get().ok_or_else(|| Failure::usage(NONE))?;
        Ok(migration.admin(env).await?)
    }

    /// The store in words, without user, password and options.
    pub(crate) fn shown(&self) -> String {
        match self.url.as_deref().map(str::parse::<StoreUrl>) {
            None => host::shown(),
            Some(Ok(url)) => format!("{}://{}{}", url.scheme(), url.hosts().join(","), url.path()),
            Some(Err(_unreadable)) => "an invalid URL".to_owned(),
        }
    }

    /// Distinguishes this store's locks from others', without a secret in it: the same for two URLs that differ in credentials,
    /// encryption, options of time, or the order of hosts.
    pub(crate) fn fingerprint(&self) -> String {
        let mut parts = vec![self.shown()];
        if let Some(Ok(mut url)) = self.url.as_deref().map(str::parse::<StoreUrl>) {
            let scheme = match url.scheme() {
                "rediss" => "redis",
                "rediss+sentinel" => "redis+sentinel",
                "rediss+cluster" => "redis+cluster",
                "rediss+quorum" => "redis+quorum",
                "etcds" => "etcd",
                "postgresql" => "postgres",
                "zookeeper" => "zk",
                other => other,
            };
            parts = vec![scheme.to_owned(), url.path().trim_end_matches('/').to_owned()];
            let mut hosts: Vec<_> = url.hosts().iter().map(|host| host.to_ascii_lowercase()).collect();
            hosts.sort_unstable();
            parts.extend(hosts);
            parts.push(url.take("prefix").ok().flatten().unwrap_or_default());
        }
        let digest = Sha256::digest(parts.join("\n"));
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Refuses a store that lacks a required guarantee.
    pub(crate) fn require(&self, promised: Guarantees) -> Result<(), Failure> {
        let missing = self.required.difference(promised);
        if missing.is_empty() {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "{} does not promise the required {}; it promises {}",
            self.shown(),
            promises(missing),
            promises(promised)
        )))
    }

    /// Opens the store.
    pub(crate) async fn open(&self) -> Result<LockManager, Failure> {
        self.build(self.configure()?).await
    }

    /// Opens the store to hold a lock there, for which it is waited like for the lock itself.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind at the store.
    pub(crate) async fn open_for(
        &self,
        terms: &Terms,
        patience: &Patience,
        signals: &mut Signals,
    ) -> Result<LockManager, Failure> {
        let mut builder = self.configure()?;
        #[cfg(feature = "metrics")]
        if let Some(address) = terms.metrics_addr
            && let Err(refused) = crate::metrics::serve(address).await
        {
            // They are worth less than the work under the lock.
            crate::output::note(&format!("continuing without metrics: {refused:#}"));
        }
        if let Some(ttl) = terms.ttl {
            builder = builder.ttl(ttl);
        }
        if let Some(owner) = &terms.owner {
            builder = builder.owner_label(owner);
        }
        if let Some(left) = patience.left() {
            builder = builder.connect_wait(left);
        }
        let locks = self.build_until_a_signal(builder, signals).await?;
        let needed = terms.mode().needs();
        if let Err(refused) = locks.guarantees().require(needed) {
            close(&locks).await;
            let option = if terms.shared { "--shared" } else { "--permits" };
            let instead = format!(
                "use a store that promises {needed}, such as etcd, or leave out `{option}` for an exclusive \
                 lock"
            );
            return Err(refused.with_context("instead", instead).into());
        }
        Ok(locks)
    }

    /// Opens the store, unless a signal comes first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind at the store.
    pub(crate) async fn open_until_a_signal(&self, signals: &mut Signals) -> Result<LockManager, Failure> {
        self.build_until_a_signal(self.configure()?, signals).await
    }

    async fn build_until_a_signal(
        &self,
        builder: Builder,
        signals: &mut Signals,
    ) -> Result<LockManager, Failure> {
        tokio::select! {
            opened = self.build(builder) => opened,
            signal = signals.next() => Err(Failure::interrupted(signal.as_raw())),
        }
    }

    async fn build(&self, builder: Builder) -> Result<LockManager, Failure> {
        let locks = builder.build().await?;
        if let Err(refused) = self.require(locks.guarantees()) {
            close(&locks).await;
            return Err(refused);
        }
        Ok(locks)
    }
}

/// A URL that was given; a variable of a script may be misspelt.
fn named(url: &str, refusal: &str) -> Result<String, Failure> {
    if url.is_empty() { Err(Failure::usage(refusal)) } else { Ok(url.to_owned()) }
}

/// Ends the session. An unconfirmed end comes with its lease, and is no failure.
pub(crate) async fn close(locks: &LockManager) {
    note_unconfirmed(locks.shutdown().await);
}

/// As [`close`], without waiting for the locks whose release was put off: they are left to their leases.
pub(crate) async fn close_now(locks: &LockManager) {
    note_unconfirmed(locks.shutdown_now().await);
}

fn note_unconfirmed(ended: leasehold::Result<()>) {
    if let Err(error) = ended {
        tracing::warn!(error = ?format!("{error:#}"), "session not closed cleanly");
    }
}

/// Ends the session of a command that holds nothing, unless a signal comes first.
pub(crate) async fn close_until_a_signal(locks: &LockManager, signals: &mut Signals) {
    tokio::select! {
        () = close(locks) => {}
        _signal = signals.next() => {}
    }
}

/// The URL for a command that must not know the store's.
pub(crate) const HIDDEN: &str = "hidden:";
const HIDDEN_SCHEME: &str = "hidden";

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

    /// Whether the user may keep files there. `su` leaves the directory of another user in the environment.
    fn is_runtime(place: &Path, user: u32) -> bool {
        place.is_absolute() && fs::metadata(place).is_ok_and(|found| is_private(&found, user))
    }

    /// Creates a directory that no other user can enter, or checks an existing one.
    fn private(place: &Path, user: u32) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(place) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _made_or_there => {}
        }
        // In a directory that all users write to, the entry may belong to another user or be a link.
        match is_private(&fs::symlink_metadata(place)?, user) {
            true => Ok(()),
            false => Err(io::Error::other("the directory belongs to another user or lets other users in")),
        }
    }

    fn is_private(found: &Metadata, user: u32) -> bool {
        found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0
    }

    fn refused(place: &Path) -> String {
        format!("cannot use {} for locks: use `--url file:///DIR`", place.display())
    }

    #[cfg(test)]
    mod tests {
        use std::fs::Permissions;
        use std::os::unix::fs::{PermissionsExt, symlink};

        use super::*;

        /// Created once and found again. Refused if it belongs to another user, if others may enter it, or if it is a link.
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
        Err(Failure::usage("this build has no store for this host: use `--url`"))
    }

    pub(super) fn shown() -> String {
        "no store".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> Place {
        Place::at(Some(url.to_owned()), Guarantees::empty()).unwrap()
    }

    /// A shown URL has no secret in it.
    #[test]
    fn secrets_are_not_shown() {
        let place = place("rediss://me:sesame@h1:1,h2:2/0?password=sesame");
        assert_eq!(place.shown(), "rediss://h1:1,h2:2/0");
    }

    /// URLs of the same locks have the same fingerprint, whatever their user and options; others have another.
    #[test]
    fn a_fingerprint_is_of_the_locks_not_of_the_url() {
        let same = place("etcd://h1,h2/a").fingerprint();
        assert_eq!(place("etcds://me:sesame@H2,h1/a/?ttl=3s").fingerprint(), same);
        for other in ["etcd://h1,h2/b", "etcd://h1/a", "zk://h1,h2/a", "etcd://h1,h2/a?prefix=b"] {
            assert_ne!(place(other).fingerprint(), same, "{other}");
        }
    }

    /// Stores that exclude no other process, and hidden ones, are refused with any options.
    #[test]
    fn stores_that_cannot_be_meant_are_refused() {
        for url in ["memory://", "MEMORY://x?ttl=1s", HIDDEN] {
            assert_eq!(Place::at(Some(url.to_owned()), Guarantees::empty()).unwrap_err().exit().0, 64);
        }
    }
}
