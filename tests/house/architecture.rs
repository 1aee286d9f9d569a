//! The structure that `ARCHITECTURE.md` draws, held against the tree: which package depends on which, how long
//! files are, what their headers say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, Package};

use crate::{metadata, root};

/// The packages that `ARCHITECTURE.md` draws: where each lies, what it may depend on, and what its tests may
/// besides.
struct Drawn {
    folder: String,
    uses: BTreeSet<String>,
    tests: BTreeSet<String>,
}

fn drawn() -> BTreeMap<String, Drawn> {
    let path = root().join("ARCHITECTURE.md");
    let page = std::fs::read_to_string(path).expect("the page is there");
    let packages = page.split("## Packages").nth(1).expect("it draws the packages");
    let packages = packages.split("\n## ").next().unwrap_or_default();
    let named = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let rows = packages.lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(named).collect();
        let [name, folder, _what, uses, tests] = <[_; 5]>::try_from(cells).expect("five columns");
        let only = |mut cell: Vec<String>| cell.pop().expect("it is named");
        let drawn = Drawn {
            folder: only(folder),
            uses: uses.into_iter().collect(),
            tests: tests.into_iter().collect(),
        };
        (only(name), drawn)
    };
    rows.map(row).collect()
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

#[test]
fn packages_depend_only_as_drawn() {
    let metadata = metadata();
    let (ours, drawn) = (ours(&metadata), drawn());
    assert_eq!(ours, drawn.keys().map(String::as_str).collect(), "in the workspace, and on the page");
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let Drawn { folder, uses, tests } = &drawn[name];
        let manifest = metadata.workspace_root.join(folder);
        let lies_there = manifest.join("Cargo.toml") == package.manifest_path || folder == "src/";
        assert!(lies_there, "{name} is not in {folder}");
        for used in edges(package, &ours, false) {
            assert!(uses.contains(&used), "{name} must not depend on {used}");
        }
        for used in edges(package, &ours, true) {
            assert!(tests.contains(&used) || uses.contains(&used), "{name} must not dev-depend on {used}");
        }
    }
}

/// What a plain `leasehold = "…"` pulls in reaches no network.
#[test]
fn the_default_build_has_no_network_client() {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "-p", "leasehold", "-e", "normal", "--prefix", "none", "-f", "{p}"]);
    let tree = tree.current_dir(root()).output().expect("cargo runs");
    let tree = String::from_utf8(tree.stdout).expect("cargo writes UTF-8");
    let packages: BTreeSet<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(packages.contains("leasehold-core") && packages.contains("tokio"), "{tree}");
    // tokio has sockets only with mio; the others are the clients and what they stand on.
    let network = [
        "mio",
        "redis",
        "etcd-client",
        "zookeeper-client",
        "tokio-postgres",
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

pub(crate) fn sources(metadata: &Metadata) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for package in metadata.workspace_packages() {
        let root = package.manifest_path.parent().expect("a manifest has a folder");
        for part in ["src", "tests", "examples", "benches"] {
            collect(&root.join(part).into_std_path_buf(), &mut found);
        }
    }
    found
}

pub(crate) fn collect(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
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

#[test]
fn files_have_at_most_500_lines() {
    for (path, text) in sources(&metadata()) {
        let lines = text.lines().count();
        assert!(lines <= 500, "{} has {lines} lines", path.display());
    }
}

/// The first line of a file says what the file is for. (Test modules of a file are introduced
/// by that file.)
#[test]
fn every_file_says_what_it_is_for() {
    for (path, text) in sources(&metadata()) {
        let is_test_module = path.file_name().is_some_and(|name| name == "tests.rs");
        let opens = text.starts_with("//!") || text.starts_with("#![doc = include_str!(");
        assert!(opens || is_test_module, "{} has no header", path.display());
    }
}

/// An invariant is called by its file, so that a mention in another one needs no looking for.
#[test]
fn invariants_are_called_by_one_name() {
    let mut places = BTreeMap::new();
    for (path, text) in sources(&metadata()) {
        for line in text.lines().filter_map(|line| line.trim_start().strip_prefix("//! - **")) {
            let tag = line.split("**").next().unwrap_or_default().to_owned();
            // The promises, and what the contract asks, have their own.
            let is_contracts = path.ends_with("backend/contract.rs") && tag.starts_with('B');
            let is_contracts = is_contracts || tag.starts_with('G');
            let (name, number) = tag.rsplit_once('-').unwrap_or((&tag, ""));
            let is_named = name.chars().all(|c| c.is_ascii_lowercase() || "._".contains(c));
            let is_tag = !name.is_empty() && is_named && number.parse::<u8>().is_ok();
            if !is_contracts && !is_tag {
                let looks_like_one = tag.len() == 2 && tag.ends_with(|c: char| c.is_ascii_digit());
                assert!(!looks_like_one, "{}: {tag} is not called by its file", path.display());
                continue;
            }
            if let Some(other) = places.insert(tag.clone(), path.clone()) {
                panic!("{tag} is in {} and in {}", other.display(), path.display());
            }
        }
    }
    assert!(places.len() > 50, "only {} were found", places.len());
}

/// All stores have the same files. Where those on servers have the way to them,
/// the file store has the files on the disk. A second engine has the same, but for what both share.
#[test]
fn stores_have_one_plan() {
    const ALL: [&str; 9] = [
        "config",
        "protocol",
        "session",
        "keys",
        "backend",
        "session/renewer",
        "admin/inspect",
        "admin/revoke",
        "admin/diagnosis",
    ];
    const STORES: [(&str, &[&str], &[&str]); 6] = [
        ("backend-redis/src", &["connection", "error", "admin/token_base"], &[]),
        ("backend-etcd/src", &["connection", "error", "admin/token_base"], &[]),
        ("backend-postgres/src", &["connection", "error", "admin/token_base"], &[]),
        ("backend-zk/src", &["connection", "error", "admin/token_base"], &[]),
        ("backend-file/src", &["directory", "error", "admin/token_base"], &[]),
        ("backend-redis/src/quorum", &["scripts"], &["connection", "error"]),
    ];
    for (store, own, without) in STORES {
        let has = |part: &&&str| {
            let place = root().join(store).join(part);
            let (is_file, is_folder) = (place.with_extension("rs").exists(), place.join("mod.rs").exists());
            assert!(!(is_file && is_folder), "{store} has two {part}");
            is_file || is_folder
        };
        let missing: Vec<_> = ALL.iter().chain(own).filter(|part| !has(part)).collect();
        assert!(missing.is_empty(), "{store} has no {missing:?}");
        assert!(!without.iter().any(|part| has(&part)), "both engines have the same {without:?}");
    }
}

#[test]
fn no_file_is_called_util() {
    let empty = ["util", "utils", "helper", "helpers", "common", "misc", "types", "traits"];
    for (path, _) in sources(&metadata()) {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        assert!(!empty.contains(&stem), "{}", path.display());
    }
}

/// Errors carry text of servers: a log line has it with its control characters escaped.
#[test]
fn logged_errors_are_escaped() {
    for (path, text) in sources(&metadata()) {
        for line in
            text.lines().filter(|line| line.contains("tracing::") || line.trim().starts_with("error ="))
        {
            let is_raw = line.contains("%error") || line.contains("error = %format_args!");
            assert!(!is_raw, "{}: `error = ?format!(..)` instead of {}", path.display(), line.trim());
        }
    }
}

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
