//! The book's reference tables against the code. `url_options.md` beside each parser lists the options of its URLs, and the
//! pages show these lists; errors, reasons and metrics have a row each.
//!
//! `UPDATE_DOCS=1 cargo test --all-features --test house options` writes the tables of options anew.

use std::collections::BTreeSet;
use std::fs;

use leasehold::Timing;

use crate::root;

/// The list beside a parser, the page that shows it, and URLs that together know all of its options.
const STORES: [(&str, &str, &[&str]); 9] = [
    ("lockcore/src/memory/url_options.md", "memory.md", &["memory://"]),
    ("backend-file/src/url_options.md", "file.md", &["file:///d"]),
    ("backend-redis/src/config/url_options.md", "redis.md", &["redis://h", "rediss://h", "redis+unix:///s"]),
    (
        "backend-redis/src/config/sentinel_options.md",
        "redis-sentinel.md",
        &["redis+sentinel://h/m", "rediss+sentinel://h/m"],
    ),
    (
        "backend-redis/src/config/cluster_options.md",
        "redis-cluster.md",
        &["redis+cluster://h", "rediss+cluster://h"],
    ),
    (
        "backend-redis/src/quorum/url_options.md",
        "redis-quorum.md",
        &["redis+quorum://a,b,c", "rediss+quorum://a,b,c"],
    ),
    ("backend-etcd/src/url_options.md", "etcd.md", &["etcd://h"]),
    ("backend-zk/src/config/url_options.md", "zookeeper.md", &["zk://h"]),
    ("backend-postgres/src/url_options.md", "postgres.md", &["postgres://h/d"]),
];

const COMMON: &str = "lockcore/src/api/url_options.md";

fn list(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The options in the first cells of a list.
fn listed(list: &str) -> BTreeSet<String> {
    let cells = list.lines().skip(2).filter_map(|row| row.split('|').nth(1));
    let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    quoted.filter(|name| !name.contains("://")).map(str::to_owned).collect()
}

/// The options that the parser of a URL knows, as its error about another one names them.
fn known(url: &str) -> BTreeSet<String> {
    let refused = leasehold::registry().configure(&format!("{url}?unheard_of=1"));
    let error = refused.expect_err("the option is unknown").to_string();
    let (_, known) = error.split_once("known: ").unwrap_or_else(|| panic!("{url}: {error}"));
    known.split(", ").map(str::to_owned).collect()
}

#[test]
fn lists_of_options_name_what_the_parsers_know() {
    let common = listed(&list(COMMON));
    for (path, _, urls) in STORES {
        let known: BTreeSet<_> = urls.iter().flat_map(|url| known(url)).collect();
        let own = listed(&list(path));
        assert!(own.is_disjoint(&common), "{path} and {COMMON} name the same option");
        assert_eq!(&own | &common, known, "{path} and {COMMON}: expected the options that the parser knows");
    }
    let timing = Timing::for_ttl(Timing::DEFAULT_TTL);
    for (option, default) in [
        ("ttl", format!("{:?}", timing.ttl)),
        ("op_timeout", format!("{:?}", timing.op_timeout)),
        ("connect_timeout", format!("{:?}", timing.connect_timeout)),
        ("handoff_limit", timing.handoff_limit.to_string()),
    ] {
        assert!(list(COMMON).contains(&format!("| `{option}` | `{default}`")), "{COMMON}: {option}");
    }
}

#[test]
fn tables_of_options_are_current() {
    let pages = STORES.map(|(path, page, _)| (path, page));
    for (path, page) in pages.into_iter().chain([(COMMON, "options.md")]) {
        let file = root().join("docs/src").join(page);
        let text = fs::read_to_string(&file).expect("there is such a page");
        let begin = format!("<!-- options: written by tests/house/options.rs from {path} -->\n");
        let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{page}: expected {begin}"));
        let (found, after) = rest.split_once("<!-- end of options -->\n").expect("the table's last mark");
        let current = list(path);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            let text = format!("{before}{begin}{current}<!-- end of options -->\n{after}");
            fs::write(file, text).expect("it can be written");
        } else {
            assert_eq!(found, current, "the table of {page} is stale; `make fix` writes it anew");
        }
    }
}

/// The variants of a public enum of the core.
fn variants(name: &str) -> BTreeSet<String> {
    let api = list("docs/api/leasehold-core.txt");
    let (_, body) = api.split_once(&format!("pub enum {name} {{\n")).expect("it is public");
    let lines = body.lines().take_while(|line| *line != "}");
    lines.filter_map(|line| line.trim().split([',', ' ']).next()).map(str::to_owned).collect()
}

/// `SessionLost` as events and metrics write it.
fn word(variant: &str) -> String {
    let separated = variant.char_indices().map(|(at, c)| match at {
        at if at > 0 && c.is_uppercase() => format!("_{c}"),
        _ => c.to_string(),
    });
    separated.collect::<String>().to_lowercase()
}

#[test]
fn errors_reasons_and_metrics_have_a_row() {
    let names = |page: &str| -> BTreeSet<String> {
        let page = list(page);
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        rows.flat_map(|row| listed(&format!("\n\n{row}"))).collect()
    };
    let mut errors = names("docs/src/errors.md");
    errors.remove("effect()");
    assert_eq!(errors, &variants("ErrorKind") | &variants("Effect"));
    let reasons = variants("LostReason").iter().map(|variant| word(variant)).collect();
    assert!(names("docs/src/runbook.md").is_superset(&reasons), "the runbook lacks one of {reasons:?}");
    let metrics = list("lockcore/src/core/metrics/mod.rs");
    let metrics = metrics.split('"').filter(|text| text.starts_with("leasehold_")).map(str::to_owned);
    let mut listed = names("docs/src/monitoring.md");
    listed.retain(|name| name.starts_with("leasehold_"));
    assert_eq!(listed, metrics.collect());
}
