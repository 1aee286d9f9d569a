//! What breaks between processes and a server, the same on every store that has one: the server or the
//! way to it fails, step by step, and the promises hold. What is special to a store lies with that store, but for
//! Postgres: `postgres`.
//!
//! | scenario | where |
//! |---|---|
//! | the network is cut, broken, or slow | `cut` |
//! | a request is applied, and its reply is lost | `reply_lost` |
//! | the server is restarted, with its data and without | `restart` |
//! | of three servers some die or stop | `cluster` |
//! | entries are removed by hand | `entries` |
//! | any of that to a client that shares a lock | `sharing` |
//! | a revocation of a holder that is cut off or far away | `revocation` |
//! | a full server refuses new entries | `later` |
//! | a client lacks a right, or the namespace has another format | `refused` |
//! | the errors of all that | `errors` |
//! | servers with TLS | `secured` |
//! | nothing breaks, and requests are counted | `requests`, `trying` |
//! | the program is not async | `blocking` |

#![allow(clippy::unwrap_used, clippy::future_not_send, reason = "test binary")]

mod blocking;
mod cluster;
mod cut;
mod entries;
mod errors;
mod fixture;
mod later;
mod postgres;
mod refused;
mod reply_lost;
mod requests;
mod restart;
mod revocation;
mod secured;
mod sharing;
mod store;
mod trying;
mod zookeeper;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

use crate::cluster::Cluster;
use crate::fixture::Shared;
use crate::store::{Sessions, Several, Store, Written};

/// Scenarios of a store, each called by its file and name.
macro_rules! scenarios {
    ($shared:ident, $store:ident, $($file:ident: $($name:ident)*;)*) => {
        vec![$($($shared.trial(concat!(stringify!($file), "::", stringify!($name)), $file::$name::<$store>)),*),*]
    };
}

fn of<S: Store>(shared: &Arc<Shared<S>>) -> Vec<Trial> {
    // The longest first.
    scenarios! { shared, S,
        restart:
            with_its_data_everybody_keeps_their_place
            without_its_data_every_hold_is_over
            without_its_data_a_waiter_waits_on
            a_stopped_server_ends_the_hold;
        cut:
            a_slow_network_loses_nothing
            a_reset_costs_neither_hold_nor_place
            a_cut_of_requests_ends_the_hold_first
            a_cut_of_replies_ends_the_hold_first
            a_cut_of_both_ends_the_hold_first
            a_hand_off_during_a_reset_is_not_missed
            a_network_slower_than_the_lease_grants_nothing
            a_contender_that_was_cut_off_queues_again
            silence_is_unavailable_and_not_busy
            nobody_there_is_said_in_time;
        sharing:
            a_share_that_is_cut_off_ends_alone
            one_release_lets_many_readers_in
            deleted_share_is_lost_alone;
        reply_lost:
            a_lost_grant_is_held_once
            an_abandoned_grant_that_is_lost_leaves_nothing
            an_abandoned_grant_that_is_late_leaves_nothing
            an_abandoned_request_that_is_late_leaves_nothing
            a_release_that_was_not_confirmed_is_repeated;
        entries:
            a_waiter_whose_entry_was_removed_waits_on
            a_holder_whose_entry_was_removed_has_lost;
        revocation:
            missed_requests_are_heard_after_a_cut
            all_sharers_are_asked_from_afar;
        errors:
            open_failure_names_server_and_cause
            silent_server_is_named;
        later:
            queued_waiter_stays_and_newcomer_is_refused;
        requests:
            renewal
            a_hand_off_costs_the_same_with_many_waiters
            idle_wait
            cycle
            a_watch_is_one_look_for_all_streams;
        refused:
            denied_release_frees
            waiter_without_right_is_refused;
        secured:
            the_authority_that_is_named_is_trusted
            our_certificate_is_shown
            a_stranger_is_refused_at_once
            plain_text_and_tls_do_not_mix;
    }
}

/// Every scenario of a store that says its format in text. A database has a schema, whose types and version say that.
fn written<S: Written>(shared: &Arc<Shared<S>>) -> Vec<Trial> {
    scenarios! { shared, S,
        refused: malformed_token_base_is_refused_and_kept another_format_is_refused_by_name;
    }
}

/// Every scenario that needs several servers in one URL, and the rights on them.
fn several<S: Several>(shared: &Arc<Shared<S>>) -> Vec<Trial> {
    scenarios! { shared, S,
        secured: unfit_servers_are_passed_over;
        refused: documented_rights_suffice;
        cut: dead_servers_are_passed_over;
    }
}

/// Every scenario that needs sessions.
fn sessions<S: Sessions>(shared: &Arc<Shared<S>>) -> Vec<Trial> {
    scenarios! { shared, S,
        entries: ended_session_loses_holds_and_requeues_waiters;
    }
}

/// Every scenario on three servers of a store.
fn cluster<C: Cluster>() -> Vec<Trial> {
    macro_rules! scenarios {
        ($($name:ident)*) => {
            vec![$(testbed::trial(
                format!("{}::{}", C::NAME, concat!("cluster::", stringify!($name))),
                cluster::$name::<C>,
            )),*]
        };
    }
    let mut trials = scenarios! { lost_quorum_ends_hold };
    if C::LED {
        trials.extend(scenarios! { rolling_restart_loses_nothing });
    }
    if C::LED && !C::LEARNED {
        trials.extend(scenarios! { stopped_leader_never_grants_twice });
    }
    trials
}

fn trying<S: Store>(shared: &Arc<Shared<S>>) -> Vec<Trial> {
    let mut trials = scenarios! { shared, S, trying: exclusive shared; };
    if S::PERMITS {
        trials.extend(scenarios! { shared, S, trying: permits some_permits; });
    }
    trials
}

/// Every scenario of a program that is not async.
fn not_async<S: Store>(shared: &Arc<Shared<S>>) -> Vec<Trial> {
    scenarios! { shared, S,
        blocking: threads_exclude_each_other waits_end watch_is_an_iterator several_locks;
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(8);
    // The shared servers outlast the scenarios.
    let (redis, etcd, zk, postgres) = (Shared::new(), Shared::new(), Shared::new(), Shared::new());
    let trials = [
        of::<testbed::zookeeper::Server>(&zk),
        of::<testbed::etcd::Etcd>(&etcd),
        of::<testbed::redis::Server>(&redis),
        of::<testbed::postgres::Server>(&postgres),
        written(&zk),
        written(&etcd),
        written(&redis),
        several(&zk),
        several(&etcd),
        several(&postgres),
        not_async(&redis),
        not_async(&etcd),
        sessions(&zk),
        sessions(&etcd),
        cluster::<testbed::zookeeper::Ensemble>(),
        cluster::<testbed::etcd::Etcd>(),
        cluster::<Vec<testbed::redis::Server>>(),
        cluster::<cluster::Watched>(),
        trying(&etcd),
        trying(&redis),
        trying(&zk),
        trying(&postgres),
        postgres::trials(),
        vec![testbed::trial("redis-quorum::trying::exclusive", trying::on_a_quorum)],
    ];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit_code()
}
