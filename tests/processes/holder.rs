//! The program that holds locks, driven by lines on its standard input.
//!
//! | line | answers |
//! |---|---|
//! | `acquire NAME` | `held TOKEN`, when it is |
//! | `try NAME` | `held TOKEN` or `busy` |
//! | `state` | `held` or `lost REASON` |
//! | `release` | `released` or `error …` |
//! | `child` | `child PID`, of a child that outlives this program |
//! | `hunt ACTOR NUMBER SEED TTL` | nothing: it goes on as a client of a hunt until it is killed |
//! | `count JOURNAL WHO CYCLES` | `counted`, after that many cycles under the lock `counter` |

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use leasehold::redis::SentinelConfig;
use leasehold::{ErrorKind, LockGuard, LockManager, Result};

use crate::hunt::client;

pub(crate) fn run(url: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let locks = match runtime.block_on(open(url)) {
        Ok(locks) => locks,
        Err(error) => {
            println!("error {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("ready");
    let mut held = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        let answer = runtime.block_on(answer(&locks, &mut held, &words));
        println!("{}", answer.unwrap_or_else(|error| format!("error {error}")));
    }
    ExitCode::SUCCESS
}

/// Opens a store. The option `ways=PORT-WAY,…` of sentinels says by which ports of this host the ones that they name are reached.
async fn open(url: &str) -> Result<LockManager> {
    let mut registry = leasehold::registry();
    registry.register("redis+sentinel", |url| {
        let ways = url.take("ways")?.unwrap_or_default();
        let pairs = ways.split(',').filter_map(|way| way.split_once('-'));
        let ways: BTreeMap<u16, u16> =
            pairs.map(|(port, way)| (port.parse().unwrap(), way.parse().unwrap())).collect();
        let map = move |host: &str, port| (host.to_owned(), ways.get(&port).copied().unwrap_or(port));
        Ok(Box::new(SentinelConfig::from_url(url)?.map_address(map)))
    });
    registry.connect(url).await
}

async fn answer(locks: &LockManager, held: &mut Option<LockGuard>, words: &[&str]) -> Result<String> {
    Ok(match words {
        ["acquire", name] => hold(held, locks.lock(name)?.acquire().await?),
        ["try", name] => match locks.lock(name)?.try_acquire().await? {
            Some(guard) => hold(held, guard),
            None => "busy".to_owned(),
        },
        ["state"] => match held.as_ref().unwrap().ensure_held() {
            Ok(()) => "held".to_owned(),
            Err(error) => format!("lost {:?}", error.lost_reason().unwrap()),
        },
        ["release"] => {
            held.take().unwrap().release().await?;
            "released".to_owned()
        }
        ["child"] => {
            let mut sleep = Command::new("sleep");
            sleep.arg("60").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            #[expect(clippy::zombie_processes, reason = "it is meant to outlive this program")]
            let child = sleep.spawn().unwrap();
            format!("child {}", child.id())
        }
        ["count", journal, who, cycles] => {
            count(locks, journal, who, cycles.parse().unwrap()).await?;
            "counted".to_owned()
        }
        ["hunt", actor, number, seed, ttl] => {
            let ttl = Duration::from_millis(ttl.parse().unwrap());
            let [number, seed] = [number, seed].map(|number| number.parse().unwrap());
            client::run(locks, actor, number, seed, ttl).await?;
            "hunted".to_owned()
        }
        other => panic!("unknown order {other:?}"),
    })
}

fn hold(held: &mut Option<LockGuard>, guard: LockGuard) -> String {
    let token = guard.token();
    *held = Some(guard);
    format!("held {token}")
}

/// Under the lock: reads the last count, adds one, and appends it with the token, in one write. A
/// kill leaves the line there or not; two holders would write the same count.
async fn count(locks: &LockManager, journal: &str, who: &str, cycles: u64) -> Result<()> {
    let lock = locks.lock("counter")?;
    let mut file = OpenOptions::new().read(true).append(true).open(journal).unwrap();
    for _ in 0..cycles {
        let guard = match lock.acquire().await {
            Ok(guard) => guard,
            // While another server takes over.
            Err(error) if *error.kind() == ErrorKind::Unavailable => {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        let last = last_count(&mut file);
        file.write_all(format!("{} {} {who}\n", last + 1, guard.token()).as_bytes()).unwrap();
        // Then, too, a lease ends the hold.
        let _ = guard.release().await;
    }
    Ok(())
}

fn last_count(file: &mut std::fs::File) -> u64 {
    const LONGEST_LINE: u64 = 128;
    let length = file.metadata().unwrap().len();
    file.seek(SeekFrom::Start(length.saturating_sub(LONGEST_LINE))).unwrap();
    let mut tail = String::new();
    file.read_to_string(&mut tail).unwrap();
    let line = tail.lines().next_back();
    line.map_or(0, |line| line.split(' ').next().unwrap().parse().unwrap())
}
