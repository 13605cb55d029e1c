# Two words for a newcomer: `make demo` and `make test`. Each sets up its own environment in .venv.
PYTHON ?= python3
BIN := .venv/bin
# Two BLAS threads per test worker would fight over the cores.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

.PHONY: demo test properties format check paper bench suite experiments docs clean

demo: .venv/demo
	$(BIN)/tracelearn reproduce --scale quick --out out/quick --force

test: check
	$(ONE_THREAD) $(BIN)/pytest -n 2

# Many inputs, other ones every time; their number goes to out/properties.json. FACTOR=10 tries a quarter of them.
properties: .venv/test
	$(ONE_THREAD) HYPOTHESIS_PROFILE=deep PROPERTIES_FACTOR=$(or $(FACTOR),40) $(BIN)/pytest tests/properties

check: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

paper: .venv/demo
	$(BIN)/tracelearn reproduce --scale full --out out/paper --force

docs: .venv/docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going -q -b html docs docs/_build/html
	@echo "The documentation is at docs/_build/html/index.html"

# QUICK=1: smaller problems and few repetitions, written to out/ so that the figures of a full run stay.
bench: .venv/bench
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick --out out/bench)
	$(BIN)/python -m benchmarks.suite $(if $(QUICK),--quick --out out/bench)

# Only the comparison of all solvers on all problems, objective and gap against time.
suite: .venv/bench
	$(BIN)/python -m benchmarks.suite $(if $(QUICK),--quick --out out/bench)

# QUICK=1: smaller problems, written to out/ so that the results of a full run stay.
experiments: .venv/bench
	$(BIN)/python -m experiments.completion $(if $(QUICK),--quick)
	$(BIN)/python -m experiments.matrix_classification $(if $(QUICK),--quick)

clean:
	rm -rf .venv out

# Environments: made once, made again when the requirements change.
.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/demo: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[cli,plot]'
	@touch $@

.venv/docs: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

.venv/test: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@ .venv/demo

.venv/bench: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	@touch $@
