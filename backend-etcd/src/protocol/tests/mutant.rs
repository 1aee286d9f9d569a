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
    /// A watch is said to stand since the last answer, though it was opened later.
    BackdatesTheWatch,
    /// A cut stream is not noticed: the watch goes on with a gap.
    MissesTheGap,
    /// Deletions are told by name only: later entries count as older ones.
    CountsEverything,
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
}

impl Mutant {
    pub(super) const ALL: [Self; 15] = [
        Self::TrustsSilence,
        Self::TrustsARefusal,
        Self::SettlesUnconfirmed,
        Self::SettlesByAnOlderEpoch,
        Self::DeletesUnconfirmed,
        Self::IgnoresTheEpoch,
        Self::AdoptsAnything,
        Self::BackdatesTheWatch,
        Self::MissesTheGap,
        Self::CountsEverything,
        Self::HearsOldDeletions,
        Self::GrantsWithoutTheBook,
        Self::WaitsForRoom,
        Self::OwesNothing,
        Self::LooksOnce,
    ];
}
