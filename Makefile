# Needs make and Python 3.11 or newer; all else is installed into .venv by the first target run.

VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip --disable-pip-version-check --quiet install

.PHONY: help test check chaos demo demo-cluster bench api clean

help:
	@echo "make test          install what is needed and run every check: lint, types, imports, tests"
	@echo "make chaos         let 100 faults happen to a cluster that trains (SEED=1: which); keep one busy"
	@echo "make demo          train a classifier of handwritten digits"
	@echo "make demo-cluster  train it with a parameter server and two workers, one of which is killed"
	@echo "make bench         measure"
	@echo "make api           regenerate the generated files"
	@echo "make clean         remove the environment and all caches"

test check: $(VENV)/installed-dev
	@VENV=$(VENV) scripts/check

SEED := 1
FAULTS := 100

chaos: $(VENV)/installed-dev
	@$(PYTHON) -m tests.faults.clusters.chaos $(SEED) $(FAULTS)
	@$(PYTHON) -m tests.faults.clusters.busy

demo: $(VENV)/installed-demo
	@$(PYTHON) examples/digits.py $(ARGS)

demo-cluster: $(VENV)/installed-demo
	@$(PYTHON) -m headrace launch examples/parameter_server.py --ps 1 --workers 2 --restarts 1 \
	    -- --steps 2500 --kill_worker 1 $(ARGS)

bench: $(VENV)/installed-bench
	@$(PYTHON) -m bench

api: $(VENV)/installed-dev
	@$(PYTHON) scripts/generate_protos
	@$(PYTHON) scripts/generate_api
	@$(PYTHON) scripts/generate_reference

clean:
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A name on PATH may be too old, or a shim without an interpreter behind it: each candidate is run.
$(VENV)/created:
	@for candidate in python3.14 python3.13 python3.12 python3.11 python3; do \
	    if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "Creating $(VENV) with $$($$candidate --version)"; \
	        $$candidate -m venv --clear $(VENV) && touch $@; exit; \
	    fi; \
	done; \
	echo "Headrace needs Python 3.11 or newer; none was found on PATH." >&2; exit 1

$(VENV)/installed-%: pyproject.toml | $(VENV)/created
	@echo "Installing headrace[$*] into $(VENV) (the first time takes a minute or two)"
	@$(PIP) --editable '.[$*]'
	@$(PYTHON) -m compileall -q src
	@touch $@
