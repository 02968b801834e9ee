# On a machine with Python 3.11 to 3.13 and make:
#   make demo      set up, then compare headless and vanilla pretraining on embedded text
#   make test      set up for development, then run linters, type checks and the tests of some minutes
#   make test-all  the same with the longest tests: chaos, fresh installations, thousands of fuzzed inputs
#   make docs      build the documentation into site/

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Setuptools warns of every editable installation.
PIP := PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
# A process of tests for each core; a file's tests share what they set up.
SIDE_BY_SIDE := -n auto --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-all lint docs clean

demo: $(VENV)/installed
	$(BIN)/h2h run demo --set name=demo-$$(date +%Y%m%d-%H%M%S)

test: lint
	$(PYTEST) $(SIDE_BY_SIDE) -m "not slow"

# The slow ones one after the other: beside a cluster that starts, another's nodes do not answer in time, and are lost.
test-all: lint
	H2H_HISTORIES=10000 $(PYTEST) $(SIDE_BY_SIDE) -m "not slow"
	$(PYTEST) -m slow

lint: $(VENV)/developing docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks/cluster.py
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/developing
	$(BIN)/mkdocs build --strict --quiet

# Not compiled: most of the modules are never imported, and those that are compile then. With a new pip: that of
# Python 3.11 takes half as long again. (A Python without pip has at least ensurepip.) On GPUs trials run by Ray Train,
# which needs all of Ray.
$(VENV)/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else "Python 3.11 to 3.13 is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv --without-pip $(VENV)
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --no-compile pip || $(BIN)/python -m ensurepip
	$(PIP) --no-compile -e '.$(if $(shell command -v nvidia-smi 2>/dev/null),[cluster])'
	touch $@

$(VENV)/developing: $(VENV)/installed
	$(PIP) -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) site
