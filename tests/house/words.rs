//! The words of messages and help texts, which only an insider of this project would know otherwise, and the names of
//! tests.

use std::path::{Path, PathBuf};

use crate::architecture::{collect, metadata, sources};
use crate::manifests::is_published;

/// The nouns that no message, log line or help text contains.
const REFUSED: [&str; 10] =
    ["whoever", "stranger", "strangers", "tenure", "drive", "flight", "owed", "remains", "keeper", "rig"];

/// The string literals with a blank in the code of a source file, without its tests.
fn texts(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>();
    let code = code.join("\n").replace(r"\\", "").replace("\\\"", "");
    let quoted: Vec<_> = code.split('"').collect();
    assert!(quoted.len() % 2 == 1, "a literal does not end in:\n{code}");
    let texts = quoted.into_iter().skip(1).step_by(2).filter(|text| text.contains(' '));
    texts.map(without_values).collect()
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

fn is_of_tests(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests")
}

/// A format string without the names of its values.
fn without_values(text: &str) -> String {
    text.split('{').map(|part| part.split_once('}').map_or(part, |(_, outside)| outside)).collect()
}

fn refused_word(text: &str) -> Option<&str> {
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.find(|word| REFUSED.iter().any(|refused| word.eq_ignore_ascii_case(refused)))
}

/// Every text of a published package has its reader's words; so has the manual page of the command.
#[test]
fn messages_have_plain_words() {
    let metadata = metadata();
    let mut checked = 0;
    for package in metadata.workspace_packages() {
        if !is_published(package) {
            continue;
        }
        let mut files = Vec::new();
        let folder = package.manifest_path.parent().expect("a manifest has a folder");
        collect(&folder.join("src").into_std_path_buf(), &mut files);
        let tests = test_modules(&files);
        for (path, source) in files {
            if tests.iter().any(|module| path.with_extension("").starts_with(module)) {
                continue;
            }
            let file = path.strip_prefix(&metadata.workspace_root).expect("it is in the workspace");
            let file = file.display();
            for text in texts(&source) {
                checked += 1;
                assert_eq!(refused_word(&text), None, "{file}: {text:?}");
            }
        }
    }
    assert!(checked > 1000, "only {checked} texts were found");
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api/leasehold-cli.txt");
    let manual = std::fs::read_to_string(manual).expect("the manual is there");
    assert_eq!(refused_word(&manual), None, "in docs/api/leasehold-cli.txt");
}

/// The longest name of a test.
const LONGEST: usize = 60;

/// The functions of tests and conformance cases.
fn test_functions<'a>(path: &Path, source: &'a str) -> impl Iterator<Item = &'a str> {
    let is_case = path.components().any(|part| part.as_os_str() == "cases");
    let tests = match is_of_tests(path) || is_case {
        true => source,
        false => source.split_once("#[cfg(test)]\nmod tests {").map_or("", |(_, tests)| tests),
    };
    let declared = tests.lines().map(str::trim).filter_map(|line| {
        let line = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        line.trim_start_matches("async ").strip_prefix("fn ")
    });
    declared.filter_map(|rest| rest.split(['(', '<']).next())
}

/// A test's name has a subject first, and fits a line.
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
