//! Postgres: what it says of a failure and what its administrator does; and what only a database can do to its locks.
//!
//! | file | shows |
//! |---|---|
//! | `crash` | the server is killed while sessions contend |
//! | `fence` | transactions of users with `fence`: what commits, and for whom it waits |
//! | `history` | promotion, restore to a point in time, dump and restore, the last era: tokens grow |
//! | `load` | transactions that stay open, maintenance, ended connections, no room for connections |
//! | `pooler` | PgBouncer in transaction mode |
//! | `schema` | the schema in the server: its version, its rights, its eras, and its messages |

mod crash;
mod fence;
mod history;
mod load;
mod pooler;
mod schema;

use std::fmt::Display;
use std::net::SocketAddr;

use leasehold::{LockManager, LostReason, connect};
use libtest_mimic::Trial;
use testbed::postgres::Server;
use testbed::{BOUND, Beside};
use tokio_postgres::{Client, Config, NoTls};

use crate::fixture::{NAME, options, steady};
use crate::store::{Several, Store};

/// What is special to this store.
pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! trials {
        ($($file:ident: $($name:ident)*;)*) => {
            vec![$($(testbed::trial_within(
                10 * BOUND,
                concat!("postgres::", stringify!($file), "::", stringify!($name)),
                $file::$name,
            )),*),*]
        };
    }
    trials! {
        crash: crash_doubles_neither_lock_nor_token crash_behind_a_pooler_blocks_no_lock;
        fence:
            no_stalled_transaction_commits_late
            token_that_does_not_hold_is_refused
            nobody_holds_before_the_transaction_ends
            renewals_and_releases_do_not_wait_for_a_transaction
            stuck_lock_is_certainly_not_applied;
        history:
            promotion_keeps_the_queue_and_tokens_grow
            synchronous_standby_has_every_grant
            tokens_grow_after_a_restore_to_a_point_in_time
            tokens_grow_after_a_dump_and_its_restore
            era_past_the_last_one_is_refused;
        load:
            cycle_beside_an_open_snapshot_reads_no_more
            table_is_rewritten_while_one_waits
            password_that_changes_is_asked_for_again
            full_server_is_unavailable_and_holds_go_on
            names_are_whole_in_a_database_without_encoding;
        pooler:
            pooler_is_found_out_by_name
            pooler_that_comes_later_costs_no_lock
            waiters_behind_a_pooler_hold_one_by_one;
        schema:
            other_version_is_refused_with_both_numbers
            executing_functions_is_the_only_right_needed
            repeatable_read_is_refused_by_name
            another_history_begins_a_larger_era
            half_used_counter_begins_anew
            numbers_leap_after_a_crash
            end_of_a_session_waits_for_the_disk
            bound_of_a_lost_history_does_not_count
            opening_outlasts_a_lock_that_it_needs
            removal_waits_for_no_session_and_is_told_without_messages
            holder_without_messages_notifies_a_waiter;
    }
}

/// The same namespace at `hosts`, with leases that are to be kept.
fn url(hosts: impl Display, more: &str) -> String {
    let options = options(steady::<Server>());
    <Server as testbed::Server>::url(hosts, "special", &format!("{options}{more}"))
}

async fn open(hosts: impl Display, more: &str) -> LockManager {
    connect(&url(hosts, more)).await.unwrap()
}

impl Store for Server {
    const FORGOTTEN: &[LostReason] = &[LostReason::SessionLost, LostReason::Expired];
    const TOKENS_OUTLAST_DATA: bool = true;

    /// As a forced revocation does, of one entry.
    async fn remove(&self, namespace: &str, place: usize) {
        let remove = format!(
            "WITH victim AS (SELECT c.ctid FROM leasehold.contender c JOIN leasehold.space s ON s.id = c.space \
             WHERE s.prefix = '{namespace}' AND c.name = convert_to('{NAME}', 'UTF8') ORDER BY c.seq LIMIT 1 OFFSET {place}), \
             gone AS (DELETE FROM leasehold.contender c USING victim v WHERE c.ctid = v.ctid RETURNING c.seq, c.session) \
             SELECT g.seq, pg_notify(x.channel, 'lost ' || g.seq) FROM gone g JOIN leasehold.session x ON x.id = g.session"
        );
        assert_ne!(self.sql(&remove).await.unwrap(), "", "there is an entry at place {place}");
    }

    const ADMIN: &str = "postgres@";
    const CHANGES: &[&str] = &[
        "REASSIGN OWNED BY billing TO postgres",
        "ALTER ROLE billing PASSWORD 'other'",
        "ALTER ROLE billing NOLOGIN",
    ];

    async fn change_user(&self, change: &str) {
        self.sql(change).await.unwrap();
        if change != Self::CHANGES[0] {
            // Its connections would live on.
            end_connections(self, "usename = 'billing'").await;
        }
    }

    async fn give_rights_back(&self) {
        grant_rights(self).await;
    }

    /// As where no block can be added to the table.
    async fn refuse(&self, _namespace: &str) {
        let raise = "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                     RAISE EXCEPTION 'could not extend file: no space left on device' USING ERRCODE = '53100'; END $$";
        self.sql(raise).await.unwrap();
        let on_insert =
            "CREATE TRIGGER full_disk BEFORE INSERT ON leasehold.contender EXECUTE FUNCTION full_disk()";
        self.sql(on_insert).await.unwrap();
    }

    async fn accept(&self, _namespace: &str) {
        self.sql("DROP FUNCTION full_disk CASCADE").await.unwrap();
    }

    const OPENING: &str = "connect_timeout=500ms";
    const NOBODY: &str = "cannot open a session within 500ms (server: ADDR): cannot connect to the server: Connection refused (os error 111)";
    const SILENT: &str =
        "cannot open a session within 500ms (server: ADDR): the server did not answer within 500ms";
    const WRONG_PASSWORD: &str = "the server refuses this user (server: ADDR): password authentication failed for user \"USER\" (28P01)";
    const UNANSWERED: &[&str] = &["the server did not answer within", "the store did not answer within"];
    const FULL: &str = "53100";
    const CYCLE: u64 = 2;
    const TRIES: [u64; 2] = [1, 1];
    const TRYING: [u64; 2] = [1, 2];
    const REVOCATION: u64 = 1;
    const HAND_OFF: u64 = 1;
    // Each manager has two connections.
    const SHARERS: usize = 250;

    async fn requests(&self) -> u64 {
        calls(self, "AND query NOT LIKE '%.renew(%' AND query NOT LIKE '%.standing(%'").await
    }

    async fn renewals(&self) -> u64 {
        calls(self, "").await
    }
}

impl Several for Server {
    async fn leave_documented_rights(&self) -> &'static str {
        let url = <Self as testbed::Server>::url(
            self.addr(),
            "billing",
            &format!("connect_timeout={}s", BOUND.as_secs()),
        );
        connect(&url).await.unwrap().shutdown().await.unwrap();
        self.sql("REVOKE CREATE ON DATABASE postgres FROM billing").await.unwrap();
        grant_rights(self).await;
        "create=false&"
    }

    // That of the URL.
    const ORDERS: usize = 1;
}

/// A connection of a program of its own.
async fn connect_user(addr: SocketAddr) -> (Client, Beside<()>) {
    let (client, connection) = user(addr).connect(NoTls).await.unwrap();
    // The test may end it.
    (client, Beside::start(async move { drop(connection.await) }))
}

fn user(addr: SocketAddr) -> Config {
    let mut user = Config::new();
    user.host(addr.ip().to_string()).port(addr.port()).user("postgres");
    user
}

async fn grant_rights(server: &Server) {
    for right in ["USAGE ON SCHEMA leasehold", "EXECUTE ON ALL FUNCTIONS IN SCHEMA leasehold"] {
        server.sql(&format!("GRANT {right} TO billing")).await.unwrap();
    }
}

/// Ends connections as an administrator does; how many there were.
async fn end_connections(server: &Server, whose: &str) -> usize {
    let ended = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {whose}");
    server.sql(&ended).await.unwrap().lines().count()
}

/// How many statements of ours the server has carried out.
async fn calls(server: &Server, which: &str) -> u64 {
    server.sql("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await.unwrap();
    let sum = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '%\"leasehold\".%'";
    server.sql(&format!("{sum} {which}")).await.unwrap().parse().unwrap()
}
