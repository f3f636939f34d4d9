# Everything here works from a fresh clone with make and Python 3.11 or newer; `make help` lists it.

SHELL := /bin/sh
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# The first interpreter on PATH that is new enough; `make PYTHON=... install` names another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo "$$p"; break; fi; done)

# Arguments for the command behind a target: make run ARGS="--requests 200", make test ARGS="-k window".
ARGS ?=

.PHONY: help install run test check format bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## make .venv and install the project, editable, with its development tools

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; none is on PATH (set PYTHON=...)" >&2; exit 1; }
	test -x $(BIN)/pip || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

run: install ## run a workload with journaling on, then the audit
	$(BIN)/kvledger run $(ARGS)

test: install ## run the tests
	$(BIN)/pytest $(ARGS)

check: install ## lint, format, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## rewrite the code as `check` wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install ## measure the cache's operations
	$(BIN)/kvledger bench ops $(ARGS)

clean: ## remove the environment, caches and build output
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
