//! What moves on from a connection, and what does not.

use std::future::{pending, ready};
use std::sync::atomic::AtomicUsize;

use futures_util::future::join_all;
use leasehold_core::Timing;
use tokio::net::TcpListener;

use super::*;

/// Connected to one of so many who accept and never say a word.
async fn connected_to(servers: usize) -> (Arc<Endpoints>, Vec<TcpListener>, usize) {
    let mut silent = Vec::new();
    for _ in 0..servers {
        silent.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let hosts = silent.iter().map(|silent| silent.local_addr().unwrap().to_string());
    let env = Env::new(Timing::for_ttl(Duration::from_millis(600))).unwrap();
    let endpoints = Arc::new(Endpoints::new(&EtcdConfig::new(hosts), env).unwrap());
    let link = endpoints.link().await.unwrap();
    (endpoints, silent, link.generation)
}

async fn connected() -> (Arc<Endpoints>, Vec<TcpListener>, usize) {
    connected_to(1).await
}

async fn slow(_client: Arc<Client>) -> Result<(), etcd_client::Error> {
    pending().await
}

/// etcd.connection-3
#[tokio::test]
async fn a_slow_request_leaves_a_connection_that_answers_others() {
    let (endpoints, _silent, generation) = connected().await;
    let (slow, quick) = tokio::join!(
        endpoints.call(Silence::MayBeOfTheRequest, slow),
        endpoints.call(Silence::MayBeOfTheRequest, |_client| ready(Ok(())))
    );
    assert_eq!(slow.unwrap_err().effect(), Effect::Unknown);
    quick.unwrap();
    assert_eq!(endpoints.link().await.unwrap().generation, generation);
}

/// A connection on which nothing is answered is left, and one that does not renew whatever it answers.
#[tokio::test]
async fn silence_leaves_a_connection() {
    let (endpoints, _silent, generation) = connected().await;
    endpoints.call(Silence::MayBeOfTheRequest, slow).await.unwrap_err();
    assert_eq!(endpoints.link().await.unwrap().generation, generation + 1);
    let quick = endpoints.call(Silence::MayBeOfTheRequest, |_client| ready(Ok(())));
    let (renewal, quick) = tokio::join!(endpoints.call(Silence::IsOfTheMember, slow), quick);
    renewal.unwrap_err();
    quick.unwrap();
    assert_eq!(endpoints.link().await.unwrap().generation, generation + 2);
}

/// etcd.connection-4
#[tokio::test]
async fn a_refusal_by_tls_is_final_only_before_the_first_answer() {
    let (endpoints, _silent, _) = connected().await;
    let alert = Error::not_applied(ErrorKind::Unavailable, "received fatal alert: BadCertificate");
    let refuse = |endpoints: &Endpoints| {
        let generation = endpoints.turn.lock().generation;
        endpoints.refused(generation, alert.clone()).kind().clone()
    };
    assert_eq!(refuse(&endpoints), ErrorKind::Denied);
    endpoints.call(Silence::MayBeOfTheRequest, |_client| ready(Ok(()))).await.unwrap();
    assert_eq!(refuse(&endpoints), ErrorKind::Unavailable);

    let (several, _silent, _) = connected_to(3).await;
    let refused = (0..4).map(|_| refuse(&several));
    let (no, finally) = (ErrorKind::Unavailable, ErrorKind::Denied);
    assert_eq!(refused.collect::<Vec<_>>(), [no.clone(), no, finally.clone(), finally]);
}

/// What is too much waits here, unsent; a renewal does not.
#[tokio::test]
async fn so_many_requests_are_sent_at_once() {
    let (endpoints, _silent, _) = connected().await;
    let sent = AtomicUsize::new(0);
    let count = |client| {
        sent.fetch_add(1, Ordering::Relaxed);
        slow(client)
    };
    // The runtime stops a task after about as many steps.
    let many = (0..AT_ONCE + 50).map(|_| endpoints.call(Silence::MayBeOfTheRequest, count));
    let many = tokio::task::unconstrained(join_all(many));
    tokio::select! {
        biased;
        _ = many => panic!("nothing answers them"),
        renewed = endpoints.call(Silence::IsOfTheMember, |_client| ready(Ok(()))) => renewed.unwrap(),
    }
    assert_eq!(sent.load(Ordering::Relaxed), AT_ONCE);
}
