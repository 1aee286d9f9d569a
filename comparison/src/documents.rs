//! The README and `docs/choosing.md` show the report that is kept in `docs/comparison`.
//!
//! `comparison/compare --out docs/comparison`, then `UPDATE_DOCS=1 cargo test -p comparison documents`
//! writes the tables anew.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// What stands in for a value that is not known.
const UNKNOWN: &str = "–";

/// Stores, as a document calls them.
const STORES: [(&str, &str); 5] =
    [("memory", "memory"), ("file", "file"), ("redis", "Redis"), ("etcd", "etcd"), ("zk", "ZooKeeper")];

struct Report(Value);

impl Report {
    fn kept() -> Self {
        let text =
            std::fs::read_to_string(root().join("docs/comparison/report.json")).expect("a report is kept");
        Self(serde_json::from_str(&text).expect("it is a report"))
    }

    fn rows(&self, scenario: &str, store: &str) -> Vec<&Value> {
        let results = self.0["results"].as_array().expect("results are a list").iter();
        results.filter(|row| row["scenario"] == scenario && row["store"] == store).collect()
    }

    fn ours(&self, scenario: &str, store: &str, contenders: u64) -> &Value {
        let mut rows = self.rows(scenario, store).into_iter();
        let ours = rows.find(|row| row["implementation"] == "leasehold" && row["contenders"] == contenders);
        ours.unwrap_or(&Value::Null)
    }

    /// Where, when and with what.
    fn origin(&self) -> String {
        let environment = &self.0["environment"];
        let text = |value: &Value| value.as_str().unwrap_or(UNKNOWN).to_owned();
        let servers = environment["servers"].as_object().expect("servers are a map");
        let versions: Vec<_> = STORES
            .iter()
            .filter_map(|(store, name)| Some(format!("{name} {}", servers.get(*store)?["version"].as_str()?)))
            .collect();
        format!(
            "{}, {}, {} cores, an fsync {} (p50), {}; {}; mode `{}`.\n",
            text(&environment["date"]),
            text(&environment["cpu"]),
            environment["cores"],
            time(&environment["fsync_us"]["p50"]),
            text(&environment["system"]),
            versions.join(", "),
            text(&environment["mode"]),
        )
    }

    /// A column per store.
    fn stores(&self) -> String {
        let mut table = String::from("| |");
        STORES.iter().for_each(|(_, name)| table.push_str(&format!(" {name} |")));
        table.push_str("\n|---|---|---|---|---|---|\n");
        let mut line = |name: &str, cell: &dyn Fn(&str) -> String| {
            let cells: String = STORES.iter().map(|(store, _)| format!(" {} |", cell(store))).collect();
            writeln!(table, "| {name} |{cells}").expect("a string takes everything");
        };
        line("a free lock, taken and released", &|store| {
            let rate = self.ours("uncontended", store, 1)["cycles_per_s"].as_f64();
            rate.map_or_else(|| UNKNOWN.to_owned(), |rate| micros(1e6 / rate))
        });
        line("… as a share of the floor's rate", &|store| {
            let ratio = self.ours("uncontended", store, 1)["floor_ratio"].as_f64();
            ratio.map_or_else(|| UNKNOWN.to_owned(), |ratio| format!("{ratio:.2}"))
        });
        line("8 contenders on one lock, cycles/s", &|store| {
            number(&self.ours("processes", store, 8)["cycles_per_s"])
        });
        line("… hand-off, p99", &|store| time(&self.ours("processes", store, 8)["handoff_us"]["p99"]));
        line("… requests per cycle", &|store| {
            number(&self.ours("processes", store, 8)["requests_per_cycle"])
        });
        line("… served out of order", &|store| share(&self.ours("processes", store, 8)["overtakes"]));
        line("64 tasks of one process, cycles/s", &|store| {
            number(&self.ours("tasks", store, 64)["cycles_per_s"])
        });
        line("holder killed, ttl 3 s: the next holds after", &|store| {
            time(&self.ours("crash", store, 2)["handoff_us"]["max"])
        });
        table
    }

    /// Everybody on one store: alone, and eight contenders.
    fn everybody(&self, store: &str) -> String {
        let mut table = String::from(
            "| | a free lock, cycles/s | 8 contenders, cycles/s | hand-off p50 | hand-off p99 | requests per cycle | overtakes |\n\
             |---|---|---|---|---|---|---|\n",
        );
        for free in self.rows("uncontended", store) {
            let who = &free["implementation"];
            let mut rows = self.rows("processes", store).into_iter();
            let crowd = rows
                .find(|row| row["implementation"] == *who && row["contenders"] == 8)
                .unwrap_or(&Value::Null);
            let name = who.as_str().expect("a name");
            let name = if name == "leasehold" { format!("**{name}**") } else { name.to_owned() };
            writeln!(
                table,
                "| {name} | {} | {} | {} | {} | {} | {} |",
                number(&free["cycles_per_s"]),
                number(&crowd["cycles_per_s"]),
                time(&crowd["handoff_us"]["p50"]),
                time(&crowd["handoff_us"]["p99"]),
                number(&crowd["requests_per_cycle"]),
                share(&crowd["overtakes"]),
            )
            .expect("a string takes everything");
        }
        table
    }

    /// Claims of one kind: published, or budgets of our own.
    fn claims(&self, ours: bool) -> String {
        let mut table = String::from("| claim | measured | holds |\n|---|---|---|\n");
        for claim in self.0["claims"].as_array().expect("claims are a list") {
            if (claim["source"] == "our budget") != ours {
                continue;
            }
            let holds = match claim["holds"].as_bool() {
                Some(true) => "yes",
                Some(false) => "**no**",
                None => "not measured",
            };
            let (what, measured) = (claim["claim"].as_str(), claim["measured"].as_str());
            writeln!(table, "| {} | {} | {holds} |", what.unwrap_or(UNKNOWN), measured.unwrap_or(UNKNOWN))
                .expect("a string takes everything");
        }
        table
    }
}

fn number(value: &Value) -> String {
    let Some(value) = value.as_f64() else { return UNKNOWN.to_owned() };
    if value < 10.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    grouped
}

fn time(value: &Value) -> String {
    value.as_f64().map_or_else(|| UNKNOWN.to_owned(), micros)
}

fn micros(micros: f64) -> String {
    match micros {
        small if small < 10.0 => format!("{small:.2} µs"),
        small if small < 1e3 => format!("{small:.0} µs"),
        middle if middle < 1e6 => format!("{:.2} ms", middle / 1e3),
        large => format!("{:.2} s", large / 1e6),
    }
}

fn share(value: &Value) -> String {
    value.as_f64().map_or_else(|| UNKNOWN.to_owned(), |share| format!("{:.0} %", share * 100.0))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Checks, or writes, what stands between the marks of a table.
fn stands(document: &str, table: &str, current: &str) {
    let path = root().join(document);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{document}: {error}"));
    let begin = format!("<!-- {table}: written by comparison/src/documents.rs -->\n");
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{document} has no {begin}"));
    let (found, after) =
        rest.split_once("<!-- end -->\n").unwrap_or_else(|| panic!("{document}: {table} has no end"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{begin}{current}<!-- end -->\n{after}"))
            .expect("it can be written");
    } else {
        assert_eq!(found, current, "{document}: {table} is stale; `make fix` writes it anew");
    }
}

/// Every figure in the documents is one of the report.
#[test]
fn documents_show_the_report_that_is_kept() {
    let report = Report::kept();
    let stores = format!("{}\n{}", report.origin(), report.stores());
    stands("README.md", "results", &stores);
    stands("docs/choosing.md", "stores", &stores);
    for (store, _) in STORES {
        stands("docs/choosing.md", store, &report.everybody(store));
    }
    stands("docs/choosing.md", "claims", &report.claims(false));
    stands("docs/choosing.md", "budgets", &report.claims(true));
}
