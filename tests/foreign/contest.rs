//! Many of both sides contend for one lock: no two hold at the same time, and none waits for ever.

use std::path::{Path, PathBuf};
use std::time::Duration;

use contender_protocol::{Cycle, now};
use libtest_mimic::Trial;
use testbed::pass;

use crate::contender::{Contender, Effort};
use crate::hand::Hand;
use crate::library::Library;
use crate::setup::{LONG, Setup};

/// The two sides contend for so long, in two ways.
pub(crate) fn trial(library: &'static Library, span: Duration) -> Trial {
    crate::setup::trial(library, "no_count_is_lost_and_both_get_turns", LONG, move |setup, pair| {
        no_count_is_lost_and_both_get_turns(setup, pair, span)
    })
}

/// As [`trial`], for what one process of ours takes from them.
pub(crate) fn trial_of_a_busy_process(library: &'static Library, span: Duration) -> Trial {
    crate::setup::trial(library, "a_busy_process_leaves_half_the_turns", LONG, move |setup, pair| {
        a_busy_process_leaves_half_the_turns(setup, pair, span)
    })
}

/// First all of them acquire again at once after a release, so that chance decides. Then only ours do, which pass the
/// lock on locally, and theirs pause in between: both sides get their turns.
async fn no_count_is_lost_and_both_get_turns(setup: Setup, [ours, theirs]: [Contender; 2], span: Duration) {
    let (mut ours, mut theirs) =
        ([ours, setup.ours().await], [theirs, setup.theirs().await.expect("it was there")]);
    let mut counted = Counted::new(&setup);
    let greedy = Effort { contenders: 2, span: span / 3, start: now() + WAY, ..Effort::default() };
    for contender in ours.iter_mut().chain(&mut theirs) {
        contender.contends(greedy, &counted.counter).await;
    }
    let mut sides = [Vec::new(), Vec::new()];
    for (side, contenders) in sides.iter_mut().zip([&mut ours, &mut theirs]) {
        for contender in contenders {
            side.extend(contender.cycles(greedy.span).await);
        }
    }
    let shares = sides.each_ref().map(|side| Share::of(side, greedy));
    println!(
        "{}, everybody at once for {:?}: we {}, they {}",
        setup.library.name, greedy.span, shares[0], shares[1]
    );
    counted.judge(sides.concat());

    let effort = Effort { span, start: now(), ..greedy };
    for contender in &mut ours {
        contender.contends(effort, &counted.counter).await;
    }
    let hands = theirs.map(|contender| Hand::start(contender, &counted.counter));
    pass(span).await;
    let mut sides = [Vec::new(), Vec::new()];
    for contender in &mut ours {
        sides[0].extend(contender.cycles(span).await);
    }
    for hand in hands {
        sides[1].extend(hand.ends().await.1);
    }
    let shares = sides.each_ref().map(|side| Share::of(side, effort));
    println!(
        "{}, without a pause on our side for {span:?}: we {}, they {}",
        setup.library.name, shares[0], shares[1]
    );
    counted.judge(sides.concat());
    // A turn for each time that ours stand back, less those in which they do not look. Before we are under way turns
    // are easy to have.
    let least = (span.as_millis() / 2) / (2 * (YIELD_EVERY + YIELD_FOR).as_millis());
    for (share, who) in shares.iter().zip(["we", "they"]) {
        let late = share.late as u128;
        assert!(late >= least.max(1), "{who} had {share}, {late} of them in the second half: not {least}");
    }
    setup.is_clean().await;
}

/// One busy process of ours beside two greedy ones of theirs, and before that one of theirs in our place: both leave the
/// two some turns, and ours at least half as many.
async fn a_busy_process_leaves_half_the_turns(setup: Setup, [ours, theirs]: [Contender; 2], span: Duration) {
    let another = async || setup.theirs().await.expect("it was there");
    let (mut greedy, mut busy) = ([theirs, another().await], [another().await, ours]);
    let mut counted = Counted::new(&setup);
    let mut left = [0; 2];
    for _ in 0..ROUNDS {
        for (busy, left) in busy.iter_mut().zip(&mut left) {
            let effort =
                Effort { contenders: 1, span: span / ROUNDS, start: now() + WAY, ..Effort::default() };
            busy.contends(Effort { contenders: TASKS, ..effort }, &counted.counter).await;
            for contender in &mut greedy {
                contender.contends(effort, &counted.counter).await;
            }
            let mut cycles = Vec::new();
            for contender in &mut greedy {
                cycles.extend(contender.cycles(effort.span).await);
            }
            let share = Share::of(&cycles, effort);
            *left += share.turns;
            cycles.extend(busy.cycles(effort.span).await);
            println!("{}: {share}, of {}", setup.library.name, cycles.len());
            counted.judge(cycles);
        }
    }
    let [by_theirs, by_ours] = left;
    println!("{}, in {span:?}: theirs leaves {by_theirs} turns, ours {by_ours}", setup.library.name);
    assert!(2 * by_ours >= by_theirs, "theirs leaves {by_theirs} turns, ours {by_ours}");
    setup.is_clean().await;
}

/// Of a busy process.
const TASKS: u32 = 8;

/// So that a machine that is busy for a while is so for both.
const ROUNDS: u32 = 2;

/// Until every process has received the start of the contest.
const WAY: u64 = 300_000_000;

/// After how long we let others have their turn, and for how long: the defaults of `yield_every` and `yield_for`.
const YIELD_EVERY: Duration = Duration::from_secs(1);
const YIELD_FOR: Duration = Duration::from_millis(150);

/// What one side had of the lock while both wanted it.
#[derive(Debug)]
struct Share {
    turns: usize,
    /// Those of them in the second half.
    late: usize,
    longest_wait: Duration,
}

impl Share {
    fn of(cycles: &[Cycle], effort: Effort) -> Self {
        let (half, until) = (effort.start + nanos(effort.span / 2), effort.start + nanos(effort.span));
        let waits = cycles.iter().map(|cycle| cycle.granted.min(until).saturating_sub(cycle.requested));
        Self {
            turns: cycles.iter().filter(|cycle| cycle.granted < until).count(),
            late: cycles.iter().filter(|cycle| (half..until).contains(&cycle.granted)).count(),
            longest_wait: Duration::from_nanos(waits.max().unwrap_or_default()),
        }
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} turns, waiting {} ms at most", self.turns, self.longest_wait.as_millis())
    }
}

/// A number in a file that only the lock protects, and how often it was increased.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) counter: PathBuf,
    so_far: usize,
}

impl Counted {
    pub(crate) fn new(setup: &Setup) -> Self {
        let counter = setup.scratch.path().join("counter");
        std::fs::write(&counter, "0").unwrap();
        Self { counter, so_far: 0 }
    }

    /// Every count is there once, no two held at the same time, and tokens, where there are some, grow (G1, G3).
    pub(crate) fn judge(&mut self, mut cycles: Vec<Cycle>) {
        self.so_far += cycles.len();
        assert_eq!(number(&self.counter), self.so_far, "a count is lost");
        cycles.sort_by_key(|cycle| cycle.granted);
        for pair in cycles.windows(2) {
            assert!(pair[0].releasing <= pair[1].granted, "two hold: {pair:?}");
        }
        let tokens: Vec<_> = cycles.iter().filter_map(|cycle| cycle.token).collect();
        assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "tokens do not grow");
    }
}

fn number(counter: &Path) -> usize {
    std::fs::read_to_string(counter).unwrap().trim().parse().unwrap()
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap()
}
