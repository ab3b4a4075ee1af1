# The two commands of the README: `make run` and `make test`. Everything is installed into $(VENV) on first use.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
# Bytecode is then made of what is imported rather than of everything, which takes as long as the rest.
INSTALL := -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt
DEMO := runs/demo
# Fewer cannot settle three measures at once.
SEEDS ?= 10

.PHONY: run test lint learn mutants bench wheel docs sb3 jax clean

# The library alone, which is all that the demo needs; then what the tests look at too.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) -e .
	touch $@

$(READY): $(INSTALLED)
	$(BIN)/python $(INSTALL) -e ".[dev,box2d,trace,atari,ray,tensorboard,wandb]"
	touch $@

run: $(INSTALLED)  ## Train a base agent and its +SADQ twin on paired seeds, and compare them in a report
	rm -rf $(DEMO)
	$(BIN)/sadq train bitflip-quick dueling --seeds $(SEEDS) --out $(DEMO)/dueling
	$(BIN)/sadq train bitflip-quick dueling+sadq --seeds $(SEEDS) --out $(DEMO)/dueling+sadq
	$(BIN)/sadq report $(DEMO)/dueling $(DEMO)/dueling+sadq --out $(DEMO)/report

# Most programs of the tests run for an instant, and most of the time until then would go into making them fast. Without FMA
# instructions, which round a product and a sum at once where the compiler happens to see both, two programs that compute the
# same thing give the same bits although they are compiled like this. Some are compared once more as a user's are compiled:
# all of them where a processor has no such choice.
QUICKLY := --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 --xla_backend_optimization_level=0
ifneq ($(filter x86_64 AMD64,$(shell uname -m)),)
QUICKLY += --xla_cpu_max_isa=AVX
FAST := not learning and not thorough
AS_USERS := exact and users
else
FAST := not learning and not thorough and not exact
AS_USERS := exact
endif
# Compilers allocate a lot: in large pages, and from memory that was kept rather than given back, that is a tenth faster.
# Three workers keep two cores busy while one of them waits for a process, a disk or the others' last module.
ALLOCATING := glibc.malloc.hugetlb=1:glibc.malloc.top_pad=67108864:glibc.malloc.trim_threshold=1073741824
PYTEST := GLIBC_TUNABLES=$(ALLOCATING) OPENBLAS_NUM_THREADS=1 \
	$(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder

test: $(READY)  ## Everything that is fast
	XLA_FLAGS="$(QUICKLY) $(XLA_FLAGS)" $(PYTEST) -n 3 -m "$(FAST)"
	$(PYTEST) -n 2 -m "$(AS_USERS)" $$(grep -rl --include="test_*.py" "mark.exact" tests)

lint: $(READY)  ## Style, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_imports.py
	$(BIN)/python tools/agents_table.py --check

learn: $(READY)  ## Agents that must reach a return, and all that `test` has a smaller form of: slow
	$(BIN)/python -m pytest -m "learning or thorough or exact" --durations=0

mutants: $(READY)  ## How many small faults in the mathematics and the learner the tests notice: slow
	XLA_FLAGS="$(QUICKLY) $(XLA_FLAGS)" $(BIN)/python tools/mutants.py --seed 0 --count 200

bench: $(READY)  ## Speed against peers, which get an environment of their own
	$(BIN)/python benchmarks/cpu.py --out benchmarks/results/cpu.json $(if $(SECTIONS),--sections $(SECTIONS))

docs: $(INSTALLED)  ## The site, into build/site; a warning is an error
	$(BIN)/python $(INSTALL) -e ".[docs]"
	$(BIN)/mkdocs build --quiet --strict

# What has an environment of its own, apart from that of the tests.
EMPTY := build/empty
WITH_SB3 := .venv-sb3
WITH_JAX := .venv-jax

wheel:  ## The wheel, in an environment with nothing else: it trains
	rm -rf $(EMPTY) build/wheel build/lib
	$(PYTHON) -m venv $(EMPTY)
	$(EMPTY)/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel .
	$(EMPTY)/bin/python $(INSTALL) build/wheel/sadq-*.whl
	cd $(EMPTY) && bin/sadq train bitflip-quick --steps 2000 --out run && test -s run/result.json

sb3:  ## What needs Stable-Baselines3, and with it torch
	$(PYTHON) -m venv $(WITH_SB3)
	$(WITH_SB3)/bin/python $(INSTALL) -e ".[sb3,dev]"
	$(WITH_SB3)/bin/python -m pytest -p no:xdist tests/test_sb3.py tests/test_docs.py -k sb3

# make jax JAX=0.11.2 PYTHON=python3.12
jax:  ## A selection of the tests on another version of JAX; from 0.11 on it needs Python 3.12
	mkdir -p build && grep -v "^jax" constraints.txt > build/constraints-jax.txt
	$(PYTHON) -m venv $(WITH_JAX)
	$(WITH_JAX)/bin/python $(INSTALL:constraints.txt=build/constraints-jax.txt) jax==$(JAX) -e ".[dev]"
	$(WITH_JAX)/bin/python -m pytest -p no:xdist tests/core/test_bootstrap.py tests/core/test_returns.py tests/api/test_habits.py

clean:
	rm -rf $(VENV) .venv-peers $(WITH_SB3) $(WITH_JAX) build src/*.egg-info
