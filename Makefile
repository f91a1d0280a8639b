# The commands of this repository. `make` alone lists them.
#
# Everything lives in .venv, built on demand: a stamp per step in .venv/stamps says what has been done, and a step is
# done again when what it depends on changed. Missing Debian packages are installed by tools/system-packages.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

PYTHON ?= python3
# The released source of the real `nats` command that `make test-extra` drives.
NATS_COMMAND_VERSION := v0.4.0

VENV := .venv
VENV_PYTHON := $(VENV)/bin/python
STAMPS := $(VENV)/stamps
# Of `make test-debian`: beside .venv, with other versions of the libraries.
DEBIAN := build/debian-12
RESULTS := build/results
NODE := tests/clients/node
CODE := edged hub spark_ingest tests benchmarks tools setup.py

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

# Of `make run`.
PORT ?= 4222
HTTP_PORT ?= 8222
# Of `make fuzz`: how many inputs, over all targets together.
INPUTS ?= 1000000
# Of `make crash`: how many power cuts.
STATES ?= 1000000
# Of `make kill`, `make power-cut`, `make jepsen` and `make failover`: how often.
jepsen: ROUNDS ?= 20
failover: ROUNDS ?= 50
ROUNDS ?= 100
# Of `make sim`: how many clusters.
SEEDS ?= 10000
# Of `make test`, `make check` and `make bench`: passed on to pytest or to the benchmarks.
ARGS ?=

PYTEST := $(VENV_PYTHON) -m pytest

# --- for people ---

.PHONY: help
help: ## List these commands.
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: $(STAMPS)/run ## Start an edge daemon on 127.0.0.1 with its state in ./data. PORT=4222 HTTP_PORT=8222
	@mkdir -p data
	@$(VENV_PYTHON) -c 'from edged.core.twins import PURE; raise SystemExit(PURE)' || echo $(PURE_HINT)
	@printf '%s\n' '' \
	  'edged will listen on  nats://127.0.0.1:$(PORT)  and show its state on  http://127.0.0.1:$(HTTP_PORT)' \
	  '' \
	  '  with the nats command:   nats -s nats://127.0.0.1:$(PORT) sub "greet.>" &' \
	  '                           nats -s nats://127.0.0.1:$(PORT) pub greet.world hello' \
	  '                           nats -s nats://127.0.0.1:$(PORT) stream add ORDERS --subjects "orders.>" --defaults' \
	  '  with Python (nats-py):   connection = await nats.connect("nats://127.0.0.1:$(PORT)")' \
	  '  with nothing at all:     telnet 127.0.0.1 $(PORT), then type PING' \
	  '' \
	  'Configuration: tools/run.conf; every option: edged.conf.example. Ctrl-C stops it.' ''
	@exec $(VENV)/bin/edged -c tools/run.conf -p $(PORT) -m $(HTTP_PORT)

.PHONY: test
test: venv lint $(NODE)/node_modules/.stamp ## Run every test, with PyPI, Debian's packages and npm at hand.
	@mkdir -p $(RESULTS)
	@PYTHON=$(PYTHON) tools/system-packages filesystems network
	@test "$$(id -u)" = 0 || echo $(ROOT_HINT)
	@# Tests with real servers wait most of the time: those without run beside them, and are shown at the end.
	@status=0; \
	$(MAKE) --no-print-directory test-alone >$(RESULTS)/test-alone.txt 2>&1 & beside=$$!; \
	$(PYTEST) -m "real and not extra" --junitxml=$(RESULTS)/test-real.xml $(ARGS) || status=1; \
	echo "Waiting for the tests without servers, which ran beside these:"; \
	wait $$beside || status=1; \
	cat $(RESULTS)/test-alone.txt; \
	exit $$status

.PHONY: test-alone
test-alone: venv ## Run the tests that need no servers or programs, then once more those of code with a twin, in pure Python.
	@mkdir -p $(RESULTS)
	@status=0; \
	$(PYTEST) -p no:cacheprovider -m "not real and not extra" --junitxml=$(RESULTS)/test.xml $(ARGS) || status=1; \
	EDGED_PURE=1 $(PYTEST) -p no:cacheprovider -m "not extra and not slow" --junitxml=$(RESULTS)/test-pure.xml \
	  tests/core tests/server tests/store tests/lab/test_store_model.py $(ARGS) || status=1; \
	exit $$status

.PHONY: test-extra
test-extra: venv $(VENV)/bin/nats ## Run the tests that drive the real `nats` command (built through Go's module proxy).
	@mkdir -p $(RESULTS)
	$(PYTEST) -m extra --junitxml=$(RESULTS)/test-extra.xml $(ARGS)

.PHONY: test-debian
test-debian: venv $(STAMPS)/debian ## Run the fast tests with the versions of the libraries that Debian 12 ships.
	@mkdir -p $(RESULTS)
	$(DEBIAN)/bin/python -m pytest -p no:cacheprovider -m "not real and not slow and not extra" \
	  --junitxml=$(RESULTS)/test-debian.xml $(ARGS)

.PHONY: check
check: venv lint ## Before a commit: format, lint, types, tidiness and the fast tests. Under a minute.
	@# In two halves at a time and with fewer examples, so that it stays under a minute on two cores.
	@fast=(--hypothesis-profile=fast -m "not real and not slow and not extra"); status=0; \
	$(PYTEST) "$${fast[@]}" -p no:cacheprovider tests/core tests/store $(ARGS) & half=$$!; \
	$(PYTEST) "$${fast[@]}" --ignore=tests/core --ignore=tests/store $(ARGS) || status=1; \
	wait $$half || status=1; \
	exit $$status

.PHONY: lint
lint: venv ## Check format, lint and types, change nothing.
	@status=0; \
	for command in "ruff format --check $(CODE)" "ruff check $(CODE)" "mypy"; do \
	  echo "$$command"; $(VENV)/bin/$$command || status=1; \
	done; \
	exit $$status

.PHONY: format
format: venv ## Format the code, and repair what the linter can repair.
	$(VENV)/bin/ruff format $(CODE)
	$(VENV)/bin/ruff check --fix $(CODE)

.PHONY: bench
bench: venv ## Compare with nats-server on this machine. ARGS=--quick for a first look, ARGS=--help for more.
	$(VENV_PYTHON) -m benchmarks $(ARGS)

.PHONY: fuzz
fuzz: venv ## Feed random input to everything that reads foreign bytes. INPUTS=1000000 in all.
	$(VENV_PYTHON) -m tests.fuzz --inputs $(INPUTS) $(ARGS)

.PHONY: crash
crash: venv ## Cut the store's power, flip each of its bits, fail each of its file operations. STATES=1000000 cuts.
	@status=0; \
	for part in "crash --states $(STATES)" "flips --all" "failures"; do \
	  echo "python -m tests.lab $$part"; $(VENV_PYTHON) -m tests.lab $$part $(ARGS) || status=1; \
	done; \
	exit $$status

.PHONY: sim
sim: venv ## Run clusters in the simulator, with faults of every kind. SEEDS=10000
	$(VENV_PYTHON) -m tests.sim --seeds $(SEEDS) --workers 2 $(ARGS)

.PHONY: kill
kill: venv ## Kill edged while clients publish, and while they fetch and acknowledge. ROUNDS=100 times each.
	@status=0; \
	for part in kill kill_consumers; do \
	  echo "python -m tests.jetstream.$$part --rounds $(ROUNDS)"; \
	  $(VENV_PYTHON) -m tests.jetstream.$$part --rounds $(ROUNDS) $(ARGS) || status=1; \
	done; \
	exit $$status

.PHONY: power-cut
power-cut: venv ## Cut the power of ext4 and xfs below the store, and below edged and its clients. Needs root. ROUNDS=100
	@PYTHON=$(PYTHON) tools/system-packages filesystems
	@status=0; \
	for part in power-cut power-cut-consumers; do for filesystem in ext4 xfs; do \
	  $(VENV_PYTHON) -m tests.disks $$part --filesystem $$filesystem --rounds $(ROUNDS) $(ARGS) || status=1; \
	done; done; \
	exit $$status

.PHONY: jepsen
jepsen: venv ## Break clusters of the hub as Jepsen does: kills, partitions, damage, power cuts. Needs root. ROUNDS=20
	@PYTHON=$(PYTHON) tools/system-packages filesystems network
	$(VENV_PYTHON) -m tests.jepsen all --rounds $(ROUNDS) $(ARGS)

.PHONY: failover
failover: venv ## Kill the leader of a stream under load: how long publishes fail, beside nats-server. ROUNDS=50
	@for server in edged-hub nats-server; do \
	  $(VENV_PYTHON) -m benchmarks.failover --server $$server --rounds $(ROUNDS) $(ARGS); \
	done

.PHONY: venv
venv: $(STAMPS)/native ## Build .venv: the daemon, its native twin, and all that develops and tests it.

.PHONY: clean
clean: ## Remove all that make has built. ./data stays.
	rm -rf $(VENV) build dist *.egg-info $(NODE)/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f edged/core/*.so $(patsubst %.pyx,%.c,$(wildcard edged/core/_*.pyx))
	find $(filter-out setup.py,$(CODE)) -type d -name __pycache__ -prune -exec rm -rf {} +

# --- the steps behind them ---

PURE_HINT := "No native twin: edged runs in pure Python, which is slower. 'make venv' gets a compiler and builds it."

ROOT_HINT := "Not root: tests that mount filesystems or make networks (tests/disks, tests/jepsen) are skipped. 'sudo make test' runs them, too."

$(STAMPS)/venv:
	@PYTHON=$(PYTHON) tools/system-packages python venv
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# The daemon alone. The native twin is built if there is a compiler, and done without if there is none.
$(STAMPS)/run: pyproject.toml setup.py | $(STAMPS)/venv
	@echo "Installing edged and what it needs into $(VENV)"
	@$(VENV)/bin/pip install -e .
	@touch $@

# The daemon with all extras. This meets what `make run` needs, too.
$(STAMPS)/dev: pyproject.toml setup.py | $(STAMPS)/venv
	@PYTHON=$(PYTHON) tools/system-packages compiler systemd
	@echo "Installing edged, its native twin and the tools of its developers into $(VENV)"
	@EDGED_REQUIRE_NATIVE=1 $(VENV)/bin/pip install -e '.[dev,systemd]'
	@touch $(STAMPS)/run $(STAMPS)/native $@

# The installation has built the twin already; this does it again when its source changes.
$(STAMPS)/native: $(wildcard edged/core/_*.pyx) $(wildcard edged/core/_*.pxd) | $(STAMPS)/dev
	@EDGED_REQUIRE_NATIVE=1 $(VENV_PYTHON) setup.py --quiet build_ext --inplace
	@touch $@

$(STAMPS)/debian: tools/debian-12.txt pyproject.toml | $(STAMPS)/dev
	@echo "Installing the libraries of Debian 12 into $(DEBIAN)"
	@$(PYTHON) -m venv --clear $(DEBIAN)
	@$(DEBIAN)/bin/pip install -c tools/debian-12.txt -r tools/debian-12.txt \
	  pytest pytest-trio hypothesis nats-py nkeys aiohttp trustme
	@touch $@

$(NODE)/node_modules/.stamp: $(NODE)/package.json $(NODE)/package-lock.json
	@PYTHON=$(PYTHON) tools/system-packages node
	@echo "Installing the npm clients"
	@cd $(NODE) && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(VENV)/bin/nats: Makefile tools/build-nats-command | $(STAMPS)/dev
	@tools/system-packages go
	@tools/build-nats-command $(NATS_COMMAND_VERSION) $@
	@touch $@
