//! Breadth first over a graph of states that are made as they are reached; a state is known by 64 bits of its hash.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Range;

use foldhash::quality::FixedState;

use crate::World;
use crate::walk::walk;

/// Which states are looked at.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Search {
    /// All, but at most so many.
    States(usize),
    /// The same. Then everything must be able to come to rest from each of them.
    ToRest(usize),
    /// Those of a random walk of so many steps for each seed.
    Walks(Range<u64>, u64),
}

/// The rule that is broken, and the steps to where it is.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// The rule.
    pub rule: &'static str,
    /// The steps, the first one first.
    pub way: Vec<String>,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}", self.rule, self.way.join("\n  "))
    }
}

/// The result of a search.
#[derive(Debug)]
pub struct Explored {
    /// How many states were looked at.
    pub states: usize,
    /// Every state was looked at.
    pub all: bool,
    /// What is wrong, by the shortest way unless it was a random one.
    pub wrong: Option<Wrong>,
}

/// Looks at states that can be reached from `start`.
pub fn explore<W: World>(start: &W, search: Search) -> Explored {
    let (limit, mut edges) = match search {
        Search::States(limit) => (limit, None),
        Search::ToRest(limit) => (limit, Some(Vec::new())),
        Search::Walks(seeds, steps) => return walk(start, seeds, steps),
    };
    let hasher = FixedState::default();
    let mut graph = Graph { start, keys: vec![start.key(&hasher)], parents: vec![0] };
    let mut seen: HashMap<u64, u32, FixedState> = HashMap::with_hasher(hasher.clone());
    seen.insert(graph.keys[0], 0);
    let mut rests = vec![start.is_at_rest()];
    let mut frontier = VecDeque::from([(0_u32, start.clone())]);
    let mut found = Vec::new();
    while let Some((id, state)) = frontier.pop_front() {
        state.steps(&mut found);
        for (_, next) in found.drain(..) {
            let key = next.key(&hasher);
            let count = u32::try_from(graph.keys.len()).expect("fewer than four thousand million states");
            let reached = *seen.entry(key).or_insert(count);
            if let Some(edges) = edges.as_mut().filter(|_| state.goes_by_itself(&next)) {
                edges.push((id, reached));
            }
            if reached != count {
                continue;
            }
            graph.keys.push(key);
            graph.parents.push(id);
            rests.push(next.is_at_rest());
            let wrong = next.broken().map(|rule| Wrong { rule, way: graph.way_to(count) });
            if wrong.is_some() || graph.keys.len() >= limit {
                return Explored { states: graph.keys.len(), all: false, wrong };
            }
            frontier.push_back((count, next));
        }
    }
    let restless = edges.and_then(|edges| restless(&edges, rests));
    let wrong = restless.map(|id| Wrong { rule: "cannot come to rest", way: graph.way_to(id) });
    Explored { states: graph.keys.len(), all: true, wrong }
}

/// The first state from which no state at rest can be reached; `edges` lead from and to.
fn restless(edges: &[(u32, u32)], mut rests: Vec<bool>) -> Option<u32> {
    let mut first = vec![0_usize; rests.len() + 1];
    for (_, to) in edges {
        first[*to as usize + 1] += 1;
    }
    for at in 1..first.len() {
        first[at] += first[at - 1];
    }
    let mut place = first.clone();
    let mut from = vec![0_u32; edges.len()];
    for (source, to) in edges {
        from[place[*to as usize]] = *source;
        place[*to as usize] += 1;
    }
    let ids = 0..u32::try_from(rests.len()).expect("they were counted so");
    let mut reached: Vec<u32> = ids.filter(|id| rests[*id as usize]).collect();
    while let Some(id) = reached.pop() {
        for source in &from[first[id as usize]..first[id as usize + 1]] {
            if !std::mem::replace(&mut rests[*source as usize], true) {
                reached.push(*source);
            }
        }
    }
    let restless = rests.iter().position(|reaches| !reaches)?;
    Some(u32::try_from(restless).expect("they were counted so"))
}

/// The keys of the states, and from which each was reached first.
struct Graph<'a, W> {
    start: &'a W,
    keys: Vec<u64>,
    parents: Vec<u32>,
}

impl<W: World> Graph<'_, W> {
    /// The steps of the shortest way, taken again: states are not kept.
    fn way_to(&self, id: u32) -> Vec<String> {
        let mut ids = vec![id];
        while let Some(last) = ids.last().filter(|last| **last != 0) {
            ids.push(self.parents[*last as usize]);
        }
        let hasher = FixedState::default();
        let (mut state, mut way, mut found) = (self.start.clone(), Vec::new(), Vec::new());
        for id in ids.into_iter().rev().skip(1) {
            state.steps(&mut found);
            let (step, next) = found
                .drain(..)
                .find(|(_, next)| next.key(&hasher) == self.keys[id as usize])
                .expect("the same state leads to the same ones");
            way.push(format!("{step:?}"));
            state = next;
        }
        way
    }
}
