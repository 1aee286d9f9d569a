//! The meaning of errors of the server and of its client: one table, and one mapping of requests that never reached a server.
//!
//! The server refuses a *write* for its own state (`READONLY`, `OOM`, …) before the first write of a
//! script, and that state does not change while one runs: nothing was applied. A missing right may
//! show in the middle of a script, so `NOPERM` is unknown; so is every error that is not in the table.
//!
//! The message is this crate's, and its source is the text of the server or the system. The core adds the server's address.

pub(crate) use leasehold_core::backend::closed;
use leasehold_core::{Effect, Error, ErrorKind, Tls};
use redis::RedisError;

use crate::keys::FORMAT;

/// The meaning of a failed request for its caller.
pub(crate) fn of(error: RedisError) -> Error {
    let (kind, effect, message) = meaning(&error);
    Error::new(kind, effect, message).with_source(said(&error))
}

/// A connection that could not be made; no request was sent.
pub(crate) fn of_connecting(error: RedisError) -> Error {
    let (kind, _, message) = meaning(&error);
    // An error that the client cannot name is of the socket or of TLS.
    let kind = if kind == ErrorKind::Protocol { ErrorKind::Unavailable } else { kind };
    let message = match error.kind() {
        redis::ErrorKind::Io => "cannot connect".to_owned(),
        _ => format!("cannot connect: {message}"),
    };
    Error::not_applied(kind, message).with_source(said(&error))
}

/// As [`of_connecting`], for the first connection: until one has worked, a certificate that one side does not take is a
/// refusal, and no outage.
pub(crate) fn of_opening(error: RedisError) -> Error {
    let refused = is_refused_by_tls(&error);
    let error = of_connecting(error);
    if refused { error.with_kind(ErrorKind::Denied) } else { error }
}

/// The meaning of a refusal for a session with a cluster, which has followed it as far as it could.
pub(crate) fn in_cluster(error: Error) -> Error {
    let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    let (kind, message) = match source.split(' ').next().unwrap_or_default() {
        "MOVED" => {
            (ErrorKind::Unavailable, "the servers of the cluster disagree about which of them has the lock")
        }
        "ASK" | "TRYAGAIN" => (ErrorKind::Unavailable, IN_MOVE),
        "CLUSTERDOWN" => (ErrorKind::Unavailable, UNCOVERED),
        "CROSSSLOT" => (ErrorKind::Protocol, "the keys of the request lie in several slots"),
        _ => return error,
    };
    Error::not_applied(kind, message).with_source(source)
}

/// Whether a server with that `INFO` is part of a cluster. Not every product shows its mode, or under one name.
pub(crate) fn is_in_a_cluster(info: &str) -> bool {
    info.lines().any(|line| line.trim_end() == "cluster_enabled:1")
}

/// No server is known for a slot.
pub(crate) fn uncovered() -> Error {
    Error::not_applied(ErrorKind::Unavailable, UNCOVERED)
}

/// A request for a slot that is on its way, at the server that gets it: a refusal that is followed as the server's own.
pub(crate) fn in_move() -> Error {
    Error::not_applied(ErrorKind::Unavailable, IN_MOVE).with_source("TRYAGAIN the slot has not come yet")
}

/// A lease that is not extended within `failover_lag`.
pub(crate) fn in_lag() -> Error {
    Error::not_applied(ErrorKind::Unavailable, IN_LAG)
}

/// A server that a session has left, and that may be a primary which was replaced. The next attempt may find another one.
pub(crate) fn of_former() -> Error {
    let message = "the server of the lock may have been replaced";
    Error::not_applied(ErrorKind::Unavailable, message).with_source(A_FORMER)
}

/// A reply that no script gives.
pub(crate) fn unexpected(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, Effect::Unknown, format!("the server's reply is invalid ({what})"))
}

/// The namespace has the `format` in `key`: its keys and messages have another layout.
pub(crate) fn another_format(format: &str, key: &str) -> Error {
    let format: String = format.chars().take(20).collect();
    let message =
        format!("the namespace has format {format:?}, but this version reads format {FORMAT} (key {key:?})");
    Error::not_applied(ErrorKind::Unsupported, message)
}

/// A request without a reply, or without enough confirmations. It may have been carried out.
pub(crate) fn unanswered(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, Effect::Unknown, message)
}

/// Whether the server has not got the script: it did nothing, and wants its text.
pub(crate) fn wants_the_text(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

/// Whether to connect to another server: this one is no primary any more.
pub(crate) fn wants_another_server(error: &RedisError) -> bool {
    matches!(error.code(), Some("READONLY" | "MASTERDOWN"))
        || error.detail().is_some_and(|detail| detail.contains(WAIT_ON_A_REPLICA))
}

/// A server that is asked, and says that it is no primary.
pub(crate) fn of_replica() -> Error {
    Error::not_applied(ErrorKind::Unavailable, A_REPLICA).with_source(ITS_ROLE)
}

/// Whether the server is a replica: the cause is in its own words.
pub(crate) fn is_of_replica(error: &Error) -> bool {
    let said = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    ["READONLY ", "MASTERDOWN ", ITS_ROLE].iter().any(|words| said.starts_with(words))
}

/// Whether the server has refused because it is loading its data: the cause is in its own words.
pub(crate) fn is_loading(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|said| said.to_string().starts_with("LOADING "))
}

/// Whether a right is missing.
pub(crate) fn is_denied(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
}

/// Whether one side refused the other's certificate. A peer without TLS is not such a server.
#[cfg(feature = "tls")]
fn is_refused_by_tls(error: &RedisError) -> bool {
    use rustls::{AlertDescription as Alert, Error as TlsError};
    // The client shares the error of the system.
    type Shared = std::sync::Arc<dyn std::error::Error + Send + Sync>;
    let shared = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Shared>());
    let system = shared.and_then(|shared| shared.downcast_ref::<std::io::Error>()?.get_ref());
    match system.and_then(|source| source.downcast_ref::<TlsError>()) {
        Some(TlsError::AlertReceived(alert)) => {
            !matches!(alert, Alert::InternalError | Alert::UserCanceled | Alert::CloseNotify)
        }
        Some(
            TlsError::InvalidCertificate(_)
            | TlsError::NoCertificatesPresented
            | TlsError::UnsupportedNameType
            | TlsError::PeerIncompatible(_),
        ) => true,
        _ => false,
    }
}

#[cfg(not(feature = "tls"))]
fn is_refused_by_tls(_error: &RedisError) -> bool {
    false
}

/// The text of the server or the system, without the client's names for it, which are for its debugging.
fn said(error: &RedisError) -> String {
    // A server names the script and its line; the message names the request. The arguments of a command that it does not know
    // may be a password or a token.
    let ends = [" script: ", ", with args"];
    let detail = error.detail().map(|detail| {
        let end = ends.iter().filter_map(|end| detail.find(end)).min().unwrap_or(detail.len());
        &detail[..end]
    });
    match (error.code(), detail) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(word), None) | (None, Some(word)) => word.to_owned(),
        (None, None) => {
            let shown = error.to_string();
            // The client's own sentences end with its name for the kind.
            let kind = format!(" - {:?}", error.kind());
            Tls::in_words(shown.strip_suffix(&kind).unwrap_or(&shown))
        }
    }
}

/// The client's own words are the source's, and are not repeated.
fn meaning(error: &RedisError) -> (ErrorKind, Effect, &'static str) {
    use redis::ErrorKind as Native;
    match error.kind() {
        Native::Server(_) | Native::Extension => {
            let detail = error.detail().unwrap_or_default();
            of_server(error.code().unwrap_or_default(), detail)
        }
        Native::Io => (ErrorKind::Unavailable, Effect::Unknown, "the connection failed"),
        Native::AuthenticationFailed => (ErrorKind::Denied, Effect::NotApplied, WRONG_PASSWORD),
        Native::InvalidClientConfig => (
            ErrorKind::InvalidOption,
            Effect::NotApplied,
            "the client library rejects the connection options",
        ),
        Native::RESP3NotSupported => (ErrorKind::Unsupported, Effect::NotApplied, TOO_OLD),
        _ => (ErrorKind::Protocol, Effect::Unknown, "cannot read the server's reply"),
    }
}

/// The table, by the first word of the server's error.
fn of_server(code: &str, detail: &str) -> (ErrorKind, Effect, &'static str) {
    use Effect::{NotApplied, Unknown};
    use ErrorKind::{Denied, InvalidOption, Protocol, Unavailable, Unsupported};
    match code {
        "LOADING" => (Unavailable, NotApplied, "the server is loading its data"),
        "READONLY" => (Unavailable, NotApplied, A_REPLICA),
        "MASTERDOWN" => (Unavailable, NotApplied, "the server is a replica that has lost its primary"),
        "NOREPLICAS" => (Unavailable, NotApplied, "too few replicas are connected (min-replicas-to-write)"),
        "OOM" => (Unavailable, NotApplied, "the server is at its memory limit (maxmemory)"),
        "MISCONF" => {
            (Unavailable, NotApplied, "the server refuses writes because it cannot save to its disk")
        }
        "BUSY" => (Unavailable, NotApplied, "the server is running a long script"),
        "UNKILLABLE" => (Unavailable, Unknown, "the server is running a long script that it cannot stop"),
        "NOSCRIPT" => (Unavailable, NotApplied, "the server does not have the scripts"),
        "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN" | "TRYAGAIN" => (Unsupported, NotApplied, IN_A_CLUSTER),
        "ERR" if detail.contains("cluster support disabled") => (Unsupported, NotApplied, NO_CLUSTER),
        "NOAUTH" => (Denied, NotApplied, "the server requires a password"),
        "WRONGPASS" => (Denied, NotApplied, WRONG_PASSWORD),
        // It is sent only after NOSCRIPT: nothing has run.
        "NOPERM" if detail.contains("'eval' command") => (Denied, NotApplied, NO_SCRIPTS),
        "NOPERM" => (Denied, Unknown, "the user lacks a right that the store's page lists"),
        "DENIED" => (Denied, NotApplied, "the server is in protected mode: configure a password"),
        "WRONGTYPE" => (Protocol, Unknown, "a key of this lock is used for something that is no lock"),
        // A script's own error, which names the key and its type; no script has written anything before.
        "NOLOCK" => (Protocol, NotApplied, "a key of this lock is used for something that is no lock"),
        "NOPROTO" => (Unsupported, NotApplied, TOO_OLD),
        "ERR" if detail.contains("max number of clients") => {
            (Unavailable, NotApplied, "the server is at its limit of clients (maxclients)")
        }
        // These are sent behind the request that they wait for, which may have been carried out.
        "ERR" if detail.contains(WAIT_ON_A_REPLICA) => (Unavailable, Unknown, A_REPLICA),
        "ERR" if detail.contains("unknown command 'WAITAOF'") => (Unsupported, Unknown, NO_WAITAOF),
        "ERR" if detail.contains("unknown command 'SSUBSCRIBE'") => (Denied, NotApplied, NO_SLOT_CHANNELS),
        "ERR" if detail.contains("appendonly is disabled") => (Unsupported, Unknown, NO_AOF),
        "ERR" if detail.contains("DB index") || detail.contains("refused to switch database") => {
            (InvalidOption, NotApplied, "the server has no database with this number")
        }
        "ERR" if detail.contains("without any password configured") => {
            (Denied, NotApplied, "the server has no such user, or no password for it")
        }
        // The script has removed a key of a slot that is on its way, and met it again.
        "ERR" if detail.contains("non local key") => (Unavailable, Unknown, IN_MOVE),
        // A server before 7.2 reports NOPERM inside a script like this.
        "ERR" if NO_RIGHT_IN_A_SCRIPT.iter().any(|words| detail.contains(words)) => {
            (Denied, Unknown, "the user lacks a right that the store's page lists")
        }
        "ERR" if detail.contains("unknown command") && detail.contains("HELLO") => {
            (Unsupported, NotApplied, TOO_OLD)
        }
        _ => (Protocol, Unknown, "the server returned an unknown error"),
    }
}

const A_REPLICA: &str = "the server is a replica: connect to the primary";
const ITS_ROLE: &str = "ROLE is not master";
pub(crate) const IN_A_CLUSTER: &str =
    "the server is part of a Redis Cluster: use the URL scheme redis+cluster or rediss+cluster";
const IN_MOVE: &str = "the slot of the lock is being moved to another server";
pub(crate) const A_FORMER: &str = "it was left before, and has not said that it lost the slot";
const IN_LAG: &str = "the lease is not extended: the server before may go on for `failover_lag`";
const UNCOVERED: &str = "no server of the cluster has the slot of the lock";
const NO_CLUSTER: &str = "the server is not part of a Redis Cluster: use the URL scheme redis or rediss";
const WRONG_PASSWORD: &str = "the server refused the user or the password";
const NO_SCRIPTS: &str = "the server does not have the scripts, and the user may not send them (+eval): load \
                          them with `leasehold redis-scripts`";
const NO_RIGHT_IN_A_SCRIPT: [&str; 3] =
    ["ACL failure in script", "The user executing the script can't", "can't access at least one of the keys"];
/// Of `WAIT` and `WAITAOF`.
const WAIT_ON_A_REPLICA: &str = "cannot be used with replica instances";
const NO_WAITAOF: &str = "the server has no WAITAOF: `wait_aof` needs Redis 7.2 or later, or Valkey";
const NO_SLOT_CHANNELS: &str = "the server has no SSUBSCRIBE";
const NO_AOF: &str = "the server writes no append-only file: `wait_aof` needs appendonly yes";
const TOO_OLD: &str = "the server does not speak RESP3: Redis 7.0 or later is needed";

#[cfg(test)]
mod tests {
    use super::*;

    fn from_server(line: &str) -> Error {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        let redis::Value::ServerError(error) = value else { panic!("{line}: {value:?}") };
        of(error.into())
    }

    /// Every error that a server is known to give to a client of ours.
    #[test]
    fn server_errors_mean_what_the_table_says() {
        use Effect::{NotApplied, Unknown};
        use ErrorKind::{Denied, InvalidOption, Protocol, Unavailable, Unsupported};
        for (line, kind, effect) in [
            ("LOADING Redis is loading the dataset in memory", Unavailable, NotApplied),
            ("READONLY You can't write against a read only replica.", Unavailable, NotApplied),
            ("MASTERDOWN Link with MASTER is down", Unavailable, NotApplied),
            ("NOREPLICAS Not enough good replicas to write.", Unavailable, NotApplied),
            ("OOM command not allowed when used memory > 'maxmemory'.", Unavailable, NotApplied),
            ("MISCONF Redis is configured to save RDB snapshots", Unavailable, NotApplied),
            ("BUSY Redis is busy running a script.", Unavailable, NotApplied),
            ("UNKILLABLE Sorry the script already executed write commands", Unavailable, Unknown),
            ("CLUSTERDOWN The cluster is down", Unsupported, NotApplied),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Unsupported, NotApplied),
            ("NOSCRIPT No matching script. Please use EVAL.", Unavailable, NotApplied),
            ("MOVED 3999 127.0.0.1:6381", Unsupported, NotApplied),
            ("ASK 3999 127.0.0.1:6381", Unsupported, NotApplied),
            ("CROSSSLOT Keys in request don't hash to the same slot", Unsupported, NotApplied),
            ("NOAUTH Authentication required.", Denied, NotApplied),
            ("WRONGPASS invalid username-password pair or user is disabled.", Denied, NotApplied),
            ("NOPERM this user has no permissions to run the 'set' command", Denied, Unknown),
            ("NOPERM User x has no permissions to run the 'eval' command", Denied, NotApplied),
            ("DENIED Redis is running in protected mode", Denied, NotApplied),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", Protocol, Unknown),
            ("NOLOCK the key \"a\" is a list", Protocol, NotApplied),
            ("NOPROTO unsupported protocol version", Unsupported, NotApplied),
            ("ERR max number of clients reached", Unavailable, NotApplied),
            ("ERR WAIT cannot be used with replica instances.", Unavailable, Unknown),
            ("ERR WAITAOF cannot be used with replica instances.", Unavailable, Unknown),
            ("ERR unknown command 'WAITAOF', with args beginning with: '1' '0'", Unsupported, Unknown),
            ("ERR unknown command 'SSUBSCRIBE', with args beginning with: 'a'", Denied, NotApplied),
            (
                "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
                Unsupported,
                Unknown,
            ),
            ("ERR DB index is out of range", InvalidOption, NotApplied),
            ("ERR This instance has cluster support disabled", Unsupported, NotApplied),
            ("ERR Script attempted to access a non local key in a cluster node", Unavailable, Unknown),
            ("ERR unknown command 'HELLO', with args beginning with: '3'", Unsupported, NotApplied),
            (
                "ERR ACL failure in script: User x has no permissions to run the 'set' command",
                Denied,
                Unknown,
            ),
            ("ERR The user executing the script can't run this command or subcommand", Denied, Unknown),
            ("ERR user_script:12: attempt to compare nil with number", Protocol, Unknown),
            ("SOMETHING new", Protocol, Unknown),
        ] {
            let error = from_server(line);
            println!("{error:#}");
            assert_eq!((error.kind(), error.effect()), (&kind, effect), "{line}");
            assert!(std::error::Error::source(&error).is_some(), "{line}");
        }
    }

    /// A failure of a connection is unknown to have been applied, unless it was still being made.
    #[test]
    fn broken_connections_are_unknown() {
        let broken = || RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert_eq!(of(broken()).effect(), Effect::Unknown);
        assert_eq!(*of(broken()).kind(), ErrorKind::Unavailable);
        assert_eq!(of_connecting(broken()).effect(), Effect::NotApplied);
    }

    /// A certificate that is not taken is a refusal at first, and an outage once there was a connection; what is no TLS
    /// at all is an outage always.
    #[cfg(feature = "tls")]
    #[test]
    fn certificates_are_refused_at_first() {
        use rustls::{AlertDescription, CertificateError, Error as TlsError};
        for (tls, kind) in [
            (TlsError::InvalidCertificate(CertificateError::UnknownIssuer), ErrorKind::Denied),
            (TlsError::AlertReceived(AlertDescription::CertificateRequired), ErrorKind::Denied),
            (TlsError::AlertReceived(AlertDescription::InternalError), ErrorKind::Unavailable),
            (TlsError::InvalidMessage(rustls::InvalidMessage::InvalidContentType), ErrorKind::Unavailable),
        ] {
            let said = || RedisError::from(std::io::Error::new(std::io::ErrorKind::InvalidData, tls.clone()));
            assert_eq!(*of_opening(said()).kind(), kind, "{tls}");
            assert_eq!(*of_connecting(said()).kind(), ErrorKind::Unavailable, "{tls}");
        }
    }

    /// The sentence is ours, its cause is the server's or the system's, and neither repeats the other.
    #[test]
    fn causes_are_in_the_words_of_those_who_said_them() {
        let io = || RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        let own = || RedisError::from((redis::ErrorKind::Parse, "the reply cannot be read"));
        let table = [
            (of_connecting(io()), "cannot connect: connection reset"),
            (of(io()), "the connection failed: connection reset; the store may have carried it out"),
            (
                of(own()),
                "cannot read the server's reply: the reply cannot be read; the store may have carried it out",
            ),
            (
                from_server("LOADING Redis is loading the dataset in memory"),
                "the server is loading its data: LOADING Redis is loading the dataset in memory",
            ),
            (from_server("NOAUTH"), "the server requires a password: NOAUTH"),
            (
                from_server("OOM command not allowed. script: 7cab6639, on @user_script:233."),
                "the server is at its memory limit (maxmemory): OOM command not allowed.",
            ),
            // The arguments may be secrets.
            (
                from_server("ERR unknown command 'AUTH', with args beginning with: 'user' 'TOKEN' "),
                "the server returned an unknown error: ERR unknown command 'AUTH'; the store may have carried it \
                 out",
            ),
            (
                from_server("ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'u' 'TOKEN' "),
                "the server does not speak RESP3: Redis 7.0 or later is needed: ERR unknown command 'HELLO'",
            ),
        ];
        for (error, words) in table {
            assert_eq!(format!("{error:#}"), words);
        }
    }
}
