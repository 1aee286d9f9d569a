//! What is done when data was lost, and at the end.

use super::*;
use Phase::{Both, Drain, New, Old, Shadow};

/// A store that has lost everything: nothing goes on until it is repaired, in the phase that the other one knows, with
/// larger tokens than before.
#[tokio::test(start_paused = true)]
async fn lost_data_is_repaired() {
    for (phase, lost, repaired) in [
        (Both, Side::Old, [Both, Both]),
        (Both, Side::New, [Both, Both]),
        (Drain, Side::New, [Drain, Drain]),
        (Drain, Side::Old, [Drain, Drain]),
        (New, Side::New, [Drain, Drain]),
        (New, Side::Old, [Drain, New]),
    ] {
        let fixture = Fixture::begun().await;
        let process = fixture.process("one").await;
        let admin = fixture.admin();
        admin.advance(&to(phase), &mut silent()).await.unwrap();
        let known = if lost == Side::Old { Side::New } else { Side::Old };
        let before = fixture.read(known).await.unwrap().record.stand;
        let refused = admin.repair(Duration::ZERO).await.unwrap_err();
        assert!(refused.to_string().contains("one (pid 7)"), "{refused}");
        drop(process);
        fixture.stores[lost].inner.store().forget(&*fixture.clock);
        let when = format!("{phase}, the {} store lost", lost.word());
        if !(lost == Side::Old && phase >= Drain) {
            let stuck = admin.advance(&patient(), &mut silent()).await.unwrap_err();
            assert!(
                *stuck.kind() == ErrorKind::Protocol && stuck.to_string().contains("repair"),
                "{when}: {stuck}"
            );
        }
        // Entries of stopped processes live for a ttl.
        fixture.env().sleep(TTL * 2).await;
        let copies = lost == Side::Old && phase >= Drain;
        if lost == Side::Old && phase == Both {
            let refused = admin.clean(false).await.unwrap_err();
            assert!(refused.to_string().contains("the old store has lost its data"), "{refused}");
        }
        let status = admin.repair(Duration::ZERO).await.expect(&when);
        assert_eq!(fixture.phases().await, repaired.map(Some), "{when}: {status:?}");
        let decides = if phase <= Shadow { Side::Old } else { Side::New };
        let after = fixture.read(decides).await.unwrap().record.stand;
        assert!(copies || after.epoch > before.epoch, "{when}");
        let grows = after.window.low >= before.window.high;
        assert!(grows || (copies && after == before), "{when}: {before:?} {after:?}");
        let _process = fixture.process("one").await;
        admin.rollback(&to(Old), &mut silent()).await.expect(&when);
        admin.advance(&to(New), &mut silent()).await.expect(&when);
    }
}

/// A store that is dead for good is left: the other one has the locks alone.
#[tokio::test(start_paused = true)]
async fn a_dead_store_is_left() {
    for (phase, dead, decides, left) in [
        (Old, Side::Old, Side::New, Drain),
        (Shadow, Side::Old, Side::New, Drain),
        (Both, Side::Old, Side::New, Drain),
        (Both, Side::New, Side::Old, Shadow),
        (Drain, Side::New, Side::Old, Shadow),
        (New, Side::New, Side::Old, Shadow),
    ] {
        let fixture = Fixture::begun().await;
        let admin = fixture.admin();
        admin.advance(&to(phase), &mut silent()).await.unwrap();
        fixture.stores[dead].is_down.store(true, Ordering::Relaxed);
        let (began, before) = (fixture.env().now(), newest(&fixture).await);
        let status = admin.repair(Duration::ZERO).await.unwrap();
        let held = TTL + fixture.env().timing().margin(TTL);
        assert!(fixture.env().now().since(began) >= held, "whatever was held is over");
        let after = fixture.read(decides).await.unwrap().record.stand;
        assert!(after.window.low >= before.window.high, "{phase}: {before:?} {after:?}");
        assert_eq!(status.phase, Some(left), "{phase}: {status:?}");
        assert_eq!(fixture.read(decides).await.unwrap().record.stand.phase, left);
    }
    let fixture = Fixture::new();
    fixture.begin(Pair { old: None, new: None }, 0).await;
    for dead in SIDES {
        fixture.stores[dead].is_down.store(true, Ordering::Relaxed);
        let refused = fixture.admin().repair(Duration::ZERO).await.unwrap_err();
        assert!(refused.to_string().contains("`leasehold token-base set`"), "{refused}");
        fixture.stores[dead].is_down.store(false, Ordering::Relaxed);
        assert_eq!(fixture.read(dead.other()).await.unwrap().record.restored, 0, "nothing was written");
    }
    let fixture = Fixture::begun().await;
    let _plain = fixture.plain(Side::Old).await;
    let refused = fixture.admin().repair(Duration::ZERO).await.unwrap_err();
    assert!(refused.to_string().contains("1 session of the old store takes no part"), "{refused}");
    let untouched = Fixture::new();
    assert_eq!(*untouched.admin().repair(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::Misuse);
}

/// After the end the new store's locks can be moved again; the old one refuses forgotten URLs until that is said.
#[tokio::test(start_paused = true)]
async fn a_move_ends_and_another_begins() {
    let fixture = Fixture::begun().await;
    let process = fixture.process("one").await;
    let admin = fixture.admin();
    admin.advance(&to(Drain), &mut silent()).await.unwrap();
    assert_eq!(*admin.clean(false).await.unwrap_err().kind(), ErrorKind::Misuse, "not before `new`");
    admin.advance(&to(New), &mut silent()).await.unwrap();
    let refused = admin.clean(false).await.unwrap_err();
    assert!(refused.to_string().contains("one (pid 7)"), "{refused}");
    drop(process);
    fixture.env().sleep(TTL * 2).await;
    fixture.stores.old.inner.store().forget(&*fixture.clock);
    for old in [false, true] {
        let open = admin.clean(old).await.unwrap_err();
        assert!(open.to_string().contains("migrate repair --yes"), "nothing bars the old store: {open}");
    }
    admin.repair(Duration::ZERO).await.unwrap();
    admin.clean(false).await.unwrap();
    admin.clean(false).await.expect("it is done already");
    let open = async |side: Side| fixture.open(side, fixture.env()).await;
    open(Side::New).await.expect("plain sessions go on");
    assert_eq!(*open(Side::Old).await.unwrap_err().kind(), ErrorKind::Misuse, "a forgotten URL");
    let over = admin.status().await.unwrap_err();
    assert!(over.to_string().contains("is over"), "{over}");

    let second =
        fixture.admin_over(&Pair { old: fixture.stores.new.clone(), new: fixture.stores.old.clone() });
    let back = second.status().await.unwrap_err();
    assert!(back.to_string().contains("clean --old"), "{back}");
    admin.clean(true).await.unwrap();
    open(Side::Old).await.expect("its locks are others' from now on");

    let versions = Pair { old: fixture.read(Side::Old).await, new: fixture.read(Side::New).await };
    let version = |read: &Option<Read>| read.as_ref().map(|read| read.version);
    let turned = Fixture {
        clock: Arc::clone(&fixture.clock),
        stores: Pair { old: fixture.stores.new.clone(), new: fixture.stores.old.clone() },
    };
    turned.begin(Pair { old: version(&versions.new), new: version(&versions.old) }, 1).await;
    second.advance(&to(New), &mut silent()).await.expect("the same stores, the other way round");
}

/// The stand of the record that knows more.
async fn newest(fixture: &Fixture) -> Stand {
    let [old, new] = [fixture.read(Side::Old).await, fixture.read(Side::New).await];
    old.unwrap().record.stand.newest(new.unwrap().record.stand)
}

/// A process that signs while a record is ended is seen, and the move goes on.
#[tokio::test(start_paused = true)]
async fn a_process_that_comes_at_the_end_is_seen() {
    let fixture = Fixture::begun().await;
    fixture.admin().advance(&to(New), &mut silent()).await.unwrap();
    let cut = Cut::new(1, Fate::Late);
    let admin =
        fixture.admin_over(&Pair { old: fixture.stores.old.clone(), new: fixture.stores.new.with(&cut) });
    let mut cleaning = std::pin::pin!(admin.clean(false));
    tokio::select! {
        biased;
        done = &mut cleaning => panic!("{done:?}"),
        () = cut.come.notified() => {}
    }
    let _process = fixture.process("late").await;
    cut.goes_on.notify_one();
    let refused = cleaning.await.unwrap_err();
    assert!(refused.to_string().contains("late (pid 7)"), "{refused}");
    assert_eq!(fixture.read(Side::New).await.unwrap().record.end, None);
}
