//! The registry: every case by name, with the promises it needs.
//!
//! A case is `gN::property`, or `ledger::property` and `base::property` for stores that have a ledger or a token base.
//! The contract's documentation in `leasehold_core::backend` names them; a test below reads it.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::Guarantees;
use leasehold_core::clock::{BootClock, Clock};

use crate::bugs::Mutation;
use crate::failure::{Failure, Outcome};
use crate::subject::{Pace, Subject};
use crate::world::World;

/// One property of one guarantee.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Case {
    /// `gN::property`, `ledger::property` or `base::property`.
    pub name: &'static str,
    /// The property, in a line.
    pub property: &'static str,
    /// A store that lacks one of these is not asked.
    pub needs: Guarantees,
    pub(crate) run: Run,
}

/// What a store has to offer, by which its cases are chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) promises: Guarantees,
    pub(crate) ledger: bool,
    pub(crate) base: bool,
}

type Run = fn(World) -> BoxFuture<'static, Outcome>;

/// Every case, in the order of the guarantees.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    crate::cases::ALL.into_iter().flatten()
}

/// Promises that no case on one store in one process can check, and the tests that do.
pub const ENVIRONMENTAL: [(Guarantees, &str); 4] = [
    (Guarantees::CROSS_PROCESS, "needs several processes: see the tests with holder processes"),
    (Guarantees::CROSS_HOST, "needs a network: see the tests with real servers"),
    (Guarantees::SURVIVES_FAILOVER, "needs a cluster: see the tests that kill its leader"),
    (Guarantees::SURVIVES_RESTART, "needs a server: see the tests that restart it"),
];

impl Case {
    /// The guarantee, `gN`; or `ledger` or `base`.
    pub fn guarantee(&self) -> &'static str {
        self.name.split_once("::").map_or(self.name, |(guarantee, _)| guarantee)
    }

    /// What a store lacks for this case, if that is something.
    pub(crate) fn lacking(&self, offer: Offer) -> Option<String> {
        let lacking = self.needs.difference(offer.promises);
        if !lacking.is_empty() {
            return Some(lacking.to_string());
        }
        match self.guarantee() {
            "ledger" => (!offer.ledger).then(|| "a ledger".to_owned()),
            "base" => (!offer.base).then(|| "a token base".to_owned()),
            _ => None,
        }
    }

    /// Runs it, in a runtime of its own. A hang or a panic is a failure too.
    pub(crate) fn run(&self, subject: Arc<dyn Subject>, mutation: Option<Mutation>) -> Ran {
        let started = BootClock::new().now();
        let outcome = subject.pace().runtime().and_then(|runtime| {
            let outcome = runtime.block_on(self.bounded(subject, mutation));
            // A thread of the store that still waits is not needed any more.
            runtime.shutdown_timeout(Duration::from_secs(1));
            outcome
        });
        Ran { outcome, took: BootClock::new().now().since(started) }
    }

    async fn bounded(&self, subject: Arc<dyn Subject>, mutation: Option<Mutation>) -> Outcome {
        let bound = match subject.pace() {
            Pace::Virtual => Duration::from_secs(60 * 60),
            // Many cases play a scene over and over, so a busy machine needs many times as long as an idle one.
            Pace::Real { ttl } => 120 * ttl,
        };
        let world = World::open(subject, mutation).await?;
        let run = AssertUnwindSafe((self.run)(world.clone())).catch_unwind();
        let ran = world.within(bound, "the case hangs", run).await;
        world.forget_the_dead();
        ran?.unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(Failure::new(format!("panicked: {}", said.unwrap_or("without a word"))))
        })
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
}

/// The table at the top of each file of cases.
macro_rules! table {
    ($guarantee:literal: $($name:ident $([$($flag:ident)|+])?: $property:literal,)+) => {
        pub(in crate::cases) const CASES: &[$crate::Case] = &[$($crate::case::Case {
            name: concat!($guarantee, "::", stringify!($name)),
            property: $property,
            needs: leasehold_core::Guarantees::empty()$($(.union(leasehold_core::Guarantees::$flag))+)?,
            run: |world| Box::pin($name(world)),
        }),+];
    };
}
pub(crate) use table;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_cover_every_guarantee() {
        let mut seen = BTreeSet::new();
        for case in cases() {
            assert!(seen.insert(case.name), "{case:?} is there twice");
            assert!(is_case_name(case.name) && !case.property.is_empty(), "{case:?}");
        }
        let covered: BTreeSet<_> = cases().map(Case::guarantee).collect();
        assert_eq!(covered.len(), 12, "{covered:?}");
    }

    /// Every promise is needed by a case, or is said to be checked elsewhere, not both.
    #[test]
    fn every_promise_is_checked_somewhere() {
        let checked = cases().fold(Guarantees::empty(), |checked, case| checked | case.needs);
        let elsewhere = ENVIRONMENTAL.iter().fold(Guarantees::empty(), |all, (flag, _)| all | *flag);
        assert_eq!(checked & elsewhere, Guarantees::empty());
        assert_eq!(checked | elsewhere, Guarantees::all());
    }

    #[test]
    fn the_contract_names_existing_cases() {
        let contract = concat!(
            include_str!("../../lockcore/src/backend/contract.rs"),
            include_str!("../../lockcore/src/backend/ledger.rs")
        );
        let known: BTreeSet<_> = cases().map(|case| case.name).collect();
        let named: BTreeSet<_> = contract.split('`').filter(|word| is_case_name(word)).collect();
        assert!(named.len() >= 20, "{named:?}");
        let missing: Vec<_> = named.difference(&known).collect();
        assert!(missing.is_empty(), "the contract names cases that do not exist: {missing:?}");
    }

    fn is_case_name(word: &str) -> bool {
        let Some((guarantee, property)) = word.split_once("::") else {
            return false;
        };
        let number = guarantee.strip_prefix('g').and_then(|number| number.parse::<u8>().ok());
        (number.is_some() || ["ledger", "base"].contains(&guarantee))
            && !["property", "*"].contains(&property)
    }
}
