//! What may happen in a world, and what may be broken in it.

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mutant {
    None,
    NoConfirm,
    NoPause,
    /// A server that came up pauses for the leases that the others know of when they are first asked.
    PausesByTheOthers,
    /// The others are asked before the pause of a server is over.
    AsksBeforeThePauseEnds,
    /// One that was not blank beside who was told by its clock is told as if it were.
    TellsWhoWasNotBlank,
    MinorityCounts,
    FloorNotCopied,
    DeadlineOfTheFastest,
    RenewsWhatIsGone,
    GivesBackLaterRounds,
    /// What others know is enough, and the clock stands for nothing.
    FloorWithoutTheClock,
    NotesNothing,
    /// A pause counts from the start of the process.
    PausesByUptime,
    /// A pause counts by the clock of the server that pauses.
    PausesByOneClock,
    /// The data of another server is taken for a server's own.
    TrustsCopies,
    /// A blank server does not pause for a hold by other terms.
    PausesByOnesOwnTerms,
    ExtendsWhilePausing,
    RunIsEpisode,
    ForgetsDistrust,
    /// A disk is trusted although its original may be away.
    TrustsWhileOneIsAway,
    /// A pause counts by the clocks that are left, however few.
    PausesByClocksThatAreLeft,
    /// A server that was met beside others that are used may be one of a new namespace.
    ForgetsThatItWasMet,
    ProposesFirmTerms,
    /// That other servers are used is told only with what the clocks are.
    TellsUseWithClocks,
}

/// What may happen in a world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) servers: usize,
    pub(super) clients: usize,
    /// How far apart clocks may be, in milliseconds.
    pub(super) apart: u64,
    /// Servers may come up again, at most so many of them blank at a time.
    pub(super) blank: usize,
    /// How many servers more than a majority have to agree.
    pub(super) spare: usize,
    /// Every write is on the disk, and trusted.
    pub(super) trusts: bool,
    pub(super) mutant: Mutant,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Pass(u64),
    Start(usize),
    /// Lets go, or gives up.
    Leave(usize),
    /// Dies with what it has.
    Die(usize),
    Renew(usize),
    /// Its votes are taken from it everywhere.
    Force(usize),
    /// Its vote is taken from it at one server.
    ForceAt(usize, usize),
    Deliver(usize),
    /// Lost, and the sender hears so.
    Lose(usize),
    /// The sender hears that it is lost, and it arrives later.
    Delay(usize),
    Save(usize),
    /// Comes up again, with its disk or without.
    Restart(usize, bool),
    /// Another one takes its address, which has been up for long, and knows nothing.
    Replace(usize),
    /// A replica of another one does, with what that one had when it was saved.
    Promote(usize, usize),
    /// It loses all keys.
    Empty(usize),
    /// Its clock is set forward while it is blank.
    Step(usize),
    /// One of two lookers looks at one more server for a blank one, or its look arrives late, if at all.
    Look(usize, bool),
    /// It looks at all servers for a blank one, twice, and tells that at once.
    Recover(usize),
    /// Only a quorum of them answers, from one of them on.
    RecoverWith(usize, usize),
}
