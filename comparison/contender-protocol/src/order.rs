//! The orders, as they are read from standard input.

use std::path::PathBuf;
use std::time::Duration;

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
    },
    /// As `Acquire`, without waiting.
    Try {
        name: String,
    },
    /// Gives the lease of what is held its whole length again.
    Extend,
    Release,
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
                if matches!(front, [] | ["mutex"]) =>
            {
                Self::Run(Run {
                    name: name.to_owned(),
                    contenders: contenders.parse().ok()?,
                    cycles: cycles.parse().ok()?,
                    bound: Duration::from_millis(millis.parse().ok()?),
                    hold: Duration::from_micros(hold.parse().ok()?),
                    start: start.parse().ok()?,
                    journal: path(journal),
                    counter: path(counter),
                    front: !front.is_empty(),
                })
            }
            ["churn", name, rate, millis, journal] => Self::Churn(Churn {
                name: name.to_owned(),
                rate: rate.parse().ok().filter(|rate| *rate > 0)?,
                span: Duration::from_millis(millis.parse().ok()?),
                journal: PathBuf::from(journal),
            }),
            ["acquire", name] => Self::Acquire { name: name.to_owned() },
            ["try", name] => Self::Try { name: name.to_owned() },
            ["extend"] => Self::Extend,
            ["release"] => Self::Release,
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
        assert_eq!(Order::parse("acquire n"), Some(Order::Acquire { name: "n".to_owned() }));
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
            "churn n 0 1 j",
        ] {
            assert_eq!(Order::parse(wrong), None, "{wrong:?}");
        }
    }
}
