//! `report.html`: one page that needs nothing else, for a person to read.
//!
//! Drawings are SVG in the page, coloured by classes so that they follow the reader's light or dark
//! setting; every mark tells its values when pointed at.

mod bars;
mod lines;
mod ridges;
mod rows;
mod stacks;
mod svg;
mod turns;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Drawings, Report, Row, Who};
use bars::Bar;
use lines::Line;
use ridges::Ridge;
use stacks::Stack;
use svg::{safe, time};

/// The page.
pub(crate) fn page(report: &Report, drawings: &Drawings) -> String {
    let page = Page { report, drawings, stores: stores(report) };
    let mut body = page.head();
    body.push_str(&page.at_a_glance());
    for (id, title, text, cards) in [
        ("latency", "A free lock", LATENCY, page.latency()),
        ("profile", "Where its time goes", PROFILE, page.profile()),
        (
            "throughput",
            "Many want it",
            THROUGHPUT,
            page.lines(&["uncontended", "hand-off", "processes"], "contenders", "cycles/s", |row| {
                row.cycles_per_s
            }),
        ),
        (
            "hand-off",
            "From hand to hand",
            HAND_OFF,
            page.lines(&["hand-off", "processes"], "contenders", "µs at the 99th percentile", |row| {
                row.handoff_us.p99
            }),
        ),
        (
            "tasks",
            "Many tasks of one process",
            TASKS,
            page.lines(&["uncontended", "tasks"], "tasks", "cycles/s", |row| row.cycles_per_s),
        ),
        (
            "requests",
            "What a herd costs the server",
            REQUESTS,
            page.lines(&["herd"], "waiting", "requests per cycle", |row| row.requests_per_cycle),
        ),
        ("fairness", "Whose turn it is", FAIRNESS, page.turns()),
        ("recovery", "The holder is killed", RECOVERY, page.recovery()),
        ("memory", "Thousands of locks held", MEMORY, page.memory()),
    ] {
        if !cards.is_empty() {
            let _infallible = write!(
                body,
                "<h2 id=\"{id}\">{title}</h2><p class=\"soft\">{text}</p><div class=\"grid\">{cards}</div>"
            );
        }
    }
    body.push_str(&rows::claims(report));
    body.push_str(&rows::results(report));
    body.push_str(&rows::environment(report));
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>leasehold: the comparison</title><style>{STYLE}</style></head><body><main>{body}</main>\
         <div id=\"tip\"></div><script>{SCRIPT}</script></body></html>\n"
    )
}

struct Page<'a> {
    report: &'a Report,
    drawings: &'a Drawings,
    /// In the order of the results.
    stores: Vec<&'a str>,
}

fn stores(report: &Report) -> Vec<&str> {
    let mut stores: Vec<&str> = Vec::new();
    for row in &report.results {
        if !stores.contains(&row.store.as_str()) {
            stores.push(&row.store);
        }
    }
    stores
}

impl Page<'_> {
    fn head(&self) -> String {
        let environment = &self.report.environment;
        let machine = [
            Some(environment.date.clone()),
            environment.cpu.clone(),
            environment.cores.map(|cores| format!("{cores} cores")),
            environment.fsync_us.p50.map(|fsync| format!("fsync {}", time(fsync))),
            Some(environment.system.clone()),
        ];
        let machine = machine.into_iter().flatten().map(|part| safe(&part)).collect::<Vec<_>>().join(" · ");
        let verdict = verdict(self.report);
        format!(
            "<h1>Distributed locks, side by side</h1><p class=\"soft\">{machine}</p>\
             <p>Every store with our library, with the least that a lock can ask of it (its <em>floor</em>), and with the \
             libraries people use otherwise: on the same servers, in the same run, in turns. {verdict}</p>\
             <nav><a href=\"#glance\">at a glance</a><a href=\"#latency\">latency</a><a href=\"#profile\">profile</a><a href=\"#throughput\">throughput</a>\
             <a href=\"#requests\">requests</a><a href=\"#fairness\">fairness</a><a href=\"#recovery\">recovery</a>\
             <a href=\"#memory\">memory</a><a href=\"#claims\">claims</a><a href=\"#results\">all results</a>\
             <a href=\"#environment\">environment</a></nav>"
        )
    }

    fn at_a_glance(&self) -> String {
        let mut cards = String::new();
        for store in &self.stores {
            let mut facts = String::new();
            let mut fact = |name: &str, value: Option<String>| {
                if let Some(value) = value {
                    let _infallible = write!(facts, "<dt>{name}</dt><dd>{value}</dd>");
                }
            };
            let ours = |scenario, contenders| self.report.row(scenario, store, "leasehold", contenders);
            let free = ours("uncontended", 1);
            fact(
                "a free lock, there and back",
                self.drawings
                    .cycles
                    .get(&((*store).to_owned(), "leasehold".to_owned()))
                    .and_then(|times| times.micros(0.5))
                    .map(time),
            );
            fact(
                "share of the floor's rate",
                free.and_then(|row| row.floor_ratio).map(|ratio| format!("{ratio:.2}")),
            );
            let crowd = ours("processes", 8);
            fact("8 contenders, cycles/s", crowd.and_then(|row| row.cycles_per_s).map(super::table::number));
            if let Some((name, rate)) = self.best_other(store) {
                fact(&format!("the same, {}", safe(&name)), Some(super::table::number(rate)));
            }
            fact(
                "requests per cycle",
                crowd.and_then(|row| row.requests_per_cycle).map(super::table::number),
            );
            fact("hand-off, p99", crowd.and_then(|row| row.handoff_us.p99).map(time));
            fact(
                "after a kill, the next holds in",
                ours("crash", 2).and_then(|row| row.handoff_us.max).map(time),
            );
            let _infallible =
                write!(cards, "<section class=\"card\"><h3>{}</h3><dl>{facts}</dl></section>", safe(store));
        }
        format!(
            "<h2 id=\"glance\">At a glance</h2><p class=\"soft\">Our library on each store.</p><div class=\"grid\">{cards}</div>"
        )
    }

    fn best_other(&self, store: &str) -> Option<(String, f64)> {
        let others = self
            .report
            .rows("processes")
            .filter(|row| row.store == store && row.contenders == 8 && row.implementation != "leasehold");
        let rates = others.filter_map(|row| Some((row.implementation.clone(), row.cycles_per_s?)));
        rates.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn latency(&self) -> String {
        let ridges = |store: &str| {
            let here = self.drawings.cycles.iter().filter(|((at, _), _)| at == store);
            let ridges = here.map(|((_, who), times)| Ridge {
                name: who.clone(),
                class: self.class(store, who),
                times,
            });
            ridges::chart(ridges.collect())
        };
        self.cards(ridges, |_| String::new())
    }

    /// A stack for each implementation: the client, the server, the rest.
    fn profile(&self) -> String {
        let stacks = |store: &str| {
            let here = self.report.profiles.iter().filter(|profile| profile.store == store);
            let stacks: Vec<_> = here
                .map(|profile| Stack {
                    name: &profile.implementation,
                    whole: profile.cycle_us,
                    parts: [profile.client_us, profile.server_us, Some(profile.rest_us())],
                })
                .collect();
            stacks::chart(&stacks)
        };
        let parts = stacks::PARTS.iter().map(|part| (part.class, part.name));
        self.cards(stacks, |_| legend(parts.clone()))
    }

    /// A chart per store of the rows of some scenarios over their contenders. A floor has no line.
    fn lines(
        &self,
        scenarios: &[&str],
        across: &str,
        unit: &str,
        value: impl Fn(&Row) -> Option<f64>,
    ) -> String {
        let lines = |store: &str| {
            let mut lines: Vec<Line> = Vec::new();
            let rows = scenarios.iter().flat_map(|scenario| self.report.rows(scenario));
            for row in rows.filter(|row| row.store == store && row.implementation != "floor") {
                let Some(value) = value(row) else { continue };
                let point = (row.contenders as f64, value);
                match lines.iter_mut().find(|line| line.name == row.implementation) {
                    Some(line) => line.points.push(point),
                    None => lines.push(Line {
                        name: row.implementation.clone(),
                        class: self.class(store, &row.implementation),
                        points: vec![point],
                    }),
                }
            }
            lines
        };
        let legend =
            |store: &str| legend(lines(store).iter().map(|line| (line.class.as_str(), line.name.as_str())));
        self.cards(|store| lines::chart(&lines(store), across, unit), legend)
    }

    fn turns(&self) -> String {
        let strips = |store: &str| {
            let mut strips = String::new();
            for (who, holds) in on_store(&self.drawings.turns, store) {
                let row = self.report.row("fairness", store, who, 8);
                let told = |row: &Row| {
                    let overtakes = row.overtakes.map(|share| format!("{:.0} % overtakes", share * 100.0));
                    let longest = row.acquire_us.max.map(|longest| format!("longest wait {}", time(longest)));
                    overtakes.into_iter().chain(longest).collect::<Vec<_>>().join(" · ")
                };
                let told = row.map(told).unwrap_or_default();
                let strip = turns::strip(who, &self.class(store, who), holds, 8);
                let _infallible = write!(
                    strips,
                    "<div class=\"strip\"><b>{}</b><span>{}</span>{strip}</div>",
                    safe(who),
                    safe(&told)
                );
            }
            strips
        };
        self.cards(strips, |_| String::new())
    }

    fn recovery(&self) -> String {
        let ttl = crate::scenarios::CRASH_TTL.as_secs_f64();
        self.bars(
            &self.drawings.recovery,
            |times| times.iter().map(std::time::Duration::as_secs_f64).collect(),
            |seconds| time(seconds * 1e6),
            Some((ttl, "the ttl")),
        )
    }

    fn memory(&self) -> String {
        let bytes = |bytes: f64| format!("{} B", super::table::number(bytes));
        self.bars(&self.drawings.memory, |bytes| vec![*bytes], bytes, None)
    }

    fn bars<T>(
        &self,
        drawn: &BTreeMap<Who, T>,
        values: impl Fn(&T) -> Vec<f64>,
        unit: impl Fn(f64) -> String,
        limit: Option<(f64, &str)>,
    ) -> String {
        let chart = |store: &str| {
            let bar = |(who, of): (&str, &T)| Bar {
                name: who.to_owned(),
                class: self.class(store, who),
                values: values(of),
            };
            let bars: Vec<Bar> = on_store(drawn, store).into_iter().map(bar).collect();
            bars::chart(&bars, &unit, limit)
        };
        self.cards(chart, |_| String::new())
    }

    /// A card per store, where there is something to show.
    fn cards(&self, draw: impl Fn(&str) -> String, below: impl Fn(&str) -> String) -> String {
        let mut cards = String::new();
        for store in &self.stores {
            let drawing = draw(store);
            if !drawing.is_empty() {
                let below = below(store);
                let _infallible = write!(
                    cards,
                    "<section class=\"card\"><h3>{}</h3>{drawing}{below}</section>",
                    safe(store)
                );
            }
        }
        cards
    }

    /// The same colour for an implementation in every drawing of a store.
    fn class(&self, store: &str, who: &str) -> String {
        if who == "floor" {
            return "floor".to_owned();
        }
        let mut everybody: Vec<&str> = Vec::new();
        for row in
            self.report.results.iter().filter(|row| row.store == store && row.implementation != "floor")
        {
            if !everybody.contains(&row.implementation.as_str()) {
                everybody.push(&row.implementation);
            }
        }
        let index = everybody.iter().position(|name| *name == who).unwrap_or(0);
        format!("s{}", index % COLOURS)
    }
}

/// Whether everybody excluded everybody, and who did not.
fn verdict(report: &Report) -> String {
    let mut broken: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for row in report.results.iter().filter(|row| row.violations.is_some_and(|violations| violations > 0)) {
        *broken.entry((&row.implementation, &row.store)).or_default() += row.violations.unwrap_or_default();
    }
    if broken.is_empty() {
        return "<span class=\"yes\">Nobody broke mutual exclusion in any run.</span>".to_owned();
    }
    let told = broken.iter().map(|((who, store), times)| {
        format!("{} on {} broke mutual exclusion {times} times.", safe(who), safe(store))
    });
    format!("<span class=\"no\">{}</span>", told.collect::<Vec<_>>().join(" "))
}

/// What was drawn of a store, ours first.
fn on_store<'a, T>(drawn: &'a BTreeMap<Who, T>, store: &str) -> Vec<(&'a str, &'a T)> {
    let here = drawn.iter().filter(|((at, _), _)| at == store);
    let mut here: Vec<_> = here.map(|((_, who), of)| (who.as_str(), of)).collect();
    here.sort_by_key(|(who, _)| *who != "leasehold");
    here
}

fn legend<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let entry = |(class, name): (&str, &str)| format!("<li class=\"{class}\"><i></i>{}</li>", safe(name));
    format!("<ul class=\"legend\">{}</ul>", entries.map(entry).collect::<String>())
}

const COLOURS: usize = 8;

const STYLE: &str = include_str!("style.css");

const SCRIPT: &str = include_str!("script.js");

const LATENCY: &str = "How long one client takes to acquire and release a lock that nobody else wants. Marks are the \
                       median and the 99th percentile; the time axis is logarithmic.";

const PROFILE: &str = "One cycle of a free lock: processor time of the client, processor time of the server where it is one \
                       of ours, and the rest, which is the way between the two, the disk, and sleeping processors that \
                       wake up. Client and server partly work at the same time, so the parts may be more than the whole. \
                       A floor asks the least there is to ask, by the same client library.";

const THROUGHPUT: &str = "Contenders with a session each go for one lock as fast as they can: a process each, but in the \
                          usual and the quick mode one process for a library with a virtual machine or an interpreter, and \
                          always on memory. Libraries that poll look fast \
                          when the one that released takes the lock again: look at whose turn it is below.";

const HAND_OFF: &str = "From the instant a holder lets go to the instant the next one holds, which waited already: what \
                        one hand-off in a hundred takes or more.";

const TASKS: &str = "Tasks of one process that share a session. A library that passes a lock on within the process does \
                     not need the store for that.";

const REQUESTS: &str = "What the server was asked per time through the lock, by its own count, while so many wait with a \
                        session each.";

const FAIRNESS: &str = "Eight contenders, a lane each, and who held in 120 grants in a row. First come, first served looks \
                        like a staircase; one lane that goes on and on is a holder that takes the lock again.";

const RECOVERY: &str =
    "A holder is killed with SIGKILL. How long until the next one, which waits already, holds.";

const MEMORY: &str = "What a held lock takes of the client's memory, the store's client library included.";

#[cfg(test)]
mod tests;
