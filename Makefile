# Every target makes its own environment, .venv in the checkout, the first time.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Bytecode is kept also where a container's settings say no: each part of the tests, each script and each of Ray's processes would
# compile again what it imports.
unexport PYTHONDONTWRITEBYTECODE
ON_GAUDI := $(shell $(PYTHON) -c "import importlib.util; print(importlib.util.find_spec('habana_frameworks') is not None)" 2>/dev/null)

.PHONY: help setup demo demo-hpu examples check test test-shared-ray test-own-rays test-own-rays-rest test-servers test-processes services test-quick-sweep test-quick-rest lint audit docs ui server benchmarks scoreboard faults versions constraints clean

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## Make the environment, .venv, and do nothing else

demo: $(READY) ## Tune BERT on this machine: 16 trials, offline, minutes
	$(BIN)/python experiments/tune_bert.py

demo-hpu: $(READY) ## The same on a stand-in for four HPUs, two per trial: habana's code path, computed on the CPU
	PYTHONPATH=$(CURDIR)/tests/stand_in HABANA_STAND_IN_MODULES=4 $(BIN)/python experiments/tune_bert.py \
		--recipe sample --workers-per-trial 2 --num-samples 6

examples: $(READY) ## Tune twelve loops that others wrote (docs/examples), on the CPU, minutes
	$(BIN)/python docs/examples/run_all.py

check: $(READY) ## Check style and types, and run the tests that start no process: about a minute
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint test-quick-sweep test-quick-rest

test: services $(READY) ## Run all tests; installs PostgreSQL, Chromium and a C++ compiler if they are missing
	$(MAKE) --no-print-directory --jobs=4 test-shared-ray test-own-rays test-servers test-own-rays-rest test-processes test-quick-rest test-quick-sweep

lint: $(READY) ## Check style, names and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.tools.style
	$(BIN)/mypy

# Parts of the tests, four at a time, the longest first: those that share a Ray, those that start their own, those that
# start servers, browsers and other processes, and the quick ones. Ray and servers wait a lot: more parts run than there are cores.
# Only "test" asks for the services: a part that waited for them would let a short one begin before it.
test-shared-ray: $(READY)
	$(BIN)/python -m pytest -m "workers and not own_ray"
test-own-rays: $(READY)
	$(BIN)/python -m pytest -m own_ray tests/on_ray tests/plan
test-own-rays-rest: $(READY)
	$(BIN)/python -m pytest -m own_ray --ignore=tests/on_ray --ignore=tests/plan
test-servers: $(READY)
	$(BIN)/python -m pytest -m "processes and not workers and not own_ray" tests/show tests/devices tests/private
test-processes: $(READY)
	$(BIN)/python -m pytest -m "processes and not workers and not own_ray" --ignore=tests/show --ignore=tests/devices --ignore=tests/private
services:
	tests/helpers/install_services.sh
test-quick-sweep: $(READY)
	$(BIN)/python -m pytest -m "not workers and not processes" tests/sweep tests/show tests/cli
test-quick-rest: $(READY)
	$(BIN)/python -m pytest -m "not workers and not processes" --ignore=tests/sweep --ignore=tests/show --ignore=tests/cli

audit: $(READY) ## Look the pinned versions up among the known vulnerabilities (needs PyPI itself; a mirror tells nothing)
	$(BIN)/uv tool run pip-audit --strict --disable-pip --no-deps --requirement constraints.txt

docs: $(READY) ## Build the documentation as a site with a search, build/site (Python 3.11 or later)
	rm -rf build/site
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env -c docs -d build/doctrees . build/site
	@echo "open file://$(CURDIR)/build/site/index.html"

PORT = 5000
ui: $(READY) ## Open MLflow on the local store: http://127.0.0.1:5000 (make ui PORT=5001: another port)
	mkdir -p mlflow/store
	MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false $(BIN)/mlflow ui --workers 1 --host 127.0.0.1 --port $(PORT) --backend-store-uri sqlite:///$(CURDIR)/mlflow/store/mlflow.db \
		--default-artifact-root $(CURDIR)/mlflow/store/artifacts

server: $(READY) ## Start the team's MLflow server on this machine: PostgreSQL, passwords (mlflow/README.md)
	mlflow/server.sh

benchmarks: $(READY) ## Measure trial turnaround, memory, the cost of tracking, about 12 minutes
	$(BIN)/python tests/tools/benchmarks/trial_turnaround.py
	$(BIN)/python tests/tools/benchmarks/memory.py
	$(BIN)/python tests/tools/benchmarks/tracking.py

scoreboard: $(READY) ## Compare search strategies in simulated sweeps; SEEDS=1 for a few minutes, TABLES=DIR for other tables, RIVALS=all for rivals that uv installs
	$(BIN)/uv pip install --quiet --python $(BIN)/python onnxruntime
	$(BIN)/python tests/tools/benchmarks/scoreboard.py $(TABLES:%=--tables %) $(SEEDS:%=--seeds %) $(if $(RIVALS),--rivals $(RIVALS))

faults: $(READY) ## Do 32 kinds of harm to running sweeps, 5 times each, two hours; two kinds want root's rights
	$(BIN)/python -m tests.tools.faults

versions: $(READY) ## Test with 26 sets of versions of Python, Ray, Optuna, MLflow, torch and trainers, each in its own environment, hours
	$(BIN)/python -m tests.tools.versions

constraints: $(READY) ## Resolve the versions in constraints.txt again, for Python 3.10 to 3.13
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.10 --upgrade \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links --quiet --output-file constraints.txt
	sed -i "1i # Versions that install together (make constraints) with Python 3.10 to 3.13. make test runs with 3.11, make versions with all." constraints.txt

clean: ## Remove the environment and caches; results and the MLflow store stay
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache *.egg-info

ifeq ($(ON_GAUDI),True)
# Intel's container: its torch, torchvision and habana packages stay as they are; the rest is that of constraints.txt.
$(READY): pyproject.toml constraints.txt
	deploy/install_on_gaudi.sh $(PYTHON) .venv --quiet --editable '.[test,lint]'
	touch $@
else
$(READY): pyproject.toml constraints.txt
	@echo "installing into .venv, which takes some minutes the first time"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[test,lint]'
	-$(BIN)/python -m pytest --collect-only --quiet > /dev/null  # compiles what is imported here, a quarter of all files
	touch $@
endif
