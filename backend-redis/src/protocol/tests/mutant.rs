//! What the contenders can be made to do wrong, and the network may do.

use crate::scripts::model::{Fault, Request};

/// What is done wrong, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    None,
    /// A message's grant counts from its arrival.
    CountsFromArrival,
    /// An answer counts from its arrival.
    CountsFromAnswer,
    /// A refresh counts although it was not answered.
    CountsUnanswered,
    /// A message is believed although a later answer knows better.
    BelievesOldNews,
    /// An entry that is over queues again by itself.
    QueuesAgain,
    /// A client that has lost its entry acquires again, and does not release the lost one.
    OwesNothing,
    /// A refresh of an entry that is gone enters it again.
    RefreshEnters,
    /// What is left behind is released once, whether that arrives or not.
    ReleasesOnce,
    /// A grant that is not wanted any more is not released.
    KeepsUnwanted,
    /// What a message says is asked of a holder is not looked up.
    BelievesAsks,
    /// Each message about a revocation is looked up at once.
    LooksUpEach,
    /// A message about a revocation that comes soon after another is passed over.
    LooksUpOnce,
    /// A message's counter is believed, however large it is.
    BelievesLeaps,
    /// One of the scripts ignores the pause after a restart, or the one that takes a lock by force does.
    ForgetsPause(Request),
    ForceForgets,
    /// After a reconnect the client does not ask which reign of the server it has reached.
    RunUnasked,
    /// A message of an earlier run counts although its connection was given up.
    CountsEarlierRuns,
    /// Only a server that knows of no reign pauses.
    PauseOnceForever,
    /// A reign is known by the server's process alone.
    RunOnly,
    /// The pause is as long as the leases, and not longer by what the primary before may go on.
    NoLag,
    /// A client takes a hold that is not extended for one that is.
    CountsUnextended,
    /// The pause is shorter than the leases.
    ShortPause,
    NoPause,
    /// A slot that has moved counts from when its new server is known.
    OriginOfServer,
    /// A slot that comes back to a server counts from when that server is known, whatever server it was at meanwhile.
    OriginOfReturn,
    /// A client that comes back to a server trusts what that one has told it before, and does not note where it is.
    KeepsProof,
    /// A client takes each other reign for a promotion: it does not ask whether the server before refuses the slot.
    TakesMovesForPromotions,
    /// A client takes each other reign for a move, once the slot has moved.
    TrustsEveryMove,
    /// A client forgets after a move that a primary before the promotion before may go on.
    ForgetsEarlierLag,
    Scripts(Fault),
}

/// How messages may travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    /// Each connection keeps its order, and loses everything that is in flight when it breaks.
    Ordered,
    /// Anything may be late, as between a connection that broke and the next.
    Any,
}
