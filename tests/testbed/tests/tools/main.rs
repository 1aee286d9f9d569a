//! What tests rely on: processes, the proxy and the words of a trial do as they say.

#![allow(clippy::unwrap_used, reason = "test binary")]

mod install;
mod postgres;
mod process;
mod proxy;
mod trial;
