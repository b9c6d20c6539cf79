# `make` alone prints what there is to run. Everything happens in .venv, which `make install` fills from requirements.lock.
# A missing system package (Java, Maven, Node.js, PostgreSQL, Redis) is installed after a question, and without one where CI is set.
.DEFAULT_GOAL := help
.PHONY: help install demo test check fuzz bench lint format reference assets wheel lock clean
.DELETE_ON_ERROR:

BIN := .venv/bin

# Spark must start the workers with the Python of .venv, not with whatever `python3` is.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python

help: ## what there is to run
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 18

install: .venv/installed ## make .venv with everything (again only when the lock file changes)

demo: install java ## hub, publishers, a Spark job and its proof, in about a minute
	@$(BIN)/tidegate demo

LIGHT := not spark and not sdk and not crash and not browser

check: lint ## the fast part for people at work: lint, types, the tests without Spark and SDKs on few examples
	TIDEGATE_HYPOTHESIS=quick $(BIN)/pytest -n 2 -m "$(LIGHT)"

test: lint java javascript azurite postgres mariadb kafka artemis jdbc redis prometheus storage browser ## everything: lint, types, all tests
	$(BIN)/pytest -n 2 -m "$(LIGHT)"
	$(BIN)/pytest -m "not ($(LIGHT))"

MINUTES := 10

fuzz: install ## search for new failing examples, for MINUTES (make fuzz MINUTES=240); they land in tests/regressions
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

lint: install ## lint and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: install java ## the tables of benchmarks/
	$(BIN)/python -m benchmarks

format: install ## put the code into the form that `make check` asks for
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

assets: install frontend/node_modules/installed ## bundle the portal's scripts and styles anew, after a change in frontend/
	cd frontend && node build.mjs

reference: install ## write the generated parts of docs/reference anew
	$(BIN)/python -m scripts.reference

wheel: install ## build the wheel, and check it in a fresh environment
	rm -rf dist
	$(BIN)/hatchling build -d dist -t sdist -t wheel
	$(BIN)/python -m scripts.check_wheel

lock: install ## choose the newest versions that pyproject.toml allows
	$(BIN)/pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --upgrade --extra spark --extra capture --extra postgresql --extra kafka --extra redis --extra deltalake --extra iceberg --extra mysql --extra sqlserver --extra checkpoints --extra javascript --extra onnx --extra tracing --extra protobuf --extra dev \
	  --allow-unsafe --strip-extras --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file requirements.lock pyproject.toml

clean: ## remove .venv, caches and the demo's data
	rm -rf .venv .s3_server demo dist tests/*/jars node_modules tests/server/js/node_modules tests/azurite/node_modules tests/portal/browser/node_modules frontend/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/installed: requirements.lock pyproject.toml src/tidegate/__init__.py
	"$$(scripts/need python)" -m venv .venv
	$(BIN)/pip install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: java javascript azurite postgres mariadb kafka artemis jdbc redis prometheus storage browser
java:
	@scripts/need java

javascript: tests/server/js/node_modules/installed

tests/server/js/node_modules/installed: tests/server/js/package-lock.json
	@scripts/need node
	cd tests/server/js && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

azurite: tests/azurite/node_modules/installed

tests/azurite/node_modules/installed: tests/azurite/package-lock.json
	@scripts/need node
	cd tests/azurite && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

# A browser with what drives it, and what bundles the portal's scripts.
browser: tests/portal/browser/node_modules/installed frontend/node_modules/installed
	@scripts/need chromium

tests/portal/browser/node_modules/installed: tests/portal/browser/package-lock.json
	@scripts/need node
	cd tests/portal/browser && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

frontend/node_modules/installed: frontend/package-lock.json
	@scripts/need node
	cd frontend && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

postgres:
	@scripts/need postgres

mariadb:
	@scripts/need mariadb

redis:
	@scripts/need redis

prometheus:
	@scripts/need prometheus

# An S3 server.
storage: install
	@$(BIN)/python -m tests.s3_server

kafka: tests/kafka/jars/fetched

artemis: tests/artemis/jars/fetched

jdbc: tests/spark/jars/fetched

%/jars/fetched: %/pom.xml
	@scripts/need java maven
	mvn --quiet --batch-mode --file=$< dependency:copy-dependencies -DoutputDirectory=jars -DincludeScope=runtime
	@touch $@
