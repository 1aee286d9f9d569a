//! When a server that may have forgotten votes and numbers may vote again.
//!
//! A server that came up again is *blank*. It pauses until it has been up for as long as the longest lease: by then nobody
//! holds on the strength of what it said before. Then somebody tells it the largest number that the others know. As
//! many others as every quorum has one of know every number that was confirmed. Where as many are blank as make a quorum, nobody
//! may know: a namespace that nobody has used, or an accident. Their pauses end one after the other, so the first that is
//! told keeps who was blank beside it.
//!
//! # Invariants
//! - **redis.quorum.recovery-1** A blank server gives no vote before its pause is over, whatever the others know (G1): what they
//!   knew when they were asked may have grown since, by requests that were on their way.
//! - **redis.quorum.recovery-2** It is told the largest number that so many others know after that pause, and counts above
//!   it (G3).
//! - **redis.quorum.recovery-3** Only where a quorum was blank at one moment, which two looks in a row show, its clock stands
//!   for the numbers that were forgotten.
//! - **redis.quorum.recovery-4** So it does for the others of that quorum that are blank since: without their votes, what was
//!   confirmed after that moment is known to as many of the rest as every quorum of the rest has one of (G3).

use std::time::Duration;

use super::Size;

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Standing {
    /// Which run of its process; another one after each start.
    pub(crate) run: String,
    /// Whether it knows all that it ever did.
    pub(crate) whole: bool,
    /// The largest number it knows of.
    pub(crate) max: u64,
    /// How much of the pause after its start is left.
    pub(crate) pause_left: Duration,
    /// The runs that were blank at one moment, a quorum and itself among them, when its clock had to stand for what they
    /// had forgotten.
    pub(crate) beside: Vec<String>,
}

/// What a server is told when it may vote again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Above which number it is to count.
    pub(crate) floor: u64,
    /// As [`Standing::beside`].
    pub(crate) beside: Vec<String>,
}

/// What `server` is told, from two looks at all servers, one after the other; `None` while it pauses, and while too few
/// answer.
pub(crate) fn recovered(
    size: Size,
    server: usize,
    first: &[Option<Standing>],
    second: &[Option<Standing>],
) -> Option<Recovered> {
    // Blank in both looks, and in the same run, it was so at the moment between them.
    let blank_since = |at: usize| match (first.get(at), second.get(at)) {
        (Some(Some(before)), Some(Some(after))) if before.run == after.run => {
            (!before.whole && !after.whole).then_some(before)
        }
        _ => None,
    };
    // redis.quorum.recovery-1; its pause was over before the others were asked.
    let own = blank_since(server).filter(|own| own.pause_left.is_zero())?;
    let answered = || second.iter().flatten();
    let floor = answered().map(|standing| standing.max).max()?;
    let whole = answered().filter(|standing| standing.whole).count();
    if whole >= size.blocking() {
        return Some(Recovered { floor, beside: Vec::new() });
    }
    let blank: Vec<_> =
        (0..size.servers).filter_map(blank_since).map(|standing| standing.run.clone()).collect();
    if blank.len() >= size.quorum {
        return Some(Recovered { floor, beside: blank });
    }
    // redis.quorum.recovery-4
    let is_enough = |beside: &&Vec<String>| {
        let since = blank.iter().filter(|run| beside.contains(run)).count();
        beside.contains(&own.run) && whole + since >= size.blocking()
    };
    let beside = answered().map(|standing| &standing.beside).find(is_enough)?;
    Some(Recovered { floor, beside: beside.clone() })
}
