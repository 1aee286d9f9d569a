//! Findings for an administrator: versions and their bugs, members, alarms, rights.

use std::sync::Arc;

use etcd_client::{AlarmAction, AlarmType, Compare, CompareOp, GetOptions, Txn, TxnOp};
use futures_util::future::join_all;
use leasehold_core::backend::Finding;
use leasehold_core::backend::Severity::{self, Broken, Warning};
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

/// Reads the state from the member in use. Without an answer it stays unknown.
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

    /// The known bugs that affect locks, in one sentence.
    pub(crate) fn bugs(&self) -> Option<String> {
        let version = self.version.as_deref()?;
        let bugs: Vec<_> = bugs_of(version).map(|(bug, ..)| *bug).collect();
        let said = || format!("etcd {version} has bugs that affect locks ({}): upgrade", bugs.join(", "));
        (!bugs.is_empty()).then(said)
    }
}

/// Everything worth knowing about the cluster, this client's rights on it, and its members.
pub(crate) async fn diagnose(sessions: &Sessions) -> Result<Vec<Finding>> {
    let endpoints = &sessions.endpoints;
    let looks = (0..endpoints.urls.len()).map(async |index| {
        let seen = sessions.env.bounded(endpoint(endpoints, index)).await;
        seen.map_err(|error| {
            let error = endpoints.at(index, error.with_effect(Effect::NotApplied));
            vec![Finding::new(Warning, "endpoint", format!("{error:#}"))]
        })
    });
    let seen = join_all(looks).await;
    let answering = seen.iter().filter(|seen| seen.is_ok()).count();
    let mut findings: Vec<_> =
        seen.into_iter().flat_map(|seen| seen.unwrap_or_else(|unseen| unseen)).collect();
    let (cluster, alarms, rights) =
        tokio::join!(look_at_the_cluster(endpoints), alarms(endpoints), rights(sessions));
    let found = |subject| move |(severity, detail)| Finding::new(severity, subject, detail);
    findings.push(found("members")(members(cluster.voters, endpoints.urls.len(), answering)));
    findings.extend(alarms.into_iter().map(found("alarms")));
    findings.push(found("rights")(rights?));
    findings.push(found("leases")(leases(endpoints)));
    Ok(findings)
}

type Found = (Severity, String);

async fn endpoint(endpoints: &Arc<Endpoints>, index: usize) -> Result<Vec<Finding>> {
    let (url, client) = (&endpoints.urls[index], endpoints.connect(index).await?);
    let status = client.maintenance_client().status().await.map_err(error::of_client)?;
    let version = status.version();
    let mut findings = vec![Finding::new(Severity::Ok, "version", format!("{url} runs etcd {version}"))];
    findings.extend(known_bugs(version).map(|bug| Finding::new(Broken, "version", bug)));
    if status.leader() == 0 {
        findings.push(Finding::new(Broken, "leader", format!("{url} reports no leader")));
    }
    if status.is_learner() {
        let detail = format!("{url} is a learner and answers no lock request: remove it from the endpoints");
        findings.push(Finding::new(Warning, "member", detail));
    }
    let reports = status.errors().iter().map(|trouble| format!("{url} reports: {trouble}"));
    findings.extend(reports.map(|detail| Finding::new(Warning, "member", detail)));
    Ok(findings)
}

fn members(voters: usize, named: usize, answering: usize) -> Found {
    match voters {
        0 => (Warning, "cannot read the member list of the cluster".to_owned()),
        1 | 2 => (
            Warning,
            format!("{voters} voting member(s): the loss of one member stops every lock; run three or five"),
        ),
        _ if named < voters => (
            Warning,
            format!("{voters} voting members, but only {named} named as endpoints: name all of them"),
        ),
        _ => {
            let severity = if answering == named { Severity::Ok } else { Warning };
            (severity, format!("{voters} voting members, {answering} of {named} endpoints answer"))
        }
    }
}

async fn alarms(endpoints: &Arc<Endpoints>) -> Vec<Found> {
    let all = |client: Arc<etcd_client::Client>| async move {
        client.maintenance_client().alarm(AlarmAction::Get, AlarmType::None, None).await
    };
    let tell = |alarm: &etcd_client::AlarmMember| {
        let (severity, what, advice) = match alarm.alarm() {
            AlarmType::Nospace => (Broken, "NOSPACE", NO_ROOM),
            AlarmType::Corrupt => (Broken, "CORRUPT", ": its data is corrupt; replace the member"),
            AlarmType::None => (Warning, "an alarm", ""),
        };
        (severity, format!("{what} on member {:x}{advice}", alarm.member_id()))
    };
    match endpoints.ask(all).await {
        Ok(answer) if answer.alarms().is_empty() => vec![(Severity::Ok, "no alarm is raised".to_owned())],
        Ok(answer) => answer.alarms().iter().map(tell).collect(),
        Err(error) => vec![(Warning, format!("cannot read the alarms: {error:#}"))],
    }
}

/// Names all that a lock needs in a transaction whose condition never holds: the server checks the rights all the same.
async fn rights(sessions: &Sessions) -> Result<Found> {
    let (probe, everything) = (sessions.keys.probe(), sessions.keys.names(""));
    let all = GetOptions::new().with_prefix().with_count_only();
    let txn = Txn::new()
        .when([Compare::version(probe.clone(), CompareOp::Less, 0)])
        .and_then([TxnOp::put(probe, "", None), TxnOp::get(everything.clone(), Some(all))]);
    match sessions.endpoints.txn(txn).await {
        Ok(_) => Ok((Severity::Ok, "this user can read and write the namespace".to_owned())),
        Err(error) if *error.kind() == ErrorKind::Denied => {
            let (prefix, why) =
                (String::from_utf8_lossy(&everything), "this user cannot read and write the namespace");
            Ok((Broken, format!("{why}: grant readwrite on the prefix {prefix:?}")))
        }
        Err(error) if error::tells(&error, error::NO_SPACE) => {
            Ok((Warning, "cannot check the rights: the server is at its space limit".to_owned()))
        }
        Err(error) => Err(error),
    }
}

/// On most versions every client that reaches the servers may renew and list leases.
fn leases(endpoints: &Endpoints) -> Found {
    let (severity, how) = match endpoints.is_encrypted() {
        true => (Severity::Ok, "encrypted; require client certificates so that only trusted clients connect"),
        false => (Warning, "not encrypted; use TLS with client certificates, or a closed network"),
    };
    let detail = format!(
        "connections are {how}: etcd's roles protect keys but not leases, so any client that can connect can keep a dead \
         holder's lock alive"
    );
    (severity, detail)
}

/// A sentence for each bug of that version that breaks locks.
fn known_bugs(version: &str) -> impl Iterator<Item = String> {
    bugs_of(version).map(move |(bug, what, _)| format!("etcd {version} has the bug {bug}: {what}; upgrade"))
}

fn bugs_of(version: &str) -> impl Iterator<Item = &'static Bug> + use<> {
    let parsed = parse(version);
    let is_in = move |(.., fixed): &&Bug| {
        let of_its_line = |(minor, _)| fixed.iter().find(|(line, _)| minor <= *line);
        parsed.is_some_and(|version| of_its_line(version).is_some_and(|fixed| version < *fixed))
    };
    BUGS.iter().filter(is_in)
}

/// The advice for an alarm of that kind.
const NO_ROOM: &str = ": no lock can be acquired; compact and defragment etcd, then disarm the alarm";

/// Minor version and patch of an etcd 3.
fn parse(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.strip_prefix("3.")?.split(['.', '-', '+']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The bug, its effect, and the first version of each line without it: minor version and patch. Later lines never had it.
type Bug = (&'static str, &'static str, &'static [(u32, u32)]);

const BUGS: [Bug; 5] = [
    (
        "etcd#15247",
        "a leader that stalled revokes renewed leases, so a lock may be lost early",
        &[(4, 31), (5, 13)],
    ),
    ("etcd#20590", "a revoked lease may be reported as renewed", &[(4, 38), (5, 23), (6, 5)]),
    ("etcd#20418", "a read may be stale after a server was paused", &[(4, 42), (5, 28), (6, 9)]),
    ("etcd#17529", "a watch that falls behind may miss events", &[(4, 31), (5, 13)]),
    ("etcd#15220", "a watch may report progress before the events", &[(4, 25), (5, 8)]),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn names(version: &str) -> Vec<&'static str> {
        let said: Vec<_> = known_bugs(version).collect();
        let is_said = |name: &str| said.iter().any(|said| said.contains(name) && said.contains(version));
        BUGS.iter().map(|(name, ..)| *name).filter(|name| is_said(name)).collect()
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

    /// One sentence names every bug, so that each can be looked up.
    #[test]
    fn warning_names_all_bugs() {
        let cluster = Cluster { version: Some("3.4.23".to_owned()), voters: 1 };
        let warning = cluster.bugs().unwrap();
        assert!(BUGS.iter().all(|(bug, ..)| warning.contains(bug)), "{warning}");
        assert_eq!(Cluster { version: Some("3.6.9".to_owned()), voters: 1 }.bugs(), None);
        assert!(!cluster.survives_the_loss_of_a_member());
    }
}
