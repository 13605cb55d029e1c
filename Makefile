# `make demo` shows the library, `make test` checks it. Each sets up the environment it needs in .venv, once.
PYTHON ?= python3
BIN := .venv/bin
# Two BLAS threads per test worker would fight over the cores.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

.PHONY: demo test test-slow test-all bench panel docs release format clean

# The paper's experiment at a small scale, then the default search on images of digits: two minutes, two pages to open.
demo: .venv/demo
	$(BIN)/python -m experiments.demo

# What a change should pass before anybody sees it: lint, types, layers, unit tests, the examples of docstrings and pages.
test: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(ONE_THREAD) $(BIN)/pytest -n 2 -m 'not slow'

# The rest: kills, clusters, browsers, drawn inputs, the paper's experiment, other libraries. scikit-learn's checks of other
# array libraries run only where SciPy is told, before it starts, to take their arrays.
test-slow: .venv/test
	$(ONE_THREAD) $(BIN)/pytest -n 2 -m slow
	SCIPY_ARRAY_API=1 $(ONE_THREAD) $(BIN)/pytest -n 2 -k array_api tests/test_estimators.py

test-all: test test-slow

# Every measurement of docs/benchmarks.md. QUICK=1: smaller problems, written to out/ so that the results of a full run stay.
bench: .venv/bench
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick --out out/bench)
	$(BIN)/python -m benchmarks.suite $(if $(QUICK),--quick --out out/bench)

# Accuracy on real data against the field. DATA=folder adds .npz files of your own; QUICK=1 is the first three data sets.
panel: .venv/bench
	$(ONE_THREAD) $(BIN)/python -m benchmarks.panel $(if $(DATA),--data $(DATA)) $(if $(QUICK),--quick --out out/panel)

docs: .venv/docs
	$(ONE_THREAD) $(BIN)/sphinx-build --fail-on-warning --keep-going -q -b html docs docs/_build/html
	@echo "The documentation is at docs/_build/html/index.html"

# Wheel and sdist in dist/, and whether the wheel works in an environment where nothing else is.
release:
	rm -rf dist out/release
	$(PYTHON) -m venv out/release/build
	out/release/build/bin/python -m pip install --quiet build twine
	out/release/build/bin/python -m build
	out/release/build/bin/twine check --strict dist/*
	$(PYTHON) -m venv out/release/empty
	out/release/empty/bin/python -m pip install --quiet "$$(echo dist/*.whl)[cli]"
	cd out/release && empty/bin/python ../../tests/first_example.py
	out/release/empty/bin/tracelearn --version

format: .venv/test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv dist out docs/_build

# What is installed in .venv: made once, made again when the requirements change.
.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/demo: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[cli,plot]' jinja2
	@touch $@

.venv/test: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@

.venv/bench: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	@touch $@

.venv/docs: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@
