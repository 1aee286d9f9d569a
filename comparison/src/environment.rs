//! Where and with what it was measured, and what was left out.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::figures::{Spread, Times, rounded};
use crate::proc;
use crate::report::table::time;

/// The machine, the versions, the settings.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Environment {
    /// The day, in UTC.
    pub(crate) date: String,
    pub(crate) mode: String,
    /// Of the clusters of etcd and ZooKeeper.
    pub(crate) members: Option<usize>,
    /// Of this program, and whether the tree had been changed since.
    pub(crate) commit: Option<String>,
    pub(crate) changed: Option<bool>,
    pub(crate) rustc: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) system: String,
    pub(crate) cpu: Option<String>,
    pub(crate) cores: Option<usize>,
    pub(crate) memory_bytes: Option<u64>,
    /// Writing 512 bytes and syncing them where the servers keep their data.
    pub(crate) fsync_us: Spread,
    /// What a round trip takes longer in the scenario that keeps clients away, as asked for and as measured.
    pub(crate) distance: Option<Latency>,
    /// Of the stores' servers.
    pub(crate) servers: BTreeMap<String, Server>,
    /// Of our library and of others.
    pub(crate) versions: BTreeMap<String, String>,
    /// What libraries of others run in.
    pub(crate) runtimes: BTreeMap<String, String>,
    /// How busy the machine was, step by step.
    pub(crate) steps: Vec<Step>,
    /// From the beginning to the end, and what of that were timed turns.
    pub(crate) took_s: Option<f64>,
    pub(crate) timed_s: Option<f64>,
    /// What could not take part, why, and how to get it.
    pub(crate) left_out: Vec<LeftOut>,
    /// What the columns of the results mean.
    pub(crate) columns: BTreeMap<String, String>,
}

/// A scenario on one store, or on all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) what: String,
    pub(crate) seconds: f64,
    /// Of the last minute, before it and after it.
    pub(crate) load: [Option<f64>; 2],
    /// The share of all processor time meanwhile that others of the same host took.
    pub(crate) steal: Option<f64>,
}

/// When a step begins, and how busy the machine is then.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    at: u64,
    load: Option<f64>,
    /// Of all processors, in ticks: all of it, and what was stolen.
    ticks: Option<(u64, u64)>,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self { at: contender_protocol::now(), load: proc::load(), ticks: proc::ticks() }
    }

    /// The step that began then and ends now.
    pub(crate) fn until_now(&self, what: String) -> Step {
        let now = Self::now();
        let steal = self.ticks.zip(now.ticks).and_then(|(before, after)| {
            let (all, stolen) = (after.0.checked_sub(before.0)?, after.1.checked_sub(before.1)?);
            (all > 0).then(|| rounded(stolen as f64 / all as f64))
        });
        Step { what, seconds: rounded((now.at - self.at) as f64 / 1e9), load: [self.load, now.load], steal }
    }
}

/// A network in between.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) asked_us: f64,
    pub(crate) round_trip_us: Spread,
}

/// A server that was compared on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Server {
    pub(crate) version: Option<String>,
    pub(crate) durability: String,
    /// How it was started: its command line and what its configuration adds, places and ports left out.
    pub(crate) settings: Option<String>,
}

impl Latency {
    pub(crate) fn of(asked: Duration, round_trip_us: Spread) -> Self {
        Self { asked_us: asked.as_secs_f64() * 1e6, round_trip_us }
    }

    pub(crate) fn told(&self) -> String {
        let took = self.round_trip_us.p50.map_or_else(|| "–".to_owned(), time);
        format!("{} asked for, {took} per round trip", time(self.asked_us))
    }
}

/// Something that could not take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftOut {
    pub(crate) what: String,
    pub(crate) why: String,
}

impl Environment {
    /// Looks around; `place` is where servers keep their data.
    pub(crate) fn here(mode: &str, members: usize, place: &Path) -> Self {
        let system = rustix::system::uname();
        let words = [system.sysname(), system.release(), system.machine()];
        Self {
            date: today(),
            mode: mode.to_owned(),
            members: Some(members),
            commit: proc::said("git", &["rev-parse", "HEAD"]),
            changed: proc::said("git", &["status", "--porcelain"]).map(|changes| !changes.is_empty()),
            rustc: proc::said("rustc", &["--version"]),
            profile: Some(if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned()),
            runtimes: RUNTIMES
                .into_iter()
                .filter_map(|(program, option)| Some((program.to_owned(), proc::said(program, &[option])?)))
                .collect(),
            system: words.map(|word| word.to_string_lossy()).join(" "),
            cpu: proc::told("cpuinfo", "model name"),
            cores: std::thread::available_parallelism().ok().map(std::num::NonZero::get),
            memory_bytes: proc::bytes("meminfo", "MemTotal"),
            fsync_us: fsync(place).unwrap_or_default(),
            columns: COLUMNS
                .lines()
                .filter_map(|line| line.split_once(": "))
                .map(|(name, meaning)| (name.to_owned(), meaning.to_owned()))
                .collect(),
            ..Self::default()
        }
    }
}

/// 200 times, as a server's log would.
fn fsync(place: &Path) -> Result<Spread> {
    const DOING: &str = "timing the disk";
    let path = place.join("fsync");
    let mut file = File::create(&path).map_err(Error::during(DOING))?;
    let mut times = Times::new();
    for _ in 0..200 {
        let before = contender_protocol::now();
        file.write_all(&[0x5a; 512]).and_then(|()| file.sync_data()).map_err(Error::during(DOING))?;
        times.record(contender_protocol::now() - before);
    }
    drop(file);
    fs::remove_file(path).map_err(Error::during(DOING))?;
    Ok(times.spread())
}

/// The date of the wall clock, for the reader.
fn today() -> String {
    let seconds = clock_gettime(ClockId::Realtime).tv_sec;
    let now = UNIX_EPOCH + Duration::from_secs(seconds.unsigned_abs());
    humantime::format_rfc3339_seconds(now).to_string().chars().take_while(|letter| *letter != 'T').collect()
}

/// How each is asked for its version.
const RUNTIMES: [(&str, &str); 4] =
    [("go", "version"), ("java", "--version"), ("node", "--version"), ("python3", "--version")];

/// What each of them means, a line each.
const COLUMNS: &str = include_str!("../templates/columns.txt");
