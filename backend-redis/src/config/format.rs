//! The format of a lock under its key, if other libraries take it too.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{Error, Result, StoreUrl};

use crate::keys::NAME;
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
    /// The options that are texts, by their names.
    texts: BTreeMap<&'static str, String>,
    poll: Duration,
    yield_after: u32,
    yield_every: Duration,
    yield_for: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    String,
    Redisson,
    ShedLock,
    Spring,
    PythonRedisLock,
}

/// The word, the options and the defaults of a kind.
struct Entry {
    /// Its word in the option.
    word: &'static str,
    /// Its options that are texts.
    texts: &'static [&'static str],
    /// The defaults of `poll`, `yield_every` and `yield_for`, in milliseconds.
    times: [u64; 3],
}

impl Kind {
    const ALL: [Self; 5] =
        [Self::String, Self::Redisson, Self::ShedLock, Self::Spring, Self::PythonRedisLock];

    fn entry(self) -> Entry {
        // The usual pause between polls is 100 ms.
        let polling = [100, 1_000, 150];
        match self {
            Self::String => Entry { word: "string", texts: &["key"], times: polling },
            // Some clients send no message. Ours wake their waiters, and we yield only if they wait: so turns are short.
            Self::Redisson => Entry { word: "redisson", texts: &["key"], times: [1_000, 150, 100] },
            Self::ShedLock => Entry { word: "shedlock", texts: &["env", "job_prefix"], times: polling },
            // Its clients wake each other, so they keep a lock among themselves; others poll.
            Self::Spring => Entry { word: "spring", texts: &["registry"], times: [100, 300, 150] },
            Self::PythonRedisLock => Entry { word: "python-redis-lock", texts: &[], times: polling },
        }
    }
}

impl Format {
    /// A string, acquired by `SET key value NX PX ttl` and released by a client that knows its value: redis-py, redsync,
    /// redislock, node-redlock, rslock and others, on one server. `format=string`.
    pub fn string() -> Self {
        Self::new(Kind::String)
    }

    /// A hash, as Redisson's `RLock` keeps it. Redisson and leasehold wake each other's waiters by messages. `format=redisson`.
    pub fn redisson() -> Self {
        Self::new(Kind::Redisson)
    }

    /// A string, as ShedLock keeps it, under `PREFIX:ENV:NAME`. ShedLock needs `safeUpdate(true)`: by default it deletes
    /// locks of other clients. `format=shedlock`.
    pub fn shedlock() -> Self {
        Self::new(Kind::ShedLock)
    }

    /// A string, as the `RedisLockRegistry` of Spring Integration with that registry key keeps it, under `REGISTRY:NAME`.
    /// Spring and leasehold wake each other's waiters by messages. `format=spring`.
    pub fn spring(registry: impl Into<String>) -> Self {
        Self::new(Kind::Spring).with("registry", registry)
    }

    /// A string, as python-redis-lock keeps it, under `lock:NAME`. Our releases wake its waiters. `format=python-redis-lock`.
    pub fn python_redis_lock() -> Self {
        Self::new(Kind::PythonRedisLock)
    }

    fn new(kind: Kind) -> Self {
        let [poll, yield_every, yield_for] = kind.entry().times.map(Duration::from_millis);
        Self { kind, texts: BTreeMap::new(), poll, yield_after: NOT_COUNTED, yield_every, yield_for }
    }

    fn with(mut self, option: &'static str, text: impl Into<String>) -> Self {
        self.texts.insert(option, text.into());
        self
    }

    /// The key of a lock, with its name where `{name}` stands, once. Default `{name}`. Of [`string`](Self::string) and
    /// [`redisson`](Self::redisson).
    pub fn key(self, template: impl Into<String>) -> Self {
        self.with("key", template)
    }

    /// The environment of [`shedlock`](Self::shedlock). Default `default`.
    pub fn env(self, environment: impl Into<String>) -> Self {
        self.with("env", environment)
    }

    /// The key prefix of [`shedlock`](Self::shedlock). Default `job-lock`.
    pub fn job_prefix(self, prefix: impl Into<String>) -> Self {
        self.with("job_prefix", prefix)
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

    /// For how long the lock passes among our waiters before foreign clients have a turn. Default 1 s, with Spring 300 ms, with
    /// Redisson 150 ms: its clients show that they wait, and without one there is no turn.
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
            Some(word) => {
                let kind = Kind::ALL.into_iter().find(|kind| kind.entry().word == word);
                let unknown = || {
                    Error::invalid_option(format!("option format={word:?} is invalid: expected {}", words()))
                };
                Some(Self::new(kind.ok_or_else(unknown)?))
            }
        };
        // `key` is a file of TLS where there is TLS.
        let key = match url.take("lock_key")? {
            None if !url.scheme().starts_with("rediss") => url.take("key")?,
            of_lock => of_lock,
        };
        let mut format = with(format, "key", key, Self::key)?;
        for option in ["env", "job_prefix", "registry"] {
            format = with(format, option, url.take(option)?, |format, text| format.with(option, text))?;
        }
        let yield_after = url.take_parsed("yield_after", "a number of hand-overs")?;
        let format = with(format, "poll", url.take_duration("poll")?, Self::poll)?;
        let format = with(format, "yield_after", yield_after, Self::yield_after)?;
        let format = with(format, "yield_every", url.take_duration("yield_every")?, Self::yield_every)?;
        with(format, "yield_for", url.take_duration("yield_for")?, Self::yield_for)
    }

    pub(super) fn checked(&self) -> Result<()> {
        let wrong = |rule: String| Err(Error::invalid_option(rule));
        let Self { poll, yield_after, yield_every, yield_for, .. } = self;
        let Entry { word, texts, .. } = self.kind.entry();
        for (option, text) in &self.texts {
            let is_unfit = text.chars().any(char::is_control)
                || text.matches(NAME).count() != usize::from(*option == "key");
            if !texts.contains(option) {
                return wrong(format!("cannot use {option}={text:?} with format={word}"));
            } else if is_unfit && *option == "key" {
                return wrong(format!(
                    "key={text:?} is invalid: expected {NAME} exactly once, and no control characters"
                ));
            } else if is_unfit {
                return wrong(format!(
                    "{option}={text:?} is invalid: expected a text without {NAME} and control characters"
                ));
            }
        }
        if self.kind == Kind::Spring && self.text("registry", "").is_empty() {
            return wrong(
                "format=spring needs `registry`: the registry key of the RedisLockRegistry".to_owned(),
            );
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

    fn text<'a>(&'a self, option: &str, default: &'a str) -> &'a str {
        self.texts.get(option).map_or(default, String::as_str)
    }

    /// The key of a lock, with `{name}` in it.
    pub(crate) fn template(&self) -> String {
        match self.kind {
            Kind::String | Kind::Redisson => self.text("key", NAME).to_owned(),
            Kind::ShedLock => {
                let (prefix, env) = (self.text("job_prefix", "job-lock"), self.text("env", "default"));
                [prefix, ":", env, ":", NAME].concat()
            }
            Kind::Spring => [self.text("registry", ""), ":", NAME].concat(),
            Kind::PythonRedisLock => ["lock:", NAME].concat(),
        }
    }

    /// The key of the list on which foreign clients wait, without the name at its end; `None` if they wait on no list.
    pub(crate) fn list(&self) -> Option<&'static str> {
        (self.kind == Kind::PythonRedisLock).then_some("lock-signal:")
    }

    /// The last argument of the program, with a `poll` between three and five quarters of it. `jitter` returns between half of
    /// a span and all of it.
    pub(crate) fn told(&self, jitter: impl FnOnce(Duration) -> Duration) -> String {
        let poll = (self.poll / 4 + jitter(self.poll)).max(Duration::from_millis(1));
        let Self { yield_after, yield_every, yield_for, .. } = self;
        let (poll, every) = (millis(poll), millis(*yield_every));
        let told = format!("{} {poll} {yield_after} {every} {}", self.word(), millis(*yield_for));
        if self.kind == Kind::Spring { told + " " + &self.channels().unwrap_or_default() } else { told }
    }

    /// The prefix of the channels on which foreign clients publish releases, if they do.
    pub(crate) fn channels(&self) -> Option<String> {
        match self.kind {
            Kind::Redisson => Some("redisson_lock__channel:".to_owned()),
            Kind::Spring => Some(self.text("registry", "").to_owned() + "-channel:"),
            Kind::String | Kind::ShedLock | Kind::PythonRedisLock => None,
        }
    }

    /// The channel of the lock with that key.
    pub(crate) fn channel(&self, lock: &str) -> Option<String> {
        let adds_braces = self.kind == Kind::Redisson && !lock.contains('{');
        let lock = if adds_braces { format!("{{{lock}}}") } else { lock.to_owned() };
        self.channels().map(|channels| channels + &lock)
    }

    /// Whether it is known how many foreign clients listen to the channel of a lock.
    pub(crate) fn counts_listeners(&self) -> bool {
        self.kind == Kind::Redisson
    }

    /// Its word in the option.
    pub(crate) fn word(&self) -> &'static str {
        self.kind.entry().word
    }
}

/// The words of all formats.
fn words() -> String {
    let [words @ .., last] = Kind::ALL.map(|kind| kind.entry().word);
    format!("{} or {last}", words.join(", "))
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
            "option {option:?} needs a format that is shared with other libraries: add format={}",
            words()
        ))),
    }
}

/// Only time counts.
const NOT_COUNTED: u32 = u32::MAX;

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
        for (options, format, template) in [
            ("shedlock", Format::shedlock(), "job-lock:default:{name}"),
            (
                "shedlock&env=prod&job_prefix=jobs",
                Format::shedlock().env("prod").job_prefix("jobs"),
                "jobs:prod:{name}",
            ),
            ("spring&registry=app", Format::spring("app"), "app:{name}"),
            ("python-redis-lock", Format::python_redis_lock(), "lock:{name}"),
        ] {
            assert_eq!(format.template(), template);
            assert_eq!(config(&format!("redis://h?format={options}")).unwrap(), host().format(format));
        }
        if cfg!(feature = "tls") {
            let encrypted = config("rediss://h?format=string&lock_key=a:{name}").unwrap();
            assert_eq!(encrypted.format.unwrap().template(), "a:{name}");
        }
    }

    /// A combination that cannot work is refused before anything is sent, and the value and the rule are named.
    #[test]
    fn a_format_that_cannot_work_is_refused() {
        for (options, named) in [
            (
                "format=hash",
                "\"hash\" is invalid: expected string, redisson, shedlock, spring or python-redis-lock",
            ),
            ("format=string&key=lock", "\"lock\""),
            ("format=string&key=", "{name}"),
            ("format=string&key={name}{name}", "{name}"),
            ("format=redisson&key=a%0A{name}", "control"),
            ("format=spring&key={name}", "cannot use key=\"{name}\" with format=spring"),
            ("format=spring", "registry"),
            ("format=spring&registry=", "registry"),
            ("format=spring&registry={name}", "registry=\"{name}\""),
            ("format=shedlock&registry=a", "registry=\"a\""),
            ("format=shedlock&env=a%0A", "env="),
            ("format=python-redis-lock&job_prefix=a", "job_prefix=\"a\""),
            ("format=string&poll=0", "poll"),
            ("format=string&poll=11s", "10s"),
            ("format=string&yield_every=0", "yield_every"),
            ("format=string&yield_for=11s", "yield_for"),
            ("format=string&yield_after=0", "yield_after"),
            ("format=string&yield_after=-1", "yield_after"),
            ("key={name}", "format=string"),
            ("poll=1s", "format=string"),
            ("yield_for=1s", "format=string"),
            ("env=a", "format=string"),
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

    /// The channel of Redisson has braces of its own only if the key has none, and scripts are told that of Spring.
    #[test]
    fn channels_are_as_the_libraries_name_them() {
        let format = Format::redisson();
        assert_eq!(format.channel("a b").unwrap(), "redisson_lock__channel:{a b}");
        assert_eq!(format.channel("{a} b").unwrap(), "redisson_lock__channel:{a} b");
        assert_eq!(Format::string().channel("a"), None);
        let format = Format::spring("my locks");
        assert_eq!(format.channel("my locks:a").unwrap(), "my locks-channel:my locks:a");
        assert!(format.told(|span| span).ends_with(" 150 my locks-channel:"));
    }
}
