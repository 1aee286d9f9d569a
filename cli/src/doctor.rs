//! `leasehold doctor`: the guarantees of a store, and the findings that break one.

use leasehold::backend::{Finding, Severity};
use leasehold::{Error, ErrorKind, Guarantees, LockManager};
use serde::Serialize;

use crate::arguments::Store;
use crate::failure::{Exit, Failure};
use crate::output::{self, Form};
use crate::store::{self, Place};
use crate::table::{Column, Table, Width};

/// The diagnosis as JSON shows it.
#[derive(Debug, Serialize)]
struct Diagnosis {
    store: String,
    findings: Vec<Found>,
    guarantees: Vec<Promise>,
    /// Whether a finding breaks a guarantee.
    broken: bool,
}

#[derive(Debug, Serialize)]
struct Found {
    severity: &'static str,
    subject: String,
    detail: String,
}

#[derive(Debug, Serialize)]
struct Promise {
    name: String,
    description: &'static str,
    promised: bool,
}

pub(crate) async fn doctor(store: &Store, name: Option<&str>, form: Form) -> Result<Exit, Failure> {
    let place = Place::of(store)?;
    let diagnosis = match place.configure()?.build().await {
        Err(error) => Diagnosis::of_refusal(&place, error)?,
        Ok(locks) => {
            let found = diagnose(&locks, name).await;
            let guarantees = locks.guarantees();
            store::close(&locks).await;
            match found {
                Ok(mut findings) => {
                    if let Err(refused) = place.require(guarantees) {
                        findings.push(Finding::new(Severity::Broken, "require", refused.message()));
                    }
                    Diagnosis::new(&place, findings, Some(guarantees))
                }
                Err(error) => Diagnosis::of_refusal(&place, error)?,
            }
        }
    };
    match form {
        Form::Json => output::json(&diagnosis)?,
        Form::Words(width) => diagnosis.show(width)?,
    }
    Ok(if diagnosis.broken { Exit::NO } else { Exit::SUCCESS })
}

async fn diagnose(locks: &LockManager, name: Option<&str>) -> leasehold::Result<Vec<Finding>> {
    let mut findings = locks.diagnose().await?;
    if let Some(name) = name {
        match locks.diagnose_lock(name).await {
            Ok(found) => findings.extend(found),
            // The store can be used, and this name cannot.
            Err(error) if matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Denied) => {
                findings.push(Finding::new(Severity::Broken, "lock", format!("{error:#}")));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(findings)
}

impl Diagnosis {
    fn new(place: &Place, findings: Vec<Finding>, guarantees: Option<Guarantees>) -> Self {
        let broken = findings.iter().any(|finding| finding.severity == Severity::Broken);
        let promises = guarantees.map(promises).unwrap_or_default();
        let findings = findings.into_iter().map(Found::from).collect();
        Self { store: place.shown(), findings, guarantees: promises, broken }
    }

    /// A store that cannot be used as it is, is a finding; a store that does not answer is a failure.
    fn of_refusal(place: &Place, error: Error) -> Result<Self, Failure> {
        let subject = match error.kind() {
            ErrorKind::Denied => "access",
            ErrorKind::InvalidOption => "options",
            ErrorKind::Protocol => "protocol",
            ErrorKind::Unsupported => "store",
            _ => return Err(error.into()),
        };
        let failure = Failure::from(error);
        let finding = Finding::new(Severity::Broken, subject, failure.message());
        Ok(Self::new(place, vec![finding], None))
    }

    fn show(&self, width: Width) -> Result<(), Failure> {
        output::say(&format!("{}\n", output::safe(&self.store)))?;
        const COLUMNS: [Column; 3] = [Column::Whole, Column::Whole, Column::Wrapped];
        let mut findings = Table::new(COLUMNS);
        for found in &self.findings {
            findings.row([found.severity, &found.subject, &found.detail]);
        }
        findings.show(width)?;
        if !self.guarantees.is_empty() {
            output::say("\nWhat this store promises:")?;
            let mut promises = Table::new(COLUMNS);
            for promise in &self.guarantees {
                let promised = if promise.promised { "yes" } else { "no" };
                promises.row([promised, &promise.name, promise.description]);
            }
            promises.show(width)?;
        }
        let broken = self.findings.iter().filter(|found| found.severity == BROKEN).count();
        output::say(&match broken {
            0 => "\nNothing breaks a guarantee.".to_owned(),
            1 => "\nOne finding breaks a guarantee.".to_owned(),
            many => format!("\n{many} findings break a guarantee."),
        })
    }
}

impl From<Finding> for Found {
    fn from(finding: Finding) -> Self {
        let severity = match finding.severity {
            Severity::Ok => "ok",
            Severity::Warning => "warning",
            Severity::Broken => BROKEN,
        };
        Self { severity, subject: finding.subject.to_owned(), detail: finding.detail }
    }
}

fn promises(guarantees: Guarantees) -> Vec<Promise> {
    let promise = |&(flag, description): &(Guarantees, _)| Promise {
        name: flag.to_string(),
        description,
        promised: guarantees.contains(flag),
    };
    Guarantees::DESCRIBED.iter().map(promise).collect()
}

const BROKEN: &str = "broken";
