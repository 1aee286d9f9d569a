//! What the model of the scripts can be made to do wrong.

/// What the scripts do wrong, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A waiter that is granted the lock has a sixth of its ttl, whatever its entry has.
    ShortHandOn,
    /// It has a sixth at least, however long that is.
    LongHandOn,
    /// Only the first in the queue is answered when to refresh.
    OnlyTheFirstAsks,
    /// Every waiter is answered to refresh when the lease ends.
    AllAsk,
    /// An entry that leaves says nothing to the next one.
    LeavesSilently,
    /// A client that has left the lock free before more ended entries does not go on.
    SweepsOnce,
    /// The first waiter behind a foreign client does not poll.
    NoPoll,
    /// Foreign clients have no turns.
    NoTurns,
    /// A grant soon after a release without a waiter is not counted.
    ForgetsTurns,
    /// A lock that a foreign client holds is passed on.
    TakesOver,
    /// A release frees the lock of any holder.
    ReleasesAnybodys,
    /// A newcomer that fits holds, although others wait.
    Overtakes,
    /// An entry that leaves the queue of a shared lock lets no waiter in.
    LeavesUnsettled,
    /// All shares end with the first one.
    OneExpiry,
    /// Only the newcomer's own capacity counts.
    OwnCapacity,
    /// One is let in at a time.
    OneByOne,
    /// What a share weighed stays when its lease is over.
    ExpiredStays,
    /// The release of a share ends all.
    ReleasesAll,
    /// A renewal renews all shares.
    RenewsAll,
    /// A refresh lets no waiter in beside the sharers.
    RefreshUnsettled,
    /// A later waiter is answered to refresh when a share ends, and not when the first waiter's entry does.
    OnlySharesEnd,
    /// A share joins others while free locks are not granted.
    SharesInPause,
    /// A lease is renewed although the primary before may end it first.
    RenewsInLag,
}
