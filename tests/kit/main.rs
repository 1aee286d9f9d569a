//! The conformance kit on the stores of this build, through the facade.

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "file")]
mod file;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "zk")]
mod zk;

use std::process::ExitCode;

use conformance::Suite;

fn main() -> ExitCode {
    // The cases mostly wait.
    let suite = Suite::new().threads(8);
    #[cfg(feature = "file")]
    let suite = suite.store(Box::new(file::Directories::new()));
    #[cfg(feature = "redis")]
    let suite = suite.store(Box::new(redis::Server::start()));
    #[cfg(feature = "etcd")]
    let suite = suite.store(Box::new(etcd::Server::start()));
    #[cfg(feature = "zk")]
    let suite = suite.store(Box::new(zk::Server::start()));
    suite.run()
}
