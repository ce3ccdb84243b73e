PYTHON ?= python3
export PYTHON
BIN := .venv/bin

.PHONY: run test test-full check fast bench docs clean

run:            ## set up and show Habitus at work (no server, no key, no network)
	@sh scripts/setup.sh run
	@$(BIN)/habitus tour

test:           ## set up and run every test but the big third-party clients
	@sh scripts/setup.sh test
	@$(BIN)/ruff format --check -q src tests benchmarks scripts
	@$(BIN)/ruff check -q src tests benchmarks scripts
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/pytest -n auto -m "not full"

test-full:      ## the same with the big third-party clients
	@sh scripts/setup.sh test
	@$(BIN)/pytest -n auto

check:          ## format, lint, types, import rows and the fast tests: under a minute
	@sh scripts/setup.sh test
	@$(BIN)/ruff format -q src tests benchmarks scripts
	@$(BIN)/ruff check -q --fix src tests benchmarks scripts
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/pytest -n auto -m "not full" --ignore=tests/journeys --ignore=tests/hostile

bench:          ## every benchmark on made-up input; see benchmarks/README.md for the public sets
	@sh scripts/setup.sh test
	@$(BIN)/python benchmarks/library.py
	@$(BIN)/python benchmarks/scale.py
	@$(BIN)/python benchmarks/sandbox.py

docs:           ## write docs/reference anew from the code
	@sh scripts/setup.sh test
	@$(BIN)/python scripts/reference.py

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache
