//! One server of a quorum: the connection to it, its reign, and its knowledge of the namespace.
//!
//! # Invariants
//! - **redis.quorum.member-1** A connection is used once the run of its server is known, and no other connection leads to the
//!   same: a server counts once, under whichever name.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_core::backend::{Backoff, Reopen};
use leasehold_core::clock::Moment;
use leasehold_core::{Env, Error, ErrorKind, Result};
use parking_lot::Mutex;
use redis::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Session;
use crate::config::RedisConfig;
use crate::connection::{Connected, Hears, Inbox, Link, LinkEvent};
use crate::error;
use crate::quorum::config::twice;
use crate::quorum::protocol::{Met, Standing};
use crate::quorum::scripts::{self, Looker};
use crate::scripts::{Call, text};

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) address: String,
    pub(crate) link: Arc<Link>,
    /// The connection, once its server is known.
    admitted: Reopen<Admitted>,
    /// The outcome of the last attempt to connect for the first time.
    begun: watch::Sender<Option<Result<()>>>,
    /// That its channel cannot be received was reported.
    pub(super) reported_deaf: AtomicBool,
    /// The episode whose pause was reported last.
    pub(super) reported_pause: Mutex<String>,
    pub(super) pauses_until: Mutex<Option<Moment>>,
}

/// A connection that leads to a known run.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    pub(crate) connected: Connected,
    /// Read each time, as a promotion may break no connection; or why the connection is not used.
    run: Arc<Mutex<Result<Arc<str>>>>,
}

impl Admitted {
    pub(crate) fn run(&self) -> Result<Arc<str>> {
        self.run.lock().clone()
    }
}

/// A server's process.
struct Process {
    id: String,
    /// Its reign: another one after each promotion, too.
    run: Arc<str>,
    up_for: Duration,
    /// It was a replica, and may have only its primary's data.
    has_followed: bool,
}

/// The process ids of the servers.
pub(crate) type Runs = Arc<Mutex<Vec<Option<Arc<str>>>>>;

/// Passes the events of a server's connection to the session.
#[derive(Debug)]
pub(crate) struct PushReceiver {
    pub(crate) session: Arc<OnceLock<Weak<Session>>>,
    pub(crate) server: usize,
}

impl Hears for PushReceiver {
    fn hear(&self, event: LinkEvent) {
        if let Some(session) = self.session.get().and_then(Weak::upgrade) {
            session.hear(self.server, event);
        }
    }
}

impl Member {
    /// Connects in a task, until `closed`.
    pub(crate) fn start(
        env: &Env,
        config: &RedisConfig,
        (channel, receiver): (String, PushReceiver),
        closed: &CancellationToken,
    ) -> Result<Self> {
        let receiver: Arc<dyn Hears> = Arc::new(receiver);
        let inbox = Inbox { channel, hears: Arc::clone(&receiver), keys: None };
        let whereabouts = config.whereabouts(env.timing().op_timeout)?;
        let link = Arc::new(Link::new(env.clone(), whereabouts, Some(inbox), None));
        let begun = watch::Sender::new(None);
        let (linking, told, closing, env_of) =
            (Arc::clone(&link), begun.clone(), closed.clone(), env.clone());
        env.spawn(async move {
            let connecting = async {
                let mut pauses = Backoff::of_requests(&env_of);
                loop {
                    let started = linking.start(closing.clone()).await.map(drop);
                    let is_up = started.is_ok();
                    told.send_replace(Some(started));
                    if is_up {
                        return receiver.hear(if linking.is_deaf() {
                            LinkEvent::Deaf
                        } else {
                            LinkEvent::UpAgain
                        });
                    }
                    pauses.pause(&env_of).await;
                }
            };
            closing.run_until_cancelled(connecting).await;
        });
        let admitted = Reopen::new(env.clone());
        let address = config.address();
        let (reported_deaf, reported_pause, pauses_until) = Default::default();
        Ok(Self { address, link, admitted, begun, reported_deaf, reported_pause, pauses_until })
    }

    /// Waits for the first attempt to connect.
    pub(crate) async fn begun(&self) -> Result<()> {
        let mut begun = self.begun.subscribe();
        match begun.wait_for(Option::is_some).await.map(|begun| begun.clone()) {
            Ok(Some(begun)) => begun,
            _ => Err(error::closed()),
        }
    }

    /// The connection, if it is up; the first call for it reads which run it leads to.
    ///
    /// # Errors
    ///
    /// Not applied: why there is no connection; `InvalidOption` for a server that is named twice, or a replica.
    pub(crate) async fn ready(&self, session: &Session, server: usize) -> Result<Admitted> {
        self.ready_within(session, server, session.request_bound()).await
    }

    /// The same, where the server has `bound` to answer.
    async fn ready_within(&self, session: &Session, server: usize, bound: Duration) -> Result<Admitted> {
        let Some(up) = self.link.up() else {
            return Err(match &*self.begun.borrow() {
                Some(Err(error)) => error.clone(),
                _ => Error::not_applied(ErrorKind::Unavailable, "the server is not connected"),
            });
        };
        let serves = |admitted: &Admitted| admitted.connected.id() == up.id();
        if let Some(admitted) = self.admitted.last().filter(serves) {
            return Ok(admitted);
        }
        let (runs, connected) = (Arc::clone(&session.runs), up.clone());
        let (address, give_up_at) = (self.address.clone(), session.env.now() + bound);
        let open = move || async move { admit(connected, give_up_at, &runs, server, &address).await };
        // Rare; the future is large.
        let admitted = Box::pin(self.admitted.get(serves, open)).await;
        admitted.map_err(|error| error.with_context("server", &self.address))
    }

    /// Reads its knowledge of the namespace; `met` is the result of a first reading. Each request has `bound`.
    pub(crate) async fn look(
        &self,
        session: &Session,
        server: usize,
        met: Option<&Met>,
        bound: Duration,
    ) -> Result<Standing> {
        let admitted = self.ready_within(session, server, bound).await?;
        let process = process(&admitted.connected, session.env.now() + bound, &self.address).await?;
        if let Ok(run) = &mut *admitted.run.lock() {
            *run = Arc::clone(&process.run);
        }
        let looker = Looker {
            run: &process.run,
            has_followed: process.has_followed,
            terms: &session.terms,
            pause: if session.may_hold.load(Ordering::Relaxed) {
                session.agreed.pause
            } else {
                Duration::ZERO
            },
            episode: session.env.owner_id(),
            met,
        };
        let call = scripts::admit(&session.space, &looker);
        let sent_at = session.env.now();
        let value = admitted.connected.run(&call, sent_at + bound).await?;
        let there = (&*session.space, &*process.run);
        let standing = scripts::known(&value, there, sent_at)
            .map_err(|error| error.with_context("server", &self.address));
        if let Err(error) = &standing
            && *error.kind() == ErrorKind::Unsupported
        {
            *admitted.run.lock() = Err(error.clone());
            session.blank.notify_one();
        }
        let standing = standing?;
        *admitted.run.lock() = Ok(process.run);
        session.bound.lock().learn_time(server, session.env.now(), sent_at, standing.clock);
        if standing.whole && standing.terms == session.terms {
            session.may_hold.store(true, Ordering::Relaxed);
        }
        Ok(Standing { up_for: process.up_for, ..standing })
    }

    /// How much of its pause is left, if that is known.
    pub(crate) fn pause_left(&self, now: Moment) -> Option<Duration> {
        self.pauses_until.lock().map(|until| until.since(now))
    }
}

/// redis.quorum.member-1
async fn admit(
    connected: Connected,
    give_up_at: Moment,
    runs: &Mutex<Vec<Option<Arc<str>>>>,
    server: usize,
    address: &str,
) -> Result<Admitted> {
    let Process { id, run, .. } = process(&connected, give_up_at, address).await?;
    let id: Arc<str> = id.into();
    let mut runs = runs.lock();
    let is_another = |(at, other): (usize, &Option<Arc<str>>)| at != server && other.as_ref() == Some(&id);
    if runs.iter().enumerate().any(is_another) {
        return Err(twice(address));
    }
    runs[server] = Some(id);
    Ok(Admitted { connected, run: Arc::new(Mutex::new(Ok(run))) })
}

/// Reads a server's process; a replica and a member of a cluster are refused.
async fn process(connected: &Connected, give_up_at: Moment, address: &str) -> Result<Process> {
    let mut info = redis::cmd("INFO");
    info.arg("server").arg("replication").arg("cluster");
    let answer = connected.ask(&info, give_up_at).await?;
    let fields = text(&answer).unwrap_or_default();
    if field(fields, "role") == Some("slave") {
        let message =
            format!("the server {address} is a replica: a quorum needs servers that fail independently");
        return Err(Error::invalid_option(message));
    }
    if error::is_in_a_cluster(fields) {
        let message = format!("the server {address} is part of a Redis Cluster");
        return Err(Error::not_applied(ErrorKind::Unsupported, message));
    }
    Process::read(fields).ok_or_else(|| error::unexpected("to INFO"))
}

impl Process {
    fn read(fields: &str) -> Option<Self> {
        let (id, up_for) = (field(fields, "run_id")?, field(fields, "uptime_in_seconds")?);
        // Some services hide it.
        let reign = field(fields, "master_replid").unwrap_or_default();
        let half = |id: &str| id.get(..20).unwrap_or(id).to_owned();
        let run = half(id) + &half(reign);
        let followed = field(fields, "master_replid2").unwrap_or_default();
        // Servers write 0 where no run is meant.
        (run != "0").then(|| Self {
            id: id.to_owned(),
            run: run.into(),
            // It is in whole seconds, by a clock that the server reads from time to time.
            up_for: Duration::from_secs(up_for.parse::<u64>().unwrap_or(0).saturating_sub(2)),
            has_followed: !followed.bytes().all(|digit| digit == b'0'),
        })
    }
}

fn field<'f>(fields: &'f str, name: &str) -> Option<&'f str> {
    fields.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

impl Session {
    /// Sends to every server at once, until all have answered, or `enough` of them and no other for a moment.
    pub(crate) async fn ask_all<'s, T, F>(
        &'s self,
        mut give_up_at: Moment,
        enough: usize,
        ask: impl Fn(usize, &'s Member) -> F,
    ) -> Vec<Option<Result<T>>>
    where
        F: Future<Output = Result<T>> + Send,
        T: Send,
    {
        let asked = self.members.iter().enumerate().map(|(at, member)| {
            let asking = ask(at, member);
            async move { (at, asking.await) }
        });
        let mut asking: FuturesUnordered<_> = asked.collect();
        let mut answers: Vec<_> = self.members.iter().map(|_| None).collect();
        loop {
            tokio::select! {
                biased;
                answered = asking.next() => match answered {
                    Some((at, answer)) => answers[at] = Some(answer),
                    None => return answers,
                },
                () = self.env.sleep_until(give_up_at) => return answers,
            }
            let answered = answers.iter().flatten().filter(|answer: &&Result<T>| answer.is_ok()).count();
            if answered >= enough {
                give_up_at = give_up_at.min(self.env.now() + self.patience());
            }
        }
    }

    /// The answers of a quorum, or why there are too few.
    pub(crate) fn quorum_of<T>(&self, answers: Vec<Option<Result<T>>>) -> Result<Vec<Option<T>>> {
        let failed: Vec<_> = answers.iter().map(|answer| answer.as_ref()?.as_ref().err().cloned()).collect();
        let answers: Vec<_> = answers.into_iter().map(|answer| answer?.ok()).collect();
        if answers.iter().flatten().count() >= self.size.quorum {
            Ok(answers)
        } else {
            Err(self.too_few(&failed))
        }
    }

    /// Why there is no quorum, by the last error of each server. An error of so many that no quorum is left is the answer.
    pub(crate) fn too_few(&self, failed: &[Option<Error>]) -> Error {
        let firm = |error: &&Error| *error.kind() != ErrorKind::Unavailable;
        let refused = failed.iter().flatten().filter(firm);
        if refused.clone().count() >= self.size.blocking()
            && let Some(error) = refused.clone().next()
        {
            return error.clone();
        }
        let up = self.size.servers - failed.iter().flatten().count();
        let (servers, quorum) = (self.size.servers, self.size.quorum);
        let message = if up < quorum {
            format!("only {up} of {servers} servers can be used, {quorum} are needed")
        } else {
            format!("too few of {servers} servers have answered in time, {quorum} are needed")
        };
        let error = Error::not_applied(ErrorKind::Unavailable, message);
        match failed.iter().flatten().next() {
            Some(first) => error.with_source(first.clone()),
            None => error,
        }
    }

    /// Runs a script at one server.
    pub(crate) async fn run_at(&self, server: usize, call: &Call) -> Result<Value> {
        let admitted = self.members[server].ready(self, server).await?;
        admitted.connected.run(call, self.give_up_at()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reign is of a process and of a promotion; the seconds of its clock are not taken for whole ones.
    #[test]
    fn a_process_is_read_with_a_margin() {
        let info = |id: &str, replid: &str, before: &str| {
            let text = format!(
                "run_id:{id}\r\nuptime_in_seconds:9\r\nmaster_replid:{replid}\r\nmaster_replid2:{before}\r\n"
            );
            Process::read(&text).unwrap()
        };
        let [a, b, none] = ["a", "b", "0"].map(|digit| digit.repeat(40));
        let first = info(&a, &a, &none);
        assert_eq!((first.up_for, first.has_followed), (Duration::from_secs(7), false));
        assert_ne!(first.run, info(&b, &a, &none).run);
        let promoted = info(&a, &b, &a);
        assert!(promoted.run != first.run && promoted.has_followed);
        assert!(Process::read("role:master\r\nuptime_in_seconds:9").is_none());
        assert!(Process::read("run_id:0\r\nuptime_in_seconds:9").is_none());
    }
}
