//! Checks the holds of a session: whether their release is requested, and whether their files are still in their place.
//!
//! It checks while the core listens, so that no task is needed, and only while something is held. Once more after that,
//! for requests to a hold that has ended meanwhile.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use leasehold_core::backend::StoreEvent;
use leasehold_core::clock::Moment;
use leasehold_core::{Env, LostReason};
use tokio::sync::Notify;

use super::{HeldFile, Session};
use crate::directory::Request;

/// The stream that the core listens to. It does not keep the session, whose end is the end of the stream.
pub(crate) struct Listener {
    told: BoxStream<'static, StoreEvent>,
    session: Weak<Session>,
    env: Env,
    bell: Arc<Notify>,
    every: Duration,
    look_at: Moment,
    /// Something is held, or was since the last check, so there may be requests to it.
    is_due: bool,
}

impl Listener {
    /// The events of `session`, whose requests are read meanwhile.
    pub(crate) fn stream(
        session: &Arc<Session>,
        told: BoxStream<'static, StoreEvent>,
    ) -> BoxStream<'static, StoreEvent> {
        let listener = Self {
            told,
            session: Arc::downgrade(session),
            env: session.env.clone(),
            bell: Arc::clone(&session.bell),
            every: session.look_every(),
            look_at: session.env.now(),
            is_due: false,
        };
        stream::unfold(listener, async |mut listener| Some((listener.next().await?, listener))).boxed()
    }

    async fn next(&mut self) -> Option<StoreEvent> {
        loop {
            self.is_due |=
                self.session.upgrade().is_some_and(|session| !session.state.lock().holds.is_empty());
            tokio::select! {
                biased;
                // First, as there may always be an event.
                () = self.env.sleep_until(self.look_at), if self.is_due => {
                    (self.look_at, self.is_due) = (self.env.now() + self.every, false);
                    if let Some(session) = self.session.upgrade() {
                        session.check_requests();
                    }
                }
                event = self.told.next() => return event,
                () = self.bell.notified(), if !self.is_due => self.is_due = true,
            }
        }
    }
}

impl Session {
    /// Reads the requests to this session, and checks whether its files are still in their place.
    pub(crate) fn check_requests(&self) {
        let (mut requests, mut blind) = match self.directory.requests(self.id) {
            Ok(requests) => (requests, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let mut events = Vec::new();
        let mut state = self.state.lock();
        for hold in state.holds.values_mut().filter(|hold| !hold.told) {
            let request = requests.iter().find(|request| hold.is_asked_by(request));
            let asked = request.map_or(Ok(None), |request| self.directory.take(request));
            let within = asked.unwrap_or_else(|error| {
                blind = Some(error);
                None
            });
            hold.told = !self.has_its_path(hold);
            let (name, counter) = (hold.grant.name.clone(), hold.grant.counter);
            events.extend(match (within, hold.told) {
                (Some(within), false) => Some(StoreEvent::RevocationRequested { name, counter, within }),
                (None, false) => None,
                (Some(_), true) => Some(StoreEvent::GrantLost { name, counter, reason: LostReason::Revoked }),
                (None, true) => Some(StoreEvent::GrantLost { name, counter, reason: LostReason::Gone }),
            });
        }
        requests.retain(|request| !state.holds.values().any(|hold| hold.is_asked_by(request)));
        let was_blind = std::mem::replace(&mut state.blind, blind.is_some());
        drop(state);
        // RACE: a grant that lives and is not held yet is about to be; its request waits for that.
        for request in requests {
            if self.directory.goes_on(&request).is_ok_and(|goes_on| !goes_on) {
                self.directory.withdraw(&request);
            }
        }
        if let (Some(error), false) = (blind, was_blind) {
            let warning = format!("cannot read revocation requests: {error:#}");
            self.events.tell(StoreEvent::Warning(warning.into()));
        }
        events.into_iter().for_each(|event| self.events.tell(event));
    }
}

impl HeldFile {
    fn is_asked_by(&self, request: &Request) -> bool {
        self.key == request.key && self.file.counter == request.counter
    }
}
