# Everything a developer runs. `make` alone lists the targets.
#
# A virtual environment per TensorFlow version: .venv for the default one, .venv-tf<version> for any other. CMake and
# Ninja come from PyPI, so a machine needs only Python, a C++17 compiler and make.

PYTHON ?= python3
DEFAULT_TF := $(shell PYTHONPATH=packaging_support $(PYTHON) -B -c 'import tensorflow_pin; print(tensorflow_pin.default()[1])')
ifeq ($(DEFAULT_TF),)
$(error '$(PYTHON)' does not run: install Python 3.9 or newer, or pass PYTHON=/path/to/python3)
endif
TF ?= $(DEFAULT_TF)
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
FUZZ_SECONDS ?= 60
# Of each minor version the last one that there is, the newest at the end; 2.15.1 is there for Python before 3.12.
NEWER_TF := 2.16.2 2.18.1 2.20.0 2.21.0
WHEELS ?= $(filter-out $(NEWER_TF),$(DEFAULT_TF)) $(NEWER_TF)
BORDER_TF ?= $(lastword $(NEWER_TF))

VENV := $(if $(filter $(DEFAULT_TF),$(TF)),.venv,.venv-tf$(TF))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
INSTALLED := $(VENV)/.installed-tf$(TF)
TOOLS := $(VENV)/.tools-tf$(TF)
MPICH := build/mpich/.installed
BUILD_DIR := build/tf-$(TF)
# The objects of the editable install are shared with `make wheel`; only what changed is compiled again.
BUILD := --no-build-isolation -C build-dir=$(BUILD_DIR)

# Folders too, as their date tells of removed files; __init__.py, as a new package must join the editable install.
SOURCES := $(shell find native -type d -o \( -name '*.h' -o -name '*.cc' -o -name CMakeLists.txt \) \
	! -name '*_test.cc' ! -name '*_bench.cc') $(shell find mx_rec -name __init__.py) \
	packaging_support/mx_rec_doors.pth
CXX_FILES = $(shell find native -name '*.h' -o -name '*.cc') $(wildcard tests/*/*.c)

export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: help setup demo test test-core test-python test-border border fuzz bench bench-quick bench-smoke bench-core \
	format check check-style check-types check-core docs wheel wheels clean
.DELETE_ON_ERROR:

help:
	@echo 'make setup    create $(VENV), install the tools, compile and install mx_rec (editable)'
	@echo 'make demo     train a small model; RANKS=2: on two ranks'
	@echo 'make test     all tests: C++ core, then Python'
	@echo 'make fuzz     a part of it: the reader of checkpoints under libFuzzer, for FUZZ_SECONDS=$(FUZZ_SECONDS)'
	@echo 'make test-border  what touches private names of TensorFlow, with $(BORDER_TF), in an environment of its own'
	@echo 'make check    linters, formatting, layering, types; core tests under the address and thread sanitizers'
	@echo 'make format   format Python and C++'
	@echo 'make bench    mx_rec beside its peers, into benchmarks/results/; bench-quick: small, in 4 minutes;'
	@echo '              bench-smoke: tiny, only to see that it runs; bench-core: micro benchmarks of the C++ core'
	@echo 'make docs     the documentation as a site: site/index.html'
	@echo 'make wheel    dist/*.whl, for TensorFlow $(TF)'
	@echo 'make wheels   a wheel for each of WHEELS="$(strip $(WHEELS))", tried in new environments: dist/wheels.md'
	@echo 'make clean    remove build/, dist/ and caches; virtual environments stay'
	@echo
	@echo 'Variables: TF=$(TF) (another version gets its own environment)  PYTHON=$(PYTHON)  JOBS=$(JOBS)'
	@echo '           PYTEST_ARGS=...  passed on by `make test`, e.g. PYTEST_ARGS="-k saver"'
	@echo '           BENCH_ARGS=...   passed on by `make bench`, e.g. BENCH_ARGS="--only w1,e2e"'

setup: $(INSTALLED)
	@echo '== mx_rec is installed in $(VENV) with TensorFlow $(TF)'

$(BIN)/python:
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo '$(PYTHON) cannot make virtual environments: install its venv module (Debian, Ubuntu: apt-get install python3-venv)' >&2; \
	  exit 1; }
	@echo '== creating $(VENV)'
	@$(PYTHON) -m venv $(VENV)

$(TOOLS): pyproject.toml | $(BIN)/python
	@command -v $(CXX) >/dev/null || { \
	  echo 'no C++ compiler ($(CXX)): install one (Debian, Ubuntu: apt-get install g++) or pass CXX=...' >&2; exit 1; }
	@echo '== installing TensorFlow $(TF) and the build tools'
	@$(PIP) install 'tensorflow-cpu==$(TF)' 'scikit-build-core>=0.10' cmake ninja
	@touch $@

# Installs what pyproject.toml lists, too; TensorFlow is there already, and the build pins the one it finds.
$(INSTALLED): $(TOOLS) pyproject.toml CMakeLists.txt $(wildcard packaging_support/*.py) $(SOURCES)
	@echo '== compiling mx_rec for TensorFlow $(TF) (the first time takes minutes, later only what changed)'
	@$(PIP) install $(BUILD) -e '.[dev]'
	@touch $@

demo: setup
	@$(BIN)/python -m mx_rec demo $(if $(RANKS),--ranks $(RANKS))

test: test-core fuzz test-python

# loadfile: tests of a file share a process, so that TensorFlow's import and a file's fixtures are paid for once. Files
# begin in the order that conftest.py gives them.
PYTEST = $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder
test-python: setup $(MPICH) iproute2
	@echo '== Python tests with TensorFlow $(TF)'
	@$(PYTEST) $(PYTEST_ARGS)

# Open MPI is in $(VENV), by pyproject.toml. Wheels of MPICH own the same files (bin/mpiexec, lib/libmpi.so), so the second
# family that the tests train with has a folder of its own; they find it there.
$(MPICH): | $(BIN)/python
	@echo '== installing MPICH into build/mpich'
	@$(PIP) install --ignore-installed --prefix build/mpich 'mpich>=4.3'
	@touch $@

test-core: build/core/mxrec_core_tests
	@echo '== C++ core tests'
	@$< --gtest_brief=1

# A border is crossed with what TensorFlow promises to nobody, so each new version may move it: tests marked `border` run
# with the newest one, too. The whole suite would: make test TF=...
test-border:
	@$(MAKE) --no-print-directory TF=$(BORDER_TF) border

border: setup
	@echo '== tests of the border to TensorFlow $(TF)'
	@$(PYTEST) -m border $(PYTEST_ARGS)

# $(call core,<CMake options>) configures and builds the core, without TensorFlow, in the target's directory. CMake knows
# best what is out of date, so these rules always run.
define core
	@mkdir -p $(@D)
	@echo '== compiling in $(@D)'
	@{ $(BIN)/cmake -S . -B $(@D) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) $(1) && \
	  $(BIN)/cmake --build $(@D); } >$(@D)/build.log 2>&1 || { cat $(@D)/build.log >&2; exit 1; }
endef

build/core/mxrec_core_tests: FORCE | $(TOOLS) googletest
	$(call core,-DCMAKE_BUILD_TYPE=Release -DMXREC_BUILD_TESTS=ON)
build/asan/mxrec_core_tests: FORCE | $(TOOLS) googletest
	$(call core,-DCMAKE_BUILD_TYPE=Debug -DMXREC_BUILD_TESTS=ON -DMXREC_SANITIZE=address)
build/tsan/mxrec_core_tests: FORCE | $(TOOLS) googletest
	$(call core,-DCMAKE_BUILD_TYPE=Debug -DMXREC_BUILD_TESTS=ON -DMXREC_SANITIZE=thread)
build/fuzz/reader_fuzz: FORCE | $(TOOLS)
	$(call core,-DCMAKE_BUILD_TYPE=Debug -DMXREC_BUILD_FUZZ=ON -DMXREC_SANITIZE=address -DCMAKE_CXX_COMPILER=clang++)
build/bench/all: FORCE | $(TOOLS)
	$(call core,-DCMAKE_BUILD_TYPE=Release -DMXREC_BUILD_BENCH=ON)
FORCE:

# Only root installs packages of the system; anybody else is told what to install, and never asked for a password.
apt_install = { apt-get install -y -qq --no-install-recommends $(1) || \
	{ apt-get update -qq && apt-get install -y -qq --no-install-recommends $(1); }; } >/dev/null 2>&1

# A GoogleTest that is not in the compiler's own path is found through CMAKE_PREFIX_PATH.
.PHONY: googletest
googletest:
	@[ -n "$$CMAKE_PREFIX_PATH$$GTest_ROOT" ] || echo '#include <gtest/gtest.h>' | $(CXX) -E -x c++ - >/dev/null 2>&1 || { \
	  { [ "$$(id -u)" = 0 ] && echo '== installing GoogleTest (libgtest-dev)' && $(call apt_install,libgtest-dev); } || { \
	  echo 'GoogleTest is missing and could not be installed: install it (Debian, Ubuntu: apt-get install libgtest-dev;' >&2; \
	  echo 'Fedora: dnf install gtest-devel), or set CMAKE_PREFIX_PATH to where it is' >&2; exit 1; }; }

# A test of two hosts makes them by `ip`, if it is root who runs it; else it is left out.
.PHONY: iproute2
iproute2:
	@command -v ip >/dev/null || [ "$$(id -u)" != 0 ] || { echo '== installing iproute2' && $(call apt_install,iproute2); } || \
	  echo '== iproute2 could not be installed: the test of two hosts is left out'

# libFuzzer comes with Clang alone. A developer may lack it and the right to install it; then the fuzzer is left out.
HAS_CLANG = echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, long) { return 0; }' | \
	clang++ -fsanitize=fuzzer,address -x c++ - -o build/fuzz/probe 2>/dev/null
fuzz: | $(TOOLS)
	@mkdir -p build/fuzz/seeds build/fuzz/corpus
	@$(HAS_CLANG) || { [ "$$(id -u)" = 0 ] && echo '== installing Clang with libFuzzer' && $(call apt_install,clang) && \
	  $(call apt_install,"libclang-rt-$$(clang++ -dumpversion | cut -d. -f1)-dev"); } || true
	@if $(HAS_CLANG); then \
	  $(MAKE) --no-print-directory build/fuzz/reader_fuzz && \
	  build/fuzz/reader_fuzz --seeds=build/fuzz/seeds && \
	  echo '== fuzzing the reader of checkpoints for $(FUZZ_SECONDS) s' && \
	  { build/fuzz/reader_fuzz -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -artifact_prefix=build/fuzz/ \
	    build/fuzz/corpus build/fuzz/seeds >build/fuzz/log 2>&1 || { tail -40 build/fuzz/log >&2; exit 1; }; } && \
	  tail -1 build/fuzz/log; \
	else echo '== no Clang with libFuzzer: fuzzing is left out (Debian, Ubuntu: apt-get install clang libclang-rt-14-dev)'; fi

# docs/benchmarks.md; BENCH_ARGS="--only w1,e2e" runs a part.
bench: setup
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

bench-quick: setup
	@$(BIN)/python -m benchmarks --quick $(BENCH_ARGS)

# Its numbers say nothing.
bench-smoke: setup
	@echo '== a tiny benchmark'
	@$(BIN)/python -m benchmarks --quick --only w1 --peers mx_rec --scale 1000 --rounds 1
	@$(BIN)/python -m benchmarks.ranks --smoke

bench-core: build/bench/all
	@for bench in $$(find build/bench/bench -name '*_bench' 2>/dev/null | sort); do echo "== $$bench"; $$bench || exit 1; done

format: setup
	@$(BIN)/ruff check -q --fix-only .
	@$(BIN)/ruff format -q .
	@$(BIN)/clang-format -i $(CXX_FILES)

check: check-style check-types check-core

check-style: setup
	@echo '== linters and formatting'
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .
	@$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)
	@echo '== layering: only native/tf includes tensorflow/'
	@! grep -rnE --include='*.h' --include='*.cc' --exclude-dir=tf '#include *["<]tensorflow/' native

check-types: setup
	@echo '== types of the public API'
	@$(BIN)/python -m pytest -q $$(find tests -name typing_test.py)

# Many tests wait for the disk, so two processes share them.
sharded = GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=1 $(1) --gtest_brief=1 >$(firstword $(1)).log 2>&1 & \
	GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=0 $(1) --gtest_brief=1; status=$$?; \
	wait $$! || status=1; cat $(firstword $(1)).log; exit $$status
# Long tests of one thread, such as those that let each operation on a file fail in turn, have nothing to show here.
ONE_THREAD := *Fail*:TierFault.*:HistoryDamage.*:AdmissionFilter.*:DiskStore.SpaceStays*:TierModel.AnySequence*

check-core: build/asan/mxrec_core_tests build/tsan/mxrec_core_tests
	@echo '== C++ core tests, address and undefined-behaviour sanitizers'
	@$(call sharded,build/asan/mxrec_core_tests)
	@echo '== C++ core tests, thread sanitizer'
	@$(call sharded,build/tsan/mxrec_core_tests '--gtest_filter=-$(ONE_THREAD)')

# In an environment of its own, without TensorFlow: docstrings are read, not imported. The versions are pyproject.toml's.
DOCS_TOOLS := .venv-docs/.tools
$(DOCS_TOOLS): pyproject.toml
	@echo '== installing MkDocs into .venv-docs'
	@$(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python packaging_support/extra.py docs | xargs -d '\n' .venv-docs/bin/python -m pip -qq \
	  --disable-pip-version-check install
	@touch $@

docs: $(DOCS_TOOLS)
	@echo '== building the documentation'
	@# Not with -q: a warning that is not shown is none to --strict, either.
	@mkdir -p build
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict >build/docs.log 2>&1 || { cat build/docs.log >&2; exit 1; }
	@echo 'site/index.html'

wheel: setup
	@echo '== building the wheel for TensorFlow $(TF)'
	@$(PIP) wheel $(BUILD) --no-deps -w dist .
	@ls dist/*.whl

wheels:
	@$(PYTHON) packaging_support/wheels.py $(WHEELS)

clean:
	rm -rf build dist site .pytest_cache .ruff_cache .hypothesis .venv*/.installed-*
	@find mx_rec tests packaging_support benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
