//! What an administrator should know about the servers of a quorum, as far as they let us ask.

use std::sync::atomic::Ordering;

use leasehold_core::backend::{Finding, Severity};
use leasehold_core::{Error, Result};

use crate::admin::diagnosis::{findings, questions};
use crate::quorum::session::{Member, Session};
use crate::scripts;

impl Session {
    pub(crate) async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.open_or_refuse()?;
        let looks = self
            .ask_all(self.give_up_at(), self.size.quorum, |server, member| self.diagnose_at(server, member))
            .await;
        let (mut said, mut times, mut up) = (Vec::new(), Vec::new(), 0);
        for (member, look) in self.members.iter().zip(looks) {
            match look {
                Some(Ok((findings, now))) => {
                    up += 1;
                    times.push(now);
                    let there = |finding: Finding| {
                        Finding::new(
                            finding.severity,
                            finding.subject,
                            format!("{}: {}", member.address, finding.detail),
                        )
                    };
                    said.extend(findings.into_iter().map(there));
                }
                failed => {
                    let why = failed
                        .and_then(Result::err)
                        .map_or_else(|| "it does not answer".to_owned(), |error: Error| format!("{error:#}"));
                    let detail = format!("{} cannot be used: {why}", member.address);
                    said.push(Finding::new(Severity::Warning, "server", detail));
                }
            }
        }
        let (servers, quorum) = (self.size.servers, self.size.quorum);
        let severity = if up < quorum {
            Severity::Broken
        } else if up < servers {
            Severity::Warning
        } else {
            Severity::Ok
        };
        let detail = format!("{up} of {servers} servers can be used, {quorum} have to agree");
        said.insert(0, Finding::new(severity, "quorum", detail));
        if let (Some(first), Some(last)) = (times.iter().min(), times.iter().max()) {
            let apart = std::time::Duration::from_micros(last - first);
            let detail = format!(
                "the servers' clocks are {apart:?} apart, which decides nothing while a quorum remembers"
            );
            said.push(Finding::new(Severity::Ok, "clocks", detail));
        }
        Ok(said)
    }

    async fn diagnose_at(&self, server: usize, member: &Member) -> Result<(Vec<Finding>, u64)> {
        let admitted = member.ready(self, server).await?;
        let answers = admitted.connected.ask_all(&questions(), self.give_up_at()).await?;
        let is_deaf = member.is_deaf.load(Ordering::Relaxed);
        let mut findings = findings(&answers, self.env.wall_time(), is_deaf, 0);
        let now = answers.get(2).map_or_else(|| Err(crate::error::unexpected("to TIME")), scripts::micros)?;
        let standing = member.look(self, server).await?;
        let (severity, detail) = if standing.whole {
            (Severity::Ok, "it knows all the votes it gave")
        } else {
            (
                Severity::Warning,
                "it may have forgotten votes, and too few others tell it which: it does not vote",
            )
        };
        findings.push(Finding::new(severity, "memory", detail));
        Ok((findings, now))
    }
}
