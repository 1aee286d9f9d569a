use std::iter;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn at(millis: u32) -> Moment {
    Moment::from_nanos(1) + millis * MS
}

fn said(messages: impl IntoIterator<Item = (i64, u32)>) -> HashMap<i64, Duration> {
    messages.into_iter().map(|(czxid, grace)| (czxid, grace * MS)).collect()
}

#[test]
fn lines_are_messages() {
    for (inbox, expected) in [
        (&b""[..], vec![]),
        (b"7 0\nx\n\xff\n-1 5\n8", vec![(7, 0), (-1, 5)]),
        (b"7 900\n7 20\n\n7 30", vec![(7, 20)]),
        (b"7 soon\n7 -1\n7 1 2\n 7 1\n7 18446744073709551616", vec![]),
        (b"7 18446744073709551615", vec![(7, 86_400_000)]),
    ] {
        assert_eq!(messages(inbox), said(expected), "{}", String::from_utf8_lossy(inbox));
    }
}

#[test]
fn added_messages_keep_the_others() {
    let asked = with_message(b"", 7, 900 * MS);
    assert_eq!(asked, b"7 900");
    let both = with_message(&asked, 8, Duration::ZERO);
    assert_eq!(both, b"7 900\n8 0");
    assert_eq!(messages(&both), said([(7, 900), (8, 0)]));
    let all = with_message(&both, 9, 5 * MS);
    assert_eq!(messages(&all), said([(7, 900), (8, 0), (9, 5)]));
    assert_eq!(messages(&with_message(&all, 7, Duration::ZERO)), said([(7, 0), (8, 0), (9, 5)]));
}

/// The latest messages of a full inbox stay (zk.inbox-2).
#[test]
fn inboxes_keep_the_latest_whole() {
    let grace = |czxid: i64| u32::try_from(czxid % 3).unwrap();
    let alone = |czxid| String::from_utf8(with_message(b"", czxid, grace(czxid) * MS)).unwrap();
    let mut inbox = (0..4_990).map(alone).collect::<Vec<_>>().join("\n").into_bytes();
    for czxid in 4_990..5_000 {
        inbox = with_message(&inbox, czxid, grace(czxid) * MS);
        let first = czxid + 1 - LINES as i64;
        assert_eq!(messages(&inbox), said((first..=czxid).map(|czxid| (czxid, grace(czxid)))));
    }
}

/// Our own writes are ours whichever answer is taken first; one of somebody else's is seen once, at the
/// latest when nothing of ours is out (zk.inbox-3).
#[test]
fn concurrent_writer_is_noticed() {
    let mut writers = Writers::new(3);
    let mut play = |sent: u32, answers: &[Option<i32>]| {
        (0..sent).for_each(|_| writers.sent());
        answers.iter().map(|version| writers.ended(*version)).collect::<Vec<_>>()
    };
    assert_eq!(play(1, &[Some(4)]), [false]);
    assert_eq!(play(2, &[Some(6), Some(5)]), [false, false]);
    assert_eq!(play(1, &[Some(8)]), [true]);
    assert_eq!(play(1, &[Some(9)]), [false]);
    assert_eq!(play(2, &[Some(10), Some(12)]), [false, true]);
    assert_eq!(play(2, &[Some(15), Some(14)]), [false, true]);
    // Never done: it is not waited for. Done, and not answered: somebody's.
    assert_eq!(play(1, &[None]), [false]);
    assert_eq!(play(1, &[Some(16)]), [false]);
    assert_eq!(play(2, &[None, Some(18)]), [false, true]);
    assert_eq!(play(2, &[Some(20), None]), [false, true]);
    assert_eq!(play(1, &[Some(21)]), [false]);
}

/// What happens to one inbox, a millisecond after the other.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Somebody asks, with a grace or without one.
    Asks(i64, u32),
    /// The session reads.
    Reads,
}

const ACTS: [Act; 6] =
    [Act::Asks(7, 9), Act::Asks(7, 3), Act::Asks(7, 0), Act::Asks(8, 5), Act::Asks(8, 0), Act::Reads];
/// As many acts as there are in a story.
const LENGTH: u32 = 5;

/// How a session takes in what it reads.
type Hears = fn(&mut RevokeRequests, &[u8], Moment) -> HashMap<i64, Duration>;

/// Whether each hold ends at the earliest that its messages say, each counted from when it was first read,
/// and its holder was told so then (zk.inbox-1); in one story.
fn plays(story: u32, hears: Hears) -> bool {
    let (mut inbox, mut asked, mut told) = (Vec::new(), RevokeRequests::default(), HashMap::new());
    let mut unread: Vec<(i64, u32)> = Vec::new();
    let mut expected: HashMap<i64, Moment> = HashMap::new();
    let acts = iter::successors(Some(story), |story| Some(story / 6)).map(|story| ACTS[story as usize % 6]);
    for (act, millis) in acts.take(LENGTH as usize).zip(0..) {
        let now = at(millis);
        match act {
            Act::Asks(czxid, grace) => {
                inbox = with_message(&inbox, czxid, grace * MS);
                unread.push((czxid, grace));
            }
            Act::Reads => {
                for (czxid, grace) in unread.drain(..) {
                    let until = expected.entry(czxid).or_insert(now + grace * MS);
                    *until = (now + grace * MS).min(*until);
                }
                for (czxid, within) in hears(&mut asked, &inbox, now) {
                    let until = told.entry(czxid).or_insert(now + within);
                    *until = (now + within).min(*until);
                }
                let known = expected.keys().map(|czxid| (*czxid, asked.until(*czxid)));
                if known.into_iter().any(|(czxid, until)| until != expected.get(&czxid).copied())
                    || told != expected
                {
                    return false;
                }
            }
        }
    }
    true
}

fn every_story(hears: Hears) -> bool {
    (0..6_u32.pow(LENGTH)).all(|story| plays(story, hears))
}

/// Every story of so many acts (zk.inbox-1).
#[test]
fn the_earliest_end_counts() {
    assert!(every_story(RevokeRequests::hear));
}

#[test]
fn mutants_are_caught() {
    let mutants: [(&str, Hears); 3] = [
        ("each reading counts anew", |asked, inbox, now| {
            let graces = messages(inbox);
            asked.0 = graces.iter().map(|(czxid, grace)| (*czxid, now + *grace)).collect();
            graces
        }),
        ("only the first message counts", |asked, inbox, now| {
            let graces: HashMap<_, _> =
                messages(inbox).into_iter().filter(|(czxid, _)| asked.until(*czxid).is_none()).collect();
            asked.0.extend(graces.iter().map(|(czxid, grace)| (*czxid, now + *grace)));
            graces
        }),
        ("what is known is not told", |asked, inbox, now| {
            let known: Vec<_> = asked.0.keys().copied().collect();
            let mut news = asked.hear(inbox, now);
            news.retain(|czxid, _| !known.contains(czxid));
            news
        }),
    ];
    for (mutant, hears) in mutants {
        assert!(!every_story(hears), "{mutant}");
        ::model::caught("zookeeper inbox", mutant, "every story");
    }
}
