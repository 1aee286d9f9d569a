//! What ZooKeeper says of a failure, and what its administrator does.

use leasehold::LostReason;
use testbed::zookeeper::{Server, Setup};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

use crate::fixture::{NAME, VERY_LONG};
use crate::store::{Sessions, Several, Store, Written};

impl Store for Server {
    const FORGOTTEN: &[LostReason] = &[LostReason::SessionLost, LostReason::Expired];
    const TOKENS_OUTLAST_DATA: bool = false;

    async fn remove(&self, namespace: &str, place: usize) {
        let (client, directory) = (nodes(self).await, directory(namespace));
        let node = contenders_in(&client, &directory).await.swap_remove(place);
        client.delete(&format!("{directory}/{node}"), None).await.unwrap();
    }

    const ADMIN: &str = "super:admin@";
    const CHANGES: &[&str] = &["directory closed"];
    const DENIES_ALL_NAMES: bool = false;

    /// A waiter reads the queue again when its own node, or the one ahead, is gone.
    async fn change_user(&self, _change: &str) {
        let (client, directory) = (nodes(self).await, directory("billing"));
        allow(&client, &directory, Permission::NONE).await;
        self.remove("billing", 1).await;
    }

    async fn give_rights_back(&self) {
        let (client, directory) = (nodes(self).await, directory("billing"));
        let rights = Permission::READ | Permission::WRITE | Permission::CREATE | Permission::DELETE;
        allow(&client, &directory, rights).await;
    }

    async fn start_patient() -> Self {
        Setup::new().longest_session(VERY_LONG).start().await.unwrap()
    }

    async fn start_small() -> Self {
        let setup = Setup::new().property("zookeeper.enforceQuota", "true");
        setup.start().await.unwrap()
    }

    async fn refuse(&self, namespace: &str) {
        let (client, quota) = (nodes(self).await, format!("/zookeeper/quota/{namespace}"));
        let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let limits = b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=1";
        client.create(&quota, b"", &open).await.unwrap();
        client.create(&format!("{quota}/zookeeper_limits"), limits, &open).await.unwrap();
        client.create(&format!("{quota}/zookeeper_stats"), b"count=0,bytes=0", &open).await.unwrap();
    }

    async fn accept(&self, namespace: &str) {
        let (client, quota) = (nodes(self).await, format!("/zookeeper/quota/{namespace}"));
        for node in ["/zookeeper_limits", "/zookeeper_stats", ""] {
            client.delete(&format!("{quota}{node}"), None).await.unwrap();
        }
    }

    const OPENING: &str = "ttl=3s&connect_timeout=1s";
    const NOBODY: &str = "cannot open a session within 1s (server: ADDR): Connection refused (os error 111)";
    const SILENT: &str = "cannot open a session within 1s: check that the servers speak plain text on these ports \
                          and have a quorum (server: ADDR)";
    const WRONG_PASSWORD: &str = "cannot open a session: the credentials lack a right on the node (server: \
                                  ADDR): not authorized";
    // Our bound of a request, or the client library's for the connection.
    const UNANSWERED: &[&str] = &[" within 1s (", "): no response from connection in 750ms"];
    const FULL: &str = "quota";
    const CYCLE: u64 = 2;
    // Long after their own holds, so they list first.
    const TRIES: [u64; 2] = [2, 2];
    const TRYING: [u64; 2] = [5, 4];
    const REVOCATION: u64 = 6;
    const LINGERS: bool = true;
    const PERMITS: bool = false;
    const HAND_OFF: u64 = 2;

    async fn requests(&self) -> u64 {
        self.connections().await.unwrap().iter().map(|connection| connection.requests).sum()
    }
}

impl Written for Server {
    async fn token_base(&self, namespace: &str) -> String {
        let node = format!("/{namespace}/leasehold/%token_base");
        let (data, _) = nodes(self).await.get_data(&node).await.unwrap();
        String::from_utf8(data).unwrap()
    }

    async fn write_token_base(&self, namespace: &str, value: &str) {
        let node = format!("/{namespace}/leasehold/%token_base");
        nodes(self).await.set_data(&node, value.as_bytes(), None).await.unwrap();
    }

    async fn write_format(&self, namespace: &str, format: &str) {
        let data = format!("leasehold {format}");
        let node = format!("/{namespace}/leasehold");
        nodes(self).await.set_data(&node, data.as_bytes(), None).await.unwrap();
    }

    async fn disconnect_holder(&self, namespace: &str) {
        Sessions::end_session(self, namespace, 0).await;
    }
}

impl Several for Server {
    async fn leave_documented_rights(&self) -> &'static str {
        let billing = Client::connector().with_auth("digest", b"billing:secret");
        let billing = billing.connect(&self.addr().to_string()).await.unwrap();
        billing.create("/known", b"", &CreateMode::Persistent.with_acls(Acls::creator_all())).await.unwrap();
        let (acl, _) = billing.get_acl("/known").await.unwrap();
        let rights = Permission::READ | Permission::WRITE | Permission::CREATE | Permission::DELETE;
        let acl = [Acl::new(rights, AuthId::new(acl[0].scheme(), acl[0].id()))];
        let client = nodes(self).await;
        for node in ["/billing", "/billing/leasehold"] {
            client.create(node, b"", &CreateMode::Persistent.with_acls(Acls::new(&acl))).await.unwrap();
        }
        "acl=auth::rwcd&"
    }
}

impl Sessions for Server {
    async fn sessions(&self, namespace: &str) -> Vec<i64> {
        let (client, directory) = (nodes(self).await, directory(namespace));
        let mut sessions = Vec::new();
        for node in contenders_in(&client, &directory).await {
            let stat = client.check_stat(&format!("{directory}/{node}")).await.unwrap();
            sessions.extend(stat.map(|stat| stat.ephemeral_owner));
        }
        sessions
    }

    async fn end_session(&self, namespace: &str, place: usize) -> i64 {
        let session = self.sessions(namespace).await[place];
        Self::end_session(self, session).await.unwrap();
        session
    }
}

/// A client of ZooKeeper's that may do everything, where there is somebody who may.
async fn nodes(server: &Server) -> Client {
    let connector = Client::connector().with_auth("digest", b"super:admin");
    connector.connect(&server.addr().to_string()).await.unwrap()
}

/// What the user who made a directory may do there.
async fn allow(client: &Client, directory: &str, rights: Permission) {
    let (acl, _) = client.get_acl(directory).await.unwrap();
    // Beside the user there is who the session is by itself.
    let user = acl.iter().find(|acl| !acl.id().starts_with("leasehold:")).unwrap();
    let user = AuthId::new(user.scheme(), user.id());
    client.set_acl(directory, &[Acl::new(rights, user)], None).await.unwrap();
}

fn directory(namespace: &str) -> String {
    format!("/{namespace}/leasehold/{}", NAME.replace('/', "%2F"))
}

/// The nodes of contenders, the holder's first.
async fn contenders_in(client: &Client, directory: &str) -> Vec<String> {
    let mut nodes = client.list_children(directory).await.unwrap();
    nodes.sort_by_key(|node| node.rsplit('-').next().map(str::to_owned));
    nodes
}
