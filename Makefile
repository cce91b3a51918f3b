# Two commands do everything from a fresh clone: `make demo` and `make test`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Two workers: a Verilator build or a whole-network simulation fills a core each.
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test lint types clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(BIN)/.demo  ## Set up and run the main job: compile a network, run it on the simulator and on the RTL
	$(BIN)/accelc demo $(DEMO)

test: $(BIN)/.test lint types  ## Set up and run linter, type checker and all tests
	$(BIN)/pytest -n $(JOBS) $(TESTS)

lint: $(BIN)/.test  ## Run the linter
	$(BIN)/ruff check .

types: $(BIN)/.test build/types  ## Run the type checker
	$(BIN)/pyright --pythonpath $(BIN)/python --level error

# The packages lie in top-level folders but are imported as accelc.*; the type checker needs to see
# them where they are imported from.
.PHONY: build/types
build/types:
	@mkdir -p build/types/accelc
	@find build/types/accelc -type l -delete
	@ln -s $(CURDIR)/src/accelc/* build/types/accelc/
	@for folder in boards compiler hw isa sim; do ln -s $(CURDIR)/$$folder build/types/accelc/; done

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "accelc needs Python 3.11 or newer; try: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "no venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }

$(BIN)/.demo: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[sim]'
	@touch $@

$(BIN)/.test: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

clean:  ## Remove everything that was built or installed here
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .hypothesis
