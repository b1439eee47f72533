# Two commands matter: `make run` and `make test`. Everything else is a part of them.
PYTHON ?= python3
BIN := .venv/bin
# In the order of the files, so that a run can be repeated; `make test-fast` takes another each time.
ORDER := --order-seed=$(or $(SEED),0) --durations=10
CACHE := --override-ini=cache_dir=.cache/pytest-
# Where a machine forbids to keep byte code, each of some hundred brokers would compile its sources again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test test-fast check docs generate setup peers format bench sim chaos chaos-pipeline lock clean

run: setup                ## a broker, an evening of events, the reference pipeline on Spark, its answers
	$(BIN)/python -m examples.behavior

test: peers check         ## everything: checks, unit, property, simulation, integration, real clients
	$(BIN)/python -m tools.side_by_side --again "--last-failed --last-failed-no-failures=none" \
	  spark $(BIN)/pytest tests/pipelines tests/docs $(ORDER) $(CACHE)spark -- \
	  live $(BIN)/pytest tests/integration $(ORDER) $(CACHE)live -- \
	  clients $(BIN)/pytest tests/clients tests/compat $(ORDER) $(CACHE)clients -- \
	  sim $(BIN)/pytest tests/sim $(ORDER) $(CACHE)sim -W error::ResourceWarning -- \
	  rest $(BIN)/pytest $(ORDER) \
	    $(addprefix --ignore=tests/,pipelines docs integration clients compat sim) \
	    -W error::ResourceWarning

test-fast: setup          ## unit tests, scenarios and properties, in about two minutes
	$(BIN)/pytest tests/unit tests/scenarios tests/properties --numprocesses=auto --durations=10 \
	  -W error::ResourceWarning

check: setup docs         ## format, lint, types, import contracts, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup               ## the site, into .cache/site; a broken link or a page without a place is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: peers              ## speed and size, as ratios to references in the same run
	$(BIN)/python -m benchmarks.load
	$(BIN)/python -m benchmarks.storage
	$(BIN)/python -m benchmarks.security
	$(BIN)/python -m benchmarks.cluster
	$(BIN)/python -m benchmarks.stalls
	$(BIN)/python -m benchmarks.clients.produce
	$(BIN)/python -m benchmarks.clients.consume
	$(BIN)/python -m benchmarks.clients.latency
	$(BIN)/python -m benchmarks.transactions
	$(BIN)/python -m benchmarks.cluster.failover
	$(BIN)/python -m benchmarks.pipelines

sim: setup                ## simulated schedules: one broker and its disk, whole clusters (SEEDS=2000)
	$(BIN)/python -m tools.simulate images --images $(or $(IMAGES),200000)
	$(BIN)/python -m tools.simulate disks --seeds $(or $(SEEDS),2000)
	$(BIN)/python -m tools.simulate clusters --seeds $(or $(SEEDS),2000)

chaos: setup              ## kill -9 under load, then all kinds of faults under a cluster and a bank (ROUNDS=200, SEEDS=2)
	$(BIN)/python -m tools.chaos --rounds $(or $(ROUNDS),200)
	$(BIN)/python -m tools.client_chaos --seconds $(or $(SECONDS),60)
	$(BIN)/python -m tools.cluster_chaos --seeds $(or $(SEEDS),2)
	$(BIN)/python -m tools.bank_chaos --seeds $(or $(SEEDS),2)

chaos-pipeline: setup     ## kill drivers, executors and brokers under a pipeline, one broker and three (KILLS=300)
	$(BIN)/python -m tools.pipeline_chaos --kills $(or $(KILLS),300)
	$(BIN)/python -m tools.pipeline_chaos --kills $(or $(KILLS),300) --brokers 3

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: setup           ## what is derived from tables and docstrings: pages, typed settings, blocking clients
	$(BIN)/python -m tools.client_options
	$(BIN)/python -m tools.blocking_faces
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.api_reference

setup: .venv/.ready

.venv/.ready: requirements/dev.lock pyproject.toml setup.py tools/setup.sh $(shell find src/headwater -name '_*.pyx' -o -name '_*.px[di]')
	PYTHON=$(PYTHON) sh tools/setup.sh
	touch $@

peers: .venv/.peers       # what tests and benchmarks compare with

.venv/.peers: .venv/.ready tools/apt-packages tools/jars.py tools/class_archive.py $(shell find tests/compat -name '*.go' -o -name '*.java' -o -name 'go.*')
	sh tools/apt-packages
	$(BIN)/python -m tests.compat.prepare
	touch $@

lock:                     ## resolve the dependencies again (needs uv)
	uv pip compile pyproject.toml --all-extras --group dev --generate-hashes --no-emit-index-url --no-header \
	  --universal --python-version 3.11 -o requirements/dev.lock

clean:
	rm -rf .venv .cache build dist *.egg-info src/*.egg-info
