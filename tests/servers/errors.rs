//! The errors for servers that are not reachable, that refuse the user, or that stop answering.

use leasehold::{Effect, ErrorKind, connect};
use leasehold_conformance::words::said;
use testbed::{BOUND, Beside, Mode, Port, eventually, within};

use crate::fixture::{NAME, Scene, hold, options};
use crate::store::Store;

/// No request was applied, and no password is shown.
pub(crate) async fn open_failure_names_server_and_cause<S: Store>(scene: Scene<S>) {
    let (nobody, silent) = (Port::reserve().unwrap(), scene.proxy().await);
    silent.set_both(Mode::Blackhole).await;
    let guarded = S::start_guarded().await.unwrap();
    let patient = options(S::TTL);
    let billing = S::url(format!("billing:secret@{}", guarded.addr()), "billing", &patient);
    connect(&billing).await.unwrap().shutdown().await.unwrap();
    for (user, addr, kind, words) in [
        ("", nobody.addr(), ErrorKind::Unavailable, S::NOBODY),
        ("", silent.addr(), ErrorKind::Unavailable, S::SILENT),
        ("billing:guessed@", guarded.addr(), ErrorKind::Denied, S::WRONG_PASSWORD),
        ("nobody:guessed@", guarded.addr(), ErrorKind::Denied, S::WRONG_PASSWORD),
    ] {
        // A text that names the bound is that of a short one; the rest has time, as the machine may be busy.
        let options = if words.contains("within") { S::OPENING } else { &patient };
        let url = S::url(format!("{user}{addr}"), "billing", options);
        let refused = within(BOUND, "an answer", connect(&url)).await.unwrap_err();
        let (addr, name) = (addr.to_string(), user.split(':').next().unwrap());
        assert_eq!(said(&refused, &addr, None), words.replace("ADDR", &addr).replace("USER", name));
        assert_eq!((refused.kind(), refused.effect()), (&kind, Effect::NotApplied));
        assert!(!format!("{refused:?}").contains("guessed"), "{refused:?}");
    }
}

/// Each request says where it was not answered and of which lock, and so does a wait that ends then.
pub(crate) async fn silent_server_is_named<S: Store>(scene: Scene<S>) {
    let proxy = scene.proxy().await;
    let addr = proxy.addr().to_string();
    let (locks, holder) = (scene.behind(&proxy, S::TTL).await, scene.direct(S::TTL).await);
    let (held, ours) = (hold(&holder).await, locks.lock("ours").unwrap().acquire().await.unwrap());
    let spare = locks.lock("spare").unwrap().acquire().await.unwrap();
    let patience = S::TTL * 3 / 4;
    let waiting = locks.lock(NAME).unwrap().wait(patience);
    let waiting = Beside::start(async move { waiting.acquire().await.map(drop) });
    eventually("it waits", async || holder.inspect(NAME).await.unwrap().contenders > 0).await;
    // Answered on the way that the acquisition uses, after it: so that knows, too.
    locks.inspect(NAME).await.unwrap();
    proxy.set_both(Mode::Blackhole).await;

    let is_silence = |words: &str| S::UNANSWERED.iter().any(|silence| words.contains(silence));
    let renewed = said(&ours.renew().await.unwrap_err(), &addr, Some("ours"));
    assert!(is_silence(&renewed) && renewed.contains(&format!(" (server: {addr}, lock: ours)")), "{renewed}");
    assert!(renewed.ends_with("; the store may have carried it out"), "{renewed}");
    let releasing = within(BOUND, "a release ends", spare.release());
    let (waited, released) = tokio::join!(waiting.end("the wait ends"), releasing);
    said(&released.unwrap_err(), &addr, Some("spare"));
    let waited = said(&waited.unwrap_err(), &addr, Some(NAME));
    let begins = waited.starts_with(&format!("not granted within {patience:?}; "));
    assert!(begins && is_silence(&waited), "{waited}");
    // Whether the request was silent or the connection that it wanted.
    let tried = locks.lock("other").unwrap().try_acquire().await.unwrap_err();
    said(&tried, &addr, Some("other"));
    said(&locks.inspect("other").await.unwrap_err(), &addr, Some("other"));
    said(&locks.list("").await.unwrap_err(), &addr, None);
    held.release().await.unwrap();
}
