//! What tests rely on: processes, servers, the proxy and the words of a trial do as they say.

#![allow(clippy::unwrap_used, reason = "test binary")]

mod etcd;
mod install;
mod process;
mod proxy;
mod redis;
mod trial;
