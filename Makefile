# make quickstart   sets everything up in .venv and runs scenarios/quickstart.toml
# make test         sets everything up and runs the tests but for the slow ones; make test ARGS=--slow runs them, too, and so does
#                   a required server: make test ARGS='--require postgres -k sqlite'
#                   (--hypothesis-profile=thorough tries properties with three times as many examples, as CI does)
# make bench        prints ratios against peers and ceilings (TSBS_BIN=DIR with the peer's programs adds theirs)
# make lint         ruff and mypy
# make manipulations  changes data stored on real servers, in every layout, and prints which changes the checks find and locate
#                   (ARGS='--only MySQL --layouts innodb')
# make validation   asks 100 queries of every kind of every database and layout, and writes docs/validation.md
#                   (ARGS='--only mongodb --layouts per-value' asks one layout anew; the other columns of the page stay)
# make faults       makes 111 faults while real commands run, damages the answers of six databases in 30 runs each, and Ctrl-C at
#                   100 moments, and prints what came of each (ARGS='--damage 30', ARGS='--interrupts 60 --on DuckDB,SQLite,MariaDB')
# make kills        kills nodes of servers at 20 seeded moments each, and prints what was lost (ARGS='--times 5 --only postgres')
# make nightly      runs CI with what guards what rarely changes: all tests, as two users, faults, kills, validation (hours)
# make docstrings   prints 30 public docstrings, to be understood without the code (ARGS='--seed 7'), or whole functions (ARGS='--functions 25')
# make docs         builds the documentation site into dist/site, and looks for dead links (ARGS=--browser opens each page in Chromium, too)
# make release      builds wheel and sdist of a clean tree, tries them in empty environments, and writes checksums and an SBOM into dist/release
#                   (ARGS=--try before the changelog has its date)
# make check-install  shows that an install needs no compiler, in a fresh environment
# make lock         pins all dependencies anew

PYTHON ?= python3
UV_VERSION := 0.13.8
BIN := .venv/bin
READY := .venv/.ready

.PHONY: docs release mysql quickstart test bench lint nightly manipulations validation faults kills docstrings format check-install lock venv clean

quickstart: venv
	$(BIN)/tsbench run scenarios/quickstart.toml $(ARGS)

test: venv
	$(BIN)/python -m pytest -n 5 --dist worksteal $(ARGS)

bench: venv
	for bench in tests/benchmarks/bench_*.py; do $(BIN)/python $$bench || exit 1; done

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

nightly:
	.ci/run nightly

manipulations: venv
	$(BIN)/python -m tests.check.manipulated $(ARGS)

validation: venv
	$(BIN)/python -m tests.validation $(ARGS)

faults: venv
	$(BIN)/python -m tests.faults $(ARGS)

kills: venv
	$(BIN)/python -m tests.kills $(ARGS)

docstrings: venv
	$(BIN)/python -m tests.prose $(ARGS)

format: venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

venv: $(READY)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "tsbench needs Python 3.11 or newer; choose one with make PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $(READY)

# The driver of MySQL and MariaDB, which is compiled: needs a C compiler, pkg-config and Debian's libmariadb-dev.
mysql: venv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r .ci/mysql.lock

# The first page is README, whose links lead to docs/.
docs: venv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r .ci/docs.lock
	rm -rf dist/docs dist/site && mkdir -p dist && cp -r docs dist/docs
	sed -e 's#(docs/#(#g; s#(CONTRIBUTING.md)#(contributing.md)#; s#(CHANGELOG.md)#(changes.md)#; s#\[uPlot\]([^)]*)#uPlot#' README.md > dist/docs/index.md
	sed 's#(docs/#(#g' CONTRIBUTING.md > dist/docs/contributing.md
	sed 's#(docs/#(#g' CHANGELOG.md > dist/docs/changes.md
	sed -i 's#(../README.md#(index.md#' dist/docs/*.md
	$(BIN)/zensical build --strict
	$(BIN)/python -m tests.site $(ARGS)

release: venv
	.ci/release $(ARGS)

check-install: venv
	.ci/install-without-compiler
	.ci/install-without-compiler wheel

# A compiler must not be needed. mysqlclient is left out: it has no wheels for Linux. hdrhistogram, the tests' reference,
# has none for Linux on ARM, so that pyproject.toml excepts it there. A load worker's lock has the same versions as the whole
# one, of the packages that it needs, and hatchling, which builds tsbench itself.
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-header --no-annotate
lock: venv
	$(LOCK) --extra all --extra dev pyproject.toml -o requirements.lock
	echo hatchling | $(LOCK) --extra postgres --extra influxdb --extra mongodb --constraint requirements.lock pyproject.toml - -o .ci/worker.lock
	echo 'mysqlclient>=2.2' | $(LOCK) - -o .ci/mysql.lock
	printf 'zensical>=0.0.73,<0.1\nmkdocstrings-python>=2\n' | $(LOCK) --constraint requirements.lock - -o .ci/docs.lock
	echo 'cyclonedx-bom>=7' | $(LOCK) - -o .ci/release.lock
	echo 'chdb>=4.4,<5' | $(LOCK) --constraint requirements.lock - -o examples/plugin/requirements.lock

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis results
