//! `leasehold run`: a lock for as long as a command runs.
//!
//! The command must not work without the lock, so it is stopped before another client can hold it. If the
//! lock is at risk or its revocation is requested, the command's process group gets SIGTERM, and SIGKILL before
//! the deadline. If the lock is lost, it gets SIGKILL at once. The lock is released when the whole group has
//! ended.
//!
//! # Invariants
//! - **run-1** While the lock is not held, the group is sent SIGKILL as the next thing (G2).
//! - **run-2** The lock is not released while a process of the group lives, except with `--leave-running`.
//! - **run-3** While we are stopped by a terminal, so is the group; it goes on only if the lock is held.
//!
//! With `--at-least` the library puts the release off, and this process waits for it, or a process in the background does
//! ([`detach`]).
//!
//! Processes that have left the group (daemons) or run as another user are not stopped. A stopped (`SIGSTOP`) or
//! killed `leasehold` does not stop grandchildren. On Linux the command itself is killed with `leasehold`.

pub(crate) mod detach;
mod group;
pub(crate) mod launch;
mod terminal;

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::select_all;
use leasehold::{AllGuard, Change, GuardState, LockGuard, LockManager, LostReason};
use rustix::process::Signal;

use crate::arguments::{Run, Store};
use crate::failure::{Exit, Failure};
use crate::run::detach::Front;
use crate::run::group::{Group, Seen};
use crate::run::terminal::Terminal;
use crate::signals::Signals;
use crate::store::{self, HIDDEN, Place};
use crate::wait::{self, Patience};
use crate::{held, output};

pub(crate) async fn run(
    store: &Store,
    arguments: &Run,
    json: bool,
    front: Option<Front>,
) -> Result<Exit, Failure> {
    if arguments.detach && front.is_none() {
        return detach::in_front().await;
    }
    let mut ending = Signals::of_the_end()?;
    if front.is_some() {
        ending = ending.without_echoes();
    }
    let place = Place::of(store)?;
    let names = &*arguments.names;
    if names.len() > 1 && !arguments.all {
        return Err(Failure::usage("several locks are named: use `--all` to hold all of them together"));
    }
    let (terms, at_least) = (&arguments.terms, arguments.at_least);
    if at_least.zip(terms.max_hold).is_some_and(|(least, most)| most < least) {
        return Err(Failure::usage("`--at-least` is longer than `--max-hold`"));
    }
    names.iter().try_for_each(|name| held::refuse_nested(&place, name))?;
    let patience = Patience::of(terms);
    let locks = place.open_for(terms, &patience, &mut ending).await?;
    let guard = match wait::acquire_all(&locks, names, terms, at_least, &patience, &mut ending).await {
        Ok(guard) => guard,
        Err(failure) => {
            store::close(&locks).await;
            return Err(failure);
        }
    };
    let outcome = under(&guard, &place, arguments, &mut ending, json).await;
    let lost = guard.guards().iter().find_map(|guard| {
        let reason = guard.ensure_held().err()?.lost_reason()?;
        Some((guard.name().to_string(), reason))
    });
    let released = match &outcome {
        Ok(Ended { asked: true, .. }) => wait::patiently(guard.release(), wait::RELEASING).await,
        _ => guard.release().await,
    };
    if let Err(error) = released
        && error.lost_reason().is_none()
    {
        output::complain(&Failure::from(error).to_string());
    }
    // A process that is told to end does not wait, and neither does one that could not start it.
    let waits =
        outcome.as_ref().is_ok_and(|ended| !ended.asked || matches!(ended.why, Some(Why::MaxHold(_))));
    let outcome = outcome.and_then(|ended| ended.told(&names.join(", "), lost));
    if let Some(front) = front {
        front.answer(&outcome, json);
    }
    match at_least {
        Some(_) => close_after_the_span(&locks, waits, &mut ending).await,
        None => store::close(&locks).await,
    }
    outcome
}

/// Ends the session when `--at-least` has passed. A signal, or not to wait, leaves the rest of that to the lease.
async fn close_after_the_span(locks: &LockManager, waits: bool, ending: &mut Signals) {
    let note = async {
        wait::at_most(Some(wait::PATIENCE)).await;
        // Cron would send it by mail.
        if io::stderr().is_terminal() {
            output::note(HOLDING);
        }
        std::future::pending::<()>().await;
    };
    if waits {
        tokio::select! {
            () = store::close(locks) => return,
            () = note => unreachable!("the note is for ever"),
            _signal = ending.next() => {}
        }
    }
    store::close_now(locks).await;
}

/// How the command ended, and why it was stopped, if it was.
struct Ended {
    exit: Exit,
    why: Option<Why>,
    /// It was told to end.
    asked: bool,
}

impl Ended {
    /// The result of `run`, for the locks `name`; `lost` is one that was lost.
    fn told(self, name: &str, lost: Option<(String, LostReason)>) -> Result<Exit, Failure> {
        match (self.why, lost) {
            // It has ended well in spite of the request to stop, and under the lock.
            (Some(Why::AtRisk | Why::Asked), None) if self.exit == Exit::SUCCESS => Ok(self.exit),
            (_, Some((name, reason))) => Err(Failure::lost(format!("the lock {name:?} was lost: {reason}"))),
            (Some(Why::Lost(reason)), None) => {
                Err(Failure::lost(format!("the lock {name:?} was lost: {reason}")))
            }
            (Some(Why::AtRisk), None) => Err(Failure::lost(format!(
                "the command was stopped: the lock {name:?} was not renewed in time"
            ))),
            (Some(Why::Asked), None) => Err(Failure::lost(format!(
                "the command was stopped: revocation of the lock {name:?} was requested"
            ))),
            (Some(Why::MaxHold(allowed)), None) => Err(Failure::max_hold(name, allowed)),
            (None, None) => Ok(self.exit),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    AtRisk,
    /// An administrator wants the lock.
    Asked,
    Lost(LostReason),
    /// It has held the lock for as long as it may.
    MaxHold(Duration),
}

/// Runs the command while `guard` is held.
async fn under(
    guard: &AllGuard,
    place: &Place,
    arguments: &Run,
    ending: &mut Signals,
    json: bool,
) -> Result<Ended, Failure> {
    let children = Signals::of_children()?;
    let stopping = Signals::of_the_keyboard()?;
    let tokens = guard.guards().iter().map(|guard| (guard.name().as_str(), guard.token().to_string()));
    let (names, tokens): (Vec<_>, Vec<_>) = tokens.unzip();
    let mut environment = vec![(held::VARIABLE, held::with(place, &names))];
    // The environment names other locks.
    let stale = if arguments.all {
        let lines: Vec<_> =
            names.iter().zip(&tokens).map(|(name, token)| format!("{name} {token}")).collect();
        environment.push(("LEASEHOLD_TOKENS", lines.join("\n")));
        &["LEASEHOLD_NAME", "LEASEHOLD_TOKEN"][..]
    } else {
        environment.push(("LEASEHOLD_NAME", names.concat()));
        environment.push(("LEASEHOLD_TOKEN", tokens.concat()));
        &["LEASEHOLD_TOKENS"]
    };
    if arguments.hide_url {
        environment.push(("LEASEHOLD_URL", HIDDEN.to_owned()));
        launch::hide_this_process();
    }
    let group = launch::launch(&arguments.command, environment, stale, json)?;
    let watch = Watch {
        guard,
        group,
        terminal: Terminal::of_this_process(),
        wants_terminal: false,
        leave_running: arguments.leave_running,
        max_hold: arguments.terms.max_hold,
        kill_after: arguments.kill_after,
        why: None,
        is_timed_out: false,
        asked: false,
        killed: false,
    };
    Ok(watch.until_the_end(ending, stopping, children).await)
}

/// A command that runs, and the locks it runs under.
struct Watch<'a> {
    guard: &'a AllGuard,
    group: Group,
    terminal: Terminal,
    /// The command is stopped because it would use a terminal that it does not have.
    wants_terminal: bool,
    leave_running: bool,
    max_hold: Option<Duration>,
    /// How long after the request to end it is killed.
    kill_after: Option<Duration>,
    why: Option<Why>,
    /// It has held the lock for as long as it may.
    is_timed_out: bool,
    /// This process, or a signal through it, has requested its end.
    asked: bool,
    killed: bool,
}

impl Watch<'_> {
    async fn until_the_end(
        mut self,
        ending: &mut Signals,
        mut stopping: Signals,
        mut children: Signals,
    ) -> Ended {
        let mut changes = select_all(self.guard.guards().iter().map(LockGuard::changes));
        let mut kept = None;
        let mut max_hold = pin!(wait::at_most(self.max_hold));
        let mut last_call = pin!(wait::at_most(None));
        let (mut patience, mut told) = (pin!(wait::at_most(None)), false);
        loop {
            // Checked before waiting: the command may have ended before the signals were set up.
            self.look();
            if let Some(exit) = self.group.ended
                && (self.leave_running || self.group.is_gone())
            {
                self.terminal.take_back(&self.group);
                return Ended { exit, why: self.why, asked: self.asked };
            }
            tokio::select! {
                biased;
                Some(change) = changes.next() => kept = self.turned(change),
                () = last_moment(self.guard, kept), if kept.is_some() => {
                    kept = None;
                    self.kill();
                }
                signal = ending.next() => {
                    self.group.signal(signal);
                    if self.wants_terminal {
                        self.go_on();
                    }
                    if !self.asked {
                        self.asked = true;
                        last_call.set(wait::at_most(self.kill_after));
                        patience.set(wait::at_most(Some(wait::PATIENCE)));
                    }
                }
                allowed = &mut max_hold, if !self.is_timed_out => {
                    self.is_timed_out = true;
                    self.stop(Why::MaxHold(allowed), "`--max-hold` reached: stopping the command");
                    self.asked = true;
                    last_call.set(wait::at_most(Some(self.kill_after.unwrap_or(KILL_AFTER))));
                }
                _late = &mut last_call, if !self.killed => self.kill(),
                _long = &mut patience, if !told => {
                    told = true;
                    output::note(&self.waits_for());
                }
                _stop = stopping.next() => {
                    self.group.signal(Signal::STOP);
                    self.suspend();
                }
                _child = children.next() => {}
                () = tokio::time::sleep(TICK), if self.wants_terminal || self.group.ended.is_some() => {}
            }
        }
    }

    /// After a signal: which processes are waited for, and what ends them.
    fn waits_for(&self) -> String {
        let processes = self.group.processes();
        let shown = match processes.len() {
            0 => "the command".to_owned(),
            1..=SHOWN => processes.join(", "),
            more => format!("{} and {} more", processes[..SHOWN].join(", "), more - SHOWN),
        };
        let leader = self.group.leader.as_raw_nonzero();
        let kill = match self.kill_after {
            Some(after) => format!("SIGKILL follows {} after the signal", humantime::format_duration(after)),
            None => format!("`kill -s KILL -- -{leader}` ends it at once, or use `--kill-after`"),
        };
        format!("waiting for {shown} to end; {kill}")
    }

    /// Collects the state of the children.
    fn look(&mut self) {
        while let Some(seen) = self.group.look() {
            match seen {
                Seen::Something => {}
                Seen::StoppedAtTerminal => self.wants_terminal = true,
                Seen::Suspended if self.terminal.belongs_to(&self.group) => self.suspend(),
                Seen::Suspended => {}
            }
        }
        if self.wants_terminal && self.terminal.give_to(&self.group) {
            self.wants_terminal = false;
            self.go_on();
        }
    }

    /// Something has changed for the lock; how much time is kept for killing, if it has to end.
    fn turned(&mut self, change: Change) -> Option<Duration> {
        match change {
            Change::State(GuardState::AtRisk) => {
                self.stop(Why::AtRisk, "a renewal is overdue: stopping the command");
            }
            Change::RevocationRequested(_) => {
                self.stop(Why::Asked, "revocation requested: stopping the command");
            }
            Change::State(GuardState::Lost(reason)) => {
                self.why = Some(Why::Lost(reason));
                self.kill();
                return None;
            }
            _ => {}
        }
        let ends =
            |guard: &LockGuard| guard.state() == GuardState::AtRisk || guard.revocation_deadline().is_some();
        self.guard.guards().iter().any(ends).then(|| (self.guard.remaining() / 4).clamp(TICK / 5, TICK * 20))
    }

    /// Requests the end of the command, and writes a note the first time.
    fn stop(&mut self, why: Why, said: &str) {
        if self.why.is_none() {
            output::note(said);
            self.why = Some(why);
        }
        self.group.signal(Signal::TERM);
        // A stopped group handles no signal.
        self.go_on();
    }

    fn kill(&mut self) {
        if !self.killed {
            output::note("killing the command");
            self.killed = true;
        }
        self.group.signal(Signal::KILL);
    }

    /// Stops this process as the terminal has stopped the command, and goes on when the shell continues it.
    fn suspend(&mut self) {
        let had_terminal = self.terminal.take_back(&self.group);
        // Stops the whole job that the shell knows, unless no process is there that could continue it. It is not SIGTSTP, which
        // this process handles. It stops in here.
        terminal::stop_this_job();
        if had_terminal {
            self.terminal.give_to(&self.group);
        }
        self.go_on();
    }

    /// Lets the command go on if the lock is held (run-3).
    fn go_on(&mut self) {
        match self.guard.ensure_held() {
            Ok(()) => self.group.signal(Signal::CONT),
            Err(_lost) => self.kill(),
        }
    }
}

/// Ends when the time that is `kept` for killing begins.
async fn last_moment(guard: &AllGuard, kept: Option<Duration>) {
    let Some(kept) = kept else {
        return std::future::pending().await;
    };
    loop {
        let left = guard.remaining().saturating_sub(kept);
        if left.is_zero() {
            return;
        }
        // Timers stop while the host is suspended.
        tokio::time::sleep(left.min(TICK * 20)).await;
    }
}

const HOLDING: &str =
    "the command has ended; holding the lock for the time of `--at-least`; a signal leaves it to its lease";
/// How many processes are named.
const SHOWN: usize = 5;
/// How often changes without a signal are checked: a terminal that is free again, processes of the group that are not our
/// children.
const TICK: Duration = Duration::from_millis(50);
/// How long a command may take to end after `--max-hold`, without the option.
const KILL_AFTER: Duration = Duration::from_secs(10);
