//! Steps of a move: carries out `Transition`, and waits.

use std::time::Duration;

use leasehold_core::backend::ledger::Written;
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Error, ErrorKind, Result};

use super::{Admin, Census, Look, NOT_BEGUN, Progress, Status, Steps, not_yet, status};
use crate::protocol::record::{MoveRecord, millis};
use crate::protocol::records::{Read, RecordLocation, in_store};
use crate::protocol::transition::{Task, Transition, Way};
use crate::protocol::{Pair, SIDES};

type Report<'a> = &'a mut (dyn FnMut(&Progress) + Send);

/// How many steps a walk takes: four times the whole way, so that of two walks in opposite directions one ends.
const MOST_STEPS: u32 = 16;

impl Admin {
    /// Goes on toward the new store. `told` is called with the blockers that the walk waits for.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`] when a blocker has not gone in time, naming it: the same call goes on later.
    /// [`ErrorKind::Protocol`] when a store has lost its data. As [`status`](Self::status); the store's.
    ///
    /// # Cancel safety
    ///
    /// A step that is left is completed by the next call, from any administrator.
    pub async fn advance(&self, options: &Steps, told: &mut (dyn FnMut(&Progress) + Send)) -> Result<Status> {
        self.walk(Way::Forth, options, told).await
    }

    /// Goes back toward the old store.
    ///
    /// # Errors
    ///
    /// As [`advance`](Self::advance).
    ///
    /// # Cancel safety
    ///
    /// As [`advance`](Self::advance).
    pub async fn rollback(
        &self,
        options: &Steps,
        told: &mut (dyn FnMut(&Progress) + Send),
    ) -> Result<Status> {
        self.walk(Way::Back, options, told).await
    }

    async fn walk(&self, way: Way, options: &Steps, told: Report<'_>) -> Result<Status> {
        let until = self.env.now() + options.wait;
        let mut goal = options.to;
        let mut walk = Walk { admin: self, way, options, until, to: None, taken: 0, told };
        // A request whose answer was lost is repeated once, however short the wait is.
        let mut lost_answer = false;
        loop {
            let (goal, error) = match walk.go_on(&mut goal).await {
                Ok(true) => return self.status().await,
                Ok(false) => continue,
                Err(error) => (walk.to, error),
            };
            let unknown = error.effect() == Effect::Unknown && !lost_answer;
            let waits = may_pass(&error) && self.env.now() < until;
            if !unknown && !waits {
                return Err(error);
            }
            lost_answer |= unknown;
            (walk.told)(&Progress { to: goal, blockers: vec![format!("{error:#}")] });
            self.pause().await;
        }
    }

    /// Between two readings while waiting.
    pub(super) async fn pause(&self) {
        let most = Duration::from_millis(250);
        self.env.sleep((self.env.timing().ttl / 60).min(most)).await;
    }
}

struct Walk<'a> {
    admin: &'a Admin,
    way: Way,
    options: &'a Steps,
    until: Moment,
    /// Where the step at hand leads.
    to: Option<Phase>,
    taken: u32,
    told: Report<'a>,
}

impl Walk<'_> {
    /// One step, if any is left; whether none is.
    async fn go_on(&mut self, goal: &mut Option<Phase>) -> Result<bool> {
        let look = self.admin.look().await;
        let place = self.place(&look)?;
        let next = match self.way {
            Way::Forth => place.after(),
            Way::Back => place.before(),
        };
        let goal = RecordLocation::At(*goal.get_or_insert(next)).rank();
        let is_there = match self.way {
            Way::Forth => place.rank() >= goal,
            Way::Back => place.rank() <= goal,
        };
        if is_there {
            return Ok(true);
        }
        self.to = Some(next);
        if self.taken >= MOST_STEPS {
            return Err(not_yet(
                "another administrator is moving in the opposite direction".to_owned(),
                self.options.wait,
            ));
        }
        if self.step().await? {
            self.taken += 1;
        } else {
            self.admin.pause().await;
        }
        Ok(false)
    }

    fn place(&self, look: &Look) -> Result<RecordLocation> {
        let records = look.records();
        records.of_one_move(&self.admin.names())?;
        let lost = records.lost().filter(|side| look.error(*side).is_none());
        match (records.place(), lost) {
            (_, Some(side)) => Err(records.loss(side)),
            (Some(place), None) => Ok(place),
            (None, None) => {
                let down = look.error(Side::Old).or_else(|| look.error(Side::New));
                Err(down.cloned().unwrap_or_else(|| not_yet(NOT_BEGUN.to_owned(), Duration::ZERO)))
            }
        }
    }

    /// Whether a foreign client may still use the old store, in words: a process met one, or that store shows one.
    async fn unquiet(&mut self, read: &Pair<Option<Read>>, down: Option<Error>) -> Result<Option<String>> {
        let mut plain = None;
        if down.is_none() {
            // A session with the old store's plain URL opens if the record that blocks it was lost.
            if read.kept(Side::Old).is_none() {
                return Ok(Some(read.loss(Side::Old).to_string()));
            }
            let census = self.admin.stores.old.census().await?;
            plain = status::foreign_sessions(&census, Side::Old, self.options.foreign_sessions);
        }
        if let Some(said) = plain.or_else(|| self.admin.noise(read, self.options.quiet_for)) {
            return Ok(Some(said));
        }
        match down {
            Some(error) if *error.kind() == ErrorKind::Unavailable => {
                let said = format!("cannot check the old store for sessions and foreign clients: {error:#}");
                if self.admin.env.now() < self.until {
                    return Ok(Some(said));
                }
                // An unavailable store does not block the end of the move for ever.
                (self.told)(&Progress { to: self.to, blockers: vec![said] });
                Ok(None)
            }
            Some(error) => Err(error),
            None if self.options.quiet_for.is_zero() => Ok(None),
            None => {
                let Pair { old, new } = &self.admin.stores;
                let Some(name) = old.held_by_foreign_client().await? else { return Ok(None) };
                new.note(&name).await?;
                Ok(Some(format!("a foreign client held `{name}` in the old store, just now")))
            }
        }
    }

    /// Whether it was taken. Otherwise another writer was first, and the records are read again.
    async fn step(&mut self) -> Result<bool> {
        let mut step = Transition::new(self.way);
        let mut read: Pair<Option<Read>> = Pair { old: None, new: None };
        let mut down: Pair<Option<Error>> = Pair { old: None, new: None };
        loop {
            match step.task() {
                Task::Read(side) => {
                    match self.admin.stores[side].read().await {
                        Ok(found) => read[side] = found,
                        Err(error) => down[side] = Some(error),
                    }
                    if side == Side::Old {
                        read.of_one_move(&self.admin.names())?;
                    }
                    step.read(Pair::each(|side| read.kept(side).map(Read::seen)));
                }
                Task::Measure(side) => step.measured(self.admin.stores[side].token_base().await?)?,
                Task::Conform { side, version } => {
                    if !self.conform(side, version, &read).await? {
                        return Ok(false);
                    }
                    step.done();
                }
                Task::Quiet => match self.unquiet(&read, down.old.take()).await? {
                    None => step.done(),
                    Some(said) => {
                        self.wait_for(vec![said]).await?;
                        return Ok(false);
                    }
                },
                Task::Raise { side, base } => {
                    self.admin.stores[side].raise_token_base(base).await?;
                    step.done();
                }
                Task::Write { side, expected, stand } => {
                    let Some(before) = read.live(side) else { return Ok(false) };
                    // A beginning may have been left before its last writes: they are of the old store's id (records-4).
                    let id = read.live(Side::Old).unwrap_or(before).record.id;
                    let live = SIDES.into_iter().filter_map(|side| read.live(side));
                    let restored = live.map(|read| read.record.restored).fold(1, u64::max);
                    let record = MoveRecord {
                        id,
                        stand,
                        restored,
                        since: millis(self.admin.env.wall_time()),
                        ..before.record.clone()
                    };
                    match self.admin.stores[side].write(Some(in_store(expected)), &record).await? {
                        Written::Done(version) => {
                            let written = read[side].insert(Read { version, record });
                            step.written(Some(written.seen().version));
                        }
                        Written::Conflict => return Ok(false),
                    }
                }
                Task::Done(_) => return Ok(true),
                Task::Unread(side) => return Err(down[side].take().unwrap_or_else(|| read.loss(side))),
            }
        }
    }

    /// Waits until every member at `side` acts by `version`, and no other session is there; whether that is still in force.
    async fn conform(&mut self, side: Side, version: u64, read: &Pair<Option<Read>>) -> Result<bool> {
        let begins_both = read.live(Side::Old).is_some_and(|read| read.record.stand.phase == Phase::Shadow);
        loop {
            let stores = &self.admin.stores;
            let census = stores[side].census().await?;
            let mut way = status::blockers(&census, side, version, self.options.foreign_sessions);
            if side == Side::New && begins_both {
                let old: Census = stores.old.census().await?;
                way.extend(self.admin.absent_from_new(Some(&old), Some(&census)));
            }
            if way.is_empty() {
                return Ok(true);
            }
            if stores[side].read().await?.is_none_or(|read| read.seen().version != version) {
                return Ok(false);
            }
            self.wait_for(way).await?;
        }
    }

    /// A pause, or that there is no time for one.
    async fn wait_for(&mut self, blockers: Vec<String>) -> Result<()> {
        let progress = Progress { to: self.to, blockers };
        if self.admin.env.now() >= self.until {
            return Err(not_yet(progress.to_string(), self.options.wait));
        }
        (self.told)(&progress);
        self.admin.pause().await;
        Ok(())
    }
}

/// Whether the store may answer later. A store that has ended the session opens another.
pub(super) fn may_pass(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Lost { .. })
}
