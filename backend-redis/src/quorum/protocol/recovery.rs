//! When a server that may have forgotten votes and numbers may vote again.
//!
//! A server is *blank* from when the namespace first meets another reign of it: its process came up, it was promoted, it was
//! emptied, or another server has its address. Each time is an *episode*: a reign may have several. The server pauses for as
//! long as the longest lease: by then no hold relies on its earlier answers, or on those of a server at the same address. Then
//! a manager installs its floor: the largest number that the others know. A *blocking set* of others, one of every quorum,
//! knows every number that was confirmed. If a quorum is blank, possibly no server knows: the namespace is new, or there was an
//! accident. Their pauses end one after the other, so the first that votes keeps which episodes were blank at the same time as
//! its own.
//!
//! # Invariants
//! - **redis.quorum.recovery-1** A blank server gives no vote before its pause has ended, whatever the others know (G1): their
//!   numbers may have grown since they answered, by pending requests.
//! - **redis.quorum.recovery-2** Its floor is the largest number that a blocking set knows after that pause, and it counts above
//!   it (G3).
//! - **redis.quorum.recovery-3** The clocks of the servers replace forgotten numbers only if a quorum was blank at one moment,
//!   which two readings in a row show: the furthest of those that are not far from their median.
//! - **redis.quorum.recovery-4** So they do for the rest of that quorum while it is blank: without their votes, a number that
//!   was confirmed after that moment is known to a blocking set among the other servers (G3).
//! - **redis.quorum.recovery-5** A pause counts from when a manager first met the reign, by the median of the clocks of the
//!   servers that answered then, so that one clock that is stepped ends none (G1). A clock that is missing or was set back
//!   shows no time. If the median shows none, the clocks are written down anew by a reading that could have ended the pause.
//!   The uptime of a process counts only if all servers answer, and none ever had a floor or was met together with one that
//!   had.
//! - **redis.quorum.recovery-6** A server comes up with its own data if its disk is trusted, it was never promoted since it was
//!   last whole, and all others answer and none of them has its id: then it has forgotten nothing, and does not pause.
//! - **redis.quorum.recovery-7** A blank server keeps the terms of the first manager that meets it, and pauses for as long as
//!   any manager that met it may hold, by whatever terms (G1). Until such a manager has met it, the terms of several that open
//!   the namespace for the first time are put in an order, so that one of these is admitted. The terms of a server that had a
//!   floor are firm.
//! - **redis.quorum.recovery-8** A decision about one episode has no effect in a later one (G1): each has a random id, which is
//!   the same in two readings, the clocks that were written down, and the request that ends it.

use std::time::Duration;

use leasehold_core::clock::Moment;

use super::Size;
use super::proposal_bound::furthest;
use crate::quorum::agreed::Agreed;

/// A reign and its clock.
pub(crate) type Clock = (String, u64);

/// A server's knowledge of itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Standing {
    /// Its reign: another one after each start of its process, and after each promotion.
    pub(crate) run: String,
    /// Since when it is or was blank.
    pub(crate) episode: String,
    /// Whether it knows all that it ever did.
    pub(crate) whole: bool,
    /// Whether it did in an earlier reign, and has the data of that.
    pub(crate) claims: bool,
    /// Its id, which copies of its data share.
    pub(crate) id: String,
    /// Whether it ever had a floor, or was met together with a server that had.
    pub(crate) is_used: bool,
    /// The largest number it knows of.
    pub(crate) max: u64,
    /// Its clock, in answer to a request that was sent then.
    pub(crate) clock: u64,
    pub(crate) sent_at: Moment,
    /// For how long its process has been up, at least.
    pub(crate) up_for: Duration,
    /// The clocks of several reigns when this one was first met.
    pub(crate) since: Vec<Clock>,
    /// The longest pause of managers that met it and may hold by other terms.
    pub(crate) pause: Duration,
    pub(crate) terms: String,
    /// The episodes that were blank at one moment, its own included, if a clock stood for the numbers of that quorum.
    pub(crate) beside: Vec<String>,
}

/// From when the pause of a blank server counts, as a second reading writes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Met {
    /// As the first reading has found it.
    pub(crate) episode: String,
    /// The clocks that were written down before.
    pub(crate) since: Vec<Clock>,
    pub(crate) clocks: Vec<Clock>,
    pub(crate) is_used: bool,
}

/// With this a server may vote again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recovered {
    /// The number above which it counts.
    pub(crate) floor: u64,
    /// As [`Standing::beside`].
    pub(crate) beside: Vec<String>,
    /// Whether another server has its id.
    pub(crate) is_copy: bool,
}

/// redis.quorum.recovery-5: for each server, after the first reading of all has ended at `now`; nothing if too few answer.
pub(crate) fn met(size: Size, now: Moment, first: &[Option<Standing>]) -> Vec<Option<Met>> {
    let at_most = |standing: &Standing| {
        let since = u64::try_from(now.since(standing.sent_at).as_micros()).unwrap_or(u64::MAX);
        (standing.run.clone(), standing.clock.saturating_add(since))
    };
    let clocks: Vec<_> = first.iter().flatten().map(at_most).collect();
    let is_used = first.iter().flatten().any(|standing| standing.is_used);
    let met = |(at, own): (usize, &Option<Standing>)| {
        let own = own.as_ref().filter(|_| clocks.len() >= size.quorum)?;
        // A manager that reaches too few of the clocks must not erase them for one that reaches them.
        let counts = || own.since.is_empty() || floor_of(size, at, first, first).is_some();
        let begins = shown(own, first).is_none() && counts();
        let clocks = if begins { &clocks } else { &own.since };
        let (episode, since, clocks) = (own.episode.clone(), own.since.clone(), clocks.clone());
        let is_due = !own.whole && (begins || is_used && !own.is_used);
        is_due.then_some(Met { episode, since, clocks, is_used })
    };
    first.iter().enumerate().map(met).collect()
}

/// How much of its pause the clocks show, in microseconds; `None` if none were written down, or too few of them go on.
fn shown(own: &Standing, look: &[Option<Standing>]) -> Option<u64> {
    let gone =
        |(run, then): &Clock| look.iter().flatten().find(|other| other.run == *run)?.clock.checked_sub(*then);
    let mut gone: Vec<_> = own.since.iter().map(gone).collect();
    gone.sort_unstable();
    gone.get(gone.len().saturating_sub(1) / 2).copied().flatten()
}

/// redis.quorum.recovery-5: how much of the pause of a blank server was left at a reading.
pub(crate) fn pause_left(agreed: Agreed, own: &Standing, look: &[Option<Standing>]) -> Duration {
    let is_new = look.iter().all(|other| other.as_ref().is_some_and(|other| !other.is_used));
    let up_for = look.iter().flatten().map(|other| other.up_for).min().filter(|_| is_new);
    let gone = Duration::from_micros(shown(own, look).unwrap_or_default()).max(up_for.unwrap_or_default());
    agreed.pause.max(own.pause).saturating_sub(gone)
}

/// The server whose terms differ: whole, or blank if no whole server has these terms.
pub(crate) fn who_differs(terms: &str, look: &[Option<Standing>]) -> Option<usize> {
    let is_ours = |standing: &Standing| standing.terms == terms;
    let is_known = look.iter().flatten().any(|standing| standing.whole && is_ours(standing));
    let differs = |standing: &Standing| !is_ours(standing) && (standing.whole || !is_known);
    look.iter().position(|standing| standing.as_ref().is_some_and(differs))
}

/// The floor of `server`, from two readings of all servers, one after the other; `None` while it pauses, and while too few
/// answer. It is installed only if the server is as the first reading has found it: its pause may have become longer since.
pub(crate) fn recovered(
    agreed: Agreed,
    server: usize,
    first: &[Option<Standing>],
    second: &[Option<Standing>],
) -> Option<Recovered> {
    let own = blank_since(server, first, second)?;
    // redis.quorum.recovery-6
    let answered = second.iter().flatten().count();
    if agreed.trusts_disks && own.claims && !is_copy(own, second) && answered == agreed.size.servers {
        let (floor, beside) = (largest(second)?, own.beside.clone());
        return Some(Recovered { floor, beside, is_copy: false });
    }
    // redis.quorum.recovery-1; its pause had ended before the others answered.
    if !pause_left(agreed, own, first).is_zero() {
        return None;
    }
    floor_of(agreed.size, server, first, second)
}

/// The result of two readings for one blank server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blank {
    /// It votes from now on.
    Restored,
    /// It could vote, but the request failed, or another manager has met it meanwhile.
    Refused,
    /// For so long; zero if it has paused, and too few others answer.
    Pauses(Duration),
}

/// How long to wait before the next two readings; `None` if no server is left to recover. `may_pass` if a server refuses for
/// now.
pub(crate) fn look_again(blank: &[Blank], may_pass: bool) -> Option<Duration> {
    let wait = |blank: &Blank| match blank {
        Blank::Restored => None,
        Blank::Refused => Some(Duration::ZERO),
        Blank::Pauses(left) => Some(*left),
    };
    let next = blank.iter().filter_map(wait).chain(may_pass.then_some(Duration::ZERO)).min();
    // The others have to know soon that the namespace is used.
    if blank.contains(&Blank::Restored) { next.map(|_| Duration::ZERO) } else { next }
}

/// A server that is blank in both readings, in the same episode, was so at the moment between them.
fn blank_since<'s>(
    at: usize,
    first: &'s [Option<Standing>],
    second: &[Option<Standing>],
) -> Option<&'s Standing> {
    let (before, after) = (first.get(at)?.as_ref()?, second.get(at)?.as_ref()?);
    Some(before).filter(|_| before.episode == after.episode && !before.whole && !after.whole)
}

fn largest(look: &[Option<Standing>]) -> Option<u64> {
    look.iter().flatten().map(|standing| standing.max).max()
}

fn is_copy(own: &Standing, look: &[Option<Standing>]) -> bool {
    look.iter().flatten().filter(|other| !own.id.is_empty() && other.id == own.id).count() > 1
}

/// The floor of a blank server that has paused; `None` while too few answer.
fn floor_of(
    size: Size,
    server: usize,
    first: &[Option<Standing>],
    second: &[Option<Standing>],
) -> Option<Recovered> {
    let own = blank_since(server, first, second)?;
    let answered = || second.iter().flatten();
    let (floor, is_copy) = (largest(second)?, is_copy(own, second));
    let recovered = |floor, beside| Some(Recovered { floor, beside, is_copy });
    let whole = answered().filter(|standing| standing.whole).count();
    if whole >= size.blocking() {
        return recovered(floor, Vec::new());
    }
    let floor = furthest(answered().map(|standing| standing.clock))?.max(floor);
    let blank_since = |at| blank_since(at, first, second);
    let blank: Vec<_> =
        (0..size.servers).filter_map(blank_since).map(|standing| standing.episode.clone()).collect();
    if blank.len() >= size.quorum {
        return recovered(floor, blank);
    }
    // redis.quorum.recovery-4
    let is_enough = |beside: &&Vec<String>| {
        let since = blank.iter().filter(|episode| beside.contains(episode)).count();
        beside.contains(&own.episode) && whole + since >= size.blocking()
    };
    let beside = answered().map(|standing| &standing.beside).find(is_enough)?;
    recovered(floor, beside.clone())
}
