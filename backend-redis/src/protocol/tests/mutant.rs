//! What the contenders can be made to do wrong, and the network may do.

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
    /// Whoever has lost its entry asks again, and what is left of it is nobody's business.
    OwesNothing,
    /// A hand-on leaves the next holder a sixth of the ttl, whatever its entry has.
    ShortHandOn,
    /// A refresh of an entry that is gone enters it again.
    RefreshEnters,
    /// What is left behind is released once, whether that arrives or not.
    ReleasesOnce,
    /// A grant that nobody wants any more is not given back.
    KeepsUnwanted,
    /// What a message says is asked of a holder is not looked up.
    BelievesAsks,
    /// Each message about a revocation is looked up at once.
    LooksUpEach,
    /// A message about a revocation that comes soon after another is passed over.
    LooksUpOnce,
    /// A message's counter is believed, however large it is.
    BelievesLeaps,
    /// A lock that a stranger holds is handed on.
    TakesOver,
    /// Whoever releases deletes what a stranger holds.
    ReleasesAnybodys,
}

/// How messages may travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    /// Each connection keeps its order, and loses everything that is in flight when it breaks.
    Ordered,
    /// Anything may be late, as between a connection that broke and the next.
    Any,
}
