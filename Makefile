# The two commands of the README, on a machine that has Python 3.11 or newer, gcc and make:
#
#   make demo    photographs -> tensors -> back, checked and timed, with a picture
#   make test    the test suite, every code block of README.md and docs/ included
#
# (gcc is for tests of the CUDA kernels on the CPU, which are skipped without it.)
#
# For more of what the tests do in part:
#
#   make fuzz           random conversions and sums between guard pages: MOVES=100000 of SEED=1;
#                       CPU=sse2, sse4, avx2 or avx512 for the kernels of another x86-64
#
#   make test-lowest    the test suite with the lowest versions that pyproject.toml allows of what
#                       layoutkit needs to run, in a venv of its own; PYTHON=python3.11
#
#   make wheel          an sdist and a wheel in dist/, the wheel with compiled kernels for this kind of
#                       machine, which takes minutes; OBJECTS=none for one without
#
#   make docs           a site of docs/ with a reference of every public function, in site/; an error
#                       where a link leads nowhere
#
# TESTS="tests/core docs" runs some of the tests only, and EXTRA=testing all but those that need
# PyTorch and JAX.
#
# And on one that has an NVIDIA GPU, with CUDA=12 for a driver of CUDA 12:
#
#   make first-contact  the first hour: from "is there a GPU" to "how fast is it", in seven steps with
#                       limits of time, into first-contact.md; STEPS="1 2" for some of them
#   make test-gpu       kernels, streams, graphs, transfers and PyTorch on the GPU
#   make bench-gpu      conversions timed beside a device copy, CuPy and PyTorch; BENCH=--quick for
#                       a quarter of them
#   make sanitize-gpu   every family of kernels under NVIDIA's compute-sanitizer: memcheck-gpu,
#                       initcheck-gpu, racecheck-gpu and synccheck-gpu, of 10 minutes at most each
#
# With SYSTEM=python3 these use the packages that this Python has, and install nothing, which
# needs no network: NumPy, Numba, ml_dtypes, tqdm, CuPy and pytest; PyTorch and JAX if they are there.
#
# Each of the others builds .venv from nothing when it is not there. A stamp file for each group of
# packages is newer than pyproject.toml once they are installed, so a second run is quick.

PYTHON ?= python3
CUDA   ?= 13
# CuPy for CUDA 12 and that for 13, which the tests bring, do not go together.
VENV   := .venv$(if $(filter 12,$(CUDA)),-cuda12)
LOWEST := .venv-lowest
BIN    := $(VENV)/bin
SYSTEM ?=
BENCH  ?=
SEED   ?= 1
MOVES  ?= 100000
CPU    ?=
TESTS  ?=
EXTRA  ?= test
OBJECTS ?=
STEPS  ?= 1 2 3 4 5 6 7

.PHONY: demo docs test test-lowest fuzz lint wheel clean first-contact test-gpu bench-gpu \
  sanitize-gpu memcheck-gpu initcheck-gpu racecheck-gpu synccheck-gpu

demo: $(VENV)/.demo
	@$(BIN)/python demo/demo.py

# In several processes, a file in one of them; its tests share what they set up.
PYTEST := -m pytest -n auto --maxprocesses 4 --dist loadfile $(TESTS)

test: $(VENV)/.$(EXTRA)
	@echo "running the tests: about 12 minutes on 2 cores the first time, less when kernels are kept ..."
	$(BIN)/python $(PYTEST)

test-lowest: $(LOWEST)/.testing
	$(LOWEST)/bin/python $(PYTEST)

fuzz: $(VENV)/.test
	$(BIN)/python tests/helpers/fuzz.py --seed $(SEED) --moves $(MOVES) --cpu "$(CPU)"

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
	$(GPU_TESTS) -s -ra --durations=10 tests/gpu

# mypy needs what the code imports, the test packages included.
lint: $(VENV)/.test $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs
	$(BIN)/zensical build --strict --clean
	@echo "open site/index.html"

# `build` makes the wheel from the sdist, in an environment of its own.
wheel: $(VENV)/.wheel
	LAYOUTKIT_OBJECTS="$(OBJECTS)" $(BIN)/python -m build --outdir dist .
	@ls -l dist

bench-gpu: $(BENCH_NEEDS)
	$(GPU_PYTHON) -m layoutkit bench $(BENCH) --device cuda --json bench-gpu.json --plot bench-gpu.png

# Small arrays: under these tools a kernel takes a hundred times as long. Without the pools of CuPy and
# PyTorch, in whose blocks they see no array: beyond its end is another one, and no byte is unwritten.
SMALL    := $(GPU_PYTHON) -m pytest -q -x tests/gpu/test_small.py
NO_POOLS := LAYOUTKIT_TEST_POOL=off PYTORCH_NO_CUDA_MEMORY_CACHING=1
SANITIZE := $(NO_POOLS) timeout 600 compute-sanitizer --target-processes all --error-exitcode 1

sanitize-gpu: memcheck-gpu initcheck-gpu racecheck-gpu synccheck-gpu

# Reads and writes beyond an array, or not aligned; reads of what nobody wrote; accesses of threads to
# shared memory that no barrier orders; barriers that not all threads come to.
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

# What pip is at for so long without a word.
ABOUT_demo   := NumPy, Numba, matplotlib, Pillow and scikit-learn (100 MB): about 1 minute
ABOUT_test   := NumPy, Numba, pytest and the rest; PyTorch too, if it is not there, which for Linux \
  is some GB with CUDA (docs/dependencies.md says how to have a small one): minutes
ABOUT_jax    := JAX: about 1 minute
ABOUT_torch  := PyTorch, which for Linux is some GB with CUDA: minutes
ABOUT_testing := NumPy, Numba, pytest and the rest: about 1 minute
ABOUT_lint   := ruff and mypy: seconds
ABOUT_docs   := NumPy, Numba, Zensical and mkdocstrings: about 1 minute
ABOUT_bench  := matplotlib, OpenCV and PyTorch, which for Linux is some GB: minutes
ABOUT_cuda12 := CuPy and NVIDIA's compiler: about 1 minute
ABOUT_cuda13 := $(ABOUT_cuda12)

# Editable, so that a change to the code needs no new installation.
$(VENV)/.%: pyproject.toml | $(VENV)/.base
	@echo "installing into $(VENV): $(ABOUT_$*) ..."
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable ".[$*]"
	@touch $@

# "numpy>=2.2.5" among `dependencies` becomes "numpy==2.2.5"; what the tests need is the newest that
# goes with those.
$(LOWEST)/.testing: pyproject.toml
	@echo "installing into $(LOWEST), the lowest versions: $(ABOUT_testing) ..."
	$(PYTHON) -m venv $(LOWEST)
	sed -n '/^dependencies = /,/^]/s/^ *"\(.*\)>=\(.*\)",$$/\1==\2/p' $< > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --disable-pip-version-check --quiet \
	  --constraint $(LOWEST)/lowest.txt --editable ".[testing]"
	@touch $@
