//! Servers with TLS: the authorities that are trusted, and client certificates. All options are given by URL.

use std::sync::Arc;

use leasehold::{Effect, Error, ErrorKind, LockManager, connect};
use testbed::{BOUND, Certificates, Proxy, Server, within};

use crate::fixture::{EARLY, LONG, Scene, hold, queued};
use crate::store::{Several, Store};

fn made(client: &str) -> Arc<Certificates> {
    Arc::new(Certificates::new(client).unwrap())
}

/// The options for an authority, and for a client certificate.
fn trusting(certificates: &Certificates) -> String {
    format!("ca={}", certificates.authority().display())
}

fn known(certificates: &Certificates) -> String {
    let (certificate, key) = certificates.client();
    format!("cert={}&key={}", certificate.display(), key.display())
}

fn at<S: Server>(server: &S, host: &str) -> String {
    format!("{host}:{}", server.secured_addr().port())
}

async fn open<S: Server>(hosts: &str, options: &str) -> LockManager {
    let options = format!("{options}&connect_timeout={}s", BOUND.as_secs());
    connect(&S::secured_url(hosts, "secured", &options)).await.unwrap()
}

/// The error of an opening that is refused; no request was applied.
async fn refused(url: &str) -> Error {
    let refused = within(BOUND, "an answer", connect(url)).await.expect_err(url);
    assert_eq!(refused.effect(), Effect::NotApplied, "{refused:?}");
    refused
}

/// A cycle and a hand-off, messages and all.
async fn works(one: &LockManager, other: &LockManager) {
    let guard = hold(one).await;
    let next = queued(other, 0, one).await;
    guard.release().await.unwrap();
    next.end("the other holds").await.release().await.unwrap();
}

pub(crate) async fn the_authority_that_is_named_is_trusted<S: Store>(_scene: Scene<S>) {
    let certificates = made("billing");
    let server = S::start_secured(&certificates, false).await.unwrap();
    let options = trusting(&certificates);
    let [one, other] = ["localhost", "127.0.0.1"].map(|host| at(&server, host));
    works(&open::<S>(&one, &options).await, &open::<S>(&other, &options).await).await;
}

pub(crate) async fn our_certificate_is_shown<S: Store>(_scene: Scene<S>) {
    let certificates = made("billing");
    let server = S::start_secured(&certificates, true).await.unwrap();
    let (host, trusting) = (at(&server, "localhost"), trusting(&certificates));
    let options = format!("{trusting}&{}", known(&certificates));
    works(&open::<S>(&host, &options).await, &open::<S>(&host, &options).await).await;

    let stranger = made("billing");
    for (who, options) in
        [("nobody", trusting.clone()), ("a stranger", format!("{trusting}&{}", known(&stranger)))]
    {
        // No time-out: that would be longer than the test.
        let options = format!("{options}&connect_timeout={}s", 10 * BOUND.as_secs());
        let refused = refused(&S::secured_url(&host, "secured", &options)).await;
        let kind = refused.kind();
        // What the server says after the connection was made may be lost with that.
        assert!(matches!(kind, ErrorKind::Denied | ErrorKind::Unavailable), "{who}: {refused:?}");
        let said = format!("{refused:#}");
        assert!(said.contains("certificate") || said.contains("fatal alert"), "{who}: {said}");
    }
}

pub(crate) async fn a_stranger_is_refused_at_once<S: Store>(_scene: Scene<S>) {
    let (certificates, stranger) = (made("billing"), made("billing"));
    let elsewhere = Arc::new(Certificates::of("billing", ["elsewhere.example"]).unwrap());
    let server = S::start_secured(&certificates, false).await.unwrap();
    let other = S::start_secured(&elsewhere, false).await.unwrap();
    for (what, host, options) in [
        ("another authority", at(&server, "localhost"), trusting(&stranger)),
        ("the system's authorities", at(&server, "localhost"), String::new()),
        ("another name", at(&other, "localhost"), trusting(&elsewhere)),
    ] {
        // No time-out: that would be longer than the test.
        let options = format!("{options}&connect_timeout={}s", 10 * BOUND.as_secs());
        let refused = refused(&S::secured_url(&host, "secured", &options)).await;
        assert_eq!(*refused.kind(), ErrorKind::Denied, "{what}: {refused:?}");
        let said = format!("{refused:#}");
        assert!(said.contains("localhost") && said.contains("certificate"), "{what}: {said}");
    }
}

pub(crate) async fn plain_text_and_tls_do_not_mix<S: Store>(_scene: Scene<S>) {
    let certificates = made("billing");
    let (plain, server) = tokio::join!(S::start(), S::start_secured(&certificates, false));
    let (plain, server) = (plain.unwrap(), server.unwrap());
    let options = format!("{}&connect_timeout=2s", trusting(&certificates));
    let plain = S::secured_url(plain.addr(), "secured", &options);
    let secured = S::url(server.secured_addr(), "secured", "connect_timeout=2s");
    for url in [plain, secured] {
        let refused = refused(&url).await;
        // Postgres can say that it wants TLS, or has none: then it is no outage.
        let said = format!("{refused:#}");
        let is_said = said.contains("no encryption") || said.contains("does not support TLS");
        let kind = if is_said { ErrorKind::Denied } else { ErrorKind::Unavailable };
        assert_eq!(*refused.kind(), kind, "{url}: {refused:?}");
    }
}

/// One server is not trusted, and one refuses our certificate after the connection was made. The third is used when the
/// session is opened, and when its connection ends.
pub(crate) async fn unfit_servers_are_passed_over<S: Several>(_scene: Scene<S>) {
    let [ours, refusing, untrusted] = [made("billing"), made("billing"), made("billing")];
    let authorities = ours.authority().with_file_name("authorities.pem");
    let both = [&ours, &refusing].map(|of| std::fs::read_to_string(of.authority()).unwrap());
    std::fs::write(&authorities, both.join("\n")).unwrap();
    let server = S::start_secured(&ours, true).await.unwrap();
    let refusing = S::start_secured(&refusing, true).await.unwrap();
    let untrusted = S::start_secured(&untrusted, false).await.unwrap();
    let way = Proxy::start(server.secured_addr()).unwrap();
    let way_host = format!("localhost:{}", way.addr().port());
    let hosts = [at(&untrusted, "localhost"), at(&refusing, "localhost"), way_host].join(",");
    let options = format!("ca={}&{}&ttl={}s", authorities.display(), known(&ours), LONG.as_secs());
    // The order in which they are tried is random.
    for _ in 0..4 {
        let locks = open::<S>(&hosts, &options).await;
        let (guard, bystander) =
            (hold(&locks).await, locks.lock("another").unwrap().acquire().await.unwrap());
        way.reset().await;
        within(EARLY, "the release ends", guard.release()).await.unwrap();
        bystander.ensure_held().unwrap();
        bystander.release().await.unwrap();
        locks.shutdown().await.unwrap();
    }
}
