//! Drivers that are wrong in one way each.

/// What a driver might get wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    /// A request without answer counts as not carried out.
    TrustsSilence,
    /// A request that was refused for want of room counts as not carried out.
    TrustsARefusal,
    /// Moving the epoch is taken for done when its answer was lost.
    SettlesUnconfirmed,
    /// A copy is taken for bound to an epoch before its own.
    SettlesByAnOlderEpoch,
    /// A deletion is taken for done when its answer was lost.
    DeletesUnconfirmed,
    /// Requests are not bound to the epoch.
    IgnoresTheEpoch,
    /// Whatever entry is there is taken for this acquisition's.
    AdoptsAnything,
    /// The watch on the queue is trusted though it was opened after the answer.
    BackdatesTheWatch,
    /// So is a watch on a key.
    BackdatesAKeyWatch,
    /// A watch that is opened after the answer covers it if it names an earlier revision, and goes on with what
    /// the one before it told.
    CoversByNumber,
    /// A cut stream is not noticed: the watch goes on with a gap.
    MissesTheGap,
    /// A late deletion of an earlier bearer of the key counts.
    CountsOldDeletions,
    /// One older entry is taken for all of them once the watch on the queue stands.
    KeepsTheWitness,
    /// The end of the blocking set is enough to hold: the last client in the queue reads nothing.
    WitnessGrants,
    /// What the watch on a key tells takes it off what the watch on the queue has to tell of.
    CountsKeyWatches,
    /// The watch that lets us hold does not tell of our own end.
    HoldsWithoutItself,
    /// Whoever hears nothing for long looks at its own entry only.
    ChecksItselfOnly,
    /// Whoever hears nothing for long takes a key for the bearer that it had.
    ChecksByName,
    /// A deletion from before the hold counts as one of the hold.
    HearsOldDeletions,
    /// An entry that comes first is held whatever was heard of it.
    GrantsWithoutTheBook,
    /// What a full server holds goes only when there is room to move the epoch.
    WaitsForRoom,
    /// An acquisition that has ended with an error owes no clean-up.
    OwesNothing,
    /// What was found before the epoch moved counts after that.
    LooksOnce,
    /// A reader waits for another reader.
    ReaderWatchesPredecessor,
    /// A permit waits for its predecessor alone.
    PermitWatchesPredecessor,
    /// Readers do not count among permits.
    ReaderIgnoresShared,
    /// A reader sees no writer behind the readers it is shown.
    ReaderSeesReadersOnly,
    /// The smallest capacity does not count, but one's own.
    OwnCapacity,
    /// Whoever is not shown is taken for somebody who holds as we would.
    TakesAllForAlike,
    /// What is shown is taken for all that is asked for.
    ListsSome,
    /// A watch that is waited for is closed to make room for another.
    EvictsTheWitness,
    /// A try is put where it saw room, whatever came after that.
    EntersAfterOthers,
}

impl Mutant {
    /// They go wrong with exclusive entries, too.
    pub(super) const OF_ALL_MODES: [Self; 23] = [
        Self::TrustsSilence,
        Self::TrustsARefusal,
        Self::SettlesUnconfirmed,
        Self::SettlesByAnOlderEpoch,
        Self::DeletesUnconfirmed,
        Self::IgnoresTheEpoch,
        Self::AdoptsAnything,
        Self::BackdatesTheWatch,
        Self::BackdatesAKeyWatch,
        Self::CoversByNumber,
        Self::MissesTheGap,
        Self::CountsOldDeletions,
        Self::KeepsTheWitness,
        Self::WitnessGrants,
        Self::CountsKeyWatches,
        Self::HoldsWithoutItself,
        Self::ChecksItselfOnly,
        Self::ChecksByName,
        Self::HearsOldDeletions,
        Self::GrantsWithoutTheBook,
        Self::WaitsForRoom,
        Self::OwesNothing,
        Self::LooksOnce,
    ];

    /// They go wrong with entries that share.
    pub(super) const OF_SHARING: [Self; 9] = [
        Self::ReaderWatchesPredecessor,
        Self::PermitWatchesPredecessor,
        Self::ReaderIgnoresShared,
        Self::ReaderSeesReadersOnly,
        Self::OwnCapacity,
        Self::TakesAllForAlike,
        Self::ListsSome,
        Self::EvictsTheWitness,
        Self::EntersAfterOthers,
    ];
}
