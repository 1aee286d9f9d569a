//! What an administrator should know: versions and their bugs, members, alarms, rights.

use std::sync::Arc;

use etcd_client::{AlarmAction, AlarmType, Compare, CompareOp, GetOptions, Txn, TxnOp};
use futures_util::future::join_all;
use leasehold_core::backend::{Finding, Severity};
use leasehold_core::{Effect, ErrorKind, Result};

use crate::connection::Endpoints;
use crate::error;
use crate::session::Sessions;

/// The members of a cluster, as far as they answer.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    version: Option<String>,
    /// How many members vote.
    voters: usize,
}

/// Asks the member in use. What it does not answer is not known.
pub(crate) async fn look_at_the_cluster(endpoints: &Arc<Endpoints>) -> Cluster {
    let status = endpoints.ask(|client| async move { client.maintenance_client().status().await });
    let members = endpoints.ask(|client| async move { client.cluster_client().member_list().await });
    let (status, members) = tokio::join!(status, members);
    Cluster {
        version: status.ok().map(|status| status.version().to_owned()),
        voters: members.map_or(0, |list| list.members().iter().filter(|member| !member.is_learner()).count()),
    }
}

impl Cluster {
    pub(crate) fn survives_the_loss_of_a_member(&self) -> bool {
        self.voters >= 3
    }

    /// One sentence for each known bug that bites locks.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let version = self.version.as_deref().unwrap_or_default();
        known_bugs(version).map(|bug| bug.sentence(version)).collect()
    }
}

/// Everything worth knowing about the cluster, this client's rights on it, and its members.
pub(crate) async fn diagnose(sessions: &Sessions) -> Result<Vec<Finding>> {
    let endpoints = &sessions.endpoints;
    let mut findings = Vec::new();
    let mut answering = 0;
    let urls = endpoints.urls().iter().enumerate();
    let seen = urls.map(|(index, url)| sessions.env.bounded(endpoint(endpoints, index, url)));
    for (index, seen) in join_all(seen).await.into_iter().enumerate() {
        match seen {
            Ok(seen) => {
                answering += 1;
                findings.extend(seen);
            }
            Err(error) => {
                let error = endpoints.at(index, error.with_effect(Effect::NotApplied));
                findings.push(Finding::new(Severity::Warning, "endpoint", format!("{error:#}")));
            }
        }
    }
    let (cluster, alarms, rights) =
        tokio::join!(look_at_the_cluster(endpoints), alarms(endpoints), rights(sessions));
    findings.push(members(cluster.voters, endpoints.urls().len(), answering));
    findings.extend(alarms);
    findings.push(rights?);
    findings.push(leases(endpoints));
    Ok(findings)
}

async fn endpoint(endpoints: &Arc<Endpoints>, index: usize, url: &str) -> Result<Vec<Finding>> {
    let client = endpoints.connect(index).await?;
    let status = client.maintenance_client().status().await.map_err(error::of_client)?;
    let version = status.version();
    let mut findings = vec![Finding::new(Severity::Ok, "version", format!("{url} runs etcd {version}"))];
    findings.extend(
        known_bugs(version).map(|bug| Finding::new(Severity::Broken, "version", bug.sentence(version))),
    );
    if status.leader() == 0 {
        findings.push(Finding::new(Severity::Broken, "leader", format!("{url} knows of no leader")));
    }
    if status.is_learner() {
        findings.push(Finding::new(
            Severity::Warning,
            "member",
            format!("{url} is a learner, which answers no lock request; leave it out"),
        ));
    }
    for trouble in status.errors() {
        findings.push(Finding::new(Severity::Warning, "member", format!("{url} reports: {trouble}")));
    }
    Ok(findings)
}

fn members(voters: usize, named: usize, answering: usize) -> Finding {
    let (severity, detail) = if voters == 0 {
        (Severity::Warning, "the members are not told".to_owned())
    } else if voters < 3 {
        let detail =
            format!("{voters} voting member(s): the loss of one stops every lock; run three or five");
        (Severity::Warning, detail)
    } else if named < voters {
        let detail =
            format!("{voters} voting members, of which {named} are named as endpoints; name them all");
        (Severity::Warning, detail)
    } else {
        let severity = if answering == named { Severity::Ok } else { Severity::Warning };
        (severity, format!("{voters} voting members, {answering} of {named} endpoints answer"))
    };
    Finding::new(severity, "members", detail)
}

async fn alarms(endpoints: &Arc<Endpoints>) -> Vec<Finding> {
    let answer = endpoints
        .ask(|client| async move {
            client.maintenance_client().alarm(AlarmAction::Get, AlarmType::None, None).await
        })
        .await;
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            return vec![Finding::new(
                Severity::Warning,
                "alarms",
                format!("alarms are not told: {error:#}"),
            )];
        }
    };
    if answer.alarms().is_empty() {
        return vec![Finding::new(Severity::Ok, "alarms", "no alarm is raised")];
    }
    let tell = |alarm: &etcd_client::AlarmMember| {
        let member = alarm.member_id();
        match alarm.alarm() {
            AlarmType::Nospace => Finding::new(
                Severity::Broken,
                "alarms",
                format!("NOSPACE on member {member:x}: no lock can be taken; compact, defragment, disarm"),
            ),
            AlarmType::Corrupt => {
                Finding::new(Severity::Broken, "alarms", format!("CORRUPT on member {member:x}: replace it"))
            }
            AlarmType::None => {
                Finding::new(Severity::Warning, "alarms", format!("an alarm on member {member:x}"))
            }
        }
    };
    answer.alarms().iter().map(tell).collect()
}

/// Asks for everything that a lock needs in a transaction whose condition never holds: rights are checked
/// all the same.
async fn rights(sessions: &Sessions) -> Result<Finding> {
    let probe = sessions.keys.probe();
    let everything = sessions.keys.names("");
    let all = GetOptions::new().with_prefix().with_count_only();
    let txn = Txn::new()
        .when([Compare::version(probe.clone(), CompareOp::Less, 0)])
        .and_then([TxnOp::put(probe, "", None), TxnOp::get(everything.clone(), Some(all))]);
    match sessions.endpoints.txn(txn).await {
        Ok(_) => Ok(Finding::new(Severity::Ok, "rights", "this user may read and write the namespace")),
        Err(error) if *error.kind() == ErrorKind::Denied => Ok(Finding::new(
            Severity::Broken,
            "rights",
            format!(
                "this user lacks rights: grant readwrite on the prefix {:?}",
                String::from_utf8_lossy(&everything)
            ),
        )),
        Err(error) if error::tells(&error, error::NO_SPACE) => {
            Ok(Finding::new(Severity::Warning, "rights", "not checked: the server is full"))
        }
        Err(error) => Err(error),
    }
}

/// Leases are nobody's: whoever reaches the servers may renew or list them, on most versions.
fn leases(endpoints: &Arc<Endpoints>) -> Finding {
    let (severity, how) = match endpoints.is_encrypted() {
        true => (Severity::Ok, "connections are encrypted; let only trusted clients connect"),
        false => (Severity::Warning, "connections are not encrypted; use TLS or a closed network"),
    };
    let detail = format!(
        "{how}: etcd's roles protect keys but not leases, and whoever reaches the servers without a client \
         certificate being asked for can keep a dead holder's lock alive"
    );
    Finding::new(severity, "leases", detail)
}

/// A bug of the server that breaks what a lock rests on.
#[derive(Debug, PartialEq, Eq)]
struct Bug {
    name: &'static str,
    what: &'static str,
    /// The first version of each line without it: minor version and patch. Later lines never had it.
    fixed: &'static [(u32, u32)],
}

impl Bug {
    fn sentence(&self, version: &str) -> String {
        format!("etcd {version} has the bug {}: {}; upgrade", self.name, self.what)
    }

    fn is_in(&self, minor: u32, patch: u32) -> bool {
        match self.fixed.iter().find(|(line, _)| *line == minor) {
            Some((_, fixed)) => patch < *fixed,
            None => self.fixed.first().is_some_and(|(oldest, _)| minor < *oldest),
        }
    }
}

fn known_bugs(version: &str) -> impl Iterator<Item = &'static Bug> + use<> {
    let parsed = parse(version);
    BUGS.iter().filter(move |bug| parsed.is_some_and(|(minor, patch)| bug.is_in(minor, patch)))
}

/// Minor version and patch of an etcd 3.
fn parse(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(['.', '-', '+']);
    if numbers.next()? != "3" {
        return None;
    }
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

const BUGS: [Bug; 5] = [
    Bug {
        name: "etcd#15247",
        what: "a leader that was stalled revokes leases that are kept alive, so a lock may be lost early",
        fixed: &[(4, 31), (5, 13)],
    },
    Bug {
        name: "etcd#20590",
        what: "a lease that was revoked may still be reported as renewed",
        fixed: &[(4, 38), (5, 23), (6, 5)],
    },
    Bug {
        name: "etcd#20418",
        what: "a read may be stale after a server was paused",
        fixed: &[(4, 42), (5, 28), (6, 9)],
    },
    Bug { name: "etcd#17529", what: "a watch that falls behind may miss events", fixed: &[(4, 31), (5, 13)] },
    Bug {
        name: "etcd#15220",
        what: "a watch may be told of progress before the events",
        fixed: &[(4, 25), (5, 8)],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn names(version: &str) -> Vec<&'static str> {
        known_bugs(version).map(|bug| bug.name).collect()
    }

    /// A version has the bugs that were mended after it.
    #[test]
    fn versions_have_their_bugs() {
        assert_eq!(names("3.4.23").len(), BUGS.len());
        assert_eq!(names("3.4.38"), ["etcd#20418"]);
        assert_eq!(names("3.5.13-rc.1"), ["etcd#20590", "etcd#20418"]);
        assert_eq!(names("3.6.8"), ["etcd#20418"]);
        assert_eq!(names("3.3.27").len(), BUGS.len());
        for sound in ["3.4.45", "3.5.28", "3.6.9", "3.7.0", "4.0.0", "", "3", "3.x.y"] {
            assert_eq!(names(sound), [""; 0], "{sound}");
        }
    }

    /// A warning says which bug, so that it can be looked up.
    #[test]
    fn warnings_name_the_bug() {
        let cluster = Cluster { version: Some("3.4.23".to_owned()), voters: 1 };
        let warnings = cluster.warnings();
        assert!(warnings.iter().any(|warning| warning.contains("etcd#15247")), "{warnings:?}");
        assert!(!cluster.survives_the_loss_of_a_member());
    }
}
