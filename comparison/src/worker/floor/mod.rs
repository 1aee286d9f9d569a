//! The floors: the least that a fenced lock can ask of a store, sent raw through the client crate that
//! the store's own crate uses. No waiting, no renewal, no clean-up after trouble: nothing can be
//! cheaper and still be exclusive and numbered. The memory store has none, as it asks nobody.

#[cfg(feature = "etcd")]
mod etcd;
mod file;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "zk")]
mod zk;

/// The floor of a store.
pub(super) enum Floor {
    File(file::File),
    #[cfg(feature = "redis")]
    Redis(redis::Redis),
    #[cfg(feature = "etcd")]
    Etcd(etcd::Etcd),
    #[cfg(feature = "zk")]
    Zk(zk::Zk),
}

impl Floor {
    /// The floor of the store that `url` names, if it has one.
    pub(super) fn at(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let address = rest.split(['?', '/']).next().unwrap_or_default();
        match scheme {
            "file" => Some(Self::File(file::File::new(rest))),
            #[cfg(feature = "redis")]
            "redis" => Some(Self::Redis(redis::Redis::new(rest))),
            #[cfg(feature = "etcd")]
            "etcd" => Some(Self::Etcd(etcd::Etcd::new(address))),
            #[cfg(feature = "zk")]
            "zk" | "zookeeper" => Some(Self::Zk(zk::Zk::new(address))),
            _ => {
                let _no_network_here = address;
                None
            }
        }
    }
}
