//! What the system tells of itself and of processes; `None` where it does not.

use std::fs;
use std::process::Command;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// What a file below `/proc` says of `name`.
pub(crate) fn told(file: &str, name: &str) -> Option<String> {
    let told = fs::read_to_string(format!("/proc/{file}")).ok()?;
    let line = told.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The same in bytes, where it is told in kilobytes.
pub(crate) fn bytes(file: &str, name: &str) -> Option<u64> {
    Some(told(file, name)?.strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// The words by which a process was started.
pub(crate) fn command_line(pid: u32) -> Option<Vec<String>> {
    let told = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = told.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    Some(words.map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// What a program says in its first line, asked in the folder of this one.
pub(crate) fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let asked =
        Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    let said = String::from_utf8_lossy(&asked.stdout);
    asked.status.success().then(|| said.lines().next().unwrap_or_default().to_owned())
}

/// How many are running or want to, on average over a minute.
pub(crate) fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// The time of all processors since they were started, in ticks, and how much of it was stolen.
pub(crate) fn ticks() -> Option<(u64, u64)> {
    let told = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<u64> = told.lines().next()?.split_whitespace().skip(1).flat_map(str::parse).collect();
    Some((ticks.iter().take(8).sum(), *ticks.get(7)?))
}

/// Nanoseconds that the threads of a process have run which have not ended.
pub(crate) fn cpu_nanos(pid: u32) -> Option<u64> {
    of_threads(pid, |thread| {
        let told = fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
        told.split(' ').next()?.parse().ok()
    })
}

/// How often they have waited, so that a processor was free for somebody else.
pub(crate) fn switches(pid: u32) -> Option<u64> {
    of_threads(pid, |thread| told(&format!("{thread}/status"), "voluntary_ctxt_switches")?.parse().ok())
}

/// While it is there, all threads of these processes share one processor.
#[derive(Debug)]
pub(crate) struct OneProcessor(Vec<u32>);

impl OneProcessor {
    pub(crate) fn of(pids: Vec<u32>) -> Self {
        pids.iter().for_each(|pid| run_on(*pid, true));
        Self(pids)
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        self.0.iter().for_each(|pid| run_on(*pid, false));
    }
}

/// Lets its threads run on those processors alone that this one may use, or on the first of them.
fn run_on(pid: u32, is_first: bool) {
    let Ok(mut processors) = sched_getaffinity(None) else { return };
    if is_first {
        let first = (0..CpuSet::MAX_CPU).find(|number| processors.is_set(*number));
        processors.clear();
        first.into_iter().for_each(|first| processors.set(first));
    }
    of_threads(pid, |thread| {
        let id = thread.rsplit('/').next()?.parse().ok().and_then(Pid::from_raw);
        // Where that is not allowed it runs where it may.
        id.and_then(|id| sched_setaffinity(Some(id), &processors).ok()).map(|()| 1)
    });
}

/// The sum of the figures of all processes.
fn of_threads(pid: u32, told: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    Some(threads.filter_map(|thread| told(&format!("{pid}/task/{}", thread.file_name().display()))).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process can be bound to one processor, and to all again.
    #[test]
    fn process_runs_on_the_first_processor() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let allowed = || told(&format!("{}/status", child.id()), "Cpus_allowed_list").unwrap();
        let before = allowed();
        let bound = OneProcessor::of(vec![child.id()]);
        assert!(allowed().parse::<usize>().is_ok(), "{}", allowed());
        drop(bound);
        assert_eq!(allowed(), before);
        child.kill().and_then(|()| child.wait()).unwrap();
    }

    /// Work takes time, to less than a tick, and what is no process has none.
    #[test]
    fn work_takes_time() {
        let before = cpu_nanos(std::process::id()).unwrap();
        let work = move || {
            let mut hash = 0_u64;
            while cpu_nanos(std::process::id()).is_some_and(|now| now < before + 3_000_000) {
                hash = std::hint::black_box(hash.wrapping_mul(31).wrapping_add(1));
            }
        };
        let waits = switches(std::process::id()).unwrap();
        std::thread::spawn(work).join().unwrap();
        assert!(switches(std::process::id()) > Some(waits), "it waits for another thread");
        assert_eq!(cpu_nanos(u32::MAX), None);
        assert!(load().is_some() && ticks().is_some_and(|(all, stolen)| all > stolen));
        assert!(
            said("rustc", &["--version"]).unwrap().starts_with("rustc ") && said("no-such", &[]).is_none()
        );
    }
}
