"""Skills to be scanned, and the sentences that were looked at while the rules were written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from habitus.files import Tree, build_tree_file
from habitus.screening.findings import Finding, RiskLevel
from habitus.screening.scanner import scan_skill

_SCRIPTS = {"shell": "scripts/run.sh", "javascript": "scripts/run.js", "python": "scripts/run.py"}
EXAMPLES: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parent / "examples.jsonl").read_text("utf-8").splitlines()
]


def skill(body: str, description: str = "Keeps things in order.", **files: str) -> Tree:
    """A skill with these files; `run__py` stands for run.py, and `scripts___run__py` for one in a folder."""
    front = f"---\nname: helper\ndescription: {json.dumps(description, ensure_ascii=False)}\n---\n"
    head = f"{front}# Helper\n\nUse it to keep order.\n\n"
    others = {
        path.replace("___", "/").replace("__", "."): build_tree_file(text.encode()) for path, text in files.items()
    }
    return {"SKILL.md": build_tree_file((head + body + "\n").encode()), **others}


def example_skill(example: dict[str, Any]) -> Tree:
    text = example["text"]
    match example["kind"]:
        case "prose":
            return skill(text)
        case "description":
            return skill("", text)
        case kind:
            return {**skill(f"Run `{_SCRIPTS[kind]}`."), _SCRIPTS[kind]: build_tree_file(text.encode())}


def held(tree: Tree) -> list[Finding]:
    """The findings that wait for a person."""
    return [finding for finding in scan_skill(tree) if finding.severity is RiskLevel.HIGH]


def held_for(tree: Tree) -> set[str]:
    return {finding.rule for finding in held(tree)}
