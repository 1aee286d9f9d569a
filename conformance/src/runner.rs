//! Runs the cases as trials of a test target, or as one call.

use std::process::ExitCode;
use std::sync::Arc;

use leasehold_core::{Env, ErrorKind, Guarantees, Timing};
use libtest_mimic::{Arguments, Completion, Trial};
use parking_lot::Mutex;

use crate::bugs::{Bug, bugs};
use crate::case::{Case, Offer, cases};
use crate::failure::{Failure, Outcome};
use crate::report::{CaseResult, MutantResult, Report};
use crate::subject::{MemorySubject, Subject};

/// The `main` of a test target: every case on every store, as `<store>::<guarantee>::<property>`.
pub fn main<const N: usize>(subjects: [Box<dyn Subject>; N]) -> ExitCode {
    subjects.into_iter().fold(Suite::new(), Suite::store).run()
}

/// Every case on one store, one after the other.
///
/// # Errors
///
/// The same report if a case failed.
pub fn check(subject: impl Subject) -> Result<Report, Report> {
    let subject: Arc<dyn Subject> = Arc::new(subject);
    let report = Shared::default();
    // A store that cannot be opened fails every case, each saying why.
    let offer = offer(&subject).unwrap_or(Offer { promises: Guarantees::all(), ledger: true, base: true });
    for case in cases() {
        match case.lacking(offer) {
            Some(lacking) => enter(&report, case, &subject, CaseResult::Lacks(lacking)),
            // The report says how it ended.
            None => drop(run(&report, case, &subject)),
        }
    }
    let report = report.lock().clone();
    if report.failures().next().is_none() { Ok(report) } else { Err(report) }
}

/// A test target in the making.
#[derive(Debug, Default)]
#[must_use = "nothing is run before `run`"]
pub struct Suite {
    subjects: Vec<Arc<dyn Subject>>,
    mutants: bool,
    others: Vec<Trial>,
    threads: Option<usize>,
}

impl Suite {
    /// Without stores and mutants.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs every case on this store too.
    pub fn store(mut self, subject: Box<dyn Subject>) -> Self {
        self.subjects.push(Arc::from(subject));
        self
    }

    /// Shows that each mutant is caught by the case named for it.
    pub fn mutants(mut self) -> Self {
        self.mutants = true;
        self
    }

    /// Runs another trial too.
    pub fn trial(mut self, trial: Trial) -> Self {
        self.others.push(trial);
        self
    }

    /// Runs so many trials at a time unless the command line says otherwise. In real time, where
    /// cases mostly wait, more than there are cores.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Runs what the command line asks for, and ends with a summary.
    pub fn run(self) -> ExitCode {
        let mut args = Arguments::from_args();
        args.test_threads = args.test_threads.or(self.threads);
        let report = Shared::default();
        let is_whole = args.filter.is_none() && args.skip.is_empty() && !args.ignored && !args.list;
        let mut trials = Vec::new();
        let mut expected = Vec::new();
        for subject in &self.subjects {
            let offer = match offer(subject) {
                Ok(offer) => offer,
                Err(failure) => {
                    eprintln!("the store {} cannot be opened: {failure}", subject.name());
                    return ExitCode::FAILURE;
                }
            };
            for case in cases() {
                trials.push(case_trial(&report, case, subject, case.lacking(offer)));
                expected.push((subject.name().to_owned(), case.name));
            }
        }
        if self.mutants {
            trials.extend(bugs().map(|bug| mutant_trial(&report, bug)));
        }
        trials.extend(self.others);
        let exit_code = libtest_mimic::run(&args, trials).exit_code();
        let report = report.lock();
        if !args.list {
            println!("\n{report}");
        }
        let skipped: Vec<_> = expected.iter().filter(|case| !report.cases.contains_key(case)).collect();
        if is_whole && !skipped.is_empty() {
            eprintln!("never ran: {skipped:?}");
            return ExitCode::FAILURE;
        }
        exit_code
    }
}

/// The results so far; trials write at the same time.
type Shared = Arc<Mutex<Report>>;

fn case_trial(
    report: &Shared,
    case: &'static Case,
    subject: &Arc<dyn Subject>,
    lacking: Option<String>,
) -> Trial {
    let name = format!("{}::{}", subject.name(), case.name);
    let (report, subject) = (Arc::clone(report), Arc::clone(subject));
    let Some(lacking) = lacking else {
        return Trial::test(name, move || Ok(run(&report, case, &subject)?));
    };
    // Not the flag that libtest ignores by: it is this trial that enters the case as lacking.
    let lacks = format!("lacks {lacking}");
    let reason = lacks.clone();
    Trial::ignorable_test(name, move || {
        enter(&report, case, &subject, CaseResult::Lacks(lacking));
        Ok(Completion::ignored_with(reason))
    })
    .with_kind(lacks)
}

fn run(report: &Shared, case: &'static Case, subject: &Arc<dyn Subject>) -> Outcome {
    let ran = case.run(Arc::clone(subject), None);
    let result = match &ran.outcome {
        Ok(()) => CaseResult::Passed(ran.took),
        Err(failure) => CaseResult::Failed(failure.to_string()),
    };
    enter(report, case, subject, result);
    ran.outcome
}

fn enter(report: &Shared, case: &'static Case, subject: &Arc<dyn Subject>, result: CaseResult) {
    report.lock().cases.insert((subject.name().to_owned(), case.name), result);
}

fn mutant_trial(report: &Shared, bug: &'static Bug) -> Trial {
    let report = Arc::clone(report);
    Trial::test(format!("mutant::{}", bug.name), move || {
        let hunted = hunt(bug);
        let (caught, said) = match &hunted {
            Ok(said) => (true, said.message().to_owned()),
            Err(failure) => (false, failure.to_string()),
        };
        report.lock().mutants.insert(bug.name, MutantResult { case: bug.caught_by, caught, said });
        Ok(hunted.map(drop)?)
    })
}

/// What the case named for it says of the mutant; an error if that is nothing.
fn hunt(bug: &Bug) -> Outcome<Failure> {
    let case = cases().find(|case| case.name == bug.caught_by);
    let case = case.ok_or_else(|| Failure::new(format!("there is no case {}", bug.caught_by)))?;
    let sound = case.run(Arc::new(MemorySubject::new()), None);
    sound
        .outcome
        .map_err(|failure| Failure::new(format!("{case:?} fails without the mutation: {failure}")))?;
    let mutated = case.run(Arc::new(MemorySubject::new()), Some((bug.make)()));
    match mutated.outcome {
        Err(failure) => Ok(failure),
        Ok(()) => Err(Failure::new(format!("escaped {case:?}: {}", bug.story))),
    }
}

/// What the store offers, from the store itself.
fn offer(subject: &Arc<dyn Subject>) -> Outcome<Offer> {
    let runtime = subject.pace().runtime()?;
    let offer = runtime.block_on(async {
        let env = Env::new(Timing::for_ttl(subject.pace().ttl()))?.with_clock(subject.pace().clock());
        let backend = subject.config("kit-promises").open(env).await?;
        let base = match backend.token_base().await {
            Ok(_) => true,
            Err(error) if *error.kind() == ErrorKind::Unsupported => false,
            Err(error) => return Err(error.into()),
        };
        let offer = Offer { promises: backend.guarantees(), ledger: backend.ledger().is_some(), base };
        backend.close().await?;
        Ok(offer)
    });
    runtime.shutdown_background();
    offer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pace;
    use crate::layer::{Below, Layer, shared};
    use async_trait::async_trait;
    use leasehold_core::backend::ledger::MoveLedger;
    use leasehold_core::backend::{StoreConfig, TokenBase};
    use leasehold_core::{Error, Result};

    /// The in-memory store, which keeps more than it promises.
    #[derive(Debug)]
    struct Modest {
        store: MemorySubject,
        offer: Offer,
        /// Why it has no token base, if it has none.
        reason: ErrorKind,
    }

    #[derive(Debug)]
    struct Promising(Offer, ErrorKind);

    #[async_trait]
    impl Layer for Promising {
        fn guarantees(&self, _below: &Below) -> Guarantees {
            self.0.promises
        }

        fn ledger(&self, below: &Below) -> Option<Arc<dyn MoveLedger>> {
            below.backend.ledger().filter(|_| self.0.ledger)
        }

        async fn token_base(&self, below: &Below) -> Result<TokenBase> {
            let refusal = || Error::not_applied(self.1.clone(), "no token base");
            if self.0.base { below.backend.token_base().await } else { Err(refusal()) }
        }
    }

    impl Subject for Modest {
        fn name(&self) -> &str {
            "modest"
        }

        fn pace(&self) -> Pace {
            self.store.pace()
        }

        fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
            shared(Arc::new(Promising(self.offer, self.reason.clone())))(self.store.config(namespace))
        }
    }

    fn modest(offer: Offer, reason: ErrorKind) -> Modest {
        Modest { store: MemorySubject::new(), offer, reason }
    }

    /// An error of a token base is a failure of the store, unless the store does not support one.
    #[test]
    fn unavailable_token_base_is_a_failure() {
        let lacks_base = Offer { promises: Guarantees::all(), ledger: true, base: false };
        for (reason, is_lacking) in [(ErrorKind::Unsupported, true), (ErrorKind::Unavailable, false)] {
            let subject: Arc<dyn Subject> = Arc::new(modest(lacks_base, reason));
            assert_eq!(offer(&subject).is_ok_and(|offer| !offer.base), is_lacking);
        }
    }

    /// What a store does not promise it is not asked, and the report says so, case by case.
    #[test]
    fn a_store_is_asked_for_what_it_promises() {
        for (promises, ledger, base) in [
            (Guarantees::empty(), true, true),
            (Guarantees::LEASED, false, true),
            (Guarantees::FIFO | Guarantees::FENCED, false, false),
        ] {
            let store = modest(Offer { promises, ledger, base }, ErrorKind::Unsupported);
            let report = check(store).expect("every case that applies passes");
            assert_eq!(report.cases.len(), cases().count());
            for case in cases() {
                let lacks = matches!(report.cases[&("modest".to_owned(), case.name)], CaseResult::Lacks(_));
                let offered = match case.guarantee() {
                    "ledger" => ledger,
                    "base" => base,
                    _ => true,
                };
                let has = promises.contains(case.needs) && offered;
                assert_eq!(lacks, !has, "{case:?} with {promises}, {ledger}, {base}");
            }
            assert!(report.to_string().contains("lacks"), "{report}");
        }
    }
}
