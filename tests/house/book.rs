//! The book is whole: every page is in its summary, every link leads somewhere, every program runs, and sentences begin
//! with their subject.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::root;
use crate::words::published_sources;

/// The pages by their names.
fn pages() -> BTreeMap<String, String> {
    let files = fs::read_dir(root().join("docs/src")).expect("the book has pages");
    let pages = files.map(|file| {
        let path = file.expect("it can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("names are UTF-8").to_owned();
        (name, fs::read_to_string(path).expect("pages are text"))
    });
    pages.collect()
}

/// The text of a page without its blocks of code.
fn prose(page: &str) -> String {
    page.split("\n```")
        .step_by(2)
        .map(|part| part.trim_start_matches(['`', '\n']))
        .collect::<Vec<_>>()
        .join("\n\n")
}

fn links(page: &str) -> Vec<String> {
    let prose = prose(page);
    // A link may have code for its text, and code may look like a link.
    let outside: String = prose.split('`').step_by(2).collect::<Vec<_>>().join("`");
    outside.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
}

/// The anchors of a page, as mdBook and GitHub name them.
fn anchors(page: &str) -> BTreeSet<String> {
    let prose = prose(page);
    let heads =
        prose.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let slug = |head: &str| {
        let kept = head.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    heads.map(slug).collect()
}

#[test]
fn every_page_of_the_book_is_in_its_summary() {
    let pages = pages();
    let listed: Vec<_> = links(&pages["SUMMARY.md"]);
    let distinct: BTreeSet<_> = listed.iter().cloned().chain(["SUMMARY.md".to_owned()]).collect();
    assert_eq!(listed.len() + 1, distinct.len(), "a page is listed twice: {listed:?}");
    assert_eq!(distinct, pages.keys().cloned().collect());
}

#[test]
fn links_of_the_book_lead_somewhere() {
    let pages = pages();
    let (mut checked, mut dead) = (0, Vec::new());
    let mut check = |from: &str, text: &str, folder: &Path| {
        for link in links(text).iter().filter(|link| !link.starts_with("http")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => Ok(text.to_owned()),
                file => fs::read_to_string(folder.join(file)),
            };
            let leads = target.is_ok_and(|page| anchor.is_empty() || anchors(&page).contains(anchor));
            if !leads {
                dead.push(format!("{from}: {link}"));
            }
            checked += 1;
        }
    };
    for (name, page) in &pages {
        check(name, page, &root().join("docs/src"));
        for part in page.split("{{#include ").skip(1) {
            let file = part.split("}}").next().unwrap_or_default();
            assert!(root().join("docs/src").join(file).is_file(), "{name} includes {file}");
        }
    }
    for name in ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md"] {
        check(name, &fs::read_to_string(root().join(name)).expect("it is there"), root());
    }
    assert!(checked > 300, "only {checked} links were found");
    assert!(dead.is_empty(), "{} links lead nowhere:\n{}", dead.len(), dead.join("\n"));
}

/// Each page is a module of the documentation, which shows it and compiles its programs.
#[test]
fn programs_of_the_book_are_compiled() {
    let listed = fs::read_to_string(root().join("src/guide.rs")).expect("the list is there");
    for (name, page) in pages().into_iter().filter(|(name, _)| name != "SUMMARY.md") {
        let page_name = name.trim_end_matches(".md");
        let module = format!("\n    {} \"{page_name}\"", page_name.replace('-', "_"));
        assert!(listed.contains(&module), "{name}: add the page to src/guide.rs");
        for block in page.split("\n```").skip(1).step_by(2) {
            let (language, program) = block.split_once('\n').unwrap_or((block, ""));
            let is_example = program.starts_with("{{#include ../../examples/");
            let is_compiled = language == "rust" || !language.contains("rust") && !language.is_empty();
            assert!(is_example || is_compiled, "{name}: a block in `{language}` is not compiled:\n{block}");
        }
    }
}

/// The share of sentences that may begin with a relative clause.
const ALLOWED: f64 = 0.01;

/// The sentences of a text: of its paragraphs, items and cells.
fn sentences(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        for (index, cell) in line.split('|').enumerate() {
            if index > 0 || line.is_empty() || line.starts_with(['-', '*', '>']) {
                parts.push(String::new());
            }
            let last = parts.last_mut().expect("there is one");
            last.push_str(cell.trim_start_matches(['-', '>', ' ']));
            last.push(' ');
        }
    }
    let ended = parts.iter().map(|part| part.replace("? ", "?\n").replace(". ", ".\n"));
    let split = ended.flat_map(|part| part.lines().map(str::to_owned).collect::<Vec<_>>());
    split.filter(|sentence| sentence.split_whitespace().count() > 1).collect()
}

fn lacks_a_subject(sentence: &str) -> bool {
    let mut words = sentence.trim_start_matches(['*', '_', '`', '(', '[', '"', ' ']).split([' ', ',', '\'']);
    let first = words.next().unwrap_or_default();
    let relative =
        ["Who", "Whoever", "What"].contains(&first) || first == "One" && words.next() == Some("that");
    relative && !sentence.trim_end().ends_with('?')
}

#[test]
fn sentences_begin_with_their_subject() {
    let mut texts: Vec<_> = pages().into_iter().map(|(name, page)| (name, prose(&page))).collect();
    for name in
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md"]
    {
        texts.push((name.to_owned(), prose(&fs::read_to_string(root().join(name)).expect("it is there"))));
    }
    for (path, source) in published_sources() {
        let comment = |line: &str| {
            let line = line.trim_start();
            line.strip_prefix("///")
                .or_else(|| line.strip_prefix("//!"))
                .map(|text| text.trim_start().to_owned())
        };
        let comments =
            source.lines().map(|line| comment(line).unwrap_or_default()).collect::<Vec<_>>().join("\n");
        texts.push((path.display().to_string(), comments));
    }
    let (mut all, mut refused) = (0, Vec::new());
    for (name, text) in &texts {
        let sentences = sentences(text);
        all += sentences.len();
        refused.extend(
            sentences.iter().filter(|text| lacks_a_subject(text)).map(|text| format!("{name}: {text}")),
        );
    }
    assert!(all > 8000, "only {all} sentences were found");
    let share = refused.len() as f64 / all as f64;
    assert!(
        share <= ALLOWED,
        "{} of {all} begin with Who, Whoever, What, One that:\n{}",
        refused.len(),
        refused.join("\n")
    );
}
