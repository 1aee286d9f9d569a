//! The answers of several sentinels about one primary, and the one that is believed. No I/O.
//!
//! A fail-over raises the epoch of the configuration, so of two answers the one with the larger epoch is later. A sentinel that
//! was cut off answers as it did before.
//!
//! # Invariants
//! - **redis.survey-1** A primary is believed only with the largest epoch that any answer had, in this survey and in those
//!   before.
//! - **redis.survey-2** A primary that a single sentinel names is believed only if no other one answers otherwise.
//! - **redis.survey-3** A sentinel that is asked at two addresses counts once, if it may tell its id. Answers that differ count
//!   each: the id may be made up, to silence another sentinel.
//!
//! Not promised: that the primary is the only one. A sentinel does not say to which other it gave its vote.

use leasehold_core::{Error, ErrorKind};

/// The answer of one sentinel.
#[derive(Clone, Debug)]
pub(super) enum Report<A> {
    /// The primary's address, the epoch of that configuration, and the id of the sentinel, if it may be read.
    Primary(A, u64, Option<String>),
    /// The sentinel watches no primary of that name.
    NoSuchName,
    /// Why there is no answer, or none that can be read; `Denied` without a right.
    Failed(Error),
}

/// The answers so far.
#[derive(Debug)]
pub(super) struct Survey<A> {
    /// How many were asked, as far as is known: some may be one.
    pub(super) asked: usize,
    reports: Vec<Report<A>>,
    /// The largest epoch of all answers, those to earlier surveys included.
    pub(super) epoch: Option<u64>,
}

impl<A: Clone + PartialEq> Survey<A> {
    /// Of `asked` sentinels, whose earlier answers had `epoch` at most.
    pub(super) fn new(asked: usize, epoch: Option<u64>) -> Self {
        Self { asked, reports: Vec::new(), epoch }
    }

    pub(super) fn add(&mut self, report: Report<A>) {
        if let Report::Primary(address, epoch, id) = &report {
            self.epoch = self.epoch.max(Some(*epoch));
            let is_same = |other: &Report<A>| matches!(other, Report::Primary(named, of, by) if (named, of, by) == (address, epoch, id));
            // redis.survey-3
            if id.is_some() && self.reports.iter().any(is_same) {
                self.asked -= 1;
                return;
            }
        }
        self.reports.push(report);
    }

    /// How many sentinels name `primary`.
    pub(super) fn voices_for(&self, primary: &A) -> usize {
        let names = |report: &&Report<A>| matches!(report, Report::Primary(named, ..) if named == primary);
        self.reports.iter().filter(names).count()
    }

    /// Whether a sentinel has answered; one that cannot be reached has not.
    pub(super) fn is_answered(&self) -> bool {
        let is_silence = |report: &Report<A>| matches!(report, Report::Failed(error) if *error.kind() == ErrorKind::Unavailable);
        !self.reports.iter().all(is_silence)
    }

    /// The primary, if answers to come are not waited for: a majority of all that were asked agree.
    pub(super) fn settled(&self) -> Option<A> {
        let (primary, voices, _) = self.latest()?;
        (2 * voices > self.asked).then(|| primary.clone())
    }

    /// The primary, once no more answers are waited for.
    ///
    /// # Errors
    ///
    /// Not applied. `InvalidOption` if no sentinel has ever known `name`, `Denied` if all that answer refuse us, `Unavailable`
    /// otherwise.
    pub(super) fn concluded(&self, name: &str) -> Result<A, Error> {
        let answered = self.reports.iter().filter(|report| matches!(report, Report::Primary(..))).count();
        match self.latest() {
            // Before the first fail-over, sentinels that were set up differently have one epoch.
            Some((primary, voices, of_epoch))
                if voices == answered || voices >= 2 && 2 * voices > of_epoch =>
            {
                return Ok(primary.clone());
            }
            Some(_) => return Err(unavailable(name, "the sentinels name different servers")),
            None if answered > 0 => {
                return Err(unavailable(name, "the sentinels that answer do not know of the last fail-over"));
            }
            None => {}
        }
        let failed = |denied: bool| {
            self.reports.iter().find_map(|report| match report {
                Report::Failed(error) if (*error.kind() == ErrorKind::Denied) == denied => {
                    Some(error.clone())
                }
                _ => None,
            })
        };
        if let Some(denied) = failed(true) {
            return Err(denied);
        }
        if self.reports.iter().any(|report| matches!(report, Report::NoSuchName)) {
            let message = format!("the sentinels watch no primary with the name {name:?}");
            // An administrator may be setting it up anew.
            let kind = if self.epoch.is_some() { ErrorKind::Unavailable } else { ErrorKind::InvalidOption };
            return Err(Error::not_applied(kind, message));
        }
        let silent = unavailable(name, "no sentinel answers");
        Err(match failed(false) {
            Some(error) => silent.with_source(format!("{error:#}")),
            None => silent,
        })
    }

    /// The primary that most name with the largest epoch, how many name it, and how many have that epoch; none if the largest
    /// epoch is of an earlier survey.
    fn latest(&self) -> Option<(&A, usize, usize)> {
        let of_epoch = || {
            self.reports.iter().filter_map(|report| match report {
                Report::Primary(address, epoch, _) if Some(*epoch) == self.epoch => Some(address),
                _ => None,
            })
        };
        let voices = |address: &A| of_epoch().filter(|other| *other == address).count();
        let most = of_epoch().max_by_key(|address| voices(address))?;
        Some((most, voices(most), of_epoch().count()))
    }
}

fn unavailable(name: &str, cause: &str) -> Error {
    Error::not_applied(ErrorKind::Unavailable, format!("cannot find the primary {name:?}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The survey of `asked` sentinels after `answers`: a name and its epoch, with `=` the id of the sentinel, `?` for an unknown
    /// name, `!` for a refusal, and `-` for silence.
    fn survey(asked: usize, seen: Option<u64>, answers: &str) -> Survey<char> {
        let mut survey = Survey::new(asked, seen);
        let failed = |kind| Report::Failed(Error::not_applied(kind, "refused"));
        for answer in answers.split_whitespace() {
            let (first, epoch) = (answer.chars().next().unwrap(), &answer[1..]);
            survey.add(match first {
                '?' => Report::NoSuchName,
                '!' => failed(ErrorKind::Denied),
                '-' => failed(ErrorKind::Unavailable),
                address => {
                    let (epoch, id) =
                        epoch.split_once('=').map_or((epoch, None), |(epoch, id)| (epoch, Some(id)));
                    Report::Primary(address, epoch.parse().unwrap(), id.map(str::to_owned))
                }
            });
        }
        survey
    }

    /// Every rule: the largest epoch wins if two agree on it or all that answer do, and an earlier one is never believed.
    #[test]
    fn largest_epoch_wins_if_two_or_all_agree() {
        use ErrorKind::{Denied, InvalidOption, Unavailable};
        for (seen, answers, believed) in [
            (None, "a1 a1 a1", Ok('a')),
            (None, "a1 b2 b2", Ok('b')),
            (None, "b2 b2 a1 a1 a1", Ok('b')),
            (None, "a1 a1 b2", Err(Unavailable)),
            (None, "a0", Ok('a')),
            (None, "a0 b0", Err(Unavailable)),
            (None, "a0 b0 b0", Ok('b')),
            (None, "a0 a0 b0 b0", Err(Unavailable)),
            (None, "- a1 -", Ok('a')),
            (None, "? a1 a1", Ok('a')),
            (None, "! a1 -", Ok('a')),
            (Some(2), "a1 a1 a1", Err(Unavailable)),
            (Some(2), "a1 b2 b2", Ok('b')),
            (Some(2), "a1 b2", Err(Unavailable)),
            (None, "? ? -", Err(InvalidOption)),
            (Some(1), "? ? -", Err(Unavailable)),
            (None, "! ? -", Err(Denied)),
            (None, "- -", Err(Unavailable)),
            (None, "", Err(Unavailable)),
            // One sentinel counts once.
            (None, "a0=1 a0=1 b0=2", Err(Unavailable)),
            (None, "a0=1 a0=1 b0=2 b0=3", Ok('b')),
            (None, "a0=1 b0=1 -", Err(Unavailable)),
        ] {
            let concluded = survey(5, seen, answers).concluded("main");
            assert_eq!(concluded.as_ref().map_err(Error::kind), believed.as_ref(), "{seen:?} {answers}");
        }
    }

    /// Only what a majority says is believed before the others have answered.
    #[test]
    fn answer_of_a_majority_is_not_waited_beyond() {
        for (seen, answers, settled) in [
            (None, "a1 a1", None),
            (None, "a1 a1 a1", Some('a')),
            (None, "a1 b2 b2", None),
            (None, "a1 a1 a1 b2", None),
            (Some(2), "a1 a1 a1", None),
            (None, "a1=1 a1=1 a1=2", None),
            (None, "a1=1 a1=1 a1=2 a1=3", Some('a')),
        ] {
            assert_eq!(survey(5, seen, answers).settled(), settled, "{seen:?} {answers}");
        }
    }

    /// The result of a survey holds for those after it, also if nothing was believed.
    #[test]
    fn epoch_that_one_sentinel_names_is_remembered() {
        let first = survey(3, Some(1), "a3 b1 b1");
        assert!(first.concluded("main").is_err());
        assert!(survey(3, first.epoch, "b1 b1 -").concluded("main").is_err());
    }
}
