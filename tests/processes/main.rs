//! Several processes on the same locks, each a small program that this test starts, stops and kills: itself, called
//! with `holder URL`.

#![allow(clippy::unwrap_used, clippy::future_not_send, reason = "test binary")]

mod child;
mod faults;
mod fixture;
mod full_disk;
mod holder;
mod hunt;
mod leased;
mod moving;
mod store;

use std::process::ExitCode;

use leasehold_conformance::Suite;
use libtest_mimic::Trial;
use tokio::runtime::Runtime;

use crate::store::Store;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("holder") {
        return holder::run(&arguments.next().unwrap());
    }
    // Looks after the servers' processes.
    let runtime = Runtime::new().unwrap();
    let directories = testbed::Scratch::new("cross-process-file").unwrap();
    let mut trials = of_file(&directories);
    let redis = of_leased::<testbed::redis::Server>(&runtime, &mut trials);
    let _quorum = of_a_quorum(&runtime, &mut trials);
    let etcd = of_leased::<testbed::etcd::Etcd>(&runtime, &mut trials);
    let zk = of_leased::<testbed::zookeeper::Server>(&runtime, &mut trials);
    let postgres = of_leased::<testbed::postgres::Server>(&runtime, &mut trials);
    trials.extend(hunt::trials());
    // The trials mostly wait for leases to end.
    let suite = trials.into_iter().fold(Suite::new().threads(12), Suite::trial);
    moving::add_to(suite, &redis, &etcd, &zk, &postgres).run()
}

macro_rules! trials {
    ($store:expr; $($file:ident::$name:ident)*) => {
        [$($store.trial(stringify!($name), $file::$name)),*]
    };
}

/// What holds on every store.
fn of_any(store: &Store) -> impl Iterator<Item = Trial> + use<> {
    let trials = trials! { store;
        faults::another_process_is_seen_and_revoked
    };
    trials.into_iter()
}

/// What holds where a lock belongs to a lease.
fn of_leases(store: &Store) -> impl Iterator<Item = Trial> + use<> {
    let trials = trials! { store;
        leased::a_stopped_holder_has_lost_before_another_holds
        leased::a_short_stop_loses_nothing
    };
    trials.into_iter().chain(of_any(store))
}

/// What holds where a lock belongs to a lease, and readers share; the server that it is held in.
fn of_leased<S: testbed::Server>(runtime: &Runtime, trials: &mut Vec<Trial>) -> S {
    let server = runtime.block_on(S::start()).unwrap_or_else(|error| panic!("{error}"));
    let addr = server.addr();
    let store = Store::new(S::NAME, move |namespace, options| S::url(addr, namespace, options));
    trials.extend(of_leases(&store));
    server
}

/// The same where three servers have to agree; without a pause of those that came up, as these have only just.
fn of_a_quorum(runtime: &Runtime, trials: &mut Vec<Trial>) -> Vec<testbed::redis::Server> {
    let start = || runtime.block_on(<testbed::redis::Server as testbed::Server>::start());
    let servers: Vec<_> = (0..3).map(|_| start().unwrap_or_else(|error| panic!("{error}"))).collect();
    let hosts: Vec<_> =
        servers.iter().map(|server: &testbed::redis::Server| server.addr().to_string()).collect();
    let hosts = hosts.join(",");
    let store = Store::new("redis-quorum", move |namespace, options| {
        format!("redis+quorum://{hosts}/0?prefix={namespace}&pause_after_restart=0s&{options}")
    });
    trials.extend(of_leases(&store));
    servers
}

/// What holds where a lock belongs to a process.
fn of_file(directories: &testbed::Scratch) -> Vec<Trial> {
    let root = directories.path().to_owned();
    let store = Store::new("file", move |namespace, options| {
        format!("file://{}/{namespace}?{options}", root.display())
    });
    let of_processes = trials! { store;
        faults::a_killed_holder_frees_the_lock_at_once
        faults::a_stopped_holder_keeps_the_lock
        faults::a_child_of_the_holder_does_not_keep_the_lock
    };
    of_any(&store).chain(of_processes).chain([full_disk::full_disk()]).collect()
}
