# `make quickstart` and `make test` are all a fresh machine needs: Python 3.11 and make.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
# Tests start hundreds of Pythons, and none should compile all our modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quickstart test test-all test-odd test-ray test-pages test-programs check bench format clean
.DEFAULT_GOAL := help

help:
	@echo "make quickstart   set up, train a small package here and as a job"
	@echo "make test         set up and run the tests"
	@echo "make test-all     those that take long too: before a release, or when their subject changes"
	@echo "make check        lint, types, import rules"
	@echo "make bench        measure, beside plain Python and Ray"

# torch goes first and alone: pip then takes the CPU build if one is offered beside the index,
# and nothing installed later can pull another.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e '.[all]' -r requirements-dev.txt
	touch $@

quickstart: $(INSTALLED)
	@$(BIN)/python examples/quickstart.py

# Ray has an environment of its own: the server never imports it, and a pool names the Python that does.
.venv-ray/installed:
	$(PYTHON) -m venv .venv-ray
	.venv-ray/bin/pip install --quiet 'ray[default]==2.60.0'
	touch $@

# What tests need of the machine itself.
test-programs:
	@sh tests/programs.sh

# The pages have the machine to themselves: they wait for frames and keys, which three other workers would delay.
test: $(INSTALLED) .venv-ray/installed test-programs
	STOKER_RAY_PYTHON=.venv-ray/bin/python $(BIN)/python -m pytest -n 4 --dist worksteal --ignore tests/ui
	$(BIN)/python -m pytest tests/ui

# `make test` with what takes long, then as odd as it can be started, then on Ray: an hour.
test-all: export STOKER_TEST_ALL=1
test-all: test
	$(MAKE) test-odd test-ray

# A path with spaces, no HOME, no terminal, a strict umask, SIGINT ignored: the tests that could mind.
test-odd: $(INSTALLED) test-programs
	sh tests/odd.sh $(abspath $(BIN)/python)

# Every way a real Ray cluster can go wrong: half an hour. `make test` has one package on two nodes, one of them killed.
test-ray: $(INSTALLED) .venv-ray/installed
	STOKER_TEST_RAY=1 STOKER_RAY_PYTHON=.venv-ray/bin/python $(BIN)/python -m pytest tests/engines/ray tests/e2e/test_ray*.py

# The pages alone, in Chromium; part of `make test`.
test-pages: $(INSTALLED) test-programs
	$(BIN)/python -m pytest tests/ui

check: $(INSTALLED)
	$(BIN)/ruff format --check src tests bench examples
	$(BIN)/ruff check src tests bench examples
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff format src tests bench examples
	$(BIN)/ruff check --fix src tests bench examples

# Peers have an environment of their own; stoker never depends on them.
.venv-bench/bin/ray:
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet 'ray[default]==2.60.0'

bench: $(INSTALLED) .venv-bench/bin/ray
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV)
