# quickstart  install and run the small offline study      check  ruff and mypy
# test        the default tests, a few minutes             test-slow  those that take longer
# schema      write grids/schema.json from the code        lint-fix   what ruff can mend
PYTHON ?= python3.11
BIN := .venv/bin

.PHONY: quickstart install check test test-slow schema lint-fix clean

quickstart: .venv/installed
	$(BIN)/python -m ray_ablation.run grids/quickstart.yaml

install: .venv/installed

.venv/installed: requirements.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --requirement requirements.txt
	touch $@

.venv/installed-dev: .venv/installed requirements-dev.txt
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.txt
	touch $@

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: .venv/installed-dev
	$(BIN)/python -m pytest -m "not slow"

test-slow: .venv/installed-dev
	$(BIN)/python -m pytest -m slow

schema: .venv/installed
	$(BIN)/python -m ray_ablation.grid_file > grids/schema.json

lint-fix: .venv/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache
