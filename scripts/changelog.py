"""Gather the fragments of changelog.d under a version of CHANGELOG.md, and delete them: changelog.py 0.2.0

A version that is there already gets them beside its other lines; a new one stands first.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("added", "changed", "fixed", "removed")
HEAD = "# Changes\n"


def gather(text: str, version: str, fragments: dict[str, list[str]]) -> str:
    """The changelog with the fragments of each kind under the version."""
    head, *sections = re.split(r"(?m)^(?=## )", text or HEAD)
    place = next((number for number, one in enumerate(sections) if one.split()[1] == version), None)
    if place is None:
        place = 0
        sections.insert(0, f"## {version}\n")
    before, *parts = re.split(r"(?m)^### ", sections[place])
    lines = {part.split()[0].lower(): part.partition("\n")[2].strip() for part in parts}
    for kind, found in fragments.items():
        lines[kind] = "\n".join([*filter(None, [lines.get(kind, "")]), *(f"- {one}" for one in found)])
    made = [f"### {kind.capitalize()}\n\n{lines[kind]}" for kind in KINDS if lines.get(kind)]
    sections[place] = "\n\n".join([before.strip(), *made])
    return "\n\n".join(part.strip() for part in (head, *sections)) + "\n"


def main(version: str) -> int:
    fragments: dict[str, list[str]] = {}
    files = [path for path in sorted((ROOT / "changelog.d").glob("*.md")) if path.name != "README.md"]
    for path in files:
        fragments.setdefault(path.suffixes[-2][1:], []).append(" ".join(path.read_text(encoding="utf-8").split()))
    if unknown := fragments.keys() - set(KINDS):
        print(f"No such kind of change: {', '.join(sorted(unknown))}. There are: {', '.join(KINDS)}.")
        return 1
    changelog = ROOT / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8") if changelog.exists() else ""
    changelog.write_text(gather(text, version, fragments), encoding="utf-8")
    for path in files:
        path.unlink()
    print(f"{len(files)} fragments are in CHANGELOG.md under {version}.")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Say for which version: python scripts/changelog.py 0.2.0")
    sys.exit(main(sys.argv[1]))
