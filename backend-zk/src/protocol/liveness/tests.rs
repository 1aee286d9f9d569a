use proptest::prelude::*;

use super::*;

const TIMEOUT: Duration = Duration::from_millis(12_000);
const MARGIN: Duration = Duration::from_millis(130);

fn at(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

fn write(sent: u64, answered: u64, purpose: Purpose) -> Write {
    Write { sent: at(sent), answered: at(answered), purpose }
}

fn renewed(sent: u64, answered: u64) -> Write {
    write(sent, answered, Purpose::Renewal)
}

/// One renewal in a third of the session keeps two thirds of it ahead.
#[test]
fn a_renewal_is_confirmed_by_the_next() {
    let mut liveness = Liveness::new(at(0), TIMEOUT, MARGIN);
    for round in 1..10 {
        assert!(liveness.proved(renewed(round * 4_000, round * 4_000 + 100)));
        assert_eq!(liveness.base, at((round - 1) * 4_000));
    }
}

/// A write that comes too soon after another's answer proves nothing about it.
#[test]
fn a_hasty_write_confirms_nothing() {
    let mut liveness = Liveness::new(at(0), TIMEOUT, MARGIN);
    assert!(liveness.proved(renewed(4_000, 4_500)));
    assert!(liveness.proved(renewed(8_099, 8_100)));
    assert_eq!(liveness.base, at(0));
    assert!(liveness.proved(renewed(8_100, 8_101)));
    assert_eq!(liveness.base, at(4_000));
}

/// Without renewals the session confirms the last one, once.
#[test]
fn a_late_renewal_is_made_up_for_once() {
    let mut liveness = Liveness::new(at(0), TIMEOUT, MARGIN);
    assert_eq!(liveness.confirm_at(), None);
    assert!(liveness.proved(renewed(4_000, 4_100)));
    assert_eq!(liveness.confirm_at(), Some(at(8_700)));
    assert!(liveness.proved(write(8_700, 8_800, Purpose::Confirmation)));
    assert_eq!(liveness.base, at(4_000));
    assert_eq!(liveness.confirm_at(), None);
    assert!(liveness.proved(write(13_000, 13_100, Purpose::Confirmation)));
    assert_eq!(liveness.base, at(4_000));
}

/// A renewal that got lost is repeated when the bound of a request is over, a third of the timeout later.
/// Then what the session wrote by itself meanwhile counts.
#[test]
fn a_lost_renewal_can_be_repeated_in_time() {
    let mut liveness = Liveness::new(at(0), TIMEOUT, MARGIN);
    assert!(liveness.proved(renewed(4_000, 4_100)));
    assert!(liveness.proved(write(8_700, 8_800, Purpose::Confirmation)));
    assert_eq!(liveness.base, at(4_000));
    assert!(liveness.proved(renewed(12_400, 12_500)));
    assert_eq!(liveness.base, at(8_700));
    assert_eq!(liveness.confirm_at(), Some(at(17_100)));
}

/// A renewal beside a confirmation is confirmed as early as that.
#[test]
fn writes_close_to_each_other_count_as_one() {
    let mut liveness = Liveness::new(at(0), TIMEOUT, MARGIN);
    assert!(liveness.proved(renewed(4_000, 4_100)));
    assert!(liveness.proved(write(8_700, 8_800, Purpose::Confirmation)));
    assert!(liveness.proved(renewed(8_800, 8_900)));
    assert_eq!(liveness.confirm_at(), Some(at(13_400)));
    assert!(liveness.proved(write(13_400, 13_500, Purpose::Confirmation)));
    assert_eq!(liveness.base, at(8_700));
}

/// A proof that comes when the guards have been told of the loss revives nothing.
#[test]
fn a_session_that_was_given_up_stays_so() {
    let mut liveness = Liveness::new(at(0), TIMEOUT, MARGIN);
    assert!(liveness.proved(renewed(4_000, 4_100)));
    assert!(!liveness.proved(write(11_800, 11_880, Purpose::Confirmation)));
    assert_eq!(liveness.base, at(0));
    assert!(!liveness.proved(renewed(13_000, 13_100)));
    assert_eq!(liveness.base, at(0));
}

/// A server and the leader it tells, as ZooKeeper's are: the leader learns with each ping whom the
/// server has heard of, and counts the timeout from there.
#[derive(Clone, Debug)]
struct Leader {
    half_tick: u64,
    /// When the server last heard of the client, and what of that the leader knows.
    heard: u64,
    touched: u64,
    next_ping: u64,
}

impl Leader {
    /// Lets time pass; the server is cut off from the leader from `cut` on.
    fn run(&mut self, until: u64, cut: u64) {
        while self.next_ping <= until {
            if self.next_ping < cut && self.heard > 0 {
                // What the ping brings counts from its arrival, never earlier than it was heard.
                self.touched = self.next_ping;
                self.heard = 0;
            }
            self.next_ping += self.half_tick;
        }
    }
}

proptest! {
    /// zk.liveness-1 to zk.liveness-5 against a server that tells its leader late: for random writes,
    /// pings, cuts.
    #[test]
    fn the_session_outlives_what_is_promised(
        steps in prop::collection::vec((0_u64..3_000, 0_u64..900, any::<bool>()), 1..40),
        cut in 0_u64..60_000,
        offset in 0_u64..3_000,
    ) {
        // The longest ticks a session can have: its timeout is two of them.
        let half_tick = 3_000;
        let mut leader = Leader { half_tick, heard: 0, touched: 0, next_ping: offset };
        let mut liveness = Liveness::new(at(0), TIMEOUT, MARGIN);
        let (mut now, mut last_renewal) = (0, at(0));
        for (pause, latency, renewal) in steps {
            let sent = now + pause;
            let arrived = sent + latency / 2;
            let answered = sent + latency;
            leader.run(arrived, cut);
            leader.heard = arrived;
            leader.run(answered, cut);
            now = answered;
            // A server that is cut off answers no write.
            if arrived >= cut {
                continue;
            }
            let before = liveness.clone();
            let purpose = if renewal { Purpose::Renewal } else { Purpose::Confirmation };
            let counts = liveness.proved(write(sent, answered, purpose));
            let lives = at(answered) <= before.base + (TIMEOUT - MARGIN);
            prop_assert!(lives || liveness.base == before.base);
            if !counts {
                break;
            }
            if renewal {
                last_renewal = at(sent);
            }
            prop_assert!(liveness.base >= before.base);
            prop_assert!(liveness.base <= last_renewal);
            prop_assert!(liveness.unconfirmed.len() <= 49);
            prop_assert!(liveness.base <= at(leader.touched), "{liveness:?} {leader:?}");
        }
    }
}
