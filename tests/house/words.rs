//! The words of messages and help texts, which only an insider of this project would know otherwise, and the names of
//! tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::architecture::{collect, sources};
use crate::manifests::is_published;
use crate::{code, metadata, root};

/// The nouns that no message, log line, help text, public identifier or name of a serialized field contains.
const REFUSED: [&str; 10] =
    ["whoever", "stranger", "strangers", "tenure", "drive", "flight", "owed", "remains", "keeper", "rig"];

/// The string literals in the code of a source file, without its tests.
fn texts(source: &str) -> Vec<String> {
    let code = code(source).replace(r"\\", "").replace("\\\"", "");
    let quoted: Vec<_> = code.split('"').collect();
    assert!(quoted.len() % 2 == 1, "a literal does not end in:\n{code}");
    quoted.into_iter().skip(1).step_by(2).map(without_values).collect()
}

/// The lines with the fields of the types that are serialized.
fn serialized(source: &str) -> String {
    let code = code(source);
    let types = code.split("Serialize").skip(1).filter_map(|rest| rest.split_once("\n}"));
    types.map(|(fields, _)| fields).collect::<Vec<_>>().join("\n")
}

/// The modules that are compiled for tests only.
fn test_modules(files: &[(PathBuf, String)]) -> Vec<PathBuf> {
    let declared = files.iter().flat_map(|(path, source)| {
        let names = source.split("#[cfg(test)]\n").skip(1).filter_map(|rest| {
            let line = rest.lines().next()?.trim_start_matches("pub(crate) ");
            line.strip_prefix("mod ")?.strip_suffix(';')
        });
        let folder = match path.file_stem().and_then(|stem| stem.to_str()) {
            Some("lib" | "main" | "mod") => path.with_file_name(""),
            _ => path.with_extension(""),
        };
        names.map(move |name| folder.join(name))
    });
    declared.collect()
}

/// Whether a folder of that name is on the way from the root of the workspace.
fn is_in(path: &Path, folder: &str) -> bool {
    let place = path.strip_prefix(root()).unwrap_or(path);
    place.components().any(|part| part.as_os_str() == folder)
}

fn is_of_tests(path: &Path) -> bool {
    path.ends_with("tests.rs") || is_in(path, "tests")
}

/// A format string without the names of its values.
fn without_values(text: &str) -> String {
    text.split('{').map(|part| part.split_once('}').map_or(part, |(_, outside)| outside)).collect()
}

/// Identifiers are read word by word, in either case.
fn refused_word(text: &str) -> Option<&'static str> {
    let mut words = String::new();
    for c in text.replace("ZooKeeper", "").chars() {
        if c.is_uppercase() && words.ends_with(char::is_lowercase) {
            words.push(' ');
        }
        words.push(if c.is_alphanumeric() { c.to_ascii_lowercase() } else { ' ' });
    }
    REFUSED.into_iter().find(|refused| words.split(' ').any(|word| word == *refused))
}

/// The sources of the published packages, without what is compiled for tests only.
pub(crate) fn published_sources() -> Vec<(PathBuf, String)> {
    let metadata = metadata();
    let mut found = Vec::new();
    for package in metadata.workspace_packages().into_iter().filter(|package| is_published(package)) {
        let mut files = Vec::new();
        let folder = package.manifest_path.parent().expect("a manifest has a folder");
        collect(&folder.join("src").into_std_path_buf(), &mut files);
        let tests = test_modules(&files);
        files.retain(|(path, _)| !tests.iter().any(|module| path.with_extension("").starts_with(module)));
        found.append(&mut files);
    }
    found
}

#[test]
fn messages_have_plain_words() {
    let mut checked = 0;
    for (path, source) in published_sources() {
        for text in texts(&source).into_iter().chain([serialized(&source)]) {
            checked += 1;
            assert_eq!(refused_word(&text), None, "{}: {text:?}", path.display());
        }
    }
    assert!(checked > 2000, "only {checked} texts were found");
    // The public identifiers of every package, and the manual.
    let listings = std::fs::read_dir(root().join("docs/api")).expect("the public API is listed");
    for listing in listings.map(|entry| entry.expect("it can be listed").path()) {
        let text = std::fs::read_to_string(&listing).expect("a listing is text");
        assert_eq!(refused_word(&text), None, "in {}", listing.display());
    }
}

/// How many types of the libraries share a name, where more than two do: the list may only shrink. The roles that each
/// store has are left out.
const REPEATED: [(usize, &[&str]); 3] = [
    (5, &["Watch"]),
    (4, &["End", "Shared", "Task", "Timer"]),
    (3, &["Book", "Change", "Directory", "Kind", "Next", "Open", "Progress", "Request", "Seen", "Shown"]),
];

const ROLES: [&str; 6] = ["Session", "Acquisition", "Contender", "Connection", "Keys", "Step"];

#[test]
fn types_share_their_names_ever_less() {
    let mut counts = BTreeMap::<_, usize>::new();
    for (path, source) in published_sources() {
        let is_library = !is_in(&path, "cli") && !is_in(&path, "conformance");
        for line in code(&source).lines().filter(|_| is_library) {
            let words = line.split([' ', '<', '(', '{', ';', ':']).filter(|word| !word.is_empty());
            let mut words = words.skip_while(|word| ["pub", "crate)", "super)", "in"].contains(word));
            if words.next().is_some_and(|word| ["struct", "enum", "trait"].contains(&word)) {
                *counts.entry(words.next().unwrap_or_default().to_owned()).or_default() += 1;
            }
        }
    }
    counts.retain(|name, count| *count > 2 && !ROLES.contains(&name.as_str()));
    let listed =
        |name: &str| REPEATED.iter().find(|(_, names)| names.contains(&name)).map_or(2, |(count, _)| *count);
    let more: Vec<_> = counts.iter().filter(|(name, count)| **count > listed(name)).collect();
    assert!(more.is_empty(), "more types than before share these names: {more:?}");
}

/// The longest name of a test.
const LONGEST: usize = 60;

/// The functions of tests and conformance cases.
fn test_functions<'a>(path: &Path, source: &'a str) -> impl Iterator<Item = &'a str> {
    let tests = match is_of_tests(path) || is_in(path, "cases") {
        true => source,
        false => source.split_once("#[cfg(test)]\nmod tests {").map_or("", |(_, tests)| tests),
    };
    let declared = tests.lines().map(str::trim).filter_map(|line| {
        let line = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        line.trim_start_matches("async ").strip_prefix("fn ")
    });
    declared.filter_map(|rest| rest.split(['(', '<']).next())
}

#[test]
fn tests_have_plain_names() {
    let mut checked = 0;
    let mut refused = Vec::new();
    for (path, source) in sources(&metadata()) {
        for name in test_functions(&path, &source) {
            checked += 1;
            let has_subject = !["who_", "what_", "whoever_"].iter().any(|word| name.starts_with(word));
            if !has_subject || name.len() > LONGEST {
                refused.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(checked > 2000, "only {checked} functions were found");
    assert!(refused.is_empty(), "{} names to change:\n{}", refused.len(), refused.join("\n"));
}
