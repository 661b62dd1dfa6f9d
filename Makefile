# Two commands on a fresh machine with Python 3.11: `make test` and (with the translation models) `make demo`.
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/installed

.PHONY: help test lint types format bench pictures clean

help:  ## say what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

test: $(STAMP) lint types  ## lint, type-check, then the whole suite
	$(BIN)/python -m pytest --numprocesses 2

lint: $(STAMP)  ## ruff, rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy, strict
	$(BIN)/mypy

format: $(STAMP)  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## side-by-side measurements; needs a quiet machine and some minutes
	$(BIN)/python -m bench.attention

pictures: $(STAMP)  ## draw the pictures of docs/ anew
	$(BIN)/python docs/pictures/draw.py

clean:  ## forget the virtual environment and all caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
