# `check` before a push, `test` proves it, `soak` goes on for hours; none of them writes. `fix` writes.
.PHONY: compare compare-full test check soak mutants packages advisories docs fix bench building tools

CARGO ?= cargo
PROFILE ?= dev
STORES = file redis etcd postgres zk
OLDEST = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# The main job: every store, its floor and the libraries of others, on this machine, in twenty minutes.
compare:
	@comparison/compare

# The same with longer runs, up to a thousand sessions, a million held locks and 100 000 tasks, and on a Sentinel and a Cluster of
# Redis, too, in three quarters of an hour.
compare-full:
	@comparison/compare --full --store memory,file,redis,redis-quorum,redis-sentinel,redis-cluster,etcd,postgres,zk

# Within minutes: format, lints, the models and the tests of one process, the kit on memory, files and Redis, and the
# stores whose folders differ from the main branch.
check: tools
	@CARGO="$(CARGO)" tests/run check

# Everything once, which `.ci/run` runs: format, lints, every test on real servers, each store alone, the docs.
test: tools
	@CARGO="$(CARGO)" tests/run test

# For hours, by night: the same with more seeds, states, deployments, readers, lost sessions and seconds of contests, hunts of half
# an hour, and the quick comparison; then the clients that try, alone; the scenarios on servers with both processors kept busy; the
# list of mutants, the kit in real time, TLS with one store each, the Rust that the manifests name, the packages and the advisories.
soak: tools
	@CARGO="$(CARGO)" tests/run soak
	LEASEHOLD_DEPTH=soak $(CARGO) test --profile soak -p leasehold --all-features --test servers -- trying --nocapture --test-threads 1
	while :; do :; done & first=$$!; while :; do :; done & trap "kill $$first $$!" EXIT; trap 'exit 1' INT TERM; \
		LEASEHOLD_DEPTH=ci $(CARGO) test --profile soak -p leasehold --all-features --test servers
	CONFORMANCE_REAL_TIME=1 $(CARGO) test --profile soak -p leasehold-conformance --test memory
	for features in $(STORES) $(STORES:%=%,tls); do \
		$(CARGO) test -p features --features $$features || exit 1; \
	done
	$(CARGO) +$(OLDEST) check --workspace --all-targets --all-features --locked
	$(MAKE) mutants PROFILE=soak
	$(MAKE) docs packages advisories

# Every mutant that is planted somewhere, and what catches it. They die in the ordinary tests, too; here the list of them
# must be that of `tests/mutants.txt`. A change that takes out a line says which other line replaces it.
mutants: tools
	LEASEHOLD_DEPTH=check $(CARGO) test --profile $(PROFILE) --workspace --all-features --lib --test memory \
		--test simulation --test deployments --no-fail-fast -- --nocapture >target/mutants.log 2>&1; \
		grep -o 'mutant .*: caught by .*' target/mutants.log | LC_ALL=C sort | diff -u tests/mutants.txt -

# Every package as a stranger gets it.
packages: tools
	CARGO="$(CARGO)" tests/packages

# Known faults of the crates we use, as of today: asks the advisory database, so what held yesterday may not now.
advisories:
	$(CARGO) deny check advisories

# The book in target/book, with mdBook below target/tools, which it installs: two minutes of processor time, once.
docs:
	@CARGO="$(CARGO)" docs/build

fix:
	$(CARGO) fmt --all
	$(CARGO) clippy --workspace --all-targets --all-features --fix --allow-dirty --allow-staged
	UPDATE_API=1 $(CARGO) test -p leasehold --all-features --test house api
	UPDATE_DOCS=1 $(CARGO) test -p leasehold --all-features --test house options
	UPDATE_API=1 $(CARGO) test -p leasehold-cli --all-features --test cli the_manual
	UPDATE_DOCS=1 $(CARGO) test -p leasehold --all-features --test kit guarantees_table
	UPDATE_DOCS=1 $(CARGO) test -p comparison documents

bench: tools
	$(CARGO) bench -p leasehold-core

# What each choice of features costs to build, measured here and written into docs/src/building.md.
building: tools
	CARGO="$(CARGO)" tests/building

# What the machine must have: Rust, a C compiler, protoc, the servers, the clients of others. As root it
# installs what is missing and says so first; with INSTALL=0 it only says so.
tools:
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing; install Rust 1.89 or later with rustup"; exit 1; }
	@CARGO="$(CARGO)" tests/testbed/install
