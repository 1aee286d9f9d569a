//! A store that is down, records of others, and records that later versions have written.

use leasehold_core::LostReason;

use super::*;
use Phase::{Both, Drain, New, Old, Shadow};

/// Which step goes without which store: whatever does not decide may be down.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_stops_only_what_needs_it() {
    for (phase, down, forth, back) in [
        (Old, Side::Old, None, None),
        (Old, Side::New, None, Some(Old)),
        (Shadow, Side::Old, None, None),
        (Shadow, Side::New, None, Some(Old)),
        (Both, Side::Old, None, None),
        (Both, Side::New, None, Some(Shadow)),
        (Drain, Side::Old, Some(New), None),
        (Drain, Side::New, None, None),
        (New, Side::Old, Some(New), Some(Drain)),
        (New, Side::New, None, None),
    ] {
        for (way, expected) in [(New, forth), (Old, back)] {
            let fixture = Fixture::begun().await;
            fixture.admin().advance(&to(phase), &mut silent()).await.unwrap();
            fixture.stores[down].is_down.store(true, Ordering::Relaxed);
            let admin = fixture.admin();
            let step = Steps::one().quiet_for(Duration::ZERO);
            let walked = match way {
                Old => admin.rollback(&step, &mut silent()).await,
                _ => admin.advance(&step, &mut silent()).await,
            };
            let when = format!("{phase}, the {} store down, toward {way}: {walked:?}", down.word());
            assert_eq!(walked.as_ref().ok().and_then(|status| status.phase), expected, "{when}");
            let status = admin.status().await.unwrap();
            let error = |side: Side| if side == Side::Old { &status.old.error } else { &status.new.error };
            assert!(error(down).as_ref().unwrap().contains("it is down"), "{when}");
            if let Err(error) = walked {
                assert_eq!(*error.kind(), ErrorKind::Unavailable, "{when}");
                let says = status.blockers.iter().any(|way| way.contains("it is down"));
                assert!(says || way == Old, "{status:?}");
                fixture.stores[down].is_down.store(false, Ordering::Relaxed);
                let again = if way == Old {
                    admin.rollback(&step, &mut silent()).await
                } else {
                    admin.advance(&step, &mut silent()).await
                };
                again.expect("the same administrator goes on");
            }
        }
    }
}

/// While it is waited, a store may come back, or end the session.
#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_is_waited_for() {
    let lost = Error::lost(LostReason::SessionLost);
    for (down, said) in [(Wired::down(), "it is down"), (lost.clone(), &*lost.to_string())] {
        let mut fixture = Fixture::begun().await;
        fixture.stores.old.fails = down;
        let admin = fixture.admin();
        fixture.stores.old.is_down.store(true, Ordering::Relaxed);
        let mut told = 0;
        let mut hears = |progress: &Progress| {
            told += 1;
            assert!(progress.to.is_none() && progress.to_string().contains(said), "{progress}");
            fixture.stores.old.is_down.store(told < 5, Ordering::Relaxed);
        };
        admin.advance(&patient(), &mut hears).await.unwrap();
        assert_eq!(told, 5);
    }
    let fixture = Fixture::begun().await;
    let admin = fixture.admin();
    for side in SIDES {
        fixture.stores[side].is_down.store(true, Ordering::Relaxed);
    }
    assert_eq!(*admin.status().await.unwrap_err().kind(), ErrorKind::Unavailable, "neither says anything");
}

/// A store that refuses the administrator is said beside what the other one knows, and one that is silent is waited for once.
#[tokio::test(start_paused = true)]
async fn store_that_refuses_is_shown() {
    let mut fixture = Fixture::begun().await;
    fixture.stores.new.fails = Error::not_applied(ErrorKind::Denied, "wrong password");
    fixture.stores.new.is_down.store(true, Ordering::Relaxed);
    let migration = crate::Migration::new(fixture.stores.old.clone(), fixture.stores.new.clone());
    let admin = migration.admin(fixture.env()).await.unwrap();
    let status = admin.status().await.unwrap();
    let said = status.new.error.unwrap();
    assert!(status.phase == Some(Old) && said.contains("wrong password"), "{said}");
    assert_eq!(*admin.advance(&patient(), &mut silent()).await.unwrap_err().kind(), ErrorKind::Denied);

    fixture.stores.new.hangs = true;
    let (env, migration) =
        (fixture.env(), crate::Migration::new(fixture.stores.old.clone(), fixture.stores.new.clone()));
    let began = env.now();
    let status = migration.admin(fixture.env()).await.unwrap().status().await.unwrap();
    assert!(status.new.error.is_some());
    assert_eq!(env.now().since(began), env.timing().connect_timeout);
}

/// A record that a later version has written is not acted on, and stays as it is.
#[tokio::test(start_paused = true)]
async fn a_record_of_a_later_format_is_left_alone() {
    for side in SIDES {
        let fixture = Fixture::begun().await;
        let ledger = fixture.ledger(side).await;
        let before = ledger.read().await.unwrap().unwrap();
        let later = format!("2 {} shadow\n{{}}", side.word());
        ledger.write(Some(before.version), later.as_bytes()).await.unwrap();
        let admin = fixture.admin();
        let status = admin.status().await.unwrap();
        let store = if side == Side::Old { &status.old } else { &status.new };
        assert!(store.error.as_ref().unwrap().contains("format 2"), "{status:?}");
        let forth = admin.advance(&to(New), &mut silent()).await.unwrap_err();
        assert_eq!(*forth.kind(), ErrorKind::Unsupported, "{forth}");
        assert_eq!(ledger.read().await.unwrap().unwrap().value, later.as_bytes());
    }
}
