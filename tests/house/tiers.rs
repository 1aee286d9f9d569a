//! `tests/tiers.toml` lists every test program, and `tests/run` runs what it lists.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use testbed::Scratch;

use crate::{metadata, root};

#[test]
fn every_program_has_a_tier() {
    let metadata = metadata();
    let packages = metadata.workspace_packages();
    let targets = packages.iter().flat_map(|package| &package.targets).filter(|target| target.test);
    let built: BTreeSet<_> = targets
        .map(|target| target.src_path.strip_prefix(root()).expect("it is in the workspace").to_string())
        .collect();
    let page = fs::read_to_string(root().join("tests/tiers.toml")).expect("the list is there");
    let mut listed = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with('"')) {
        let (program, row) = line[1..].split_once("\" = { tier = \"").unwrap_or_else(|| panic!("{line}"));
        let (tier, row) = row.split_once("\", tests = ").unwrap_or_else(|| panic!("{line}"));
        assert!(["check", "test", "soak"].contains(&tier), "{line}: unknown tier");
        let (tests, lane) = row.split_once([',', ' ']).unwrap_or_else(|| panic!("{line}"));
        assert!(tests.parse::<u32>().is_ok_and(|tests| tests > 0), "{line}: no number of tests");
        let is_lane = ["}", " busy = true }"].contains(&lane) || lane.starts_with(" alone = \"");
        assert!(is_lane, "{line}: expected nothing, `busy = true` or `alone = \"why\"`");
        assert!(listed.insert(program.to_owned()), "{program} is listed twice");
    }
    assert!(listed.remove("documentation"), "the programs in the documentation are not listed");
    assert_eq!(built, listed, "cargo's test programs, and those in tests/tiers.toml");
}

/// A workspace of two test programs with a cargo that builds nothing.
struct Tree(Scratch);

impl Tree {
    /// Each program says how it ends, and ends so.
    fn new(programs: &[(&str, &str)], cargo: &str) -> Self {
        let tree = Self(Scratch::new("tiers").expect("there is room for a directory"));
        fs::create_dir(tree.0.path().join("tests")).expect("it can be made");
        fs::copy(root().join("tests/run"), tree.0.path().join("tests/run")).expect("it can be copied");
        let mut rows = String::new();
        for (name, body) in programs {
            let program = tree.write(name, body);
            rows.push_str(&format!("\"tests/{name}.rs\" = {{ tier = \"test\", tests = 2 }}\n"));
            let place = tree.0.path().display();
            let built = format!(
                "{{\"manifest_path\":\"{place}/Cargo.toml\",\"target\":{{\"kind\":[\"test\"],\"src_path\":\"{place}/tests/{name}.rs\"}},\
                 \"executable\":\"{program}\"}}\n"
            );
            let all = tree.0.path().join("built");
            let before = fs::read_to_string(&all).unwrap_or_default();
            fs::write(all, before + &built).expect("it can be written");
        }
        rows.push_str("\"documentation\" = { tier = \"test\", tests = 1 }\n");
        tree.write("tests/tiers.toml", &rows);
        tree.write("cargo", cargo);
        tree
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, text).expect("it can be written");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it is ours");
        path.display().to_string()
    }

    /// Whether it passes, and what it says.
    fn run(&self) -> (bool, String) {
        let mut run = Command::new(self.0.path().join("tests/run"));
        let run = run.arg("test").env("CARGO", self.0.path().join("cargo")).env_remove("CARGO_TARGET_DIR");
        let run = run.stdin(Stdio::null());
        let ended = run.output().expect("it runs");
        (ended.status.success(), String::from_utf8(ended.stdout).expect("it is text"))
    }
}

const PASSES: &str = "#!/bin/sh\necho 'test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured'\n";
const FAILS: &str =
    "#!/bin/sh\necho 'test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured'\nexit 101\n";
const RUNS_FEW: &str = "#!/bin/sh\necho 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured'\n";
const CARGO: &str = "#!/bin/sh
case \"$*\" in
*--no-run*) cat built ;;
*--doc*) echo 'test result: ok. 1 passed; 0 failed; 0 ignored' ;;
esac
";

#[test]
fn a_run_ends_with_its_numbers() {
    let (passed, said) = Tree::new(&[("one", PASSES), ("two", PASSES)], CARGO).run();
    let last = said.lines().last().expect("it says something");
    assert!(passed && last.starts_with("ran 5 tests in 3 programs, 0:0"), "{said}");
    assert!(said.contains("== tests/one.rs: exit 0"), "{said}");
}

#[test]
fn a_failure_ends_no_run_and_fails_it() {
    let no_fmt = CARGO.replace("case", "[ \"$1\" != fmt ] || exit 1\ncase");
    let no_build = CARGO.replace("cat built", "cat built; exit 101");
    for (first, cargo, named) in [
        (FAILS, CARGO, "  tests/one.rs"),
        (RUNS_FEW, CARGO, "tests/tiers.toml expects at least 2"),
        ("#!/bin/sh\n", CARGO, "  tests/one.rs"),
        (PASSES, no_fmt.as_str(), "cargo fmt --all --check"),
        (PASSES, no_build.as_str(), "  build"),
    ] {
        let (passed, said) = Tree::new(&[("one", first), ("two", PASSES)], cargo).run();
        assert!(!passed && said.contains(named), "{named}: {said}");
        assert!(said.contains("== tests/two.rs: exit 0"), "{said}");
    }
}

#[test]
fn a_program_that_was_not_built_fails_the_run() {
    let tree = Tree::new(&[("one", PASSES)], CARGO);
    let page = fs::read_to_string(tree.0.path().join("tests/tiers.toml")).expect("it is there");
    tree.write("tests/tiers.toml", &(page + "\"tests/two.rs\" = { tier = \"check\", tests = 1 }\n"));
    let (passed, said) = tree.run();
    assert!(!passed && said.contains("tests/two.rs: not built"), "{said}");
}

/// A lint that `clippy.toml` forbids is no warning of the build that the tests run from: the run is red.
#[test]
fn lint_fails_the_run() {
    let cargo = CARGO.replace("cat built", &format!("exec {} \"$@\"", env!("CARGO")));
    for (read, passes) in [("env!(\"CARGO_PKG_NAME\").len()", true), ("std::time::Instant::now()", false)] {
        let tree = Tree::new(&[], &cargo);
        tree.write(
            "Cargo.toml",
            "[workspace]\n[package]\nname = \"linted\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n",
        );
        tree.write("clippy.toml", &fs::read_to_string(root().join("clippy.toml")).expect("it is there"));
        tree.write("lib.rs", &format!("pub fn read() {{\n    let _ = {read};\n}}\n"));
        let (passed, said) = tree.run();
        assert_eq!(passed, passes, "{read}: {said}");
        assert_eq!(said.contains("failed:\n  build\n"), !passes, "{read}: {said}");
    }
}
