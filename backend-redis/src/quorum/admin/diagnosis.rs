//! What an administrator should know about the servers of a quorum, as far as they let us ask.

use leasehold_core::backend::{Finding, Severity};
use leasehold_core::{Error, Result};

use crate::admin::diagnosis::{findings, questions, setting};
use crate::quorum::session::{Member, Session};
use crate::scripts;

impl Session {
    pub(crate) async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.life.open_or_refuse()?;
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
        said.push(if self.agreed.survives_restarts() {
            Finding::new(Severity::Ok, "restarts", "what a server forgets when it comes up is granted to nobody else")
        } else {
            let detail = "pause_after_restart=0s: what a server forgets when it comes up is granted again, and two may hold";
            Finding::new(Severity::Warning, "restarts", detail)
        });
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
        let mut questions = questions();
        questions.cmd("CONFIG").arg("GET").arg("appendonly");
        questions.cmd("CONFIG").arg("GET").arg("appendfsync");
        let answers = admitted.connected.ask_all(&questions, self.give_up_at()).await?;
        let mut findings = findings(&answers, self.env.wall_time(), member.link.is_deaf(), 0, None);
        let now = answers.get(2).map_or_else(|| Err(crate::error::unexpected("to TIME")), scripts::micros)?;
        let standing = member.look(self, server).await?;
        let (severity, detail) = if standing.whole {
            (Severity::Ok, "it knows all the votes it gave".to_owned())
        } else if standing.pause_left.is_zero() {
            let detail = "it may have forgotten votes, and too few others tell it which: it does not vote";
            (Severity::Warning, detail.to_owned())
        } else {
            let left = standing.pause_left;
            (
                Severity::Warning,
                format!("it came up and may have forgotten votes: it gives none for {left:?}"),
            )
        };
        findings.push(Finding::new(severity, "memory", detail));
        // One server's disk alone decides nothing here.
        findings.retain(|finding| finding.subject != "persistence");
        if self.agreed.trusts_disks {
            let told = |at: usize| answers.get(at).and_then(setting);
            let (severity, detail) = match (told(3), told(4)) {
                (Some("yes"), Some("always")) => (Severity::Ok, "appendfsync is always"),
                (Some(_), Some(_)) => (
                    Severity::Broken,
                    "fsync_always=true, and appendonly is not yes with appendfsync always: two may hold",
                ),
                _ => (
                    Severity::Warning,
                    "the user may not ask CONFIG GET: make sure that appendfsync is always",
                ),
            };
            findings.push(Finding::new(severity, "disk", detail));
        }
        Ok((findings, now))
    }
}
