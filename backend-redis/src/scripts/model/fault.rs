//! What the model of the scripts can be made to do wrong.

/// What the scripts do wrong, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Who is granted in the queue has a sixth of its ttl, whatever its entry has.
    ShortHandOn,
    /// It has a sixth at least, however long that is.
    LongHandOn,
    /// Only the first in the queue is told when to ask.
    OnlyTheFirstAsks,
    /// Everybody is told to ask when the lease ends.
    AllAsk,
    /// An entry that leaves says nothing to the next one.
    LeavesSilently,
    /// Who has left the lock free before more ended entries does not go on.
    SweepsOnce,
    /// Who is first behind a stranger is told to ask as anybody is.
    NoPoll,
    /// Strangers are handed nothing on, and wait for ever.
    NoTurns,
    /// Who takes a lock again after a release to nobody hands nothing over.
    ForgetsTurns,
    /// A lock that a stranger holds is handed on.
    TakesOver,
    /// What is released is whoever's it is.
    ReleasesAnybodys,
    /// Whoever comes and fits holds, whoever waits.
    Overtakes,
    /// Who leaves the queue of a lock that is shared lets nobody in.
    LeavesUnsettled,
    /// All shares end with the first one.
    OneExpiry,
    /// Whoever comes goes by its own capacity.
    OwnCapacity,
    /// One is let in at a time.
    OneByOne,
    /// What a share weighed stays when its lease is over.
    ExpiredStays,
    /// The release of a share ends all.
    ReleasesAll,
    /// A renewal renews all shares.
    RenewsAll,
    /// A refresh lets nobody in beside those who share.
    RefreshUnsettled,
    /// Who is not first is told to ask when a share ends, and not when whoever is first does.
    OnlySharesEnd,
}
