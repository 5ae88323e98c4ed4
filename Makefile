# The commands of this repository; `make` lists them.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests start hundreds of processes; where this is set each of them would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
SOURCES := crds client provider operator contract tools tests e2e

.PHONY: help setup demo test test-unit test-slow chart node test-node e2e faults faults-slow soak mutations lint format crds lock control-plane clean

help:  ## list the commands
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: $(STAMP)  ## make the virtual environment from the lock file

$(STAMP): requirements/dev.lock pyproject.toml contract/pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"Python 3.11 or newer is needed, {sys.executable} is {v.major}.{v.minor}: set PYTHON=, such as PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	  echo "No virtual environment could be made: on Debian and Ubuntu install python3-venv." >&2; exit 1; }
	@echo "Installing the locked packages into $(VENV) (about a minute the first time)"
	@$(BIN)/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements/dev.lock
	@$(BIN)/python -m pip --quiet --disable-pip-version-check install --no-deps --no-build-isolation -e . -e contract
	@touch $@

control-plane: $(STAMP)  ## build etcd, kube-apiserver and kubectl (once, about 8 minutes)
	@$(BIN)/python -m tools.controlplane build

demo: $(STAMP)  ## the whole main job, live, on a real control plane of this machine
	@$(BIN)/python -m tools.demo

test: $(STAMP)  ## unit, property, conformance and API-server tests
	@$(BIN)/python -m tools.controlplane build >/dev/null
	$(BIN)/pytest tests -m "not slow and not faults and not chart and not node" --numprocesses 2 --dist worksteal

test-unit: $(STAMP)  ## only what needs no control plane
	$(BIN)/pytest tests/unit

test-slow: $(STAMP)  ## ten thousand schedules in one minute, and its kind
	@$(BIN)/python -m tools.controlplane build >/dev/null
	$(BIN)/pytest tests -m "slow and not faults" -s

chart: $(STAMP)  ## the Helm chart, rendered and installed by Helm 3 and 4, its alerts evaluated; builds what it needs once
	@$(BIN)/python -m tools.controlplane build >/dev/null
	$(BIN)/pytest tests/chart -m "chart and not slow" --numprocesses 2 --dist loadscope

node: $(STAMP)  ## a real Kubernetes node with pods, in namespaces of its own, until Ctrl-C (root; Debian packages)
	@$(BIN)/python -m tools.node check
	@$(BIN)/python -m tools.controlplane build --node >/dev/null
	@$(BIN)/python -m tools.node up

test-node: $(STAMP)  ## start such nodes, run pods, and see that nothing of them stays (root)
	@$(BIN)/python -m tools.node check
	@$(BIN)/python -m tools.controlplane build --node >/dev/null
	$(BIN)/pytest tests/node -m node

e2e: $(STAMP)  ## the chart and all that it runs, on nodes of this machine (root) or CLUSTER=kind; HELM=3; E2E_MINUTES=n
	@export E2E_CLUSTER=$(CLUSTER) E2E_HELM=$(HELM); processes=$$($(BIN)/python -m e2e.places); \
	  $(BIN)/pytest e2e -m e2e --numprocesses $$processes --dist loadfile

faults: $(STAMP)  ## real processes, killed, frozen and cut off; SEED=n repeats a run
	@$(BIN)/python -m tools.controlplane build --faults >/dev/null
	GOGC=400 GOMAXPROCS=1 $(BIN)/pytest tests/faults -m "faults and not slow" --numprocesses 15 \
		--dist loadgroup --no-loadscope-reorder

faults-slow: $(STAMP)  ## fault tests that are left out there: an hour without hosts, a burst of 2,000, and their kind
	@$(BIN)/python -m tools.controlplane build --faults >/dev/null
	$(BIN)/pytest tests/faults -m "faults and slow" --numprocesses 6 --dist loadgroup --no-loadscope-reorder

soak: $(STAMP)  ## the random mix of faults for MINUTES=n (60), checked every ten; SEED=n repeats it
	@$(BIN)/python -m tools.controlplane build --faults >/dev/null
	$(BIN)/python -m tests.faults.soak --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED))

mutations: $(STAMP)  ## take each mechanism out in a copy and see its tests fail; NAMES="a b" for some
	@$(BIN)/python -m tools.controlplane build --faults >/dev/null
	$(BIN)/python -m tests.mutations $(NAMES)

lint: $(STAMP)  ## formatting, rules, types, import contracts, generated files
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.generated --check
	$(BIN)/python -m tools.tree_rules

format: $(STAMP)  ## format and mend what can be mended by itself
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

crds: $(STAMP)  ## write the generated files (CRDs, Roles, the chart's parts, lock files of the image, tables in docs)
	$(BIN)/python -m tools.generated

lock: $(STAMP)  ## bring the lock file up to date with pyproject.toml
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --all-extras --group dev \
	  --no-emit-index-url --no-annotate --no-header --quiet pyproject.toml --output-file requirements/dev.lock

clean:  ## remove the virtual environment and caches of this tree
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist
