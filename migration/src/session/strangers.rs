//! Who still uses the store that is left, and takes no part in the move: what an administrator wants to know before that
//! store is not waited for any more. A holder there is known by its label, which members have too.

use std::sync::Arc;
use std::time::SystemTime;

use leasehold_core::backend::stage::Side;
use leasehold_core::{LockName, Result};

use super::Session;
use crate::protocol::member::{Member, Strangers};

impl Session {
    /// A holder of `name` in the store that is left, which is drained, has that label.
    pub(super) async fn meet(self: Arc<Self>, name: LockName, label: String) {
        match self.stays_a_stranger(&label).await {
            Ok(false) => {}
            Ok(true) => {
                let at = self.env.wall_time().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let at = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
                self.with(|book, _| {
                    let met = book.strangers.as_ref().map_or(0, |strangers| strangers.met) + 1;
                    book.strangers = Some(Strangers { met, name: name.to_string(), at });
                    book.resign(Side::Old);
                    book.resign(Side::New);
                });
            }
            Err(error) => {
                tracing::debug!(error = %format_args!("{error:#}"), lock = %name, "a holder that may be a stranger");
            }
        }
    }

    /// A member says what it is called when it first asks for a lock, which may be now.
    async fn stays_a_stranger(self: &Arc<Self>, label: &str) -> Result<bool> {
        if !self.is_stranger(label).await? {
            return Ok(false);
        }
        self.env.sleep(self.env.timing().op_timeout).await;
        self.is_stranger(label).await
    }

    async fn is_stranger(&self, label: &str) -> Result<bool> {
        let members = self.env.bounded(self.open(Side::Old)?.ledger.members()).await?;
        let is_it = |member: &Member| member.is_called(label);
        Ok(!members
            .iter()
            .filter_map(|member| Member::decode(&member.value).ok())
            .any(|member| is_it(&member)))
    }
}
