//! The administration of a move: how far it is, one step forth or back, and the remedies.
//!
//! | part | is |
//! |---|---|
//! | `store` | one of the two stores, used without acquiring locks |
//! | `walk` | steps: the I/O around the pure `Transition` |
//! | `remedy` | the remedies after a loss of data, and the end of a move |
//! | `status` | the report |
//!
//! # Invariants
//! - **admin-1** Only what `Transition` decides is written, at the version that it read. The remedies are the exception: they
//!   are for when no process takes part.
//! - **admin-2** A call that was left anywhere is completed by the next one, from any administrator.

mod remedy;
mod status;
mod store;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures_util::future::join;
use leasehold_core::backend::StoreConfig;
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::{Env, Error, ErrorKind, Result};

pub use status::{MemberStatus, Progress, RecordStatus, Status, StoreStatus};

use self::store::{Census, Store};
use crate::Migration;
use crate::config::names;
use crate::protocol::member::{Kind, MemberEntry};
use crate::protocol::record::millis;
use crate::protocol::records::{Read, RecordLocation};
use crate::protocol::{Pair, SIDES};

/// Administers a move between two stores. It takes no locks, and several may be at work at the same time.
#[derive(Debug)]
pub struct Admin {
    env: Env,
    stores: Pair<Store>,
}

/// How far to go, and for how long.
#[derive(Clone, Debug)]
#[must_use = "the steps are taken by `Admin::advance`"]
pub struct Steps {
    to: Option<Phase>,
    wait: Duration,
    quiet_for: Duration,
    foreign_sessions: usize,
}

impl Default for Steps {
    fn default() -> Self {
        Self { to: None, wait: Duration::ZERO, quiet_for: Self::QUIET_FOR, foreign_sessions: 0 }
    }
}

impl Steps {
    /// The default of [`quiet_for`](Self::quiet_for).
    pub const QUIET_FOR: Duration = Duration::from_secs(24 * 60 * 60);

    /// One step, without waiting for a process.
    pub fn one() -> Self {
        Self::default()
    }

    /// Every step up to this phase.
    pub fn to(mut self, phase: Phase) -> Self {
        self.to = Some(phase);
        self
    }

    /// Waits for that long, in all, for members to act by a record, and for stores that cannot be reached.
    pub fn wait(mut self, most: Duration) -> Self {
        self.wait = most;
        self
    }

    /// How long `drain` must have lasted without a foreign client in the old store before `new` begins. With [`Duration::ZERO`]
    /// no foreign client is searched for, but the record of that store is read and its plain sessions are counted. If it cannot
    /// be reached for as long as [`wait`](Self::wait), `new` begins without that.
    pub fn quiet_for(mut self, at_least: Duration) -> Self {
        self.quiet_for = at_least;
        self
    }

    /// This many sessions that take no part do not block a step: the caller vouches for them. Their tokens, and in
    /// the new store their exclusion, rest on that. The number holds for each store and each step anew. From `drain` to `new`
    /// it is sessions of the old store: nothing excludes them from then on.
    pub fn foreign_sessions(mut self, allowed: usize) -> Self {
        self.foreign_sessions = allowed;
        self
    }
}

/// A reading of both stores; each may be unavailable.
#[derive(Debug)]
struct Look {
    reads: Pair<Result<Option<Read>>>,
}

impl Look {
    /// The records that could be read.
    fn records(&self) -> Pair<Option<Read>> {
        Pair::each(|side| self.reads[side].as_ref().ok().cloned().flatten())
    }

    fn error(&self, side: Side) -> Option<&Error> {
        self.reads[side].as_ref().err()
    }

    /// Where the move is. An unavailable store hides nothing that its record would change: in whatever phase the new store's
    /// record decides, the old one's says `drain`.
    fn place(&self) -> Option<RecordLocation> {
        self.records().place()
    }
}

impl Migration {
    /// Returns an administrator of this move. Opens both stores; a store that is unavailable, or refuses the administrator, is
    /// opened at its next request. `env` is that of its sessions; a repair counts locks as expired after its ttl.
    ///
    /// # Errors
    ///
    /// A store's that will never do, such as [`ErrorKind::Unsupported`] if its locks cannot be moved.
    ///
    /// # Cancel safety
    ///
    /// A session that was opened already ends with its lease.
    pub async fn admin(&self, env: Env) -> Result<Admin> {
        let admin = Admin::between(&self.stores, env);
        let (old, new) = join(admin.stores.old.begin(), admin.stores.new.begin()).await;
        for opened in [old, new] {
            let later = |error: &Error| matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Denied);
            if let Some(error) = opened.err().filter(|error| !later(error)) {
                // The error says more than an error of ending the sessions would.
                let _closed = admin.close().await;
                return Err(error);
            }
        }
        Ok(admin)
    }
}

impl Admin {
    /// An administrator of the move between these two that has sent no request yet.
    pub(crate) fn between(configs: &Pair<Arc<dyn StoreConfig>>, env: Env) -> Self {
        let stores = Pair::each(|side| Store::new(side, Arc::clone(&configs[side]), &env));
        Self { env, stores }
    }

    /// How far the move is. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] and [`ErrorKind::Misuse`] when the stores' records are not of one move from the one to the
    /// other; the store's when neither can be read. A single unavailable store is part of the answer.
    pub async fn status(&self) -> Result<Status> {
        let look = self.look().await;
        if let (Some(error), Some(_)) = (look.error(Side::Old), look.error(Side::New)) {
            return Err(error.clone());
        }
        look.records().of_one_move(&self.names())?;
        let (mut census, mut unread) = (Pair::default(), Vec::new());
        for side in SIDES.into_iter().filter(|side| look.error(*side).is_none()) {
            match self.stores[side].census().await {
                Ok(found) => census[side] = Some(found),
                Err(error) => unread.push(format!("{error:#}")),
            }
        }
        let (next, mut blockers) = self.outlook(&look, &census);
        blockers.extend(unread);
        let of = |side: Side| {
            let read = look.reads[side].as_ref().map(Option::as_ref);
            StoreStatus::of(self.stores[side].at(), read, census[side].as_ref())
        };
        Ok(Status {
            phase: look.place().map(RecordLocation::phase),
            old: of(Side::Old),
            new: of(Side::New),
            members: members(&look, &census),
            next,
            blockers,
        })
    }

    /// Ends the sessions with both stores. An unconfirmed end comes with its lease.
    ///
    /// # Errors
    ///
    /// That of the first store that did not confirm.
    pub async fn close(self) -> Result<()> {
        let (old, new) = (self.stores.old.close().await, self.stores.new.close().await);
        old.and(new)
    }

    async fn look(&self) -> Look {
        // The new store first: whatever its record decides then is blocked in the old one.
        let new = self.stores.new.read().await;
        let old = self.stores.old.read().await;
        Look { reads: Pair { old, new } }
    }

    /// The names of the two namespaces.
    fn names(&self) -> Pair<String> {
        names(|side| &*self.stores[side].config)
    }

    /// The next step in words, and its blockers.
    fn outlook(&self, look: &Look, census: &Pair<Option<Census>>) -> (String, Vec<String>) {
        let records = look.records();
        let down = SIDES.into_iter().filter_map(|side| {
            look.error(side).map(|error| format!("cannot read the {} store: {error:#}", side.word()))
        });
        let mut way: Vec<_> = down.collect();
        let Some(place) = records.place() else {
            let next = match records.lost().filter(|side| look.error(*side).is_none()) {
                Some(side) => records.loss(side).to_string(),
                None if way.is_empty() => NOT_BEGUN.to_owned(),
                None => "unknown: it depends on the other store's record".to_owned(),
            };
            return (next, way);
        };
        if let Some(side) = records.lost().filter(|side| look.error(*side).is_none()) {
            way.push(records.loss(side).to_string());
        }
        let needs = |side: Side| {
            let version = records.live(side).map(|read| read.seen().version);
            let found = version.zip(census[side].as_ref());
            found.map_or_else(Vec::new, |(version, census)| status::blockers(census, side, version, 0))
        };
        let next = match place {
            RecordLocation::At(Phase::Old) => {
                "`migrate advance` to `shadow`: processes check the record at each grant".to_owned()
            }
            RecordLocation::At(Phase::Shadow) => {
                way.extend(needs(Side::Old));
                way.extend(needs(Side::New));
                way.extend(self.absent_from_new(census.old.as_ref(), census.new.as_ref()));
                "`migrate advance` to `both`: locks are acquired in both stores".to_owned()
            }
            RecordLocation::At(Phase::Both) => {
                way.extend(needs(Side::Old));
                "`migrate advance` to `drain`: the new store decides".to_owned()
            }
            RecordLocation::Barred => {
                "`migrate advance` or `migrate rollback`: a step was interrupted".to_owned()
            }
            RecordLocation::At(Phase::Drain) => {
                way.retain(|_| look.error(Side::New).is_some());
                let is_open = look.error(Side::Old).is_none() && records.kept(Side::Old).is_none();
                way.extend(is_open.then(|| records.loss(Side::Old).to_string()));
                way.extend(
                    census.old.as_ref().and_then(|census| status::foreign_sessions(census, Side::Old, 0)),
                );
                way.extend(self.noise(&records, Steps::QUIET_FOR));
                "`migrate advance` to `new`: the old store is no longer used".to_owned()
            }
            RecordLocation::At(Phase::New) => {
                way.retain(|_| look.error(Side::New).is_some());
                "the locks have moved: deploy the new store's URL, then `migrate clean`".to_owned()
            }
        };
        (next, way)
    }

    /// Members of the old store's list that the new one's does not have: in `both` they would be granted nothing.
    fn absent_from_new(&self, old: Option<&Census>, new: Option<&Census>) -> Vec<String> {
        let (Some(old), Some(new)) = (old, new) else { return Vec::new() };
        let there: BTreeSet<_> = new.members.iter().map(|(id, _)| id).collect();
        let absent = old.members.iter().filter(|(id, _)| !there.contains(id));
        let processes =
            absent.filter_map(|(_, member)| member.as_ref().filter(|one| one.kind == Kind::Process));
        let said = processes.map(|member| {
            let why = member.trouble.as_ref().map(|trouble| format!(": {trouble}")).unwrap_or_default();
            format!("{} has not reached the new store{why}", status::called(member))
        });
        status::few(said.collect())
    }

    /// Whether foreign clients may still use the old store, in words.
    fn noise(&self, records: &Pair<Option<Read>>, quiet_for: Duration) -> Option<String> {
        // An administrator whose clock is behind that of the record must be able to go on, too.
        if quiet_for.is_zero() {
            return None;
        }
        let record = &records.live(Side::New)?.record;
        let (now, wanted) =
            (millis(self.env.wall_time()), u64::try_from(quiet_for.as_millis()).unwrap_or(u64::MAX));
        if record.unquiet(now, wanted) == 0 {
            return None;
        }
        let last = record.last_met();
        // A clock that is ahead has written a later one.
        let since = last.map_or(record.since, |met| met.at).min(now);
        // A point in time, not an age: the text changes only with the cause.
        let at =
            format!("at {}", humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(since)));
        let what = last.map_or_else(
            || format!("`drain` began {at}"),
            |met| format!("a foreign client held `{}` in the old store {at}", met.name),
        );
        let quiet_for = humantime::format_duration(quiet_for);
        Some(format!("{what}: `--quiet-for` requires {quiet_for} without a foreign client"))
    }
}

/// A line for each process that takes part, whichever lists it is in.
fn members(look: &Look, census: &Pair<Option<Census>>) -> Vec<MemberStatus> {
    let records = look.records();
    let versions = Pair::each(|side| records.live(side).map(|read| read.seen().version));
    let listed = |side: Side| census[side].iter().flat_map(|census| &census.members);
    // Every client that may write to the store can make many.
    let known = Pair::each(|side| -> BTreeMap<_, _> {
        listed(side).map(|(id, member)| (id, member.as_ref())).collect()
    });
    let find = |side: Side, id| -> Option<&MemberEntry> { known[side].get(id).copied().flatten() };
    let only_new = listed(Side::New).filter(|(id, _)| !known.old.contains_key(id));
    let everybody = listed(Side::Old).chain(only_new);
    let processes =
        everybody.filter(|(_, member)| member.as_ref().is_none_or(|one| one.kind == Kind::Process));
    processes.map(|(id, _)| MemberStatus::of(Pair::each(|side| find(side, id)), versions)).collect()
}

const NOT_BEGUN: &str = "deploy the URL with `migrate_to`: the first process that opens it begins the move";

/// It is not done, and may be later.
fn not_yet(message: String, waited: Duration) -> Error {
    Error::not_applied(ErrorKind::Timeout { waited, holder: None }, message)
}
