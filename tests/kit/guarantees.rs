//! `docs/src/stores.md` shows what the stores of this build promise, as they say it themselves.
//!
//! `UPDATE_DOCS=1 cargo test --all-features --test kit guarantees_table` writes the table anew.

use std::path::Path;

use leasehold::Guarantees;

const BEGIN: &str = "<!-- guarantees: written by tests/kit/guarantees.rs -->\n";
const END: &str = "<!-- end of guarantees -->\n";

async fn stores() -> Vec<(&'static str, Guarantees)> {
    let memory = leasehold::connect("memory://").await.expect("memory opens");
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let url = format!("file://{}", directory.path().display());
    let file = leasehold::connect(&url).await.expect("the directory can be used");
    let mut servers = Vec::new();
    for _ in 0..3 {
        let server = testbed::redis::Settings::new().start().await;
        servers.push(server.unwrap_or_else(|error| panic!("{error}")));
    }
    let watched =
        testbed::redis::Sentinels::start(servers[0].addr(), 0, 3, std::time::Duration::from_secs(60)).await;
    let watched = watched.unwrap_or_else(|error| panic!("{error}"));
    let sentinels: Vec<_> = watched.addrs().iter().map(ToString::to_string).collect();
    let sentinel = format!("redis+sentinel://{}/{}", sentinels.join(","), testbed::redis::Sentinels::MASTER);
    let cluster = testbed::redis::Cluster::start(3, 1, std::time::Duration::from_secs(15)).await;
    let cluster = cluster.unwrap_or_else(|error| panic!("{error}"));
    let hosts: Vec<_> = servers.iter().map(|server| server.addr().to_string()).collect();
    let quorum = format!("redis+quorum://{}/0", hosts.join(","));
    // As clusters are run.
    let etcd = testbed::etcd::Setup::new().members(3).start().await.unwrap_or_else(|error| panic!("{error}"));
    let zookeeper = testbed::zookeeper::Setup::new().start_ensemble(3).await;
    let zookeeper = zookeeper.unwrap_or_else(|error| panic!("{error}"));
    let postgres = testbed::postgres::Setup::new().start().await.unwrap_or_else(|error| panic!("{error}"));
    let postgres_url =
        <testbed::postgres::Server as testbed::Server>::url(postgres.addr(), "guarantees", "ttl=15s");
    let mut promised = vec![("memory", memory.guarantees()), ("file", file.guarantees())];
    for (name, url) in [
        ("Redis", servers[0].url()),
        ("Redis Sentinel", sentinel),
        ("Redis Cluster", cluster.url()),
        ("Redis quorum", quorum),
        ("etcd", etcd.url()),
        ("Postgres", postgres_url),
        ("ZooKeeper", zookeeper.url()),
    ] {
        let locks = leasehold::connect(&url).await.unwrap_or_else(|error| panic!("{error}"));
        promised.push((name, locks.guarantees()));
    }
    promised
}

fn table(stores: &[(&str, Guarantees)]) -> String {
    let names: String = stores.iter().map(|(name, _)| format!(" {name} |")).collect();
    let rule = "---|".repeat(stores.len());
    let mut table = format!("| promise |{names}\n|---|{rule}\n");
    for (flag, description) in Guarantees::DESCRIBED {
        let marks: String = stores
            .iter()
            .map(|(_, promised)| if promised.contains(*flag) { " yes |" } else { " no |" })
            .collect();
        table.push_str(&format!("| `{flag}`: {description} |{marks}\n"));
    }
    table
}

testbed::trials![the_guarantees_table_is_current];

async fn the_guarantees_table_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/src/stores.md");
    let page = std::fs::read_to_string(&path).expect("there is such a page");
    let (before, rest) = page.split_once(BEGIN).expect("the table's first mark");
    let (found, after) = rest.split_once(END).expect("the table's last mark");
    let current = table(&stores().await);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let text = format!("{before}{BEGIN}{current}{END}{after}");
        std::fs::write(&path, text).expect("it can be written");
    } else {
        assert_eq!(found, current, "the table is stale; `make fix` writes it anew");
    }
}
