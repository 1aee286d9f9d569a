//! Clearing up after a request whose answer was lost, against a network that keeps it for as long as a cut
//! lasts, and delivers it when the cut ends.

use super::*;

/// The longest pause between two releases.
const PAUSE: u64 = TTL / 9;

/// What became of the request, and of the connection.
#[derive(Clone, Copy, Debug)]
struct Scene {
    /// When the request arrives, from the end of the cut on; later than a ttl if never.
    arrives_in: u64,
    /// How long nothing goes through, from the sending on.
    cut_for: u64,
    /// Whether its connection has broken. One that has not delivers it when the cut ends.
    broke: bool,
    /// When the caller has gone.
    leaves_at: u64,
    /// When the connection breaks once more, from the end of the cut on.
    breaks_in: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// Whatever is unanswered, it stops after a ttl.
    StopsAfterATtl,
    /// An answer on any connection is taken for one on the request's own.
    BelievesAnyConnection,
    /// The client does not notice that the server is reached again.
    NeverStops,
    /// The first release is the last one.
    ReleasesOnce,
}

/// How long the entry was at the server, and when the releases stopped.
fn play(scene: Scene, wrong: Wrong) -> Result<(), String> {
    let Scene { arrives_in, cut_for, broke, leaves_at, breaks_in } = scene;
    let began = 1_000;
    let (leaves_at, reached_at) = (began + leaves_at, began + cut_for);
    let arrives_at = if broke { reached_at + arrives_in } else { reached_at };
    let mut unanswered = Unanswered::default();
    unanswered.sent(0);
    let mut orphans = Orphans::new(at(leaves_at), Duration::from_millis(TTL), unanswered);
    let (mut now, mut pause, mut entry_until) = (leaves_at, PAUSE / 8, None);
    let ended_at = loop {
        let up = (reached_at <= now).then(|| match (broke, reached_at + breaks_in <= now) {
            (false, false) => Up { id: 0, at: at(began) },
            (true, false) => Up { id: 1, at: at(reached_at) },
            (_, true) => Up { id: 2, at: at(reached_at + breaks_in) },
        });
        if arrives_at <= now && entry_until.is_none() {
            entry_until = Some(arrives_at + TTL);
        }
        let heard = if wrong == Wrong::NeverStops { None } else { up };
        let next = match up {
            Some(up) => {
                entry_until = entry_until.map(|until| now.min(until));
                let through = if wrong == Wrong::BelievesAnyConnection { 0 } else { up.id };
                orphans.answered(at(now), heard, through, false)
            }
            None => orphans.unanswered(at(now), None),
        };
        let stops = match wrong {
            Wrong::StopsAfterATtl => leaves_at + TTL <= now,
            Wrong::ReleasesOnce => true,
            _ => false,
        };
        if next == Next::Stop || stops {
            break now;
        }
        pause = if next == Next::GoOn { 0 } else { (pause * 2).min(PAUSE) };
        now += pause;
        if now > leaves_at.max(reached_at) + TTL + 2 * PAUSE {
            return Err(format!("it still releases at {now}: {orphans:?}"));
        }
    };
    // What comes later than a ttl after the server was reached again is left to its lease.
    if arrives_at < reached_at + TTL && leaves_at <= reached_at + TTL {
        let until = entry_until.unwrap_or(arrives_at + TTL);
        if until > arrives_at.max(leaves_at) + PAUSE {
            return Err(format!("arrived at {arrives_at}, was there until {until}, left at {ended_at}"));
        }
    }
    Ok(())
}

fn search(wrong: Wrong, cases: u32) -> Result<(), TestError<Scene>> {
    let scenes = (0..2 * TTL, 0..3 * TTL, any::<bool>(), 0..2 * TTL, 0..2 * TTL).prop_map(
        |(arrives_in, cut_for, broke, leaves_at, breaks_in)| Scene {
            arrives_in,
            cut_for,
            broke,
            leaves_at,
            breaks_in,
        },
    );
    walk(cases, true, &scenes, |scene| play(*scene, wrong))
}

/// What a cut network has kept is released soon after it arrives, and the releases stop (redis.orphans-2).
#[test]
fn grant_delayed_by_the_network_is_released() {
    search(Wrong::Nothing, 20_000).unwrap();
}

#[test]
fn remains_that_are_left_are_found() {
    for wrong in [Wrong::StopsAfterATtl, Wrong::BelievesAnyConnection, Wrong::NeverStops, Wrong::ReleasesOnce]
    {
        assert!(matches!(search(wrong, 20_000), Err(TestError::Fail(..))), "{wrong:?} was not caught");
        ::model::caught("redis remains", wrong, "random schedules");
    }
}

/// A release without an answer is repeated for a ttl, and no longer (redis.orphans-1).
#[test]
fn without_an_answer_leases_end_it() {
    let mut orphans = Orphans::new(at(1_000), Duration::from_millis(TTL), Unanswered::default());
    assert_eq!(orphans.unanswered(at(1_000 + TTL - 1), None), Next::Retry);
    assert_eq!(orphans.unanswered(at(1_000 + TTL), None), Next::Stop);
}

/// What was sent may arrive until something later was answered on its own connection, whatever is up by then
/// (redis.orphans-2).
#[test]
fn an_open_connection_proves_nothing() {
    let mut unanswered = Unanswered::default();
    unanswered.sent(7);
    unanswered.overtaken(8);
    assert!(!unanswered.is_empty());
    unanswered.overtaken(7);
    assert!(unanswered.is_empty());
    for connection in [1, 2, 3] {
        unanswered.sent(connection);
    }
    unanswered.answered();
    unanswered.overtaken(2);
    assert!(!unanswered.is_empty());
    unanswered.overtaken(1);
    assert!(unanswered.is_empty());
}

/// A release that is refused on the request's own connection, over and over, ends with the lease
/// (redis.orphans-1).
#[test]
fn a_refused_release_is_not_repeated_for_ever() {
    let mut unanswered = Unanswered::default();
    unanswered.sent(0);
    let mut orphans = Orphans::new(at(1_000), Duration::from_millis(TTL), unanswered);
    let up = Some(Up { id: 0, at: at(0) });
    assert_eq!(orphans.unanswered(at(1_000 + TTL - 1), up), Next::Retry);
    assert_eq!(orphans.unanswered(at(1_000 + TTL), up), Next::Stop);
}

/// A lock that is free behind ended entries is handed on at once, until a ttl has passed.
#[test]
fn ended_entries_are_gone_through_at_once() {
    let mut orphans = Orphans::new(at(1_000), Duration::from_millis(TTL), Unanswered::default());
    let up = Some(Up { id: 0, at: at(0) });
    assert_eq!(orphans.answered(at(1_000 + TTL - 1), up, 0, true), Next::GoOn);
    assert_eq!(orphans.answered(at(1_000 + TTL - 1), up, 0, false), Next::Stop);
    assert_eq!(orphans.answered(at(1_000 + TTL), up, 0, true), Next::Stop);
}
