# Everything here works from a fresh clone with make and Python 3.11 or newer; `make help` lists it.

SHELL := /bin/sh
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# The first interpreter on PATH that is new enough; `make PYTHON=... install` names another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo "$$p"; break; fi; done)

# Processes that share the tests, file by file: one more than there are cores, since many tests wait for a server, a
# browser or a process of their own. make test JOBS=0 runs them in one.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1) + 1)

# The seeds that `make nightly` runs; a day number in front makes them new every night.
SEEDS ?= 0-9999

# Arguments for the command behind a target: make run ARGS="--requests 200", make test ARGS="-k window".
ARGS ?=

# The package with its core compiled, and what it is made from.
COMPILED := build/compiled
SOURCES = $(shell find core journal api tools alembic src/kvledger/__init__.py src/kvledger/py.typed -type f \
	-not -path '*/__pycache__/*')

# The tests that drive a cache, and those of replay and audit; everything else runs the same code in both.
COMPILED_TESTS = tests/property \
	$(wildcard tests/unit/test_core_*.py tests/unit/test_fingerprint*.py tests/scenario/test_scenarios_*.py) \
	tests/unit/test_closed_pools.py tests/unit/test_poisoned_pools.py tests/unit/test_same_pages.py \
	tests/unit/test_page_widths.py \
	tests/unit/test_transaction_beginnings.py tests/unit/test_workload_kv.py \
	tests/unit/test_frames.py tests/unit/test_packed.py tests/unit/test_ring.py tests/contract/test_record_apart.py \
	tests/faults/test_record_apart_ends.py \
	tests/contract/test_page_allocators.py tests/contract/test_sinks.py tests/contract/test_token_policy.py \
	tests/contract/test_timeline.py tests/contract/test_checkpoint_evidence.py \
	tests/contract/test_journal_checkpoints.py tests/contract/test_fixture_journals.py \
	tests/scenario/test_run_end_to_end.py tests/scenario/test_seed_fault.py tests/scenario/test_cli_commands.py \
	tests/scenario/test_readme.py tests/scenario/test_engine_commands.py tests/scenario/test_embed_defaults.py \
	tests/faults/test_event_boundaries.py tests/faults/test_transaction_endings.py \
	tests/faults/test_families_core.py tests/faults/test_unreadable_kv.py tests/faults/test_content_evidence.py \
	tests/faults/test_model_reads.py $(wildcard tests/faults/test_audit_*.py tests/unit/test_replay*.py) \
	tests/faults/test_tampered_journals.py tests/faults/test_honest_verdicts.py \
	tests/faults/test_pruned_evidence.py $(wildcard tests/unit/test_snapshot*.py) \
	tests/packaging/test_compiled_core.py

# Debian's way to say that installing PostgreSQL shall neither make nor start a cluster.
PG_INSTALL = mkdir -p /etc/postgresql-common && \
	{ test -e /etc/postgresql-common/createcluster.conf || \
	  echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf; } && \
	apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql

BROWSER_INSTALL = apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium

.PHONY: help install run test fuzz mutants nightly check format bench compiled test-compiled postgresql browser clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## make .venv and install the project, editable, with its development tools

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; none is on PATH (set PYTHON=...)" >&2; exit 1; }
	test -x $(BIN)/pip || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

run: install ## run a workload with journaling on, then the audit
	$(BIN)/kvledger run $(ARGS)

test: install ## run the tests, with PostgreSQL and a browser where they are there or root can install them
	@$(MAKE) --no-print-directory postgresql || echo "no PostgreSQL: its tests will be skipped" >&2
	@$(MAKE) --no-print-directory browser || echo "no browser: its tests will be skipped" >&2
	$(BIN)/pytest --numprocesses $(JOBS) --dist loadfile $(ARGS)

postgresql: ## install Debian's PostgreSQL, which the tests run a private server of
	@if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1; then :; \
	elif ! command -v apt-get >/dev/null 2>&1; then echo "no apt-get to install PostgreSQL with" >&2; exit 1; \
	elif [ "$$(id -u)" -eq 0 ]; then $(PG_INSTALL); \
	elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo -n sh -c "$(PG_INSTALL)"; \
	else echo "PostgreSQL is not installed, and only root can install it" >&2; exit 1; fi

browser: ## install Debian's chromium, which the tests look at the page with
	@if command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || \
	    command -v google-chrome >/dev/null 2>&1; then :; \
	elif ! command -v apt-get >/dev/null 2>&1; then echo "no apt-get to install chromium with" >&2; exit 1; \
	elif [ "$$(id -u)" -eq 0 ]; then $(BROWSER_INSTALL); \
	elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo -n sh -c "$(BROWSER_INSTALL)"; \
	else echo "chromium is not installed, and only root can install it" >&2; exit 1; fi

check: install ## lint, format, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## rewrite the code as `check` wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

compiled: $(COMPILED)/.built ## compile the core into build/compiled, which PYTHONPATH=build/compiled runs

$(COMPILED)/.built: $(STAMP) $(SOURCES) pyproject.toml hatch_build.py native_records.py
	rm -rf $(COMPILED) build/wheel
	KVLEDGER_COMPILE=1 $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	$(BIN)/python -m pip install --quiet --no-deps --no-index --target $(COMPILED) build/wheel/*.whl
	@touch $@

test-compiled: compiled ## run the tests of the core with the compiled one
	PYTHONPATH=$(COMPILED) KVLEDGER_REQUIRE_COMPILED=1 \
		$(BIN)/pytest --numprocesses $(JOBS) --dist loadfile -m "not interpreted" $(COMPILED_TESTS) $(ARGS)

mutants: install ## try the tests on mutants of the core and of the audit (docs/mutation.md): half an hour of one core
	$(BIN)/python -m tests.mutation.run core $(ARGS)
	$(BIN)/python -m tests.mutation.run audit $(ARGS)

nightly: install ## 10,000 simulated seeds of 2,000 operations and a soak (docs/torture.md): hours
	$(BIN)/kvledger torture sim --seeds $(SEEDS) --ops 2000 --jobs 2 $(ARGS)
	$(BIN)/kvledger torture soak --ops 2000000

# Seconds that each of the three readers is fuzzed.
SECONDS ?= 60

fuzz: install ## fuzz the readers of events, traces and Parquet, SECONDS=60 each (Linux)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,fuzz]'
	for target in event_decoder trace_reader parquet_reader; do \
		$(BIN)/python -m tests.fuzz.run $$target -max_total_time=$(SECONDS) -verbosity=0 -print_final_stats=1 || exit 1; \
	done

bench: install ## measure the cache's operations
	$(BIN)/kvledger bench ops $(ARGS)

clean: ## remove the environment, caches and build output; journals are data and stay
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
