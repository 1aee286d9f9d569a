//! What the store costs its server, by the server's own count.

use std::collections::BTreeMap;

use testbed::redis::Server;

use crate::fixture::{
    LONG, Waiter, command, direct, hold, ok, open, open_for, proxy, server, trials, via, warm,
};

trials![reconnect_sends_six_requests, a_manager_has_two_sockets];

/// The requests since the count began: every command that is not called by scripts only.
pub(crate) struct Requests(pub(crate) BTreeMap<String, u64>);

impl Requests {
    pub(crate) async fn begin(server: &Server) {
        ok(server, &["CONFIG", "RESETSTAT"]).await;
    }

    pub(crate) async fn since(server: &Server) -> Self {
        let mut calls = Self::also_by_scripts(server).await;
        calls.retain(|command, _| BY_SCRIPTS.split(' ').all(|by_scripts| by_scripts != command));
        Self(calls)
    }

    async fn also_by_scripts(server: &Server) -> BTreeMap<String, u64> {
        let mut calls = server.calls().await.unwrap();
        // The count's own.
        calls.remove("config|resetstat");
        calls.remove("info");
        // It sets the end of a name's counter, not in every cycle.
        calls.retain(|command, count| command != "pexpire" || *count > 1);
        calls
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// The commands that scripts of this store call, and its sessions send only while they connect.
const BY_SCRIPTS: &str = "del exists get getrange hdel hget hset pexpire pttl publish set time zadd zrange zrem \
                          zrevrange zscore";

/// Sessions that reconnect at the same time load no scripts that the server has. The commands of a cycle without a reconnect
/// are subtracted, because scripts call some of the same commands.
async fn reconnect_sends_six_requests() {
    let server = server().await;
    let proxy = proxy(&server);
    let locks = warm(open_for(via(&proxy), LONG).await).await;
    Requests::begin(&server).await;
    hold(&locks).await.release().await.unwrap();
    let alone = Requests::also_by_scripts(&server).await;
    Requests::begin(&server).await;
    proxy.reset().await;
    // What is sent before the reset is noticed would be sent again, and released once more.
    proxy.connected(2).await;
    hold(&locks).await.release().await.unwrap();
    let mut requests = Requests::also_by_scripts(&server).await;
    for (command, calls) in alone {
        *requests.get_mut(&command).unwrap() -= calls;
    }
    requests.retain(|_, calls| *calls > 0);
    // The token base; both sockets; the record of a move and the format; that both lead to one server.
    let expected = [("get", 1), ("hello", 2), ("mget", 1), ("publish", 1), ("subscribe", 1)];
    assert_eq!(
        requests.into_iter().collect::<Vec<_>>(),
        expected.map(|(command, calls)| (command.to_owned(), calls))
    );
}

async fn a_manager_has_two_sockets() {
    let server = server().await;
    let managers = [open(direct(&server)).await, open(direct(&server)).await];
    let guard = hold(&managers[0]).await;
    let _waiting = Waiter::queued(&managers[1], 0, &managers[0]).await;
    let list = command(&server, &["CLIENT", "LIST"]).await.text().unwrap();
    // The fifth is the one that asks.
    assert_eq!(list.lines().count(), 5, "{list}");
    guard.release().await.unwrap();
}
