//! Opens both stores, and begins the move if there is none.
//!
//! One of them may be unreachable if the other one's record is enough: it is opened in the background then.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use leasehold_core::backend::ledger::Written;
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::backend::{StoreConfig, StoreEvent};
use leasehold_core::{Effect, Env, Error, ErrorKind, Result};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Session;
use crate::config::{Open, draw_id, names};
use crate::protocol::record::{MoveRecord, Stand, millis};
use crate::protocol::records::{Opening, Read, one_namespace};
use crate::protocol::tokens::Window;
use crate::protocol::{Pair, SIDES};

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
            // A process that exits on the error would leave its entries otherwise. The end goes on after the wait.
            let (closing, (closed, is_closed)) = (Arc::clone(&session), oneshot::channel::<()>());
            session.env.spawn(async move {
                drop(closing.close().await);
                drop(closed);
            });
            let _closed = session.env.within(poll, is_closed).await;
            return Err(error);
        }
        // The promises of the opening stay.
        session.guarantees();
        let _goes_on: CancellationToken = unless_done.disarm();
        Ok(session)
    }

    async fn begin(self: &Arc<Self>) -> Result<()> {
        let (old, new) = self.both_sights().await;
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

    /// A first reading of both. In `new` the old store is waited for no longer than a poll: it decides nothing.
    async fn both_sights(self: &Arc<Self>) -> (Result<Option<Read>>, Result<Option<Read>>) {
        let (old, new) = (pin!(self.sight(Side::Old)), pin!(self.sight(Side::New)));
        match select(old, new).await {
            Either::Left((old, new)) => (old, new.await),
            Either::Right((new, old)) => {
                let is_new = |read: &Read| read.record.end.is_none() && read.record.stand.phase == Phase::New;
                let is_over = matches!(&new, Ok(Some(read)) if is_new(read));
                let bound = if is_over { self.poll } else { self.env.timing().connect_timeout };
                let old = self.env.within(bound, old).await;
                (old.unwrap_or_else(|| Err(super::silent(Side::Old, bound))), new)
            }
        }
    }

    /// A first reading of one of them, which leaves time to go on without it.
    async fn sight(self: &Arc<Self>, side: Side) -> Result<Option<Read>> {
        let bound = self.env.timing().connect_timeout / 4 * 3;
        let sight = async {
            self.open_at(side).await?;
            self.found(side).await
        };
        self.env.within(bound, sight).await.unwrap_or_else(|| Err(super::silent(side, bound)))
    }

    /// Opens one of them, and listens to its events.
    pub(super) async fn open_at(self: &Arc<Self>, side: Side) -> Result<()> {
        let store = &self.stores[side];
        let placed = |error: Error| match store.config.server() {
            Some(server) => error.with_context("server", server),
            None => error,
        };
        let env = self.env.clone().without_token_base();
        let open = Open::of(&*store.config, env).await.map_err(placed)?;
        let listens = Arc::clone(&open.backend);
        if store.open.set(open).is_ok() {
            self.env.spawn(Arc::clone(self).listen(side, listens));
        }
        Ok(())
    }

    /// The other one's record is enough, or this one is needed.
    fn go_on_without(self: &Arc<Self>, side: Side, error: Error, other: Option<&Read>) -> Result<()> {
        let reads = Pair::each(|at| other.filter(|_| at != side).cloned());
        reads.of_one_move(&self.names())?;
        let known = reads.live(side.other()).map(|read| &read.record).filter(|record| record.is_enough());
        let may_come_back = match error.kind() {
            ErrorKind::Unavailable => true,
            // In `drain` a foreign client may hold there, and an old store that is not open would count as unreachable.
            ErrorKind::Denied => known.is_some_and(|record| record.stand.phase != Phase::Drain),
            _ => false,
        };
        let Some(record) = known.filter(|_| may_come_back) else { return Err(error) };
        // RACE: the other store may come back with a record of another move, and be read first.
        self.with(|book, _| book.check(side.other(), record))?;
        let warning =
            format!("continuing without the {} store until it is available: {error:#}", side.word());
        self.with(|book, _| book.events.tell(StoreEvent::Warning(warning.into())));
        Ok(())
    }

    async fn found(&self, side: Side) -> Result<Option<Read>> {
        let entry = self.env.bounded(self.open(side)?.ledger.read()).await?;
        entry.as_ref().map(Read::of).transpose()
    }

    /// Both have a record of this move (records-4), or the one that decides has.
    async fn ensure_records(self: &Arc<Self>) -> Result<()> {
        loop {
            let (new, old) = (self.found(Side::New).await?, self.found(Side::Old).await?);
            let reads = Pair { old, new };
            let record = match reads.opening(&self.names())? {
                Opening::Follow => {
                    let mut live = SIDES.into_iter().filter_map(|side| Some((side, reads.live(side)?)));
                    return self
                        .with(|book, _| live.try_for_each(|(side, read)| book.check(side, &read.record)));
                }
                Opening::Write(record) => record,
                Opening::Begin(side) => {
                    self.ensure_apart().await?;
                    self.first(side).await?
                }
            };
            // A record of an ended move is replaced at its version.
            self.write(reads[record.side].as_ref(), &record).await?;
        }
    }

    async fn first(&self, side: Side) -> Result<MoveRecord> {
        let store = self.env.bounded(self.open(Side::Old)?.backend.token_base()).await?;
        let stand = Stand { phase: Phase::Old, epoch: 0, window: Window::first(store)? };
        let (id, since) = (draw_id(&self.env), millis(self.env.wall_time()));
        Ok(MoveRecord { id, side, stand, between: self.names(), since, restored: 0, end: None, met: None })
    }

    /// Replaces the record that was read, if it has not changed; returns whether it did.
    async fn write(&self, read: Option<&Read>, record: &MoveRecord) -> Result<bool> {
        let expected = read.map(|read| read.version);
        let ledger = &self.open(record.side)?.ledger;
        match self.env.bounded(ledger.write(expected, &record.encode())).await {
            Ok(written) => Ok(matches!(written, Written::Done(_))),
            // Whether it was written is seen when it is read again.
            Err(error) if error.effect() == Effect::Unknown => {
                if self.found(record.side).await?.as_ref() == read { Err(error) } else { Ok(false) }
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the record of the old store again, where the other one decides.
    pub(super) async fn restore_old(&self) -> Result<()> {
        // In this order: a step back may write the old store's after the new one's.
        let (new, old) = (self.found(Side::New).await?, self.found(Side::Old).await?);
        let reads = Pair { old, new };
        reads.of_one_move(&self.names())?;
        for record in reads.restored().into_iter().flatten() {
            if !self.write(reads[record.side].as_ref(), &record).await? {
                break;
            }
        }
        Ok(())
    }

    /// Two names of the same namespace are no move: a process that signs in one is in the other's list.
    async fn ensure_apart(self: &Arc<Self>) -> Result<()> {
        let value = self.with(|book, _| book.member()).encode();
        self.env.bounded(self.open(Side::New)?.ledger.sign(self.id, &value)).await?;
        let members = self.env.bounded(self.open(Side::Old)?.ledger.members()).await?;
        let one = members.iter().any(|member| member.id == self.id);
        if one { Err(one_namespace(&self.names().new)) } else { Ok(()) }
    }

    /// The names of the two namespaces.
    fn names(&self) -> Pair<String> {
        names(|side| &*self.stores[side].config)
    }
}
