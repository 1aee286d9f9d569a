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
        let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(None) => return Err(refused(text, "the bracket is not closed")),
            Some(Some((address, _))) if address.parse::<Ipv6Addr>().is_err() => {
                return Err(refused(address, "brackets enclose an IPv6 address"));
            }
            Some(Some((address, ""))) => (address, None),
            Some(Some((address, rest))) => match rest.strip_prefix(':') {
                None => return Err(refused(address, "a colon stands between address and port")),
                port => (address, port),
            },
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        if !text.starts_with('[') && !is_host_name(host) {
            return Err(refused(
                host,
                "a host name has at most 253 letters, digits, hyphens, underscores and dots, and begins \
                 with a letter or a digit",
            ));
        }
        match port.map_or(Ok(default_port), str::parse) {
            Ok(port) if port > 0 => Ok(Self { host: host.to_owned(), port }),
            // The text there may be a password, in a URL without its host.
            _ => Err(refused(
                &format!("{host}:…"),
                "a port is a number from 1 to 65535, and an IPv6 address stands in brackets",
            )),
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

fn is_host_name(host: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    host.len() <= 253 && host.starts_with(|c: char| c.is_ascii_alphanumeric()) && host.chars().all(known)
}

fn refused(text: &str, rule: &str) -> Error {
    Error::invalid_option(format!("server {text:?} is invalid: expected HOST or HOST:PORT: {rule}"))
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

    /// A missing port has a default, and a server is shown in a form that can be read again.
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

    /// Every other text is refused with the rule that it breaks. Text that may be a password is not shown.
    #[test]
    fn invalid_server_is_refused_by_name() {
        for (text, shown, rule) in [
            ("", "", "begins with"),
            (":1", "", "begins with"),
            ("-x", "-x", "begins with"),
            (".", ".", "begins with"),
            ("[", "[", "not closed"),
            ("[h]:1", "h", "IPv6"),
            ("[foo]", "foo", "IPv6"),
            ("[::1]1", "::1", "colon"),
            ("::1", "", "begins with"),
            ("h:0", "h:…", "1 to 65535"),
            ("h:65536", "h:…", "1 to 65535"),
            ("h:", "h:…", "1 to 65535"),
            ("fe80::1", "fe80:…", "brackets"),
            ("a b", "a b", "letters"),
            ("u@h", "u@h", "letters"),
            ("hö", "hö", "letters"),
            ("user:secret", "user:…", "1 to 65535"),
            ("us er:secret", "us er", "letters"),
        ] {
            let error = Endpoint::parse(text, 7).unwrap_err().to_string();
            assert!(error.starts_with(&format!("server {shown:?} is invalid")), "{text:?}: {error}");
            assert!(error.contains(rule) && !error.contains("secret"), "{text:?}: {error}");
        }
        assert!(Endpoint::parse(&"a".repeat(254), 7).is_err());
    }
}
