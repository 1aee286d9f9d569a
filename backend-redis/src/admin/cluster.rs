//! Findings about a cluster: each server that has locks, and what is special to several of them.

use futures_util::future::join_all;
use leasehold_core::Result;
use leasehold_core::backend::Finding;
use leasehold_core::clock::Moment;
use redis::Value;

use super::diagnosis::{Said, about, broken, config, ok, setting, warning};
use crate::cluster::Shard;
use crate::connection::Connected;
use crate::scripts::text;
use crate::session::{Session, Shards};

impl Session {
    /// The findings about the slots, and about each server under its address.
    pub(super) async fn diagnose_cluster(&self, cluster: &Shards, give_up_at: Moment) -> Vec<Finding> {
        let map = cluster.map();
        let mut findings = vec![about("slots", of_slots(map.uncovered()))];
        let servers = map.shards().iter().map(|shard| async {
            let found = self.diagnose_shard(cluster, shard, give_up_at).await;
            let mut found = found.unwrap_or_else(|error| vec![about("server", broken(format!("{error:#}")))]);
            for finding in &mut found {
                finding.detail = format!("{}: {}", shard.primary, finding.detail);
            }
            found
        });
        findings.extend(join_all(servers).await.into_iter().flatten());
        findings
    }

    async fn diagnose_shard(
        &self,
        cluster: &Shards,
        shard: &Shard,
        give_up_at: Moment,
    ) -> Result<Vec<Finding>> {
        let connected = cluster.connected(&shard.primary, give_up_at).await?;
        let mut findings = self.diagnose_server(&connected, give_up_at).await?;
        // It is meant to be one of a cluster.
        findings.retain(|finding| finding.subject != "cluster");
        findings.push(about("replicas", of_replicas(shard.replicas.len())));
        findings
            .extend(of_cluster(&connected, give_up_at).await?.into_iter().map(|said| about("slots", said)));
        Ok(findings)
    }
}

async fn of_cluster(connected: &Connected, give_up_at: Moment) -> Result<Vec<Said>> {
    let mut nodes = redis::cmd("CLUSTER");
    nodes.arg("NODES");
    let answers = connected.ask_all(&[config("cluster-require-full-coverage"), nodes], give_up_at).await?;
    let mut said = Vec::new();
    if answers.first().and_then(setting) == Some("yes") {
        said.push(warning(
            "cluster-require-full-coverage is yes: while one server and its replicas are unavailable, no lock of \
             any server can be acquired or renewed",
        ));
    }
    said.extend(answers.get(1).and_then(moving));
    Ok(said)
}

fn of_slots(uncovered: usize) -> Said {
    match uncovered {
        0 => ok("every slot has a server"),
        some => broken(format!("{some} slots have no server: their locks cannot be acquired or renewed")),
    }
}

fn of_replicas(replicas: usize) -> Said {
    match replicas {
        0 => warning("the server has no replica: while it is unavailable, so are its locks"),
        some => ok(format!("{some} replicas can take the place of the server")),
    }
}

/// The slots that the server itself gives away or gets, by the answer of `CLUSTER NODES`.
fn moving(nodes: &Value) -> Option<Said> {
    let myself = text(nodes)?.lines().find(|line| line.contains("myself"))?;
    let open = myself.split(' ').filter_map(|word| word.strip_prefix('[')?.split_once('-'));
    let slots: Vec<_> = open.map(|(slot, _)| slot).collect();
    (!slots.is_empty()).then(|| {
        warning(format!(
            "slots are being moved: {}. Until they have moved, no lock in them is acquired, renewed or released",
            slots.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot that is on its way is named, on the side that gives it and the one that gets it.
    #[test]
    fn moving_slots_are_named() {
        let said = |line: &str| moving(&Value::BulkString(format!("a 1:2 master\n{line}\n").into_bytes()));
        assert_eq!(said("b 1:2@3 myself,master - 0 0 1 connected 0-5460"), None);
        let (_, detail) = said("b 1:2@3 myself,master - 0 0 1 connected 0-5 [7->-c] [93-<-d]").unwrap();
        assert!(detail.contains("7, 93"), "{detail}");
    }
}
