# `make repro` and `make test` set up by themselves on a fresh machine; see README.md.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup repro submit retry quick test test-slow test-long lint docs profile pins bench dist clean

# uv does not read pip's own setting for local wheels. Where the setting is empty, every wheel comes from the index.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export RAY_USAGE_STATS_ENABLED := 0
# Without bytecode, importing torch and chronos takes most of a minute in every worker.
unexport PYTHONDONTWRITEBYTECODE
UV := $(shell command -v uv || echo .uv/bin/uv)
READY := .venv/.ready

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

.uv/bin/uv:
	python3 -m venv .uv
	.uv/bin/pip install --quiet uv

$(READY): pyproject.toml constraints.txt
	@if ! command -v $(UV) >/dev/null; then $(MAKE) --no-print-directory .uv/bin/uv; fi
	$(UV) venv --quiet --allow-existing --python 3.11 .venv
	$(UV) pip install --quiet --python .venv/bin/python --constraint constraints.txt --requirements pyproject.toml --all-extras --group dev
	$(UV) pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .  # the command tsfmscope
	$(UV) pip install --quiet --python .venv/bin/python --target .venv/duckdb-1.4 --no-deps 'duckdb==1.4.5'  # the tests' older client
	@touch $(READY)

setup: $(READY)  ## create the virtual environment, once

repro: $(READY)  ## run what is out of date: params.yaml -> data/results.duckdb, data/report.html
	@python -m stages.planning.dvc_folder
	@dvc repro
	@python -m tsfmscope report

# Ray's client prefers RAY_ADDRESS to the given address. A stopped job has 30 s to store its results; Ray's default is 3 s.
# They are read from the environment, where make puts what is given on its command line: they may contain quotes.
submit: export FOLDER ?= $(CURDIR)
submit: export COMMAND ?= dvc repro
submit: $(READY)  ## run a command, by default dvc repro, on the Ray cluster at ADDRESS=http://HEAD:8265 (FOLDER, COMMAND, NAME): docs/cluster.md
	@env -u RAY_ADDRESS -u RAY_API_SERVER_ADDRESS ray job submit --address "$$ADDRESS" $${NAME:+--submission-id "$$NAME"} \
	  --runtime-env-json '{"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "30"}}' -- bash -c 'cd "$$1" && \
	  export TSFMSCOPE_PYTHON="$$PWD/.venv/bin/python" PATH="$$PWD/.venv/bin:$$PATH" && eval "exec $$2"' submit "$$FOLDER" "$$COMMAND"

retry: $(READY)  ## run the failed jobs of all stages again
	@python -m tsfmscope retry

# Tests that a change of the core most likely breaks: measures, statistics, params, pipeline, schemas and queries.
QUICK := tests/tsfmscope/geometry tests/tsfmscope/ranks tests/tsfmscope/statistics tests/tsfmscope/forecasting tests/stages/config \
  tests/stages/test_pipeline.py tests/store/test_schema.py tests/store/test_answers.py tests/tsfmscope/models/test_registry.py \
  tests/test_prose.py tests/test_task_versions.py

quick: $(READY) lint  ## check lint and types, and run the tests that a change most likely breaks, in two minutes
	@OMP_NUM_THREADS=1 python -m pytest -q -n 2 --dist loadfile $(QUICK)

# Slow tests that run one at a time: they measure time, or fill the memory of the machine.
ALONE := tests/store/test_query.py tests/tasks/sweep/faults/test_nodes.py
# The longest of the others start first, so that neither of the two processes waits for the other at the end.
LONGEST := tests/e2e/ tests/test_wheel.py tests/test_additions.py tests/tasks/
PAIRED := $(LONGEST) $(filter-out $(LONGEST) %__pycache__/,$(wildcard tests/*/ tests/test_*.py))
# Files with slow tests: both processes import every file that is named. tests/conftest.py refuses slow tests elsewhere.
# One file of tests/e2e starts the smoke run; the other process has long tests of its own until the run is there.
FIRST := tests/e2e/test_damage.py tests/test_wheel.py tests/test_public_answers.py tests/test_additions.py
SLOW = $(shell for path in $(FIRST) $(LONGEST) tests; do \
  grep -rl --include='test_*.py' 'mark\.slow' $$path | sort; done | awk '!seen[$$0]++')

LINT := ruff check -q . && ruff format -q --check . && mypy && { printed=$$(lint-imports) || { echo "$$printed"; exit 1; }; }

# Lint and types take a core for two minutes; the tests run meanwhile. More threads than cores would wait by spinning.
test: $(READY)  ## check lint, types and import rules, and run the fast tests
	@{ $(LINT); } & \
	OMP_NUM_THREADS=1 python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder $(PAIRED); \
	tests=$$?; wait $$! && exit $$tests

test-slow: $(READY)  ## run the slow tests: faults, several nodes, whole pipelines, wheel
	@OMP_NUM_THREADS=1 python -m pytest -q -m 'slow and not long' -n 2 --dist loadfile --no-loadscope-reorder \
	  --durations 40 $(filter-out $(ALONE),$(SLOW))
	@python -m pytest -q -m 'slow and not long' --durations 40 $(ALONE)

test-long: $(READY)  ## run the slow tests that take too long for .ci/run
	@python -m pytest -q -m long

lint: $(READY)
	@$(LINT)

docs: $(READY)  ## build the documentation, which needs no network: site/index.html
	@python -m mkdocs build --strict >.docs.log 2>&1 || (cat .docs.log; rm -f .docs.log; exit 1); rm -f .docs.log
	@echo 'documentation: site/index.html'

profile: $(READY)  ## copy params/NAME.yaml over params.yaml (NAME=smoke, NAME=paper); FORCE=1 discards edits
	@python -m tsfmscope profile "$(NAME)" $(if $(FORCE),--force)

# pymdown-extensions, for the documentation, needs Python 3.11.5.
pins:  ## resolve constraints.txt anew
	@if ! command -v $(UV) >/dev/null; then $(MAKE) --no-print-directory .uv/bin/uv; fi
	echo 'torch==2.13.0' | $(UV) pip compile pyproject.toml --all-extras --group dev --python-version 3.11.5 \
	  --no-header --no-annotate --constraint - --output-file constraints.txt
	sed -i 's/+cpu$$//' constraints.txt

bench: $(READY)  ## run every benchmark in its quick form
	@for b in $$(grep -l "^def main" bench/*.py | xargs -n 1 basename -s .py); do python -m bench.$$b --quick || exit 1; done

dist:  ## build the sdist, and from it the wheel, into dist/
	@if ! command -v $(UV) >/dev/null; then $(MAKE) --no-print-directory .uv/bin/uv; fi
	$(UV) build --quiet --out-dir dist

clean:  ## remove everything that can be made again, except the DVC cache
	rm -rf data dist site .venv .uv
