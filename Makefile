# `check` before a commit, `test` proves it, `verify` before a release; none of them writes. `fix` writes.
.PHONY: compare compare-full test check soak verify packages advisories fix bench building tools

CARGO ?= cargo
STORES = file redis etcd zk
# Turns the build of the workspace's own crates into a lint that also builds.
LINTS = RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__

# The main job: every store, its floor and the libraries of others, on this machine, in a quarter of an hour.
compare:
	@comparison/compare

# The same with longer runs, up to a thousand sessions, a million held locks and 100 000 tasks, in three quarters of an hour.
compare-full:
	@comparison/compare --full

# The whole check, which `.ci/run` runs: format, lints, every test on real servers, each store alone, the docs.
# Cargo lints what it builds for the tests, so that nothing is compiled twice. All of it runs, whatever fails.
test: tools
	@failed=; \
	step() { echo "== $$*" >&2; "$$@" || failed="$$failed$$(printf '\n  %s' "$$*")"; }; \
	step $(CARGO) fmt --all --check; \
	step env $(LINTS) $(CARGO) test --workspace --all-features --no-fail-fast; \
	step env $(LINTS) $(CARGO) check -p comparison --test quick; \
	step env $(LINTS) $(CARGO) check -p leasehold-core -p leasehold-file --benches; \
	for features in none $(STORES); do \
		step env $(LINTS) $(CARGO) check -p leasehold -p leasehold-cli --no-default-features --features "$${features#none}"; \
	done; \
	step $(CARGO) test -p leasehold --no-default-features --test features; \
	step env RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --all-features --no-deps; \
	[ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

# Before each commit: format, lints, and the tests of the tree itself.
check: tools
	$(CARGO) fmt --all --check
	$(LINTS) $(CARGO) test --workspace --all-features --no-run
	$(LINTS) $(CARGO) test -p leasehold --all-features --test house

# As long as you like: more seeds of the simulations, more of what others may have written, more deployments on real
# servers, a thousand readers let in by one release, a minute with each library of others and its whole way to another store, and more states of moves than a test run has time for.
soak: tools
	LEASEHOLD_SEEDS=$${LEASEHOLD_SEEDS:-100000} $(CARGO) test --release -p leasehold-conformance --test simulation -- --nocapture
	PROPTEST_CASES=$${PROPTEST_CASES:-1000000} $(CARGO) test -p leasehold --all-features --test api fuzz
	PROPTEST_CASES=$${PROPTEST_CASES:-1000000} $(CARGO) test -p leasehold-file -p leasehold-redis -p leasehold-etcd -p leasehold-zk --lib -- fuzz differential
	LEASEHOLD_SEEDS=$${LEASEHOLD_SEEDS:-20000} $(CARGO) test --release -p leasehold-migration --test deployments -- --nocapture
	LEASEHOLD_SEEDS=$${LEASEHOLD_SEEDS:-100000} $(CARGO) test --release -p leasehold-redis --lib -- quorum::protocol
	LEASEHOLD_DEPLOYMENTS=$${LEASEHOLD_DEPLOYMENTS:-50} $(CARGO) test -p leasehold --all-features --test processes
	LEASEHOLD_READERS=$${LEASEHOLD_READERS:-1000} $(CARGO) test -p leasehold --all-features --test servers -- one_release_lets_many_readers_in
	LEASEHOLD_TRYING_SECONDS=$${LEASEHOLD_TRYING_SECONDS:-60} $(CARGO) test -p leasehold --all-features --test servers -- trying --nocapture --test-threads 1
	for features in $(STORES) redis,tls etcd,tls zk,tls; do \
		$(LINTS) $(CARGO) test -p leasehold --no-default-features --features $$features --test features || exit 1; \
	done
	$(CARGO) test -p comparison --test quick
	LEASEHOLD_WATCHERS=$${LEASEHOLD_WATCHERS:-1000} $(CARGO) test -p leasehold --all-features --test servers -- a_watch_is_one_look
	LEASEHOLD_CONTEST_SECONDS=$${LEASEHOLD_CONTEST_SECONDS:-60} $(CARGO) test -p leasehold --all-features --test foreign
	LEASEHOLD_STATES=$${LEASEHOLD_STATES:-5000000} $(CARGO) test --release -p leasehold-migration --lib -- --nocapture --test-threads 1 safe

verify: test packages
	$(CARGO) deny --version >/dev/null 2>&1 || { echo "install it first: cargo install --locked cargo-deny"; exit 1; }
	$(CARGO) deny check bans licenses sources
	typos --version >/dev/null 2>&1 || { echo "install it first: cargo install --locked typos-cli"; exit 1; }
	typos

# Every package as a stranger gets it.
packages: tools
	CARGO="$(CARGO)" tests/packages

# Known faults of the crates we use, as of today: asks the advisory database, so what held yesterday may not now.
advisories:
	$(CARGO) deny check advisories

fix:
	$(CARGO) fmt --all
	$(CARGO) clippy --workspace --all-targets --all-features --fix --allow-dirty --allow-staged
	UPDATE_API=1 $(CARGO) test -p leasehold --all-features --test house api
	UPDATE_API=1 $(CARGO) test -p leasehold-cli --all-features --test cli the_manual
	UPDATE_README=1 $(CARGO) test -p leasehold --all-features --test kit readme
	UPDATE_DOCS=1 $(CARGO) test -p comparison documents

bench: tools
	$(CARGO) bench -p leasehold-core -p leasehold-file

# What each choice of features costs to build, measured here and written into docs/building.md.
building: tools
	CARGO="$(CARGO)" tests/building

# What the machine must have: Rust, a C compiler, protoc, the servers, the clients of others. As root it
# installs what is missing and says so first; with INSTALL=0 it only says so.
tools:
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing; install Rust 1.89 or later with rustup"; exit 1; }
	@CARGO="$(CARGO)" tests/testbed/install
