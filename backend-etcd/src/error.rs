//! What the client's and the server's errors mean: a kind, whether the store may have acted, and a sentence.
//!
//! The sentence is ours. Its cause is what the server said, or what the system did to the connection: the
//! layers between are left out, which name each other and what they are made of.
//!
//! One mapping for every request. A refusal that the server gives before it proposes anything to
//! its peers is `NotApplied`, and so is a connection that was never made; a cut, a timeout or a change
//! of leader may have been applied, and so may what was refused for want of room.

use std::error::Error as StdError;
use std::time::Duration;

use leasehold_core::{Effect, Error, ErrorKind, LostReason, Tls};
use tonic::Code;

/// What an error of the client means.
pub(crate) fn of_client(error: etcd_client::Error) -> Error {
    let (kind, effect, message, cause) = meaning(&error);
    Error::new(kind, effect, message).with_source(cause)
}

/// A connection that was not made: what kept us from it.
pub(crate) fn of_connecting(error: &(dyn StdError + 'static)) -> Error {
    Error::not_applied(ErrorKind::Unavailable, "cannot connect").with_source(cause(error))
}

/// Connected while authentication was off.
pub(crate) fn nameless(error: &etcd_client::Error) -> Error {
    Error::not_applied(ErrorKind::Unavailable, "etcd asks who we are").with_source(meaning(error).3)
}

/// Whether another member, or another connection, may do better.
pub(crate) fn is_about_the_member(error: &etcd_client::Error) -> bool {
    use etcd_client::Error as E;
    match error {
        // It knows the new leader already.
        E::GRpcStatus(status) if status.message().contains("leader changed") => false,
        E::GRpcStatus(status) if is_old_token(status.message()) || is_from_a_learner(status.message()) => {
            true
        }
        // Not etcd's own word: a proxy's before that endpoint.
        E::GRpcStatus(status) if matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated) => {
            !status.message().starts_with(FROM_ETCD)
        }
        E::GRpcStatus(status) => matches!(
            status.code(),
            Code::Cancelled
                | Code::Unknown
                | Code::DeadlineExceeded
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        ),
        E::TransportError(_) | E::IoError(_) | E::WatchError(_) | E::Internal(_) => true,
        E::LeaseKeepAliveError(_) => !is_lease_gone(error),
        E::InvalidArgs(_)
        | E::InvalidUri(_)
        | E::Utf8Error(_)
        | E::ElectError(_)
        | E::InvalidMetadataValue(_)
        | E::EndpointError(_)
        | E::EndpointsNotManaged => false,
    }
}

/// The token ran out, users or roles were changed, or authentication switched off, after the connection
/// said who we are; another one finds out how to. A user without rights is told so in other words.
fn is_old_token(text: &str) -> bool {
    ["invalid auth token", "auth store is old", AUTHENTICATION_IS_OFF].iter().any(|old| text.contains(old))
}

/// A member that copies the data and answers no request of ours.
fn is_from_a_learner(text: &str) -> bool {
    text.contains("not supported for learner")
}

/// Whether the cluster has authentication switched off.
pub(crate) fn is_without_users(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.message().contains(AUTHENTICATION_IS_OFF))
}

/// Whether the server wants to know who asks.
pub(crate) fn is_nameless(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.message().contains("user name is empty"))
}

/// Whether a server has answered, if only to refuse.
pub(crate) fn is_answer(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.message().starts_with(FROM_ETCD))
}

/// Whether one side did not take the other's certificate, in the words of the TLS library. On a connection
/// that has answered before, the same words tell of a damaged record.
pub(crate) fn is_refused_by_tls(error: &Error) -> bool {
    let text = whole(error);
    text.contains("invalid peer certificate") || text.contains("received fatal alert")
}

/// An error of a connection that was made over TLS and has answered nothing yet. A server that does not take
/// our certificate says so only after the handshake, and closing it may be all that is seen of that.
pub(crate) fn of_first_request(error: etcd_client::Error) -> Error {
    let is_about_the_member = is_about_the_member(&error);
    let meant = of_client(error);
    if is_about_the_member && !is_refused_by_tls(&meant) {
        meant.with_context("connected over TLS", "the server may want another client certificate")
    } else {
        meant
    }
}

/// What all the layers above it tell of: the system's word, or that of the TLS library.
pub(crate) fn cause(error: &(dyn StdError + 'static)) -> String {
    chain(error).last().map(|last| Tls::in_words(&last.to_string())).unwrap_or_default()
}

/// Whether a lease was asked for that exists already.
pub(crate) fn is_lease_known(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.message().contains("lease already exists"))
}

/// Whether a lease is gone.
fn is_lease_gone(error: &etcd_client::Error) -> bool {
    match error {
        etcd_client::Error::LeaseKeepAliveError(message) => message.contains("lease not found"),
        etcd_client::Error::GRpcStatus(status) => status.message().contains("lease not found"),
        _ => false,
    }
}

/// Whether the same request may succeed a little later.
pub(crate) fn may_pass(error: &Error) -> bool {
    // A full server stays full until somebody makes room.
    *error.kind() == ErrorKind::Unavailable && !is_for_space(error)
}

/// Whether the server answers, and refuses what takes room.
pub(crate) fn is_for_space(error: &Error) -> bool {
    whole(error).contains(NO_SPACE)
}

/// Whether an answer was longer than what the client takes.
pub(crate) fn is_too_long(error: &Error) -> bool {
    whole(error).contains("message length too large")
}

/// Whether a revision was asked for that the store has forgotten.
pub(crate) fn is_compacted(error: &Error) -> bool {
    whole(error).contains("required revision has been compacted")
}

/// What decides is in the words of the server, behind ours.
fn whole(error: &Error) -> String {
    format!("{error:#}")
}

pub(crate) fn silent(bound: Duration) -> Error {
    Error::new(ErrorKind::Unavailable, Effect::Unknown, format!("etcd did not answer within {bound:?}"))
}

pub(crate) fn cut(what: &str) -> Error {
    Error::new(ErrorKind::Unavailable, Effect::Unknown, format!("{what} was ended by etcd"))
}

pub(crate) fn closed() -> Error {
    Error::not_applied(ErrorKind::Closed, "the session with etcd was closed")
}

pub(crate) fn not_told() -> Error {
    Error::not_applied(ErrorKind::Denied, "this user has no right to watch the keys of the lock any more")
}

pub(crate) fn stranger() -> Error {
    Error::not_applied(
        ErrorKind::Unsupported,
        "a watch is answered under a number that was not asked for, as `etcd grpc-proxy` does, which cannot \
         serve locks: name the members of the cluster as endpoints",
    )
}

pub(crate) fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, Effect::Unknown, format!("etcd answered {what}"))
}

/// Kind, effect and sentence of an error, and what caused it, in words.
fn meaning(error: &etcd_client::Error) -> (ErrorKind, Effect, &'static str, String) {
    use etcd_client::Error as E;
    let shown = || error.to_string();
    match error {
        E::GRpcStatus(status) => {
            let text = status.message();
            let (kind, effect) = of_status(status.code(), text, never_connected(status));
            match status.source() {
                Some(why) => (kind, effect, "no answer from etcd", cause(why)),
                None => (kind, effect, sentence(text), text.trim_start_matches(FROM_ETCD).trim().to_owned()),
            }
        }
        E::InvalidArgs(_) | E::InvalidUri(_) | E::InvalidMetadataValue(_) | E::EndpointsNotManaged => {
            (ErrorKind::InvalidOption, Effect::NotApplied, "the client does not take this", shown())
        }
        E::EndpointError(why) => (ErrorKind::Unavailable, Effect::NotApplied, "cannot connect", why.clone()),
        E::TransportError(source) => {
            let effect = if never_connected(source) { Effect::NotApplied } else { Effect::Unknown };
            (ErrorKind::Unavailable, effect, "no answer from etcd", cause(source))
        }
        E::IoError(source) => {
            (ErrorKind::Unavailable, Effect::Unknown, "no answer from etcd", source.to_string())
        }
        E::LeaseKeepAliveError(why) if is_lease_gone(error) => {
            let kind = ErrorKind::Lost { reason: LostReason::SessionLost };
            (kind, Effect::NotApplied, "the lease is over", why.clone())
        }
        E::WatchError(why) => (ErrorKind::Unavailable, Effect::Unknown, "a watch has failed", why.clone()),
        E::LeaseKeepAliveError(why) => {
            (ErrorKind::Unavailable, Effect::Unknown, "a renewal has failed", why.clone())
        }
        E::Internal(why) => (ErrorKind::Unavailable, Effect::Unknown, "the client has failed", why.clone()),
        E::Utf8Error(_) | E::ElectError(_) => {
            (ErrorKind::Protocol, Effect::Unknown, "etcd cannot be understood", shown())
        }
    }
}

/// What a status without a cause means, by its text.
fn sentence(text: &str) -> &'static str {
    let table = [
        ("authentication failed", "etcd refuses user and password"),
        ("user name is empty", "etcd wants a user and a password"),
        ("permission denied", "the user lacks a right that the store's page lists"),
        (NO_SPACE, "etcd is at its space limit: compact, defragment and disarm it"),
        ("too many requests", "etcd has more requests than it takes"),
        ("no leader", "the cluster has no leader"),
        ("leader changed", "the cluster has changed its leader"),
        ("request timed out", "the cluster has not agreed in time"),
        ("lease not found", "the lease is over"),
    ];
    match table.iter().find(|(said, _)| text.contains(said)) {
        Some((_, sentence)) if text.starts_with(FROM_ETCD) => sentence,
        _ if is_from_a_learner(text) => "the member is a learner, which serves no locks: leave it out",
        _ if is_old_token(text) => "etcd asks who we are",
        _ if text.starts_with(FROM_ETCD) => "etcd refuses the request",
        // Of a proxy, or of the client.
        _ => "no answer from etcd that can be used",
    }
}

fn of_status(code: Code, text: &str, never_connected: bool) -> (ErrorKind, Effect) {
    let from_etcd = text.starts_with(FROM_ETCD);
    match code {
        _ if is_old_token(text) || is_from_a_learner(text) => (ErrorKind::Unavailable, Effect::NotApplied),
        // A wrong password is an invalid argument to etcd, and so is none.
        Code::InvalidArgument
            if text.contains("authentication failed") || text.contains("user name is empty") =>
        {
            (ErrorKind::Denied, Effect::NotApplied)
        }
        Code::InvalidArgument if from_etcd => (ErrorKind::Protocol, Effect::NotApplied),
        // Whatever stands between may say the same, of itself: it is no word on the rights of this user.
        Code::PermissionDenied | Code::Unauthenticated if from_etcd => {
            (ErrorKind::Denied, Effect::NotApplied)
        }
        Code::NotFound if text.contains("lease not found") => {
            (ErrorKind::Lost { reason: LostReason::SessionLost }, Effect::NotApplied)
        }
        Code::NotFound | Code::AlreadyExists | Code::FailedPrecondition => {
            (ErrorKind::Unavailable, Effect::NotApplied)
        }
        // Checked before a request is proposed and once more when it is applied; the second check refuses
        // what it has carried out.
        Code::ResourceExhausted if text.contains(NO_SPACE) => (ErrorKind::Unavailable, Effect::Unknown),
        // Too many requests at once.
        Code::ResourceExhausted if from_etcd => (ErrorKind::Unavailable, Effect::NotApplied),
        Code::Unimplemented => (ErrorKind::Unsupported, Effect::NotApplied),
        Code::Unavailable | Code::Unknown if never_connected => (ErrorKind::Unavailable, Effect::NotApplied),
        Code::Ok | Code::InvalidArgument | Code::OutOfRange => (ErrorKind::Protocol, Effect::Unknown),
        // Whatever else there is, and what gRPC does not know yet.
        _ => (ErrorKind::Unavailable, Effect::Unknown),
    }
}

/// How whatever the servers themselves say begins.
const FROM_ETCD: &str = "etcdserver:";

const NO_SPACE: &str = "database space exceeded";

const AUTHENTICATION_IS_OFF: &str = "authentication is not enabled";

/// The client's words for a connection that was not made; nothing was sent on it.
fn never_connected(error: &(dyn StdError + 'static)) -> bool {
    chain(error).any(|error| {
        let text = error.to_string();
        text.contains("tcp connect error") || text.contains("dns error")
    })
}

/// An error, what caused it, what caused that.
fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&(dyn StdError + 'static)| (*error).source())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every code, with the words that make a difference.
    #[test]
    fn every_status_has_a_meaning() {
        use Effect::{NotApplied, Unknown};
        use ErrorKind::{Denied, Lost, Protocol, Unavailable, Unsupported};
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
            (
                5,
                "etcdserver: requested lease not found",
                Lost { reason: LostReason::SessionLost },
                NotApplied,
            ),
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
            assert_eq!(of_status(Code::from_i32(number), text, false), (kind, effect), "{number} {text}");
        }
    }

    /// Old rights and learners are left for another connection; what is said of the request itself is not.
    #[test]
    fn another_connection_may_do_better() {
        let is_left = |code: Code, text: &str| {
            is_about_the_member(&etcd_client::Error::GRpcStatus(tonic::Status::new(code, text)))
        };
        assert!(is_left(Code::InvalidArgument, "etcdserver: revision of auth store is old"));
        assert!(is_left(Code::Unauthenticated, "etcdserver: invalid auth token"));
        for code in [Code::FailedPrecondition, Code::Unavailable] {
            assert!(is_left(code, "etcdserver: rpc not supported for learner"));
        }
        assert!(is_left(Code::Unavailable, "etcdserver: no leader"));
        assert!(!is_left(Code::Unavailable, "etcdserver: leader changed"));
        assert!(!is_left(Code::PermissionDenied, "etcdserver: permission denied"));
        // A proxy's word, not etcd's.
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

    /// A full server is not asked again and again.
    #[test]
    fn a_full_server_is_known() {
        let of = |text: &str| {
            let (kind, effect) = of_status(Code::ResourceExhausted, text, false);
            Error::new(kind, effect, sentence(text)).with_source(text)
        };
        let full = of("etcdserver: mvcc: database space exceeded");
        assert!(is_for_space(&full) && !may_pass(&full));
        let busy = of("etcdserver: too many requests");
        assert!(!is_for_space(&busy) && may_pass(&busy));
    }

    /// Only a connection that was never made proves that nothing was done.
    #[test]
    fn a_connection_never_made_did_nothing() {
        let refused = std::io::Error::other("tcp connect error");
        assert!(never_connected(&refused));
        assert!(!never_connected(&std::io::Error::other("error reading a body from connection")));
        for code in [Code::Unavailable, Code::Unknown] {
            assert_eq!(of_status(code, "", true).1, Effect::NotApplied);
            assert_eq!(of_status(code, "", false).1, Effect::Unknown);
        }
    }

    /// On a connection that may have carried something, the words of TLS are those of a cut.
    #[test]
    fn a_tls_alert_is_no_refusal_of_etcd() {
        let alert = std::io::Error::other("received fatal alert: BadRecordMac");
        let cut = etcd_client::Error::GRpcStatus(tonic::Status::from_error(Box::new(alert)));
        assert!(is_about_the_member(&cut) && !is_answer(&cut));
        let error = of_client(cut);
        assert_eq!((error.kind(), error.effect()), (&ErrorKind::Unavailable, Effect::Unknown));
        assert_eq!(
            format!("{error:#}"),
            "no answer from etcd: received fatal alert: BadRecordMac; the store may have carried it out"
        );
        assert!(is_refused_by_tls(&error));
    }

    /// Whatever a server says has a sentence of ours, and is its cause without what all its words begin with.
    #[test]
    fn what_the_server_says_is_the_cause() {
        let words = |code: Code, text: &str| {
            let refused = etcd_client::Error::GRpcStatus(tonic::Status::new(code, text));
            format!("{:#}", of_client(refused).with_effect(Effect::NotApplied))
        };
        let table = [
            (
                "etcdserver: authentication failed, invalid user ID or password",
                "etcd refuses user and password: authentication failed, invalid user ID or password",
            ),
            ("etcdserver: user name is empty", "etcd wants a user and a password: user name is empty"),
            (
                "etcdserver: permission denied",
                "the user lacks a right that the store's page lists: permission denied",
            ),
            (
                "etcdserver: mvcc: database space exceeded",
                "etcd is at its space limit: compact, defragment and disarm it: mvcc: database space exceeded",
            ),
            ("etcdserver: no leader", "the cluster has no leader"),
            ("etcdserver: corrupt cluster", "etcd refuses the request: corrupt cluster"),
            (
                "grpc-status header missing, mapped from HTTP status code 403",
                "no answer from etcd that can be used: grpc-status header missing, mapped from HTTP status code 403",
            ),
        ];
        for (said, told) in table {
            assert_eq!(words(Code::Unavailable, said), told);
        }
    }

    /// The client's own errors are told apart, and keep their words.
    #[test]
    fn the_clients_errors_have_a_meaning() {
        let gone = etcd_client::Error::LeaseKeepAliveError("lease not found".to_owned());
        assert!(is_lease_gone(&gone) && !is_about_the_member(&gone));
        let broken = etcd_client::Error::WatchError("channel closed".to_owned());
        assert!(is_about_the_member(&broken));
        let error = of_client(broken);
        assert_eq!((error.kind(), error.effect()), (&ErrorKind::Unavailable, Effect::Unknown));
        assert!(error.source().is_some());
        let error = of_client(etcd_client::Error::InvalidArgs("no".to_owned()));
        assert_eq!((error.kind(), error.effect()), (&ErrorKind::InvalidOption, Effect::NotApplied));
    }
}
