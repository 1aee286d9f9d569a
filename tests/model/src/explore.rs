//! Breadth first over a graph of states that are made as they are reached; a state is known by 64 bits of its hash.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Range;

use foldhash::quality::FixedState;
use leasehold_conformance::history::History;

use crate::judge::{self, Held, Judge};
use crate::walk::walk;
use crate::{OVERLAP, TOKENS, World};

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

/// The rule that is broken, and the way to where it is.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// The rule.
    pub rule: &'static str,
    /// The steps, and who held.
    pub history: History,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.rule, self.history)?;
        judge::violations(&self.history).iter().try_for_each(|violation| writeln!(f, "{violation}"))
    }
}

impl Wrong {
    /// The history of a world that says who holds shows what the state did.
    pub(crate) fn of(rule: &'static str, way: Vec<(String, Vec<Held>)>) -> Self {
        let is_judged = way.iter().any(|(_, held)| !held.is_empty()) && [OVERLAP, TOKENS].contains(&rule);
        let wrong = Self { rule, history: judge::history(way) };
        let mut found = judge::violations(&wrong.history).into_iter();
        assert!(!is_judged || found.any(|found| found.property.to_string() == rule), "unseen: {wrong}");
        wrong
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
    let (judge, _) = Judge::default().then(start);
    let mut graph = Graph { start, keys: vec![judge.key(start, &hasher)], parents: vec![0] };
    let mut seen: HashMap<u64, u32, FixedState> = HashMap::with_hasher(hasher.clone());
    seen.insert(graph.keys[0], 0);
    let mut rests = vec![start.is_at_rest()];
    let mut frontier = VecDeque::from([(0_u32, start.clone(), judge)]);
    let mut found = Vec::new();
    while let Some((id, state, judge)) = frontier.pop_front() {
        state.steps(&mut found);
        for (_, next) in found.drain(..) {
            let (judge, broken) = judge.then(&next);
            let key = judge.key(&next, &hasher);
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
            let wrong = broken.map(|rule| Wrong::of(rule, graph.way_to(count)));
            if wrong.is_some() || graph.keys.len() >= limit {
                return Explored { states: graph.keys.len(), all: false, wrong };
            }
            frontier.push_back((count, next, judge));
        }
    }
    let restless = edges.and_then(|edges| restless(&edges, rests));
    let wrong = restless.map(|id| Wrong::of("cannot come to rest", graph.way_to(id)));
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
    fn way_to(&self, id: u32) -> Vec<(String, Vec<Held>)> {
        let mut ids = vec![id];
        while let Some(last) = ids.last().filter(|last| **last != 0) {
            ids.push(self.parents[*last as usize]);
        }
        let hasher = FixedState::default();
        let (mut state, (mut judge, _)) = (self.start.clone(), Judge::default().then(self.start));
        let (mut way, mut found) = (Vec::new(), Vec::new());
        for id in ids.into_iter().rev().skip(1) {
            state.steps(&mut found);
            let known = |next: &W| judge.then(next).0.key(next, &hasher) == self.keys[id as usize];
            let (step, next) =
                found.drain(..).find(|(_, next)| known(next)).expect("the same state leads to the same ones");
            way.push((format!("{step:?}"), next.held()));
            (judge, state) = (judge.then(&next).0, next);
        }
        way
    }
}
