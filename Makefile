# make run     a virtual environment, the project in it, `preflight run --nproc 4`
# make check   the inner loop: lint, types, and the tests that start nothing and wait for nothing
# make test    what the tests need, lint, all tests but those that take minutes: `make faults`
# make lint · make bench · make coverage · make clean
# make readme  what README.md shows of the program: real screens, with the lab of the tests and torch
# make readme-tables   only its tables and --help, for a new check or flag: no lab, no torch
# make faults  every fault of the tests, beside torchrun: writes docs/detection.md, half an hour,
#              then every training script of tests/rehearse: docs/rehearsals.md; and the tests that
#              CI leaves out for the minutes that they take, marked `at_length`
# make compat  the same scripts and `run` with each torch that people have, CUDA wheels among them:
#              writes docs/compatibility.md, 20 minutes and 6 GB for each; ONLY="2.6.0 cuda"
# make healthy 200 runs of jobs with nothing wrong: is anything found?
# make docs    the documentation: build/site, searched offline, links checked; build/preflight.1
# make demos   the saved reports of `preflight demo`: root, torch, some minutes
# make gpu     on a machine with GPUs: figures, and the tests that need one: writes docs/measured.md
# make fuzz    what peers, ranks, machines, logs, settings and saved reports may say: an hour of
#              tests/fuzz
# make chaos   1,000 runs to which something happens at a random moment: writes docs/chaos.md, three
#              hours; RUNS=100 SEED=2
# make ended   500 runs of every command ended by each of four signals: writes docs/ended.md; RUNS=2000
# make scale   256, 512 and 1,024 agents on this machine: ten minutes, 16 GiB
#
#   PYTHON=python3.12                      otherwise the first that is new enough
#   TORCH="torch==2.13.0 --index-url …"    another torch: arguments of `pip install`; empty: none
#   SIMULATED=12500                        for `make scale`: a real host, so many simulated nodes
#   AGENTS="256 512"                       for `make scale`; RUNS=60 for `make healthy`
#   FUZZ=2000                              examples of each fuzzer; 20,000 take about an hour
#   FAULTS="--no-torchrun firewall"        for `make faults`: only what has these words in its name
#   ARGS="--level quick"                   more for `preflight run`, PYTEST_ARGS for pytest

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PIN := $(shell sed -n 's/^\(torch==[^ ]*\).*/\1/p' constraints.txt)
TORCH ?= $(PIN)
PYTHONS := python3.11 python3.12 python3.13 python3.14 python3.10 python3
# worksteal: the slow tests follow each other, and would otherwise all fall to one process; four,
# since most of a slow test is waiting, on two cores as well
PYTEST_ARGS ?= -n 4 --dist worksteal

# The environment is as new as its stamp: a second `make run` starts no pip. It is stale when the
# project's metadata, the pins or TORCH have changed.
READY := $(VENV)/.ready
TESTABLE := $(VENV)/.testable
LAST_TORCH := $(shell cat $(READY) 2>/dev/null || echo none yet)
ifneq ($(strip $(TORCH)),$(strip $(LAST_TORCH)))
$(READY): CHANGED
endif

# Images of containers set it; every process of the tests would compile what it imports, each time
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run check test lint bench coverage faults healthy compat gpu scale readme readme-tables
.PHONY: chaos ended fuzz clean cuda debian demos docs CHANGED

run: $(READY)
	@$(BIN)/preflight run --nproc 4 $(ARGS)

test: $(TESTABLE) debian lint cuda
	$(BIN)/python tools/suite.py $(PYTEST_ARGS)

# rehearsals read other recorders in a torch with CUDA, GPU or not
cuda: $(TESTABLE)
	@$(BIN)/python tools/cuda_wheel.py $(VENV)-cuda

# tests/conftest.py says what is slow
check: lint
	$(BIN)/python -m pytest -q -n 2 -m 'not slow and not gpu' tests/unit tests/checks tests/test_*.py

lint: $(TESTABLE)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# of the fast tests, in one process: a worker that is killed or replaced keeps no figures
coverage: $(TESTABLE)
	$(BIN)/coverage run -m pytest -q -m 'not slow and not gpu' tests/unit tests/checks tests/test_*.py
	$(BIN)/coverage report

bench: $(READY)
	@$(BIN)/python bench/bench.py
	@$(BIN)/python bench/overhead.py

faults: $(TESTABLE) debian
	$(BIN)/python tools/detection.py $(FAULTS)
	@$(if $(FAULTS),,$(BIN)/python tools/rehearsals.py)
	@$(if $(FAULTS),,$(BIN)/python -m pytest -q -m at_length)

compat: $(TESTABLE)
	$(BIN)/python tools/compatibility.py $(ONLY)

# without their bound in time: a test of the suite has two minutes
fuzz: $(TESTABLE)
	FUZZ=$(or $(FUZZ),20000) $(BIN)/python -m pytest -q -n 2 --timeout 0 tests/fuzz

chaos: $(TESTABLE) debian
	$(BIN)/python tools/chaos.py --seed $(or $(SEED),1) $(RUNS)

ended: $(TESTABLE)
	$(BIN)/python tools/ended.py --seed $(or $(SEED),1) $(RUNS)

healthy: $(TESTABLE) debian
	$(BIN)/python tools/healthy.py $(RUNS)

docs: $(TESTABLE)
	$(PIP) install -r docs/requirements.txt
	NO_MKDOCS_2_WARNING=1 $(BIN)/python tools/documentation.py

demos: $(TESTABLE) debian
	$(BIN)/python tools/demos.py

# a machine that can't install anything: python tools/measured.py, with what it has
gpu: $(TESTABLE)
	$(BIN)/python tools/measured.py

scale: $(READY)
	@$(BIN)/python $(if $(SIMULATED),bench/many.py $(SIMULATED),bench/scale.py $(AGENTS))

readme: $(READY)
	$(BIN)/python tools/readme.py

readme-tables: $(READY)
	$(BIN)/python tools/readme.py --tables

clean:
	rm -rf $(VENV) $(VENV)-cuda build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

# the lab of the tests: what is missing, where we may
debian:
	@sh tools/debian.sh

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	@rm -f $(READY) $(TESTABLE)
	@grep -v '^torch=' constraints.txt >$(VENV)/constraints.txt
	@# torch first and alone: an index that is meant for torch need not have anything else
	@set -f; torch='$(strip $(TORCH))'; echo "torch: $${torch:-none}"; \
	  if test -n "$$torch"; then $(PIP) install $$torch; else $(PIP) uninstall -y torch; fi
	$(PIP) install -c $(VENV)/constraints.txt -e . $(if $(strip $(TORCH)),numpy)
	@echo '$(strip $(TORCH))' >$@

$(TESTABLE): $(READY)
	$(PIP) install -c $(VENV)/constraints.txt -e '.[test]'
	@touch $@

# python3.11 may be a shim that only complains, and Debian's python3 may lack ensurepip: ask each
$(BIN)/python:
	@for python in $(or $(PYTHON),$(PYTHONS)); do \
	  "$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' \
	    2>/dev/null || continue; \
	  echo "$$python -m venv $(VENV)"; \
	  exec "$$python" -m venv --clear $(VENV); \
	done; \
	echo "no Python >= 3.10 with venv among: $(or $(PYTHON),$(PYTHONS))" >&2; \
	echo "Debian, Ubuntu: apt-get install python3-venv; or name one: make PYTHON=…" >&2; \
	exit 1
