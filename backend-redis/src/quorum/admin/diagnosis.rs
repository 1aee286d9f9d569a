//! Findings about the servers of a quorum, as far as the user has the rights.

use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::backend::Finding;

use crate::admin::diagnosis::{
    about, broken, config, findings, of_timeout, of_users, ok, questions, setting, warning,
};
use crate::error;
use crate::quorum::scripts::disagrees;
use crate::quorum::session::{Member, Session, pauses};
use crate::scripts;

impl Session {
    pub(crate) async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.life.open_or_refuse()?;
        // Slow servers are waited for.
        let all = self.size.servers;
        let looks =
            self.ask_all(self.give_up_at(), all, |server, member| self.diagnose_at(server, member)).await;
        let (mut said, mut times) = (Vec::new(), Vec::new());
        for (member, look) in self.members.iter().zip(looks) {
            match look {
                Some(Ok((findings, now))) => {
                    times.push(now);
                    let there = |finding: Finding| {
                        let detail = format!("{}: {}", member.address, finding.detail);
                        Finding::new(finding.severity, finding.subject, detail)
                    };
                    said.extend(findings.into_iter().map(there));
                }
                Some(Err(error)) => said.push(cannot_be_used(member, &format!("{error:#}"))),
                None => said.push(cannot_be_used(member, "it does not answer")),
            }
        }
        let (servers, quorum, up) = (self.size.servers, self.size.quorum, times.len());
        let agreeing = format!("{up} of {servers} servers can be used, {quorum} are needed");
        let agreeing = match up {
            up if up < quorum => broken(agreeing),
            up if up < servers => warning(agreeing),
            _ => ok(agreeing),
        };
        said.insert(0, about("quorum", agreeing));
        let forgotten = if self.agreed.survives_restarts() {
            ok("a lock that a server loses in a restart is not granted to a second client")
        } else {
            warning(
                "pause_after_restart=0s: a lock that a server loses in a restart may be granted to a second \
                 client",
            )
        };
        said.push(about("restarts", forgotten));
        if let (Some(first), Some(last)) = (times.iter().min(), times.iter().max()) {
            let apart = Duration::from_micros(last - first);
            let apart = format!(
                "the servers' clocks differ by {apart:?}, which affects no lock while a quorum of servers \
                 keeps its data"
            );
            said.push(about("clocks", ok(apart)));
        }
        Ok(said)
    }

    async fn diagnose_at(&self, server: usize, member: &Member) -> Result<(Vec<Finding>, u64)> {
        let admitted = member.ready(self, server).await?;
        let mut questions = questions();
        questions.extend(["appendonly", "appendfsync", "no-appendfsync-on-rewrite"].map(config));
        let answers = admitted.connected.ask_all(&questions, self.give_up_at()).await?;
        let mut findings = findings(&answers, self.env.wall_time(), member.link.is_deaf(), 0, None);
        let now = answers.get(2).map_or_else(|| Err(error::unexpected("to TIME")), scripts::micros)?;
        let standing = member.look(self, server, None, self.request_bound()).await?;
        if standing.terms != self.terms {
            return Err(disagrees(&standing.terms));
        }
        let memory = match member.pause_left(self.env.now()).unwrap_or_default() {
            _ if standing.whole => ok("the server knows all votes that it gave"),
            left => warning(pauses(left)),
        };
        findings.push(about("memory", memory));
        findings.push(about("timeout", of_timeout(answers.get(3), self.env.timing().ttl / 3)));
        let users = admitted.connected.ask(redis::cmd("ACL").arg("LIST"), self.give_up_at()).await.ok();
        findings.push(about("message key", of_users(self.inboxes.key().is_some(), users.as_ref())));
        // The disk of one server decides nothing.
        findings.retain(|finding| finding.subject != "persistence");
        if self.agreed.trusts_disks {
            let told = |at: usize| answers.get(at).and_then(setting);
            let disk = match (told(4), told(5), told(6)) {
                (Some("yes"), Some("always"), Some("no")) => ok(
                    "appendfsync is always; a replica that replaces its primary must be promoted without a \
                     restart",
                ),
                (Some(_), Some(_), Some(_)) => broken(
                    "two clients may hold one lock: fsync_always=true needs appendonly yes, appendfsync \
                     always and no-appendfsync-on-rewrite no",
                ),
                _ => warning(
                    "cannot check appendfsync: the user lacks the right for CONFIG GET; make sure that it is \
                     always",
                ),
            };
            findings.push(about("disk", disk));
        }
        Ok((findings, now))
    }
}

fn cannot_be_used(member: &Member, why: &str) -> Finding {
    about("server", warning(format!("{} cannot be used: {why}", member.address)))
}
