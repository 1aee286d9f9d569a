//! When a server that may have forgotten votes and numbers may vote again.
//!
//! A server that came up again is *blank* until somebody has told it what the others know. As many others as every
//! quorum has one of know every number that was confirmed and every lease that lives. Where as many are blank as make a quorum,
//! nobody may know: a namespace that nobody has used, or an accident.
//!
//! # Invariants
//! - **redis.quorum.recovery-1** A blank server is told the largest number that so many others know, and votes again when
//!   the leases that they know of are over (G1, G3).
//! - **redis.quorum.recovery-2** Only where a quorum was blank at one moment, which two looks in a row show, its clock stands
//!   for what was forgotten: then it pauses for a ttl after it came up.

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
    /// Until the last lease that it knows of is over.
    pub(crate) leases_left: Duration,
    /// How much of the pause after its start is left.
    pub(crate) pause_left: Duration,
}

/// What a blank server is to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Memory {
    /// Every number it counts is above this.
    pub(crate) floor: u64,
    /// It votes after that.
    pub(crate) pause: Duration,
}

/// What `server` is to know, from two looks at all servers, one after the other; `None` while too few answer.
pub(crate) fn recovered(
    size: Size,
    server: usize,
    first: &[Option<Standing>],
    second: &[Option<Standing>],
) -> Option<Memory> {
    let own = second.get(server)?.as_ref().filter(|own| !own.whole)?;
    let answered = || second.iter().flatten();
    let whole = || answered().filter(|standing| standing.whole);
    let memory = |known: &mut dyn Iterator<Item = &Standing>| {
        let known = known.fold((own.max, own.leases_left), |(max, left), one| {
            (max.max(one.max), left.max(one.leases_left))
        });
        Memory { floor: known.0, pause: known.1 }
    };
    if whole().count() >= size.blocking() {
        return Some(memory(&mut whole()));
    }
    // Blank in both looks, and in the same run, it was so at the moment between them.
    let is_blank = |at: usize| match (first.get(at), second.get(at)) {
        (Some(Some(before)), Some(Some(after))) => !before.whole && !after.whole && before.run == after.run,
        _ => false,
    };
    let blank = (0..size.servers).filter(|at| is_blank(*at)).count();
    (blank >= size.quorum && is_blank(server)).then(|| {
        let Memory { floor, pause } = memory(&mut answered());
        Memory { floor, pause: pause.max(own.pause_left) }
    })
}
