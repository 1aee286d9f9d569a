//! The meaning of the client's and the server's errors: a kind, whether the store may have acted, and a message.
//!
//! The server refuses a statement with an `ERROR` before its transaction commits: it was not applied. With `FATAL` it closes the
//! connection, maybe after the commit. A connection that broke says nothing of what it carried.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

pub(crate) use leasehold_core::backend::closed;
use leasehold_core::{Effect, Error, ErrorKind, LostReason, Tls};
use tokio_postgres::error::{DbError, Severity};

use Effect::{NotApplied, Unknown};
use ErrorKind::{Denied, InvalidOption, Protocol, Unavailable, Unsupported};

/// The meaning of an error of the client crate.
pub(crate) fn of_client(error: &tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(said) => of_server(said),
        None => {
            Error::new(Unavailable, Unknown, "the connection to the server failed").with_source(cause(error))
        }
    }
}

/// The error of a connection that was not made.
pub(crate) fn of_connecting(error: &tokio_postgres::Error) -> Error {
    let said = cause(error);
    let meant = match error.as_db_error() {
        Some(said) => of_server(said),
        None => of_cause(said),
    };
    meant.with_effect(NotApplied)
}

/// The meaning of the client crate's or the TLS library's words for a connection that was not made.
fn of_cause(said: String) -> Error {
    let has = |words: &[&str]| words.iter().any(|words| said.contains(words));
    let meant = if has(&["invalid peer certificate", "received fatal alert", "does not support TLS"]) {
        Error::not_applied(Denied, "cannot connect to the server")
    } else if has(&["password missing", "authentication"]) {
        Error::not_applied(Denied, "the server refuses this user")
    } else if has(&["no hostname provided for TLS", "invalid dns name"]) {
        Error::invalid_option("cannot use TLS with this host: expected a host name or an IP address")
    } else {
        Error::not_applied(Unavailable, "cannot connect to the server")
    };
    meant.with_source(said)
}

/// The name of a host cannot be resolved.
pub(crate) fn unknown_host(name: &str, cause: &std::io::Error) -> Error {
    Error::not_applied(Unavailable, format!("cannot resolve the host {name:?}"))
        .with_source(cause.to_string())
}

fn of_server(said: &DbError) -> Error {
    let text = format!("{} ({})", said.message(), said.code().code());
    if is_of(said, "54000", "PreCommit_Notify") {
        return Error::not_applied(Unavailable, "the notification queue of the server is full")
            .with_source(FullQueue(text));
    }
    let (kind, sentence) = of_code(said.code().code());
    let is_over = matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic) | None);
    let effect = if is_over { Unknown } else { NotApplied };
    Error::new(kind, effect, sentence).with_source(text)
}

/// Whether a routine of the server has said it: codes have several meanings, and texts are in the server's language.
fn is_of(said: &DbError, code: &str, routine: &str) -> bool {
    said.code().code() == code && said.routine() == Some(routine)
}

/// The meaning of a code of the server.
fn of_code(code: &str) -> (ErrorKind, &'static str) {
    match code {
        SESSION_IS_OVER => (ErrorKind::Lost { reason: LostReason::SessionLost }, "the session is over"),
        "LH003" => (
            Unsupported,
            "the server begins transactions at another isolation level: run `ALTER ROLE ... SET \
             default_transaction_isolation = 'read committed'`",
        ),
        OLDER_CONNECTION => (Unavailable, "the request was sent on an older connection"),
        "55P03" | "57014" | "40P01" | "40001" => {
            (Unavailable, "the server did not get to the request in time")
        }
        "25006" | "55000" => (Unavailable, "the server is a standby"),
        "42P06" => (
            InvalidOption,
            "the schema exists, but not as one of leasehold: choose another `schema`, or drop it",
        ),
        "42501" => (Denied, "this user lacks a right"),
        "3D000" => (InvalidOption, "the database of the URL does not exist"),
        WITHOUT_SCHEMA => (Unavailable, "the schema of leasehold is gone"),
        "42883" | "42P01" | "42704" | "42703" => (Unsupported, NO_SCHEMA),
        _ => match code.get(..2) {
            Some("28") => (Denied, "the server refuses this user"),
            Some("08" | "53" | "57" | "58") => (Unavailable, "the server cannot do it now"),
            _ => (Protocol, "the server refuses the request"),
        },
    }
}

/// Whether the same request may succeed a little later.
pub(crate) fn may_pass(error: &Error) -> bool {
    *error.kind() == Unavailable
}

/// Whether requests on this connection fail from now on: it is broken or another one is newer, the server takes no writes, or the
/// schema is gone.
pub(crate) fn needs_another_connection(error: &tokio_postgres::Error) -> bool {
    let said = error.as_db_error().map(|said| said.code().code());
    said.is_none_or(|code| matches!(code, OLDER_CONNECTION | "25006" | "55000" | WITHOUT_SCHEMA))
}

/// Whether the connection has lost a prepared statement, or that has become another.
pub(crate) fn is_unprepared(error: &tokio_postgres::Error) -> bool {
    let said = error.as_db_error().map(|said| said.code().code());
    matches!(said, Some("26000" | "0A000"))
}

/// Whether the same change may succeed if it notifies nobody.
pub(crate) fn is_full_queue(error: &Error) -> bool {
    error.source().is_some_and(|cause| cause.is::<FullQueue>())
}

/// Whether the server goes on to answer success although no standby has the change: an administrator has cancelled the wait.
pub(crate) fn is_unreplicated(notice: &DbError) -> bool {
    is_of(notice, "01000", "SyncRepWaitForLSN")
}

/// The server's words for a full notification queue.
#[derive(Debug)]
struct FullQueue(String);

impl fmt::Display for FullQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for FullQueue {}

/// The store could not be opened in time.
pub(crate) fn not_opened(bound: Duration, last: Error) -> Error {
    Error::not_applied(Unavailable, format!("cannot open a session within {bound:?}"))
        .with_source(last.with_effect(NotApplied))
}

pub(crate) fn silent(bound: Duration) -> Error {
    Error::new(Unavailable, Unknown, format!("the server did not answer within {bound:?}"))
}

pub(crate) fn malformed(what: &str) -> Error {
    Error::new(Protocol, Unknown, format!("cannot read the server's reply: {what}"))
}

pub(crate) fn no_schema(schema: &str) -> Error {
    let remedy = "run the output of `leasehold postgres-schema`, or open it once with `create=true` as a user that may create \
                  schemas";
    Error::not_applied(
        Unsupported,
        format!("the schema {schema:?} of leasehold is not in this database: {remedy}"),
    )
}

pub(crate) fn shared_schema(schema: &str) -> Error {
    Error::not_applied(
        Unsupported,
        format!(
            "the schema {schema:?} is not leasehold's own: the role that owns it must own every function in it, and no other role \
             may have `CREATE` on it; revoke that right, or use another `schema`"
        ),
    )
}

pub(crate) fn no_standby() -> Error {
    let why = "the server has no synchronous standby: set `synchronous_standby_names`, or leave out `replicas=sync`";
    Error::not_applied(Unsupported, why)
}

pub(crate) fn other_version(schema: &str, found: i32, known: i32) -> Error {
    Error::not_applied(
        Unsupported,
        format!(
            "the schema {schema:?} has version {found}, but this version of leasehold knows {known}: use the matching one"
        ),
    )
}

pub(crate) fn deaf(bound: Duration) -> Error {
    Error::not_applied(
        Unsupported,
        format!("the server's notifications did not arrive within {bound:?}: {LISTEN_ELSEWHERE}"),
    )
}

pub(crate) fn pooled() -> Error {
    let found = "a pooler in transaction mode passes on no notifications";
    Error::not_applied(Unsupported, format!("{found}: {LISTEN_ELSEWHERE}"))
}

/// The innermost cause: the system's error, or that of the TLS library.
fn cause(error: &(dyn StdError + 'static)) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    Tls::in_words(&last.to_string())
}

const SESSION_IS_OVER: &str = "LH001";
const OLDER_CONNECTION: &str = "LH004";
const WITHOUT_SCHEMA: &str = "3F000";
const LISTEN_ELSEWHERE: &str = "use `listen=false`, or connect to the server itself";
const NO_SCHEMA: &str =
    "the schema of leasehold is missing or another one: run the output of `leasehold postgres-schema`";

#[cfg(test)]
mod tests {
    use super::*;

    /// Each code that leads to another remedy has a meaning of its own.
    #[test]
    fn codes_have_their_meanings() {
        let lost = ErrorKind::Lost { reason: LostReason::SessionLost };
        for (code, kind) in [
            ("LH001", lost),
            ("LH003", Unsupported),
            ("LH004", Unavailable),
            ("54000", Protocol),
            ("55P03", Unavailable),
            ("57014", Unavailable),
            ("40P01", Unavailable),
            ("25006", Unavailable),
            ("55000", Unavailable),
            ("57P01", Unavailable),
            ("53300", Unavailable),
            ("53100", Unavailable),
            ("28P01", Denied),
            ("42P06", InvalidOption),
            ("42501", Denied),
            ("3D000", InvalidOption),
            ("3F000", Unavailable),
            ("42883", Unsupported),
            ("42P01", Unsupported),
            ("22021", Protocol),
            ("", Protocol),
        ] {
            assert_eq!(of_code(code).0, kind, "{code}");
        }
    }
    /// No wait mends a configuration of TLS.
    #[test]
    fn unusable_tls_is_no_outage() {
        for (said, kind) in [
            ("server does not support TLS", Denied),
            ("no hostname provided for TLS handshake", InvalidOption),
            ("invalid dns name", InvalidOption),
            ("Connection refused (os error 111)", Unavailable),
        ] {
            assert_eq!(*of_cause(said.to_owned()).kind(), kind, "{said}");
        }
    }
}
