# `make repro` and `make test` set up by themselves on a fresh machine; see README.md.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup repro submit retry test test-slow test-long lint docs profile pins bench dist clean

# uv does not read pip's own setting for local wheels; where it is empty everything comes from the index.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export RAY_USAGE_STATS_ENABLED := 0
unexport PYTHONDONTWRITEBYTECODE  # without bytecode an import of torch and chronos takes most of a minute, in every worker
UV := $(shell command -v uv || echo .uv/bin/uv)
READY := .venv/.ready

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

.uv/bin/uv:
	python3 -m venv .uv
	.uv/bin/pip install --quiet uv

$(READY): pyproject.toml constraints.txt
	@if ! command -v $(UV) >/dev/null; then $(MAKE) --no-print-directory .uv/bin/uv; fi
	$(UV) venv --quiet --allow-existing --python 3.11 .venv
	$(UV) pip install --quiet --python .venv/bin/python --constraint constraints.txt --requirements pyproject.toml --all-extras --group dev
	$(UV) pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .  # the command tsfm-lens
	$(UV) pip install --quiet --python .venv/bin/python --target .venv/duckdb-1.4 --no-deps 'duckdb==1.4.5'  # the tests' older client
	@touch $(READY)

setup: $(READY)  ## the virtual environment, once

repro: $(READY)  ## run what is out of date: params.yaml -> data/results.duckdb, data/report.html
	@dvc repro
	@python -m stages done

submit: $(READY)  ## the same on the Ray cluster at ADDRESS=http://HEAD:8265 (FOLDER, PYTHON, NAME, COMMAND): docs/cluster.md
	@python -m stages submit --address "$(ADDRESS)" $(if $(FOLDER),--folder "$(FOLDER)") $(if $(PYTHON),--python "$(PYTHON)") \
	  $(if $(NAME),--name "$(NAME)") -- $(COMMAND)

retry: $(READY)  ## run again the jobs that failed for good
	@python -m stages retry

test: $(READY) lint  ## lint, types, walls and the fast tests
	@OMP_NUM_THREADS=1 python -m pytest -q -n 2 --dist loadfile  # more threads than cores wait for each other by spinning

# Slow tests of which two may run at once: those of one process each, and whole pipelines, which mostly wait for a Ray
# to start. The others start clusters of several nodes, kill processes or measure time.
BESIDE := tests/tasks/test_hostile_series.py tests/tasks/statistics tests/tasks/models tests/tasks/compression \
  tests/test_fuzz.py tests/docs tests/test_wheel.py \
  tests/e2e/test_dvc.py tests/e2e/test_hostile.py tests/e2e/test_docs.py tests/e2e/test_object_store.py

test-slow: $(READY)  ## faults, several nodes, whole pipelines, wheel
	@OMP_NUM_THREADS=1 python -m pytest -q -m 'slow and not long' -n 2 --dist loadfile --durations 40 $(BESIDE)
	@python -m pytest -q -m 'slow and not long' --durations 40 $(BESIDE:%=--ignore %)

test-long: $(READY)  ## what .ci/run has no time for
	@python -m pytest -q -m long

lint: $(READY)
	@ruff check -q .
	@ruff format -q --check .
	@mypy
	@lint-imports >.lint-imports.log || (cat .lint-imports.log; rm -f .lint-imports.log; exit 1); rm -f .lint-imports.log

docs: $(READY)  ## the documentation as pages that need no network: site/index.html
	@python -m mkdocs build --strict >.docs.log 2>&1 || (cat .docs.log; rm -f .docs.log; exit 1); rm -f .docs.log
	@echo 'documentation: site/index.html'

profile: $(READY)  ## make params.yaml the profile NAME of params/ (NAME=smoke, NAME=paper)
	@python -m stages plan params/$(NAME).yaml && cp params/$(NAME).yaml params.yaml

pins:  ## resolve constraints.txt anew
	@if ! command -v $(UV) >/dev/null; then $(MAKE) --no-print-directory .uv/bin/uv; fi
	echo 'torch==2.13.0' | $(UV) pip compile pyproject.toml --all-extras --group dev --python-version 3.11 \
	  --no-header --no-annotate --constraint - --output-file constraints.txt
	sed -i 's/+cpu$$//' constraints.txt

bench: $(READY)  ## every bench, quick
	@for b in $$(grep -l "^def main" bench/*.py | xargs -n 1 basename -s .py); do python -m bench.$$b --quick || exit 1; done

dist:  ## the sdist, and from it the wheel, into dist/
	@if ! command -v $(UV) >/dev/null; then $(MAKE) --no-print-directory .uv/bin/uv; fi
	$(UV) build --quiet --out-dir dist

clean:  ## everything that can be made again, the DVC cache apart
	rm -rf data dist site .venv .uv
