//! Lets blank servers vote again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_core::backend::{Backoff, StoreEvent};
use leasehold_core::{Error, ErrorKind};

use super::{Session, pauses};
use crate::error;
use crate::quorum::protocol::{
    Blank, Met, Recovered, Standing, look_again, met, pause_left, recovered, who_differs,
};
use crate::quorum::scripts;

impl Session {
    /// Reads all servers whenever one may be blank.
    pub(super) async fn recover_blank(self: Arc<Self>) {
        loop {
            self.blank.notified().await;
            let mut pauses = Backoff::of_requests(&self.env);
            // All are waited for: a slow one may be needed.
            while let Some(pause) = self.recover(self.size.servers).await {
                let between = pauses.next(&self.env);
                self.env.sleep(between).await;
                // The pause of another one begins when it is met.
                tokio::select! {
                    () = self.env.sleep(pause.saturating_sub(between)) => {}
                    () = self.blank.notified() => {}
                }
            }
        }
    }

    /// Reads all servers twice, and lets those vote that have paused. `enough` answers are waited for. Returns how long to wait
    /// before the next readings, if a server is still blank, or refuses for now.
    pub(super) async fn recover(&self, enough: usize) -> Option<Duration> {
        let (first, may_pass) = self.look(enough, &[]).await;
        if !first.iter().flatten().any(|standing| !standing.whole) {
            return may_pass.then_some(Duration::ZERO);
        }
        let met = met(self.size, self.env.now(), &first);
        let (second, may_still_pass) = self.look(enough, &met).await;
        let mut blank = Vec::new();
        for (server, standing) in second.iter().enumerate() {
            let Some(own) = standing.as_ref().filter(|own| !own.whole) else { continue };
            let left = pause_left(self.agreed, own, &second);
            let outcome = match (recovered(self.agreed, server, &first, &second), &first[server]) {
                (Some(told), Some(found)) => self.install(server, found, &told).await,
                _ => Blank::Pauses(left),
            };
            if outcome != Blank::Restored {
                self.report_pause(server, &own.episode, left);
            }
            blank.push(outcome);
        }
        look_again(&blank, may_pass || may_still_pass)
    }

    /// Each server's knowledge of itself, and whether one refuses for now: it is loading its data, or the namespace has another
    /// format, which an administrator can change. A server that cannot be reached is read again once it can be. Other refusals,
    /// and other terms, do not pass.
    async fn look(&self, enough: usize, met: &[Option<Met>]) -> (Vec<Option<Standing>>, bool) {
        // Until both requests of a reading have timed out: that ends a silent connection, and the next one causes another
        // reading.
        let give_up_at = self.env.now() + 2 * self.env.timing().op_timeout;
        let (met, bound) = (|server: usize| met.get(server)?.as_ref(), self.request_bound());
        let looks = self
            .ask_all(give_up_at, enough, |server, member| member.look(self, server, met(server), bound))
            .await;
        let may_pass = |error: &Error| error::is_loading(error) || *error.kind() == ErrorKind::Unsupported;
        let any_may_pass = looks.iter().flatten().filter_map(|look| look.as_ref().err()).any(may_pass);
        let mut looks: Vec<_> = looks.into_iter().map(|look| look?.ok()).collect();
        while let Some(server) = who_differs(&self.terms, &looks) {
            looks[server] = None;
        }
        (looks, any_may_pass)
    }

    /// Reports the pause once for each episode of the server.
    fn report_pause(&self, server: usize, episode: &str, left: Duration) {
        let member = &self.members[server];
        *member.pauses_until.lock() = Some(self.env.now() + left);
        let mut reported = member.reported_pause.lock();
        if !left.is_zero() && *reported != episode {
            episode.clone_into(&mut reported);
            let warning = format!("the server {}: {}", member.address, pauses(left));
            self.events.tell(StoreEvent::Warning(warning.into()));
        }
    }

    /// Lets a server vote, above its floor.
    async fn install(&self, server: usize, own: &Standing, told: &Recovered) -> Blank {
        let call = scripts::install(&self.space, own, told, &self.terms);
        match self.run_at(server, &call).await.and_then(|value| scripts::was_there(&value)) {
            Ok(true) => {
                self.may_hold.store(true, Ordering::Relaxed);
                return Blank::Restored;
            }
            Ok(false) => {}
            Err(error) => tracing::debug!(error = ?format!("{error:#}"), "blank server not restored"),
        }
        Blank::Refused
    }
}
