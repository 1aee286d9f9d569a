//! What the system tells of itself and of processes; `None` where it does not.

use std::fs;

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

/// Nanoseconds that all threads of a process have run, those that have ended too; to the hundredth of a
/// second.
pub(crate) fn cpu_nanos(pid: u32) -> Option<u64> {
    let told = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may be anything; after it come the state and numbers.
    let (_, numbers) = told.rsplit_once(')')?;
    let mut times = numbers.split_whitespace().skip(11);
    let (user, system) = (times.next()?.parse::<u64>().ok()?, times.next()?.parse::<u64>().ok()?);
    Some((user + system) * 1_000_000_000 / rustix::param::clock_ticks_per_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work takes time, a thread's too that has ended, and what is no process has no time.
    #[test]
    fn work_takes_time() {
        let before = cpu_nanos(std::process::id()).unwrap();
        let work = move || {
            let mut hash = 0_u64;
            while cpu_nanos(std::process::id()).is_some_and(|now| now < before + 50_000_000) {
                hash = std::hint::black_box(hash.wrapping_mul(31).wrapping_add(1));
            }
        };
        std::thread::spawn(work).join().unwrap();
        assert!(cpu_nanos(std::process::id()).unwrap() >= before + 50_000_000);
        assert_eq!(cpu_nanos(u32::MAX), None);
    }
}
