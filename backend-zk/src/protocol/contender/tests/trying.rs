//! Many who try again and again: the lock is seldom free, and a refused try asks once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use leasehold_core::LockName;
use leasehold_core::clock::Moment;

use super::*;
use crate::protocol::Untouched;

/// How long a message takes, and a hold; in milliseconds.
const WAY: u64 = 5;
const HOLD: u64 = 100;
const UNTIL: u64 = 10_000;
/// The transaction that made the directory.
const DIRECTORY: i64 = 1;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Comes,
    Arrives,
    Answered,
    Lists,
    Releases,
}

/// One that tries.
struct Trier {
    mode: Mode,
    contender: Contender,
    asked: Ask,
    answer: Option<Answer>,
    held: Option<Mine>,
    /// What its session knows of the directory, which stays.
    untouched: Untouched<()>,
}

/// For how much of the time the lock is held, in percent, and how many requests each refused try has made at least
/// and at most. Clients rest after a try that is refused, try again at once after a release, and look first, or not.
fn tried_by(modes: &[Mode], rest: u64, looks: bool) -> (u64, u64, u64) {
    let new = |mode| Contender::new(Patience::Tries, mode, None);
    let name = LockName::new("a").unwrap();
    let trier = |mode| Trier {
        mode,
        contender: new(mode).0,
        asked: Ask::List,
        answer: None,
        held: None,
        untouched: Untouched::default(),
    };
    let mut triers: Vec<_> = modes.iter().copied().map(trier).collect();
    let mut asked = vec![0; modes.len()];
    // Clients begin at times of their own.
    let first = |at: usize| Reverse(((at * 37 % 110) as u64, at, Happens::Comes));
    let mut events: BinaryHeap<_> = (0..modes.len()).map(first).collect();
    let (mut nodes, mut next) = (Vec::<Node>::new(), 0);
    let (mut holders, mut since, mut held) = (0, 0, 0);
    let list = |nodes: &[Node], next: i32| {
        let listing = Listing::new(nodes.iter().map(Node::name).collect(), true);
        listing.counted(DIRECTORY, 2 * next - nodes.len() as i32)
    };
    let (mut least, mut most, mut jitter) = (u64::MAX, 0, 1);
    while let Some(Reverse((now, at, what))) = events.pop().filter(|Reverse((now, ..))| *now < UNTIL) {
        let trier = &mut triers[at];
        let step = match what {
            Happens::Comes => {
                let next =
                    trier.untouched.enter(&name, Patience::Tries, Moment::from_nanos(0), 0, |()| false);
                let next = next.filter(|_| looks && trier.mode == Mode::EXCLUSIVE);
                let (mut contender, mut step) = Contender::new(Patience::Tries, trier.mode, next);
                if !looks {
                    step = contender.answered(Ok(Said::Listed(Listing::default())));
                }
                (trier.contender, asked[at]) = (contender, 0);
                step
            }
            Happens::Lists => {
                if let Some(mine) = &trier.held {
                    trier.untouched.listed(&name, &mine.node, &list(&nodes, next));
                }
                continue;
            }
            Happens::Arrives => {
                trier.answer = Some(Ok(match &trier.asked {
                    Ask::List => Said::Listed(list(&nodes, next)),
                    entering @ (Ask::Enter | Ask::Return(_)) => {
                        let owner = OwnerId::from_random(u128::from(next as u32).to_be_bytes());
                        let node = Node::new(owner, trier.mode, next);
                        nodes.push(node.clone());
                        next += 1;
                        let mine = Mine { node, czxid: 0 };
                        if let Ask::Return(expected) = entering {
                            if trier.untouched.is_to_be_watched(&name, 0, |()| false) {
                                trier.untouched.watch(&name, 0, Some((DIRECTORY, ())));
                            }
                            let number = mine.node.sequence();
                            let is_same =
                                trier.untouched.is_the_same(&name, *expected, number, 0, |()| false);
                            if is_same { Said::Back(mine) } else { Said::Made(mine, None) }
                        } else {
                            Said::Made(mine, Some(list(&nodes, next)))
                        }
                    }
                    Ask::Delete(node) | Ask::GiveWay(node, _) => {
                        nodes.retain(|other| other != node);
                        Said::Done
                    }
                    other => unreachable!("{other:?} of a try"),
                }));
                events.push(Reverse((now + WAY, at, Happens::Answered)));
                continue;
            }
            Happens::Answered => trier.contender.answered(trier.answer.take().expect("it is answered")),
            Happens::Releases => {
                holders -= 1;
                held += if holders == 0 { now - since } else { 0 };
                let mine = trier.held.take().expect("it holds");
                let number = mine.node.sequence();
                if !mine.node.is_shared() {
                    trier.untouched.leave(&name, number, 0, |()| false);
                    // The next try of this client begins after the answer.
                    trier.untouched.left(&name, number, None, Moment::from_nanos(0));
                }
                let (contender, step) = Contender::leaving(mine);
                trier.contender = contender;
                step
            }
        };
        match step {
            Step::Ask(ask) => {
                (trier.asked, asked[at]) = (ask, asked[at] + 1);
                events.push(Reverse((now + WAY, at, Happens::Arrives)));
            }
            Step::End(End::Held(mine)) => {
                since = if holders == 0 { now } else { since };
                (trier.held, holders) = (Some(mine), holders + 1);
                events.push(Reverse((now + HOLD, at, Happens::Releases)));
                if trier.untouched.is_contended(&name) {
                    events.push(Reverse((now + 9 * WAY, at, Happens::Lists)));
                }
            }
            Step::End(end) => {
                jitter = (jitter * 75 + 74) % 65_537;
                let mut pause = 0;
                if matches!(end, End::Busy(_)) {
                    (least, most, pause) = (least.min(asked[at]), most.max(asked[at]), rest + jitter % 11);
                }
                events.push(Reverse((now + pause, at, Happens::Comes)));
            }
            step => unreachable!("{step:?} of a try"),
        }
    }
    held += if holders > 0 { UNTIL - since } else { 0 };
    (100 * held / UNTIL, least, most)
}

/// Thirty-two clients that try keep a lock held for most of the time, however soon they try again; those that queue
/// first keep each other from it. A refused try asks once; one that found the lock free and came second makes its node,
/// looks, and deletes it as well.
#[test]
fn tries_do_not_keep_each_other_out() {
    let alone = [Mode::EXCLUSIVE; 32];
    let mixed = [Mode::EXCLUSIVE, Mode::SHARED].repeat(16);
    for rest in [100, 10] {
        for modes in [&alone[..], &mixed] {
            let (held, least, most) = tried_by(modes, rest, true);
            let bar = if modes == alone { 80 } else { 75 };
            assert!(held >= bar, "held for {held} % of the time, with a rest of {rest} ms");
            assert_eq!((least, most), (1, 4));
        }
    }
    let (held, ..) = tried_by(&alone, 10, false);
    assert!(held < 25, "held for {held} % of the time by tries that queue first");
}

#[test]
fn a_try_that_is_refused_makes_nothing() {
    let (reader, writer) =
        (Node::new(owner_of(1), Mode::SHARED, 1), Node::new(owner_of(2), Mode::EXCLUSIVE, 2));
    let listed = |nodes: &[&Node]| {
        Ok(Said::Listed(Listing::new(nodes.iter().map(|node| node.name()).collect(), true)))
    };
    let busy = Step::End(End::Busy(reader.name()));
    let tries = |mode| Contender::new(Patience::Tries, mode, None).0;
    assert_eq!(tries(Mode::EXCLUSIVE).answered(listed(&[&reader])), busy);
    assert_eq!(tries(Mode::SHARED).answered(listed(&[&reader, &writer])), busy);
    assert_eq!(tries(Mode::SHARED).answered(listed(&[&reader])), Step::Ask(Ask::Enter));
    assert_eq!(tries(Mode::EXCLUSIVE).answered(Err(Failure::Absent)), Step::Ask(Ask::Enter));
    assert_eq!(tries(Mode::EXCLUSIVE).answered(Err(Failure::Refused)), Step::End(End::Refused));
    // Whether its listing is answered or not.
    assert_eq!(tries(Mode::EXCLUSIVE).happens(Happening::Abandoned), Step::End(End::Left));
}

fn owner_of(number: u128) -> OwnerId {
    OwnerId::from_random(number.to_be_bytes())
}
