# `make all` sets up an environment and runs the workflow; `make test` sets one up and passes the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# a process for each core, with one thread; files of tests stay together
PARALLEL := -n auto --maxprocesses 8 --dist loadfile

.PHONY: all test test-projects test-slow docs lint clean

all: $(VENV)/.installed
	. $(BIN)/activate && python -m spacy project run all

test: $(VENV)/.installed
	. $(BIN)/activate && ruff check . && ruff format --check . && mypy && OMP_NUM_THREADS=1 python -m pytest $(PARALLEL)

test-projects: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -r projects/qa/requirements.txt
	. $(BIN)/activate && OMP_NUM_THREADS=1 python -m pytest $(PARALLEL) projects

test-slow: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -r projects/qa/requirements.txt
	. $(BIN)/activate && OMP_NUM_THREADS=1 python -m pytest $(PARALLEL) -m slow && OMP_NUM_THREADS=1 python -m pytest -m slow projects

# the reference pages, from docstrings and help texts
docs: $(VENV)/.installed
	. $(BIN)/activate && python scripts/reference.py write

$(VENV)/.installed: setup.cfg pyproject.toml requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	touch $@

lint: $(VENV)/.installed
	. $(BIN)/activate && ruff check . --fix && ruff format . && mypy

clean:
	rm -rf $(VENV) build dist *.egg-info
