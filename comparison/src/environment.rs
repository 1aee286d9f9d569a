//! Where and with what it was measured, and what was left out.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::figures::{Spread, Times};

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
    /// Of the stores' servers.
    pub(crate) servers: BTreeMap<String, Server>,
    /// Of our library and of others.
    pub(crate) versions: BTreeMap<String, String>,
    /// What could not take part, why, and how to get it.
    pub(crate) left_out: Vec<LeftOut>,
    /// What the columns of the results mean.
    pub(crate) columns: BTreeMap<String, String>,
}

/// A server that was compared on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Server {
    pub(crate) version: Option<String>,
    pub(crate) durability: String,
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
        let told = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        Self {
            date: today(),
            mode: mode.to_owned(),
            system: format!(
                "{} {} {}",
                told(system.sysname()),
                told(system.release()),
                told(system.machine())
            ),
            cpu: cpu(),
            cores: std::thread::available_parallelism().ok().map(std::num::NonZero::get),
            memory_bytes: memory(),
            fsync_us: fsync(place).unwrap_or_default(),
            servers: BTreeMap::new(),
            versions: BTreeMap::new(),
            left_out: Vec::new(),
            columns: COLUMNS
                .iter()
                .map(|(name, meaning)| ((*name).to_owned(), (*meaning).to_owned()))
                .collect(),
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

fn cpu() -> Option<String> {
    let told = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = told.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory() -> Option<u64> {
    let told = fs::read_to_string("/proc/meminfo").ok()?;
    let line = told.lines().find(|line| line.starts_with("MemTotal:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// The proleptic Gregorian date of the wall clock, for the reader.
fn today() -> String {
    let seconds = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
    let days = seconds.div_euclid(86_400) + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

const COLUMNS: [(&str, &str); 9] = [
    (
        "contenders",
        "who go for one lock, with a session each: in processes of their own, but on memory, and in the quick and usual modes for libraries with a virtual machine or an interpreter, in one; in herd: who wait; in held: locks that are held",
    ),
    ("cycles_per_s", "times through the lock per second, all contenders together; median of the runs"),
    (
        "acquire_us",
        "microseconds from the request to the grant; medians of the runs' quantiles, largest maximum",
    ),
    ("release_us", "microseconds until the release was confirmed"),
    (
        "handoff_us",
        "microseconds from a holder's release to the grant of the next, who waited; in crash: from the kill",
    ),
    (
        "requests_per_cycle",
        "requests that the server counted per time through the lock; in held: per third of the ttl, once all are held",
    ),
    ("floor_ratio", "rate as a share of the floor's in the same round; median of the rounds"),
    ("overtakes", "the share of grants that passed over a request made at least a millisecond earlier"),
    (
        "violations",
        "two holders at once, tokens that did not grow, counts that were lost; in all runs together",
    ),
];
