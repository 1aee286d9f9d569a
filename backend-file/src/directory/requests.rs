//! Requests that holders release: a file each, with the grant in its name and the grace in its lines.
//!
//! A line is `grace MS`, one for each request that was shorter than the earlier ones: the holder may go on for that long from
//! when it reads the request. A file without such a line means no grace.
//!
//! # Invariants
//! - **file.requests-1** *No request is lost.* The holder removes the file's name before it reads the file. A process that
//!   adds a line checks the name afterwards, and writes a new file if that is gone.
//! - **file.requests-2** *No grace is lengthened.* A file is complete before it is visible, and no line is added to one with
//!   the same or a shorter grace. A request that cannot be added to is replaced only by one without a grace.
//! - **file.requests-3** *None is left over.* The sender checks afterwards whether the grant is in effect, and withdraws the
//!   request if not. A session removes requests for its own grants that have ended; a sweep removes requests for ended
//!   sessions.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use leasehold_core::backend::Revoke;
use leasehold_core::{Env, ErrorKind, Result};

use super::traces::TRIES;
use super::{Directory, Opened};
use crate::error;
use crate::keys::Key;
use crate::record::{FileRecord, SessionId};

/// The request that a session releases one of its grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) key: Key,
    pub(crate) counter: u64,
    pub(crate) session: SessionId,
}

impl Request {
    pub(crate) fn to_holder(key: Key, record: &FileRecord) -> Self {
        Self { key, counter: record.counter, session: record.session }
    }

    fn file_name(&self) -> String {
        format!("{}.{:x}.{}", self.key.as_str(), self.counter, self.session.to_hex())
    }

    pub(super) fn parse(file: &str) -> Option<Self> {
        let (rest, session) = file.rsplit_once('.')?;
        let (key, counter) = rest.rsplit_once('.')?;
        let counter = u64::from_str_radix(counter, 16).ok()?;
        Some(Self { key: Key::parse(key)?, counter, session: SessionId::from_hex(session)? })
    }
}

impl Directory {
    /// Requests the release of a grant within `grace`, unless the grant has ended.
    pub(crate) fn ask(&self, env: &Env, request: &Request, grace: Duration) -> Result<()> {
        self.post(env, request, grace)?;
        // RACE: it may have ended before, and its session may not read requests any more (file.requests-3).
        if !self.goes_on(request)? {
            self.withdraw(request);
        }
        Ok(())
    }

    pub(crate) fn goes_on(&self, request: &Request) -> Result<bool> {
        let newest = self.newest(&request.key)?;
        Ok(newest.is_some_and(|(record, lives)| {
            lives && record.counter == request.counter && record.session == request.session
        }))
    }

    /// Every request to `session`.
    pub(crate) fn requests(&self, session: SessionId) -> Result<Vec<Request>> {
        let files = self.parts.revoke.entries()?;
        let requests = files.iter().filter_map(|file| Request::parse(file));
        Ok(requests.filter(|request| request.session == session).collect())
    }

    /// Takes a request: its grace; `None` if there is none.
    pub(crate) fn take(&self, request: &Request) -> Result<Option<Duration>> {
        let opened = match self.parts.revoke.read(&request.file_name()) {
            Ok(None) => return Ok(None),
            Ok(Some(opened)) => Some(opened),
            // Its name is enough.
            Err(error) if matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Denied) => None,
            Err(error) => return Err(error),
        };
        // INVARIANT(file.requests-1): removed before it is read.
        self.withdraw(request);
        Ok(Some(opened.map_or(Duration::ZERO, |opened| wanted_within(&text(&opened)))))
    }

    pub(crate) fn withdraw(&self, request: &Request) {
        // A sweep removes it otherwise.
        let _ = self.parts.revoke.remove(&request.file_name());
    }

    pub(crate) fn post(&self, env: &Env, request: &Request, grace: Duration) -> Result<()> {
        let name = request.file_name();
        for _ in 0..TRIES {
            if self.add(&name, grace)? || self.put(env, &name, grace)? {
                return Ok(());
            }
        }
        let why = "cannot write a revocation request: its file keeps disappearing";
        Err(error::refused(why, self.parts.revoke.path()))
    }

    /// Adds to a request that exists; whether it still does, or the holder has it.
    fn add(&self, name: &str, grace: Duration) -> Result<bool> {
        let opened = match self.parts.revoke.append(name) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(false),
            // Not a regular file, which means no grace.
            Err(error) if *error.kind() == ErrorKind::Protocol => return Ok(true),
            // The holder may read a grace in it, to which this process cannot add; none is shorter than this one.
            Err(error) if *error.kind() == ErrorKind::Denied && grace.is_zero() => {
                self.parts.revoke.remove(name)?;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if grace < wanted_within(&text(&opened)) {
            self.write_line(opened.file(), name, grace)?;
        }
        Ok(self.parts.revoke.inode_of(name)? == Some(opened.inode()))
    }

    /// Creates a request; `false` if there is one, or it has to be tried again.
    fn put(&self, env: &Env, name: &str, grace: Duration) -> Result<bool> {
        let fill = |new: &File, _: &Path| self.write_line(new, name, grace);
        Ok(self.bring(env, &self.parts.revoke, name, fill)?.is_some())
    }

    fn write_line(&self, mut file: &File, name: &str, grace: Duration) -> Result<()> {
        let written = file.write_all(line(grace).as_bytes());
        written.map_err(|e| error::of_system(e, "request the revocation", &self.parts.revoke.at(name)))
    }
}

/// The text of a request; empty if it cannot be read.
fn text(opened: &Opened) -> String {
    let mut text = Vec::new();
    let read = opened.file().take(LONGEST).read_to_end(&mut text);
    read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&text).into_owned())
}

fn line(grace: Duration) -> String {
    format!("grace {}\n", grace.as_millis())
}

/// The grace of a request.
fn wanted_within(text: &str) -> Duration {
    // A line without its end is not complete.
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let graces = lines.filter_map(|line| line.strip_prefix("grace ")?.parse().ok());
    graces.min().map_or(Duration::ZERO, |millis| Duration::from_millis(millis).min(Revoke::MAX_GRACE))
}

/// Longer than any request of this library: each line has a shorter grace than the one before.
const LONGEST: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Barrier;
    use std::thread;

    use leasehold_core::{LockName, Timing};
    use proptest::prelude::*;

    use super::*;
    use crate::config::FileConfig;

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn env() -> Env {
        Env::new(Timing::for_ttl(Duration::from_secs(3))).unwrap()
    }

    fn request() -> Request {
        Request { key: Key::of(&LockName::new("a").unwrap()), counter: 10, session: SessionId(0xbb) }
    }

    /// The shortest grace of the whole lines counts; without one there is none, and none is longer than the maximum.
    #[test]
    fn a_request_says_how_long_the_grant_may_go_on() {
        assert_eq!(request().file_name(), "a.a.00000000000000bb");
        assert_eq!(line(millis(30_000)), "grace 30000\n");
        for (text, within) in [
            ("", 0),
            ("grace 30000\n", 30_000),
            ("grace 30000\ngrace 5\n", 5),
            ("grace 30000\ngrace 5", 30_000),
            ("grace 30000\ngrace 0\n", 0),
            ("\ngrace 7\nreason: upgrade\n", 7),
            ("grace 7", 0),
            ("grace \n", 0),
            ("grace -7\ngrace 7s\n", 0),
            ("GRACE 7\n", 0),
            ("grace 18446744073709551615\n", 86_400_000),
            ("grace 18446744073709551616\n", 0),
        ] {
            assert_eq!(wanted_within(text), millis(within), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in any::<String>(), graces in prop::collection::vec(0_u64..86_400_000, 1..5)) {
            prop_assert!(wanted_within(&text) <= Revoke::MAX_GRACE);
            let lines: String = graces.iter().map(|grace| line(millis(*grace))).collect();
            prop_assert_eq!(Some(wanted_within(&lines)), graces.iter().min().map(|least| millis(*least)));
        }
    }

    /// A second request shortens the grace of the first or changes nothing (file.requests-2).
    #[tokio::test]
    async fn no_ask_is_lengthened() {
        let (scratch, env) = (tempfile::tempdir().unwrap(), env());
        let directory = Directory::open(&FileConfig::new(scratch.path()), &env).unwrap();
        let path = directory.parts.revoke.at(&request().file_name());
        for (asked, left, within) in [
            (&[0, 30, 5][..], "grace 0\n", 0),
            (&[30, 50, 5, 30], "grace 30\ngrace 5\n", 5),
            (&[30, 0, 9], "grace 30\ngrace 0\n", 0),
        ] {
            for grace in asked {
                directory.post(&env, &request(), millis(*grace)).unwrap();
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), left);
            assert_eq!(directory.take(&request()).unwrap(), Some(millis(within)), "{asked:?}");
            assert_eq!(directory.take(&request()).unwrap(), None, "taken");
        }
        assert_eq!(directory.parts.new.entries().unwrap(), Vec::<String>::new());
    }

    /// file.requests-3
    #[tokio::test]
    async fn request_to_an_ended_grant_is_withdrawn() {
        let (scratch, env) = (tempfile::tempdir().unwrap(), env());
        let directory = Directory::open(&FileConfig::new(scratch.path()), &env).unwrap();
        directory.ask(&env, &request(), millis(30)).unwrap();
        assert_eq!(directory.parts.revoke.entries().unwrap(), Vec::<String>::new());
    }

    /// Three send requests at the same time, while the holder takes them: it gets the shortest grace, and none that is shorter
    /// (file.requests-1, file.requests-2).
    #[tokio::test]
    async fn no_ask_is_lost_to_one_that_takes() {
        let (scratch, env) = (tempfile::tempdir().unwrap(), env());
        let directory = Directory::open(&FileConfig::new(scratch.path()), &env).unwrap();
        for round in 0..300 {
            let heard = thread::scope(|scope| {
                let ask = |grace| {
                    let (directory, env) = (&directory, &env);
                    scope.spawn(move || directory.post(env, &request(), millis(grace)).unwrap())
                };
                let askers = [ask(40 + round % 2), ask(30), ask(20 + round % 3)];
                let mut heard = Vec::new();
                loop {
                    let all_asked = askers.iter().all(thread::ScopedJoinHandle::is_finished);
                    heard.extend(directory.take(&request()).unwrap());
                    if all_asked {
                        return heard;
                    }
                }
            });
            assert_eq!(heard.iter().min(), Some(&millis(20 + round % 3)), "{round}: {heard:?}");
        }
    }

    /// A line is added while the request is taken: either it is read, or its sender sees that the name is gone
    /// (file.requests-1). The two meet at every distance.
    #[tokio::test]
    async fn no_ask_is_added_to_one_that_was_read() {
        const ROUNDS: u32 = 2000;
        let (scratch, env) = (tempfile::tempdir().unwrap(), env());
        let directory = Directory::open(&FileConfig::new(scratch.path()), &env).unwrap();
        let (meet, mut unheard) = (Barrier::new(2), 0);
        let spin = |times: u32| (0..times).for_each(|_| std::hint::spin_loop());
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    meet.wait();
                    spin(round % 40 * 25);
                    directory.post(&env, &request(), millis(20)).unwrap();
                    meet.wait();
                }
            });
            for round in 0..ROUNDS {
                directory.post(&env, &request(), millis(30)).unwrap();
                meet.wait();
                spin(round / 40 * 20);
                let heard = directory.take(&request()).unwrap();
                meet.wait();
                let heard = [heard, directory.take(&request()).unwrap()];
                unheard += u32::from(!heard.contains(&Some(millis(20))));
            }
        });
        assert_eq!(unheard, 0);
    }
}
