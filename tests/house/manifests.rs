//! What the packages say of themselves, compared with what is installed: the Rust that they
//! ask for, what a registry shows of them, and links that work there.

use std::collections::BTreeSet;
use std::process::Command;

use cargo_metadata::semver::Version;
use cargo_metadata::{DependencyKind, Metadata, Package};

use crate::{metadata, root};

pub(crate) fn is_published(package: &Package) -> bool {
    package.publish.as_ref().is_none_or(|registries| !registries.is_empty())
}

fn published(metadata: &Metadata) -> Vec<&Package> {
    let all = metadata.workspace_packages().into_iter();
    let published: Vec<_> = all.filter(|package| is_published(package)).collect();
    assert!(published.len() >= 9, "only {} packages are published", published.len());
    published
}

/// The Rust that the manifests name is enough for everything that is built with it.
#[test]
fn no_dependency_asks_for_a_later_rust() {
    let metadata = metadata();
    let ours: BTreeSet<&Version> =
        metadata.workspace_packages().iter().filter_map(|package| package.rust_version.as_ref()).collect();
    assert_eq!(ours.len(), 1, "the packages name one Rust: {ours:?}");
    let ours = *ours.first().expect("it was counted");
    let mut named = 0;
    for package in &metadata.packages {
        if let Some(theirs) = &package.rust_version {
            assert!(theirs <= ours, "{} {} needs Rust {theirs}", package.name, package.version);
            named += 1;
        }
    }
    assert!(named > 200, "only {named} packages name a Rust");
    let readme = std::fs::read_to_string(root().join("README.md")).expect("there is a README");
    assert!(readme.contains(&format!("Rust {}.{} or later", ours.major, ours.minor)), "README: Rust {ours}");
}

/// A registry can show what each package is; where its sources are is filled in before the first release.
#[test]
fn published_packages_say_what_they_are() {
    let metadata = metadata();
    for package in published(&metadata) {
        let name = &package.name;
        let folder = package.manifest_path.parent().expect("a manifest has a folder");
        assert!(package.description.as_ref().is_some_and(|said| said.len() > 20), "{name}: description");
        assert_eq!(package.license.as_deref(), Some("MIT OR Apache-2.0"), "{name}: license");
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(folder.join(file).exists(), "{name} has no {file}");
        }
        assert_eq!(package.readme.as_ref().map(|path| path.as_str()), Some("README.md"), "{name}: readme");
        assert!((1..=5).contains(&package.keywords.len()), "{name}: keywords");
        assert!((1..=5).contains(&package.categories.len()), "{name}: categories");
        assert!(package.keywords.iter().all(|word| word.len() <= 20), "{name}: a keyword is too long");
        assert_eq!(package.metadata["docs"]["rs"]["all-features"], true, "{name}: documentation");
        let manifest = std::fs::read_to_string(&package.manifest_path).expect("it can be read");
        assert!(manifest.contains("\ninclude = ["), "{name} says not what it includes");
    }
    let places: BTreeSet<_> =
        published(&metadata).iter().map(|package| package.repository.as_deref()).collect();
    assert_eq!(places.len(), 1, "the sources are in one place: {places:?}");
}

/// What is not published is not needed by what is: it serves tests, and names no version, so that it is
/// left out of the package.
#[test]
fn published_packages_stand_without_the_others() {
    let metadata = metadata();
    let members = metadata.workspace_packages();
    let is_ours = |name: &str| members.iter().find(|package| package.name == name);
    for package in published(&metadata) {
        for dependency in &package.dependencies {
            let Some(used) = is_ours(&dependency.name) else { continue };
            let (user, used_name, has_version) =
                (&package.name, &used.name, dependency.req.to_string() != "*");
            if is_published(used) {
                assert!(has_version, "{user} names no version of {used_name}");
            } else {
                assert_eq!(dependency.kind, DependencyKind::Development, "{user} needs {used_name}");
                assert!(!has_version, "{user} names a version of {used_name}, which nobody can get");
            }
        }
    }
}

/// What the pages that registries show link to is there: in the registry's own documentation of this
/// package, whose files are those that it includes.
#[test]
fn links_of_the_shown_pages_work_everywhere() {
    let metadata = metadata();
    let mut links = 0;
    for package in published(&metadata) {
        let folder = package.manifest_path.parent().expect("a manifest has a folder");
        let page = std::fs::read_to_string(folder.join("README.md")).expect("there is a README");
        let inline = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let listed =
            page.lines().filter(|line| line.starts_with('[')).filter_map(|line| line.split("]: ").nth(1));
        for link in inline.chain(listed) {
            let is_here = link.starts_with('#');
            assert!(is_here || link.starts_with("https://"), "{}: {link} works here only", package.name);
            if let Some(file) = link.strip_prefix("https://docs.rs/crate/leasehold/latest/source/") {
                assert!(root().join(file).is_file(), "{}: {file} is missing", package.name);
                let is_included = ["docs/", "examples/"].iter().any(|part| file.starts_with(part));
                assert!(is_included || file == "SECURITY.md", "{file} is in no package");
            }
            links += 1;
        }
    }
    assert!(links > 20, "only {links} links were found");
}

#[test]
fn the_counts_of_crates_are_current() {
    let page = std::fs::read_to_string(root().join("docs/src/building.md")).expect("there is such a page");
    let mut script = Command::new(root().join("tests/building"));
    let counted = script.arg("counts").env("CARGO", env!("CARGO")).output().expect("it runs");
    let counted = String::from_utf8(counted.stdout).expect("it writes UTF-8");
    assert_eq!(counted.lines().count(), 14, "{counted}");
    for row in counted.lines() {
        assert!(page.contains(row), "docs/src/building.md has not `{row}`; tests/building writes it anew");
    }
}

/// A tag may be moved to other code, a commit cannot.
#[test]
fn hosted_workflow_names_actions_by_commit() {
    let workflow = std::fs::read_to_string(root().join(".github/workflows/ci.yml")).expect("there is one");
    let mut actions =
        workflow.lines().filter_map(|line| line.split_once("uses: ")?.1.split_once('@')).peekable();
    assert!(actions.peek().is_some());
    for (action, at) in actions {
        let is_commit = at.len() > 40 && at.as_bytes()[..40].iter().all(u8::is_ascii_hexdigit);
        assert!(is_commit, "{action}@{at}");
    }
}
