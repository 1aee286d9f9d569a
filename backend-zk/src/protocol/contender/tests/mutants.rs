//! Mutants, and the schedules that must tell them from what they were made of.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::model::{Mutant, World};

/// Every mutant is caught within two thousand random schedules.
pub(super) fn assert_caught<S: Strategy>(
    mutants: impl IntoIterator<Item = Mutant>,
    scripts: &S,
    play: impl Fn(&S::Value, Option<Mutant>) -> Result<World, TestCaseError>,
) {
    for mutant in mutants {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let found = (0..2_000).any(|_| {
            let script = scripts.new_tree(&mut runner).unwrap().current();
            play(&script, Some(mutant)).is_err()
        });
        assert!(found, "{mutant:?} is not caught");
        ::model::caught("zookeeper", mutant, "random schedules");
    }
}
