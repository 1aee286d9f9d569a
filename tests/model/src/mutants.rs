//! Mutants: models, engines and scripts with one mistake each. Everything else that hunts for them prints the same lines.

use std::fmt::{Debug, Display};

use crate::{Search, World, explore};

/// Every world breaks the rule that stands beside its mutant.
pub fn assert_caught<M: Debug, W: World>(
    model: &str,
    mutants: impl IntoIterator<Item = (M, W, Search, &'static str)>,
) {
    let mut alive = Vec::new();
    for (mutant, world, search, rule) in mutants {
        let explored = explore(&world, search);
        match explored.wrong {
            Some(wrong) if wrong.rule.contains(rule) => {
                caught(model, &mutant, wrong.rule);
                println!("{wrong}");
            }
            other => alive.push(format!("{mutant:?}, {rule}, {} states: {other:?}", explored.states)),
        }
    }
    assert!(alive.is_empty(), "not caught in the model of {model}:\n{}", alive.join("\n"));
}

/// Prints a line of `tests/mutants.txt`.
pub fn caught(model: &str, mutant: impl Debug, by: impl Display) {
    println!("mutant {model} {mutant:?}: caught by {by}");
}
