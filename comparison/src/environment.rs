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
        let words = [system.sysname(), system.release(), system.machine()];
        Self {
            date: today(),
            mode: mode.to_owned(),
            system: words.map(|word| word.to_string_lossy()).join(" "),
            cpu: proc::told("cpuinfo", "model name"),
            cores: std::thread::available_parallelism().ok().map(std::num::NonZero::get),
            memory_bytes: proc::bytes("meminfo", "MemTotal"),
            fsync_us: fsync(place).unwrap_or_default(),
            columns: COLUMNS.map(|(name, meaning)| (name.to_owned(), meaning.to_owned())).into(),
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
