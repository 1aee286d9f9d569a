//! The way to the server that has a lock: the only server, or one of a cluster.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::backend::Backoff;
use leasehold_core::clock::Moment;
use leasehold_core::{Env, Result};
use redis::{Cmd, Value};

use super::shards::Shards;
use crate::cluster::{HashSlot, NextServer, Redirect, Redirects};
use crate::config::Address;
use crate::connection::{Asks, Confirming, Connected, Copies, Link};
use crate::error;
use crate::protocol::Up;
use crate::scripts::Call;

/// The servers of a session.
#[derive(Clone, Debug)]
pub(crate) enum Fleet {
    One {
        link: Arc<Link>,
        /// Where replicas are waited for, if they are.
        confirming: Option<Arc<Confirming>>,
    },
    Shards(Arc<Shards>),
}

impl Fleet {
    /// The link that receives messages.
    pub(crate) fn home(&self) -> &Arc<Link> {
        match self {
            Self::One { link, .. } => link,
            Self::Shards(shards) => shards.home(),
        }
    }

    /// The servers, if they are a cluster.
    pub(crate) fn cluster(&self) -> Option<&Arc<Shards>> {
        match self {
            Self::One { .. } => None,
            Self::Shards(shards) => Some(shards),
        }
    }

    /// Where a grant or a renewal has to be before it counts.
    pub(crate) fn copies(&self) -> Copies {
        match self {
            Self::One { confirming, .. } => {
                confirming.as_ref().map_or(Copies::NONE, |confirming| confirming.copies)
            }
            Self::Shards(shards) => shards.copies,
        }
    }

    /// The links to the servers that have locks, as far as these are known.
    pub(crate) fn primaries(&self) -> Vec<Arc<Link>> {
        match self {
            Self::One { link, .. } => vec![Arc::clone(link)],
            Self::Shards(shards) => shards.links(),
        }
    }

    /// The way of a call to the server that has its keys.
    pub(crate) fn of(&self, call: &Call) -> Route<'_> {
        self.route(|| HashSlot::of(call.key()))
    }

    fn route(&self, slot: impl FnOnce() -> HashSlot) -> Route<'_> {
        match self {
            Self::One { link, confirming } => Route::One(link, confirming),
            Self::Shards(shards) => shards.route(slot()),
        }
    }

    /// The connection on which a call goes out, if it is up.
    pub(crate) fn up(&self, call: &Call, now: Moment) -> Option<Up> {
        match self {
            Self::One { link, .. } => link.up().map(|up| Up { id: up.id(), at: up.up_at() }),
            // It may be older than a request that went to another server.
            Self::Shards(shards) => shards.up(HashSlot::of(call.key())).map(|up| Up { id: up.id(), at: now }),
        }
    }

    /// Whether nothing is granted in the slot of `key`, as far as is known (redis.slots-4).
    pub(crate) fn is_paused(&self, key: impl FnOnce() -> String) -> bool {
        let pause = self.cluster().and_then(|shards| shards.pause.as_ref());
        pause.is_some_and(|pause| pause.is_on(HashSlot::of(key())))
    }

    /// Runs a script.
    pub(crate) async fn run(&self, call: &Call, give_up_at: Moment) -> Result<Value> {
        let mut route = self.of(call);
        loop {
            let way = route.way(give_up_at).await?;
            let answer = way.run(call, give_up_at).await;
            if let Some(answer) = route.answered(&way, answer, give_up_at).await {
                return answer;
            }
        }
    }

    /// Runs a script, and waits until its writes are wherever they have to be; when it was sent, and the answer.
    ///
    /// # Errors
    ///
    /// As the server's table; unknown with too few copies.
    pub(crate) async fn run_confirmed(
        &self,
        env: &Env,
        call: &Call,
        give_up_at: Moment,
    ) -> Result<(Moment, Value)> {
        let mut route = self.of(call);
        loop {
            // RACE: the record of a move is read for this connection alone; without it, the other one renews blocked entries.
            let way = route.way(give_up_at).await?;
            let answer = match &way.confirming {
                Some(confirming) => confirming.run(call.clone(), give_up_at).await,
                None => {
                    let sent_at = env.now();
                    way.run(call, give_up_at).await.map(|value| (sent_at, value))
                }
            };
            if let Some(answer) = route.answered(&way, answer, give_up_at).await {
                return answer;
            }
        }
    }
}

#[async_trait]
impl Asks for Fleet {
    async fn ask_about(&self, key: &str, command: &Cmd, give_up_at: Moment) -> Result<Value> {
        self.route(|| HashSlot::of(key)).ask(command, give_up_at).await
    }
}

/// The way of one request, until it is answered.
#[derive(Debug)]
pub(crate) enum Route<'f> {
    One(&'f Arc<Link>, &'f Option<Arc<Confirming>>),
    Slot(SlotRoute<'f>),
}

/// The way of a request about the keys of one slot.
#[derive(Debug)]
pub(crate) struct SlotRoute<'f> {
    pub(super) shards: &'f Shards,
    pub(super) slot: HashSlot,
    pub(super) redirects: Redirects,
    pub(super) pauses: Backoff,
    /// Where the slot may be on its way to.
    pub(super) asking: Option<Address>,
    /// It need not wait until the namespace has admitted the session.
    pub(super) is_admitted: bool,
}

/// A connection to the server that a request is sent to.
#[derive(Debug)]
pub(crate) struct Hop {
    pub(crate) connected: Connected,
    pub(super) confirming: Option<Arc<Confirming>>,
    pub(super) is_asking: bool,
}

impl Hop {
    /// Runs a script there.
    pub(crate) fn run(&self, call: &Call, give_up_at: Moment) -> impl Future<Output = Result<Value>> + Send {
        self.connected.run_on_slot(call, give_up_at, self.is_asking)
    }
}

impl Route<'_> {
    /// The connection for the request, as soon as there is one.
    ///
    /// # Errors
    ///
    /// Not applied: why there was none until `give_up_at`.
    pub(crate) async fn way(&mut self, give_up_at: Moment) -> Result<Hop> {
        match self {
            Self::One(link, confirming) => Ok(Hop {
                connected: link.connected(give_up_at).await?,
                confirming: (*confirming).clone(),
                is_asking: false,
            }),
            Self::Slot(route) => {
                if !route.is_admitted {
                    route.shards.admitted(give_up_at).await?;
                }
                route.shards.way(route.slot, route.asking.take(), give_up_at).await
            }
        }
    }

    /// The result of the request; `None` if it was refused and is to be sent again, for which this has waited.
    pub(crate) async fn answered<T>(
        &mut self,
        way: &Hop,
        answer: Result<T>,
        give_up_at: Moment,
    ) -> Option<Result<T>> {
        let (Self::Slot(route), Err(error)) = (self, &answer) else { return Some(answer) };
        let shards = route.shards;
        let refused = error::in_cluster(error.clone());
        let Some(said) = Redirect::read(error, way.connected.address()) else { return Some(Err(refused)) };
        if let Redirect::Moved(slot, to) = &said {
            shards.moved(*slot, to);
        }
        match route.redirects.next(said) {
            NextServer::Owner => return None,
            // Replicas are waited for where the slot is.
            NextServer::Asking(to) if way.confirming.is_none() => {
                route.asking = Some(to);
                return None;
            }
            NextServer::Asking(_) | NextServer::Pause => {}
        }
        shards.doubt();
        let pause = route.pauses.next(&shards.env);
        if give_up_at <= shards.env.now() + pause {
            return Some(Err(refused));
        }
        shards.env.sleep(pause).await;
        None
    }

    /// Sends one command.
    pub(crate) async fn ask(&mut self, command: &Cmd, give_up_at: Moment) -> Result<Value> {
        loop {
            let way = self.way(give_up_at).await?;
            let answer = if way.is_asking {
                way.connected.ask_asking(command, give_up_at).await
            } else {
                way.connected.ask(command, give_up_at).await
            };
            if let Some(answer) = self.answered(&way, answer, give_up_at).await {
                return answer;
            }
        }
    }
}
