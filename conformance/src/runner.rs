//! Runs the cases as trials of a test target, or as one call.

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use lockcore::{Env, Guarantees, Timing};

use crate::bugs::{Bug, bugs};
use crate::case::{Case, Ran, cases};
use crate::failure::{Failure, Outcome};
use crate::report::{CaseResult, Ledger, MutantResult, Report};
use crate::subject::{MemorySubject, Pace, Subject};

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
    let ledger = Ledger::default();
    // A store that cannot be opened fails every case, each saying why.
    let promises = promises(&subject).unwrap_or_else(|_| Guarantees::all());
    for case in cases() {
        let lacking = case.lacking(promises);
        if lacking.is_empty() {
            run(&ledger, case, &subject);
        } else {
            skip(&ledger, case, &subject, lacking);
        }
    }
    let report = ledger.close();
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
        let ledger = Ledger::default();
        let is_whole = args.filter.is_none() && args.skip.is_empty() && !args.ignored;
        let mut trials = Vec::new();
        let mut expected = Vec::new();
        for subject in &self.subjects {
            let promises = match promises(subject) {
                Ok(promises) => promises,
                Err(failure) => {
                    eprintln!("the store {} cannot be opened: {failure}", subject.name());
                    return ExitCode::FAILURE;
                }
            };
            for case in cases() {
                trials.push(case_trial(&ledger, case, subject, case.lacking(promises)));
                expected.push((subject.name().to_owned(), case.name));
            }
        }
        if self.mutants {
            trials.extend(bugs().map(|mutant| mutant_trial(&ledger, mutant)));
        }
        trials.extend(self.others);
        trials.push(Trial::test("kit::every_case_ran_or_is_lacked", move || {
            let report = ledger.close();
            println!("\n{report}");
            let skipped: Vec<_> = expected.iter().filter(|case| !report.cases.contains_key(case)).collect();
            if is_whole && !skipped.is_empty() {
                return Err(format!("never ran: {skipped:?}").into());
            }
            Ok(())
        }));
        libtest_mimic::run(&args, trials).exit_code()
    }
}

fn case_trial(
    ledger: &Ledger,
    case: &'static Case,
    subject: &Arc<dyn Subject>,
    lacking: Guarantees,
) -> Trial {
    let name = format!("{}::{}", subject.name(), case.name);
    let (ledger, subject) = (ledger.clone(), Arc::clone(subject));
    if lacking.is_empty() {
        return Trial::test(name, move || failed(run(&ledger, case, &subject).outcome));
    }
    // Not the flag that libtest ignores by: it is this trial that enters the case as lacking.
    let lacks = format!("lacks {lacking}");
    let reason = lacks.clone();
    Trial::ignorable_test(name, move || {
        skip(&ledger, case, &subject, lacking);
        Ok(Completion::ignored_with(reason))
    })
    .with_kind(lacks)
}

fn run(ledger: &Ledger, case: &'static Case, subject: &Arc<dyn Subject>) -> Ran {
    ledger.enter(
        || case.run(Arc::clone(subject), None),
        |report, ran| {
            let result = match &ran.outcome {
                Ok(()) => CaseResult::Passed(ran.took),
                Err(failure) => CaseResult::Failed(failure.to_string()),
            };
            report.cases.insert((subject.name().to_owned(), case.name), result);
        },
    )
}

fn skip(ledger: &Ledger, case: &'static Case, subject: &Arc<dyn Subject>, lacking: Guarantees) {
    ledger.enter(
        || (),
        |report, ()| {
            report.cases.insert((subject.name().to_owned(), case.name), CaseResult::Lacks(lacking));
        },
    );
}

fn mutant_trial(ledger: &Ledger, mutant: &'static Bug) -> Trial {
    let ledger = ledger.clone();
    Trial::test(format!("mutant::{}", mutant.name), move || {
        let caught = ledger.enter(
            || hunt(mutant),
            |report, caught| {
                let (caught, said) = match caught {
                    Ok(said) => (true, said.message().to_owned()),
                    Err(failure) => (false, failure.to_string()),
                };
                report.mutants.insert(mutant.name, MutantResult { case: mutant.caught_by, caught, said });
            },
        );
        failed(caught.map(drop))
    })
}

/// What the case named for it says of the mutant; an error if that is nothing.
fn hunt(mutant: &Bug) -> Outcome<Failure> {
    let case = cases().find(|case| case.name == mutant.caught_by);
    let case = case.ok_or_else(|| Failure::new(format!("there is no case {}", mutant.caught_by)))?;
    let sound = case.run(Arc::new(MemorySubject::new()), None);
    sound
        .outcome
        .map_err(|failure| Failure::new(format!("{case:?} fails without the mutation: {failure}")))?;
    let mutated = case.run(Arc::new(MemorySubject::new()), Some((mutant.make)()));
    match mutated.outcome {
        Err(failure) => Ok(failure),
        Ok(()) => Err(Failure::new(format!("escaped {case:?}: {}", mutant.story))),
    }
}

/// What the store promises, from the store itself.
fn promises(subject: &Arc<dyn Subject>) -> Outcome<Guarantees> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(subject.pace() == Pace::Virtual)
        .build()
        .map_err(|error| Failure::new(format!("no runtime: {error}")))?;
    let promises = runtime.block_on(async {
        let env = Env::new(Timing::for_ttl(subject.pace().ttl()))?.with_clock(subject.pace().clock());
        let backend = subject.config("kit-promises").open(env).await?;
        let promises = backend.guarantees();
        backend.close().await?;
        Ok(promises)
    });
    runtime.shutdown_background();
    promises
}

fn failed(outcome: Outcome) -> Result<(), Failed> {
    outcome.map_err(Failed::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::{Below, Layer, shared};
    use lockcore::backend::StoreConfig;

    /// The in-memory store, which keeps more than it promises.
    #[derive(Debug)]
    struct Modest {
        store: MemorySubject,
        promises: Guarantees,
    }

    #[derive(Debug)]
    struct Promising(Guarantees);

    impl Layer for Promising {
        fn guarantees(&self, _below: &Below) -> Guarantees {
            self.0
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
            shared(Arc::new(Promising(self.promises)))(self.store.config(namespace))
        }
    }

    fn checked(promises: Guarantees) -> Report {
        check(Modest { store: MemorySubject::new(), promises }).expect("every case that applies passes")
    }

    /// What a store does not promise it is not asked, and the report says so, case by case.
    #[test]
    fn a_store_is_asked_for_what_it_promises() {
        for promises in [Guarantees::empty(), Guarantees::LEASED, Guarantees::FIFO | Guarantees::FENCED] {
            let report = checked(promises);
            assert_eq!(report.cases.len(), cases().count());
            for case in cases() {
                let lacks = matches!(report.cases[&("modest".to_owned(), case.name)], CaseResult::Lacks(_));
                assert_eq!(lacks, !promises.contains(case.needs), "{case:?} with {promises}");
            }
            assert!(report.to_string().contains("lacks"), "{report}");
        }
    }
}
