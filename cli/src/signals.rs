//! The signals that end a command, and the ones about its terminal and its children.
//!
//! A signal that was ignored at the start of this process stays ignored, here and in started commands: `nohup` and shells that
//! start a process in the background rely on that.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, Moment};
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::failure::Failure;

/// Signals, from the moment of the request on.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    /// Drops echoes, if that is wanted.
    echoes: Option<Echoes>,
}

impl Signals {
    /// The signals that request the end of a process.
    pub(crate) fn of_the_end() -> Result<Self, Failure> {
        Self::of(&[Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM], ignored())
    }

    /// The signal by which a terminal stops a process for a while.
    pub(crate) fn of_the_keyboard() -> Result<Self, Failure> {
        Self::of(&[Signal::TSTP], ignored())
    }

    /// The signal that a child has ended or was stopped. If it was ignored, that would be lost.
    pub(crate) fn of_children() -> Result<Self, Failure> {
        Self::of(&[Signal::CHILD], 0)
    }

    /// These, without a signal that repeats the last one within [`Echoes::LATE`]: a sender may send it to the process group, of
    /// which a member forwards it.
    pub(crate) fn without_echoes(self) -> Self {
        Self { echoes: Some(Echoes::default()), ..self }
    }

    fn of(signals: &[Signal], ignored: u64) -> Result<Self, Failure> {
        let heard = signals.iter().filter(|signal| ignored & bit(**signal) == 0);
        let listen = |signal: &Signal| -> io::Result<_> {
            Ok((*signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?))
        };
        let streams = heard.map(listen).collect::<io::Result<_>>();
        let streams = streams.map_err(|error| Failure::system("cannot listen for signals", error))?;
        Ok(Self { streams, echoes: None })
    }

    /// The next signal.
    ///
    /// # Cancel safety
    ///
    /// None is lost; several of one kind may count as one.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.streams {
                while let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    let now = BootClock::new().now();
                    if !self.echoes.as_mut().is_some_and(|echoes| echoes.include(*signal, now)) {
                        return Poll::Ready(*signal);
                    }
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The last signal, by which a second one is recognized that another process has forwarded.
#[derive(Debug, Default)]
struct Echoes {
    last: Option<(Signal, Moment)>,
}

impl Echoes {
    const LATE: Duration = Duration::from_millis(100);

    /// Whether that signal is an echo; else it is the last one from now on.
    fn include(&mut self, signal: Signal, now: Moment) -> bool {
        let is_echo = self.last.is_some_and(|(last, at)| last == signal && now.since(at) < Self::LATE);
        if !is_echo {
            self.last = Some((signal, now));
        }
        is_echo
    }
}

/// The signals this process ignores, a bit each; none if the system does not show them.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_in(&status).unwrap_or_default()
}

fn ignored_in(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An equal signal soon after the last one is dropped; another signal or a later one is not.
    #[test]
    fn echoes_of_a_signal_are_dropped() {
        let mut echoes = Echoes::default();
        for (at, signal, is_echo) in [
            (0, Signal::INT, false),
            (99, Signal::INT, true),
            (100, Signal::INT, false),
            (101, Signal::TERM, false),
            (102, Signal::TERM, true),
        ] {
            let now = Moment::from_nanos(at * 1_000_000);
            assert_eq!(echoes.include(signal, now), is_echo, "{at}");
        }
    }

    /// The mask is read as the kernel writes it.
    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let mask = ignored_in("Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n").unwrap();
        assert_ne!(mask & bit(Signal::HUP), 0);
        assert_ne!(mask & bit(Signal::PIPE), 0);
        assert_eq!(mask & bit(Signal::INT), 0);
        assert_eq!(ignored_in("nothing of the kind"), None);
    }
}
