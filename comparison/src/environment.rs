//! Where and with what it was measured, and what was left out.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::figures::{Spread, Times};
use crate::proc;
use crate::report::table::time;

/// The machine, the versions, the settings.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Environment {
    /// The day, in UTC.
    pub(crate) date: String,
    pub(crate) mode: String,
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
    /// What could not take part, why, and how to get it.
    pub(crate) left_out: Vec<LeftOut>,
    /// What the columns of the results mean.
    pub(crate) columns: BTreeMap<String, String>,
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
    pub(crate) fn here(mode: &str, place: &Path) -> Self {
        let system = rustix::system::uname();
        let words = [system.sysname(), system.release(), system.machine()];
        Self {
            date: today(),
            mode: mode.to_owned(),
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

/// What each of them means, a line each.
const COLUMNS: &str = include_str!("../templates/columns.txt");
