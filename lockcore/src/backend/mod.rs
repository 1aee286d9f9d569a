//! What stores implement, and what they get.

mod backoff;
mod contract;
pub(crate) mod env;
pub(crate) mod tls;
pub(crate) mod url;

pub use backoff::Backoff;
pub use contract::{
    AcquireRequest, Attempt, Finding, Grant, Holder, Lease, LeaseId, LeaseScope, LockBackend, LockState,
    Mode, Renewal, Revocation, Revoke, Severity, StoreConfig, StoreEvent, TokenBase,
};
