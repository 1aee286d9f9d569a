//! Where a server is, by one rule for every store.

use std::fmt;
use std::net::Ipv6Addr;

use crate::words::error::{Error, Result};

/// A server: a host name or an address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    host: String,
    port: u16,
}

impl Endpoint {
    /// Reads `HOST`, `HOST:PORT`, or either with an IPv6 address in brackets.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption), with the text and the rule that it breaks.
    pub fn parse(text: &str, default_port: u16) -> Result<Self> {
        let refused =
            |rule| Err(Error::invalid_option(format!("{text:?} is not a server, HOST or HOST:PORT: {rule}")));
        let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(None) => return refused("the bracket is not closed"),
            Some(Some((address, _))) if address.parse::<Ipv6Addr>().is_err() => {
                return refused("brackets enclose an IPv6 address");
            }
            Some(Some((address, ""))) => (address, None),
            Some(Some((address, rest))) => match rest.strip_prefix(':') {
                None => return refused("a colon stands between address and port"),
                port => (address, port),
            },
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let is_address = text.starts_with('[');
        if !is_address && !host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) {
            return refused("a host name has letters, digits, hyphens, underscores and dots");
        }
        match port.map_or(Ok(default_port), str::parse) {
            Ok(_) if host.is_empty() => refused("there is no host"),
            Ok(port) if port > 0 => Ok(Self { host: host.to_owned(), port }),
            _ => refused("a port is a number from 1 to 65535, and an IPv6 address stands in brackets"),
        }
    }

    /// The name or the address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, above 0.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Endpoint {
    /// As [`Endpoint::parse`] reads it, with the port.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left out has a default, and what is read is shown so that it can be read again.
    #[test]
    fn servers_are_read_and_shown() {
        for (text, host, port, shown) in [
            ("h", "h", 7, "h:7"),
            ("h:1", "h", 1, "h:1"),
            ("my_host-1.example", "my_host-1.example", 7, "my_host-1.example:7"),
            ("10.0.0.1:65535", "10.0.0.1", 65_535, "10.0.0.1:65535"),
            ("[::1]", "::1", 7, "[::1]:7"),
            ("[fe80::1]:2", "fe80::1", 2, "[fe80::1]:2"),
        ] {
            let server = Endpoint::parse(text, 7).unwrap();
            assert_eq!((server.host(), server.port(), &*server.to_string()), (host, port, shown));
            assert_eq!(Endpoint::parse(shown, 9).unwrap(), server);
        }
    }

    /// Every other text is refused with the rule that it breaks.
    #[test]
    fn what_is_no_server_is_refused_by_name() {
        for (text, rule) in [
            ("", "no host"),
            (":1", "no host"),
            ("[", "not closed"),
            ("[h]:1", "IPv6"),
            ("[foo]", "IPv6"),
            ("[::1]1", "colon"),
            ("::1", "brackets"),
            ("h:0", "1 to 65535"),
            ("h:65536", "1 to 65535"),
            ("h:", "1 to 65535"),
            ("h:1:2", "brackets"),
            ("a b", "letters"),
            ("u@h", "letters"),
            ("http://h", "1 to 65535"),
            ("hö", "letters"),
        ] {
            let error = Endpoint::parse(text, 7).unwrap_err().to_string();
            assert!(error.contains(rule) && error.contains(&format!("{text:?}")), "{text:?}: {error}");
        }
    }
}
