//! TLS, client certificates, users and their rights.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use backend_etcd::EtcdConfig;
use lockcore::{ErrorKind, LockManager, Result, Tls};
use testbed::Certificates;
use testbed::etcd::{Etcd, Setup};

use crate::rig::{BOUND, PREFIX, TTL, hold, hold_aside, open, trials, within};

trials![
    tls_takes_the_right_authority,
    an_endpoint_with_another_certificate_is_passed_over,
    mutual_tls_takes_a_certificate,
    a_url_says_all_of_it,
    a_limited_role_is_enough,
    credentials_are_checked_when_opening,
];

fn read(path: impl AsRef<Path>) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

fn trusting(certificates: &Certificates) -> Tls {
    Tls::new().ca(read(certificates.authority()))
}

fn config(etcd: &Etcd) -> EtcdConfig {
    EtcdConfig::new(etcd.endpoints()).prefix(PREFIX)
}

/// Opens, or says why not within the bound of connecting.
async fn attempt(config: EtcdConfig) -> Result<LockManager> {
    let opening = LockManager::builder(config).ttl(TTL).connect_timeout(Duration::from_secs(2)).build();
    within(BOUND, "an answer", opening).await
}

async fn refused(config: EtcdConfig, why: &str) -> lockcore::Error {
    match attempt(config).await {
        Ok(_) => panic!("it opens {why}"),
        Err(refused) => refused,
    }
}

/// It is said at once and for good, not taken for a silent server; and what was wrong.
async fn denied_by_tls(config: EtcdConfig, why: &str, named: &str) {
    let error = refused(config, why).await;
    assert_eq!(*error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.to_string().contains(named), "{error}");
}

/// A cycle and a hand-off, streams and all.
async fn works(one: &LockManager, other: &LockManager) {
    let name = "w";
    let guard = hold(one, name).await;
    let next = hold_aside(other, name);
    within(BOUND, "it queues", async {
        while one.inspect(name).await.unwrap().contenders == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    guard.release().await.unwrap();
    next.end("the other holds").await.release().await.unwrap();
}

/// The authority that signed the server's certificate, and no other; never without TLS.
async fn tls_takes_the_right_authority() {
    let certificates = Arc::new(Certificates::new("client").unwrap());
    let strangers = Certificates::new("client").unwrap();
    let etcd = Setup::new().tls(Arc::clone(&certificates)).start().await.unwrap();
    let secured = config(&etcd).tls(trusting(&certificates));
    works(&open(secured.clone()).await, &open(secured).await).await;

    denied_by_tls(
        config(&etcd).tls(trusting(&strangers)),
        "with another authority",
        "invalid peer certificate",
    )
    .await;
    refused(config(&etcd), "without TLS").await;
    let elsewhere = config(&etcd).tls(trusting(&certificates)).domain("elsewhere.example");
    denied_by_tls(elsewhere, "under another name", "not valid for name").await;
    open(config(&etcd).tls(trusting(&certificates)).domain("localhost")).await;
}

/// One endpoint is somebody else's: the others are asked before anybody is told of it.
async fn an_endpoint_with_another_certificate_is_passed_over() {
    let certificates = Arc::new(Certificates::new("client").unwrap());
    let strangers = Arc::new(Certificates::new("client").unwrap());
    let etcd = Setup::new().tls(Arc::clone(&certificates)).start().await.unwrap();
    let strange = Setup::new().tls(Arc::clone(&strangers)).start().await.unwrap();
    let both = EtcdConfig::new([strange.endpoints(), etcd.endpoints()].concat()).prefix(PREFIX);
    // Whichever comes first.
    for _ in 0..4 {
        open(both.clone().tls(trusting(&certificates))).await.shutdown().await.unwrap();
    }
}

/// The server asks for a certificate of its authority.
async fn mutual_tls_takes_a_certificate() {
    let certificates = Arc::new(Certificates::new("client").unwrap());
    let strangers = Certificates::new("client").unwrap();
    let etcd = Setup::new().mutual_tls(Arc::clone(&certificates)).start().await.unwrap();
    let identified = |by: &Certificates| {
        let (certificate, key) = by.client();
        config(&etcd).tls(trusting(&certificates).client_certificate(read(certificate), read(key)))
    };
    works(&open(identified(&certificates)).await, &open(identified(&certificates)).await).await;

    let nobody = config(&etcd).tls(trusting(&certificates));
    // The server says so after the handshake, and may have closed the connection before that is read.
    for (config, why) in
        [(nobody, "without a certificate"), (identified(&strangers), "with a stranger's certificate")]
    {
        let error = refused(config, why).await;
        let text = error.to_string();
        match error.kind() {
            ErrorKind::Denied => assert!(text.contains("received fatal alert"), "{text}"),
            _ => assert!(text.contains("another client certificate"), "{error:?}"),
        }
    }
}

/// Everything above by URL: files for the certificates, user and password before the hosts.
async fn a_url_says_all_of_it() {
    let certificates = Arc::new(Certificates::new("client").unwrap());
    let mut etcd = Setup::new().mutual_tls(Arc::clone(&certificates)).start().await.unwrap();
    etcd.enable_auth("alice", "s/cret", "locks/").await.unwrap();
    let (certificate, key) = certificates.client();
    let hosts = etcd.endpoints().join(",");
    let url = format!(
        "etcds://alice:s%2Fcret@{hosts}/locks?ca={}&cert={}&key={}",
        certificates.authority().display(),
        certificate.display(),
        key.display()
    );
    let open = async || attempt(EtcdConfig::from_url(&mut url.parse().unwrap()).unwrap()).await.unwrap();
    works(&open().await, &open().await).await;
}

/// Read and write below the prefix is all it takes, and nothing outside of it is reached for.
async fn a_limited_role_is_enough() {
    let mut etcd = Etcd::start().await.unwrap();
    etcd.enable_auth("alice", "secret", "locks/").await.unwrap();
    let alice = || config(&etcd).credentials("alice", "secret");
    let (one, other) = (open(alice()).await, open(alice()).await);
    works(&one, &other).await;
    let guard = hold(&one, "n").await;
    assert_eq!(one.list("").await.unwrap().len(), 1);
    one.diagnose().await.unwrap();
    let revoked = other.revoke("n", false).await.unwrap();
    assert_eq!(revoked, lockcore::backend::Revocation::Released);
    within(BOUND, "it is lost", guard.lost()).await;
    one.shutdown().await.unwrap();
    other.shutdown().await.unwrap();

    let outside = EtcdConfig::new(etcd.endpoints()).prefix("elsewhere").credentials("alice", "secret");
    let error = refused(outside, "outside of its rights").await;
    assert_eq!(*error.kind(), ErrorKind::Denied, "{error:?}");
}

/// A wrong password and a missing one are said to be that, and the password is not repeated.
async fn credentials_are_checked_when_opening() {
    let mut etcd = Etcd::start().await.unwrap();
    etcd.enable_auth("alice", "secret", "locks/").await.unwrap();
    let error = refused(config(&etcd).credentials("alice", "sesame"), "with a wrong password").await;
    assert_eq!(*error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(!format!("{error:?} {error}").contains("sesame"), "{error:?}");
    let error = refused(config(&etcd), "without a user").await;
    assert_eq!(*error.kind(), ErrorKind::Denied, "{error:?}");
}
