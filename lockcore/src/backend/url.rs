//! A store's URL, taken apart once: `scheme://user:password@host,host/path?option=value`.
//!
//! Written by hand because a lock URL names several hosts, which a web URL cannot. A store *takes*
//! its options; an option that no reader takes is an error, so a misspelt option is always reported.
//!
//! # Invariants
//! - Nothing that may be part of a password is taken for a host, a path or an option, or shown.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::backend::Endpoint;
use crate::words::error::{Error, Result};

/// A parsed store URL. `Debug` shows no password.
pub struct StoreUrl {
    scheme: String,
    user: Option<String>,
    password: Option<String>,
    hosts: Vec<String>,
    path: String,
    options: Vec<(String, String)>,
    /// One of them is a URL: an unknown one may be a part of its password.
    hides_unknown: bool,
    /// Every option that was taken, for the message about another one.
    known: Vec<&'static str>,
}

impl StoreUrl {
    /// The part before `://`, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The user, percent-decoded.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password, percent-decoded.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The parts between the commas of the authority, as written.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// The servers that it names.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::parse`].
    pub fn endpoints(&self, default_port: u16) -> Result<Vec<Endpoint>> {
        self.hosts.iter().map(|host| Endpoint::parse(host, default_port)).collect()
    }

    /// The path, percent-decoded, its first slash included; empty when there is none.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Takes an option's value.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) when it is given twice.
    pub fn take(&mut self, option: &'static str) -> Result<Option<String>> {
        self.known.push(option);
        let mut values = self.options.extract_if(.., |(key, _)| key == option).map(|(_, value)| value);
        let value = values.next();
        if values.next().is_some() {
            return Err(Error::invalid_option(format!("option {option:?} is given twice")));
        }
        Ok(value)
    }

    /// Takes an option and reads it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption), naming the option, the value and `form`, the form it must have.
    pub fn take_parsed<T: FromStr>(&mut self, option: &'static str, form: &str) -> Result<Option<T>> {
        let Some(value) = self.take(option)? else {
            return Ok(None);
        };
        match value.parse() {
            Ok(parsed) => Ok(Some(parsed)),
            Err(_) => {
                Err(Error::invalid_option(format!("option {option}={value:?} is invalid: expected {form}")))
            }
        }
    }

    /// Takes a length of time in the form that [`span`] reads.
    ///
    /// # Errors
    ///
    /// As [`StoreUrl::take_parsed`].
    pub fn take_duration(&mut self, option: &'static str) -> Result<Option<Duration>> {
        let Some(value) = self.take(option)? else {
            return Ok(None);
        };
        let read = span(&value);
        read.map(Some)
            .map_err(|error| Error::invalid_option(format!("option {option}={value:?} is invalid: {error}")))
    }

    /// Takes the namespace from the option `prefix` or, for a store whose path means that, the path.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) when both are given.
    pub fn take_prefix_or_path(&mut self) -> Result<Option<String>> {
        let in_path = Some(self.path.trim_matches('/').to_owned()).filter(|path| !path.is_empty());
        match (self.take("prefix")?, in_path) {
            (Some(prefix), Some(path)) => Err(Error::invalid_option(format!(
                "the prefix is given twice: {path:?} as path and {prefix:?} as option"
            ))),
            (prefix, path) => Ok(prefix.or(path)),
        }
    }

    /// Fails if an option is left.
    pub(crate) fn all_taken(&mut self) -> Result<()> {
        let Some((option, _)) = self.options.first() else {
            return Ok(());
        };
        self.known.sort_unstable();
        self.known.dedup();
        let option = match self.hides_unknown {
            true => "unknown option (not shown: in a password of an inner URL write & as %26)".to_owned(),
            false => format!("unknown option {option:?}"),
        };
        Err(Error::invalid_option(format!(
            "{option} for {}://; known: {}",
            self.scheme,
            self.known.join(", ")
        )))
    }
}

/// Reads a length of time, the same in URLs and on the command line: with units, such as `500ms`, `30s`
/// or `1m30s`, or a number of seconds, such as `3` or `0.5`.
///
/// # Errors
///
/// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for any other text, negative numbers included.
pub fn span(text: &str) -> Result<Duration> {
    let read = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    read.ok_or_else(|| {
        Error::invalid_option("expected a length of time such as 500ms, 30s, 1m30s, or 3 for seconds")
    })
}

impl FromStr for StoreUrl {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        // The URL may carry a password, so no message repeats it, or a possible part of it.
        let letter = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| scheme.chars().all(letter))
        else {
            return Err(Error::invalid_option(
                "the store URL is invalid: expected scheme://host/path?option=value",
            ));
        };
        let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if !authority.is_empty() && rest.contains('@') {
            return Err(Error::invalid_option(
                "the URL has an @ after its host: in a user, password, path or option write / as %2F, ? as \
                 %3F and @ as %40",
            ));
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let options: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let is_key = |key: &str| !key.is_empty() && key.bytes().all(|c| c.is_ascii_lowercase() || c == b'_');
        let is_option = |option: &str| option.is_empty() || option.contains('=');
        if !query.split('&').all(is_option) || !options.iter().all(|(key, _)| is_key(key)) {
            return Err(Error::invalid_option(
                "an option of the URL is invalid: expected key=value with a key of a-z and _; in a value \
                 write & as %26",
            ));
        }
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        let (user, password) = match credentials.map(|both| both.split_once(':').unwrap_or((both, ""))) {
            Some((user, password)) => (filled(user)?, filled(password)?),
            None => (None, None),
        };
        Ok(Self {
            scheme: known_as(&scheme.to_ascii_lowercase()),
            user,
            password,
            hosts: hosts.split(',').filter(|host| !host.is_empty()).map(str::to_owned).collect(),
            path: decoded(path)?,
            // A password of the inner URL whose & is not escaped goes on behind it.
            hides_unknown: options.iter().any(|(_, value)| value.contains("://")),
            options,
            known: Vec::new(),
        })
    }
}

/// The scheme by which a store is known: `valkey` in it is `redis`.
fn known_as(scheme: &str) -> String {
    let other = scheme.strip_prefix("valkey").filter(|rest| ["", "s"].contains(rest) || rest.contains('+'));
    other.map_or_else(|| scheme.to_owned(), |rest| format!("redis{rest}"))
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreUrl")
            .field("scheme", &self.scheme)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "[redacted]"))
            .field("hosts", &self.hosts)
            .field("path", &self.path)
            .field("options", &self.options.iter().map(|(key, _)| key).collect::<Vec<_>>())
            .finish()
    }
}

fn decoded(text: &str) -> Result<String> {
    let is_escape =
        |rest: &str| rest.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    if !text.split('%').skip(1).all(is_escape) {
        return Err(Error::invalid_option(
            "a `%` in the URL is not followed by two hexadecimal digits: write a plain % as `%25`",
        ));
    }
    let text = percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| Error::invalid_option("a percent-encoded part of the URL is not UTF-8"))
}

fn filled(text: &str) -> Result<Option<String>> {
    if text.is_empty() { Ok(None) } else { decoded(text).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> StoreUrl {
        url.parse().unwrap()
    }

    /// Several hosts, credentials, path and options come apart as written.
    #[test]
    fn every_part_is_found() {
        let mut url = parsed("ETCD://bill:s%40cret@h1:2379,h2:2379/billing%2Feu?ttl=15s&owner=a+b");
        assert_eq!(url.scheme(), "etcd");
        assert_eq!((url.user(), url.password()), (Some("bill"), Some("s@cret")));
        assert_eq!(url.hosts(), ["h1:2379", "h2:2379"]);
        assert_eq!(url.path(), "/billing/eu");
        assert_eq!(url.take_duration("ttl").unwrap(), Some(Duration::from_secs(15)));
        assert_eq!(url.take("owner").unwrap().as_deref(), Some("a b"));
        url.all_taken().unwrap();
    }

    /// Valkey is Redis by another name, over TLS and behind its sentinels, too.
    #[test]
    fn valkey_is_redis() {
        for (scheme, known) in
            [("valkey", "redis"), ("VALKEYS", "rediss"), ("valkeys+quorum", "rediss+quorum")]
        {
            assert_eq!(parsed(&format!("{scheme}://h/0")).scheme(), known);
        }
        assert_eq!(parsed("valkeyd://h").scheme(), "valkeyd");
    }

    /// Both ways of writing a length of time are read, and others are refused.
    #[test]
    fn lengths_of_time_have_units_or_are_seconds() {
        assert_eq!(span("1m30s").unwrap(), Duration::from_secs(90));
        assert_eq!(span("0.25").unwrap(), Duration::from_millis(250));
        assert_eq!(span("0").unwrap(), Duration::ZERO);
        for wrong in ["", "soon", "-1", "nan", "inf", "1e300", "5 parsecs"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parsed("memory://?ttl=3").take_duration("ttl").unwrap(), Some(Duration::from_secs(3)));
    }

    /// A misspelt option is an error that names the known ones.
    #[test]
    fn options_that_nobody_takes_are_errors() {
        let mut url = parsed("memory://?tll=15s");
        assert_eq!(url.take("ttl").unwrap(), None);
        let error = url.all_taken().unwrap_err().to_string();
        assert!(error.contains("\"tll\"") && error.contains("known: ttl"), "{error}");
    }

    /// Values in the wrong form, options and prefixes given twice: the message names them.
    #[test]
    fn options_in_the_wrong_form_are_errors() {
        let error = parsed("memory://?ttl=fast").take_duration("ttl").unwrap_err().to_string();
        assert!(error.contains("ttl=\"fast\"") && error.contains("500ms"), "{error}");
        let error = parsed("memory://?ttl=1s&ttl=2s").take("ttl").unwrap_err().to_string();
        assert!(error.contains("given twice"), "{error}");
        let error = parsed("etcd://h/a?prefix=b").take_prefix_or_path().unwrap_err().to_string();
        assert!(error.contains("\"a\"") && error.contains("\"b\""), "{error}");
    }

    /// A `/` or `?` of a password that is not percent-encoded would make a host and a path of its parts:
    /// every URL that may be one is refused, in words that show nothing of it.
    #[test]
    fn an_at_sign_after_the_authority_is_refused() {
        for url in [
            "redis://u:qqq/zzz@h/0",
            "redis://u:qqq?zzz@h/0",
            "redis://:1234/zzz@h",
            "etcd://qqq:1234/zzz@h1,h2",
            "zk://u:q@qq/zzz@h1:2181,h2:2181/chroot",
            "rediss://u:p@h/0?owner=zzz@h",
            "qqq/zzz://u:p@h",
            "u:qqq://h",
            "",
        ] {
            let error = url.parse::<StoreUrl>().unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(!["qq", "zz", "1234"].iter().any(|part| shown.contains(part)), "{shown}");
        }
        let error = "etcd://u:1/2@h".parse::<StoreUrl>().unwrap_err().to_string();
        assert!(error.contains("%2F") && error.contains("%3F") && error.contains("%40"), "{error}");
        assert_eq!(parsed("redis://u:s%2F%3F%40@h/0?owner=a%40b").password(), Some("s/?@"));
        // The same of a `&`: the rest of the password would be an option.
        for rest in ["zzz%40h", "Zzz=1%40h", "zz%2E=%40h", "ttl=1s&zzz&a=b%40h"] {
            let error =
                format!("redis://h/0?migrate_to=etcd://u:qqq&{rest}").parse::<StoreUrl>().unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(!["qq", "zz", "Zz"].iter().any(|part| shown.contains(part)), "{shown}");
            assert!(shown.contains("%26"), "{shown}");
        }
        for half in ["a%zz", "a%4", "%"] {
            assert!(decoded(half).unwrap_err().to_string().contains("`%25`"));
        }
        // Without an authority there is no password.
        assert_eq!(parsed("file:///run/a@b?keep=3").path(), "/run/a@b");
        assert_eq!(parsed("memory://?owner=a@b").take("owner").unwrap().as_deref(), Some("a@b"));
    }

    /// Neither the parsed URL nor an error about it shows the password.
    #[test]
    fn the_password_is_never_shown() {
        let url = parsed("redis://u:sesame@h/0?password=sesame");
        assert!(!format!("{url:?}").contains("sesame"));
        let error = "redis:u:sesame@h".parse::<StoreUrl>().unwrap_err();
        assert!(!format!("{error:?} {error}").contains("sesame"));
    }
}
