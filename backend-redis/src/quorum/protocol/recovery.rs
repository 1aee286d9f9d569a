//! When a server that may have forgotten votes and numbers may vote again.
//!
//! A server is *blank* from when the namespace first meets another reign of it: its process came up, it was promoted, it was
//! emptied, or another one has its address. Each time is an *episode*: a reign may have several. The server pauses for as long
//! as the longest lease: by then nobody holds on the strength of what it, or whichever stood in its place, said before. Then
//! somebody tells it the largest number that the others know. As many others as every quorum has one of know every number that
//! was confirmed. Where as many are blank as make a quorum, nobody may know: a namespace that nobody has used, or an accident.
//! Their pauses end one after the other, so the first that is told keeps which episodes were blank beside its own.
//!
//! # Invariants
//! - **redis.quorum.recovery-1** A blank server gives no vote before its pause is over, whatever the others know (G1): what they
//!   knew when they were asked may have grown since, by requests that were on their way.
//! - **redis.quorum.recovery-2** It is told the largest number that so many others know after that pause, and counts above
//!   it (G3).
//! - **redis.quorum.recovery-3** Only where a quorum was blank at one moment, which two looks in a row show, the clocks of
//!   the servers stand for the numbers that were forgotten: the furthest of those that are not far from their median.
//! - **redis.quorum.recovery-4** So it does for the others of that quorum that are blank since: without their votes, what was
//!   confirmed after that moment is known to as many of the rest as every quorum of the rest has one of (G3).
//! - **redis.quorum.recovery-5** A pause counts from when a manager first met the reign, by the median of the clocks of the
//!   servers that answered then, so that one clock that is stepped ends none (G1). How long a process has been up says nothing
//!   of the namespace. It counts only where all servers answer, and none was ever told anything or met beside one that was,
//!   however late in its pause. A
//!   clock that is missing or was set back shows no time. Where the median shows none, the clocks are written down anew by a look
//!   that could have ended the pause.
//! - **redis.quorum.recovery-6** A server comes up with its own data if its disk is trusted, it was never promoted since it was
//!   last whole, and all others answer and none of them has its id: then it has forgotten nothing, and does not pause.
//! - **redis.quorum.recovery-7** A blank server keeps the terms of the first manager that meets it, and pauses for as long as
//!   any manager that met it may hold, by whatever terms (G1). Until such a manager has met it, the terms of several that open
//!   the namespace for the first time are put in an order, so that one of these is let in. Those of a server that was ever told
//!   anything are firm.
//! - **redis.quorum.recovery-8** What was decided about one episode has no effect in a later one (G1): each has a random id,
//!   which two looks, the clocks that were written down, and the request that ends it have in common.

use std::time::Duration;

use leasehold_core::clock::Moment;

use super::Size;
use super::horizon::furthest;
use crate::quorum::agreed::Agreed;

/// What the clock of a reign was.
pub(crate) type Clock = (String, u64);

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Standing {
    /// Which reign of it: another one after each start of its process, and after each promotion.
    pub(crate) run: String,
    /// Since when it is or was blank.
    pub(crate) episode: String,
    /// Whether it knows all that it ever did.
    pub(crate) whole: bool,
    /// Whether it did in an earlier reign, and has what that wrote.
    pub(crate) claims: bool,
    /// Who it is: copies of its data say the same.
    pub(crate) id: String,
    /// Whether it was ever told what it may have forgotten, or met beside a server that was.
    pub(crate) is_used: bool,
    /// The largest number it knows of.
    pub(crate) max: u64,
    /// Its clock, in answer to what was sent then.
    pub(crate) clock: u64,
    pub(crate) sent_at: Moment,
    /// For how long its process has been up, at least.
    pub(crate) up_for: Duration,
    /// What the clocks of several reigns were when this one was first met.
    pub(crate) since: Vec<Clock>,
    /// The longest pause of managers that met it and may hold by other terms.
    pub(crate) pause: Duration,
    /// What was agreed on.
    pub(crate) terms: String,
    /// The episodes that were blank at one moment, a quorum and itself among them, when its clock had to stand for what they
    /// had forgotten.
    pub(crate) beside: Vec<String>,
}

impl Standing {
    /// Whether no manager may hold by the terms that the server keeps, as far as it knows.
    pub(crate) fn are_terms_proposed(&self) -> bool {
        self.id.is_empty() && self.pause.is_zero()
    }
}

/// What a second look tells a blank server: from when its pause counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Met {
    /// As the first look has found it.
    pub(crate) episode: String,
    /// What was written down of the clocks before.
    pub(crate) since: Vec<Clock>,
    pub(crate) clocks: Vec<Clock>,
    pub(crate) is_used: bool,
}

/// What a server is told when it may vote again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recovered {
    /// Above which number it is to count.
    pub(crate) floor: u64,
    /// As [`Standing::beside`].
    pub(crate) beside: Vec<String>,
    /// Whether another server has its id.
    pub(crate) is_copy: bool,
}

/// redis.quorum.recovery-5: what each server is told when the first look at all of them has ended at `now`. Nothing where too
/// few answer.
pub(crate) fn met(size: Size, now: Moment, first: &[Option<Standing>]) -> Vec<Option<Met>> {
    let at_most = |standing: &Standing| {
        let since = u64::try_from(now.since(standing.sent_at).as_micros()).unwrap_or(u64::MAX);
        (standing.run.clone(), standing.clock.saturating_add(since))
    };
    let clocks: Vec<_> = first.iter().flatten().map(at_most).collect();
    let is_used = first.iter().flatten().any(|standing| standing.is_used);
    let met = |(at, own): (usize, &Option<Standing>)| {
        let own = own.as_ref().filter(|_| clocks.len() >= size.quorum)?;
        // A manager that cannot reach the witnesses must not erase them for one that can.
        let counts = || own.since.is_empty() || told(size, at, first, first).is_some();
        let begins = shown(own, first).is_none() && counts();
        let clocks = if begins { &clocks } else { &own.since };
        let (episode, since, clocks) = (own.episode.clone(), own.since.clone(), clocks.clone());
        let is_due = !own.whole && (begins || is_used && !own.is_used);
        is_due.then_some(Met { episode, since, clocks, is_used })
    };
    first.iter().enumerate().map(met).collect()
}

/// What the clocks show of the pause of a blank server, in microseconds; `None` if nothing was written down, or too few of
/// those go on.
fn shown(own: &Standing, look: &[Option<Standing>]) -> Option<u64> {
    let gone = |(run, then): &Clock| {
        let witness = look.iter().flatten().find(|other| other.run == *run)?;
        witness.clock.checked_sub(*then)
    };
    let mut gone: Vec<_> = own.since.iter().map(gone).collect();
    gone.sort_unstable();
    gone.get(gone.len().saturating_sub(1) / 2).copied().flatten()
}

/// redis.quorum.recovery-5: how much of the pause of a blank server was left at a look.
pub(crate) fn pause_left(agreed: Agreed, own: &Standing, look: &[Option<Standing>]) -> Duration {
    let is_new = look.iter().all(|other| other.as_ref().is_some_and(|other| !other.is_used));
    let up_for = look.iter().flatten().map(|other| other.up_for).min().filter(|_| is_new);
    let gone = Duration::from_micros(shown(own, look).unwrap_or_default()).max(up_for.unwrap_or_default());
    agreed.pause.max(own.pause).saturating_sub(gone)
}

/// The server whose terms are not ours: whole, or blank where no whole one has ours.
pub(crate) fn who_differs(terms: &str, look: &[Option<Standing>]) -> Option<usize> {
    let is_ours = |standing: &Standing| standing.terms == terms;
    let is_known = look.iter().flatten().any(|standing| standing.whole && is_ours(standing));
    let differs = |standing: &Standing| !is_ours(standing) && (standing.whole || !is_known);
    look.iter().position(|standing| standing.as_ref().is_some_and(differs))
}

/// What `server` is told, from two looks at all servers, one after the other; `None` while it pauses, and while too few
/// answer. It takes that only if it is as the first look has found it: its pause may have become longer since.
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
    // redis.quorum.recovery-1; its pause was over before the others were asked.
    if !pause_left(agreed, own, first).is_zero() {
        return None;
    }
    told(agreed.size, server, first, second)
}

/// The result of two looks for one blank server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blank {
    /// It votes from now on.
    Restored,
    /// It could vote, but the request failed, or another manager has met it meanwhile.
    Refused,
    /// For so long; zero if it has paused, and too few others answer.
    Pauses(Duration),
}

/// How long to wait before the next two looks; `None` if nothing is left to see to. `may_pass` if a server refuses for now.
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

/// Blank in both looks, and in the same episode, it was so at the moment between them.
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

/// What a blank server is told when it has paused; `None` while too few answer.
fn told(
    size: Size,
    server: usize,
    first: &[Option<Standing>],
    second: &[Option<Standing>],
) -> Option<Recovered> {
    let own = blank_since(server, first, second)?;
    let answered = || second.iter().flatten();
    let (floor, is_copy) = (largest(second)?, is_copy(own, second));
    let told = |floor, beside| Some(Recovered { floor, beside, is_copy });
    let whole = answered().filter(|standing| standing.whole).count();
    if whole >= size.blocking() {
        return told(floor, Vec::new());
    }
    let floor = furthest(answered().map(|standing| standing.clock))?.max(floor);
    let blank_since = |at| blank_since(at, first, second);
    let blank: Vec<_> =
        (0..size.servers).filter_map(blank_since).map(|standing| standing.episode.clone()).collect();
    if blank.len() >= size.quorum {
        return told(floor, blank);
    }
    // redis.quorum.recovery-4
    let is_enough = |beside: &&Vec<String>| {
        let since = blank.iter().filter(|episode| beside.contains(episode)).count();
        beside.contains(&own.episode) && whole + since >= size.blocking()
    };
    let beside = answered().map(|standing| &standing.beside).find(is_enough)?;
    told(floor, beside.clone())
}
