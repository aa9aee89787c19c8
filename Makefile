# Everything runs in a virtual environment that the first target makes: make VENV=/path PYTHON=python3.12 test
VENV ?= .venv
PYTHON ?= python3
# On Linux, PyPI's torch is a CUDA build. For another build name its index: make TORCH_INDEX=URL demo
TORCH_INDEX ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint bench geometry ablation space clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

# torch comes first: whatever build is there already satisfies the rest, so a second one is never fetched.
$(INSTALLED): setup.py constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(PIP) -e ".[test,lint]"
	touch $@

# glibc gives large blocks back to the system after every use and has to fetch them again zeroed; keeping them makes
# training on a CPU faster. Other C libraries ignore these.
demo bench geometry ablation: export MALLOC_MMAP_THRESHOLD_ := 4294967296
demo bench geometry ablation: export MALLOC_TRIM_THRESHOLD_ := 8589934592
demo bench geometry ablation: export MALLOC_TOP_PAD_ := 268435456

demo: $(INSTALLED)  ## fine-tune the small CLIP, write runs/demo/report.html
	$(BIN)/negation-clip demo --output-dir runs/demo $(DEMO_ARGS)

# The models of the tests are tiny: a process on every core does more than several threads in one.
test test-slow: export OMP_NUM_THREADS := 1
test test-slow: PYTEST := $(BIN)/pytest -n logical --maxprocesses 4 --dist worksteal

test: $(INSTALLED)  ## run the quick tests
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-slow: $(INSTALLED)  ## run the slow tests
	$(PYTEST) -m slow $(PYTEST_ARGS)

lint: $(INSTALLED)  ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(INSTALLED)  ## run the benchmarks
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

geometry: $(INSTALLED)  ## train and compare Euclidean CLIP, MERU, HyCoCLIP and PHyCLIP, write runs/geometry/geometry.md
	$(BIN)/python benchmarks/geometry_table.py --output runs/geometry $(GEOMETRY_ARGS)

ablation: $(INSTALLED)  ## what each part of HanCLIP does, three seeds, write runs/ablation/ablation.md
	$(BIN)/python benchmarks/hanclip_ablation.py --output runs/ablation $(ABLATION_ARGS)

space: $(INSTALLED)  ## run the demo Space here: image search that hears "no"
	$(BIN)/negation-clip space run --index runs/space $(SPACE_ARGS)

clean:  ## remove build outputs and caches, keep the virtual environment and runs/
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path "./$(VENV)/*" -prune -exec rm -rf {} +
