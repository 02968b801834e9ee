# Two commands do everything on a machine with Python 3.11 to 3.13, make and a C compiler:
#   make demo    set up, then compare headless and vanilla pretraining on embedded text
#   make test    set up, then run all tests

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test quick-test lint setup clean

demo: setup
	$(BIN)/h2h run demo --set name=demo-$$(date +%Y%m%d-%H%M%S)

# A process of tests for each core; a file's tests share what they set up.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

test: setup lint
	$(PYTEST)

quick-test: setup
	$(PYTEST) -m "not slow"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Not compiled: most of the modules are never imported, and those that are compile then.
setup: $(VENV)/installed

$(VENV)/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else "Python 3.11 to 3.13 is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV)
