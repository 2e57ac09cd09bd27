# The two commands of the README, for a machine with Python 3.11 or newer, gcc and make:
#
#   make demo           convert photographs to tensors and back, check, time and plot it
#   make test           the test suite, with every code block of README.md and docs/, without the tests
#                       that need PyTorch, JAX or other large packages
#
# (Without gcc, the tests that run the CUDA kernels on the CPU are skipped.)
#
# For contributors (CONTRIBUTING.md):
#
#   make test-all       all tests, the longest with a part of their parameter sets
#   make test-exhaustive  all tests with every parameter set and full budgets
#   make lint           ruff, mypy, and mypy and pyright of the programs in the documentation
#   make fuzz           random conversions, sums and batches between guard pages: MOVES=100000 from SEED=1;
#                       CPU=sse2, sse4, avx2 or avx512 for the kernels of another x86-64; then
#                       damaged files of tests/corpus/ for SECONDS=60
#   make compare        the speed of this tree beside BASE=commit (default: the last release, or else
#                       the first parent of HEAD), in turns, in at most 10 minutes; QUICK=1 for 90
#                       seconds; COMPARE="--only REGEX --json FILE"
#   make test-lowest    the test suite with the lowest versions of the dependencies that
#                       pyproject.toml allows, in its own environment; PYTHON=python3.11
#   make test-arm       the tests of kernels on AArch64, in an emulator, on an x86-64 with Debian;
#                       the first run downloads 180 MB
#   make wheel          an sdist and a wheel in dist/. The wheel contains compiled kernels for this
#                       kind of machine, which takes minutes; OBJECTS=none omits them, and
#                       MACHINE=aarch64 on an x86-64 with Linux compiles for AArch64
#   make docs           the site of docs/ with a reference of every public function, in site/; fails
#                       for a broken link
#
# TESTS="tests/core docs" selects tests. EXTRA=test adds PyTorch, JAX and the rest to `make test`, and
# EXTRA=testing omits them from `make test-all`.
#
# For a machine with an NVIDIA GPU, with CUDA=12 for a driver of CUDA 12:
#
#   make first-contact  half an hour, from "is there a GPU" to "how fast is it", in eight steps with
#                       time limits, into first-contact.md; STEPS="1 2" selects steps
#   make test-gpu       kernels, streams, graphs, transfers and PyTorch on the GPU
#   make bench-gpu      conversions timed against a device copy, CuPy and PyTorch; BENCH=--quick for
#                       a quarter of the rows
#   make sanitize-gpu   every kernel family under NVIDIA's compute-sanitizer: memcheck-gpu,
#                       initcheck-gpu, racecheck-gpu and synccheck-gpu, 10 minutes at most each
#
# With SYSTEM=python3 the GPU targets use the packages of that Python and install nothing, which
# needs no network: NumPy, Numba, ml_dtypes, tqdm, CuPy and pytest; PyTorch and JAX if installed.
#
# Every other target creates .venv if there is none. One stamp file per group of packages is newer
# than pyproject.toml once they are installed, so a second run is fast.

PYTHON ?= python3
CUDA   ?= 13
# The CuPy packages for CUDA 12 and 13 conflict; the tests install the one for 13.
VENV   := .venv$(if $(filter 12,$(CUDA)),-cuda12)
LOWEST := .venv-lowest
BIN    := $(VENV)/bin
SYSTEM ?=
BENCH  ?=
BASE   ?=
QUICK  ?=
COMPARE ?=
SEED   ?= 1
MOVES  ?= 100000
CPU    ?=
SECONDS ?= 60
TESTS  ?=
EXTRA  ?=
OBJECTS ?= all
MACHINE ?=
STEPS  ?= 1 2 3 4 5 6 7 8

.PHONY: demo docs test test-all test-exhaustive test-arm test-lowest compare fuzz lint wheel clean first-contact \
  test-gpu bench-gpu sanitize-gpu memcheck-gpu initcheck-gpu racecheck-gpu synccheck-gpu

demo: $(VENV)/.demo
	@$(BIN)/python demo/demo.py

# Several processes; the tests of a file run in one of them, since they share fixtures.
PYTEST := -m pytest -n auto --maxprocesses 4 --dist loadfile $(TESTS)

test: $(VENV)/.$(or $(EXTRA),testing)
	@echo "running the tests: 8 to 14 minutes on 2 cores, half once the kernels are cached ..."
	$(BIN)/python $(PYTEST)

test-all: $(VENV)/.$(or $(EXTRA),test)
	@echo "running all tests: 35 to 45 minutes on 2 cores, less once the kernels are cached ..."
	$(BIN)/python $(PYTEST) --all

test-exhaustive: $(VENV)/.$(or $(EXTRA),test)
	@echo "running all tests with all their parameter sets: about 90 minutes on 2 cores ..."
	$(BIN)/python $(PYTEST) --exhaustive

test-arm: $(VENV)/.testing
	$(BIN)/python tests/arm/emulator.py $(TESTS)

test-lowest: $(LOWEST)/.testing
	$(LOWEST)/bin/python $(PYTEST)

# An environment is used as it is, so that a network is not needed.
compare: $(if $(wildcard $(BIN)/python),,$(VENV)/.$(or $(EXTRA),testing))
	@$(BIN)/python -m layoutkit.bench.compare $(if $(QUICK),--quick) $(COMPARE) $(BASE)

fuzz: $(VENV)/.test
	$(BIN)/python -m tests.helpers.fuzz --seed $(SEED) --moves $(MOVES) --cpu "$(CPU)"
	$(BIN)/python -m tests.helpers.fuzz --kind foreign --seed $(SEED) --moves 5000 --kernels 200
	$(BIN)/python -m tests.helpers.fuzz_files --seed $(SEED) --seconds $(SECONDS)

ifeq ($(SYSTEM),)
GPU_PYTHON := $(BIN)/python
GPU_NEEDS  := $(VENV)/.testing $(VENV)/.jax $(VENV)/.torch $(VENV)/.cuda$(CUDA)
BENCH_NEEDS := $(VENV)/.bench $(VENV)/.cuda$(CUDA)
else
GPU_PYTHON := $(SYSTEM)
endif
GPU_TESTS := $(GPU_PYTHON) -m pytest

first-contact: $(GPU_NEEDS)
	$(GPU_PYTHON) tests/gpu/first_contact.py --report first-contact.md --steps $(STEPS)

test-gpu: $(GPU_NEEDS)
	$(GPU_TESTS) -s -ra --durations=10 $(or $(TESTS),tests/gpu)

# The type checkers need every package that the code and the pages import.
lint: $(VENV)/.test $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python lint/programs.py

docs: $(VENV)/.docs
	$(BIN)/zensical build --strict --clean
	@cd docs && find . -name '*.md' -exec cp --parents -t ../site {} +  # the links of llms.txt
	@echo "open site/index.html"

# `build` makes the wheel from the sdist, in an isolated environment.
wheel: $(VENV)/.wheel
	LAYOUTKIT_OBJECTS="$(OBJECTS)" LAYOUTKIT_MACHINE="$(MACHINE)" $(BIN)/python -m build --outdir dist .
	@ls -l dist

bench-gpu: $(BENCH_NEEDS)
	$(GPU_PYTHON) -m layoutkit bench $(BENCH) --device cuda --json bench-gpu.json --plot bench-gpu.png

# Small arrays, since a kernel takes a hundred times as long under these tools. The memory pools of
# CuPy and PyTorch are disabled, because the tools do not see the arrays inside a pool's blocks.
SMALL    := $(GPU_PYTHON) -m pytest -v -x tests/gpu/test_small.py
NO_POOLS := LAYOUTKIT_TEST_POOL=off PYTORCH_NO_CUDA_MEMORY_CACHING=1
SANITIZE := $(NO_POOLS) timeout 480 compute-sanitizer --target-processes all --error-exitcode 1

sanitize-gpu: memcheck-gpu initcheck-gpu racecheck-gpu synccheck-gpu

# Out-of-bounds and misaligned accesses; reads of uninitialized memory; shared-memory races; barriers
# that some threads do not reach.
memcheck-gpu initcheck-gpu racecheck-gpu synccheck-gpu: %-gpu: $(GPU_NEEDS)
	$(SANITIZE) --tool $* $(SMALL)

clean:
	rm -rf $(VENV) .venv-* build dist site *.egg-info demo/output .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.base:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "layoutkit needs Python 3.11 or newer; name one with: make PYTHON=python3.11" >&2; exit 1; }
	@echo "making a virtual environment in $(VENV): some seconds ..."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# What pip installs; it prints nothing meanwhile.
ABOUT_demo   := NumPy, Numba, matplotlib, Pillow and scikit-learn (100 MB): about 1 minute
ABOUT_test   := NumPy, Numba, pytest and the rest; PyTorch too, if it is not there, which for Linux \
  is some GB with CUDA (docs/dependencies.md says how to have a small one): minutes
ABOUT_jax    := JAX: about 1 minute
ABOUT_torch  := PyTorch, which for Linux is some GB with CUDA: minutes
ABOUT_testing := NumPy, Numba, pytest and the rest: about 1 minute
ABOUT_lint   := ruff, mypy and pyright: a minute
ABOUT_docs   := NumPy, Numba, Zensical and mkdocstrings: about 1 minute
ABOUT_bench  := matplotlib, OpenCV and PyTorch, which for Linux is some GB: minutes
ABOUT_cuda12 := CuPy and NVIDIA's compiler: about 1 minute
ABOUT_cuda13 := $(ABOUT_cuda12)

# Editable, so that changes to the code take effect without a new installation.
$(VENV)/.%: pyproject.toml | $(VENV)/.base
	@echo "installing into $(VENV): $(ABOUT_$*) ..."
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable ".[$*]"
	@touch $@

# "numpy>=2.2.5" in `dependencies` becomes "numpy==2.2.5"; the packages of the tests are the newest
# that are compatible.
$(LOWEST)/.testing: pyproject.toml
	@echo "installing into $(LOWEST), the lowest versions: $(ABOUT_testing) ..."
	$(PYTHON) -m venv $(LOWEST)
	sed -n '/^dependencies = /,/^]/s/^ *"\(.*\)>=\(.*\)",$$/\1==\2/p' $< > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --disable-pip-version-check --quiet \
	  --constraint $(LOWEST)/lowest.txt --editable ".[testing]"
	@touch $@
