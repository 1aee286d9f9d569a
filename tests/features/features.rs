//! What a build has by its Cargo features: each store, and TLS to it, is there or says how to have it.
//! `make test` runs it with all stores and without any, `make soak` with each.

use std::net::TcpListener;

use leasehold::ErrorKind;
use testbed::Certificates;

/// Each store's scheme and feature, and whether this build has it.
const STORES: [(&str, &str, bool); 16] = [
    ("file", "file", cfg!(feature = "file")),
    ("redis", "redis", cfg!(feature = "redis")),
    ("rediss", "redis", cfg!(feature = "redis")),
    ("redis+unix", "redis", cfg!(feature = "redis")),
    ("redis+sentinel", "redis", cfg!(feature = "redis")),
    ("rediss+sentinel", "redis", cfg!(feature = "redis")),
    ("redis+cluster", "redis", cfg!(feature = "redis")),
    ("rediss+cluster", "redis", cfg!(feature = "redis")),
    ("redis+quorum", "redis", cfg!(feature = "redis")),
    ("rediss+quorum", "redis", cfg!(feature = "redis")),
    ("etcd", "etcd", cfg!(feature = "etcd")),
    ("etcds", "etcd", cfg!(feature = "etcd")),
    ("postgres", "postgres", cfg!(feature = "postgres")),
    ("postgresql", "postgres", cfg!(feature = "postgres")),
    ("zk", "zk", cfg!(feature = "zk")),
    ("zookeeper", "zk", cfg!(feature = "zk")),
];

/// URLs whose connections are encrypted, and the stores' features.
const ENCRYPTED: [(&str, &str, bool); 4] = [
    ("rediss://HOST?ca=CA", "redis", cfg!(feature = "redis")),
    ("etcds://HOST?ca=CA", "etcd", cfg!(feature = "etcd")),
    ("postgres://me@HOST/db?ca=CA", "postgres", cfg!(feature = "postgres")),
    ("zk://HOST?tls=true&ca=CA", "zk", cfg!(feature = "zk")),
];

/// A scheme is known in every build; where its store is not there, the error names the feature.
#[test]
fn a_store_that_is_not_there_says_how_to_have_it() {
    for (scheme, feature, is_there) in STORES {
        assert_eq!(leasehold::registry().schemes().any(|known| known == scheme), is_there, "{scheme}");
        if !is_there {
            let refused = leasehold::registry().configure(&format!("{scheme}://h")).unwrap_err();
            assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{scheme}: {refused}");
            assert!(refused.to_string().contains(&format!("`{feature}`")), "{scheme}: {refused}");
        }
    }
}

/// In a build without TLS, asking for it is refused, and never taken for a connection without it.
#[test]
fn tls_that_is_not_there_is_refused_by_name() {
    let certificates = Certificates::new("client").expect("certificates can be made");
    for (url, store, is_there) in ENCRYPTED {
        if !is_there {
            continue;
        }
        let url =
            url.replace("HOST", "localhost").replace("CA", &certificates.authority().display().to_string());
        let configured = leasehold::registry().configure(&url);
        if cfg!(feature = "tls") {
            configured.map(drop).unwrap_or_else(|error| panic!("{store}: {error}"));
        } else {
            let refused = configured.expect_err(store);
            assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{store}: {refused}");
            assert!(refused.to_string().contains("`tls`"), "{store}: {refused}");
        }
    }
}

/// Every store of the build goes as far as to a server that is not there, encrypted or not.
#[tokio::test]
async fn stores_of_the_build_look_for_their_servers() {
    let certificates = Certificates::new("client").expect("certificates can be made");
    let authority = certificates.authority().display().to_string();
    // A port without a listener.
    let address =
        TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port is free");
    let plain = [
        ("redis://HOST?", "redis"),
        ("etcd://HOST?", "etcd"),
        ("postgres://me@HOST/db?", "postgres"),
        ("zk://HOST?", "zk"),
    ];
    let encrypted = ENCRYPTED.iter().filter(|_| cfg!(feature = "tls")).map(|(url, store, _)| (*url, *store));
    for (url, store) in plain.into_iter().chain(encrypted) {
        if STORES.iter().any(|(_, feature, is_there)| *feature == store && *is_there) {
            let url = url.replace("HOST", &address.to_string()).replace("CA", &authority);
            let refused = leasehold::connect(&format!("{url}&connect_timeout=500ms")).await.expect_err(store);
            assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{url}: {refused:#}");
        }
    }
}
