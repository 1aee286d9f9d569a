//! Steps forth and back, and whom they wait for.

use leasehold_core::backend::ledger::MOST_MEMBERS;

use super::*;
use crate::session::foreign::note;
use Phase::{Both, Drain, New, Old, Shadow};

/// Every step, one by one: what both records say after it, and what the status says comes next.
#[tokio::test(start_paused = true)]
async fn each_step_leads_to_the_next_phase() {
    let fixture = Fixture::begun().await;
    let (_one, _other) = (fixture.process("one").await, fixture.process("other").await);
    let admin = fixture.admin();
    let before = admin.status().await.unwrap();
    assert_eq!((before.phase, before.members.len()), (Some(Old), 2), "{before:?}");
    assert!(before.next.contains("`shadow`") && before.blockers.is_empty(), "{before:?}");
    for (phase, records) in [
        (Shadow, [Shadow, Shadow]),
        (Both, [Both, Both]),
        (Drain, [Drain, Drain]),
        (New, [Drain, New]),
        (New, [Drain, New]),
    ] {
        let status = admin.advance(&patient(), &mut silent()).await.unwrap();
        assert_eq!((status.phase, fixture.phases().await), (Some(phase), records.map(Some)), "{status:?}");
    }
    assert!(fixture.base(Side::New).await > 0, "plain sessions go on with the same numbers");
    admin.advance(&to(Both), &mut silent()).await.unwrap();
    assert_eq!(fixture.phases().await, [Some(Drain), Some(New)], "that lies behind");
    for (phase, records) in [
        (Drain, [Drain, Drain]),
        (Both, [Both, Both]),
        (Shadow, [Shadow, Both]),
        (Old, [Old, Both]),
        (Old, [Old, Both]),
    ] {
        let status = admin.rollback(&patient(), &mut silent()).await.unwrap();
        assert_eq!((status.phase, fixture.phases().await), (Some(phase), records.map(Some)), "{status:?}");
    }
    assert!(fixture.base(Side::Old).await > fixture.base(Side::New).await);
    admin.close().await.unwrap();
    assert!(fixture.ledger(Side::Old).await.members().await.unwrap().len() == 2, "it has left no entry");
}

/// A process that does not act by the record yet is named, with its holds; once it does, the walk goes on.
#[tokio::test(start_paused = true)]
async fn lagging_process_is_named_and_waited_for() {
    let fixture = Fixture::begun().await;
    let (_other, slow) = (fixture.process("other").await, fixture.process("slow/1").await);
    let admin = fixture.admin();
    admin.advance(&to(Both), &mut silent()).await.unwrap();
    slow.says.alone.store(2, Ordering::Relaxed);
    slow.says.is_stopped.store(true, Ordering::Relaxed);
    admin.rollback(&to(Shadow), &mut silent()).await.unwrap();
    fixture.settled().await;
    let refused = admin.advance(&Steps::one(), &mut silent()).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Timeout { .. }), "{refused:?}");
    let said = refused.to_string();
    assert!(said.contains("slow/1 (pid 7)") && !said.contains("other (pid"), "{said}");
    let status = admin.status().await.unwrap();
    assert!(status.blockers[0].contains("slow/1") && status.next.contains("`both`"), "{status:?}");
    assert!(status.members.iter().any(|member| member.label == "slow/1" && !member.acts_by_old));

    slow.says.is_stopped.store(false, Ordering::Relaxed);
    admin.advance(&to(Both), &mut silent()).await.unwrap();
    let mut told = 0;
    let mut hears = |progress: &Progress| {
        told += 1;
        assert!(progress.to_string().contains("it holds 2 of its locks only there"), "{progress}");
        assert_eq!(progress.to, Some(Drain));
        if told == 3 {
            slow.says.alone.store(0, Ordering::Relaxed);
        }
    };
    admin.advance(&to(Drain), &mut hears).await.unwrap();
    assert!(told >= 3);
}

/// A session without `migrate_to` is counted in whichever store it would be in the way, and may be vouched for.
#[tokio::test(start_paused = true)]
async fn a_plain_session_is_in_the_way() {
    for side in SIDES {
        let fixture = Fixture::new();
        let plain = fixture.plain(side).await;
        fixture.begin(Pair { old: None, new: None }, 1).await;
        let _process = fixture.process("one").await;
        let (admin, second) = (fixture.admin(), fixture.admin());
        second.status().await.unwrap();
        admin.advance(&to(Shadow), &mut silent()).await.unwrap();
        let refused = admin.advance(&patient(), &mut silent()).await.unwrap_err();
        let said = format!("1 session of the {} store takes no part", side.word());
        assert!(refused.to_string().contains(&said), "{refused}");
        admin.advance(&patient().foreign_sessions(1), &mut silent()).await.unwrap();
        admin.rollback(&to(Shadow), &mut silent()).await.unwrap();
        plain.close().await.unwrap();
        admin.advance(&to(New), &mut silent()).await.unwrap();
    }
}

/// Where the old store has lost the record that bars plain sessions, `new` begins when the record is there again, and when those
/// that opened meanwhile have ended.
#[tokio::test(start_paused = true)]
async fn plain_session_after_a_loss_stops_the_last_step() {
    let fixture = Fixture::begun().await;
    let (admin, step) = (fixture.admin(), Steps::one().quiet_for(Duration::ZERO));
    admin.advance(&to(Drain), &mut silent()).await.unwrap();
    fixture.stores.old.inner.store().forget(&*fixture.clock);
    let plain = fixture.open(Side::Old, fixture.env()).await.expect("nothing bars it");
    let refused = async |said| {
        let refused = admin.advance(&step, &mut silent()).await.unwrap_err();
        let status = admin.status().await.unwrap();
        let is_said = |one: &String| one.contains(said);
        assert!(is_said(&refused.to_string()) && status.blockers.iter().any(is_said), "{refused} {status:?}");
    };
    refused("a process of the move writes the record again").await;
    admin.repair(Duration::ZERO).await.expect("it is written again, and nothing else");
    refused("1 session of the old store takes no part").await;
    // A look, the reads of the step and the count: one of their requests fails.
    for request in 1..=7 {
        fixture.stores.old.fails_at.store(request, Ordering::Relaxed);
        let refused = admin.advance(&step.clone().wait(TTL), &mut silent()).await.unwrap_err();
        assert!(refused.to_string().contains("1 session of the old store"), "{request}: {refused}");
    }
    plain.close().await.unwrap();
    admin.advance(&to(New), &mut silent()).await.unwrap();
}

/// An old store that goes back to what it was in `old` admits plain sessions, too: its record counts as lost.
#[tokio::test(start_paused = true)]
async fn old_record_that_went_back_stops_the_last_step() {
    let fixture = Fixture::begun().await;
    let (admin, step) = (fixture.admin(), Steps::one().quiet_for(Duration::ZERO));
    let before = fixture.read(Side::Old).await.unwrap().record;
    admin.advance(&to(Drain), &mut silent()).await.unwrap();
    fixture.stores.old.inner.store().forget(&*fixture.clock);
    fixture.ledger(Side::Old).await.write(None, &before.encode()).await.unwrap();
    for refused in [
        admin.advance(&step, &mut silent()).await.unwrap_err(),
        admin.rollback(&step, &mut silent()).await.unwrap_err(),
    ] {
        assert!(refused.to_string().contains("writes the record again"), "{refused}");
    }
    let status = admin.status().await.unwrap();
    assert!(status.blockers[0].contains("writes the record again"), "{status:?}");
    admin.repair(Duration::ZERO).await.expect("it is written again, and nothing else");
    assert_eq!(fixture.phases().await, [Some(Drain); 2]);
    admin.advance(&step, &mut silent()).await.unwrap();
}

/// The last writes of a beginning are made up for by the first step (records-4).
#[tokio::test(start_paused = true)]
async fn first_step_counts_the_old_record_in_both() {
    let fixture = Fixture::begun().await;
    for side in SIDES {
        let Read { version, record } = fixture.read(side).await.unwrap();
        let halfway = MoveRecord { restored: 0, id: record.id + u64::from(side == Side::New), ..record };
        fixture.ledger(side).await.write(Some(version), &halfway.encode()).await.unwrap();
    }
    fixture.admin().advance(&patient(), &mut silent()).await.unwrap();
    let counted = async |side| fixture.read(side).await.map(|read| (read.record.id, read.record.restored));
    assert_eq!([counted(Side::Old).await, counted(Side::New).await], [Some((9, 1)); 2]);
}

/// A process that is not in the new store's list would be granted nothing in `both`: it is waited for.
#[tokio::test(start_paused = true)]
async fn process_cut_off_from_the_new_store_is_waited_for() {
    let fixture = Fixture::begun().await;
    let says = Arc::new(Says { lacks_new: AtomicBool::new(true), ..Says::default() });
    let _one_sided = Process::start(&fixture, "one-sided", Arc::clone(&says)).await;
    let admin = fixture.admin();
    admin.advance(&patient(), &mut silent()).await.unwrap();
    let refused = admin.advance(&patient(), &mut silent()).await.unwrap_err();
    // Its session is there, and no entry.
    assert!(refused.to_string().contains("one-sided (pid 7) has not reached the new store"), "{refused}");
    says.lacks_new.store(false, Ordering::Relaxed);
    admin.advance(&patient(), &mut silent()).await.unwrap();
}

/// Of many members that stand in the way the first ones are named.
#[tokio::test(start_paused = true)]
async fn the_first_of_many_members_are_named() {
    let fixture = Fixture::begun().await;
    let admin = fixture.admin();
    admin.advance(&to(Shadow), &mut silent()).await.unwrap();
    let ledger = fixture.ledger(Side::Old).await;
    for id in 0..25 {
        ledger.sign(OwnerId::from_random([id; 16]), b"forged").await.unwrap();
    }
    let status = admin.status().await.unwrap();
    assert_eq!((status.members.len(), status.blockers.len()), (25, 21), "{:?}", status.blockers);
    assert!(status.blockers[20].contains("5 more"), "{:?}", status.blockers);
    for id in 25..=MOST_MEMBERS {
        let id = OwnerId::from_hex(&format!("{id:032x}")).unwrap();
        ledger.sign(id, b"forged").await.unwrap();
    }
    let status = admin.status().await.unwrap();
    let said = "at least 10002 participants";
    assert!(status.members.is_empty() && status.blockers[0].contains(said), "{:?}", status.blockers);
    let refused = admin.advance(&Steps::one(), &mut silent()).await.unwrap_err();
    assert!(refused.to_string().contains(said), "{refused}");
}

/// `new` begins when no foreign client was met for long enough, counted from the last one, or from `drain`.
#[tokio::test(start_paused = true)]
async fn new_begins_when_it_is_quiet() {
    let fixture = Fixture::begun().await;
    let _process = fixture.process("one").await;
    let admin = fixture.admin();
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    admin.advance(&to(Drain), &mut silent()).await.unwrap();
    let step = || Steps::one().quiet_for(hours(2));
    let refused = admin.advance(&step(), &mut silent()).await.unwrap_err();
    assert!(refused.to_string().contains("`drain` began"), "{refused}");
    for (name, after) in [("payroll", hours(1) / 2), ("report", hours(1) / 2)] {
        fixture.env().sleep(after).await;
        let met =
            note(&*fixture.ledger(Side::New).await, &fixture.env(), &LockName::new(name).unwrap()).await;
        met.unwrap();
    }
    fixture.env().sleep(hours(1) + hours(1) / 2).await;
    let refused = admin.advance(&step(), &mut silent()).await.unwrap_err();
    assert!(refused.to_string().contains("held `report`"), "{refused}");
    assert!(admin.status().await.unwrap().blockers[0].contains("report"));
    admin.advance(&step().wait(hours(1)), &mut silent()).await.unwrap();
    assert_eq!(fixture.phases().await, [Some(Drain), Some(New)]);
    assert!(fixture.env().now().as_nanos() < u64::try_from(hours(4).as_nanos()).unwrap());
}
