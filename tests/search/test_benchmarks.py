"""The benchmarks run on input made here and print one JSON object with the promised figures."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.search.library import PARAPHRASES, SKILLS, UNRELATED

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CROWDED = {f"crowd_{size}_{name}_fall" for size in (10, 50) for name in ("mean", "worst")}
METRICS = {"hit@1", "recall@1", "recall@5", "recall@10", "ndcg@10", "p50_ms", "p95_ms", "build_s", "rss_mb"}


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    corpus = [{"id": s.id, "name": s.name, "description": s.description, "body": s.body} for s in SKILLS]
    with gzip.open(tmp_path / "corpus.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(item) + "\n" for item in corpus)
    queries = [{"id": text, "text": text, "relevant_ids": [id]} for text, id in PARAPHRASES.items()]
    _write(tmp_path / "queries.jsonl", queries[:2])
    queries += [{**query, "text": f"{query['text']} please", "id": f"{query['id']} again"} for query in queries]
    _write(tmp_path / "many.jsonl", queries)
    _write(tmp_path / "negatives.jsonl", [{"id": text, "text": text, "relevant_ids": []} for text in UNRELATED])
    return tmp_path


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _run(script: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.req("PF-02")
def test_retrieval_prints_every_figure(inputs: Path) -> None:
    files = ["--corpus", f"{inputs}/corpus.jsonl.gz", "--queries", f"{inputs}/queries.jsonl"]
    systems = "habitus,habitus_no_examples,rrf"
    report = _run("retrieval.py", *files, "--negatives", f"{inputs}/negatives.jsonl", "--systems", systems)
    assert report["benchmark"] == "retrieval"
    assert report["systems"].pop("habitus_no_examples").startswith("skipped: ")
    assert {name: set(figures) for name, figures in report["systems"].items()} == {
        "habitus": METRICS | CROWDED | {"auroc"},
        "rrf": METRICS | {"auroc"},
    }
    assert report["systems"]["habitus"]["hit@1"] == 100
    assert report["systems"]["habitus"]["auroc"] > 0.9


@pytest.mark.full
@pytest.mark.req("PF-02")
def test_learning_from_use_prints_a_curve(inputs: Path) -> None:
    files = ["--corpus", f"{inputs}/corpus.jsonl.gz", "--queries", f"{inputs}/many.jsonl"]
    report = _run("learning_from_use.py", *files, "--systems", "habitus,bm25_appended,tfidf_lr")
    names = ["r@1_k0", "r@1_k1", "r@1_k3", "r@1_k10", "r@1_k30"]
    assert [list(curve) for curve in report["systems"].values()] == [names] * 3
    assert report["systems"]["habitus"]["r@1_k30"] == 100
