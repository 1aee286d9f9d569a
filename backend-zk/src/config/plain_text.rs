//! Replaces certificates in a build without TLS: a configuration with certificates is refused.

use std::io;

use leasehold_core::backend::Endpoint;
use leasehold_core::{Result, Tls};
use tokio::net::TcpStream;
use zookeeper_client::{Client, Connector};

/// None is ever made.
pub(crate) type Protected = TcpStream;

#[derive(Debug)]
pub(crate) enum Certificates {}

impl Certificates {
    pub(super) fn read(_: &Tls, _: &[Endpoint]) -> Result<Self> {
        Err(Tls::missing())
    }

    pub(super) async fn open(&self, _: Connector, _: &str) -> Result<Client, zookeeper_client::Error> {
        match *self {}
    }

    pub(crate) async fn shake_hands(&self, _: &str, _: TcpStream) -> io::Result<Protected> {
        match *self {}
    }

    pub(crate) fn are_refused(_: &io::Error) -> bool {
        false
    }
}
