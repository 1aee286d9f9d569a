//! Asking a holder to let go, and waiting for that.

use std::sync::Arc;
use std::time::Duration;

use lockcore::backend::Revocation;
use lockcore::clock::Moment;
use lockcore::{Effect, LockName, OwnerId, Result};
use tokio::sync::Notify;

use super::Session;
use crate::keys::NameKeys;
use crate::scripts;

impl Session {
    /// Asks the holder of `name` to let go, and waits for that until its lease ends; with `force`, takes
    /// the lock from it.
    pub(crate) async fn revoke(self: &Arc<Self>, name: &LockName, force: bool) -> Result<Revocation> {
        let keys = self.keys.of(name)?;
        let mut call = scripts::REVOKE.call([&keys].into_iter());
        call.arg(&self.channels).arg(&self.inbox).arg(u8::from(force));
        let asked_at = self.env.now();
        let Some(revoked) = scripts::revoked(&self.run(&scripts::REVOKE, &call).await?)? else {
            return Ok(Revocation::NotHeld);
        };
        if revoked.unswept {
            self.sweep(keys.clone());
        }
        if force {
            return Ok(Revocation::Released);
        }
        // A stranger's lock may have no end; we wait no longer than for ours.
        let left = revoked.lease_left.unwrap_or_else(|| self.env.timing().ttl);
        let owner = std::str::from_utf8(&revoked.holder).ok().and_then(OwnerId::from_hex);
        let ended = Arc::new(Notify::new());
        let _asked = owner.map(|owner| Asked::new(self, owner, &ended));
        self.wait_for_end(&keys, &revoked.holder, &ended, asked_at + left).await
    }

    /// Until the lock has another holder or none; at `expires_at` its lease ends without that.
    async fn wait_for_end(
        &self,
        keys: &NameKeys,
        holder: &[u8],
        ended: &Notify,
        expires_at: Moment,
    ) -> Result<Revocation> {
        let mut pause = FIRST_LOOK;
        loop {
            // The message comes at once; looking is for a message that was lost, before it was listened
            // for or on its way.
            let look_at = self.env.now() + pause;
            tokio::select! {
                biased;
                () = ended.notified() => return Ok(Revocation::Released),
                () = self.closing.cancelled() => return Err(super::closed().with_effect(Effect::Unknown)),
                () = self.env.sleep_until(look_at.min(expires_at)) => {}
            }
            let looked_at = self.env.now();
            if expires_at <= looked_at {
                return Ok(Revocation::Unanswered);
            }
            let looked = tokio::select! {
                biased;
                looked = self.look(keys) => looked,
                () = self.env.sleep_until(expires_at) => return Ok(Revocation::Unanswered),
            };
            match looked {
                Ok(Some(now)) if now == holder => {}
                Ok(_) if self.env.now() < expires_at => return Ok(Revocation::Released),
                Ok(_) => {}
                // It was asked all the same; the next look may be answered.
                Err(error) => tracing::debug!(%error, "whether a holder has let go is not known"),
            }
            pause = (pause * 2).min(self.env.timing().ttl / 3);
        }
    }

    /// Who holds the lock, as `revoke` names holders.
    async fn look(&self, keys: &NameKeys) -> Result<Option<Vec<u8>>> {
        let answer = self.run(&scripts::INSPECT, &scripts::INSPECT.call([keys].into_iter())).await?;
        Ok(scripts::inspected(&answer, 1, self.token_base)?.into_iter().next().and_then(|shown| shown.id))
    }
}

/// Somebody waits for a holder's end.
struct Asked<'s> {
    session: &'s Session,
    ended: Arc<Notify>,
}

impl<'s> Asked<'s> {
    fn new(session: &'s Session, owner: OwnerId, ended: &Arc<Notify>) -> Self {
        session.asked.lock().push((owner, Arc::clone(ended)));
        Self { session, ended: Arc::clone(ended) }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.session.asked.lock().retain(|(_, ended)| !Arc::ptr_eq(ended, &self.ended));
    }
}

/// When the first look is taken that no message asked for.
const FIRST_LOOK: Duration = Duration::from_millis(50);
