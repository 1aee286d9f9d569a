//! What tells the stores apart here: what they say of a failure, what an administrator does to bring it about, and what they
//! cost. ZooKeeper's part is in `zookeeper`.

use leasehold::LostReason;
use testbed::{BOUND, Server, eventually};

use crate::fixture::{LONG, NAME};

/// What is said and done on a server of some store, where stores differ in that.
pub(crate) trait Store: Server {
    /// How a hold ends whose user may do nothing any more.
    const DENIED: LostReason = LostReason::SessionLost;

    /// Whether the first of [`CHANGES`](Self::CHANGES) denies every name, and not [`NAME`] alone.
    const DENIES_ALL_NAMES: bool = true;

    /// How a hold ends that the server has forgotten.
    const FORGOTTEN: &[LostReason];

    /// Whether tokens grow without what the server has written down.
    const TOKENS_OUTLAST_DATA: bool;

    /// Removes an entry of [`NAME`] by hand; the holder's is at place 0.
    async fn remove(&self, namespace: &str, place: usize);

    /// Removes the entry of one of those who share [`NAME`] by hand.
    async fn remove_share(&self, namespace: &str) {
        self.remove(namespace, 1).await;
    }

    /// Every kind of server with rights, as [`start_guarded`](Server::start_guarded).
    async fn start_each_guarded() -> Vec<Self> {
        vec![Self::start_guarded().await.unwrap()]
    }

    /// A user of the same server who may do everything, as its URL begins.
    const ADMIN: &str;

    /// How the user of [`start_guarded`](Server::start_guarded) loses what it needs for [`NAME`], which is held; the
    /// first can be undone.
    const CHANGES: &[&str];

    async fn change_user(&self, change: &str);

    async fn give_rights_back(&self);

    /// Starts one that grants leases of half an hour.
    async fn start_patient() -> Self {
        Self::start().await.unwrap()
    }

    /// Starts one that can be told to [`refuse`](Self::refuse).
    async fn start_small() -> Self {
        Self::start().await.unwrap()
    }

    /// From here on it has no room for new entries, says so, and serves everything else.
    async fn refuse(&self, namespace: &str);

    async fn accept(&self, namespace: &str);

    /// What an error says of that.
    const FULL: &str;

    /// Whether a try for a lock that is held is answered then.
    const TRIES_WHEN_FULL: bool = true;

    /// The options with which opening fails soon.
    const OPENING: &str;

    /// What is said at `ADDR` when nobody listens there.
    const NOBODY: &str = "cannot connect (server: ADDR): Connection refused (os error 111)";

    /// And when nobody answers.
    const SILENT: &str;

    const WRONG_PASSWORD: &str;

    /// What requests say that are not answered.
    const UNANSWERED: &[&str];

    /// The requests of a cycle, from a lock that is free to one that is free again.
    const CYCLE: u64;

    /// In a third of the ttl, for 10 000 locks.
    const RENEWAL: u128 = 1;

    /// The most requests of a waiter in a third of its ttl, while its queue does not move.
    const IDLE: u128 = 3;

    /// The requests of a try for a lock that is free, and for one that is held.
    const TRIES: [u64; 2];

    /// The most requests of a try that is refused, and of one that is granted with its release, where many try at a time.
    const TRYING: [u64; 2];

    /// The requests of a client that asks a holder for its lock, before it looks what became of that.
    const REVOCATION: u64;

    /// Whether of those who try at the same time the later ones stand in the queue for a moment, and refuse others.
    const LINGERS: bool = false;

    /// Whether it has permits.
    const PERMITS: bool = true;

    /// How many managers share a lock at depth `soak`.
    const SHARERS: usize = 1_000;

    /// The most requests of all clients, from a release until the next in line holds, on average.
    const HAND_OFF: u64;

    /// The requests of a reader that waits, when the writer before it releases.
    const ADMISSION: u64 = 0;

    /// Behind so many it costs a request more.
    const FEW: usize = usize::MAX;

    /// What clients have asked so far, without what keeps sessions; asking that counts as nothing.
    async fn requests(&self) -> u64;

    /// With what keeps sessions.
    async fn renewals(&self) -> u64 {
        self.requests().await
    }
}

/// A store whose namespaces say their format and their token base in text.
pub(crate) trait Written: Store {
    /// The token base as it is written.
    async fn token_base(&self, namespace: &str) -> String;

    async fn write_token_base(&self, namespace: &str, value: &str);

    /// Writes that the namespace has this format.
    async fn write_format(&self, namespace: &str, format: &str);

    /// Makes the manager that holds [`NAME`] come back: with a new connection, or a new session.
    async fn disconnect_holder(&self, namespace: &str);
}

/// A store of which a URL may name several servers.
pub(crate) trait Several: Store {
    /// Leaves the user of [`start_guarded`](Server::start_guarded) the rights that the documents name; the options that
    /// go with them.
    async fn leave_documented_rights(&self) -> &'static str {
        ""
    }

    /// So many openings try the servers of a URL in every order that makes a difference: by default it is random.
    const ORDERS: usize = 10;
}

/// One where an administrator can end the session of a client, which is told at once.
pub(crate) trait Sessions: Several {
    /// The sessions of those who contend for [`NAME`], the holder's first.
    async fn sessions(&self, namespace: &str) -> Vec<i64>;

    /// Ends the session of the contender at this place, as an administrator does, and returns it.
    async fn end_session(&self, namespace: &str, place: usize) -> i64;
}

impl Store for testbed::redis::Server {
    const FORGOTTEN: &[LostReason] = &[LostReason::Gone];
    const TOKENS_OUTLAST_DATA: bool = true;

    async fn remove(&self, namespace: &str, place: usize) {
        let key = format!("{namespace}:{{{NAME}}}");
        let Some(waiter) = place.checked_sub(1) else {
            assert_eq!(self.command(&["DEL", &key]).await.unwrap().integer(), Some(1));
            return;
        };
        let (queue, place) = (format!("{key}:q"), waiter.to_string());
        let ids = self.command(&["ZRANGE", &queue, &place, &place]).await.unwrap().elements();
        let removed = self.command(&["ZREM", &queue, &ids[0].text().unwrap()]).await.unwrap();
        assert_eq!(removed.integer(), Some(1));
    }

    async fn remove_share(&self, namespace: &str) {
        let sharers = format!("{namespace}:{{{NAME}}}:h");
        let ids = self.command(&["ZRANGE", &sharers, "1", "1"]).await.unwrap().elements();
        let removed = self.command(&["ZREM", &sharers, &ids[0].text().unwrap()]).await.unwrap();
        assert_eq!(removed.integer(), Some(1));
    }

    const DENIED: LostReason = LostReason::Expired;
    const ADMIN: &str = "";
    const CHANGES: &[&str] = &[
        "SETUSER billing -@all",
        "SETUSER billing resetpass >other",
        "SETUSER billing off",
        "DELUSER billing",
    ];

    async fn change_user(&self, change: &str) {
        let words: Vec<_> = ["ACL"].into_iter().chain(change.split(' ')).collect();
        self.command(&words).await.unwrap();
        if change != Self::CHANGES[0] {
            // Its connections would live on.
            self.command(&["CLIENT", "KILL", "USER", "billing"]).await.unwrap();
        }
    }

    async fn give_rights_back(&self) {
        self.command(&["ACL", "SETUSER", "billing", "+@all"]).await.unwrap();
    }

    async fn refuse(&self, _namespace: &str) {
        self.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    }

    async fn accept(&self, _namespace: &str) {
        self.command(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    }

    const OPENING: &str = "connect_timeout=500ms";
    const SILENT: &str = "cannot connect (server: ADDR): no answer within 500ms";
    const WRONG_PASSWORD: &str = "cannot connect: the server refused the user or the password (server: ADDR): WRONGPASS invalid \
                                  username-password pair or user is disabled.";
    const UNANSWERED: &[&str] = &["the server did not answer in time", "the connection was lost"];
    const FULL: &str = "OOM";
    const CYCLE: u64 = 2;
    const TRIES: [u64; 2] = [1, 1];
    const TRYING: [u64; 2] = [1, 2];
    const REVOCATION: u64 = 1;
    const HAND_OFF: u64 = 1;
    const RENEWAL: u128 = 100;
    const IDLE: u128 = 1;

    async fn requests(&self) -> u64 {
        // What scripts call is not asked for by clients.
        const BY_SCRIPTS: &str = "del exists get getrange hdel hget hset pexpire pttl publish set time zadd zrange zrem zrevrange zscore";
        let calls = self.calls().await.unwrap();
        let ours = calls.iter().filter(|(command, _)| {
            let command = command.as_str();
            command != "info" && !BY_SCRIPTS.split(' ').any(|other| other == command)
        });
        ours.map(|(_, calls)| calls).sum()
    }
}

impl Written for testbed::redis::Server {
    async fn token_base(&self, namespace: &str) -> String {
        self.command(&["GET", &format!("{namespace}:token_base")]).await.unwrap().text().unwrap()
    }

    async fn write_token_base(&self, namespace: &str, value: &str) {
        self.command(&["SET", &format!("{namespace}:token_base"), value]).await.unwrap();
    }

    async fn write_format(&self, namespace: &str, format: &str) {
        self.command(&["SET", &format!("{namespace}:{{%move}}:format"), format]).await.unwrap();
    }

    async fn disconnect_holder(&self, _namespace: &str) {
        self.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.unwrap();
    }
}

impl Store for testbed::etcd::Etcd {
    const FORGOTTEN: &[LostReason] = &[LostReason::SessionLost, LostReason::Gone, LostReason::Expired];
    const TOKENS_OUTLAST_DATA: bool = false;

    async fn remove(&self, namespace: &str, place: usize) {
        let prefix = format!("{namespace}/{}/", NAME.replace('/', "%2F"));
        let listed = self.ctl(["get", "--prefix", "--keys-only", "--sort-by=CREATE", &prefix]).await.unwrap();
        let key = listed.lines().filter(|line| !line.is_empty()).nth(place).expect("somebody is there");
        self.ctl(["del", key]).await.unwrap();
    }

    /// With tokens of either kind, on every version there is.
    async fn start_each_guarded() -> Vec<Self> {
        let mut servers = Vec::new();
        for program in std::iter::once(None).chain(testbed::etcd::current().map(Some)) {
            let setup =
                || program.iter().fold(testbed::etcd::Setup::new(), |setup, program| setup.program(program));
            for setup in [setup(), setup().signed_tokens(LONG)] {
                let mut server = setup.start().await.unwrap();
                server.enable_auth("billing", "secret", "billing/").await.unwrap();
                servers.push(server);
            }
        }
        servers
    }

    const ADMIN: &str = "root:testbed@";
    const CHANGES: &[&str] =
        &["revoke-role billing locks", "passwd billing --interactive=false", "delete billing"];

    async fn change_user(&self, change: &str) {
        let words = ["user"].into_iter().chain(change.split(' '));
        let mut asking = self.ctl_in_background(words).unwrap();
        if change.starts_with("passwd") {
            asking.send_line("sesame").await.unwrap();
        }
        assert!(asking.wait(BOUND).await.unwrap().success());
    }

    async fn give_rights_back(&self) {
        self.ctl(["user", "grant-role", "billing", "locks"]).await.unwrap();
    }

    async fn start_small() -> Self {
        testbed::etcd::Setup::new().quota(4 << 20).start().await.unwrap()
    }

    async fn refuse(&self, _namespace: &str) {
        let client = etcd_client::Client::connect(self.endpoints(), None).await.unwrap();
        let junk = vec![b'x'; 1 << 20];
        eventually("it is full", async || client.kv_client().put("junk", junk.clone(), None).await.is_err())
            .await;
    }

    async fn accept(&self, _namespace: &str) {
        let client = etcd_client::Client::connect(self.endpoints(), None).await.unwrap();
        let deleted = client.kv_client().delete("junk", None).await.unwrap();
        let revision = deleted.header().unwrap().revision();
        let physically = etcd_client::CompactionOptions::new().with_physical();
        client.kv_client().compact(revision, Some(physically)).await.unwrap();
        self.ctl(["defrag"]).await.unwrap();
        self.ctl(["alarm", "disarm"]).await.unwrap();
    }

    const OPENING: &str = "ttl=3s&connect_timeout=30s";
    const SILENT: &str = "etcd did not answer within 1s (server: ADDR)";
    const WRONG_PASSWORD: &str = "etcd refused the user or the password (server: ADDR): authentication failed, invalid \
                                  user ID or password";
    // The bound of the session's request, or that of the caller: they are as long.
    const UNANSWERED: &[&str] = &["etcd did not answer within 1s ", "the store did not answer within 1s "];
    const FULL: &str = "space";
    const TRIES_WHEN_FULL: bool = false;
    const CYCLE: u64 = 2;
    const TRIES: [u64; 2] = [1, 1];
    const TRYING: [u64; 2] = [1, 8];
    const REVOCATION: u64 = 2;
    const HAND_OFF: u64 = 1;
    const ADMISSION: u64 = 1;
    const FEW: usize = 16;

    async fn requests(&self) -> u64 {
        let requests = Self::requests(self).await.unwrap();
        requests.total() - requests.of("LeaseKeepAlive")
    }

    async fn renewals(&self) -> u64 {
        Self::requests(self).await.unwrap().total()
    }
}

impl Written for testbed::etcd::Etcd {
    async fn token_base(&self, namespace: &str) -> String {
        let client = etcd_client::Client::connect(self.endpoints(), None).await.unwrap();
        let stored = client.kv_client().get(format!("{namespace}/%token_base"), None).await.unwrap();
        stored.kvs()[0].value_str().unwrap().to_owned()
    }

    async fn write_token_base(&self, namespace: &str, value: &str) {
        let client = etcd_client::Client::connect(self.endpoints(), None).await.unwrap();
        client.kv_client().put(format!("{namespace}/%token_base"), value, None).await.unwrap();
    }

    async fn write_format(&self, namespace: &str, format: &str) {
        self.ctl(["put", &format!("{namespace}/%format"), format]).await.unwrap();
    }

    async fn disconnect_holder(&self, namespace: &str) {
        Sessions::end_session(self, namespace, 0).await;
    }
}

impl Several for testbed::etcd::Etcd {}

impl Sessions for testbed::etcd::Etcd {
    async fn sessions(&self, namespace: &str) -> Vec<i64> {
        let client = etcd_client::Client::connect(self.endpoints(), None).await.unwrap();
        let prefix = format!("{namespace}/{}/", NAME.replace('/', "%2F"));
        let in_order = etcd_client::GetOptions::new()
            .with_prefix()
            .with_sort(etcd_client::SortTarget::Create, etcd_client::SortOrder::Ascend);
        let listed = client.kv_client().get(prefix, Some(in_order)).await.unwrap();
        listed.kvs().iter().map(etcd_client::KeyValue::lease).collect()
    }

    async fn end_session(&self, namespace: &str, place: usize) -> i64 {
        let lease = self.sessions(namespace).await[place];
        self.ctl(["lease", "revoke", &format!("{lease:x}")]).await.unwrap();
        lease
    }
}
