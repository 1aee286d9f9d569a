//! The contract of stores, and the parts that the core gives them.

mod background;
mod backoff;
mod contract;
mod credentials;
mod endpoint;
pub(crate) mod env;
mod events;
mod finding;
mod grant;
pub mod ledger;
mod login;
pub(crate) mod panic;
mod reopen;
pub mod stage;
mod timer;
pub(crate) mod tls;
pub(crate) mod url;

pub use background::Background;
pub use backoff::Backoff;
pub use contract::{
    AcquireRequest, Attempt, Holder, Load, LockBackend, LockState, Mode, Renewal, Revocation, Revoke,
    StoreConfig, StoreEvent, TokenBase, closed,
};
pub use credentials::Credentials;
pub use endpoint::Endpoint;
pub use events::{Events, Inbox, WeakEvents};
pub use finding::{Finding, Severity};
pub use grant::{Grant, Lease, LeaseId, LeaseScope};
pub use login::Login;
pub use reopen::Reopen;
