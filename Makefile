# The two commands of the README: `make run` and `make test`. Everything is installed into $(VENV) on first use.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := runs/demo
# Fewer cannot settle three measures at once.
SEEDS ?= 10

.PHONY: run test lint learn mutants bench clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,box2d,trace,atari,ray]"
	touch $@

run: $(READY)  ## Train a base agent and its +SADQ twin on paired seeds, and compare them in a report
	rm -rf $(DEMO)
	$(BIN)/sadq train bitflip-quick dueling --seeds $(SEEDS) --out $(DEMO)/dueling
	$(BIN)/sadq train bitflip-quick dueling+sadq --seeds $(SEEDS) --out $(DEMO)/dueling+sadq
	$(BIN)/sadq report $(DEMO)/dueling $(DEMO)/dueling+sadq --out $(DEMO)/report

# Most programs of the tests run for an instant, and this part of the compiler takes most of the time until then. Without it
# two programs that compute the same thing may differ in the last bit.
QUICKLY := XLA_FLAGS="--xla_cpu_use_fusion_emitters=false $(XLA_FLAGS)"
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: $(READY)  ## Everything that is fast
	$(QUICKLY) $(PYTEST) -m "not learning and not exact"
	$(PYTEST) -m exact $$(grep -rl --include="test_*.py" "mark.exact" tests)

lint: $(READY)  ## Style, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_imports.py
	$(BIN)/python tools/agents_table.py --check

learn: $(READY)  ## Agents that must reach a return: slow
	$(BIN)/python -m pytest -m learning --durations=0

mutants: $(READY)  ## How many small faults in the mathematics and the learner the tests notice: slow
	$(BIN)/python tools/mutants.py --seed 0 --count 200

bench: $(READY)  ## Speed against peers, which get an environment of their own
	$(BIN)/python benchmarks/cpu.py --out benchmarks/results/cpu.json $(if $(SECTIONS),--sections $(SECTIONS))

clean:
	rm -rf $(VENV) .venv-peers build src/*.egg-info
