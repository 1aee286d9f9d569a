//! Tells servers that came up what they may have forgotten.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Backoff, StoreEvent};

use super::Session;
use crate::error;
use crate::quorum::protocol::{Recovered, Standing, recovered};
use crate::quorum::scripts;

impl Session {
    /// Sees to it whenever a server is blank.
    pub(super) async fn recover_blank(self: Arc<Self>) {
        loop {
            self.blank.notified().await;
            let mut pauses = Backoff::of_requests(&self.env);
            // All are waited for: without a slow one nobody may know enough.
            while let Some(pause) = self.recover(self.size.servers).await {
                let between = pauses.next(&self.env);
                self.env.sleep(between.max(pause)).await;
            }
        }
    }

    /// Looks twice at all servers, and tells those that are blank, and have paused, what can be known; `enough` answers are
    /// waited for. When to look again, if any is blank still, or is loading its data.
    pub(super) async fn recover(&self, enough: usize) -> Option<Duration> {
        let (first, is_loading) = self.look(enough).await;
        if !first.iter().flatten().any(|standing| !standing.whole) {
            return is_loading.then_some(Duration::ZERO);
        }
        let (second, is_still_loading) = self.look(enough).await;
        let mut again = (is_loading || is_still_loading).then_some(Duration::ZERO);
        for (server, standing) in second.iter().enumerate() {
            let Some(own) = standing.as_ref().filter(|own| !own.whole) else { continue };
            let is_told = match recovered(self.size, server, &first, &second) {
                Some(told) => self.install(server, own, &told).await,
                None => false,
            };
            if !is_told {
                again = again.into_iter().chain([own.pause_left]).min();
                self.tell_of_pause(server, own);
            }
        }
        again
    }

    /// What each server says of itself, and whether one is loading its data, and says so later. Who cannot be reached is
    /// looked at once that is so again; what else a server refuses is no matter of time.
    async fn look(&self, enough: usize) -> (Vec<Option<Standing>>, bool) {
        // Until both requests of a look are given up: that ends a connection that is silent, and the next one says so.
        let give_up_at = self.env.now() + 2 * self.env.timing().op_timeout;
        let looks = self.ask_all(give_up_at, enough, |server, member| member.look(self, server)).await;
        let is_loading = looks.iter().flatten().filter_map(|look| look.as_ref().err()).any(error::is_loading);
        (looks.into_iter().map(|look| look?.ok()).collect(), is_loading)
    }

    /// Once for each run of the server.
    fn tell_of_pause(&self, server: usize, own: &Standing) {
        let left = own.pause_left;
        if !left.is_zero() && self.members[server].pauses_anew(&own.run) {
            let address = &self.members[server].address;
            let warning = format!(
                "the server {address} came up and may have forgotten votes: it gives none for {left:?}"
            );
            self.events.tell(StoreEvent::Warning(warning.into()));
        }
    }

    async fn install(&self, server: usize, own: &Standing, told: &Recovered) -> bool {
        let call = scripts::install(&self.space, &own.run, told, &self.terms);
        let installed = self.run_at(server, &scripts::INSTALL, &call).await;
        // If not by us, then by somebody else.
        let told = installed.and_then(|value| scripts::was_there(&value)).map(drop);
        told.inspect_err(|error| {
            tracing::debug!(error = ?format!("{error:#}"), "a server was not told what it may have forgotten");
        })
        .is_ok()
    }
}
