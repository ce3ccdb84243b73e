PYTHON ?= python3
export PYTHON
# Tests that were compiled once are read by every worker, whatever this machine says about writing bytecode.
export PYTHONDONTWRITEBYTECODE =
BIN := .venv/bin
# A third of the time tests wait: for processes, for clocks, for a sandbox.
PYTEST := $(BIN)/pytest -n $(shell expr $$(nproc 2>/dev/null || echo 2) + 1) --dist worksteal
# What starts no process, no sandbox and no server.
FAST := $(wildcard tests/test_*.py) $(addprefix tests/,journal learning memory screening search skills repl)
# The type check runs beside the tests, and its failure is theirs.
BESIDE_TYPES = types=$$(mktemp); $(BIN)/mypy > $$types 2>&1 & checking=$$!; \
	$(1); code=$$?; wait $$checking || { cat $$types; code=1; }; rm -f $$types; exit $$code

.PHONY: run test test-full wheel check bench docs clean

run:            ## set up and show Habitus at work, then its web page (no key, no network)
	@sh scripts/setup.sh run
	@$(BIN)/habitus run

test:           ## set up and run the tests: about eight minutes on two cores
	@sh scripts/setup.sh test
	@$(BIN)/ruff format --check -q src tests benchmarks scripts examples
	@$(BIN)/ruff check -q src tests benchmarks scripts examples
	@$(BIN)/lint-imports
	@$(call BESIDE_TYPES,$(PYTEST) -m "not full")

test-full:      ## all tests, with many examples and at every step
	@sh scripts/setup.sh test
	@$(PYTEST) --hypothesis-profile=full

wheel:          ## build the wheel into dist/, install it into an environment of its own and use it
	@sh scripts/setup.sh test
	@$(BIN)/uv build -q --wheel --out-dir dist
	@$(PYTEST) -n 0 tests/journeys/test_wheel.py -k "not lowest"

check:          ## format, lint, types, import rows and the fast tests: under a minute
	@sh scripts/setup.sh test
	@$(BIN)/ruff format -q src tests benchmarks scripts examples
	@$(BIN)/ruff check -q --fix src tests benchmarks scripts examples
	@$(BIN)/lint-imports
	@$(call BESIDE_TYPES,$(PYTEST) -m "not full" $(FAST))

bench:          ## every benchmark on made-up input; see benchmarks/README.md for the public sets
	@sh scripts/setup.sh test
	@$(BIN)/python benchmarks/library.py
	@$(BIN)/python benchmarks/scale.py
	@$(BIN)/python benchmarks/sandbox.py
	@$(BIN)/python benchmarks/utility.py

docs:           ## write docs/reference anew from the code
	@sh scripts/setup.sh test
	@$(BIN)/python scripts/reference.py

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache
