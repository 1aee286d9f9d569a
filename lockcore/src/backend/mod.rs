//! What stores implement, and what they get.

mod background;
mod backoff;
mod contract;
mod credentials;
mod endpoint;
pub(crate) mod env;
mod events;
mod finding;
pub mod ledger;
pub(crate) mod panic;
mod reopen;
pub mod stage;
pub(crate) mod tls;
pub(crate) mod url;

pub use background::Background;
pub use backoff::Backoff;
pub use contract::{
    AcquireRequest, Attempt, Grant, Holder, Lease, LeaseId, LeaseScope, Load, LockBackend, LockState, Mode,
    Renewal, Revocation, Revoke, StoreConfig, StoreEvent, TokenBase,
};
pub use credentials::Credentials;
pub use endpoint::Endpoint;
pub use events::{Events, Inbox, WeakEvents};
pub use finding::{Finding, Severity};
pub use reopen::Reopen;
