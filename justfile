set shell := ["bash", "-uc"]

# Explores the built-in suite: a table of verdicts and one counterexample.
check:
    cargo run --release -- check

# Runs every test of the workspace.
test:
    cargo test --workspace

# Explores the named scenarios, or all of them, with one thread, so that times can be compared.
suite *scenarios:
    cargo run --release -- check --threads 1 {{scenarios}}

# Formatting, clippy without warnings, the pure crate without a standard library, and the dependency rules.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo check -p kvweft-core --target wasm32v1-none --no-default-features
    cargo deny check bans licenses sources

# Builds the API documentation without warnings and, where mdbook is installed, the book.
docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
    if command -v mdbook >/dev/null; then mdbook build docs --dest-dir ../target/book; fi

# Runs the tests and rewrites every snapshot that differs: read the diff before you keep it.
snapshots:
    INSTA_UPDATE=always cargo test --workspace

# Explores every scenario that fits at the finest grain, where each cell of a copy is its own step (long).
long-finest:
    cargo run --release -- check --grain finest

# Measures the search: the suite with one thread and with all; rates go to stderr.
bench:
    cargo build --release
    time target/release/kvweft check --threads 1 >/dev/null
    time target/release/kvweft check >/dev/null

# Races the explorer against stateright and SPIN on the same systems; compiles the peers, which nothing else does.
bench-peers *args:
    cargo run --release --manifest-path tests/bench/Cargo.toml --target-dir target/bench -- {{args}}

# Races the simulator against aisimulate on the same logs; FOLDER holds the logs whole. Compiles the peer, which nothing else does.
bench-sim folder *args:
    cargo run --release --manifest-path tests/bench-sim/Cargo.toml --target-dir target/bench-sim -- {{folder}} {{args}}

# Runs the property tests and the fuzzed parsers with many more cases than `just test` does (long).
fuzz cases="100000":
    PROPTEST_CASES={{cases}} cargo test --release -p kvweft-tests
    KVWEFT_FUZZ_CASES={{cases}} cargo test --release -p kvweft-check --test scenario_fuzz
    KVWEFT_FUZZ_CASES={{cases}} cargo test --release -p kvweft-trace --test mutations

# Compares reduced searches of so many worlds by lot with whole ones, half of one engine and half of two (long).
worlds count="100000":
    KVWEFT_RANDOM_WORLDS=$(({{count}} / 2)) cargo test --release -p kvweft-check --test random_worlds -- --nocapture

# Compiles every kernel again for sm_90 and sm_120: Python with nvidia-cuda-nvrtc 13.0, no GPU.
kernels:
    python3 kernels/cu/build.py

# Checks every kernel on a GPU, and measures it; writes what it found to a file that can be sent on.
selftest report="kvweft-selftest.json":
    cargo run --release -p kvweft-cuda --example selftest -- {{report}}

# Every check of the self-test, on small shapes, under compute-sanitizer; needs a GPU.
sanitize:
    cargo build --release
    if ! command -v compute-sanitizer >/dev/null; then echo "compute-sanitizer is not there: it comes with the CUDA toolkit"; exit 1; fi
    for tool in memcheck initcheck racecheck; do compute-sanitizer --tool $tool --error-exitcode 1 target/release/kvweft selftest --small || exit 1; done

# Everything that a change must pass, in the order of the checks' cost.
ci:
    .ci/run

# Runs the whole engine on threads under shuttle with many more schedules than `just test` does (long).
shuttle schedules="200000":
    KVWEFT_SHUTTLE_SCHEDULES={{schedules}} cargo test -p kvweft-tests --test shuttle_engine -- --nocapture

# Runs every loom model without the bound on preemptions that some of them have in `just test` (long).
loom:
    KVWEFT_LOOM_UNBOUNDED=1 cargo test -p kvweft-tests --test loom_models -- --nocapture
