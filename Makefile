.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test check fmt docs bench chaos proof example-catalog example-payment clean
help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{ printf "  make %-16s %s\n", $$1, $$2 }'

.venv/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tenure needs Python 3.11 or newer: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "setting up .venv (once, about a minute) ..."
	@$(BIN)/pip install -q --upgrade "pip>=25.1"
	@$(BIN)/pip install -q -e '.[embedded,reload]' --group dev
	@touch $@

demo: .venv/.ready ## watch real work go through the queue while a worker is killed (10 to 20 seconds)
	@$(BIN)/tenure demo

example-catalog: .venv/.ready ## export and deliver a course catalogue while workers are killed (10 to 20 seconds)
	@$(BIN)/python -m examples.catalog_export.run

example-payment: .venv/.ready ## pay through a provider that fails after the work, while a worker is killed (about 10 seconds)
	@$(BIN)/python -m examples.payment.run

test: .venv/.ready ## run the tests (embedded PostgreSQL 18, and 15 where it is found)
	$(BIN)/pytest

check: .venv/.ready ## formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: .venv/.ready ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/.ready ## build the documentation as a site, into site/
	$(BIN)/mkdocs build --quiet --clean

bench: .venv/.ready ## how fast one worker process is on this machine (about half a minute)
	@$(BIN)/tenure bench process

KILLS ?= 200
POINTS ?=
SEEDS ?= 1
SECONDS ?= 60
PARTS ?=
INTO ?= chaos-results
chaos: .venv/.ready ## the long part of the proof: kills, chaos, planted bugs (an hour or two on two cores; KILLS=5 SECONDS=20 is shorter)
	@$(BIN)/python -m tests.chaos.record $(PARTS) --kills "$(KILLS)" --points "$(POINTS)" --seeds "$(SEEDS)" --seconds "$(SECONDS)" \
		--into "$(INTO)"; ended=$$?; test $$ended -le 1 || exit $$ended; \
	$(BIN)/python -m tests.proof.page --recorded "$(INTO)" && exit $$ended

proof: .venv/.ready ## write docs/proof.md anew, of the runs that are recorded in proof/recorded
	@$(BIN)/python -m tests.proof.page

clean: ## remove the virtual environment and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis site chaos-results
