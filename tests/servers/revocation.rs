//! Requests to release a lock.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{LostReason, Revocation, Revoke};
use testbed::{BOUND, Beside, Mode, eventually, within};

use crate::fixture::{LONG, NAME, Scene, hold, is_left_alone, quiet};
use crate::sharing::reader;
use crate::store::Store;

/// Much longer than anything here takes.
const HOUR: Duration = Duration::from_secs(3_600);

/// Of the requests that a holder has missed or received, the one with the earliest deadline counts, in any order. A request
/// that is read again gives no more time.
pub(crate) async fn missed_requests_are_heard_after_a_cut<S: Store>(scene: Scene<S>) {
    let server = S::start().await.unwrap();
    let proxy = server.proxy().unwrap();
    let (holder, admin) = (scene.behind(&proxy, LONG).await, scene.on(&server, LONG).await);
    let guard = hold(&holder).await;
    let request = |grace| {
        let admin = admin.clone();
        Beside::start(async move { admin.revoke(NAME, Revoke::Ask { grace }).await.unwrap() })
    };
    // From here on the server knows the script, and each request is sent once.
    let unheld = admin.revoke("unheld", Revoke::Ask { grace: HOUR }).await.unwrap();
    assert_eq!(unheld, Revocation::NotHeld);
    proxy.refuse_new().await.unwrap();
    proxy.reset().await;
    let mut requests = Vec::new();
    for grace in [3 * HOUR, 2 * HOUR, 3 * HOUR] {
        let before = quiet(&server).await;
        requests.push(request(grace));
        eventually("the server has it", async || server.requests().await - before >= S::REVOCATION).await;
    }
    // The requests of an earlier client that looks again may have been counted: the last one has arrived, too.
    quiet(&server).await;
    assert_eq!(guard.revocation_deadline(), None);
    proxy.accept_new().await.unwrap();
    let heard = async |at_most: Duration| {
        let is_heard = || {
            guard
                .revocation_deadline()
                .is_some_and(|until| until.remaining(BootClock::new().now()) <= at_most)
        };
        eventually("it is heard", async || is_heard()).await;
        guard.revocation_deadline()
    };
    let until = heard(2 * HOUR).await;
    guard.ensure_held().unwrap();

    let other = holder.lock("other").unwrap().acquire().await.unwrap();
    proxy.reset().await;
    let (asks, how) = (admin.clone(), Revoke::Ask { grace: HOUR });
    let released = Beside::start(async move { asks.revoke("other", how).await.unwrap() });
    // By then it has read the others again.
    within(BOUND, "it is heard", other.revocation_requested()).await.expect("it is held");
    // A grace that is read again ends no later, and within the precision of the clocks no earlier.
    assert!(guard.revocation_deadline().is_some_and(|again| Some(again) <= until));
    other.release().await.unwrap();
    assert_eq!(released.end("an answer").await, Revocation::Released);

    requests.push(request(3 * HOUR));
    requests.push(request(HOUR));
    heard(HOUR).await;
    requests.push(request(Duration::ZERO));
    assert_eq!(within(BOUND, "it is lost", guard.lost()).await, LostReason::Revoked);
    for request in requests {
        assert_eq!(request.end("an answer").await, Revocation::Released);
    }
    eventually("nothing is left", async || is_left_alone(&admin).await).await;
}

/// All sharers get the request within the bound of a request, at the same time, also over a slow network.
pub(crate) async fn all_sharers_are_asked_from_afar<S: Store>(scene: Scene<S>) {
    const READERS: usize = 150;
    let (one, way) = (scene.direct(LONG).await, scene.proxy().await);
    let far = scene.behind(&way, 4 * S::TTL).await;
    let mut guards = Vec::new();
    for _ in 0..READERS {
        guards.push(reader(&one).acquire().await.unwrap());
    }
    // One after the other the messages would need three times the bound.
    way.set_both(Mode::delay(Duration::from_millis(20))).await;
    let revoking =
        Beside::start(async move { far.revoke(NAME, Revoke::Ask { grace: BOUND }).await.unwrap() });
    for guard in &guards {
        within(BOUND, "it is requested", guard.revocation_requested()).await.expect("it holds");
    }
    drop(guards);
    assert_eq!(revoking.end("an answer").await, Revocation::Released);
}
