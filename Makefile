# Two commands do all the set-up on a fresh clone: `make demo` and `make test`. Needs Python 3.11+ and Java 17+.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
FLINK  := .venv-flink/.installed
DOCS   := $(VENV)/.docs
CORE   := $(VENV)/.core
# A worker that dies ends the tests, and its test is named. With a new one in its place the last tests can wait for ever
# (pytest-xdist 3.8, its issues 784 and 1378).
BY_FILE := -n 2 --dist loadfile --max-worker-restart 0
export POLARS_MAX_THREADS ?= 1
unexport PYTHONDONTWRITEBYTECODE  # else each of the hundreds of processes compiles all of it anew

.PHONY: install demo demo-kafka test test-fast test-heavy test-spark test-spark43 test-operations test-cluster test-kafka lint law fuzz fuzz-native bench bench-kafka bench-nexmark bench-small flink crash soak docs picture clean java

install: $(STAMP) $(CORE)

# The compiled core, where cargo is there; without it Braid does the same in Python.
$(CORE): $(STAMP) $(wildcard native/*.toml native/*.lock native/*.py native/src/*.rs)
	@$(BIN)/python native/build.py
	@touch $(CORE)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Braid needs Python 3.11 or newer: make install PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

# Checks Java; then makes the archive of classes with which Spark starts a third faster, where there is none.
java: $(STAMP) $(CORE)
	@$(BIN)/python -m braid doctor --java
	@$(BIN)/python -m braid doctor --quick-start > /dev/null || echo "Spark starts without an archive of its classes"

demo: $(STAMP) java
	@$(BIN)/python -m braid demo

# The same joins from topic to topic of a real broker, which is fetched once (tests/kafka/README.md).
demo-kafka: $(STAMP) java
	@PYTHONPATH=src:tests $(BIN)/python -m kafka.demo

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(STAMP) java
	@echo "1 of 4: lint and types"
	@$(MAKE) --no-print-directory lint
	@echo "2 of 4: tests without Spark (4 to 5 minutes)"
	@$(MAKE) --no-print-directory test-fast
	@echo "3 of 4: random histories and large inputs, without Spark (4 to 5 minutes)"
	@$(MAKE) --no-print-directory test-heavy
	@echo "4 of 4: tests on Spark, some of them with Kafka (6 to 7 minutes)"
	@$(MAKE) --no-print-directory test-spark
	@echo "kills, upgrades, rescales, copies, backups: make test-operations; a cluster: make test-cluster"

test-fast: $(STAMP) $(CORE)
	@$(BIN)/python -m pytest -m "not spark and not kafka and not objects and not heavy and not law" -n 3 --dist worksteal

test-heavy: $(STAMP) $(CORE)
	@$(BIN)/python -m pytest -m "heavy and not spark and not kafka and not objects and not law" -n 3 --dist worksteal

test-spark: $(STAMP) java
	@$(BIN)/python -m pytest -m "not operations and ((spark and not kafka and not law and not cluster) or kafka_short or objects)" $(BY_FILE) -vv -rs

# What is done to queries that have begun: they are killed, upgraded, rescaled, moved, backed up. CI runs these, too.
test-operations: $(STAMP) java
	@$(BIN)/python -m pytest -m "operations and not law and not cluster" $(BY_FILE) -vv -rs

# On a Spark cluster of three workers that share nothing but Kafka and, for now, a folder (docs/cluster.md).
test-cluster: $(STAMP) java
	@$(BIN)/python -m pytest -m cluster -n 0 -vv -rs

# The same tests on the next Spark, in an environment of its own.
test-spark43: java
	@test -x .venv43/bin/python || $(PYTHON) -m venv .venv43
	.venv43/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' 'pyspark>=4.3,<4.4'
	.venv43/bin/python -m pytest -m spark

# On a real Kafka broker and a schema registry, fetched once (tests/kafka/README.md); else skipped, with the reason.
test-kafka: $(STAMP) java
	@$(BIN)/python -m pytest -m "kafka and not law" $(BY_FILE) -rs

law: $(STAMP) java
	$(BIN)/python -m pytest -m "not kafka" --law -n 2 --dist worksteal

# Kills `braid run` N times in all ways (tests/crash), on a cluster too. A failure names its seed: make crash N=1 SEED=…
# With KAFKA=1 the topics lie on a real broker, which is killed, too; with CLUSTER=1 all rounds are on a cluster.
crash: $(STAMP) java
	PYTHONPATH=src:tests $(BIN)/python -m crash.harness $(or $(N),200) $(SEED) $(if $(KAFKA),--kafka) $(if $(CLUSTER),--cluster)

# Two joins fed for half an hour: make soak MINUTES=30. Exit 1 if memory, state or files grow. Runs niced.
soak: $(STAMP) java
	nice -n 5 $(BIN)/python -m benchmarks.soak $(or $(MINUTES),30) soak

# So many random statements, batches of records, names and command lines: make fuzz N=10000
fuzz: $(STAMP)
	$(BIN)/python -m pytest tests/test_fuzz_*.py --law --fuzz $(or $(N),10000) -n 2 --dist worksteal

# The compiled core on hostile bytes, under an address sanitizer: needs a nightly Rust and `cargo install cargo-fuzz`.
fuzz-native:
	cd native && for target in json_lines texts; do BRAID_SOURCE=fuzz cargo +nightly fuzz run $$target -- \
	  -max_total_time=$(or $(SECONDS),600) -max_len=600 -dict=fuzz/words.dict || exit 1; done

bench: $(STAMP) java
	$(BIN)/python -m benchmarks --write

# Kafka to Kafka, beside Spark's own connector; servers and jars are fetched once (tests/kafka/README.md).
bench-kafka: $(STAMP) java
	PYTHONPATH=src:tests $(BIN)/python -m benchmarks kafka kafka_avro kafka_latency --rows 1000000 --batch 500000 --write

# Flink, which Braid is measured beside, in an environment of its own (850 MB).
flink: $(FLINK)

$(FLINK):
	$(PYTHON) -m venv .venv-flink
	.venv-flink/bin/python -m pip install --quiet --disable-pip-version-check 'apache-flink>=2.3,<2.4'
	@touch $(FLINK)

# From the shell to the end, over files, with the defaults, beside Flink and Spark: an hour.
bench-nexmark: $(STAMP) java $(FLINK)
	$(BIN)/python -m benchmarks nexmark --rows $(or $(ROWS),4000000) --rounds 3 --write

bench-small: $(STAMP) java
	$(BIN)/python -m benchmarks --small

# The pages as a site with search, in build/site; a link that leads nowhere, or a page that no list has, is an error.
docs: $(DOCS)
	$(BIN)/sphinx-build -q -E -W --keep-going -b html -c docs/site . build/site
	@echo "build/site/index.html"

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $(DOCS)

# README's picture, from what the commands print now.
picture: $(STAMP) java
	PYTHONPATH=src:tests $(BIN)/python -m picture

clean:
	rm -rf $(VENV) .venv313 build braid-data .pytest_cache .mypy_cache .ruff_cache .hypothesis
