//! How long dead contenders delay the others (G6), and how often waiters refresh: contenders that die or
//! leave at any moment, on a network that does nothing wrong, against the model of the scripts.

use super::*;
use crate::scripts::model::UNSWEPT;

/// One contender; the last one never ends.
#[derive(Clone, Debug)]
struct Life {
    /// When it enters, in thirds of the ttl and thousandths of one.
    enters: u64,
    ends: u64,
    leaves: bool,
    mode: Mode,
}

/// A ttl, and the contenders before the last one.
fn scenes() -> impl Strategy<Value = (u64, Vec<Life>)> {
    // Many die together.
    let ends = prop_oneof![4 => Just(5_001_u64), 1 => 3_000_u64..9_000];
    let life = (0_u64..3_000, ends, prop::bool::weighted(0.2)).prop_map(|(enters, ends, leaves)| Life {
        enters,
        ends,
        leaves,
        mode: Mode::EXCLUSIVE,
    });
    (prop::sample::select(vec![300, 9_000, 15_000]), prop::collection::vec(life, 1..5))
}

/// What the last one had to wait for, and what was asked beyond entering and refreshing.
struct Outcome {
    /// Milliseconds from the last death, or from the last hold that was released, to its own.
    waited: u64,
    asked: usize,
}

/// What the scripts do, and the way to them.
#[derive(Clone, Copy, Debug)]
struct Store {
    fault: Fault,
    /// How many ended entries a request drops at most.
    sweep: usize,
    /// How long answers take, as when replicas are waited for, in thousandths of a third of the ttl;
    /// messages come at once.
    late: u64,
    /// How the last one wants it.
    mode: Mode,
}

impl Store {
    const SOUND: Self = Self { fault: Fault::None, sweep: 500, late: 0, mode: Mode::EXCLUSIVE };

    fn with(fault: Fault) -> Self {
        Self { fault, ..Self::SOUND }
    }
}

/// The last one enters then.
fn play(ttl: u64, lives: &[Life], enters: u64, store: Store) -> Outcome {
    let millis = |thousandths: u64| thousandths * ttl / 3_000;
    let Store { fault, sweep, late, mode } = store;
    let late = millis(late);
    let mut server = Server { fault, sweep, ..Server::default() };
    let last = lives.len();
    let mut lives: Vec<_> = lives
        .iter()
        .map(|life| Life { enters: millis(life.enters), ends: millis(life.ends), ..life.clone() })
        .collect();
    lives.sort_by_key(|life| life.enters);
    lives.push(Life { enters: millis(enters), ends: u64::MAX, leaves: false, mode });
    let new = || Contender::new(Duration::from_millis(ttl), Duration::from_millis(ttl / 100));
    let mut contenders: Vec<_> = lives.iter().map(|_| new()).collect();
    let mut refreshed_at = vec![0; lives.len()];
    // The answer that is on its way, and when its request was sent.
    let mut answers: Vec<Option<(u64, ScriptReply)>> = vec![None; lives.len()];
    let (mut asked, mut now, mut waits_since) = (0, 1_000, 0);
    let began = now;
    loop {
        let since = now - began;
        for id in 0..lives.len() {
            let (owner, moment) = (id as u64 + 1, at(now));
            let asker = Asker { mode: lives[id].mode, ..Asker::new(owner, id, ttl) };
            if since < lives[id].enters || lives[id].ends < since {
                continue;
            }
            let mut said = Vec::new();
            if lives[id].ends == since {
                if !lives[id].leaves || server.is_held_by(owner) {
                    waits_since = since;
                }
                while lives[id].leaves
                    && server.release(micros(now), owner, &mut said) >= UNSWEPT
                    && fault != Fault::SweepsOnce
                {}
            } else {
                hear(&mut contenders[id], &mut answers[id], now, late);
                let step = contenders[id].step(moment);
                let answer = match step {
                    Step::Take { .. } if id == last => {
                        return Outcome { waited: since - waits_since, asked };
                    }
                    _ if answers[id].is_some() => None,
                    Step::Enter => Some(server.acquire(micros(now), asker, true, &mut said)),
                    Step::Refresh => {
                        asked += 1;
                        Some(server.refresh(micros(now), asker, &mut said))
                    }
                    _ if refreshed_at[id] + ttl / 3 <= now => {
                        Some(server.refresh(micros(now), asker, &mut said))
                    }
                    _ => None,
                };
                if let Some(answer) = answer {
                    if step != Step::Refresh {
                        refreshed_at[id] = now;
                    }
                    answers[id] = Some((now, answer));
                    hear(&mut contenders[id], &mut answers[id], now, late);
                }
            }
            for message in said {
                let client = message.client();
                if since < lives[client].ends {
                    match message {
                        Message::Push { counter, .. } => contenders[client].told(moment, counter),
                        Message::Due { ask_in, .. } => {
                            contenders[client].due(moment, Duration::from_millis(ask_in));
                        }
                        _ => unreachable!("nobody revokes or shares"),
                    }
                }
            }
        }
        // Thousandths of a third, where those are whole milliseconds.
        now += (ttl / 3_000).max(1);
        assert!(now < began + 10 * ttl + 10_000, "never: {lives:?}, {server:?}");
    }
}

/// The contender gets the answer of `late` ago.
fn hear(contender: &mut Contender, answer: &mut Option<(u64, ScriptReply)>, now: u64, late: u64) {
    if let Some((sent_at, answer)) = answer.take_if(|(sent_at, _)| *sent_at + late <= now) {
        let took = Duration::from_millis(now - sent_at);
        contender.answered(at(now), at(sent_at), answer.written_before(took));
    }
}

/// Fails if the last one waited for too long.
fn search(store: Store, cases: u32) -> Result<(), TestError<(u64, Vec<Life>)>> {
    walk(cases, true, &scenes(), |(ttl, lives)| {
        let Outcome { waited, .. } = play(*ttl, lives, 3_000, store);
        // To ask, and to be answered.
        let bound = ttl + 1_000 + 2 * store.late * ttl / 3_000;
        if waited > bound { Err(format!("{waited} ms after the last death, ttl {ttl}")) } else { Ok(()) }
    })
}

#[test]
fn the_dead_delay_nobody_longer_than_their_leases() {
    search(Store::SOUND, 500).unwrap();
    search(Store { sweep: 1, ..Store::SOUND }, 500).unwrap();
    search(Store { sweep: 1, late: 200, ..Store::SOUND }, 500).unwrap();
}

#[test]
fn delays_by_the_dead_are_found() {
    for fault in [Fault::LongHandOn, Fault::OnlyTheFirstAsks] {
        assert!(
            matches!(search(Store::with(fault), 2_000), Err(TestError::Fail(..))),
            "{fault:?} delays nobody"
        );
    }
}

/// A writer dies in the queue beside a reader that goes on, when no request is due: the reader behind it
/// shares the lock when the dead entry ends, not when a refresh comes by.
#[test]
fn a_dead_writer_delays_readers_no_longer_than_its_lease() {
    let reads = Life { enters: 0, ends: u64::MAX / 1_000_000, leaves: false, mode: Mode::SHARED };
    let lives = [reads, Life { enters: 10, ends: 11, leaves: false, mode: Mode::EXCLUSIVE }];
    let waited =
        |fault| play(15_000, &lives, 990, Store { fault, mode: Mode::SHARED, ..Store::SOUND }).waited;
    assert!(waited(Fault::None) <= 15_000 + 10);
    assert!(waited(Fault::OnlySharesEnd) > 15_000 + 1_000);
}

/// The first contender leaves just after the second was answered that it refreshes first.
#[test]
fn leaving_entry_tells_the_next_when_to_try() {
    let holder = Life { enters: 0, ends: 5_001, leaves: false, mode: Mode::EXCLUSIVE };
    let lives = [holder, Life { enters: 100, ends: 7_900, leaves: true, mode: Mode::EXCLUSIVE }];
    let (ttl, enters) = (15_000, 2_700);
    assert!(play(ttl, &lives, enters, Store::SOUND).waited <= ttl + 10);
    assert!(play(ttl, &lives, enters, Store::with(Fault::LeavesSilently)).waited > ttl + 1_000);
}

/// Its message comes before the answer to what that one asked earlier, which does not know of it.
#[test]
fn an_older_answer_does_not_undo_a_message() {
    let holder = Life { enters: 0, ends: 5_001, leaves: false, mode: Mode::EXCLUSIVE };
    let lives = [holder, Life { enters: 100, ends: 7_900, leaves: true, mode: Mode::EXCLUSIVE }];
    let (ttl, late) = (15_000, 300);
    let waited = play(ttl, &lives, 2_700, Store { late, ..Store::SOUND }).waited;
    assert!(waited <= ttl + 10, "{waited}");
}

/// What was said to be due is so although the answer took long.
#[test]
fn a_late_answer_does_not_put_off_what_is_due() {
    let lives = [Life { enters: 0, ends: 5_001, leaves: false, mode: Mode::EXCLUSIVE }];
    let (ttl, late) = (15_000, 250);
    let waited = play(ttl, &lives, 2_700, Store { late, ..Store::SOUND }).waited;
    assert!(waited <= ttl + 10, "{waited}");
}

/// Answers and messages are taken in by different tasks: a message may be first.
#[test]
fn a_message_before_the_answer_that_enters_counts() {
    let mut contender = Contender::new(Duration::from_millis(9_000), Duration::from_millis(90));
    contender.due(at(10), Duration::from_millis(100));
    contender.answered(at(20), at(0), ScriptReply::Waits { seen: 5, ask_in: None, behind_foreign: false });
    assert_eq!(contender.step(at(20)), Step::Wait(at(111)));
    contender.answered(at(130), at(120), ScriptReply::Waits { seen: 5, ask_in: None, behind_foreign: false });
    assert_eq!(contender.step(at(130)), Step::Wait(at(120 + 9_000 - 90)), "asked for later than it was said");
}

/// More have died than one request drops: the releaser goes on until the living one has the lock.
#[test]
fn release_passes_over_any_number_of_dead_entries() {
    let mut lives = vec![Life { enters: 0, ends: 5_500, leaves: true, mode: Mode::EXCLUSIVE }];
    lives.extend((10..20).map(|enters| Life { enters, ends: 2_900, leaves: false, mode: Mode::EXCLUSIVE }));
    let play = |fault| play(15_000, &lives, 3_000, Store { fault, sweep: 1, ..Store::SOUND }).waited;
    assert!(play(Fault::None) <= 10);
    assert!(play(Fault::SweepsOnce) > 1_000);
}

/// Twenty contenders wait, and the holder is dead: at the end of its lease one of them asks.
#[test]
fn one_asks_when_a_lease_ends() {
    let mut lives = vec![Life { enters: 0, ends: 500, leaves: false, mode: Mode::EXCLUSIVE }];
    lives.extend((1..20).map(|entry| Life {
        enters: entry,
        ends: 8_999,
        leaves: true,
        mode: Mode::EXCLUSIVE,
    }));
    assert_eq!(play(9_000, &lives, 3_000, Store::SOUND).asked, 1);
    assert!(play(9_000, &lives, 3_000, Store::with(Fault::AllAsk)).asked > 10);
}
