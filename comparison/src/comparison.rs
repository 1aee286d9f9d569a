//! The comparison as it goes on: its stores, who takes part on each, and what has come out so far.

use std::path::{Path, PathBuf};

use testbed::Scratch;

use crate::driver::Worker;
use crate::environment::{Environment, LeftOut, Server};
use crate::error::{Error, Result};
use crate::implementation::{Implementation, Kind};
use crate::options::{Options, Scenario, Store};
use crate::progress::Progress;
use crate::report::{Drawings, Report, Row};
use crate::scale::Scale;
use crate::servers::{Target, memory_file_system};

/// Everything there is.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) scale: Scale,
    pub(crate) report: Report,
    pub(crate) drawings: Drawings,
    pub(crate) progress: Progress,
    stores: Vec<(Target, Vec<Implementation>)>,
    room: Scratch,
    /// Where servers keep their data.
    pub(crate) place: PathBuf,
}

impl Comparison {
    /// Starts what servers there are, and asks every library whether it can take part.
    pub(crate) async fn prepare(options: &Options) -> Result<Self> {
        std::fs::create_dir_all(&options.out)
            .map_err(Error::during(format!("making {}", options.out.display())))?;
        let place = options.out.canonicalize().map_err(Error::during("looking for the report's place"))?;
        let mode = match (options.quick, options.full) {
            (true, _) => "quick",
            (_, true) => "full",
            _ => "usual",
        };
        let environment = Environment::here(mode, &place);
        let report = Report { environment, results: Vec::new(), claims: Vec::new(), profiles: Vec::new() };
        let room = Scratch::new("compare").map_err(Error::during("making a room for files"))?;
        let mut comparison = Self {
            scale: Scale::of(options),
            report,
            drawings: Drawings::default(),
            progress: Progress::new(0),
            stores: Vec::new(),
            room,
            place,
        };
        comparison.open_stores(options).await;
        if comparison.stores.is_empty() {
            return Err(Error::new("no store can be compared"));
        }
        for (target, _) in &comparison.stores {
            let server = Server { version: target.version.clone(), durability: target.durability.to_owned() };
            comparison.report.environment.servers.insert(target.label.clone(), server);
        }
        comparison.meet_everybody(&options.peers).await;
        let asked = |scenario: &Scenario| *scenario != Scenario::Claims;
        let steps = comparison.stores.len() * options.scenario.iter().filter(|s| asked(s)).count();
        comparison.progress =
            Progress::new(steps + usize::from(options.scenario.contains(&Scenario::Claims)));
        Ok(comparison)
    }

    /// The stores and who takes part there.
    pub(crate) fn stores(&self) -> impl Iterator<Item = (&Target, &[Implementation])> {
        self.stores.iter().map(|(target, everybody)| (target, everybody.as_slice()))
    }

    /// As [`stores`](Self::stores), taken out while results come in; put back with
    /// [`put_back`](Self::put_back).
    pub(crate) fn take_stores(&mut self) -> Vec<(Target, Vec<Implementation>)> {
        std::mem::take(&mut self.stores)
    }

    pub(crate) fn put_back(&mut self, stores: Vec<(Target, Vec<Implementation>)>) {
        self.stores = stores;
    }

    /// Where processes put their files.
    pub(crate) fn room(&self) -> &Path {
        self.room.path()
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

    /// Says that something does not take part, and keeps it for the report.
    pub(crate) fn leave_out(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let left_out = LeftOut { what: what.into(), why: why.into() };
        if !self.report.environment.left_out.contains(&left_out) {
            self.progress.say(&format!("left out: {}: {}", left_out.what, left_out.why));
            self.report.environment.left_out.push(left_out);
        }
    }

    async fn open_stores(&mut self, options: &Options) {
        for store in &options.store {
            if !is_built(*store) {
                let needs = if *store == Store::Etcd { ", which needs protoc to build" } else { "" };
                let why = format!("this build has no store for it: enable the feature `{store}`{needs}");
                self.leave_out(store.to_string(), why);
                continue;
            }
            if let Some(given) = options.given(*store) {
                self.stores.push((Target::given(*store, given), Vec::new()));
                continue;
            }
            let place = self.place.clone();
            self.open(*store, &place, true).await;
            if options.tmpfs && *store != Store::Memory {
                match memory_file_system() {
                    Ok(place) => self.open(*store, place, false).await,
                    Err(error) => self.leave_out(format!("{store} in memory"), error.to_string()),
                }
            }
        }
    }

    async fn open(&mut self, store: Store, place: &Path, durable: bool) {
        match Target::start(store, place, durable).await {
            Ok(target) => self.stores.push((target, Vec::new())),
            Err(error) => self.leave_out(store.to_string(), error.to_string()),
        }
    }

    /// Whoever says `ready` on a store takes part there.
    async fn meet_everybody(&mut self, peers: &[String]) {
        let mut stores = self.take_stores();
        for (target, everybody) in &mut stores {
            for who in Implementation::of(target.store, peers) {
                match Worker::start(&who, std::slice::from_ref(&target.url), self.room()).await {
                    Ok(worker) => {
                        if matches!(who.kind, Kind::Ours | Kind::Peer(_)) {
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
        }
        stores.retain(|(_, everybody)| !everybody.is_empty());
        if self.scale.spares_heavy
            && stores.iter().any(|(_, everybody)| everybody.iter().any(Implementation::is_heavy))
        {
            self.leave_out(
                "libraries with a virtual machine or an interpreter, in tasks, herd and counter",
                "only in the full mode",
            );
            self.leave_out("other libraries in held", "only in the full mode");
        }
        self.put_back(stores);
    }
}

fn is_built(store: Store) -> bool {
    match store {
        Store::Memory | Store::File => true,
        Store::Redis => cfg!(feature = "redis"),
        Store::Etcd => cfg!(feature = "etcd"),
        Store::Zk => cfg!(feature = "zk"),
    }
}
