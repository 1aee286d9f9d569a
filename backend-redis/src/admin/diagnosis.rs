//! Findings about a server, as far as the user has the rights.
//!
//! A missing right is a finding, not an error: the minimal rights have no `INFO` and no `CONFIG GET`.

use std::time::{Duration, SystemTime};

use leasehold_core::Result;
use leasehold_core::backend::{Finding, Severity};
use leasehold_core::clock::Moment;
use redis::{Cmd, Value};

use crate::config::PauseOption;
use crate::connection::{Connected, LinkEvent, Namespace};
use crate::scripts::{micros, number, parts, text};
use crate::session::Session;

impl Session {
    pub(crate) async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.life.open_or_refuse()?;
        let give_up_at = self.give_up_at();
        let connected = self.fleet.home().connected(give_up_at).await?;
        let mut findings = match self.fleet.cluster() {
            None => self.diagnose_server(&connected, give_up_at).await?,
            Some(cluster) => self.diagnose_cluster(cluster, give_up_at).await,
        };
        // The session is open, so no refusal is news.
        let namespace = Namespace::new(self.keys.clone(), &self.inboxes, true);
        let other_key = namespace.read_other_key(&self.fleet, give_up_at).await.ok().flatten();
        findings.extend(other_key.map(|said| about("message key", warning(said))));
        findings.extend(self.diagnose_format(&connected, give_up_at).await?);
        // Locks need none of it.
        let ledger = self.members().await.map_or_else(
            |error| warning(format!("cannot store a move record: {error}")),
            |_| ok("a move record can be stored"),
        );
        findings.push(about("ledger", ledger));
        Ok(findings)
    }

    /// The findings about one server that has locks.
    pub(super) async fn diagnose_server(
        &self,
        connected: &Connected,
        give_up_at: Moment,
    ) -> Result<Vec<Finding>> {
        let answers = connected.ask_all(&questions(), give_up_at).await?;
        let now = self.env.wall_time();
        let mut findings =
            findings(&answers, now, self.fleet.home().is_deaf(), self.fleet.copies().replicas, self.pause);
        if let Some(failover) = &self.failover {
            let promise = self.diagnose_failover(failover, answers.first(), connected, give_up_at).await?;
            findings.retain(|finding| finding.subject != "replication");
            findings.push(about("fail-over", promise));
            findings.extend(self.whereabouts.diagnose(give_up_at).await);
        }
        if self.fleet.copies().disk {
            let answers = connected.ask_all(&["appendonly", "appendfsync"].map(config), give_up_at).await?;
            findings.retain(|finding| finding.subject != "persistence");
            findings.push(about("disk", of_disk(&answers)));
        }
        findings.push(about("timeout", of_timeout(answers.get(3), self.env.timing().ttl / 3)));
        let of_pause = |pause| about("restart", of_pause(pause, connected.paused_until(), answers.get(2)));
        findings.extend(self.pause.map(of_pause));
        // It shows no name, and is run as every script is.
        let inspect = self.told(self.program.operation("inspect", &[]));
        let ran = connected.run(&inspect, give_up_at).await;
        let ran = ran.map_or_else(|error| broken(error.to_string()), |_| ok("the server runs our scripts"));
        findings.push(about("scripts", ran));
        let users = connected.ask(redis::cmd("ACL").arg("LIST"), give_up_at).await.ok();
        findings.push(about("message key", of_users(self.inboxes.key().is_some(), users.as_ref())));
        Ok(findings)
    }
}

/// The requests, sent in one piece.
pub(crate) fn questions() -> Vec<Cmd> {
    vec![redis::cmd("INFO"), config("maxmemory-policy"), redis::cmd("TIME"), config("timeout")]
}

pub(crate) fn config(option: &str) -> Cmd {
    let mut question = redis::cmd("CONFIG");
    question.arg("GET").arg(option);
    question
}

/// The findings of the answers, at `now` of our clock; `deaf` if the user may not subscribe to the inbox, `replicas` as many as
/// confirm each grant, and the `pause` after a restart.
pub(crate) fn findings(
    answers: &[Value],
    now: SystemTime,
    deaf: bool,
    replicas: u32,
    pause: Option<PauseOption>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |subject, said| findings.push(about(subject, said));
    match answers.first().and_then(text).map(Info) {
        None => {
            let unknown = "cannot check version, persistence and replication: the user lacks the right for \
                           INFO";
            say("info", warning(unknown));
        }
        Some(info) => {
            say("version", of_version(&info));
            say("persistence", of_persistence(&info, pause));
            say("replication", of_replication(&info, replicas));
        }
    }
    say("eviction", of_policy(answers.get(1)));
    say("clock", of_clock(answers.get(2), now));
    let heard = ok("waiters are notified of their grant at once");
    say("messages", if deaf { warning(LinkEvent::UNHEARD) } else { heard });
    findings
}

pub(crate) type Said = (Severity, String);

/// A finding about `subject`.
pub(crate) fn about(subject: &'static str, (severity, detail): Said) -> Finding {
    Finding::new(severity, subject, detail)
}

pub(crate) fn ok(detail: impl Into<String>) -> Said {
    (Severity::Ok, detail.into())
}

pub(crate) fn warning(detail: impl Into<String>) -> Said {
    (Severity::Warning, detail.into())
}

pub(crate) fn broken(detail: impl Into<String>) -> Said {
    (Severity::Broken, detail.into())
}

/// The server's own report: lines of `field:value`.
pub(super) struct Info<'a>(pub(super) &'a str);

impl<'a> Info<'a> {
    /// How many are connected to a primary.
    pub(super) fn replicas(&self) -> Option<u32> {
        self.get("connected_slaves")?.parse().ok()
    }

    fn get(&self, field: &str) -> Option<&'a str> {
        self.0.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::trim)
    }
}

/// Valkey calls itself a Redis of the version that it is compatible with, too.
fn of_version(info: &Info<'_>) -> Said {
    let version = info.get("redis_version").unwrap_or("of unknown version");
    if let Some(valkey) = info.get("valkey_version") {
        return ok(format!("the server is Valkey {valkey}, compatible with Redis {version}"));
    }
    match version.split('.').next().and_then(|major| major.parse::<u32>().ok()) {
        Some(..7) => broken(format!("the server is Redis {version}: 7.0 or later is needed")),
        _ => ok(format!("the server is Redis {version}")),
    }
}

fn of_persistence(info: &Info<'_>, pause: Option<PauseOption>) -> Said {
    match (info.get("aof_enabled"), pause) {
        (Some("1"), _) => ok(
            "the append-only file is on: with appendfsync everysec a power failure may lose the locks of the \
             last second",
        ),
        (_, Some(PauseOption { name, .. })) => ok(format!(
            "the append-only file is off: a crash loses locks before their leases end, but {name} delays new \
             grants until those leases have ended"
        )),
        _ => warning(
            "the append-only file is off: a crash loses locks before their leases end, so two clients may \
             hold one lock; set appendonly yes or pause_after_restart, or protect the resource with fencing \
             tokens",
        ),
    }
}

/// Whether grants come to the disk that they wait for, by the settings of the append-only file.
fn of_disk(answers: &[Value]) -> Said {
    let told = |at: usize| answers.get(at).and_then(setting);
    match (told(0), told(1)) {
        (Some("yes"), Some("always" | "everysec")) => {
            ok("each grant is on the disk of the server before it counts")
        }
        (Some(_), Some(_)) => broken(
            "no lock can be granted: wait_aof=1 needs appendonly yes, and appendfsync everysec or always",
        ),
        _ => warning(
            "cannot check the append-only file: the user lacks the right for CONFIG GET; make sure that \
             appendonly is yes, and appendfsync everysec or always",
        ),
    }
}

/// Until when nothing is granted, by the server's clock, whose `time` it is.
fn of_pause(PauseOption { span, .. }: PauseOption, until: Option<u64>, time: Option<&Value>) -> Said {
    let now = time.and_then(|time| micros(time).ok());
    let left = until.zip(now).map_or(0, |(until, now)| until.saturating_sub(now).div_ceil(1000));
    let over = if left == 0 { "the pause has ended".to_owned() } else { format!("{left} ms are left") };
    ok(format!("free locks are not granted for {span:?} after a server restart or promotion: {over}"))
}

/// Of the users that `ACL LIST` shows, the ones that may publish to every channel and may not write every key.
pub(crate) fn of_users(signed: bool, users: Option<&Value>) -> Said {
    if signed {
        return ok("messages between managers are signed; messages without a valid signature are ignored");
    }
    let Some(users) = users else {
        return ok(
            "cannot check the users: this user lacks the right for ACL LIST. Without `message_key`, a user \
             that may read keys and publish to the channels of the prefix can announce a grant that was not \
             made",
        );
    };
    let forger = |user: &Value| {
        let mut words = text(user)?.split_whitespace().skip(1);
        let (name, has) = (words.next()?, words.collect::<Vec<_>>());
        // A right that a later word takes away may be one to write.
        let all = has.iter().rposition(|word| *word == "+@all");
        let may_all = all.is_some_and(|at| !has[at..].iter().any(|word| word.starts_with('-')));
        let has = |word| has.contains(&word);
        (has("on") && has("&*") && !(has("~*") && may_all)).then(|| name.to_owned())
    };
    let forgers: Vec<_> = parts(users).iter().filter_map(forger).collect();
    if forgers.is_empty() {
        return ok("every user that may publish to all channels (&*) may also write all keys");
    }
    warning(format!(
        "messages are not signed, and &* lets these users publish to the channels of the prefix: {}. With \
         the right to read keys they can announce a grant that was not made: set `message_key`, or restrict \
         them with resetchannels",
        forgers.join(", ")
    ))
}

fn of_replication(info: &Info<'_>, confirmed_by: u32) -> Said {
    if info.get("role") == Some("slave") {
        return broken("the server is a replica and grants no locks: connect to the primary");
    }
    match (info.replicas().unwrap_or(0), confirmed_by) {
        (0, 0) => ok("no replica: no fail-over can lose a lock"),
        (replicas, 0) => warning(format!(
            "{replicas} replicas and wait_replicas=0: a fail-over may lose granted locks, and only fencing \
             tokens protect the resource then"
        )),
        (replicas, wanted) if wanted > replicas => broken(format!(
            "wait_replicas={wanted}, but {replicas} replicas are connected: no lock can be granted"
        )),
        (replicas, wanted) => ok(format!(
            "{wanted} of {replicas} replicas confirm each grant; a fail-over may still lose a lock"
        )),
    }
}

fn of_policy(answer: Option<&Value>) -> Said {
    match answer.and_then(setting) {
        Some("noeviction") => ok("maxmemory-policy is noeviction"),
        Some(policy) => {
            broken(format!("maxmemory-policy is {policy}, which may evict held locks: set noeviction"))
        }
        None => warning(
            "cannot check maxmemory-policy: the user lacks the right for CONFIG GET; make sure that it is \
             noeviction",
        ),
    }
}

/// Whether the server leaves a socket open that is idle for `renewal`, as one with a held lock is between renewals.
pub(crate) fn of_timeout(answer: Option<&Value>, renewal: Duration) -> Said {
    let timeout = answer.and_then(setting).and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    match timeout {
        Some(timeout) if !timeout.is_zero() && timeout <= renewal => warning(format!(
            "the server closes sockets that are idle for {timeout:?} (timeout), and renewals are {renewal:?} \
             apart, so the client reconnects before each renewal: set timeout to 0 or to more than {renewal:?}"
        )),
        Some(_) => ok("the server does not close the client's sockets between renewals"),
        None => ok("cannot check timeout: the user lacks the right for CONFIG GET"),
    }
}

/// The first value in the reply of `CONFIG GET`.
pub(crate) fn setting(answer: &Value) -> Option<&str> {
    let Value::Map(pairs) = answer else { return None };
    text(&pairs.first()?.1)
}

fn of_clock(answer: Option<&Value>, now: SystemTime) -> Said {
    let Some(time) = answer.and_then(|answer| number(parts(answer).first()?)) else {
        return broken("the user lacks the right for TIME, which the scripts need");
    };
    let ours = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let apart = Duration::from_secs(time.abs_diff(ours.as_secs()));
    if apart <= CLOCKS_APART {
        return ok("the clocks of the server and of this host agree");
    }
    warning(format!(
        "the clocks of the server and of this host differ by {apart:?}. Leases do not compare them, but \
         leases end early if the server's clock is set forward"
    ))
}

/// How far two clocks may be apart without a word.
const CLOCKS_APART: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn severity(findings: &[Finding], subject: &str) -> Option<Severity> {
        findings.iter().find(|finding| finding.subject == subject).map(|finding| finding.severity)
    }

    fn info(lines: &str) -> Value {
        Value::VerbatimString { format: redis::VerbatimFormat::Text, text: lines.replace('\n', "\r\n") }
    }

    fn policy(policy: &str) -> Value {
        option("maxmemory-policy", policy)
    }

    fn option(name: &str, value: &str) -> Value {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        Value::Map(vec![(bulk(name), bulk(value))])
    }

    /// A server that closes sockets between renewals makes the client reconnect all the time.
    #[test]
    fn timeout_below_renewals_is_a_warning() {
        let of = |seconds| of_timeout(Some(&option("timeout", seconds)), Duration::from_secs(5)).0;
        assert_eq!(["0", "5", "6"].map(of), [Severity::Ok, Severity::Warning, Severity::Ok]);
    }

    /// A disk that is never written to confirms nothing.
    #[test]
    fn disk_that_confirms_nothing_is_broken() {
        let of = |on, sync| of_disk(&[option("appendonly", on), option("appendfsync", sync)]).0;
        assert_eq!([of("yes", "everysec"), of("yes", "always")], [Severity::Ok; 2]);
        assert_eq!([of("no", "everysec"), of("yes", "no")], [Severity::Broken; 2]);
        assert_eq!(of_disk(&[Value::Nil, Value::Nil]).0, Severity::Warning);
    }

    fn time(seconds: i64) -> Value {
        Value::Array(vec![Value::Int(seconds), Value::Int(0)])
    }

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    /// A server as it should be.
    #[test]
    fn a_good_server_is_ok() {
        let answers = [
            info("redis_version:7.0.15\naof_enabled:1\nrole:master\nconnected_slaves:0"),
            policy("noeviction"),
            time(1),
        ];
        let findings = findings(&answers, NOW, false, 0, None);
        assert!(findings.iter().all(|finding| finding.severity == Severity::Ok), "{findings:?}");
    }

    /// Settings that break a guarantee, or may, are named.
    #[test]
    fn danger_to_locks_is_reported() {
        let answers =
            [info("aof_enabled:0\nrole:master\nconnected_slaves:1"), policy("allkeys-lru"), time(60)];
        let found = findings(&answers, NOW, true, 0, None);
        assert_eq!(severity(&found, "eviction"), Some(Severity::Broken));
        for subject in ["persistence", "replication", "clock", "messages"] {
            assert_eq!(severity(&found, subject), Some(Severity::Warning), "{subject}");
        }
        assert_eq!(severity(&findings(&answers, NOW, true, 2, None), "replication"), Some(Severity::Broken));
        let replica = [info("role:slave"), policy("noeviction"), time(0)];
        let found = findings(&replica, NOW, false, 0, None);
        assert_eq!(severity(&found, "replication"), Some(Severity::Broken));
    }

    /// The product is named with its own version, and one that is too old as that.
    #[test]
    fn the_product_is_named() {
        for (lines, severity, named) in [
            ("redis_version:7.0.15", Severity::Ok, "Redis 7.0.15"),
            ("redis_version:6.2.1", Severity::Broken, "Redis 6.2.1"),
            ("redis_version:7.2.4\nserver_name:valkey\nvalkey_version:9.1.2", Severity::Ok, "Valkey 9.1.2"),
        ] {
            let lines = lines.replace('\n', "\r\n");
            let said = of_version(&Info(&lines));
            assert!(said.0 == severity && said.1.contains(named), "{said:?}");
        }
    }

    /// A pause takes the danger from a restart without data, and how much is left of it is said.
    #[test]
    fn a_pause_is_said() {
        let config = crate::RedisConfig::new("h", 1).pause_after_restart(Duration::from_secs(20));
        let (pause, time) = (config.pause.unwrap(), time(7));
        assert_eq!(of_persistence(&Info("aof_enabled:0"), Some(pause)).0, Severity::Ok);
        assert!(of_pause(pause, Some(7_000_000), Some(&time)).1.ends_with("the pause has ended"));
        assert!(of_pause(pause, Some(7_001_500), Some(&time)).1.ends_with("2 ms are left"));
    }

    /// A user that may publish to every channel is named, unless messages are signed or it may write everything.
    #[test]
    fn users_that_may_forge_messages_are_named() {
        let user = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let all = "user default on nopass sanitize-payload ~* &* +@all";
        let mut users = vec![user(all), user("user app on #5e ~app:* resetchannels &app:* -@all +get")];
        users.push(user("user old off #5e %R~* &* -@all +publish"));
        let said = |signed, users: &[Value]| of_users(signed, Some(&Value::Array(users.to_vec())));
        assert_eq!(said(false, &users).0, Severity::Ok);
        users.push(user("user dash on #5e %R~* &* -@all +publish +zrange"));
        let (severity, text) = said(false, &users);
        assert!(severity == Severity::Warning && text.contains("prefix: dash."), "{text}");
        users.push(user("user ro on #5e ~* &* +@all -@write"));
        let (_, text) = said(false, &users);
        assert!(text.contains("prefix: dash, ro."), "{text}");
        assert_eq!(said(true, &users).0, Severity::Ok);
        assert_eq!(of_users(false, None).0, Severity::Ok);
    }

    /// Without rights there are findings that say so.
    #[test]
    fn missing_rights_are_findings() {
        let found = findings(&[Value::Nil, Value::Nil, time(0)], NOW, false, 0, None);
        assert_eq!(severity(&found, "info"), Some(Severity::Warning));
        assert_eq!(severity(&found, "eviction"), Some(Severity::Warning));
    }
}
