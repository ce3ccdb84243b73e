"""How many harmful skills does the scanner hold back, how many harmless ones, and how fast is it?

    python benchmarks/scan.py --cases fixtures.jsonl injected.jsonl.gz --benign skills/ corpus.jsonl.gz

A line of --cases has `files` and `label`, or `text` and `inserted`: then the text is harmful and the text without the
insertion is harmless. --benign takes directories with SKILL.md files and JSON lines with `body`. Held means: a finding
of high severity. `seen` also counts medium ones.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _report import progress, report
from habitus.files import Tree, file_of
from habitus.screening.findings import Risk
from habitus.screening.scanner import scan

Verdict = dict[str, Risk]
System = Callable[[Tree], Verdict]

KEYWORDS = {
    "prompt_injection": ("ignore previous", "ignore all", "system prompt", "do not tell the user", "jailbreak"),
    "exfiltration": ("exfiltrate", "requests.post(", "curl -x post", "webhook.site", "ngrok"),
    "credential_access": (".ssh", ".aws/credentials", "id_rsa", "/etc/passwd", "os.environ"),
    "obfuscation": ("base64 -d", "b64decode", "fromhex"),
    "dangerous_code": ("eval(", "exec(", "os.system(", "shell=true", "rm -rf", "| bash", "| sh"),
    "excessive_permission": ("chmod 777", "sudo ", "--dangerously-skip-permissions"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    tree: Tree
    is_harmful: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, nargs="+", required=True, help="JSON lines, also .gz")
    parser.add_argument("--benign", type=Path, nargs="*", default=[], help="directories or JSON lines, also .gz")
    args = parser.parse_args()
    cases = [case for file in args.cases for case in labelled(file)]
    cases += [Case(tree=tree, is_harmful=False) for place in args.benign for tree in harmless(place)]
    given = {
        "cases": [file.name for file in args.cases],
        "benign": [place.name for place in args.benign],
        "harmful": sum(case.is_harmful for case in cases),
        "harmless": sum(not case.is_harmful for case in cases),
    }
    report(
        "scan",
        given,
        {"habitus": measure("habitus", with_scanner, cases), "keywords": measure("keywords", with_keywords, cases)},
    )


def labelled(file: Path) -> Iterator[Case]:
    twins = set()
    for row in lines_of(file):
        if "files" in row:
            yield Case(tree=tree_of(row["files"]), is_harmful=row["label"] == "malicious")
            continue
        yield Case(tree=tree_of({"SKILL.md": row["text"]}), is_harmful=True)
        twin = row["text"].replace(row["inserted"], "")
        if twin not in twins:
            twins.add(twin)
            yield Case(tree=tree_of({"SKILL.md": twin}), is_harmful=False)


def harmless(place: Path) -> Iterator[Tree]:
    if place.is_dir():
        for file in sorted(place.rglob("*.md")):
            if file.name.lower() == "skill.md":
                yield {"SKILL.md": file_of(file.read_bytes())}
        return
    for row in lines_of(place):
        head = f"---\nname: {row.get('name', '')}\ndescription: {row.get('description', '')}\n---\n"
        yield tree_of({"SKILL.md": head + row["body"]})


def lines_of(file: Path) -> Iterator[dict[str, Any]]:
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    for line in data.decode("utf-8").split("\n"):
        if line.strip():
            yield json.loads(line)


def tree_of(files: dict[str, str]) -> Tree:
    return {path: file_of(text.encode("utf-8", "surrogatepass")) for path, text in files.items()}


def with_scanner(tree: Tree) -> Verdict:
    findings = sorted(scan(tree), key=lambda finding: list(Risk).index(finding.severity), reverse=True)
    return {finding.category: finding.severity for finding in findings}


def with_keywords(tree: Tree) -> Verdict:
    """The baseline: any word of the list holds a skill back."""
    text = "\n".join((file.content or b"").decode("utf-8", "replace") for file in tree.values()).lower()
    return {category: Risk.HIGH for category, words in KEYWORDS.items() if any(word in text for word in words)}


def measure(name: str, system: System, cases: list[Case]) -> dict[str, Any]:
    progress(f"{name}: {len(cases)} skills")
    held: Counter[str] = Counter()
    by_category: dict[str, Counter[str]] = {"harmful": Counter(), "harmless": Counter()}
    files = sum(len(case.tree) for case in cases)
    started = time.process_time()
    verdicts = [system(case.tree) for case in cases]
    seconds = time.process_time() - started
    for case, verdict in zip(cases, verdicts, strict=True):
        kind = "harmful" if case.is_harmful else "harmless"
        held[kind] += Risk.HIGH in verdict.values()
        held[f"{kind} seen"] += Risk.HIGH in verdict.values() or Risk.MEDIUM in verdict.values()
        by_category[kind].update(category for category, risk in verdict.items() if risk is Risk.HIGH)
    harmful = sum(case.is_harmful for case in cases)
    return {
        "recall": share(held["harmful"], harmful),
        "recall_seen": share(held["harmful seen"], harmful),
        "precision": share(held["harmful"], held["harmful"] + held["harmless"]),
        "false_positive_rate": share(held["harmless"], len(cases) - harmful),
        "false_positive_rate_seen": share(held["harmless seen"], len(cases) - harmful),
        "by_category": {kind: dict(sorted(counts.items())) for kind, counts in by_category.items()},
        "files_per_s": round(files / seconds) if seconds else 0,
    }


def share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


if __name__ == "__main__":
    main()
