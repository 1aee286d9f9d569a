//! The `leasehold` command as people and scripts use it: started, talked to, signalled, killed.

#![allow(clippy::unwrap_used, clippy::future_not_send, reason = "test binary")]

#[cfg(all(feature = "etcd", feature = "file", feature = "postgres", feature = "redis"))]
mod book;
#[cfg(feature = "file")]
mod compare;
#[cfg(feature = "etcd")]
mod etcd;
mod fixture;
#[cfg(feature = "file")]
mod group;
#[cfg(feature = "file")]
mod hold;
#[cfg(feature = "file")]
mod host;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "zk"))]
mod leased;
#[cfg(all(feature = "file", feature = "metrics"))]
mod metrics;
#[cfg(all(feature = "etcd", feature = "migrate", feature = "redis"))]
mod migrate;
#[cfg(feature = "file")]
mod place;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "file")]
mod revoke;
#[cfg(feature = "file")]
mod run;
mod schema;
#[cfg(feature = "file")]
mod show;
#[cfg(feature = "file")]
mod terminal;
#[cfg(feature = "file")]
mod token_base;
mod usage;
#[cfg(feature = "zk")]
mod zk;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(6);
    let trials = [
        #[cfg(all(feature = "etcd", feature = "file", feature = "postgres", feature = "redis"))]
        book::trials(),
        #[cfg(feature = "file")]
        compare::trials(),
        #[cfg(feature = "etcd")]
        etcd::trials(),
        #[cfg(feature = "etcd")]
        leased::trials::<testbed::etcd::Etcd>("cannot connect"),
        #[cfg(feature = "file")]
        group::trials(),
        #[cfg(feature = "file")]
        hold::trials(),
        #[cfg(feature = "file")]
        host::trials(),
        #[cfg(all(feature = "file", feature = "metrics"))]
        metrics::trials(),
        #[cfg(all(feature = "etcd", feature = "migrate", feature = "redis"))]
        migrate::trials(),
        #[cfg(feature = "file")]
        place::trials(),
        #[cfg(feature = "postgres")]
        leased::trials::<testbed::postgres::Server>("cannot open a session within 500ms"),
        #[cfg(feature = "redis")]
        redis::trials(),
        #[cfg(feature = "redis")]
        leased::trials::<testbed::redis::Server>("cannot connect"),
        #[cfg(feature = "file")]
        revoke::trials(),
        #[cfg(feature = "file")]
        run::trials(),
        schema::trials(),
        #[cfg(feature = "file")]
        show::trials(),
        #[cfg(feature = "file")]
        terminal::trials(),
        #[cfg(feature = "file")]
        token_base::trials(),
        usage::trials(),
        #[cfg(feature = "zk")]
        zk::trials(),
        #[cfg(feature = "zk")]
        leased::trials::<testbed::zookeeper::Server>("cannot open a session within 500ms"),
    ];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit_code()
}
