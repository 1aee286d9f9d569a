//! The promises at a fail-over, as far as the primary says.

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Error, ErrorKind, Result};
use redis::Value;

use super::diagnosis::{Info, Said, broken, config, ok, setting, warning};
use crate::config::Failover;
use crate::connection::{Connected, Copies};
use crate::scripts::text;
use crate::session::Session;

impl Session {
    /// Refuses a server that cannot say what is on its disk, where that counts; and a primary with more replicas than are
    /// asserted: one of them that confirms nothing may be promoted.
    ///
    /// # Errors
    ///
    /// `Unsupported` for such a server; `InvalidOption` with more replicas; not applied, as of a request.
    pub(crate) async fn can_confirm(&self, give_up_at: Moment) -> Result<()> {
        let (disk, asserted) =
            (self.fleet.copies().disk, self.failover.and_then(|failover| failover.replicas));
        if !disk && asserted.is_none() {
            return Ok(());
        }
        let connected = self.fleet.home().connected(give_up_at).await?;
        if disk {
            // Whatever is on the disk by then.
            let asked = Copies { replicas: 0, disk: true }.wait(Duration::ZERO);
            let answer = connected.ask(&asked, give_up_at).await;
            answer.map_err(|error| error.with_effect(Effect::NotApplied))?;
        }
        let Some(asserted) = asserted else { return Ok(()) };
        let answer = connected.ask(redis::cmd("INFO").arg("replication"), give_up_at).await?;
        match text(&answer).map(Info).as_ref().and_then(Info::replicas) {
            Some(replicas) if replicas > asserted => Err(Error::invalid_option(format!(
                "replicas={asserted} is invalid: the primary has {replicas} replicas, and one that confirms nothing may \
                 be promoted"
            ))),
            Some(_) => Ok(()),
            None => Err(Error::not_applied(ErrorKind::Protocol, "cannot read the number of replicas")),
        }
    }

    /// Which promise holds of a primary whose `INFO` is known.
    pub(super) async fn diagnose_failover(
        &self,
        failover: &Failover,
        info: Option<&Value>,
        connected: &Connected,
        give_up_at: Moment,
    ) -> Result<Said> {
        let questions = [config("min-replicas-to-write"), config("min-replicas-max-lag")];
        let answers = connected.ask_all(&questions, give_up_at).await?;
        let number = |at| setting(answers.get(at)?)?.parse::<u32>().ok();
        let Some(replicas) = info.and_then(text).map(Info).as_ref().and_then(Info::replicas) else {
            return Ok(warning("cannot check the replicas: the user lacks the right for INFO"));
        };
        let waits = self.fleet.copies().replicas;
        let writes = number(0).zip(number(1));
        Ok(of_failover(failover, self.pause.is_some(), replicas, waits, writes))
    }
}

/// With so many `replicas`, of which each grant `waits` for some, and with `min-replicas-to-write` and `min-replicas-max-lag` in
/// `writes`, if they may be read.
fn of_failover(
    Failover { lag, replicas: asserted, .. }: &Failover,
    pauses: bool,
    replicas: u32,
    waits: u32,
    writes: Option<(u32, u32)>,
) -> Said {
    if let Some(asserted) = asserted.filter(|asserted| *asserted != replicas) {
        return broken(format!("replicas={asserted}, but the primary has {replicas} replicas"));
    }
    if waits > replicas {
        return broken(format!(
            "wait_replicas={waits}, but the primary has {replicas}: no lock can be granted"
        ));
    }
    if !pauses {
        return warning(
            "pause_after_failover is off: a fail-over may lose locks that are held and grant them again, and only fencing \
             tokens protect the resource then",
        );
    }
    if replicas == 0 {
        return warning(
            "the primary has no replica: there can be no fail-over, and its loss stops all locks",
        );
    }
    let outlast = match waits == replicas {
        true => "; all replicas confirm each grant, so a promoted one has the granted locks",
        false => "; holds may end early then",
    };
    match writes {
        Some((least, seconds)) if least > 0 && Duration::from_secs(seconds.into()) > *lag => broken(format!(
            "min-replicas-max-lag is {seconds} s, but failover_lag is {lag:?}: a primary that was replaced may grant for \
             longer than the others pause"
        )),
        Some((least, _)) if least >= replicas => ok(format!(
            "no lock is granted twice at a fail-over, also while the replaced primary is alive: without its replicas it \
             refuses writes{outlast}"
        )),
        _ => warning(format!(
            "no lock is granted twice at a fail-over if the replaced primary is dead or stops within {lag:?}{outlast}. To \
             exclude a primary that goes on, set min-replicas-to-write {replicas}: it then refuses writes while a replica \
             is missing"
        )),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::backend::Severity;

    use super::*;

    /// Each promise, by the options that bring it about.
    #[test]
    fn promise_at_a_failover_is_named() {
        use Severity::{Broken, Ok, Warning};
        for (asserted, pauses, replicas, waits, writes, severity, words) in [
            (None, false, 2, 0, Some((2, 10)), Warning, "pause_after_failover is off"),
            (None, true, 2, 0, Some((1, 10)), Warning, "min-replicas-to-write 2"),
            (None, true, 2, 0, None, Warning, "min-replicas-to-write 2"),
            (None, true, 2, 0, Some((2, 10)), Ok, "holds may end early"),
            (None, true, 2, 0, Some((2, 11)), Broken, "failover_lag is 10s"),
            (None, true, 2, 2, Some((2, 10)), Ok, "all replicas confirm"),
            (None, true, 0, 0, Some((0, 10)), Warning, "no replica"),
            (None, true, 1, 2, Some((1, 10)), Broken, "wait_replicas=2"),
            (Some(2), true, 2, 2, Some((2, 10)), Ok, "all replicas confirm"),
            (Some(2), true, 3, 2, Some((2, 10)), Broken, "has 3 replicas"),
            (Some(2), true, 1, 2, Some((2, 10)), Broken, "has 1 replicas"),
        ] {
            let (max_ttl, lag) = (Duration::from_secs(60), Duration::from_secs(10));
            let failover = Failover { max_ttl, lag, replicas: asserted };
            let said = of_failover(&failover, pauses, replicas, waits, writes);
            assert!(
                said.0 == severity && said.1.contains(words),
                "{asserted:?} {replicas} {waits} {writes:?}: {said:?}"
            );
        }
    }
}
