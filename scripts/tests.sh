#!/bin/sh
# `tests.sh [what pytest takes]`: format, lint, import rows and types once, the tests once, and how long each took.
# The rows and types are checked beside the tests, and their failure is the tests'.
cd "$(dirname "$0")/.." || exit 1
ours="src tests benchmarks scripts examples"
began=$(date +%s)
# shellcheck disable=SC2086
.venv/bin/ruff format --check -q $ours && .venv/bin/ruff check -q $ours || exit 1
testing=$(date +%s)
said=$(mktemp)
{ .venv/bin/lint-imports && .venv/bin/mypy && .venv/bin/mypy --platform win32 --cache-dir .mypy_cache/win32 src && .venv/bin/mypy --platform darwin --cache-dir .mypy_cache/darwin src; code=$?; echo "checks: $(($(date +%s) - began)) s"; exit $code; } > "$said" 2>&1 &
checking=$!
# A third of the time tests wait: for processes, for clocks, for a sandbox.
.venv/bin/pytest -n $(($(nproc 2>/dev/null || echo 2) + 1)) --dist worksteal "$@"
code=$?
echo "tests: $(($(date +%s) - testing)) s"
if wait $checking; then tail -1 "$said"; else cat "$said"; code=1; fi
rm -f "$said"
exit $code
