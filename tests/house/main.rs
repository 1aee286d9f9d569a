//! The tree says what is true: its structure, its manifests, its test programs, and the public API that `docs/api` lists.

mod api;
mod architecture;
mod book;
mod files;
mod manifests;
#[cfg(all(feature = "etcd", feature = "postgres", feature = "redis", feature = "zk"))]
mod options;
mod tiers;
mod words;

use std::path::Path;
use std::process::Command;

use cargo_metadata::{CargoOpt, Metadata, MetadataCommand};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The workspace with every feature, and with the dependencies of this platform only: those of others need not be
/// downloaded.
fn metadata() -> Metadata {
    let version = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let version = String::from_utf8(version.stdout).expect("rustc writes UTF-8");
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc says its host");
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml")).features(CargoOpt::AllFeatures);
    command.other_options(["--filter-platform".to_owned(), host.to_owned()]);
    command.exec().expect("cargo describes the workspace")
}

/// The code of a source file, without its tests and comments.
fn code(source: &str) -> String {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}
