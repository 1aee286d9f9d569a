//! The comparison as it goes on: its stores, who takes part on each, and what has come out so far.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use testbed::Scratch;

use crate::claims::budgets;
use crate::driver::{Kept, Worker};
use crate::environment::{Environment, LeftOut, Moment, Server};
use crate::error::{Error, Result};
use crate::implementation::Implementation;
use crate::options::{Options, Scenario, Store};
use crate::peers::{LOCK_RPC, MOST_BY_RPC, PEERS};
use crate::progress::Progress;
use crate::report::{Kind, Report, Row};
use crate::scale::Scale;
use crate::servers::Target;

/// Everything there is.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) scale: Scale,
    pub(crate) report: Report,
    pub(crate) progress: Progress,
    /// Processes for the next contest.
    pub(crate) kept: Kept,
    /// And who takes part there. Shared, as results come in while they are gone through.
    pub(crate) stores: Arc<[(Target, Vec<Implementation>)]>,
    step: Option<(String, Moment)>,
    room: Scratch,
    place: PathBuf,
}

impl Comparison {
    /// Starts what servers there are, and asks every library whether it can take part.
    pub(crate) async fn prepare(options: &Options) -> Result<Self> {
        std::fs::create_dir_all(&options.out)
            .map_err(Error::during(format!("making {}", options.out.display())))?;
        let place = options.out.canonicalize().map_err(Error::during("looking for the report's place"))?;
        let scale = Scale::of(options);
        let report = Report {
            environment: Environment::here(scale.mode, options.members, &place),
            ..Report::default()
        };
        let room = Scratch::new("compare").map_err(Error::during("making a room for files"))?;
        let mut comparison = Self {
            scale,
            report,
            progress: Progress::new(0),
            kept: Kept::default(),
            stores: Arc::default(),
            step: None,
            room,
            place: place.clone(),
        };
        let mut stores = Vec::new();
        for target in comparison.open_stores(options, &place).await {
            let server = Server {
                version: target.version.clone(),
                durability: target.durability.to_owned(),
                settings: target.settings.clone(),
            };
            comparison.report.environment.servers.insert(target.label.clone(), server);
            let everybody = comparison.meet(&target, options).await;
            if !everybody.is_empty() {
                stores.push((target, everybody));
            }
        }
        if stores.is_empty() {
            return Err(Error::new("no store can be compared"));
        }
        comparison.say_what_is_passed_over(options, &stores);
        comparison.stores = stores.into();
        let steps = |scenario: &Scenario| if scenario.is_of_a_store() { comparison.stores.len() } else { 1 };
        comparison.progress = Progress::new(options.scenarios().iter().map(steps).sum());
        Ok(comparison)
    }

    /// What others have, and this mode has not.
    fn say_what_is_passed_over(&mut self, options: &Options, stores: &[(Target, Vec<Implementation>)]) {
        let passed_over: Vec<_> = options.passed_over().iter().map(ToString::to_string).collect();
        if !passed_over.is_empty() {
            self.leave_out(passed_over.join(", "), "not in the quick mode, unless --scenario names them");
        }
        let mut heavy = PEERS.iter().filter(|peer| peer.is_heavy);
        if options.peers.iter().any(|name| name == "all") && !heavy.all(|peer| options.wants(peer)) {
            self.leave_out(HEAVY, "not in the quick mode, unless --peers names them");
        }
        let everybody = || stores.iter().flat_map(|(_, everybody)| everybody);
        let many = self.scale.crowd.iter().any(|count| *count > MOST_BY_RPC);
        if many && everybody().any(|who| who.name() == LOCK_RPC) {
            self.leave_out(
                format!("{LOCK_RPC} with more than {MOST_BY_RPC} contenders"),
                "once a thousand have given up, the server serves nobody by that call any more",
            );
        }
        if self.scale.with_heavy {
            return;
        }
        if everybody().any(Implementation::is_heavy) {
            let where_slow = format!("{HEAVY}, in distance, hand-off, tasks, crowd and counter");
            self.leave_out(where_slow, "only in the full mode");
        }
        if everybody().any(|who| matches!(who, Implementation::Peer(_))) {
            self.leave_out("other libraries in held", "only in the full mode");
        }
    }

    /// The next step begins.
    pub(crate) fn begin(&mut self, what: &str) {
        self.progress.begin(what);
        self.step = Some((what.to_owned(), Moment::now()));
    }

    /// And is done.
    pub(crate) fn end(&mut self) {
        self.progress.step();
        let step = self.step.take().map(|(what, began)| began.until_now(what));
        self.report.environment.steps.extend(step);
    }

    /// Where processes put their files.
    pub(crate) fn room(&self) -> &Path {
        self.room.path()
    }

    /// Where servers keep their data.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    pub(crate) fn add(&mut self, row: Row) {
        if let Some(violations) = row.violations.filter(|violations| *violations > 0) {
            self.progress.say(&format!(
                "VIOLATION: {} on {} broke exclusion {violations} times ({}, {} contenders)",
                row.implementation, row.store, row.scenario, row.contenders
            ));
        }
        self.report.results.push(row);
    }

    /// Whose turns go on, as the report with `rows` would leave budgets undecided that depend on them.
    pub(crate) fn undecided(&mut self, rows: Vec<Row>) -> BTreeSet<String> {
        let known = self.report.results.len();
        self.report.results.extend(rows);
        let undecided = budgets::undecided(&self.report, known);
        self.report.results.truncate(known);
        undecided
    }

    pub(crate) fn add_kind(&mut self, kind: Kind) {
        let Kind { load, store, implementation, .. } = &kind;
        if let Some(violations) = kind.violations.filter(|violations| *violations > 0) {
            let told = format!(
                "VIOLATION: {implementation} on {store} let too many hold {violations} times ({load})"
            );
            self.progress.say(&told);
        }
        if let Some(why) = kind.remark.clone() {
            self.leave_out(format!("{implementation} on {store} with {load}"), why);
        }
        self.report.kinds.push(kind);
    }

    /// Says that something does not take part, and keeps it for the report.
    pub(crate) fn leave_out(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let left_out = LeftOut { what: what.into(), why: why.into() };
        if !self.report.environment.left_out.contains(&left_out) {
            self.progress.say(&format!("left out: {}: {}", left_out.what, left_out.why));
            self.report.environment.left_out.push(left_out);
        }
    }

    /// The same of an implementation, whose row has no figures but stays: what follows from its scenario is
    /// not known without it.
    pub(crate) fn leave_row(&mut self, row: &Row, why: &Error) {
        self.give_up(row, why);
        self.add(Row { remark: Some(why.to_string()), ..row.clone() });
    }

    /// Says that a row is not what it should be.
    pub(crate) fn give_up(&mut self, row: &Row, why: &Error) {
        let Row { implementation, store, scenario, contenders, .. } = row;
        let what = format!("{implementation} on {store} in {scenario} with {contenders}");
        self.leave_out(what, why.to_string());
    }

    /// The stores that there are; servers keep their data at `place`.
    async fn open_stores(&mut self, options: &Options, place: &Path) -> Vec<Target> {
        let mut targets = Vec::new();
        for store in &options.store {
            if *store == Store::Etcd && !cfg!(feature = "etcd") {
                self.leave_out("etcd", "this build has no etcd client, which needs protoc to build");
                continue;
            }
            if let Some(given) = options.given(*store) {
                targets.push(Target::given(*store, given));
                continue;
            }
            match Target::start(*store, options.members, place).await {
                Ok(target) => targets.push(target),
                Err(error) => self.leave_out(store.to_string(), error.to_string()),
            }
        }
        targets
    }

    /// Whoever says `ready` on a store takes part there.
    async fn meet(&mut self, target: &Target, options: &Options) -> Vec<Implementation> {
        let mut everybody = Vec::new();
        for who in Implementation::of(target.store, options) {
            match Worker::start(&who, std::slice::from_ref(&target.url), self.room()).await {
                Ok(worker) => {
                    if !who.is_floor() {
                        let versions = &mut self.report.environment.versions;
                        versions.insert(who.name().to_owned(), worker.version().to_owned());
                    }
                    everybody.push(who);
                }
                Err(error) => {
                    self.leave_out(format!("{} on {}", who.name(), target.store), error.to_string())
                }
            }
        }
        everybody
    }
}

/// As the report calls who is slow to start.
const HEAVY: &str = "libraries with a virtual machine or an interpreter";
