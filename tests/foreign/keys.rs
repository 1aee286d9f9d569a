//! What `docs/src/from-another-library.md` says of keys and promises, tried as it stands there.

use std::time::Duration;

use leasehold::Guarantees;
use leasehold::backend::stage::Phase;
use leasehold::migrate::Steps;
use libtest_mimic::Trial;
use testbed::BOUND;

use crate::contender::Contender;
use crate::library::Library;
use crate::setup::{LONG, NAME, Setup};

pub(crate) fn trials(library: &'static Library) -> Vec<Trial> {
    vec![
        crate::setup::trial(library, "keys_are_as_the_documents_say", LONG, keys_are_as_the_documents_say),
        crate::setup::trial(
            library,
            "the_format_is_left_on_the_same_server",
            LONG,
            the_format_is_left_on_the_same_server,
        ),
    ]
}

/// With each option of the table, ours is the key that the named library makes of the name, and no other: a lock on
/// it excludes us. What shared locks lack is not promised.
async fn keys_are_as_the_documents_say(setup: Setup, [_ours, mut theirs]: [Contender; 2]) {
    let templates: Vec<_> =
        PAGE.lines().filter_map(|line| line.split("| `key=").nth(1)?.split('`').next()).collect();
    assert!(templates.len() >= 4, "{templates:?}");
    for template in templates {
        let locks = leasehold::connect(&format!("{}&key={template}", setup.url())).await.unwrap();
        let lock = locks.lock(NAME).unwrap();
        let key = template.replace("{name}", NAME);
        assert!(theirs.tries(&key).await);
        assert!(lock.try_acquire().await.unwrap().is_none(), "{template}: two hold");
        theirs.releases().await;
        let guard = lock.try_acquire().await.unwrap().expect("it is free");
        assert!(!theirs.tries(&key).await, "{template}: two hold");
        assert!(setup.keys().await.contains(&key), "{template}");
        guard.release().await.unwrap();
        assert!(!locks.guarantees().intersects(LACKING), "{:?}", locks.guarantees());
        locks.shutdown().await.unwrap();
    }
}

/// Within Redis a move goes to another prefix: at the end the shared key is free.
async fn the_format_is_left_on_the_same_server(setup: Setup, [ours, mut theirs]: [Contender; 2]) {
    // A session that takes no part would be waited for.
    ours.quits().await;
    let own = format!("{}?prefix=own", setup.server.url());
    let locks = leasehold::connect(&format!("{}&migrate_to={own}", setup.url())).await.unwrap();
    assert!(!locks.guarantees().intersects(LACKING), "{:?}", locks.guarantees());
    let lock = locks.lock(NAME).unwrap();
    let guard = lock.acquire().await.unwrap();
    assert!(!theirs.tries(NAME).await, "two hold");
    let admin = setup.admin(&setup.url(), &own).await;
    let steps = Steps::default().to(Phase::New).wait(BOUND).quiet_for(Duration::ZERO);
    admin.advance(&steps, &mut |_| {}).await.unwrap();
    guard.release().await.unwrap();
    assert!(theirs.tries(NAME).await, "it is not shared any more");
    lock.acquire().await.unwrap().release().await.unwrap();
    let plain = leasehold::connect(&own).await.unwrap();
    plain.require(LACKING).unwrap();
    plain.shutdown().await.unwrap();
    admin.close().await.unwrap();
    locks.shutdown().await.unwrap();
}

/// What a lock that is shared does not promise, and one of ours does.
const LACKING: Guarantees = Guarantees::FIFO.union(Guarantees::FENCED);

const PAGE: &str = include_str!("../../docs/src/from-another-library.md");
