//! Opens both stores, and begins the move if there is none.
//!
//! One of them may be out of reach if the other one's record says enough: it is opened in the background then.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::backend::ledger::{Entry, Written};
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::backend::{StoreConfig, StoreEvent};
use leasehold_core::{Env, Error, ErrorKind, Result};
use tokio_util::sync::CancellationToken;

use super::members::lost_its_data;
use super::{Open, SIDES, Session, place};
use crate::protocol::Pair;
use crate::protocol::record::{Record, Stand};
use crate::protocol::records::Read;
use crate::protocol::tokens::Window;

impl Session {
    /// A session of the move between these two stores, as soon as it is known how far that is.
    ///
    /// # Errors
    ///
    /// That of a store which is needed and cannot be opened; [`ErrorKind::InvalidOption`] if both are one;
    /// [`ErrorKind::Misuse`] if a record is one of another move; [`ErrorKind::Protocol`] if one was lost;
    /// [`ErrorKind::Unsupported`] for a store without a ledger.
    pub(crate) async fn open_both(
        configs: &Pair<Arc<dyn StoreConfig>>,
        poll: Duration,
        env: Env,
    ) -> Result<Arc<Self>> {
        let session = Self::new(configs, poll, env);
        let unless_done = session.closing.clone().drop_guard();
        let began = session.begin().await;
        if let Err(error) = began {
            let session = Arc::clone(&session);
            session.env.clone().spawn(async move { drop(session.close().await) });
            return Err(error);
        }
        let _goes_on: CancellationToken = unless_done.disarm();
        session.promises.get_or_init(|| session.both_promise());
        Ok(session)
    }

    async fn begin(self: &Arc<Self>) -> Result<()> {
        let (old, new) = futures_util::future::join(self.sight(Side::Old), self.sight(Side::New)).await;
        match (old, new) {
            (Ok(_), Ok(_)) => self.ensure_records().await?,
            (Ok(old), Err(error)) => self.go_on_without(Side::New, error, old.as_ref())?,
            (Err(error), Ok(new)) => self.go_on_without(Side::Old, error, new.as_ref())?,
            (Err(error), Err(_)) => return Err(error),
        }
        for side in SIDES {
            self.env.spawn(Arc::clone(self).keep_looking(side));
        }
        self.view_or_why().await
    }

    /// A first look at one of them, which leaves time to go on without it.
    async fn sight(self: &Arc<Self>, side: Side) -> Result<Option<Read>> {
        let bound = self.env.timing().connect_timeout / 4 * 3;
        let sight = async {
            self.open_at(side).await?;
            self.found(side).await
        };
        tokio::select! {
            biased;
            found = sight => found,
            () = async { self.env.sleep(bound).await } => Err(super::silent(side, bound)),
        }
    }

    pub(super) async fn open_within(self: &Arc<Self>, side: Side, bound: Duration) -> Result<()> {
        tokio::select! {
            biased;
            opened = self.open_at(side) => opened,
            () = async { self.env.sleep(bound).await } => {
                let message = format!("the store that is {} was not open within {bound:?}", place(side));
                Err(Error::not_applied(ErrorKind::Unavailable, message))
            }
        }
    }

    /// Opens one of them, and hears what it tells.
    async fn open_at(self: &Arc<Self>, side: Side) -> Result<()> {
        let store = &self.stores[side];
        let placed = |error: Error| match store.config.server() {
            Some(server) => error.with_context("server", server),
            None => error,
        };
        let backend = store.config.open(self.env.clone().without_token_base()).await.map_err(placed)?;
        let Some(ledger) = backend.ledger() else {
            let message = format!("locks cannot be moved from or to the store that is {}", place(side));
            return Err(Error::not_applied(ErrorKind::Unsupported, message));
        };
        let listens = Arc::clone(&backend);
        if store.open.set(Open { backend, ledger }).is_ok() {
            self.env.spawn(Arc::clone(self).listen(side, listens));
        }
        Ok(())
    }

    /// The other one's record says what there is to know, or this one is needed.
    fn go_on_without(self: &Arc<Self>, side: Side, error: Error, other: Option<&Read>) -> Result<()> {
        let may_come_back = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Denied);
        let phase = other.filter(|read| !read.record.over).map(|read| read.record.stand.phase);
        let knows_enough = phase.is_some_and(|phase| match side {
            Side::New => phase <= Phase::Shadow,
            Side::Old => phase >= Phase::Drain,
        });
        if !may_come_back || !knows_enough {
            return Err(error);
        }
        let warning = format!("the store that is {} takes part later: {error:#}", place(side));
        self.with(|book, _| book.events.tell(StoreEvent::Warning(warning.into())));
        Ok(())
    }

    /// The record of a move that is not over.
    async fn record(&self, side: Side) -> Result<Option<Record>> {
        let read = self.found(side).await?;
        Ok(read.filter(|read| !read.record.over).map(|read| read.record))
    }

    async fn found(&self, side: Side) -> Result<Option<Read>> {
        let entry = self.env.bounded(self.open(side)?.ledger.read()).await?;
        let read = |entry: Entry| Ok(Read { version: entry.version, record: Record::decode(&entry.value)? });
        entry.map(read).transpose()
    }

    /// Both have a record of this move, of which the one of the store that is left is written last.
    async fn ensure_records(self: &Arc<Self>) -> Result<()> {
        loop {
            let (new, old) = (self.found(Side::New).await?, self.found(Side::Old).await?);
            let reads = Pair { old, new };
            reads.of_one_move(&Pair { old: self.at(Side::Old), new: self.at(Side::New) })?;
            let Some(old) = reads.live(Side::Old) else {
                self.ensure_apart().await?;
                self.begin_move(&reads).await?;
                continue;
            };
            if reads.lost() == Some(Side::New) {
                return Err(self.elsewhere(&old.record));
            }
            return self.with(|book, _| {
                book.check(Side::Old, &old.record)?;
                reads.live(Side::New).map_or(Ok(()), |new| book.check(Side::New, &new.record))
            });
        }
    }

    /// Writes the first record that is missing.
    async fn begin_move(self: &Arc<Self>, reads: &Pair<Option<Read>>) -> Result<()> {
        let began = |record: &Record| record.stand.phase > Phase::Old || record.stand.epoch > 0;
        let new = reads.live(Side::New).map(|read| &read.record);
        if let Some(new) = new {
            self.with(|book, _| book.check(Side::New, new))?;
            if began(new) {
                return Err(lost_its_data(Side::Old));
            }
        }
        let base = self.env.bounded(self.open(Side::Old)?.backend.token_base()).await?.base;
        let stand = Stand { phase: Phase::Old, epoch: 0, window: Window::first(base) };
        let (side, id) = match new {
            None => (Side::New, self.draw_id()),
            Some(new) => (Side::Old, new.id),
        };
        let other = match side {
            Side::Old => self.at(Side::New),
            Side::New => self.at(Side::Old),
        };
        let since = self.env.wall_time().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let since = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let record = Record { id, side, stand, other, since, over: false };
        // One whose move is over is replaced at its version.
        let expected = reads[side].as_ref().map(|read| read.version);
        match self.env.bounded(self.open(side)?.ledger.write(expected, &record.encode())).await {
            Ok(Written::Done(_) | Written::Conflict) => Ok(()),
            // Whether it was written is seen when it is read.
            Err(error) if error.effect() == leasehold_core::Effect::Unknown => {
                self.record(side).await?.map(drop).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Two names of one and the same namespace are no move: who signs in one would be in the other's list.
    async fn ensure_apart(self: &Arc<Self>) -> Result<()> {
        let new = &self.open(Side::New)?.ledger;
        let value = crate::protocol::member::Member::default().encode();
        self.env.bounded(new.sign(self.id, &value)).await?;
        let members = self.env.bounded(self.open(Side::Old)?.ledger.members()).await;
        let one = members.as_ref().is_ok_and(|members| members.iter().any(|member| member.id == self.id));
        if one || members.is_err() {
            drop(self.env.bounded(new.unsign(self.id)).await);
        }
        members?;
        if one { Err(one_store()) } else { Ok(()) }
    }

    /// The move goes on, and there is nothing of it in the store moved to.
    fn elsewhere(&self, old: &Record) -> Error {
        let message = format!(
            "the locks of this namespace move to another store ({}), and {} has no record of that: `migrate_to` is not what              everybody else's is, or that store has lost its data (`leasehold migrate repair`)",
            old.other,
            self.at(Side::New)
        );
        Error::not_applied(ErrorKind::Misuse, message)
    }

    /// Where a store is, for people.
    fn at(&self, side: Side) -> String {
        self.stores[side].config.server().unwrap_or_else(|| format!("the {} store", side.word()))
    }

    fn draw_id(&self) -> u64 {
        let mut bits = [0; 8];
        self.env.random(&mut bits);
        u64::from_be_bytes(bits)
    }
}

fn one_store() -> Error {
    Error::invalid_option(
        "`migrate_to` names the namespace that is left itself: the same store and prefix; give the store moved to a prefix of \
         its own",
    )
}
