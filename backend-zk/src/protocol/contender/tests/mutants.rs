//! Mutants, and the schedules that must tell them from what they were made of.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::model::{Mutant, World};

/// Every way to be wrong is caught within two thousand random schedules.
pub(super) fn assert_caught<S: Strategy>(
    mutants: impl IntoIterator<Item = Mutant>,
    scripts: &S,
    play: impl Fn(&S::Value, Option<Mutant>) -> Result<World, TestCaseError>,
) {
    let mut caught = BTreeMap::new();
    for mutant in mutants {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let at = (0..2_000).find(|_| {
            let script = scripts.new_tree(&mut runner).unwrap().current();
            play(&script, Some(mutant)).is_err()
        });
        caught.insert(format!("{mutant:?}"), at);
    }
    assert!(caught.values().all(Option::is_some), "{caught:?}");
}
