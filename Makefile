# `make demo` and `make test` do all set-up themselves, on a machine that has Python 3.11+ (with venv) and make.
# Nothing is installed outside .venv/ and .venv-tf517/; checkpoints and caches live under AMK_HOME.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell command -v $(name))))
PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet

# As amk.settings has it.
AMK_HOME ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/amk
export AMK_HOME

MODEL := SmolLM2-135M-Instruct
CHECKPOINT := $(AMK_HOME)/checkpoints/smollm2-135m-instruct/provenance.json

# The oldest transformers that amk supports, as an overlay on .venv: put .venv-tf517 first on PYTHONPATH. These are all
# the packages in which the two environments differ.
OVERLAY := transformers==5.17.0 huggingface_hub==1.33.0 httpx==0.28.1 httpcore==1.0.9

WORKERS ?= 2

.PHONY: help setup demo test test-gpu pytest pytest-tf517 lint wheel-check clean

help:
	@echo "make demo         prepare and compile a real checkpoint, generate, compare with HuggingFace"
	@echo "make test         lint, types, import layers, the wheel, and the CPU tests"
	@echo "make test-gpu     the tests that need a CUDA device"
	@echo "make setup        environments and the demo checkpoint only"
	@echo "make clean        remove build products and environments; checkpoints under AMK_HOME stay"

# --- set-up: each stamp is the time at which its inputs were last installed ------------------------------------------

setup: .venv/.installed .venv-tf517/.installed $(CHECKPOINT)

.venv/.created:
	@test -n "$(PYTHON)" || { echo "no python3 found: install Python 3.11 or later" >&2; exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than 3.11: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	"$(PYTHON)" -m venv .venv
	@touch $@

# Without build isolation, so that the build backend too is the one that constraints.txt names.
.venv/.installed: .venv/.created pyproject.toml constraints.txt
	@echo "installing the packages of constraints.txt into .venv/ (torch is the large one)"
	$(PIP) install -c constraints.txt pip hatchling editables
	$(PIP) install -c constraints.txt --no-build-isolation -e '.[test,dev]'
	@touch $@

.venv-tf517/.installed: .venv/.installed Makefile
	rm -rf .venv-tf517
	$(PIP) install --no-deps --target .venv-tf517 $(OVERLAY)
	@touch $@

$(CHECKPOINT): | .venv/.installed
	$(PY) -m amk.frontend.prepare

# --- what a user runs ------------------------------------------------------------------------------------------------

demo: setup
	@mkdir -p build
	.venv/bin/amk compile $(MODEL) --arch sm_90 -o build/smollm2-sm_90.amk
	.venv/bin/amk compile $(MODEL) -o build/smollm2-here.amk
	.venv/bin/amk generate build/smollm2-here.amk --max-new-tokens 48 "What is the capital of France?"
	.venv/bin/amk parity build/smollm2-here.amk --tokens 32 --limit 2

# --- checks ----------------------------------------------------------------------------------------------------------

# In turn, the quick ones first; pytest's summary is the last thing printed.
test:
	@$(MAKE) --no-print-directory setup
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory wheel-check
	@$(MAKE) --no-print-directory pytest-tf517
	@$(MAKE) --no-print-directory pytest

lint: .venv/.installed
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	find amk \( -name '*.cuh' -o -path '*csrc/host/*' -type f \) -exec .venv/bin/clang-format --dry-run -Werror {} +

pytest: setup
	$(PY) -m pytest -n $(WORKERS)

# The oldest transformers exports other graphs for the same layers than the newest: the importer has to read both.
pytest-tf517: setup
	PYTHONPATH=.venv-tf517 $(PY) -m pytest -n $(WORKERS) tests/frontend

test-gpu: setup
	$(PY) -m pytest -m gpu

# The wheel is built from the sdist, so both are complete or neither is. It is installed alone into a fresh environment
# outside the checkout; the packages that it depends on are borrowed from .venv/ through a .pth file, whose own .pth
# files (the editable install of amk among them) Python does not follow.
wheel-check: .venv/.installed
	@rm -rf build/dist
	$(PY) -m build --no-isolation --outdir build/dist . > /dev/null
	@room=$$(mktemp -d); trap 'rm -rf "$$room"' EXIT; \
	"$(PY)" -m venv --without-pip "$$room/venv"; \
	$(PIP) --python "$$room/venv/bin/python" install --no-deps build/dist/*.whl; \
	$(PIP) --python "$$room/venv/bin/python" install --no-deps -c constraints.txt nvidia-cuda-nvrtc; \
	site='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	$(PY) -c "$$site" > "$$("$$room/venv/bin/python" -c "$$site")/borrowed.pth"; \
	export AMK_HOME="$$room/home" HF_HUB_OFFLINE=1; \
	cd "$$room"; \
	venv/bin/python -c 'import amk, sys; sys.exit(not amk.__file__.startswith(sys.prefix))'; \
	venv/bin/amk compile SmolLM2-135M --arch sm_90 -o x.amk; \
	venv/bin/amk validate x.amk

clean:
	rm -rf build dist .venv .venv-tf517 .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find amk tests -name __pycache__ -type d -prune -exec rm -rf {} +
