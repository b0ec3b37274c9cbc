# scan2cut: `make demo` runs the bundled sample, `make test` runs lint and fast tests. Both install what they need.

VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-from-constraints
PYTEST_ARGS ?=
NIGHTLY_ARGS ?=
SAMPLE := data/sample/synthetic_apple.ply
SAMPLE_LOG := data/sample/synthetic_apple_log.json
SAMPLE_SECOND_LOG := data/sample/synthetic_apple_second_log.json

# Only pip uses the network; Prefect's database is inside the project.
export DO_NOT_TRACK := 1
export DVC_NO_ANALYTICS := 1
export PREFECT_HOME := $(CURDIR)/.prefect
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export PREFECT_SERVER_UI_V2_ENABLED := false

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all nightly lint bench dashboard clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv, install the pinned packages, initialise DVC

$(STAMP): pyproject.toml constraints.txt setup.py stages/tetrahedralize/seeded_random.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "$(PYTHON) is older than 3.11, which is required. Install Python 3.11 or run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'Installing pinned packages (takes a few minutes the first time) ...'
	$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	test -f .dvc/config || $(BIN)/python -m dvc init --quiet $$(git rev-parse --git-dir >/dev/null 2>&1 || echo --no-scm)
	git rev-parse --git-dir >/dev/null 2>&1 || $(BIN)/python -m dvc config --quiet --local core.no_scm true
	touch $(STAMP)

demo: setup ## Run all stages on the bundled synthetic sample and predict a second cut
	$(BIN)/scan2cut run $(SAMPLE) --log $(SAMPLE_LOG)
	$(BIN)/scan2cut predict synthetic_apple --log $(SAMPLE_SECOND_LOG)

lint: setup ## Check style, format, import contracts and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

test: lint ## Run lint and the fast tests
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow" $(PYTEST_ARGS)

test-all: lint ## Run lint and all tests, including slow ones
	$(BIN)/python -m pytest -q $(PYTEST_ARGS)

nightly: setup ## Run all tests, 1000 damaged inputs and 1 h of crash testing; resumable; writes build/nightly/summary.txt (hours)
	$(BIN)/python -m lab.faults.nightly $(NIGHTLY_ARGS)

bench: setup ## Measure stage times, scaling of precut, speed and memory of the simulator (minutes)
	$(BIN)/python -m lab.bench.run

dashboard: setup ## Start the Prefect dashboard at http://127.0.0.1:4200 (local access only)
	$(BIN)/scan2cut dashboard

clean: ## Remove the environment and all caches; keep data
	rm -rf $(VENV) .prefect .dvc/tmp .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build *.egg-info scan2cut_seeded_random*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
