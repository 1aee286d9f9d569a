//! Random walks, for models that are too large to be looked at whole.

use std::hash::BuildHasher;
use std::ops::Range;

use foldhash::quality::FixedState;

use crate::judge::Judge;
use crate::{Explored, World, Wrong};

pub(crate) fn walk<W: World>(start: &W, seeds: Range<u64>, steps: u64) -> Explored {
    let dice = FixedState::default();
    let (mut states, mut found) = (0, Vec::new());
    for seed in seeds {
        let (mut state, mut judge, mut way) = (start.clone(), Judge::default().then(start).0, Vec::new());
        for at in 0..steps {
            state.steps(&mut found);
            if found.is_empty() {
                break;
            }
            let picked = dice.hash_one((seed, at)) % found.len() as u64;
            let (step, next) = found.swap_remove(usize::try_from(picked).expect("it is a place in a list"));
            found.clear();
            way.push((format!("{step:?}"), next.held()));
            states += 1;
            let broken;
            (judge, broken) = judge.then(&next);
            if let Some(rule) = broken {
                return Explored { states, all: false, wrong: Some(Wrong::of(rule, way)) };
            }
            state = next;
        }
    }
    Explored { states, all: false, wrong: None }
}
