"""The benchmarks of commands and of the index, on a handful of made-up skills."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "benchmarks"
SKILLS = [
    {"id": f"s{n}", "name": name, "description": f"{what}: say when", "body": f"Open the {what}.\n\nThen close it."}
    for n, (name, what) in enumerate([("Tidy Mail", "inbox"), ("tidy-mail", "mail"), ("中文", "door"), ("Tax", "form")])
]


def call(python: str, module: str, code: str) -> Any:
    given = f"import json, sys; sys.path.insert(0, {str(FOLDER)!r}); from pathlib import Path; import {module}; {code}"
    done = subprocess.run([python, "-c", given], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_index_is_measured_with_more_documents_than_there_are(tmp_path: Path, python: str) -> None:
    corpus, queries = tmp_path / "corpus.jsonl", tmp_path / "queries.jsonl"
    corpus.write_text("\n".join(map(json.dumps, SKILLS)))
    queries.write_text("\n".join(json.dumps({"text": text}) for text in ("tidy my mail", "open a door", "tax form")))
    found = call(
        python,
        "index_size",
        f"print(json.dumps(index_size.measure('habitus', Path({str(corpus)!r}), Path({str(queries)!r}), 6)))",
    )
    assert set(found) == {"build_cpu_s", "memory_mb", "peak_mb", "search_p50_ms", "search_p95_ms"}
    assert found["search_p95_ms"] > 0


def test_commands_are_measured_on_a_tree_where_every_skill_has_a_name_of_its_own(tmp_path: Path, python: str) -> None:
    code = (
        f"home = commands.Home(Path({str(tmp_path)!r})); commands.write_tree(home.place / 'tree', {SKILLS!r}); "
        "print(json.dumps(home.measured({'version': commands.commands_of(home)['version']}, 1)))"
    )
    bases, found = call(python, "commands", code)
    assert 0 < bases["version"] < 60
    assert 0 < found["version"] < 60
    assert sorted(path.name for path in (tmp_path / "tree").iterdir()) == ["s2", "tax", "tidy-mail", "tidy-mail-s1"]
