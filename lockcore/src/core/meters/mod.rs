//! What is counted, by way of the `metrics` facade: nothing, at no cost, without the feature of that
//! name.
//!
//! Both halves have the same functions; the names of the metrics are told by `describe`.

#[cfg(feature = "metrics")]
mod recording;
#[cfg(not(feature = "metrics"))]
mod silent;
#[cfg(all(test, feature = "metrics"))]
mod tests;

#[cfg(feature = "metrics")]
pub use recording::describe;
#[cfg(feature = "metrics")]
pub(crate) use recording::{Acquisition, Hold, dropped, handed_on, let_go, lost, renewed, taken};
#[cfg(not(feature = "metrics"))]
pub(crate) use silent::{Acquisition, Hold, dropped, handed_on, let_go, lost, renewed, taken};
