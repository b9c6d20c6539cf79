# `make` alone prints what there is to run. Everything happens in .venv, which `make install` fills from requirements.lock.
# A missing system package (Java, Maven, Node.js, PostgreSQL, Redis) is installed after a question, and without one where CI is set.
.DEFAULT_GOAL := help
.PHONY: help install demo test check soak fuzz bench lint format reference assets wheel lock clean
.DELETE_ON_ERROR:

BIN := .venv/bin

# Spark must start the workers with the Python of .venv, not with whatever `python3` is.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python

help: ## what there is to run
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 18

install: .venv/installed ## make .venv with everything (again only when the lock file changes)

demo: install java ## hub, publishers, a Spark job and its proof, in about a minute
	@$(BIN)/tidegate demo

# A file's tests stay together, because they share servers and Spark; tests/conftest.py begins with what takes long, and
# names the folders whose files stay together too.
# Three processes keep two cores busy, as heavy tests also wait for programs; four take as long, and time out. Light tests
# wait for the disk only, and four take a sixth less time than three.
PYTEST := $(BIN)/pytest --dist loadfile --no-loadscope-reorder -n

# What needs no order is done side by side.
SIDE_BY_SIDE := +@$(MAKE) --no-print-directory --jobs=4

check: install ## lint, types, and the tests that need nothing but Python, on few examples (two minutes)
	$(SIDE_BY_SIDE) lint light

light: compiled
	TIDEGATE_HYPOTHESIS=quick $(PYTEST) 4 -m "not heavy"

OTHERS := compiled java javascript go azurite postgres mariadb redis prometheus storage browser jars archive kafka-archive

test: ## lint, types, all tests (15 minutes)
	$(SIDE_BY_SIDE) lint $(OTHERS)
	$(PYTEST) 3

SOAK := 10

soak: ## all tests with SOAK times (10) the examples, random logs and kills, and those that run only here (a night)
	$(SIDE_BY_SIDE) install $(OTHERS)
	TIDEGATE_SOAK=$(SOAK) $(PYTEST) 3 -o faulthandler_timeout=36000 -m "soak or not soak"

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
	rm -rf .venv .s3_server demo dist tests/*/jars tests/server/java/jars tests/server/kafka/*/jars node_modules tests/server/js/node_modules tests/azurite/node_modules tests/portal/browser/node_modules frontend/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/installed: requirements.lock pyproject.toml src/tidegate/__init__.py
	"$$(scripts/need python)" -m venv --upgrade-deps .venv
	scripts/fill
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: light compiled java javascript java-client go azurite postgres mariadb kafka kafka-programs artemis jdbc jars kafka-archive redis prometheus storage browser archive
java:
	@scripts/need java

# All processes that run tests begin with the same imports at the same time, and would compile each of them.
compiled: .venv/compiled

.venv/compiled: .venv/installed
	@$(BIN)/pytest --collect-only -qq -m "not heavy" >/dev/null 2>&1 || true
	@touch $@

# The classes of Spark and of Kafka, for the quick start of their tests.
archive: java .venv/spark-classes.jsa

.venv/spark-classes.jsa: .venv/installed
	$(BIN)/python -m tests.jars

# Its jars are there by then; a make of its own sees that.
kafka-archive: java jars .venv/installed
	+@$(MAKE) --no-print-directory .venv/kafka-classes.jsa

.venv/kafka-classes.jsa: tests/kafka/jars/fetched tests/kafka/SystemTime.java
	$(BIN)/python -m tests.kafka

javascript: tests/server/js/node_modules/installed

tests/server/js/node_modules/installed: tests/server/js/package-lock.json
	@scripts/need node
	cd tests/server/js && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

java-client: tests/server/java/jars/fetched
	@scripts/need javac

go:
	@scripts/need go
	cd tests/server/go && go mod download
	cd tests/server/kafka/go && go mod download

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

kafka-programs: tests/server/kafka/java/jars/fetched tests/server/kafka/spark/jars/fetched
	@scripts/need kcat

artemis: tests/artemis/jars/fetched

jdbc: tests/spark/jars/fetched

# One after the other, because two Mavens must not write into one repository.
jars:
	+@for each in java-client kafka kafka-programs artemis jdbc; do $(MAKE) --no-print-directory $$each || exit; done

%/jars/fetched: %/pom.xml
	@scripts/need java maven
	mvn --quiet --batch-mode --file=$< dependency:copy-dependencies -DoutputDirectory=jars -DincludeScope=runtime
	@touch $@
