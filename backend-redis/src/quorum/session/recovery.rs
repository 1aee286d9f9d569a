//! Tells servers that came up what they may have forgotten.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Backoff, StoreEvent};

use super::Session;
use crate::quorum::protocol::{Memory, Standing, recovered};
use crate::quorum::scripts;
use crate::scripts::millis;

impl Session {
    /// Sees to it whenever a server is blank, until the session is closed.
    pub(super) async fn recover_blank(self: Arc<Self>) {
        let recovering = async {
            loop {
                self.blank.notified().await;
                let mut pauses = Backoff::of_requests(&self.env);
                while self.recover().await {
                    pauses.pause(&self.env).await;
                }
            }
        };
        self.closed.run_until_cancelled(recovering).await;
    }

    /// Looks twice at all servers, and tells the blank ones what can be known; whether any is blank still.
    pub(super) async fn recover(&self) -> bool {
        let first = self.look().await;
        if !first.iter().flatten().any(|standing| !standing.whole) {
            return false;
        }
        let second = self.look().await;
        let mut is_any_left = false;
        for (server, standing) in second.iter().enumerate() {
            let Some(own) = standing.as_ref().filter(|own| !own.whole) else { continue };
            is_any_left |= match recovered(self.size, server, &first, &second) {
                Some(memory) => !self.install(server, own, memory).await,
                None => true,
            };
        }
        is_any_left
    }

    async fn look(&self) -> Vec<Option<Standing>> {
        let looks = self.ask_all(self.give_up_at(), |server, member| member.look(self, server)).await;
        looks.into_iter().map(|look| look?.ok()).collect()
    }

    async fn install(&self, server: usize, own: &Standing, Memory { floor, pause }: Memory) -> bool {
        let pause = if self.pause.is_zero() { Duration::ZERO } else { pause };
        let call = scripts::install(&self.space, &own.run, floor, millis(pause));
        let installed = self.run_at(server, &scripts::INSTALL, &call).await;
        match installed.and_then(|value| scripts::was_there(&value)) {
            // Somebody else has told it.
            Ok(false) => true,
            Ok(true) => {
                if !pause.is_zero() {
                    let address = &self.members[server].address;
                    self.events.tell(StoreEvent::Warning(
                        format!("the server {address} came up and may have forgotten: it does not vote for {pause:?}").into(),
                    ));
                }
                true
            }
            Err(error) => {
                tracing::debug!(error = %format_args!("{error:#}"), "a server was not told what it may have forgotten");
                false
            }
        }
    }
}
