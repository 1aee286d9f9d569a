//! The orders, as they are read from standard input.

use std::path::PathBuf;
use std::time::Duration;

use crate::mode::{Draw, Mode};

/// One line of orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Open {
        sessions: usize,
        ttl: Duration,
    },
    Run(Run),
    Acquire {
        name: String,
        mode: Mode,
    },
    /// As `Acquire`, without waiting.
    Try {
        name: String,
    },
    /// Gives the lease of what is held its whole length again.
    Extend,
    Release,
    /// What was released last, once more.
    Again,
    /// How many can be taken at the same time without waiting.
    Count {
        name: String,
        /// No more are tried.
        most: usize,
        mode: Mode,
    },
    Hold {
        name: String,
        count: usize,
    },
    Churn(Churn),
    Quit,
}

/// Contenders that go for one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) contenders: u32,
    /// How many cycles they make together; no bound if 0.
    pub(crate) cycles: u64,
    /// When nobody begins another cycle, counted from `start`; no bound if 0.
    pub(crate) bound: Duration,
    /// How long each holds.
    pub(crate) hold: Duration,
    /// When they begin; at once if that has passed.
    pub(crate) start: u64,
    pub(crate) journal: Option<PathBuf>,
    /// A file with a number that each adds one to while it holds.
    pub(crate) counter: Option<PathBuf>,
    /// Whether contenders of a session queue for a mutex of their own first.
    pub(crate) front: bool,
    /// What they want of it; alone, if it is not said.
    pub(crate) draw: Option<Draw>,
}

/// Names that are wanted once each, one after the other, at a rate that does not wait for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Churn {
    pub(crate) name: String,
    /// Names a second.
    pub(crate) rate: u64,
    pub(crate) span: Duration,
    pub(crate) journal: PathBuf,
}

impl Order {
    /// `None` for a line that is no order.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split(' ').collect();
        Some(match words[..] {
            ["open", sessions, ttl] => {
                Self::Open { sessions: sessions.parse().ok()?, ttl: Duration::from_millis(ttl.parse().ok()?) }
            }
            ["run", name, contenders, cycles, millis, hold, start, journal, counter, ref front @ ..]
                if front.len() <= 1 =>
            {
                let front = front.first().copied();
                let draw = front
                    .filter(|word| *word != "mutex")
                    .map_or(Some(None), |word| Draw::parse(word).map(Some))?;
                Self::Run(Run {
                    name: name.to_owned(),
                    contenders: contenders.parse().ok()?,
                    cycles: cycles.parse().ok()?,
                    bound: Duration::from_millis(millis.parse().ok()?),
                    hold: Duration::from_micros(hold.parse().ok()?),
                    start: start.parse().ok()?,
                    journal: path(journal),
                    counter: path(counter),
                    front: front == Some("mutex"),
                    draw,
                })
            }
            ["churn", name, rate, millis, journal] => Self::Churn(Churn {
                name: name.to_owned(),
                rate: rate.parse().ok().filter(|rate| *rate > 0)?,
                span: Duration::from_millis(millis.parse().ok()?),
                journal: PathBuf::from(journal),
            }),
            ["acquire", name, ref mode @ ..] if mode.len() <= 1 => {
                let mode = mode.first().map_or(Some(Mode::EXCLUSIVE), |word| Mode::parse(word))?;
                Self::Acquire { name: name.to_owned(), mode }
            }
            ["try", name] => Self::Try { name: name.to_owned() },
            ["extend"] => Self::Extend,
            ["release"] => Self::Release,
            ["again"] => Self::Again,
            ["count", name, most, mode] => {
                Self::Count { name: name.to_owned(), most: most.parse().ok()?, mode: Mode::parse(mode)? }
            }
            ["hold", name, count] => Self::Hold { name: name.to_owned(), count: count.parse().ok()? },
            ["quit"] => Self::Quit,
            _ => return None,
        })
    }
}

fn path(word: &str) -> Option<PathBuf> {
    (word != "-").then(|| PathBuf::from(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every order of the protocol is understood, and nothing else.
    #[test]
    fn orders_are_lines_of_words() {
        assert_eq!(
            Order::parse("open 2 1500"),
            Some(Order::Open { sessions: 2, ttl: Duration::from_millis(1500) })
        );
        let run = Order::parse("run n 8 1000 0 100 7 /tmp/journal -");
        let Some(Order::Run(run)) = run else { panic!("{run:?}") };
        assert_eq!((run.contenders, run.cycles, run.start), (8, 1000, 7));
        assert_eq!((run.journal, run.counter, run.front), (Some("/tmp/journal".into()), None, false));
        let run = Order::parse("run n 8 1000 0 100 7 - - mutex");
        assert!(matches!(run, Some(Order::Run(Run { front: true, .. }))), "{run:?}");
        let churn = Order::parse("churn n 10000 500 /tmp/journal");
        let Some(Order::Churn(churn)) = churn else { panic!("{churn:?}") };
        assert_eq!((churn.rate, churn.span), (10_000, Duration::from_millis(500)));
        let run = Order::parse("run n 8 1000 0 100 7 - - reads=90");
        assert!(
            matches!(run, Some(Order::Run(Run { front: false, draw: Some(Draw::Reads(90)), .. }))),
            "{run:?}"
        );
        let name = || "n".to_owned();
        let third = Mode { weight: 1, capacity: 3 };
        assert_eq!(Order::parse("acquire n"), Some(Order::Acquire { name: name(), mode: Mode::EXCLUSIVE }));
        assert_eq!(Order::parse("acquire n 1/3"), Some(Order::Acquire { name: name(), mode: third }));
        assert_eq!(Order::parse("count n 5 1/3"), Some(Order::Count { name: name(), most: 5, mode: third }));
        assert_eq!(Order::parse("again"), Some(Order::Again));
        assert_eq!(Order::parse("try n"), Some(Order::Try { name: "n".to_owned() }));
        assert_eq!(Order::parse("extend"), Some(Order::Extend));
        assert_eq!(Order::parse("quit"), Some(Order::Quit));
        for wrong in [
            "",
            "open",
            "open 1",
            "open x 1",
            "run n 8",
            "acquire",
            "try",
            "jump",
            "run n 8 1 0 1 7 - - spin",
            "run n 8 1 0 1 7 - - mutex reads=9",
            "acquire n reads=9",
            "count n 5",
            "churn n 0 1 j",
        ] {
            assert_eq!(Order::parse(wrong), None, "{wrong:?}");
        }
    }
}
