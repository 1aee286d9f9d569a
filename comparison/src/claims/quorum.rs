//! What is said of majorities of Redis servers that know nothing of each other, put to everybody who locks by one.

use std::path::Path;
use std::slice;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::{FenceGate, FencingToken};
use testbed::redis::{Reply, Server};

use super::Experiment;
use super::finding::Finding;
use super::redis::server;
use crate::driver::{Grant, Worker};
use crate::error::{Error, Result};
use crate::implementation::Implementation;
use crate::report::FORGETS;
use crate::report::table::time;
use crate::servers;

/// All of them, with `who`.
pub(super) fn experiments<'a>(room: &'a Path, who: &'a Implementation) -> [Experiment<'a>; 3] {
    let name = who.name();
    [
        (
            format!("Redlock needs three servers to survive the loss of one: {name}"),
            "Redis's documentation of distributed locks",
            losses(room, who).boxed(),
        ),
        (
            format!("{FORGETS}: {name}"),
            "Redis's documentation of distributed locks",
            forgotten(room, who).boxed(),
        ),
        (
            format!("After a restart without data the fence refuses the old holder: {name}"),
            "How to do distributed locking, M. Kleppmann",
            fenced(room, who).boxed(),
        ),
    ]
}

async fn all() -> Result<Vec<Server>> {
    let mut servers = Vec::new();
    for _ in 0..servers::QUORUM_OF {
        servers.push(server().await?);
    }
    Ok(servers)
}

/// One more of them is killed each time.
async fn losses(room: &Path, who: &Implementation) -> Result<Finding> {
    let mut servers = all().await?;
    let url = servers::quorum(&servers, Duration::ZERO);
    let mut worker = Worker::start(who, slice::from_ref(&url), room).await?;
    worker.open(1, LEASE).await?;
    let (mut told, mut held) = (Vec::new(), Vec::new());
    for (down, server) in servers.iter_mut().enumerate() {
        // The first stays, so as many are down as have had their turn before.
        if down > 0 {
            server.kill().await.map_err(Error::during("killing a Redis"))?;
        }
        let asked = contender_protocol::now();
        let got = worker.acquire_within(&format!("loss-{down}"), LEASE).await;
        let what = match &got {
            Ok(Some(grant)) => format!("held after {}", micros(grant.at - asked)),
            Ok(None) => "not held".to_owned(),
            Err(refused) => refusal(refused),
        };
        told.push(format!("{down} of 3 down: {what}"));
        held.push(matches!(got, Ok(Some(_))));
        match got {
            Ok(Some(_)) => worker.release().await?,
            // It still waits.
            Ok(None) => break,
            Err(_) => {}
        }
    }
    let found = Finding::seen(told.join(", "), held == [true, true, false]);
    Ok(found.within(format!("within {} s", LEASE.as_secs())))
}

/// Where a server that came up can be told to, it does not vote for as long as a lease.
async fn forgotten(room: &Path, who: &Implementation) -> Result<Finding> {
    let story = story(room, who, LEASE).await?;
    let told = match (&story.second, story.twice()) {
        (_, Some((_, twice))) => return Ok(Finding::seen(twice, true)),
        (Ok(Some(_)), None) => "the second held when the lease of the first was over".to_owned(),
        (Ok(None), None) => format!("the second was kept out for {} s", LEASE.as_secs()),
        (Err(refused), None) => format!("the second was {}", refusal(refused)),
    };
    Ok(Finding::seen(told, false))
}

/// It votes at once: two hold, and what the resource sees is all that is left.
async fn fenced(room: &Path, who: &Implementation) -> Result<Finding> {
    let story = story(room, who, Duration::ZERO).await?;
    let (next, twice) = story.twice().ok_or_else(|| Error::new("nobody held it a second time"))?;
    let (first, told) = (story.first, format!("; {twice}"));
    let tokens = [first.token, next.token].map(|token| FencingToken::try_from(token?).ok());
    let [Some(old), Some(new)] = tokens else {
        return Ok(Finding::seen("there are no tokens", false).and(&told));
    };
    let gate = FenceGate::new();
    let found = match gate.admit(new).and_then(|()| gate.admit(old)) {
        Err(refused) if refused.token == old => Finding::seen(refused.to_string(), true),
        _ => Finding::seen(format!("token {old} is admitted after {new}"), false),
    };
    Ok(found.and(&told))
}

/// What came of it.
struct Story {
    /// Before the first asked: its lease is no longer than that.
    asked: u64,
    first: Grant,
    second: Result<Option<Grant>>,
}

impl Story {
    /// The second grant, if it came within the lease of the first.
    fn twice(&self) -> Option<(Grant, String)> {
        let next = self.second.as_ref().ok().copied().flatten()?;
        let lease = u64::try_from(LEASE.as_nanos()).unwrap_or(u64::MAX);
        let (after, seconds) = (next.at.saturating_sub(self.first.at), LEASE.as_secs());
        let told = format!("the second held {} after the first, whose lease is {seconds} s", micros(after));
        (next.at < self.asked + lease).then_some((next, told))
    }
}

/// The lock is taken while one server is full, with the votes of the two others, and the holder is stopped. Then that one
/// has room again, and one of those two comes up empty: with both, the next one asks for it.
async fn story(room: &Path, who: &Implementation, pause: Duration) -> Result<Story> {
    let mut servers = all().await?;
    let url = servers::quorum(&servers, pause);
    let urls = slice::from_ref(&url);
    // What takes long to start has started before anybody holds.
    let mut first = Worker::start(who, urls, room).await?;
    let mut second = Worker::start(who, urls, room).await?;
    first.open(1, LEASE).await?;
    first.acquire("before", LEASE + pause).await?;
    first.release().await?;
    let [_, forgetful, full] = &mut servers[..] else { return Err(Error::new("three are needed")) };
    limit(full, "1").await?;
    let asked = contender_protocol::now();
    let held = first.acquire("lock", LEASE).await?;
    first.stop().await?;
    limit(full, "0").await?;
    forgetful.kill().await.map_err(Error::during("killing a Redis"))?;
    forgetful.start_empty().await.map_err(Error::during("starting a Redis again"))?;
    second.open(1, LEASE).await?;
    Ok(Story { asked, first: held, second: second.acquire_within("lock", LEASE).await })
}

async fn limit(server: &Server, bytes: &str) -> Result<()> {
    let set = server.command(&["CONFIG", "SET", "maxmemory", bytes]).await;
    match set.map_err(Error::during("limiting a Redis"))? {
        Reply::Error(refused) => Err(Error::new(refused)),
        _ => Ok(()),
    }
}

/// Without the places and the names of the day.
fn refusal(why: &Error) -> String {
    let why = why.to_string();
    format!("refused ({})", why.split(" (").next().unwrap_or_default())
}

fn micros(nanos: u64) -> String {
    time(nanos as f64 / 1e3)
}

/// Also how long one that is free may take.
const LEASE: Duration = Duration::from_secs(6);
