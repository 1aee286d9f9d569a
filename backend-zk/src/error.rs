//! The meaning of ZooKeeper's errors, in one table.
//!
//! # Invariants
//! - **zk.error-1** An error that does not prove that the server did nothing has an unknown effect: the client library has
//!   several errors for a lost connection, `Custom` among them.

use std::time::Duration;

pub(crate) use leasehold_core::backend::closed;
use leasehold_core::{Effect, Error, ErrorKind, LostReason};
use zookeeper_client::Error as ZkError;

use crate::protocol::Failure;

/// Why a request has no usable answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The server or the client library refused it.
    Refused(ZkError),
    /// There was no answer for so long.
    Silent(Duration),
    /// The session ended meanwhile.
    SessionOver,
}

impl Unanswered {
    /// There is no such node.
    pub(crate) const ABSENT: Self = Self::Refused(ZkError::NoNode);

    /// Its meaning for an acquisition.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::Refused(source) => meaning(source).2,
            Self::Silent(_) => Failure::Unknown,
            Self::SessionOver => Failure::SessionOver,
        }
    }

    /// Whether the server has no such node.
    pub(crate) fn is_absent(&self) -> bool {
        self.failure() == Failure::Absent
    }

    /// The error of a store that could not do `what`.
    pub(crate) fn into_error(self, what: &str) -> Error {
        match self {
            Self::Refused(source) => {
                let (kind, effect, _, advice) = meaning(&source);
                Error::new(kind, effect, format!("cannot {what}{advice}")).with_source(source)
            }
            Self::Silent(bound) => Error::new(
                ErrorKind::Unavailable,
                Effect::Unknown,
                format!("cannot {what}: no reply within {bound:?}"),
            ),
            // If it was carried out, that was for the session, which has ended.
            Self::SessionOver => Error::lost(LostReason::SessionLost).with_effect(Effect::Unknown),
        }
    }
}

/// An answer, or why there is none.
pub(crate) type Answered<T> = Result<T, Unanswered>;

/// Errors of requests that have no usable answer.
pub(crate) trait Explain<T> {
    /// The error of a store that could not do `what`.
    fn or_not(self, what: &str) -> leasehold_core::Result<T>;
    /// Takes a missing node for an answer.
    fn if_there(self) -> Answered<Option<T>>;
}

impl<T> Explain<T> for Answered<T> {
    fn or_not(self, what: &str) -> leasehold_core::Result<T> {
        self.map_err(|unanswered| unanswered.into_error(what))
    }

    fn if_there(self) -> Answered<Option<T>> {
        match self {
            Err(missing) if missing.is_absent() => Ok(None),
            answered => answered.map(Some),
        }
    }
}

/// The kind of an error, its effect, its meaning for an acquisition, and advice.
fn meaning(source: &ZkError) -> (ErrorKind, Effect, Failure, &'static str) {
    use Effect::{NotApplied, Unknown};
    use ErrorKind::{Denied, InvalidOption, Lost, Misuse, Protocol, Unavailable, Unsupported};
    use Failure::{Absent, Refused, SessionOver};
    // A request that was not carried out, but may be in a moment, is unknown to an acquisition, too.
    let later = Failure::Unknown;
    match source {
        ZkError::NoNode => (Protocol, NotApplied, Absent, ""),
        ZkError::NoAuth => (Denied, NotApplied, Refused, ": the credentials lack a right on the node"),
        ZkError::AuthFailed => (Denied, NotApplied, SessionOver, ": the server refused the credentials"),
        ZkError::InvalidAcl => (
            InvalidOption,
            NotApplied,
            Refused,
            ": the server refused the access rights; give a user, or the certificate that it requires",
        ),
        // The client library checks these before it sends.
        ZkError::BadArguments(_) => (Misuse, NotApplied, Refused, ""),
        ZkError::NodeExists
        | ZkError::BadVersion
        | ZkError::NoChildrenForEphemerals
        | ZkError::NoWatcher
        | ZkError::MarshallingError => (Protocol, NotApplied, Refused, ""),
        ZkError::NotEmpty => (Protocol, NotApplied, later, ""),
        ZkError::Unimplemented => (Unsupported, NotApplied, Refused, ": the server is older than 3.5"),
        ZkError::ReconfigDisabled => (Unsupported, NotApplied, Refused, ""),
        ZkError::QuotaExceeded => (Unavailable, NotApplied, Refused, ": the quota of the path is used up"),
        ZkError::NoHosts => (Unavailable, NotApplied, Refused, ""),
        ZkError::Throttled | ZkError::SessionMoved => (Unavailable, NotApplied, later, ""),
        ZkError::NotReadOnly => {
            (Unavailable, NotApplied, later, ": the server has lost its quorum and serves only reads")
        }
        ZkError::SessionExpired => (Lost { reason: LostReason::SessionLost }, Unknown, SessionOver, ""),
        ZkError::ClientClosed => (Unavailable, Unknown, SessionOver, ""),
        ZkError::Timeout | ZkError::ConnectionLoss | ZkError::RuntimeInconsistent | ZkError::Custom(_) => {
            (Unavailable, Unknown, later, "")
        }
        _ => (Protocol, Unknown, later, ""),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    /// Every error has its kind, its effect, and what an acquisition makes of it.
    #[test]
    fn every_error_is_classified() {
        use Effect::{NotApplied, Unknown};
        let lost = ErrorKind::Lost { reason: LostReason::SessionLost };
        let table = [
            (ZkError::NoAuth, ErrorKind::Denied, NotApplied, Failure::Refused),
            (ZkError::AuthFailed, ErrorKind::Denied, NotApplied, Failure::SessionOver),
            (ZkError::InvalidAcl, ErrorKind::InvalidOption, NotApplied, Failure::Refused),
            (ZkError::BadArguments(&"x"), ErrorKind::Misuse, NotApplied, Failure::Refused),
            (ZkError::NoNode, ErrorKind::Protocol, NotApplied, Failure::Absent),
            (ZkError::NodeExists, ErrorKind::Protocol, NotApplied, Failure::Refused),
            (ZkError::NotEmpty, ErrorKind::Protocol, NotApplied, Failure::Unknown),
            (ZkError::BadVersion, ErrorKind::Protocol, NotApplied, Failure::Refused),
            (ZkError::NoChildrenForEphemerals, ErrorKind::Protocol, NotApplied, Failure::Refused),
            (ZkError::NoWatcher, ErrorKind::Protocol, NotApplied, Failure::Refused),
            (ZkError::Unimplemented, ErrorKind::Unsupported, NotApplied, Failure::Refused),
            (ZkError::ReconfigDisabled, ErrorKind::Unsupported, NotApplied, Failure::Refused),
            (ZkError::MarshallingError, ErrorKind::Protocol, NotApplied, Failure::Refused),
            (ZkError::QuotaExceeded, ErrorKind::Unavailable, NotApplied, Failure::Refused),
            (ZkError::NoHosts, ErrorKind::Unavailable, NotApplied, Failure::Refused),
            (ZkError::Throttled, ErrorKind::Unavailable, NotApplied, Failure::Unknown),
            (ZkError::NotReadOnly, ErrorKind::Unavailable, NotApplied, Failure::Unknown),
            (ZkError::SessionMoved, ErrorKind::Unavailable, NotApplied, Failure::Unknown),
            (ZkError::SessionExpired, lost, Unknown, Failure::SessionOver),
            (ZkError::ClientClosed, ErrorKind::Unavailable, Unknown, Failure::SessionOver),
            (ZkError::UnexpectedErrorCode(-4), ErrorKind::Protocol, Unknown, Failure::Unknown),
            (ZkError::UnexpectedError(String::new()), ErrorKind::Protocol, Unknown, Failure::Unknown),
            (ZkError::Timeout, ErrorKind::Unavailable, Unknown, Failure::Unknown),
            (ZkError::ConnectionLoss, ErrorKind::Unavailable, Unknown, Failure::Unknown),
            (ZkError::RuntimeInconsistent, ErrorKind::Unavailable, Unknown, Failure::Unknown),
        ];
        for (source, kind, effect, failed) in table {
            assert_eq!(meaning(&source).2, failed, "{source}");
            let error = Unanswered::Refused(source).into_error("create a node");
            println!("{error:#}");
            assert_eq!((error.kind(), error.effect()), (&kind, effect), "{error}");
            assert!(error.source().is_some());
        }
    }
}
