//! Administrators who stop anywhere, and two at once.

use super::*;
use Phase::{Both, Drain, New, Old};

/// More writes than a whole walk has, bases counted.
const MOST: usize = 12;

/// The new store is open only while the old one is barred.
async fn is_safe(fixture: &Fixture, when: &str) {
    let [old, new] = fixture.phases().await;
    assert!(old == Some(Drain) || new < Some(Drain), "{when}: {old:?} {new:?}");
}

async fn walk(admin: &Admin, way: Phase, steps: &Steps) -> Result<()> {
    let walked = match way {
        Old => admin.rollback(steps, &mut silent()).await,
        _ => admin.advance(steps, &mut silent()).await,
    };
    walked.map(drop)
}

async fn at(phase: Phase) -> (Fixture, Process) {
    let fixture = Fixture::begun().await;
    let process = fixture.process("one").await;
    fixture.admin().advance(&to(phase), &mut silent()).await.unwrap();
    (fixture, process)
}

/// Killed before or after any write, in every direction: the next administrator goes on in either direction.
#[tokio::test(start_paused = true)]
async fn an_administrator_may_be_killed_at_any_write() {
    let mut cuts = 0;
    for (from, way, then) in [(Old, New, New), (Old, New, Old), (New, Old, Old), (New, Old, New)] {
        for fate in [Fate::NotSent, Fate::NotHeard] {
            for number in 1..=MOST {
                let (fixture, _process) = at(from).await;
                let cut = Cut::new(number, fate);
                let stores = Pair { old: fixture.stores.old.with(&cut), new: fixture.stores.new.with(&cut) };
                let admin = fixture.admin_over(&stores);
                let when = format!("{fate:?} {number} of {from} to {way}, then {then}");
                let steps = to(way);
                tokio::select! {
                    biased;
                    done = walk(&admin, way, &steps) => done.expect(&when),
                    () = cut.come.notified() => cuts += 1,
                }
                drop(admin);
                is_safe(&fixture, &when).await;
                walk(&fixture.admin(), then, &to(then)).await.expect(&when);
                is_safe(&fixture, &when).await;
                let decides = if then == Old { Side::Old } else { Side::New };
                assert_eq!(fixture.read(decides).await.unwrap().record.stand.phase, then, "{when}");
            }
        }
    }
    // Eight writes on the way forth, and seven on the way back; each killed in two ways, and gone on with in two.
    assert_eq!(cuts, 2 * 2 * (8 + 7));
}

/// The answer to any write may be lost: the walk finds what it has written and goes on, without a step too many.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_looked_up() {
    for number in 1..=8 {
        let fixture = Fixture::begun().await;
        let cut = Cut::new(number, Fate::Unknown);
        let stores = Pair { old: fixture.stores.old.with(&cut), new: fixture.stores.new.with(&cut) };
        let admin = fixture.admin_over(&stores);
        for phase in [Phase::Shadow, Both, Drain, New] {
            // Once, although nothing is waited for.
            let step = Steps::one().quiet_for(Duration::ZERO);
            let status = admin.advance(&step, &mut silent()).await.unwrap();
            assert_eq!(status.phase, Some(phase), "answer {number} lost");
        }
        is_safe(&fixture, "a lost answer").await;
    }
}

/// One is held up before any of its writes while another goes all the way and back, or anywhere: then it goes on,
/// and everything is as it must be.
#[tokio::test(start_paused = true)]
async fn two_administrators_may_work_at_once() {
    let mut held_up = 0;
    for (from, way) in [(Old, New), (New, Old)] {
        for others in [&[New][..], &[Old], &[New, Old], &[Old, New], &[Both]] {
            for number in 1..=MOST {
                let (fixture, _process) = at(from).await;
                let cut = Cut::new(number, Fate::Late);
                let stores = Pair { old: fixture.stores.old.with(&cut), new: fixture.stores.new.with(&cut) };
                let (slow, quick) = (fixture.admin_over(&stores), fixture.admin());
                let when = format!("{number} of {from} to {way}, meanwhile {others:?}");
                let steps = to(way);
                let mut slowly = std::pin::pin!(walk(&slow, way, &steps));
                let is_over = tokio::select! {
                    biased;
                    done = &mut slowly => { done.expect(&when); true }
                    () = cut.come.notified() => false,
                };
                if is_over {
                    continue;
                }
                held_up += 1;
                for other in others {
                    walk(&quick, *other, &to(*other)).await.expect(&when);
                    is_safe(&fixture, &when).await;
                }
                cut.goes_on.notify_one();
                slowly.await.expect(&when);
                is_safe(&fixture, &when).await;
                let decides = if way == Old { Side::Old } else { Side::New };
                assert_eq!(fixture.read(decides).await.unwrap().record.stand.phase, way, "{when}");
            }
        }
    }
    assert_eq!(held_up, 5 * (8 + 7));
}
