//! The format of a lock under its key, if other libraries take it too.

use std::time::Duration;

use leasehold_core::{Error, Result, StoreUrl};

use crate::scripts::millis;

/// The format and the key of a lock that other libraries take too: they exclude us, and we exclude them.
///
/// Foreign clients take no part in the queue and have no tokens, so a store with a format is neither `FIFO` nor `FENCED`.
///
/// ```
/// use leasehold_redis::{Format, RedisConfig};
///
/// let config = RedisConfig::new("127.0.0.1", 6379).format(Format::string().key("redlock:{name}"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a format is set by `RedisConfig::format`"]
pub struct Format {
    kind: Kind,
    pub(crate) key: String,
    poll: Duration,
    yield_after: u32,
    yield_every: Duration,
    yield_for: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    String,
    Redisson,
}

impl Format {
    /// A string, acquired by `SET key value NX PX ttl` and released by a client that knows its value: redis-py, redsync,
    /// redislock, node-redlock, rslock and others, on one server. `format=string`.
    pub fn string() -> Self {
        // The usual pause between polls is 100 ms.
        Self::new(Kind::String, [100, 1_000, 150])
    }

    /// A hash, as Redisson's `RLock` keeps it. Redisson and leasehold wake each other's waiters by messages. `format=redisson`.
    pub fn redisson() -> Self {
        // Some clients send no message. Our messages wake their waiters, and we yield only if they wait: so turns are short.
        Self::new(Kind::Redisson, [1_000, 150, 100])
    }

    /// With `poll`, `yield_every` and `yield_for` in milliseconds.
    fn new(kind: Kind, times: [u64; 3]) -> Self {
        let [poll, yield_every, yield_for] = times.map(Duration::from_millis);
        Self { kind, key: NAME.to_owned(), poll, yield_after: NOT_COUNTED, yield_every, yield_for }
    }

    /// The key of a lock, with its name where `{name}` stands, once. Default `{name}`.
    pub fn key(mut self, template: impl Into<String>) -> Self {
        self.key = template.into();
        self
    }

    /// How often our first waiter polls while a foreign client holds the lock, give or take a quarter. Default 100 ms,
    /// with Redisson, which sends messages, 1 s.
    pub fn poll(mut self, every: Duration) -> Self {
        self.poll = every;
        self
    }

    /// After how many hand-overs in a row among our waiters foreign clients have a turn, if `yield_every` has not ended before.
    /// Default no limit: a lock that is held for a moment would rest more than it is held.
    pub fn yield_after(mut self, hand_overs: u32) -> Self {
        self.yield_after = hand_overs;
        self
    }

    /// For how long the lock passes among our waiters before foreign clients have a turn. Default 1 s, with Redisson 150 ms:
    /// its clients show that they wait, and without one there is no turn.
    pub fn yield_every(mut self, span: Duration) -> Self {
        self.yield_every = span;
        self
    }

    /// For how long our waiters leave the lock to foreign clients then: longer than the pause between their polls. Default 150 ms, with
    /// Redisson 100 ms; they have no turns at 0.
    pub fn yield_for(mut self, span: Duration) -> Self {
        self.yield_for = span;
        self
    }

    /// Reads it from a URL's options, if there is one.
    pub(super) fn take_from(url: &mut StoreUrl) -> Result<Option<Self>> {
        let format = match url.take("format")?.as_deref() {
            None => None,
            Some("string") => Some(Self::string()),
            Some("redisson") => Some(Self::redisson()),
            Some(other) => {
                return Err(Error::invalid_option(format!(
                    "option format={other:?} is invalid: expected string or redisson"
                )));
            }
        };
        // `key` is a file of TLS where there is TLS.
        let key = match url.take("lock_key")? {
            None if url.scheme() != "rediss" => url.take("key")?,
            of_lock => of_lock,
        };
        let yield_after = url.take_parsed("yield_after", "a number of hand-overs")?;
        let format = with(format, "key", key, Self::key)?;
        let format = with(format, "poll", url.take_duration("poll")?, Self::poll)?;
        let format = with(format, "yield_after", yield_after, Self::yield_after)?;
        let format = with(format, "yield_every", url.take_duration("yield_every")?, Self::yield_every)?;
        with(format, "yield_for", url.take_duration("yield_for")?, Self::yield_for)
    }

    pub(super) fn checked(&self) -> Result<()> {
        let wrong = |rule: String| Err(Error::invalid_option(rule));
        let Self { key, poll, yield_after, yield_every, yield_for, .. } = self;
        if key.matches(NAME).count() != 1 || key.chars().any(char::is_control) {
            return wrong(format!(
                "key={key:?} is invalid: expected {NAME} exactly once, and no control characters"
            ));
        }
        for (option, span) in [("poll", poll), ("yield_every", yield_every)] {
            if millis(*span) == 0 || *span > LONGEST {
                return wrong(format!("{option}={span:?} is invalid: expected 1 ms to {LONGEST:?}"));
            }
        }
        if *yield_for > LONGEST {
            return wrong(format!("yield_for={yield_for:?} is invalid: expected at most {LONGEST:?}"));
        }
        if *yield_after == 0 {
            return wrong("yield_after=0 is invalid: expected at least 1 hand-over".to_owned());
        }
        Ok(())
    }

    /// The texts before and behind the name in a lock's key.
    pub(crate) fn around(&self) -> (&str, &str) {
        self.key.split_once(NAME).unwrap_or((&self.key, ""))
    }

    /// The last argument of the program, with a `poll` between three and five quarters of it. `jitter` returns between half of
    /// a span and all of it.
    pub(crate) fn told(&self, jitter: impl FnOnce(Duration) -> Duration) -> String {
        let poll = (self.poll / 4 + jitter(self.poll)).max(Duration::from_millis(1));
        let Self { yield_after, yield_every, yield_for, .. } = self;
        let (poll, every) = (millis(poll), millis(*yield_every));
        format!("{} {poll} {yield_after} {every} {}", self.word(), millis(*yield_for))
    }

    /// The channel on which foreign clients publish releases, if they do.
    pub(crate) fn channel(&self, lock: &str) -> Option<String> {
        match self.kind {
            Kind::String => None,
            Kind::Redisson if lock.contains('{') => Some(format!("redisson_lock__channel:{lock}")),
            Kind::Redisson => Some(format!("redisson_lock__channel:{{{lock}}}")),
        }
    }

    /// Its word in the option.
    pub(crate) fn word(&self) -> &'static str {
        match self.kind {
            Kind::String => "string",
            Kind::Redisson => "redisson",
        }
    }
}

/// An option of a format, if it is given: there must be a format then.
fn with<T>(
    format: Option<Format>,
    option: &str,
    value: Option<T>,
    set: impl FnOnce(Format, T) -> Format,
) -> Result<Option<Format>> {
    match (format, value) {
        (format, None) => Ok(format),
        (Some(format), Some(value)) => Ok(Some(set(format, value))),
        (None, Some(_)) => Err(Error::invalid_option(format!(
            "option {option:?} needs a format that is shared with other libraries: add format=string or \
             format=redisson"
        ))),
    }
}

/// Only time counts.
const NOT_COUNTED: u32 = u32::MAX;

/// Where a template has the name.
const NAME: &str = "{name}";

/// More would be a mistake.
const LONGEST: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RedisConfig;
    use leasehold_core::ErrorKind;

    fn config(url: &str) -> Result<RedisConfig> {
        RedisConfig::from_url(&mut url.parse()?)
    }

    /// A URL says all that the code can.
    #[test]
    fn a_url_says_a_format() {
        let host = || RedisConfig::new("h", 6379);
        assert_eq!(config("redis://h?format=string").unwrap(), host().format(Format::string()));
        let url =
            "redis://h?format=string&key=redlock:{name}&poll=50ms&yield_after=3&yield_every=2s&yield_for=0";
        let millis = Duration::from_millis;
        let format = Format::string().key("redlock:{name}").poll(millis(50)).yield_after(3);
        let format = format.yield_every(millis(2_000)).yield_for(Duration::ZERO);
        assert_eq!(config(url).unwrap(), host().format(format));
        let shared = Format::redisson().key("app:{name}");
        assert_eq!(
            config("redis://h?format=redisson&lock_key=app:%7Bname%7D").unwrap(),
            host().format(shared)
        );
        assert_eq!(
            config("redis+unix:///s?format=string&key=:1:{name}").unwrap(),
            RedisConfig::unix("/s").format(Format::string().key(":1:{name}"))
        );
        if cfg!(feature = "tls") {
            let encrypted = config("rediss://h?format=string&lock_key=a:{name}").unwrap();
            assert_eq!(encrypted.format.unwrap().around(), ("a:", ""));
        }
    }

    /// What cannot work is refused before anything is sent, and the value and the rule are named.
    #[test]
    fn a_format_that_cannot_work_is_refused() {
        for (options, named) in [
            ("format=hash", "\"hash\""),
            ("format=string&key=lock", "\"lock\""),
            ("format=string&key=", "{name}"),
            ("format=string&key={name}{name}", "{name}"),
            ("format=redisson&key=a%0A{name}", "control"),
            ("format=string&poll=0", "poll"),
            ("format=string&poll=11s", "10s"),
            ("format=string&yield_every=0", "yield_every"),
            ("format=string&yield_for=11s", "yield_for"),
            ("format=string&yield_after=0", "yield_after"),
            ("format=string&yield_after=-1", "yield_after"),
            ("key={name}", "format=string"),
            ("poll=1s", "format=string"),
            ("yield_for=1s", "format=string"),
        ] {
            let error = config(&format!("redis://h?{options}")).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidOption, "{options}: {error}");
            assert!(error.to_string().contains(named), "{options}: {error}");
        }
    }

    /// The poll that is passed to scripts is within a quarter of the option, and at least a millisecond.
    #[test]
    fn polls_are_a_quarter_apart() {
        let format = Format::string();
        assert_eq!(format.told(|span| span / 2), "string 75 4294967295 1000 150");
        assert_eq!(format.told(|span| span), "string 125 4294967295 1000 150");
        assert_eq!(
            format.poll(Duration::from_millis(1)).told(|span| span / 2),
            "string 1 4294967295 1000 150"
        );
    }

    /// The channel of Redisson has braces of its own only if the key has none.
    #[test]
    fn channels_are_as_redisson_names_them() {
        let format = Format::redisson();
        assert_eq!(format.channel("a b").unwrap(), "redisson_lock__channel:{a b}");
        assert_eq!(format.channel("{a} b").unwrap(), "redisson_lock__channel:{a} b");
        assert_eq!(Format::string().channel("a"), None);
    }
}
