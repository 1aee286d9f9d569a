//! The meaning of the client's and the server's errors: a kind, whether the store may have acted, and a message.
//!
//! The cause is the server's text, or the system's error of the connection, without the layers of libraries in between.
//!
//! There is one mapping for all requests. A refusal before the server proposes the request to its peers is `NotApplied`,
//! and so is a connection that was never made. After a cut, a timeout or a change of leader the request may have been
//! applied, and so may one that was refused for lack of space.

use std::error::Error as StdError;
use std::time::Duration;

pub(crate) use leasehold_core::backend::closed;
use leasehold_core::{Effect, Error, ErrorKind, LostReason, Tls};
use tonic::{Code, Status};

use Effect::{NotApplied, Unknown};
use ErrorKind::{Denied, InvalidOption, Protocol, Unavailable, Unsupported};

/// Kind, effect, sentence and cause of an error, and whether another connection may do better.
type Meaning = (ErrorKind, Effect, &'static str, String, bool);

/// The meaning of an error of the client crate.
pub(crate) fn of_client(error: etcd_client::Error) -> Error {
    let (kind, effect, sentence, cause, _) = meaning(&error);
    Error::new(kind, effect, sentence).with_source(cause)
}

/// The error of a connection that was not made.
pub(crate) fn of_connecting(error: &(dyn StdError + 'static)) -> Error {
    Error::not_applied(Unavailable, CANNOT_CONNECT).with_source(cause(error))
}

/// The error of a request without a user, on a connection from when authentication was disabled.
pub(crate) fn nameless(error: etcd_client::Error) -> Error {
    Error::not_applied(Unavailable, WHO_WE_ARE).with_source(meaning(&error).3)
}

/// An error of a connection that was made over TLS and has answered nothing yet. A server reports only after the handshake that
/// it refuses the client's certificate, and the client may see no more of it than a closed connection.
pub(crate) fn of_first_request(error: etcd_client::Error) -> Error {
    let is_about_the_member = is_about_the_member(&error);
    let meant = of_client(error);
    if is_about_the_member && !is_refused_by_tls(&meant) {
        meant.with_context("hint", "the server may require another client certificate")
    } else {
        meant
    }
}

/// Whether another member, or another connection, may do better.
pub(crate) fn is_about_the_member(error: &etcd_client::Error) -> bool {
    meaning(error).4
}

/// Whether the server's text contains these words.
pub(crate) fn says(error: &etcd_client::Error, words: &str) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.message().contains(words))
}

/// Whether a server has answered, also with a refusal.
pub(crate) fn is_answer(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.message().starts_with(FROM_ETCD))
}

/// Whether one side refused the other's certificate, by the text of the TLS library. On a connection that has answered
/// before, the same text means a damaged record.
pub(crate) fn is_refused_by_tls(error: &Error) -> bool {
    tells(error, "invalid peer certificate") || tells(error, "received fatal alert")
}

/// Whether the same request may succeed a little later.
pub(crate) fn may_pass(error: &Error) -> bool {
    // A full server stays full until an administrator makes room.
    *error.kind() == Unavailable && !tells(error, NO_SPACE)
}

/// Whether the text of an error or of its cause contains these words.
pub(crate) fn tells(error: &Error, words: &str) -> bool {
    format!("{error:#}").contains(words)
}

/// The innermost cause: the system's error, or that of the TLS library.
pub(crate) fn cause(error: &(dyn StdError + 'static)) -> String {
    chain(error).last().map(|last| Tls::in_words(&last.to_string())).unwrap_or_default()
}

pub(crate) fn silent(bound: Duration) -> Error {
    Error::new(Unavailable, Unknown, format!("etcd did not answer within {bound:?}"))
}

pub(crate) fn cut(what: &str) -> Error {
    Error::new(Unavailable, Unknown, format!("{what} ended early"))
}

pub(crate) fn not_told() -> Error {
    Error::not_applied(Denied, "this user no longer has the right to watch the keys of the lock")
}

pub(crate) fn unsupported_proxy() -> Error {
    Error::not_applied(
        Unsupported,
        "cannot watch keys through `etcd grpc-proxy` or a similar proxy: name the members of the cluster as \
         endpoints",
    )
}

pub(crate) fn malformed(what: &str) -> Error {
    Error::new(Protocol, Unknown, format!("cannot read etcd's reply: {what}"))
}

fn meaning(error: &etcd_client::Error) -> Meaning {
    use etcd_client::Error as E;
    match error {
        E::GRpcStatus(status) => of_status(status),
        E::TransportError(source) => (Unavailable, unless_connected(source), NO_ANSWER, cause(source), true),
        E::IoError(source) => (Unavailable, Unknown, NO_ANSWER, source.to_string(), true),
        E::LeaseKeepAliveError(why) if why.contains(NO_LEASE) => {
            (SESSION_LOST, NotApplied, LEASE_IS_OVER, why.clone(), false)
        }
        E::LeaseKeepAliveError(why) => (Unavailable, Unknown, "cannot renew the lease", why.clone(), true),
        E::WatchError(why) => (Unavailable, Unknown, "cannot watch keys", why.clone(), true),
        E::Internal(why) => (Unavailable, Unknown, "the etcd client failed", why.clone(), true),
        E::EndpointError(why) => (Unavailable, NotApplied, CANNOT_CONNECT, why.clone(), false),
        E::Utf8Error(_) | E::ElectError(_) => {
            (Protocol, Unknown, "cannot decode etcd's reply", error.to_string(), false)
        }
        E::InvalidArgs(_) | E::InvalidUri(_) | E::InvalidMetadataValue(_) | E::EndpointsNotManaged => {
            (InvalidOption, NotApplied, "the etcd client rejects the request", error.to_string(), false)
        }
    }
}

fn of_status(status: &Status) -> Meaning {
    let text = status.message();
    let from_etcd = text.starts_with(FROM_ETCD);
    let known = WORDS.iter().find(|(said, ..)| from_etcd && text.contains(said));
    if let Some((_, kind, effect, sentence, is_about_the_member)) = known {
        return (kind.clone(), *effect, sentence, own_words(text), *is_about_the_member);
    }
    let never_connected = status.source().map_or(Unknown, unless_connected);
    let (kind, effect, is_about_the_member) = match (status.code(), from_etcd) {
        (Code::InvalidArgument, true) => (Protocol, NotApplied, false),
        (Code::Ok | Code::InvalidArgument | Code::OutOfRange, _) => (Protocol, Unknown, false),
        // A proxy may answer the same for itself, which proves nothing about the rights of this user.
        (Code::PermissionDenied | Code::Unauthenticated, true) => (Denied, NotApplied, false),
        (Code::PermissionDenied | Code::Unauthenticated, false) => (Unavailable, Unknown, true),
        (Code::ResourceExhausted, true) => (Unavailable, NotApplied, false),
        (Code::NotFound | Code::AlreadyExists | Code::FailedPrecondition, _) => {
            (Unavailable, NotApplied, false)
        }
        (Code::Unimplemented, _) => (Unsupported, NotApplied, false),
        (Code::Unavailable | Code::Unknown, _) => (Unavailable, never_connected, true),
        (Code::Cancelled | Code::DeadlineExceeded | Code::Internal | Code::DataLoss, _) => {
            (Unavailable, Unknown, true)
        }
        // All other codes, and later additions of gRPC.
        _ => (Unavailable, Unknown, false),
    };
    let (sentence, cause) = match status.source() {
        Some(why) => (NO_ANSWER, cause(why)),
        None if from_etcd => ("etcd refused the request", own_words(text)),
        // From a proxy, or from the client crate.
        None => ("no usable answer from etcd", own_words(text)),
    };
    (kind, effect, sentence, cause, is_about_the_member)
}

/// The server's text without the prefix that all of them have.
fn own_words(text: &str) -> String {
    text.trim_start_matches(FROM_ETCD).trim().to_owned()
}

/// The prefix of all texts of the servers.
const FROM_ETCD: &str = "etcdserver:";

pub(crate) const NO_SPACE: &str = "database space exceeded";
pub(crate) const AUTHENTICATION_IS_OFF: &str = "authentication is not enabled";
pub(crate) const WHO: &str = "user name is empty";
pub(crate) const REFUSED: &str = "authentication failed";
/// A reply is longer than the client crate accepts.
pub(crate) const TOO_LONG: &str = "message length too large";
pub(crate) const COMPACTED: &str = "required revision has been compacted";
const NO_LEASE: &str = "lease not found";

const NO_ANSWER: &str = "no answer from etcd";
const CANNOT_CONNECT: &str = "cannot connect";
const WHO_WE_ARE: &str = "etcd asks this client to authenticate again";
const LEASE_IS_OVER: &str = "the lease has ended";
const LEARNER: &str = "the member is a learner and serves no locks: remove it from the endpoints";
const NO_RIGHT: &str = "the user lacks a right on the namespace: grant readwrite on its prefix";
const NO_ROOM: &str = "etcd is at its space limit: compact and defragment it, then disarm the alarm";
const SESSION_LOST: ErrorKind = ErrorKind::Lost { reason: LostReason::SessionLost };

/// Texts of etcd, their meaning, and whether another connection may do better.
static WORDS: [(&str, ErrorKind, Effect, &str, bool); 13] = [
    // The token expired, users or roles were changed, or authentication was disabled, after the connection was
    // authenticated; another connection does it anew. The error of a user without rights has another text.
    ("invalid auth token", Unavailable, NotApplied, WHO_WE_ARE, true),
    ("auth store is old", Unavailable, NotApplied, WHO_WE_ARE, true),
    (AUTHENTICATION_IS_OFF, Unavailable, NotApplied, WHO_WE_ARE, true),
    ("not supported for learner", Unavailable, NotApplied, LEARNER, true),
    // etcd calls a wrong password, and none, an invalid argument.
    (REFUSED, Denied, NotApplied, "etcd refused the user or the password", false),
    (WHO, Denied, NotApplied, "etcd requires a user and a password: put them into the URL", false),
    ("permission denied", Denied, NotApplied, NO_RIGHT, false),
    // Checked before a request is proposed and again when it is applied; the second check refuses a request that it
    // has applied.
    (NO_SPACE, Unavailable, Unknown, NO_ROOM, false),
    ("too many requests", Unavailable, NotApplied, "etcd is overloaded", false),
    ("no leader", Unavailable, Unknown, "the cluster has no leader", true),
    // The member knows the new one already.
    ("leader changed", Unavailable, Unknown, "the cluster changed its leader", false),
    ("request timed out", Unavailable, Unknown, "the cluster did not agree in time", true),
    (NO_LEASE, SESSION_LOST, NotApplied, LEASE_IS_OVER, false),
];

/// Nothing was sent on a connection that was never made, which the text of the client crate shows.
fn unless_connected(error: &(dyn StdError + 'static)) -> Effect {
    let is_about_connecting = |text: String| text.contains("tcp connect error") || text.contains("dns error");
    if chain(error).any(|error| is_about_connecting(error.to_string())) { NotApplied } else { Unknown }
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&(dyn StdError + 'static)| (*error).source())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Every code, with the words that make a difference.
    #[test]
    fn every_status_has_a_meaning() {
        let table = [
            (0, "", Protocol, Unknown),
            (1, "Timeout expired", Unavailable, Unknown),
            (2, "transport error", Unavailable, Unknown),
            (3, "", Protocol, Unknown),
            (3, "etcdserver: key is not provided", Protocol, NotApplied),
            (3, "etcdserver: authentication failed, invalid user ID or password", Denied, NotApplied),
            (3, "etcdserver: user name is empty", Denied, NotApplied),
            (3, "etcdserver: revision of auth store is old", Unavailable, NotApplied),
            (4, "context deadline exceeded", Unavailable, Unknown),
            (5, "", Unavailable, NotApplied),
            (5, "etcdserver: requested lease not found", SESSION_LOST, NotApplied),
            (6, "", Unavailable, NotApplied),
            (7, "etcdserver: permission denied", Denied, NotApplied),
            (8, "etcdserver: mvcc: database space exceeded", Unavailable, Unknown),
            (8, "etcdserver: too many requests", Unavailable, NotApplied),
            (8, "grpc: received message larger than max", Unavailable, Unknown),
            (9, "etcdserver: lease already exists", Unavailable, NotApplied),
            (9, "etcdserver: authentication is not enabled", Unavailable, NotApplied),
            (10, "", Unavailable, Unknown),
            (11, "", Protocol, Unknown),
            (12, "", Unsupported, NotApplied),
            (13, "", Unavailable, Unknown),
            (14, "etcdserver: request timed out", Unavailable, Unknown),
            (14, "etcdserver: leader changed", Unavailable, Unknown),
            (14, "etcdserver: no leader", Unavailable, Unknown),
            (9, "etcdserver: rpc not supported for learner", Unavailable, NotApplied),
            (14, "etcdserver: rpc not supported for learner", Unavailable, NotApplied),
            (15, "", Unavailable, Unknown),
            (16, "etcdserver: invalid auth token", Unavailable, NotApplied),
            (16, "etcdserver: permission denied", Denied, NotApplied),
            (7, "grpc-status header missing, mapped from HTTP status code 403", Unavailable, Unknown),
            (16, "grpc-status header missing, mapped from HTTP status code 401", Unavailable, Unknown),
            (99, "", Unavailable, Unknown),
        ];
        for (number, text, kind, effect) in table {
            let status = Status::new(Code::from_i32(number), text);
            let meaning = of_status(&status);
            println!("{:#}", of_client(status.into()));
            assert_eq!((meaning.0, meaning.1), (kind, effect), "{number} {text}");
        }
    }

    /// Expired rights and learners need another connection; a refusal of the request itself does not.
    #[test]
    fn another_connection_may_do_better() {
        let is_left = |code: Code, text: &str| {
            is_about_the_member(&etcd_client::Error::GRpcStatus(Status::new(code, text)))
        };
        assert!(is_left(Code::InvalidArgument, "etcdserver: revision of auth store is old"));
        assert!(is_left(Code::Unauthenticated, "etcdserver: invalid auth token"));
        for code in [Code::FailedPrecondition, Code::Unavailable] {
            assert!(is_left(code, "etcdserver: rpc not supported for learner"));
        }
        assert!(is_left(Code::Unavailable, "etcdserver: no leader"));
        assert!(!is_left(Code::Unavailable, "etcdserver: leader changed"));
        assert!(!is_left(Code::PermissionDenied, "etcdserver: permission denied"));
        // From a proxy, not from etcd.
        assert!(is_left(
            Code::PermissionDenied,
            "grpc-status header missing, mapped from HTTP status code 403"
        ));
        assert!(is_left(
            Code::Unauthenticated,
            "grpc-status header missing, mapped from HTTP status code 401"
        ));
        assert!(is_left(Code::FailedPrecondition, "etcdserver: authentication is not enabled"));
    }

    #[test]
    fn a_full_server_is_known() {
        let of = |text: &str| of_client(Status::new(Code::ResourceExhausted, text).into());
        assert!(!may_pass(&of("etcdserver: mvcc: database space exceeded")));
        assert!(may_pass(&of("etcdserver: too many requests")));
    }

    /// Only a connection that was never made proves that nothing was done.
    #[test]
    fn a_connection_never_made_did_nothing() {
        for code in [Code::Unavailable, Code::Unknown] {
            for (cause, effect) in
                [("tcp connect error", NotApplied), ("error reading a body from connection", Unknown)]
            {
                let mut status = Status::new(code, "");
                status.set_source(Arc::new(std::io::Error::other(cause)));
                assert_eq!(of_status(&status).1, effect, "{code:?} {cause}");
            }
        }
    }

    /// On a connection that may have carried a request, an error of TLS is a cut.
    #[test]
    fn a_tls_alert_is_no_refusal_of_etcd() {
        let alert = std::io::Error::other("received fatal alert: BadRecordMac");
        let cut = etcd_client::Error::GRpcStatus(Status::from_error(Box::new(alert)));
        assert!(is_about_the_member(&cut) && !is_answer(&cut));
        let error = of_client(cut);
        assert_eq!((error.kind(), error.effect()), (&Unavailable, Unknown));
        assert_eq!(
            format!("{error:#}"),
            "no answer from etcd: received fatal alert: BadRecordMac; the store may have carried it out"
        );
        assert!(is_refused_by_tls(&error));
    }

    /// Each text of a server has a sentence of ours, and is its cause without the prefix.
    #[test]
    fn error_of_the_server_is_the_cause() {
        let words = |code: Code, text: &str| {
            let refused = etcd_client::Error::GRpcStatus(Status::new(code, text));
            format!("{:#}", of_client(refused).with_effect(NotApplied))
        };
        let table = [
            (
                "etcdserver: authentication failed, invalid user ID or password",
                "etcd refused the user or the password: authentication failed, invalid user ID or password",
            ),
            (
                "etcdserver: user name is empty",
                "etcd requires a user and a password: put them into the URL: user name is empty",
            ),
            (
                "etcdserver: permission denied",
                "the user lacks a right on the namespace: grant readwrite on its prefix: permission denied",
            ),
            (
                "etcdserver: mvcc: database space exceeded",
                "etcd is at its space limit: compact and defragment it, then disarm the alarm: mvcc: database space exceeded",
            ),
            ("etcdserver: no leader", "the cluster has no leader"),
            ("etcdserver: corrupt cluster", "etcd refused the request: corrupt cluster"),
            (
                "grpc-status header missing, mapped from HTTP status code 403",
                "no usable answer from etcd: grpc-status header missing, mapped from HTTP status code 403",
            ),
        ];
        for (said, told) in table {
            assert_eq!(words(Code::Unavailable, said), told);
        }
    }

    #[test]
    fn the_clients_errors_have_a_meaning() {
        let gone = etcd_client::Error::LeaseKeepAliveError("lease not found".to_owned());
        assert!(!is_about_the_member(&gone) && of_client(gone).lost_reason().is_some());
        let broken = etcd_client::Error::WatchError("channel closed".to_owned());
        assert!(is_about_the_member(&broken));
        let error = of_client(broken);
        assert_eq!((error.kind(), error.effect()), (&Unavailable, Unknown));
        assert!(error.source().is_some());
        let error = of_client(etcd_client::Error::InvalidArgs("no".to_owned()));
        assert_eq!((error.kind(), error.effect()), (&InvalidOption, NotApplied));
    }
}
