PYTHON ?= python3
export PYTHON
# Tests that were compiled once are read by every worker, whatever this machine says about writing bytecode.
export PYTHONDONTWRITEBYTECODE =
BIN := .venv/bin
# What starts no process, no sandbox and no server.
FAST := $(wildcard tests/test_*.py) $(addprefix tests/,journal learning memory screening search skills repl)

.PHONY: run test test-full mutants fuzz wheel check bench pictures docs clean

run:            ## set up and show Habitus at work, then its web page (no key, no network)
	@sh scripts/setup.sh run
	@$(BIN)/habitus tour --serve

test:           ## set up, check format, lint, types and import rows, and run the tests: about ten minutes on two cores
	@sh scripts/setup.sh test
	@sh scripts/tests.sh -m "not full"

test-full:      ## the checks and all tests, with many examples and at every step
	@sh scripts/setup.sh test
	@sh scripts/tests.sh --hypothesis-profile=full

mutants:        ## whether the tests of seven modules notice small changes of them: about five minutes on two cores
	@sh scripts/setup.sh test
	@$(BIN)/python scripts/mutants.py

fuzz:           ## explore: 1,000 new examples of every generated test; a failure says how to reproduce it
	@sh scripts/setup.sh test
	@$(BIN)/pytest -n $$(nproc) --hypothesis-profile=fuzz -m hypothesis --timeout=7200

wheel:          ## build the wheel into dist/, install it into an environment of its own and use it
	@sh scripts/setup.sh test
	@$(BIN)/uv build -q --wheel --out-dir dist
	@$(BIN)/pytest tests/journeys/test_wheel.py -k "not lowest"

check:          ## format, lint, types, import rows and the fast tests: under a minute
	@sh scripts/setup.sh test
	@$(BIN)/ruff format -q src tests benchmarks scripts examples
	@$(BIN)/ruff check -q --fix src tests benchmarks scripts examples
	@sh scripts/tests.sh -m "not full" $(FAST)

bench:          ## every benchmark on made-up input; see benchmarks/README.md for the public sets
	@sh scripts/setup.sh test
	@$(BIN)/python benchmarks/library.py
	@$(BIN)/python benchmarks/scale.py
	@$(BIN)/python benchmarks/sandbox.py
	@$(BIN)/python benchmarks/utility.py

pictures:       ## of every page, light, dark and on a phone, with much data and none, into build/pictures (needs chromium)
	@sh scripts/setup.sh test
	@$(BIN)/python scripts/pictures.py build/pictures

docs:           ## write docs/reference, the public types and the plugin's manifests anew from the code; build the site
	@sh scripts/setup.sh test
	@$(BIN)/python scripts/reference.py
	@$(BIN)/python scripts/typed_face.py
	@$(BIN)/python scripts/plugin.py
	@$(BIN)/python scripts/first_answers.py
	@$(BIN)/uv pip install -q --python $(BIN)/python -c constraints.txt -e '.[docs]'
	@$(BIN)/python scripts/docs_site.py

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache
