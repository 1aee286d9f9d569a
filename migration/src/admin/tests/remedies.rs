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
        let rig = Rig::begun().await;
        let process = rig.process("one").await;
        let admin = rig.admin();
        admin.advance(&to(phase), &mut silent()).await.unwrap();
        let known = if lost == Side::Old { Side::New } else { Side::Old };
        let before = rig.read(known).await.unwrap().record.stand;
        let refused = admin.repair(Duration::ZERO).await.unwrap_err();
        assert!(refused.to_string().contains("one (pid 7)"), "{refused}");
        drop(process);
        rig.stores[lost].inner.store().forget(&*rig.clock);
        let when = format!("{phase}, the {} store lost", lost.word());
        if !(lost == Side::Old && phase >= Drain) {
            let stuck = admin.advance(&patient(), &mut silent()).await.unwrap_err();
            assert!(
                *stuck.kind() == ErrorKind::Protocol && stuck.to_string().contains("repair"),
                "{when}: {stuck}"
            );
        }
        // Entries of stopped processes live for a ttl.
        rig.env().sleep(TTL * 2).await;
        let copies = lost == Side::Old && phase >= Drain;
        if lost == Side::Old && phase == Both {
            let refused = admin.clean(false).await.unwrap_err();
            assert!(refused.to_string().contains("the old store has lost its data"), "{refused}");
        }
        let status = admin.repair(Duration::ZERO).await.expect(&when);
        assert_eq!(rig.phases().await, repaired.map(Some), "{when}: {status:?}");
        let decides = if phase <= Shadow { Side::Old } else { Side::New };
        let after = rig.read(decides).await.unwrap().record.stand;
        assert!(copies || after.epoch > before.epoch, "{when}");
        let grows = after.window.low >= before.window.high;
        assert!(grows || (copies && after == before), "{when}: {before:?} {after:?}");
        let _process = rig.process("one").await;
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
        let rig = Rig::begun().await;
        let admin = rig.admin();
        admin.advance(&to(phase), &mut silent()).await.unwrap();
        rig.stores[dead].is_down.store(true, Ordering::Relaxed);
        let (began, before) = (rig.env().now(), newest(&rig).await);
        let status = admin.repair(Duration::ZERO).await.unwrap();
        let held = TTL + rig.env().timing().margin(TTL);
        assert!(rig.env().now().since(began) >= held, "whatever was held is over");
        let after = rig.read(decides).await.unwrap().record.stand;
        assert!(after.window.low >= before.window.high, "{phase}: {before:?} {after:?}");
        assert_eq!(status.phase, Some(left), "{phase}: {status:?}");
        assert_eq!(rig.read(decides).await.unwrap().record.stand.phase, left);
    }
    let rig = Rig::new();
    rig.begin(Pair { old: None, new: None }, 0).await;
    for dead in SIDES {
        rig.stores[dead].is_down.store(true, Ordering::Relaxed);
        let refused = rig.admin().repair(Duration::ZERO).await.unwrap_err();
        assert!(refused.to_string().contains("`leasehold token-base set`"), "{refused}");
        rig.stores[dead].is_down.store(false, Ordering::Relaxed);
        assert_eq!(rig.read(dead.other()).await.unwrap().record.restored, 0, "nothing was written");
    }
    let rig = Rig::begun().await;
    let _plain = rig.plain(Side::Old).await;
    let refused = rig.admin().repair(Duration::ZERO).await.unwrap_err();
    assert!(refused.to_string().contains("1 session of the old store takes no part"), "{refused}");
    let untouched = Rig::new();
    assert_eq!(*untouched.admin().repair(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::Misuse);
}

/// After the end the new store's locks can be moved again; the old one refuses forgotten URLs until that is said.
#[tokio::test(start_paused = true)]
async fn a_move_ends_and_another_begins() {
    let rig = Rig::begun().await;
    let process = rig.process("one").await;
    let admin = rig.admin();
    admin.advance(&to(Drain), &mut silent()).await.unwrap();
    assert_eq!(*admin.clean(false).await.unwrap_err().kind(), ErrorKind::Misuse, "not before `new`");
    admin.advance(&to(New), &mut silent()).await.unwrap();
    let refused = admin.clean(false).await.unwrap_err();
    assert!(refused.to_string().contains("one (pid 7)"), "{refused}");
    drop(process);
    rig.env().sleep(TTL * 2).await;
    rig.stores.old.inner.store().forget(&*rig.clock);
    for old in [false, true] {
        let open = admin.clean(old).await.unwrap_err();
        assert!(open.to_string().contains("migrate repair --yes"), "nothing bars the old store: {open}");
    }
    admin.repair(Duration::ZERO).await.unwrap();
    admin.clean(false).await.unwrap();
    admin.clean(false).await.expect("it is done already");
    let open = async |side: Side| rig.open(side, rig.env()).await;
    open(Side::New).await.expect("plain sessions go on");
    assert_eq!(*open(Side::Old).await.unwrap_err().kind(), ErrorKind::Misuse, "a forgotten URL");
    let over = admin.status().await.unwrap_err();
    assert!(over.to_string().contains("is over"), "{over}");

    let second = rig.admin_over(&Pair { old: rig.stores.new.clone(), new: rig.stores.old.clone() });
    let back = second.status().await.unwrap_err();
    assert!(back.to_string().contains("clean --old"), "{back}");
    admin.clean(true).await.unwrap();
    open(Side::Old).await.expect("its locks are others' from now on");

    let versions = Pair { old: rig.read(Side::Old).await, new: rig.read(Side::New).await };
    let version = |read: &Option<Read>| read.as_ref().map(|read| read.version);
    let turned = Rig {
        clock: Arc::clone(&rig.clock),
        stores: Pair { old: rig.stores.new.clone(), new: rig.stores.old.clone() },
    };
    turned.begin(Pair { old: version(&versions.new), new: version(&versions.old) }, 1).await;
    second.advance(&to(New), &mut silent()).await.expect("the same stores, the other way round");
}

/// The stand of the record that knows more.
async fn newest(rig: &Rig) -> Stand {
    let [old, new] = [rig.read(Side::Old).await, rig.read(Side::New).await];
    old.unwrap().record.stand.newest(new.unwrap().record.stand)
}

/// A process that signs while a record is ended is seen, and the move goes on.
#[tokio::test(start_paused = true)]
async fn a_process_that_comes_at_the_end_is_seen() {
    let rig = Rig::begun().await;
    rig.admin().advance(&to(New), &mut silent()).await.unwrap();
    let cut = Cut::new(1, Fate::Late);
    let admin = rig.admin_over(&Pair { old: rig.stores.old.clone(), new: rig.stores.new.with(&cut) });
    let mut cleaning = std::pin::pin!(admin.clean(false));
    tokio::select! {
        biased;
        done = &mut cleaning => panic!("{done:?}"),
        () = cut.come.notified() => {}
    }
    let _process = rig.process("late").await;
    cut.goes_on.notify_one();
    let refused = cleaning.await.unwrap_err();
    assert!(refused.to_string().contains("late (pid 7)"), "{refused}");
    assert_eq!(rig.read(Side::New).await.unwrap().record.end, None);
}
