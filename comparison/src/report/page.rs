//! `report.html`: one page that needs nothing else, for a person to read.
//!
//! `templates/page.html` says what stands where, and in which words. Drawings are SVG in the page, coloured by classes so
//! that they follow the reader's light or dark setting; every mark tells its values when pointed at.

use std::collections::BTreeMap;

use askama::Template;

use super::chart::{Bar, Line, Point, Who, bars, lines};
use super::glance::{LINES, Line as Figure, STORES, called};
use super::question::Question;
use super::result::result;
use super::table::{number, percent, spread, time};
use super::{Report, Row, distinct};
use crate::error::{Error, Result};
use crate::figures::interval;
use crate::options::{ON_THREADS, ONE_THREAD};

/// The page.
pub(crate) fn page(report: &Report) -> Result<String> {
    Page::of(&Drawn { report }).render().map_err(Error::during("writing the page"))
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    report: &'a Report,
    machine: String,
    /// How often locks that are none were found out, and in how many cycles.
    found: (u64, u64),
    /// Who broke exclusion on which store, and how often.
    broken: BTreeMap<(&'a str, &'a str), u64>,
    /// Which store is the fastest.
    result: String,
    heads: [&'static str; 4],
    stores: Vec<Choice>,
    /// The rest of them.
    figures: Vec<Card>,
    sections: Vec<Section>,
    questions: [(&'static str, Vec<Question<'a>>); 2],
    environment: Vec<(String, String)>,
}

/// A store, what it is to be taken for, and some figures of it with their names.
type Choice = (&'static str, &'static str, Vec<(&'static str, String)>);

/// Those that have something to show.
struct Section {
    id: &'static str,
    title: &'static str,
    /// In one sentence.
    result: String,
    cards: Vec<Card>,
}

/// What a section shows of a store.
#[derive(Default)]
struct Card {
    store: String,
    facts: Vec<(String, String)>,
    chart: String,
    legend: Vec<Who>,
}

impl<'a> Page<'a> {
    fn of(drawn: &Drawn<'a>) -> Self {
        let report = drawn.report;
        let shown = |section: &Section| match section.id {
            "kinds" => !report.kinds.is_empty(),
            "move" => !report.moves.is_empty(),
            "claims" => !report.claims.is_empty(),
            "results" | "environment" => true,
            "memory" => !section.result.is_empty(),
            _ => !section.cards.is_empty(),
        };
        let here = &report.environment;
        let machine = [
            Some(here.date.clone()),
            here.cpu.clone(),
            here.cores.map(|cores| format!("{cores} cores")),
            here.fsync_us.p50.map(|fsync| format!("fsync {}", time(fsync))),
            Some(here.system.clone()),
        ];
        let mut broken = BTreeMap::new();
        let alone = report.results.iter().map(|row| (&row.implementation, &row.store, row.violations));
        let kinds = report.kinds.iter().map(|kind| (&kind.implementation, &kind.store, kind.violations));
        for (who, store, violations) in alone.chain(kinds) {
            if let Some(times) = violations.filter(|times| *times > 0) {
                *broken.entry((who.as_str(), store.as_str())).or_default() += times;
            }
        }
        let checks = || report.checks.iter();
        Self {
            report,
            machine: machine.into_iter().flatten().collect::<Vec<_>>().join(" · "),
            found: (checks().map(|check| check.found).sum(), checks().map(|check| check.cycles).sum()),
            broken,
            result: result(report, "glance"),
            heads: FIRST.map(|(_, head)| head),
            stores: drawn.stores(),
            figures: drawn.at_a_glance(),
            sections: drawn.sections().into_iter().filter(shown).collect(),
            questions: [("Our budgets", true), ("What others have published", false)]
                .map(|(title, ours)| (title, report.questions(ours))),
            environment: environment(report),
        }
    }
}

/// Where it was measured, with what, and without what.
fn environment(report: &Report) -> Vec<(String, String)> {
    let here = &report.environment;
    let known = |value: Option<String>| value.unwrap_or_else(|| "not known".to_owned());
    let changed = if here.changed == Some(true) { ", changed" } else { "" };
    let commit = here.commit.as_ref().map(|commit| commit.clone() + changed);
    let mebibytes = |bytes: u64| format!("{} MiB", number(bytes as f64 / 1_048_576.0));
    let mut rows = vec![
        ("date".to_owned(), here.date.clone()),
        ("mode".to_owned(), here.mode.clone()),
        (
            "members of etcd's and ZooKeeper's clusters".to_owned(),
            known(here.members.map(|count| count.to_string())),
        ),
        ("commit".to_owned(), known(commit)),
        (
            "compiler".to_owned(),
            known(here.rustc.clone().zip(here.profile.clone()).map(|(by, as_)| format!("{by}, {as_}"))),
        ),
        ("system".to_owned(), here.system.clone()),
        ("processor".to_owned(), known(here.cpu.clone())),
        ("cores".to_owned(), known(here.cores.map(|cores| cores.to_string()))),
        ("memory".to_owned(), known(here.memory_bytes.map(mebibytes))),
        ("fsync of 512 bytes, p50 / p99".to_owned(), known(spread(&here.fsync_us))),
    ];
    rows.extend(here.servers.iter().map(|(store, server)| {
        let version = server.version.as_ref().map(|version| format!("{version}; ")).unwrap_or_default();
        let settings = server.settings.as_ref().map(|settings| format!("; started with {settings}"));
        let told = format!("{version}data: {}{}", server.durability, settings.unwrap_or_default());
        (store.clone(), told)
    }));
    let checks = report.checks.iter();
    rows.extend(checks.map(|check| (format!("the check of exclusion, put to {}", check.what), check.told())));
    rows.extend(here.versions.clone());
    rows.extend(here.runtimes.clone());
    rows.extend(here.columns.clone());
    rows
}

pub(super) struct Drawn<'a> {
    pub(super) report: &'a Report,
}

impl Drawn<'_> {
    /// In the order in which they stand; some have nothing to show.
    fn sections(&self) -> Vec<Section> {
        let section = |id, title, cards| Section { id, title, result: result(self.report, id), cards };
        let messages = |row: &Row| Some(row.requests_per_cycle? + row.messages_per_cycle?);
        let processors = |row: &Row| Some((row.client_share? + row.server_share.unwrap_or(0.0)) * 1e3);
        let (herd, held) = (&["uncontended", "crowd"][..], &["held"][..]);
        vec![
            section("crowd", "Rate against contenders", self.crowd()),
            section("distance", "A free lock a millisecond away", self.distance()),
            section(
                "hand-off",
                "From holder to holder",
                self.lines(
                    &["crowd", "processes", "hand-off"],
                    "contenders",
                    "µs at the 99th percentile",
                    |row| row.handoff_us.p99,
                ),
            ),
            section(
                "requests",
                "What a crowd costs the server",
                [
                    self.lines(herd, "contenders", "messages both ways per cycle", messages),
                    self.lines(herd, "contenders", "µs of the server's processor per cycle", |row| {
                        row.server_us_per_cycle
                    }),
                ]
                .into_iter()
                .flatten()
                .collect(),
            ),
            section(
                "tasks",
                "Many tasks of one process",
                self.lines(&["tasks"], "tasks", "cycles/s", |row| row.cycles_per_s),
            ),
            section(
                "names",
                "Many locks at a time",
                [
                    self.lines(&[ONE_THREAD], ONE_THREAD, "cycles/s", |row| row.cycles_per_s),
                    self.lines(&[ON_THREADS], ON_THREADS, "cycles/s", |row| row.cycles_per_s),
                    self.lines(&[ON_THREADS], ON_THREADS, "µs of the client per cycle", |row| {
                        row.client_us_per_cycle
                    }),
                ]
                .into_iter()
                .flatten()
                .collect(),
            ),
            section("fairness", "Order of service", self.fairness()),
            section("recovery", "The holder is killed", self.recovery()),
            section("memory", "Thousands of locks held", self.memory()),
            section(
                "growth",
                "From ten locks to a million",
                [
                    self.lines(held, "locks held", "bytes per lock", |row| row.bytes_per_lock),
                    self.lines(held, "locks held", "requests per third of the ttl", |row| {
                        row.requests_per_cycle
                    }),
                    self.lines(held, "locks held", "ms of processors per second, both sides", processors),
                ]
                .into_iter()
                .flatten()
                .collect(),
            ),
            section("kinds", "Locks that several hold", Vec::new()),
            section("move", "A move under load", Vec::new()),
            section("claims", "Budgets and claims", Vec::new()),
            section("results", "All results", Vec::new()),
            section("environment", "Environment", Vec::new()),
        ]
    }

    fn stores(&self) -> Vec<Choice> {
        let here = STORES.into_iter().filter(|(store, ..)| self.report.stores().contains(store));
        let store = |(store, name, take): (&str, _, _)| {
            let figure = |line: &Figure| {
                let told = self.figure(store, line).unwrap_or_else(|| "–".to_owned());
                (line.1, told.split(" (").next().unwrap_or_default().to_owned())
            };
            (
                name,
                take,
                LINES
                    .iter()
                    .filter(|line| FIRST.iter().any(|(short, _)| *short == line.1))
                    .map(figure)
                    .collect(),
            )
        };
        here.map(store).collect()
    }

    fn at_a_glance(&self) -> Vec<Card> {
        self.cards(|store| {
            let fact = |line: &Figure| Some((line.0.to_owned(), self.figure(store, line)?));
            Card { facts: LINES.iter().filter_map(fact).collect(), ..Card::default() }
        })
    }

    fn figure(&self, store: &str, (_, _, scenario, contenders, value): &Figure) -> Option<String> {
        value(self.report.row(scenario, store, "leasehold", *contenders)?)
    }

    /// What a cycle takes where round trips take longer, and as a share of the floor's rate.
    fn distance(&self) -> Vec<Card> {
        self.charts(|store| {
            let bar = |row: &Row| {
                let cycle_us = 1e6 / row.cycles_per_s?;
                let ratio = row.floor_ratio.map(|ratio| format!(" ({ratio:.2})")).unwrap_or_default();
                Some(Bar {
                    who: self.who(store, &row.implementation),
                    length: cycle_us,
                    end: time(cycle_us) + &ratio,
                    tip: format!("{}\n{} per cycle", row.implementation, time(cycle_us)),
                    dots: row.rates.iter().map(|rate| 1e6 / rate).collect(),
                })
            };
            let rows = self.report.rows("distance").filter(|row| row.store == store);
            bars(&rows.filter_map(bar).collect::<Vec<_>>(), "one bar per implementation", None)
        })
    }

    /// The rate over the number of contenders.
    fn crowd(&self) -> Vec<Card> {
        self.cards(|store| {
            let drawn = self.drawn(&["uncontended", "crowd"], store, |row| {
                Some((row.cycles_per_s?, interval(&row.rates)))
            });
            card_of(&drawn, "contenders", "cycles/s")
        })
    }

    /// A chart per store of the rows of some scenarios over their contenders.
    fn lines(
        &self,
        scenarios: &[&str],
        across: &str,
        unit: &str,
        value: impl Fn(&Row) -> Option<f64>,
    ) -> Vec<Card> {
        self.cards(|store| {
            card_of(&self.drawn(scenarios, store, |row| Some((value(row)?, None))), across, unit)
        })
    }

    /// A line for each; a value may have a range.
    pub(super) fn drawn(
        &self,
        scenarios: &[&str],
        store: &str,
        value: impl Fn(&Row) -> Option<(f64, Option<(f64, f64)>)>,
    ) -> Vec<Line> {
        let mut drawn: Vec<Line> = Vec::new();
        let rows = scenarios.iter().flat_map(|scenario| self.report.rows(scenario));
        // The floor that does not wait has one point.
        for row in rows.filter(|row| {
            row.store == store && (row.implementation != "floor" || row.scenario.starts_with(ONE_THREAD))
        }) {
            let Some((y, range)) = value(row) else { continue };
            let point = Point { x: row.contenders as f64, y, range };
            match drawn.iter_mut().find(|line| line.who.name == row.implementation) {
                // What one process shows for a number of contenders, several need not show again.
                Some(line) if line.points.iter().any(|known| known.x.total_cmp(&point.x).is_eq()) => {}
                Some(line) => line.points.push(point),
                None => drawn.push(Line { who: self.who(store, &row.implementation), points: vec![point] }),
            }
        }
        for line in &mut drawn {
            line.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        drawn
    }

    fn fairness(&self) -> Vec<Card> {
        self.bars("fairness", |row| row.overtakes.into_iter().collect(), percent, None)
    }

    fn recovery(&self) -> Vec<Card> {
        let ttl = crate::scale::CRASH_TTL.as_secs_f64() * 1e6;
        self.bars("crash", |row| row.handoff_p99s.clone(), time, Some((ttl, "the ttl")))
    }

    fn memory(&self) -> Vec<Card> {
        let unit = |bytes: f64| format!("{} B", number(bytes));
        self.bars("held", |row| row.bytes_per_lock.into_iter().collect(), unit, None)
    }

    /// Bars to the largest of what was measured.
    fn bars(
        &self,
        scenario: &str,
        values: impl Fn(&Row) -> Vec<f64>,
        unit: impl Fn(f64) -> String,
        limit: Option<(f64, &str)>,
    ) -> Vec<Card> {
        self.charts(|store| {
            let bar = |row: &Row| {
                let (values, who) = (values(row), &row.implementation);
                let largest = values.iter().copied().reduce(f64::max)?;
                Some(Bar {
                    who: self.who(store, who),
                    length: largest,
                    end: unit(largest),
                    tip: values.iter().fold(who.clone(), |tip, value| tip + "\n" + &unit(*value)),
                    dots: if values.len() > 1 { values } else { Vec::new() },
                })
            };
            let rows = self.report.rows(scenario).filter(|row| row.store == store);
            bars(&rows.filter_map(bar).collect::<Vec<_>>(), "one bar per implementation", limit)
        })
    }

    fn charts(&self, chart: impl Fn(&str) -> String) -> Vec<Card> {
        self.cards(|store| Card { chart: chart(store), ..Card::default() })
    }

    /// A card per store, where there is something to show.
    fn cards(&self, card: impl Fn(&str) -> Card) -> Vec<Card> {
        let cards = self.report.stores().into_iter();
        let cards = cards.map(|store| Card { store: called(store).to_owned(), ..card(store) });
        cards.filter(|card| !(card.chart.is_empty() && card.facts.is_empty())).collect()
    }

    /// The same colour for an implementation in every drawing of a store.
    fn who(&self, store: &str, name: &str) -> Who {
        // A library with a mutex before it, or with another kind of release, is the same library.
        let library = |name: &str| name.split('+').next().unwrap_or_default().to_owned();
        let rows = self.report.results.iter().filter(|row| row.store == store && !row.is_floor());
        let everybody = distinct(rows.map(|row| library(&row.implementation)));
        let index = everybody.iter().position(|other| *other == library(name)).unwrap_or(0);
        let class =
            if name.starts_with("floor") { "floor".to_owned() } else { format!("s{}", index % COLOURS) };
        Who { name: name.to_owned(), class }
    }
}

/// A chart and its legend. One point is no curve.
fn card_of(drawn: &[Line], across: &str, unit: &str) -> Card {
    if drawn.iter().all(|line| line.points.len() < 2) {
        return Card::default();
    }
    let legend = drawn.iter().map(|line| line.who.clone()).collect();
    Card { chart: lines(drawn, across, unit), legend, ..Card::default() }
}

const COLOURS: usize = 8;

/// The figures that a store is chosen by, as [`LINES`] names them and as the page does.
const FIRST: [(&str, &str); 4] = [
    ("a free lock", "a free lock"),
    ("8 contenders/s", "cycles/s, 8 contenders"),
    ("hand-off p99", "hand-off, p99"),
    ("killed, ttl 3 s", "next holder after a kill"),
];
