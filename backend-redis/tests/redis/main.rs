//! The Redis store on real servers: what it costs them, what breaks, and what holds all the same.
//!
//! Every trial starts servers of its own, so that it may break them and count what they were asked.

#![allow(clippy::unwrap_used, reason = "test binary")]

mod access;
mod clock;
mod cluster;
mod cluster_inbox;
mod cluster_moves;
mod cluster_pause;
mod contest;
mod counts;
mod diagnosis;
mod failover;
mod fixture;
mod foreign;
mod formats;
mod hostile;
mod ledger;
mod litter;
mod lost;
mod messages;
mod network;
mod pause;
mod quorum;
mod quorum_closing;
mod quorum_forgotten;
mod quorum_refusals;
mod quorum_requests;
mod quorum_restarts;
mod refusals;
mod replies;
mod revocation;
mod sentinel;
mod sharing;
mod tokens;
mod turns;
mod waiting;
mod words;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    // Trials mostly wait for leases to end.
    args.test_threads = args.test_threads.or(Some(8));
    let trials = [
        access::trials(),
        access::on_valkey(),
        clock::trials(),
        cluster::trials(),
        cluster_inbox::trials(),
        cluster_moves::trials(),
        cluster_pause::trials(),
        counts::trials(),
        diagnosis::trials(),
        failover::trials(),
        failover::on_valkey(),
        formats::trials(),
        hostile::trials(),
        ledger::trials(),
        litter::trials(),
        lost::trials(),
        messages::trials(),
        network::trials(),
        pause::trials(),
        pause::on_valkey(),
        quorum::trials(),
        quorum_closing::trials(),
        quorum_forgotten::trials(),
        quorum_forgotten::on_valkey(),
        quorum_refusals::trials(),
        quorum_requests::trials(),
        quorum_restarts::trials(),
        refusals::trials(),
        refusals::on_valkey(),
        replies::trials(),
        revocation::trials(),
        sentinel::trials(),
        sharing::trials(),
        sharing::on_valkey(),
        tokens::trials(),
        turns::trials(),
        waiting::trials(),
        words::trials(),
    ];
    libtest_mimic::run(&args, trials.into_iter().flatten().collect()).exit_code()
}
