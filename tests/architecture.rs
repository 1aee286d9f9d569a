//! The structure that `ARCHITECTURE.md` draws, held against the tree: who depends on whom, how long
//! files are, what their headers say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// Who may depend on whom: package, normal and build dependencies, and dev-dependencies beyond
/// those. Packages that are not here yet may not exist.
const EDGES: [(&str, &[&str], &[&str]); 11] = [
    ("lockcore", &[], &[]),
    ("backend-file", &["lockcore"], &[]),
    ("backend-etcd", &["lockcore"], &["conformance", "testbed"]),
    ("backend-redis", &["lockcore"], &["conformance", "testbed"]),
    ("backend-zk", &["lockcore"], &["conformance", "testbed"]),
    ("contender-protocol", &[], &[]),
    ("comparison", &["leasehold", "contender-protocol", "testbed"], &[]),
    ("leasehold-cli", &["leasehold"], &["testbed"]),
    ("testbed", &[], &[]),
    ("conformance", &["lockcore"], &[]),
    (
        "leasehold",
        &["lockcore", "backend-etcd", "backend-file", "backend-redis", "backend-zk"],
        &["conformance", "testbed"],
    ),
];

/// The workspace as cargo sees it, with the dependencies of this platform only: those of others
/// need not be downloaded.
fn metadata() -> Metadata {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let version = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let version = String::from_utf8(version.stdout).expect("rustc writes UTF-8");
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc says its host");
    let mut command = MetadataCommand::new();
    command.manifest_path(manifest).other_options(["--filter-platform".to_owned(), host.to_owned()]);
    command.exec().expect("cargo describes the workspace")
}

fn ours(metadata: &Metadata) -> BTreeSet<&str> {
    metadata.workspace_packages().iter().map(|package| package.name.as_str()).collect()
}

fn edges(package: &Package, ours: &BTreeSet<&str>, development: bool) -> BTreeSet<String> {
    let wanted = |kind| (kind == DependencyKind::Development) == development;
    let dependencies = package.dependencies.iter().filter(|dependency| wanted(dependency.kind));
    dependencies
        .map(|dependency| dependency.name.clone())
        .filter(|name| ours.contains(name.as_str()))
        .collect()
}

/// Dependencies go one way: lockcore ← stores ← facade; lockcore ← kit; the testbed knows nobody.
#[test]
fn packages_depend_only_as_drawn() {
    let metadata = metadata();
    let ours = ours(&metadata);
    let drawn: BTreeMap<_, _> = EDGES.iter().map(|(name, uses, tests)| (*name, (uses, tests))).collect();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let (uses, tests) = drawn.get(name).unwrap_or_else(|| panic!("{name} is not drawn"));
        for used in edges(package, &ours, false) {
            assert!(uses.contains(&used.as_str()), "{name} must not depend on {used}");
        }
        for used in edges(package, &ours, true) {
            let drawn = tests.contains(&used.as_str()) || uses.contains(&used.as_str());
            assert!(drawn, "{name} must not dev-depend on {used}");
        }
    }
}

/// What a plain `leasehold = "…"` pulls in reaches no network.
#[test]
fn the_default_build_has_no_network_client() {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "-p", "leasehold", "-e", "normal", "--prefix", "none", "-f", "{p}"]);
    let tree = tree.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo runs");
    let tree = String::from_utf8(tree.stdout).expect("cargo writes UTF-8");
    let packages: BTreeSet<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(packages.contains("lockcore") && packages.contains("tokio"), "{tree}");
    // tokio has sockets only with mio; the others are the clients and what they stand on.
    let network = [
        "mio",
        "redis",
        "etcd-client",
        "zookeeper-client",
        "tonic",
        "hyper",
        "h2",
        "rustls",
        "native-tls",
        "openssl",
        "async-net",
        "reqwest",
    ];
    for client in network {
        assert!(!packages.contains(client), "{client} is in the default build");
    }
}

fn sources(metadata: &Metadata) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for package in metadata.workspace_packages() {
        let root = package.manifest_path.parent().expect("a manifest has a folder");
        for part in ["src", "tests", "examples", "benches"] {
            collect(&root.join(part).into_std_path_buf(), &mut found);
        }
    }
    found
}

fn collect(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.expect("the folder can be read").path();
        let is_package = path.join("Cargo.toml").exists();
        if path.is_dir() && !is_package {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("sources are UTF-8");
            found.push((path, text));
        }
    }
}

/// No file is longer than a person reads at once.
#[test]
fn files_have_at_most_500_lines() {
    for (path, text) in sources(&metadata()) {
        let lines = text.lines().count();
        assert!(lines <= 500, "{} has {lines} lines", path.display());
    }
}

/// A stranger learns from the first line what a file is for. (Test modules of a file are introduced
/// by that file.)
#[test]
fn every_file_says_what_it_is_for() {
    for (path, text) in sources(&metadata()) {
        let is_test_module = path.file_name().is_some_and(|name| name == "tests.rs");
        let opens = text.starts_with("//!") || text.starts_with("#![doc = include_str!(");
        assert!(opens || is_test_module, "{} has no header", path.display());
    }
}

/// The folders of the core, the lowest first: each knows itself and those before it.
const FLOORS: [&str; 6] = ["words", "clock", "backend", "memory", "core", "api"];

/// Nothing below names what stands on it, tests apart.
#[test]
fn the_core_has_no_upward_arrow() {
    let metadata = metadata();
    let package = metadata.workspace_packages().into_iter().find(|package| package.name == "lockcore");
    let manifest = &package.expect("lockcore is there").manifest_path;
    let root = manifest.parent().expect("a manifest has a folder").join("src").into_std_path_buf();
    let mut files = Vec::new();
    collect(&root, &mut files);
    let floor = |name: &str| FLOORS.iter().position(|folder| *folder == name);
    let mut arrows = 0;
    for (path, text) in files {
        let place = path.strip_prefix(&root).expect("it lies in there");
        let folder = place.components().next().and_then(|first| first.as_os_str().to_str());
        if place.ends_with("tests.rs") || place.ends_with("lib.rs") {
            continue;
        }
        let here = folder.and_then(floor).unwrap_or_else(|| panic!("{} is in no folder", place.display()));
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        for named in code.flat_map(|line| line.split("crate::").skip(1)) {
            let named: String = named.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let Some(there) = floor(&named) else {
                panic!("{} names crate::{named}, which is in no folder", place.display());
            };
            assert!(there <= here, "{} looks up to {named}", place.display());
            arrows += usize::from(there < here);
        }
    }
    assert!(arrows > 100, "only {arrows} arrows were found");
}

/// Names that say nothing hide what belongs elsewhere.
#[test]
fn no_file_is_called_util() {
    let empty = ["util", "utils", "helper", "helpers", "common", "misc", "types", "traits"];
    for (path, _) in sources(&metadata()) {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        assert!(!empty.contains(&stem), "{}", path.display());
    }
}

/// Waiting futures say what dropping them does.
#[test]
fn public_waiting_functions_document_cancel_safety() {
    for (path, text) in sources(&metadata()) {
        if !path.components().any(|part| part.as_os_str() == "lockcore") {
            continue;
        }
        let mut docs = String::new();
        for line in text.lines().map(str::trim) {
            if line.starts_with("///") {
                docs.push_str(line);
            } else if line.starts_with("pub async fn") {
                assert!(docs.contains("# Cancel safety"), "{}: {line}", path.display());
                docs.clear();
            } else if !line.starts_with("#[") {
                docs.clear();
            }
        }
    }
}
