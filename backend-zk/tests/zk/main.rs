//! The ZooKeeper store on real servers.
//!
//! | part | where |
//! |---|---|
//! | requests, by the server's count | `requests`, `mixes` for shared locks and foreign nodes |
//! | lost sessions, nodes and replies | `faults` |
//! | three servers | `quorum` |
//! | connections, TLS, rights | `access`, `secured`, `rights` |
//! | directories with large numbers | `numbers` |
//! | passing a lock on | `passing` |
//! | acquiring the same lock again | `returns` |
//! | revocation; the token base; the record of a move | `revocation`, `tokens`, `ledger` |

#![allow(clippy::unwrap_used, reason = "test binary")]

mod access;
mod faults;
mod fixture;
mod ledger;
mod mixes;
mod numbers;
mod passing;
mod quorum;
mod requests;
mod returns;
mod revocation;
mod rights;
mod secured;
mod sharing;
mod switch;
mod tokens;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

use crate::fixture::Fixture;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They mostly wait; those that count have a server of their own.
    arguments.test_threads.get_or_insert(6);
    let fixture = Arc::new(Fixture::new());
    let mut trials: Vec<Trial> = Vec::new();
    macro_rules! trials {
        ($($part:ident: $($name:ident)*;)*) => {
            $($(trials.push(fixture.trial(concat!(stringify!($part), "::", stringify!($name)), $part::$name));)*)*
        };
    }
    // The longest first.
    trials! {
        quorum:
            a_follower_that_is_cut_off_tells_its_clients_in_time
            fail_over_is_promised_by_those_who_can;
        requests:
            an_uncontended_cycle_is_two_flights
            a_waiter_asks_the_leader_once_in_a_session
            coming_back_is_two_writes
            a_pause_of_the_server_breaks_no_connection
            twenty_thousand_waiters_cost_the_last_no_more_than_two;
        faults:
            a_runtime_that_ends_panics_nobody
            a_session_that_we_end_keeps_its_locks_until_the_deadline
            a_caller_who_is_not_polled_keeps_no_session
            a_waiter_hears_what_keeps_its_session_from_opening
            a_lock_that_changes_hands_all_the_time_is_shown
            a_watch_outlives_its_directory_and_its_session
            a_session_that_was_exchanged_is_a_loss;
        access:
            a_server_that_comes_late_is_waited_for
            a_slow_opening_is_no_loss_afterwards
            a_url_says_the_same
            the_version_and_the_session_are_diagnosed;
        secured:
            a_server_behind_tls_is_diagnosed
            a_certificate_that_is_exchanged_throws_nobody_out
            a_certificate_is_an_identity;
        rights:
            a_session_that_may_not_write_is_lost_in_time
            client_back_at_a_closed_entry_loses_in_time
            a_node_that_is_gone_ends_no_session
            a_lock_that_cannot_be_let_go_is_not_taken_again
            entry_without_sight_of_the_one_ahead_is_denied
            a_place_that_cannot_be_given_up_ends_with_the_session
            waiters_whose_directory_is_closed_are_denied
            a_stranger_cannot_change_the_rights
            without_the_right_to_delete_nothing_is_opened
            nodes_belong_to_their_creator;
        numbers:
            directory_tells_its_next_number
            foreign_directory_is_never_removed
            nobody_holds_at_the_end_of_the_numbers
            reentering_client_waits_by_its_new_node;
        passing:
            waiter_passes_on_by_one_request
            a_pass_that_is_not_heard_is_repeated
            nobody_else_writes_a_contenders_node
            foreign_data_is_no_pass
            a_right_that_is_missing_costs_one_request
            a_node_that_is_asked_for_while_it_waits_is_let_go
            a_node_that_is_written_is_watched_again_at_once
            nobody_ahead_is_no_grant_of_a_node_that_may_be_gone
            end_by_another_connection_is_no_grant
            servers_without_digest_are_served;
        returns:
            try_is_granted_by_the_listed_number
            try_counts_on_a_listing_of_its_hold
            sharer_reads_in_the_same_flight
            a_directory_that_counts_anew_is_looked_at
            every_server_tells_of_a_directory_that_counts_anew
            repeated_entry_is_alone
            a_reconnect_is_followed_by_a_look
            a_directory_that_is_not_as_we_make_them_is_looked_at;
        mixes:
            sharer_counts_on_no_number
            a_reader_behind_a_writer_needs_four_requests
            entry_passes_on_when_the_one_ahead_is_gone
            whatever_is_not_ours_is_waited_for_as_a_writer;
        tokens:
            a_base_is_read_by_a_session_that_is_counted
            a_raise_where_the_namespace_is_gone_fails;
        ledger:
            an_entry_is_of_the_session_that_signed_last
            signatures_may_overlap;
        revocation:
            an_ask_is_six_requests_and_heard_by_one
            all_who_share_are_asked_in_one_flight
            one_that_cannot_be_asked_keeps_nobody_from_it
            a_message_that_is_not_told_of_is_heard_with_the_next_renewal
            waiter_asked_to_release_has_the_grace_left
            other_recipes_keep_their_data;
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
