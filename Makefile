# sparse_fairseq: `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help setup test test-slow lint format bench bench-train clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## create .venv and install the pinned dependencies

# The order matters: fairseq-fixed and fastBPE are built from source, and an isolated build would
# fetch another torch or fail.
$(INSTALLED): requirements.txt pyproject.toml
	@PYTHON="$(PYTHON)" CXX="$(CXX)" sh .ci/preflight
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c requirements.txt torch
	$(BIN)/pip install -q -c requirements.txt cython numpy setuptools wheel
	$(BIN)/pip install -q --no-build-isolation -r requirements.txt
	$(BIN)/pip install -q --no-build-isolation --no-deps -e .
	@touch $@

# Small tensors gain nothing from threads, and lose much where the machine does other things too.
PYTEST := OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -q

test: $(INSTALLED) ## run the tests (all but the slow ones), setting up first if needed
	$(PYTEST) -m "not slow and not gpu"

test-slow: $(INSTALLED) ## run the slow tests
	$(PYTEST) -m "slow and not gpu"

lint: $(INSTALLED) ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED) ## put the code in format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED) ## time losses, training and decoding beside softmax and the entmax package
	$(BIN)/python -m experiments.bench.losses
	$(BIN)/python -m experiments.bench.fused
	$(BIN)/python -m experiments.bench.train_speed
	$(BIN)/python -m experiments.bench.train_speed --not-fused
	$(BIN)/python -m experiments.bench.generation_speed

bench-train: $(INSTALLED) ## time fairseq-train for a base model, a large vocabulary and a small model
	$(BIN)/python -m experiments.bench.train_speed --dim 512 --layers 6
	$(BIN)/python -m experiments.bench.train_speed --vocab 128000
	$(BIN)/python -m experiments.bench.train_speed --dim 192 --ffn 384 --vocab 4000 --tokens 2048

clean: ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
