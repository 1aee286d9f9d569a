//! The kind of file system of a directory, as far as locks and restarts depend on it.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::path::Path;

use leasehold_core::{Error, ErrorKind, Result};

use crate::config::FileConfig;
use crate::error;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileSystem {
    pub(crate) scope: Scope,
    name: Cow<'static, str>,
}

/// Where data is stored, and which processes a lock excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A disk of this host.
    Local,
    /// The host's memory: gone after a reboot.
    Memory,
    /// Another host: its locks depend on the server and the mount options.
    Network,
    /// A program of this host; it may be a network file system.
    Program,
}

impl FileSystem {
    #[cfg(target_os = "linux")]
    pub(crate) fn of(directory: &File, path: &Path) -> Result<Self> {
        let answer = rustix::fs::fstatfs(directory)
            .map_err(|e| error::of_system(e.into(), "identify the file system of the directory", path))?;
        // The numbers are 32 bits wide; the field is wider on some machines, and signed on some.
        #[expect(clippy::allow_attributes, reason = "the cast is needed on some machines only")]
        #[allow(clippy::unnecessary_cast, reason = "the field's type depends on the machine")]
        let number = (answer.f_type as u64 & u64::from(u32::MAX)) as u32;
        Ok(Self::numbered(number))
    }

    /// Other systems have other numbers.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn of(_: &File, _: &Path) -> Result<Self> {
        Ok(Self { scope: Scope::Local, name: "unknown".into() })
    }

    /// Whether locks may be kept on it.
    pub(super) fn admit(&self, config: &FileConfig, path: &Path) -> Result<()> {
        if self.scope != Scope::Network || config.allow_network_fs {
            return Ok(());
        }
        let message = format!(
            "the directory is on a network file system ({self}), whose locks may not exclude other hosts: \
             use a local one or another store, or set `allow_network_fs` if its locks are known to work"
        );
        Err(Error::not_applied(ErrorKind::Unsupported, message).with_context("path", path.display()))
    }

    #[cfg(test)]
    pub(crate) fn of_scope(scope: Scope) -> Self {
        Self { scope, name: "some".into() }
    }

    fn numbered(number: u32) -> Self {
        match KNOWN.iter().find(|(known, ..)| *known == number) {
            Some((_, scope, name)) => Self { scope: *scope, name: (*name).into() },
            None => Self { scope: Scope::Local, name: format!("type {number:#x}").into() },
        }
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// statfs(2) and linux/magic.h.
const KNOWN: [(u32, Scope, &str); 23] = [
    (0x0000_ef53, Scope::Local, "ext"),
    (0x5846_5342, Scope::Local, "xfs"),
    (0x9123_683e, Scope::Local, "btrfs"),
    (0x2fc1_2fc1, Scope::Local, "zfs"),
    (0xf2f5_2010, Scope::Local, "f2fs"),
    (0x794c_7630, Scope::Local, "overlay"),
    (0x0102_1994, Scope::Memory, "tmpfs"),
    (0x8584_58f6, Scope::Memory, "ramfs"),
    (0x0000_6969, Scope::Network, "nfs"),
    (0x0000_517b, Scope::Network, "smb"),
    (0xff53_4d42, Scope::Network, "cifs"),
    (0xfe53_4d42, Scope::Network, "smb2"),
    (0x0102_1997, Scope::Network, "9p"),
    (0x5346_414f, Scope::Network, "afs"),
    (0x7375_7245, Scope::Network, "coda"),
    (0x00c3_6400, Scope::Network, "ceph"),
    (0x0bd0_0bd0, Scope::Network, "lustre"),
    (0x0116_1970, Scope::Network, "gfs2"),
    (0x7461_636f, Scope::Network, "ocfs2"),
    (0x4750_4653, Scope::Network, "gpfs"),
    (0x1983_0326, Scope::Network, "beegfs"),
    (0x564c, Scope::Network, "ncp"),
    (0x6573_5546, Scope::Program, "fuse"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_known_by_number() {
        assert_eq!(FileSystem::numbered(0x6969).scope, Scope::Network);
        assert_eq!(FileSystem::numbered(0xff53_4d42).to_string(), "cifs");
        assert_eq!(FileSystem::numbered(0x6573_5546).scope, Scope::Program);
        assert_eq!(FileSystem::numbered(0x1234).to_string(), "type 0x1234");
        assert_eq!(FileSystem::numbered(0x1234).scope, Scope::Local);
    }

    #[test]
    fn network_file_systems_need_leave() {
        let network = FileSystem::of_scope(Scope::Network);
        let config = FileConfig::new("/a");
        let error = network.admit(&config, Path::new("/a")).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("allow_network_fs"), "{error}");
        assert!(network.admit(&config.clone().allow_network_fs(true), Path::new("/a")).is_ok());
        for scope in [Scope::Local, Scope::Memory, Scope::Program] {
            assert!(FileSystem::of_scope(scope).admit(&config, Path::new("/a")).is_ok());
        }
    }
}
