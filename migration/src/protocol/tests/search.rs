//! Breadth first, unless said otherwise, over a graph of states that are made as they are reached; a state is known by 64 bits of its hash.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::{BuildHasher, Hash};

use foldhash::quality::FixedState;

/// A state and what leads out of it.
pub(super) trait Graph: Clone + Hash {
    type Label: Debug;

    /// Whatever can happen next.
    fn next(&self, found: &mut Vec<(Self::Label, Self)>);

    /// What is wrong in this state.
    fn broken(&self) -> Option<&'static str>;

    /// What a state is known by. Those that differ in who is who only may have the same.
    fn print(&self, hasher: &FixedState) -> u64 {
        hasher.hash_one(self)
    }

    /// Whether everything has come to rest.
    fn is_quiet(&self) -> bool;

    /// Whether what led from `self` to `next` goes by itself: it is nobody's decision, and no fault.
    fn goes_by_itself(&self, next: &Self) -> bool;
}

/// What a search has shown.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) states: usize,
    /// Every state within the bounds was seen, not only the first so many.
    pub(super) exhausted: bool,
    /// The shortest way to a state that must not be, and what is wrong there.
    pub(super) wrong: Option<(&'static str, Vec<String>)>,
}

/// Looks at no more than `limit` states.
pub(super) fn search<G: Graph>(start: G, limit: usize) -> Shown {
    explore(start, limit, Next::Nearest, None)
}

/// As `search`, with less to keep in mind; a way to what is wrong may be longer than it need be.
pub(super) fn search_deep<G: Graph>(start: G, limit: usize) -> Shown {
    explore(start, limit, Next::Last, None)
}

/// As `search`, and then whether everything can come to rest from everywhere.
pub(super) fn search_to_rest<G: Graph>(start: G, limit: usize) -> Shown {
    explore(start, limit, Next::Nearest, Some(Vec::new()))
}

/// Which state is looked at next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Nearest,
    Last,
}

/// `edges`, from and to, of what goes by itself; kept only if asked for.
fn explore<G: Graph>(start: G, limit: usize, order: Next, mut edges: Option<Vec<(u32, u32)>>) -> Shown {
    let hasher = FixedState::default();
    let mut seen: HashMap<u64, u32, FixedState> = HashMap::with_hasher(hasher.clone());
    let mut prints = vec![start.print(&hasher)];
    let mut parents = vec![0_u32];
    let mut quiet = vec![start.is_quiet()];
    seen.insert(prints[0], 0);
    let mut frontier = VecDeque::from([(0_u32, start.clone())]);
    let mut found = Vec::new();
    let way_to = |wrong, id, prints: &[u64], parents: &[u32]| Some((wrong, way(&start, id, prints, parents)));
    let next_of = |frontier: &mut VecDeque<_>| match order {
        Next::Nearest => frontier.pop_front(),
        Next::Last => frontier.pop_back(),
    };
    while let Some((id, state)) = next_of(&mut frontier) {
        state.next(&mut found);
        for (_, next) in found.drain(..) {
            let print = next.print(&hasher);
            let by_itself = state.goes_by_itself(&next);
            let count = u32::try_from(prints.len()).expect("fewer than four thousand million states");
            let reached = *seen.entry(print).or_insert(count);
            if let Some(edges) = edges.as_mut().filter(|_| by_itself) {
                edges.push((id, reached));
            }
            if reached != count {
                continue;
            }
            prints.push(print);
            parents.push(id);
            quiet.push(next.is_quiet());
            if let Some(wrong) = next.broken() {
                let wrong = way_to(wrong, count, &prints, &parents);
                return Shown { states: prints.len(), exhausted: false, wrong };
            }
            if prints.len() >= limit {
                return Shown { states: limit, exhausted: false, wrong: None };
            }
            frontier.push_back((count, next));
        }
    }
    let restless = edges.and_then(|edges| restless(&edges, quiet));
    let wrong = restless.and_then(|id| way_to("cannot come to rest", id, &prints, &parents));
    Shown { states: prints.len(), exhausted: true, wrong }
}

/// The first state from which no quiet one can be reached.
fn restless(edges: &[(u32, u32)], mut quiet: Vec<bool>) -> Option<u32> {
    let mut first = vec![0_usize; quiet.len() + 1];
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
    let ids = 0..u32::try_from(quiet.len()).expect("they were counted so");
    let mut reached: Vec<u32> = ids.filter(|id| quiet[*id as usize]).collect();
    while let Some(id) = reached.pop() {
        for source in &from[first[id as usize]..first[id as usize + 1]] {
            if !std::mem::replace(&mut quiet[*source as usize], true) {
                reached.push(*source);
            }
        }
    }
    let restless = quiet.iter().position(|reaches| !reaches)?;
    Some(u32::try_from(restless).expect("they were counted so"))
}

/// What happens on the shortest way to `id`.
fn way<G: Graph>(start: &G, id: u32, prints: &[u64], parents: &[u32]) -> Vec<String> {
    let mut ids = vec![id];
    while let Some(last) = ids.last().filter(|last| **last != 0) {
        ids.push(parents[*last as usize]);
    }
    let hasher = FixedState::default();
    let mut state = start.clone();
    let mut way = Vec::new();
    for id in ids.into_iter().rev().skip(1) {
        let mut found = Vec::new();
        state.next(&mut found);
        let (label, next) = found
            .into_iter()
            .find(|(_, next)| next.print(&hasher) == prints[id as usize])
            .expect("the same state leads to the same ones");
        way.push(format!("{label:?}"));
        state = next;
    }
    way
}
