# sparse_fairseq: `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help setup test test-gpu test-slow wheel docs lint format bench bench-gpu bench-train demo demo-inflection own explore papers clean FORCE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z<][a-z<>\/ -]*:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  make <dataset>                      all systems and seeds, from raw text to scores"
	@echo "  make <dataset>/data                 the data alone"
	@echo "  make <dataset>/<system>/seed<N>     one run (…/train, …/generate, …/score: one stage)"
	@echo "  make <dataset>/<system>/ensemble    decode with the models of all seeds"
	@echo "  make <dataset>/report               tables and figures in runs/<dataset>/report.html"
	@echo "  make <dataset>/exact                search errors and model errors, with proofs, and the report"
	@echo "  make clean-<dataset>                remove its data and runs, after a question"
	@echo "datasets: $(DATASETS)"
	@echo "options:  RAW=dir SEEDS=\"1 2 3\" EPOCHS=n GPUS=n JOBS=n LANGUAGES=\"…\" RUNS=dir DATA=dir CONFIGS=dir; make -n shows all commands"

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

# Small tensors gain nothing from threads, and lose much where the machine does other things too:
# one thread for each of two workers.
PYTEST := OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -q -n 2 --dist loadfile

test: $(INSTALLED) ## run the tests (all but the slow ones), setting up first if needed
	$(PYTEST) -m "not slow and not gpu"

test-slow: $(INSTALLED) ## run the slow tests
	$(PYTEST) -m "slow and not gpu"

wheel: $(INSTALLED) ## build the package into dist/
	$(BIN)/pip wheel -q --no-deps --no-build-isolation -w dist .

docs: $(INSTALLED) ## build the documentation as a searchable site into site/, and check its links
	$(BIN)/mkdocs build --strict -q
	@echo "to read it, with its search: python -m http.server --directory site 8000, then open http://localhost:8000"

test-gpu: $(INSTALLED) ## run the tests of the kernels on this machine's GPU (without one they fail); docs/gpu.md
	$(BIN)/python -m pytest -q -n0 -m gpu tests/gpu

lint: $(INSTALLED) ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED) ## put the code in format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# One thread, whose CPU time is counted: what else runs on the machine matters least so.
BENCH := OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m experiments.bench

bench: $(INSTALLED) bench-train ## time losses, training and decoding beside softmax and the entmax package
	$(BENCH).generation_speed
	$(BENCH).losses
	$(BENCH).attention
	$(BENCH).fused
	$(BENCH).tables

bench-gpu: $(INSTALLED) ## time the losses on this machine's GPU beside cross-entropy; docs/gpu.md
	$(BIN)/python -m experiments.bench.gpu

bench-train: $(INSTALLED) ## time updates of fairseq's trainer: a base model, a large vocabulary, the demo's model
	$(BENCH).train_speed --dim 512 --layers 6
	$(BENCH).train_speed --dim 512 --layers 6 --vocab 128000 --rounds 3
	$(BENCH).train_speed --dim 160 --ffn 320 --vocab 4000 --tokens 2048 --support 40
	$(BENCH).train_speed --dim 160 --ffn 320 --vocab 4000 --tokens 2048 --support 137
	$(BENCH).train_speed --not-fused

# Experiments. Recipes begin with +, so that `make -n` shows the commands that they would run.
PAIR ?= de-en
DATA ?= data
RUNS ?= runs
# demo.yaml is the demo in any language pair: demo_de_en, demo_fr_en ...
DEMOS := $(filter demo_%,$(foreach goal,$(MAKECMDGOALS),$(firstword $(subst /, ,$(goal)))))
# Configs of your own, in a folder of your own; `make own` writes there.
CONFIGS ?= configs
NAMES := $(basename $(notdir $(wildcard experiments/configs/*.yaml $(CONFIGS)/*.yaml)))
DATASETS := $(sort $(filter-out demo,$(NAMES)) demo_de_en $(DEMOS))
RUN := $(BIN)/python -m experiments.run
DRY_RUN := $(if $(findstring n,$(firstword -$(MAKEFLAGS))),--dry-run)
OPTIONS := $(DRY_RUN) --data-root="$(DATA)" --runs-root="$(RUNS)" \
	$(if $(RAW),--raw="$(RAW)") $(if $(SEEDS),--seeds="$(SEEDS)") \
	$(if $(EPOCHS),--epochs="$(EPOCHS)") $(if $(LANGUAGES),--languages="$(LANGUAGES)") \
	$(if $(GPUS),--gpus="$(GPUS)") $(if $(JOBS),--jobs="$(JOBS)")
# What stands on the command line; $$NAME is in the environment of many a shell.
given = $(if $(findstring command line,$(origin $(1))),$(2)="$($(1))")
OWN_CONFIGS := $(or $(if $(wildcard $(CONFIGS)/.),--configs="$(CONFIGS)"),$(call given,CONFIGS,--configs))

demo: $(INSTALLED) ## four systems on a real corpus, 20 minutes on two cores (PAIR=fr-en, EPOCHS=1)
	+@$(RUN) demo --pair="$(PAIR)" --report $(OPTIONS)

own: $(INSTALLED) ## your own text: NAME=mine PAIR=de-en TRAIN=path/train (docs/own-data.md)
	+@$(BIN)/python -m experiments.own $(call given,NAME,--name) $(call given,PAIR,--pair) \
		$(call given,TRAIN,--train) $(call given,VALID,--valid) $(call given,TEST,--test) \
		$(call given,SEGMENTATION,--segmentation) $(call given,OPERATIONS,--operations) \
		$(call given,SYSTEMS,--systems) $(call given,CONFIG,--config) \
		--configs="$(CONFIGS)" $(OPTIONS)

demo-inflection: $(INSTALLED) ## inflect French verbs, two systems, 6 minutes on two cores
	+@$(RUN) demo_inflection --report $(OPTIONS)

# A sweep over α is a figure, so it ends with the page that shows it.
.PHONY: $(DATASETS)
$(DATASETS): $(INSTALLED)
	+@$(RUN) $@ $(if $(filter %_alphas,$@),--report) $(OPTIONS) $(OWN_CONFIGS)

# <dataset>/data, <dataset>/report, <dataset>/<system>/seed<N>, <dataset>/<system>/seed<N>/<stage>
# <dataset>/exact: search errors and model errors of its runs, and the page that shows them
define dataset_targets
$(1)/exact: $(INSTALLED) FORCE
	+@$(if $(DRY_RUN),echo) $(BIN)/python -m experiments.analysis "$(RUNS)/$(1)" --only exact_search
	+@$(RUN) $(1) report $(OPTIONS) $(OWN_CONFIGS)
$(1)/%: $(INSTALLED) FORCE
	+@$(RUN) $$(subst /, ,$$@) $(OPTIONS) $(OWN_CONFIGS)
endef
$(foreach dataset,$(DATASETS),$(eval $(call dataset_targets,$(dataset))))

# The demos go by other names than their data. A script or region begins with a capital or a digit,
# and so a target language with a small letter: pt-BR-en, en-zh-Hans.
DEMO = demo_$(shell echo "$(PAIR)" | sed -E 's/^(.+)-([a-z].*)$$/\1_\2/')
clean-%: $(INSTALLED)
	@$(RUN) $(subst demo-inflection,demo_inflection,$*) $(if $(filter demo,$*),--pair="$(PAIR)") --clean $(OPTIONS)

# The page is for the demo unless NAME says which dataset's runs: NAME=multi30k_de_en.
PORT ?= 8642
explore: $(INSTALLED) ## a page that shows every possible next word, after make demo (NAME=dataset, PORT=n)
	@$(BIN)/python -m experiments.explore "$(RUNS)/$(or $(NAME),$(DEMO))" --port "$(PORT)"

papers: $(INSTALLED) ## list every table and figure of the papers, and what makes it
	@$(BIN)/python -m experiments.papers

clean: ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
