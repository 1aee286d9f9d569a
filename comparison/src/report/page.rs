//! `report.html`: one page that needs nothing else, for a person to read.
//!
//! Drawings are SVG in the page, coloured by classes so that they follow the reader's light or dark
//! setting; every mark tells its values when pointed at.

mod chart;
mod rows;
mod svg;

use std::collections::BTreeMap;
use std::time::Duration;

use super::table::{number, time};
use super::{Drawings, Report, Row, Who, distinct};
use chart::{Bar, Line, Point, bars, lines, ridges, turns};
use svg::safe;

/// The page.
pub(crate) fn page(report: &Report, drawings: &Drawings) -> String {
    let page = Page { report, drawings };
    let distance = report.environment.distance.as_ref().map(|distance| distance.told() + DISTANCE);
    let sections = [
        ("crowd", "Rate against contenders", CROWD, page.crowd()),
        ("glance", "At a glance", "Our library on each store.", page.at_a_glance()),
        ("latency", "A free lock", LATENCY, page.latency()),
        (
            "distance",
            "A free lock a millisecond away",
            distance.as_deref().unwrap_or_default(),
            page.distance(),
        ),
        ("profile", "Where its time goes", PROFILE, page.profile()),
        (
            "hand-off",
            "From hand to hand",
            HAND_OFF,
            page.lines(
                &["crowd", "processes", "hand-off"],
                "contenders",
                "µs at the 99th percentile",
                |row| row.handoff_us.p99,
            ),
        ),
        (
            "waits",
            "The longest wait",
            WAITS,
            page.lines(&["crowd"], "contenders", "ms, the longest wait", |row| {
                Some(row.acquire_us.max? / 1e3)
            }),
        ),
        (
            "requests",
            "What a herd costs the server",
            REQUESTS,
            page.lines(&["uncontended", "crowd"], "contenders", "messages both ways per cycle", |row| {
                Some(row.requests_per_cycle? + row.messages_per_cycle?)
            }) + &page.lines(
                &["uncontended", "crowd"],
                "contenders",
                "µs of the server's processor per cycle",
                |row| row.server_us_per_cycle,
            ),
        ),
        (
            "tasks",
            "Many tasks of one process",
            TASKS,
            page.lines(&["tasks"], "tasks", "cycles/s", |row| row.cycles_per_s),
        ),
        ("fairness", "Whose turn it is", FAIRNESS, page.turns()),
        ("recovery", "The holder is killed", RECOVERY, page.recovery()),
        ("memory", "Thousands of locks held", MEMORY, page.memory()),
        (
            "growth",
            "From ten locks to a million",
            GROWTH,
            page.lines(&["held"], "locks held", "bytes per lock", |row| row.bytes_per_lock)
                + &page.lines(&["held"], "locks held", "requests per third of the ttl", |row| {
                    row.requests_per_cycle
                })
                + &page.lines(&["held"], "locks held", "ms of processors per second, both sides", |row| {
                    Some((row.client_share? + row.server_share.unwrap_or(0.0)) * 1e3)
                }),
        ),
    ];
    let sections = sections.iter().filter(|(.., cards)| !cards.is_empty());
    let moves = (!report.moves.is_empty()).then_some("move");
    let kinds = (!report.kinds.is_empty()).then_some("kinds");
    let ids = sections.clone().map(|(id, ..)| *id).chain(kinds).chain(moves).chain([
        "claims",
        "results",
        "environment",
    ]);
    let mut body = page.head(ids);
    for (id, title, text, cards) in sections {
        body += &format!(
            "<h2 id=\"{id}\">{title}</h2><p class=\"soft\">{text}</p><div class=\"grid\">{cards}</div>"
        );
    }
    let tables = [
        rows::kinds(report),
        rows::moves(report),
        rows::claims(report),
        rows::results(report),
        rows::environment(report),
    ];
    body += &tables.concat();
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>leasehold: the comparison</title><style>{STYLE}</style></head><body><main>{body}</main>\
         <div id=\"tip\"></div><script>{SCRIPT}</script></body></html>\n"
    )
}

struct Page<'a> {
    report: &'a Report,
    drawings: &'a Drawings,
}

impl Page<'_> {
    fn head<'a>(&self, sections: impl Iterator<Item = &'a str>) -> String {
        let links: String = sections.map(|id| format!("<a href=\"#{id}\">{id}</a>")).collect();
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
             <nav>{links}</nav>"
        )
    }

    fn at_a_glance(&self) -> String {
        self.cards(|store| {
            let ours = |scenario, contenders| self.report.row(scenario, store, "leasehold", contenders);
            let (free, away) = (ours("uncontended", 1), ours("distance", 1));
            let (crowd, crash) = (ours("processes", 8), ours("crash", 2));
            let cycle = self.drawings.cycles.get(&(store.to_owned(), "leasehold".to_owned()));
            let (other, rate) = self.best_other(store).unzip();
            let facts = [
                (
                    "a free lock, taken and released, median",
                    cycle.and_then(|times| times.micros(0.5)).map(time),
                ),
                (
                    "share of the floor's rate",
                    free.and_then(|row| row.floor_ratio).map(|ratio| format!("{ratio:.2}")),
                ),
                (
                    "the same a millisecond away",
                    away.and_then(|row| row.floor_ratio).map(|ratio| format!("{ratio:.2}")),
                ),
                ("8 contenders, cycles/s", crowd.and_then(|row| row.cycles_per_s).map(number)),
                (&format!("the same, {}", safe(other.unwrap_or_default())), rate.map(number)),
                ("requests per cycle", crowd.and_then(|row| row.requests_per_cycle).map(number)),
                ("hand-off, p99", crowd.and_then(|row| row.handoff_us.p99).map(time)),
                ("after a kill, the next holds in", crash.and_then(|row| row.handoff_us.max).map(time)),
            ];
            let fact =
                |(name, value): (&str, Option<String>)| Some(format!("<dt>{name}</dt><dd>{}</dd>", value?));
            format!("<dl>{}</dl>", facts.into_iter().filter_map(fact).collect::<String>())
        })
    }

    fn best_other(&self, store: &str) -> Option<(&str, f64)> {
        let rows = self.report.rows("processes").filter(|row| row.store == store && row.contenders == 8);
        let others =
            rows.filter(|row| row.implementation != "leasehold" && !row.implementation.starts_with("floor"));
        let rates = others.filter_map(|row| Some((row.implementation.as_str(), row.cycles_per_s?)));
        rates.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn latency(&self) -> String {
        self.cards(|store| {
            let cycles = on_store(&self.drawings.cycles, store).into_iter();
            ridges(cycles.map(|(who, times)| (self.who(store, who), times)).collect())
        })
    }

    /// What a cycle takes where round trips take longer, and as a share of the floor's rate.
    fn distance(&self) -> String {
        self.cards(|store| {
            let bar = |row: &Row| {
                let cycle_us = 1e6 / row.cycles_per_s?;
                let ratio = row.floor_ratio.map(|ratio| format!(" ({ratio:.2})")).unwrap_or_default();
                let runs = row.rates.iter().map(|rate| 1e6 / rate).collect();
                Some(Bar {
                    who: self.who(store, &row.implementation),
                    parts: vec![("", cycle_us)],
                    end: time(cycle_us) + &ratio,
                    tip: format!("{}\n{} per cycle", row.implementation, time(cycle_us)),
                    dots: runs,
                })
            };
            let rows = self.report.rows("distance").filter(|row| row.store == store);
            bars(&rows.filter_map(bar).collect::<Vec<_>>(), "one bar per implementation", None)
        })
    }

    /// What a cycle is made of: the client, the server, the rest.
    fn profile(&self) -> String {
        const PARTS: [(&str, &str); 3] = [("s0", "client"), ("s1", "server"), ("floor", "the rest")];
        self.cards(|store| {
            let mut stacks = Vec::new();
            for profile in self.report.profiles.iter().filter(|profile| profile.store == store) {
                let times = [profile.client_us, profile.server_us, Some(profile.rest_us())];
                let known = || PARTS.into_iter().zip(times).filter_map(|(part, time)| Some((part, time?)));
                let told = known().map(|((_, part), micros)| format!("\n{part} {}", time(micros)));
                stacks.push(Bar {
                    tip: profile.implementation.clone() + &told.collect::<String>(),
                    who: self.who(store, &profile.implementation),
                    parts: known().map(|((class, _), micros)| (class, micros)).collect(),
                    dots: Vec::new(),
                    end: time(profile.cycle_us),
                });
            }
            let drawn = bars(&stacks, "the parts of a cycle, one bar per implementation", None);
            if drawn.is_empty() { drawn } else { drawn + &legend(PARTS.into_iter()) }
        })
    }

    /// The rate over the number of contenders, with who passes us where.
    fn crowd(&self) -> String {
        self.cards(|store| {
            let drawn = self
                .drawn(&["uncontended", "crowd"], store, |row| Some((row.cycles_per_s?, ends(&row.rates))));
            // One point is no curve.
            if drawn.iter().all(|line| line.points.len() < 2) {
                return String::new();
            }
            chart_of(&drawn, "contenders", "cycles/s") + &crossings(&drawn)
        })
    }

    /// A chart per store of the rows of some scenarios over their contenders.
    fn lines(
        &self,
        scenarios: &[&str],
        across: &str,
        unit: &str,
        value: impl Fn(&Row) -> Option<f64>,
    ) -> String {
        self.cards(|store| {
            let drawn = self.drawn(scenarios, store, |row| Some((value(row)?, None)));
            chart_of(&drawn, across, unit)
        })
    }

    /// A line for each; a value may have a range.
    fn drawn(
        &self,
        scenarios: &[&str],
        store: &str,
        value: impl Fn(&Row) -> Option<(f64, Option<(f64, f64)>)>,
    ) -> Vec<Line> {
        let mut drawn: Vec<Line> = Vec::new();
        let rows = scenarios.iter().flat_map(|scenario| self.report.rows(scenario));
        // The floor that does not wait has one point.
        for row in rows.filter(|row| row.store == store && row.implementation != "floor") {
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

    fn turns(&self) -> String {
        self.cards(|store| {
            let mut strips = String::new();
            for (who, holds) in on_store(&self.drawings.turns, store) {
                let row = self.report.row("fairness", store, who, 8);
                let overtakes = row.and_then(|row| row.overtakes);
                let longest = row.and_then(|row| row.acquire_us.max);
                let told = [
                    overtakes.map(|share| format!("{:.0} % overtakes", share * 100.0)),
                    longest.map(|longest| format!("longest wait {}", time(longest))),
                ];
                strips += &format!(
                    "<div class=\"strip\"><b>{}</b><span>{}</span>{}</div>",
                    safe(who),
                    told.into_iter().flatten().collect::<Vec<_>>().join(" · "),
                    turns(&self.who(store, who), holds, 8),
                );
            }
            strips
        })
    }

    fn recovery(&self) -> String {
        let ttl = crate::scale::CRASH_TTL.as_secs_f64();
        let seconds = |times: &Vec<Duration>| times.iter().map(Duration::as_secs_f64).collect();
        let unit = |seconds: f64| time(seconds * 1e6);
        self.bars(&self.drawings.recovery, seconds, unit, Some((ttl, "the ttl")))
    }

    fn memory(&self) -> String {
        let unit = |bytes: f64| format!("{} B", number(bytes));
        self.bars(&self.drawings.memory, |bytes| vec![*bytes], unit, None)
    }

    /// Bars to the largest of what was measured.
    fn bars<T>(
        &self,
        drawn: &BTreeMap<Who, T>,
        values: impl Fn(&T) -> Vec<f64>,
        unit: impl Fn(f64) -> String,
        limit: Option<(f64, &str)>,
    ) -> String {
        self.cards(|store| {
            let bar = |(who, of): (&str, &T)| {
                let values = values(of);
                let largest = values.iter().copied().fold(0.0, f64::max);
                Bar {
                    who: self.who(store, who),
                    parts: vec![("", largest)],
                    end: unit(largest),
                    tip: values.iter().fold(who.to_owned(), |tip, value| tip + "\n" + &unit(*value)),
                    dots: if values.len() > 1 { values } else { Vec::new() },
                }
            };
            let drawn: Vec<_> = on_store(drawn, store).into_iter().map(bar).collect();
            bars(&drawn, "one bar per implementation", limit)
        })
    }

    /// A card per store, where there is something to show.
    fn cards(&self, show: impl Fn(&str) -> String) -> String {
        let shown = self.report.stores().into_iter().map(|store| (store, show(store)));
        let card =
            |(store, shown)| format!("<section class=\"card\"><h3>{}</h3>{shown}</section>", safe(store));
        shown.filter(|(_, shown)| !shown.is_empty()).map(card).collect()
    }

    /// The same colour for an implementation in every drawing of a store.
    fn who(&self, store: &str, name: &str) -> chart::Who {
        let rows = self.report.results.iter().filter(|row| row.store == store);
        let everybody =
            distinct(rows.map(|row| row.implementation.as_str()).filter(|name| !name.starts_with("floor")));
        let index = everybody.iter().position(|other| *other == name).unwrap_or(0);
        let class =
            if name.starts_with("floor") { "floor".to_owned() } else { format!("s{}", index % COLOURS) };
        chart::Who { name: name.to_owned(), class }
    }
}

/// Whether everybody excluded everybody, and who did not.
fn verdict(report: &Report) -> String {
    let mut broken: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for row in report.results.iter().filter(|row| row.violations.is_some_and(|violations| violations > 0)) {
        *broken.entry((&row.implementation, &row.store)).or_default() += row.violations.unwrap_or_default();
    }
    for kind in report.kinds.iter().filter(|kind| kind.violations.is_some_and(|violations| violations > 0)) {
        *broken.entry((&kind.implementation, &kind.store)).or_default() +=
            kind.violations.unwrap_or_default();
    }
    if broken.is_empty() {
        let seen = report.checks.iter().map(|check| check.found).sum::<u64>();
        let cycles = report.checks.iter().map(|check| check.cycles).sum::<u64>();
        return format!(
            "<span class=\"yes\">Nobody broke mutual exclusion in any run</span>, by a check that found out locks \
             that are none {seen} times in {cycles} cycles."
        );
    }
    let told = broken.iter().map(|((who, store), times)| {
        format!("{} on {} broke mutual exclusion {times} times.", safe(who), safe(store))
    });
    format!("<span class=\"no\">{}</span>", told.collect::<Vec<_>>().join(" "))
}

/// A chart and its legend; empty if there is nothing to draw.
fn chart_of(drawn: &[Line], across: &str, unit: &str) -> String {
    let chart = lines(drawn, across, unit);
    let names = drawn.iter().map(|Line { who, .. }| (who.class.as_str(), who.name.as_str()));
    if chart.is_empty() { chart } else { chart + &legend(names) }
}

fn ends(values: &[f64]) -> Option<(f64, f64)> {
    Some((values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?))
}

/// Where others pass us as contenders get more, or we them.
fn crossings(drawn: &[Line]) -> String {
    let Some(ours) = drawn.iter().find(|line| line.who.name == "leasehold") else { return String::new() };
    let mut told = Vec::new();
    for theirs in
        drawn.iter().filter(|line| line.who.name != "leasehold" && !line.who.name.starts_with("floor"))
    {
        let who = safe(&theirs.who.name);
        let crossed = crossed(&ours.points, &theirs.points);
        for (at, we_lead) in &crossed {
            let (leader, behind) =
                if *we_lead { ("leasehold", who.as_str()) } else { (who.as_str(), "leasehold") };
            told.push(format!("From about {} contenders on {leader} is faster than {behind}.", at.round()));
        }
    }
    if told.is_empty() { String::new() } else { format!("<p class=\"soft\">{}</p>", told.join(" ")) }
}

/// Where two curves cross, between numbers of contenders that both have, and whether the first one leads from
/// there on. Both axes are logarithmic, and so are the lines in between.
fn crossed(ours: &[Point], theirs: &[Point]) -> Vec<(f64, bool)> {
    let both = ours.iter().filter_map(|mine| {
        let other = theirs.iter().find(|other| other.x.total_cmp(&mine.x).is_eq())?;
        Some((mine.x.ln(), (mine.y / other.y).ln()))
    });
    let mut both: Vec<_> = both.collect();
    both.sort_by(|a, b| a.0.total_cmp(&b.0));
    let pairs = both.windows(2).filter(|pair| pair[0].1 * pair[1].1 < 0.0);
    pairs
        .map(|pair| {
            let share = pair[0].1 / (pair[0].1 - pair[1].1);
            ((pair[0].0 + share * (pair[1].0 - pair[0].0)).exp(), pair[1].1 > 0.0)
        })
        .collect()
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

const DISTANCE: &str = ". The same cycle on the same servers, by a way on which each request and each answer comes later. In \
                        brackets the share of the floor's rate; dots are the runs.";

const PROFILE: &str = "One cycle of a free lock: processor time of the client, processor time of the server where it is one \
                       of ours, and the rest, which is the way between the two, the disk, and sleeping processors that \
                       wake up. Client and server partly work at the same time, so the parts may be more than the whole. \
                       A floor asks the least there is to ask, by the same client library.";

const CROWD: &str = "So many contenders of one process, each with a session of its own, go for one lock as fast as they can; \
                     upright strokes are from the slowest to the fastest run. Both axes are logarithmic. How many \
                     times as fast somebody is depends on how many contend, so look for where the lines cross. \
                     Libraries that poll look fast when the one that released takes the lock again: look at whose \
                     turn it is below. The dashed line is the floor of a lock with a queue.";

const HAND_OFF: &str = "From the instant a holder lets go to the instant the next one holds, which waited already: what \
                        one hand-off in a hundred takes or more. Both axes are logarithmic.";

const WAITS: &str = "A contender that is passed over shows neither in the rate nor in the median: the longest time that anybody \
                     waited in any run. Both axes are logarithmic.";

const GROWTH: &str = "One process that holds so many locks. Both axes are logarithmic.";

const TASKS: &str = "Tasks of one process that share a session. A library that passes a lock on within the process does \
                     not need the store for that; with others a mutex of the process stands in front, as their users \
                     would write it. Both axes are logarithmic.";

const REQUESTS: &str = "What the server was asked and what it sent per time through the lock, by its own count, and what that \
                        took of its processor, while so many contend with a session each. Both axes are logarithmic.";

const FAIRNESS: &str = "Eight contenders, a lane each, and who held in 120 grants in a row. First come, first served looks \
                        like a staircase; one lane that goes on and on is a holder that takes the lock again.";

const RECOVERY: &str =
    "A holder is killed with SIGKILL. How long until the next one, which waits already, holds.";

const MEMORY: &str = "What a held lock takes of the client's memory, the store's client library included.";

#[cfg(test)]
mod tests;
