//! Which directory, and how it is used.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::{Error, Result, StoreUrl};

/// The configuration of the file store, `file:///DIR[?OPTION=VALUE&…]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a configuration opens nothing until a manager is built"]
pub struct FileConfig {
    directory: PathBuf,
    pub(crate) keep: usize,
    pub(crate) mode: u32,
    pub(crate) allow_network_fs: bool,
    pub(crate) allow_untrusted_path: bool,
}

impl FileConfig {
    /// The shortest ttl; here it only bounds how long a holder has to answer a revocation.
    pub const MIN_TTL: Duration = Duration::from_millis(100);
    /// The default of [`FileConfig::keep`].
    pub const DEFAULT_KEEP: usize = 4096;
    /// The default of [`FileConfig::mode`].
    pub const DEFAULT_MODE: u32 = 0o600;

    /// Locks in `directory`, which is created if it does not exist.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            keep: Self::DEFAULT_KEEP,
            mode: Self::DEFAULT_MODE,
            allow_network_fs: false,
            allow_untrusted_path: false,
        }
    }

    /// About how many lock files that are not held may exist before they are removed: when the directory is opened, and each
    /// time this manager has created that many. Default 4096.
    ///
    /// More keeps the next grant of an old name cheap; fewer keeps the directory small.
    pub fn keep(mut self, files: usize) -> Self {
        self.keep = files;
        self
    }

    /// The permissions of new files; users who may read files may list directories. Default `0o600`: the locks of one user. The
    /// umask applies. Every user of a directory needs to read and write, and a user that can only read can still keep every
    /// lock; so there is no mode with one and without the other.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Accepts a network file system. Its server and mount options then decide whether its locks exclude other hosts or
    /// processes. Default no.
    pub fn allow_network_fs(mut self, allow: bool) -> Self {
        self.allow_network_fs = allow;
        self
    }

    /// Accepts a directory that other users can replace: it, or a step of the path to it, belongs to another user than this
    /// one and root, or more users may write to it than [`mode`](Self::mode) allows. Such a user can break exclusion, and
    /// choose where our files are. Default no.
    pub fn allow_untrusted_path(mut self, allow: bool) -> Self {
        self.allow_untrusted_path = allow;
        self
    }

    /// Reads the configuration from a URL.
    ///
    #[doc = include_str!("url_options.md")]
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption) without a directory, with a host or credentials, or for an
    /// option in the wrong form.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self> {
        if !url.hosts().is_empty() || url.user().is_some() || url.password().is_some() {
            return Err(Error::invalid_option(format!("the file URL names a host or a user: {EXPECTED}")));
        }
        if url.take("prefix")?.is_some() {
            let why = "unknown option `prefix` for file://: the path of the URL is the namespace";
            return Err(Error::invalid_option(why));
        }
        if url.path().trim_matches('/').is_empty() {
            return Err(Error::invalid_option(format!("the file URL names no directory: {EXPECTED}")));
        }
        let mut config = Self::new(url.path());
        config.keep = url.take_parsed("keep", "a number of files")?.unwrap_or(config.keep);
        if let Some(Octal(mode)) = url.take_parsed("mode", "an octal mode such as 0600")? {
            config.mode = mode;
        }
        config.allow_network_fs = url.take_parsed("allow_network_fs", "true or false")?.unwrap_or_default();
        config.allow_untrusted_path =
            url.take_parsed("allow_untrusted_path", "true or false")?.unwrap_or_default();
        Ok(config)
    }

    /// The absolute path of the directory, which stays the same if the process changes its own.
    pub(crate) fn absolute_path(&self) -> Result<PathBuf> {
        let mode = self.mode;
        let invalid =
            |expected| Error::invalid_option(format!("`mode` {mode:#o} is invalid: expected {expected}"));
        if mode & 0o600 != 0o600 || mode & !0o666 != 0 {
            return Err(invalid("read and write for the owner, and no execute bit"));
        }
        if [mode >> 3, mode].into_iter().any(|class| !matches!(class & 0o6, 0 | 0o6)) {
            return Err(invalid("both read and write, or neither, for the group and for others"));
        }
        std::path::absolute(&self.directory)
            .map_err(|_| Error::invalid_option("the directory's path is empty"))
    }
}

const EXPECTED: &str = "expected an absolute directory such as file:///var/lib/locks";

/// A number in base 8, with or without leading zeros.
struct Octal(u32);

impl std::str::FromStr for Octal {
    type Err = std::num::ParseIntError;

    fn from_str(digits: &str) -> Result<Self, Self::Err> {
        u32::from_str_radix(digits, 8).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<FileConfig> {
        FileConfig::from_url(&mut url.parse()?)
    }

    /// The path is the directory, and every option has its form.
    #[test]
    fn a_url_says_everything() {
        assert_eq!(config("file:///var/lib/locks").unwrap(), FileConfig::new("/var/lib/locks"));
        assert_eq!(
            config("file:///a%20b/?keep=7&mode=0660&allow_network_fs=true&allow_untrusted_path=true")
                .unwrap(),
            FileConfig::new("/a b/").keep(7).mode(0o660).allow_network_fs(true).allow_untrusted_path(true)
        );
    }

    #[test]
    fn modes_that_cannot_work_are_refused() {
        for mode in [0o400, 0o060, 0o700, 0o1600, 0o640, 0o644, 0o604, 0o664, 0o620, 0o662] {
            assert!(FileConfig::new("/a").mode(mode).absolute_path().is_err(), "{mode:o}");
        }
        for mode in [0o600, 0o660, 0o606, 0o666] {
            assert!(FileConfig::new("/a").mode(mode).absolute_path().is_ok(), "{mode:o}");
        }
    }
}
