//! Findings about locks that other libraries take too: the rights that are missing for that, and the key of one lock.

use leasehold_core::backend::Finding;
use leasehold_core::clock::Moment;
use leasehold_core::{ErrorKind, LockName, Result};

use super::diagnosis::{about, ok, warning};
use crate::connection::Connected;
use crate::session::Session;

impl Session {
    /// The format, and whether managers and foreign clients receive each other's messages.
    pub(super) async fn diagnose_format(
        &self,
        connected: &Connected,
        give_up_at: Moment,
    ) -> Result<Vec<Finding>> {
        let Some(format) = &self.format else {
            return Ok(Vec::new());
        };
        let (word, key) = (format.word(), format.template());
        let kept = format!("locks have the format of other libraries, format={word}, under {key:?}");
        let mut findings = vec![about("format", ok(kept))];
        // No client locks that name.
        let (Some(channel), Some(channels)) = (format.channel("leasehold doctor"), format.channels()) else {
            return Ok(findings);
        };
        let may_hear = connected.hear(&channel, give_up_at).await?;
        let counts = format.counts_listeners();
        let may_hear_no_more =
            !may_hear || may(connected.hear_no_more(&channel, give_up_at).await)? || !counts;
        let may_count = !counts
            || may(connected.ask(redis::cmd("PUBSUB").arg("NUMSUB").arg(&channel), give_up_at).await)?;
        let may_tell = may(connected.ask(redis::cmd("PUBLISH").arg(&channel).arg(0), give_up_at).await)?;
        let rights = [
            (
                may_hear,
                format!(
                    "cannot subscribe to the channels {channels}*, so a foreign client's release is noticed \
                     only every `poll`: grant &{channels}* and +subscribe"
                ),
            ),
            (
                may_hear_no_more,
                format!(
                    "cannot unsubscribe from the channels {channels}*, so managers take their own \
                     subscriptions for foreign clients and yield to them: grant +unsubscribe"
                ),
            ),
            (
                may_count,
                format!(
                    "cannot count the subscribers of {channels}*, so managers yield to foreign clients that \
                     may not exist: grant +pubsub|numsub"
                ),
            ),
            (
                may_tell,
                format!(
                    "cannot publish to {channels}*, so a waiting foreign client sleeps until the holder's \
                     lease has ended: grant &{channels}* and +publish"
                ),
            ),
        ];
        let missing = rights.iter().filter(|(may, _)| !may);
        let mut said: Vec<_> = missing.map(|(_, what)| warning(format!("the user {what}"))).collect();
        if said.is_empty() {
            said.push(ok("managers and foreign clients notify each other of releases"));
        }
        findings.extend(said.into_iter().map(|said| about("foreign clients", said)));
        Ok(findings)
    }

    /// The key of a lock, with its format if it has one, and the holder.
    pub(crate) async fn diagnose_lock(&self, name: &LockName) -> Result<Vec<Finding>> {
        self.life.open_or_refuse()?;
        let keys = self.keys.of(name)?;
        let format = self.format.as_ref().map(|format| format!(", format={}", format.word()));
        let key = ok(format!("{:?}{}", keys.all()[0], format.unwrap_or_default()));
        Ok(vec![about("key", key), Finding::of_state(&self.inspect(name).await?)])
    }
}

/// Whether it was allowed.
fn may<T>(answer: Result<T>) -> Result<bool> {
    match answer {
        Ok(_) => Ok(true),
        Err(error) if *error.kind() == ErrorKind::Denied => Ok(false),
        Err(error) => Err(error),
    }
}
