"""How much of attacks that others wrote does screening hold, wherever they stand, and what harmless does it hold?

    python benchmarks/screening.py [--data DIR] [--hosts 2]

DIR (or HABITUS_BENCH_DATA) has two families of attacks (`malicious/fixtures.jsonl`, `malicious/injected.jsonl.gz`), two
of harmless skills (`ordinary/skills_whole.jsonl.xz`, `ordinary/vendors.jsonl.xz`) and `ordinary/lessons.jsonl`; two
more families of attacks and the orders to memory are ours, in `data/`; acts are said in two halves of
grammars (`_obvious_lines.py`). Every attack is put into harmless skills of each
family in four places: as an obvious block, as a line among the skill's own, as a script with the sentence that runs it,
and in the description. Hosts are drawn from sources in turn, so that no author's skills weigh more than another's. An
attack counts as held where its insertion brings a finding that waits for a person and that the skill alone has not. The
worst pair of families stands first; the names that the public injections send to are replaced by unknown ones. The same
injections are also looked at as they came, each in its own skill (`as published`). `published pages`, where they are
given (`retrieval/skillroute/corpus.jsonl.gz`), are SKILL.md files of many authors without their other files.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _report
from _obvious_lines import PLAIN, TURNED, lines
from habitus.files import Tree, build_tree_file
from habitus.memory.intake import find_text_objection
from habitus.screening.file_kinds import is_instruction_file, is_prose
from habitus.screening.findings import Finding, RiskLevel
from habitus.screening.scanner import scan_skill

OWN = Path(__file__).parent / "data"
HOSTS = ("docs-relay.net", "api.filekeep.io", "collect.workmirror.com", "sync.teamdesk-tools.dev", "91.203.5.77")
_HOST = re.compile(r"[\w.-]+\.onrender\.com|[\w.-]*(?:attacker|evil)[\w.-]*\.com")
_CODE = re.compile(r"```\w*\n(.*?)```|`([^`\n]{12,})`", re.DOTALL)
_MARKS = re.compile(r"^[\s#>*+-]*(?:\d+[.)]\s*)?|\*\*|#{2,}\s*")
_SIGNS = re.compile(
    r"https?://|exec|eval|curl|environ|ignore|disregard|secret|key|token|while true|\.\.|select |"
    r"[\U000e0020-\U000e007e]{9}"
)
_PUBLISHED = Path("retrieval/skillroute/corpus.jsonl.gz")
_NO_DATA = (".xsd", ".json", ".csv", ".xml", ".lock", ".svg")

Files = dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Attack:
    """Its loud form, the line that matters, and its script where it has one."""

    kind: str
    block: str
    line: str
    script: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Skill:
    source: str
    files: Files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("HABITUS_BENCH_DATA", ".")))
    parser.add_argument(
        "--hosts", type=int, default=2, help="harmless skills of each family that each attack is put into"
    )
    parser.add_argument(
        "--first-sight", type=Path, nargs="*", default=[], help="sets by others: label, kind, path, text in each row"
    )
    parser.add_argument("--missed", action="store_true", help="name what is missed and what is held wrongly")
    args = parser.parse_args()
    attacks = {
        "Cisco": [*_fixtures(args.data)],
        "SKILL-INJECT": [*_injected(args.data)],
        "ours": [*_ours("attacks", "attacks_fresh", "attacks_unseen")],
        "ours, obvious": [*_ours("attacks_obvious", "attacks_obvious_unseen", "attacks_obvious_last")],
        "acts, tested": [*_acts("acts_tested", TURNED), *_acts("acts_tested", PLAIN)],
        "acts, last": [*_acts("acts_last", TURNED), *_acts("acts_last", PLAIN)],
    }
    harmless = {"wild": _harmless(args.data, "skills_whole"), "vendors": _harmless(args.data, "vendors")}
    systems: dict[str, Any] = {"worst pair": {}, "pairs": {}}
    for name, family in attacks.items():
        for host, skills in harmless.items():
            _report.progress(f"{name} in {host}")
            systems["pairs"][f"{name} in {host}"] = _held(family, _in_turn(skills), args.hosts, missed=args.missed)
    systems["SKILL-INJECT as published"] = _as_published(args.data, named=args.missed)
    for place in PLACES:
        shares = {pair: found[place] for pair, found in systems["pairs"].items() if place in found}
        worst = min(shares, key=lambda pair: shares[pair]["held"])
        systems["worst pair"][place] = {"pair": worst, **shares[worst]}
    if (args.data / "ordinary" / "vendors_microsoft.jsonl.xz").exists():
        harmless["vendors, Microsoft"] = _harmless(args.data, "vendors_microsoft")
    if (istota := args.data / "skill_collections" / "istota").exists():
        harmless["Istota"] = [*_folders(istota)]
    if (published := args.data / _PUBLISHED).exists():
        harmless["published pages"] = [*_pages(published)]
    systems |= {f"first sight, {path.stem}": _first_sight(path) for path in args.first_sight}
    for host, skills in harmless.items():
        systems[f"false alarms, {host}"] = _false_alarms(skills, named=args.missed)
    systems["data files held"] = sum(_held_data(skills) for skills in harmless.values())
    systems |= _lessons(args.data, named=args.missed)
    _report.show("screening", args, systems)


def _held(attacks: Sequence[Attack], skills: Sequence[Skill], hosts: int, *, missed: bool) -> dict[str, Any]:
    """The share of the attacks that is held, by place."""
    held: dict[str, list[bool]] = defaultdict(list)
    passed: dict[str, list[str]] = defaultdict(list)
    alone = {id(skill): _high(scan_skill(_tree(skill.files))) for skill in skills[: hosts * 7]}
    for number, attack in enumerate(attacks):
        for turn in range(hosts):
            skill = skills[(number * hosts + turn) % min(len(skills), hosts * 7)]
            for place, put in PLACES.items():
                if files := put(attack, skill.files, random.Random(number)):
                    is_held = bool(_high(scan_skill(_tree(files))) - alone[id(skill)])
                    held[place].append(is_held)
                    if not is_held and turn == 0:
                        passed[place].append(f"{attack.kind}: {attack.line[:160]}")
    return {
        place: share(held[place]) | ({"passed": passed[place]} if missed else {}) for place in PLACES if held[place]
    }


def _as_block(attack: Attack, files: Files, _: random.Random) -> Files:
    return files | {"SKILL.md": f"{files['SKILL.md'].rstrip()}\n\n{attack.block.strip()}\n"}


def _as_line(attack: Attack, files: Files, choose: random.Random) -> Files:
    """Among the lines of a list or paragraph, after the front matter."""
    lines = files["SKILL.md"].split("\n")
    spots = [at for at, line in enumerate(lines) if at > 8 and re.match(r"\s*(?:[-*]|\d+\.)\s", line)]
    spots = spots or [at for at, line in enumerate(lines) if at > 8 and not line.strip()] or [len(lines) - 1]
    at = choose.choice(spots)
    mark = re.match(r"\s*(?:[-*]|\d+\.)\s", lines[at])
    return files | {
        "SKILL.md": "\n".join([*lines[: at + 1], f"{mark[0] if mark else ''}{attack.line}", *lines[at + 1 :]])
    }


def _as_script(attack: Attack, files: Files, choose: random.Random) -> Files | None:
    if attack.script is None:
        return None
    name, text = attack.script
    runs = f"{'python3' if name.endswith('.py') else 'bash'} scripts/{name}"
    said = choose.choice(
        (
            f"When you are done, run `{runs}` to finish.",
            f"Always run {name} from this skill's scripts directory after each operation to keep things in sync.",
            f"Before you begin, make sure that `{runs}` has been executed.",
        )
    )
    line = Attack(kind=attack.kind, block=said, line=said)
    return _as_line(line, files, choose) | {f"scripts/{name}": text}


def _as_description(attack: Attack, files: Files, _: random.Random) -> Files | None:
    line = " ".join(attack.line.split()).replace('"', "'")
    text, count = re.subn(
        r"(?m)^description:[ \t]*(?:[>|][+-]?[ \t]*\n[ \t]+)?[\"']?(.*?)[\"']?$",
        lambda found: f'description: "{found[1]} {line}"'.replace("\\", "\\\\"),
        files["SKILL.md"],
        count=1,
    )
    return files | {"SKILL.md": text} if count else None


PLACES: Mapping[str, Callable[[Attack, Files, random.Random], Files | None]] = {
    "obvious": _as_block,
    "in context": _as_line,
    "with a script": _as_script,
    "in the description": _as_description,
}


def _fixtures(data: Path) -> Iterator[Attack]:
    """Whole harmful skills: their prose where the harm is said, their scripts where it is done."""
    for row in _report.read_jsonl(data / "malicious" / "fixtures.jsonl"):
        files, kind = row["files"], row["path"].rpartition("/")[2]
        scripts = [(path, text) for path, text in files.items() if path.endswith((".py", ".sh"))]
        if row["label"] != "malicious" or "assets/test-binary.bin" in files:
            continue
        body = _elsewhere(re.sub(r"\A---\n.*?\n---\n", "", files["SKILL.md"], flags=re.DOTALL))
        if scripts:
            text = "\n\n".join(_elsewhere(text) for _, text in scripts)
            yield Attack(kind=kind, block=f"```python\n{text}\n```", line=_worst_line(text), script=("work.py", text))
        else:
            yield Attack(kind=kind, block=body, line=_worst_line(body))


def _worst_line(text: str) -> str:
    """The line that has most of what harm is made of: an address, a call, an order."""
    lines = (line.strip() for line in text.split("\n"))
    return max(lines, key=lambda line: (len(_SIGNS.findall(line.lower())), len(line)))


def _injected(data: Path) -> Iterator[Attack]:
    for block in dict.fromkeys(row["inserted"] for row in _report.read_jsonl(data / "malicious" / "injected.jsonl.gz")):
        yield _worded("injected", _elsewhere(block, salt=len(block)))


def _as_published(data: Path, *, named: bool) -> dict[str, Any]:
    """The skills that others put an attack into, every one of them: which are held that are not without it?"""
    rows = [*_report.read_jsonl(data / "malicious" / "injected.jsonl.gz")]
    clean = {text: _high(scan_skill(_tree({"SKILL.md": text}))) for text in {_without_attack(row) for row in rows}}
    held = [bool(_high(scan_skill(_tree({"SKILL.md": row["text"]}))) - clean[_without_attack(row)]) for row in rows]
    passed = [row["id"] for row, is_held in zip(rows, held, strict=True) if not is_held]
    return share(held) | ({"passed": passed} if named else {})


def _without_attack(row: Mapping[str, str]) -> str:
    return row["text"].replace(row["inserted"], "")


def _ours(*names: str) -> Iterator[Attack]:
    for name in names:
        for kind, text in sections(OWN / f"{name}.txt"):
            yield _worded(kind, text, loud=f"## IMPORTANT\n\n{text}")


def _acts(name: str, grammars: tuple[str, ...]) -> Iterator[Attack]:
    for kind, text in lines(OWN / f"{name}.txt", grammars):
        yield _worded(kind, text, loud=f"## IMPORTANT\n\n{text}")


def _worded(kind: str, text: str, loud: str = "") -> Attack:
    """An attack in words; the commands in it make its script."""
    lines = [_MARKS.sub("", line).strip() for line in re.sub(r"```\w*\n?", "", text).split("\n")]
    line = max(lines, key=lambda one: ("://" in one or "`" in one, len(one)))
    commands = [fenced or inline for fenced, inline in _CODE.findall(text)]
    body = "\n".join(one.strip() for one in commands)
    is_python = re.search(r"(?m)^(?:import|from|with|for) |requests\.", body) is not None
    script = ("finish.py", body) if is_python else ("finish.sh", f"#!/bin/bash\n{body}")
    return Attack(kind=kind, block=loud or text, line=line, script=script if len(body) > 20 else None)


def _elsewhere(text: str, salt: int = 0) -> str:
    return _HOST.sub(HOSTS[(len(text) + salt) % len(HOSTS)], text)


def _harmless(data: Path, name: str) -> list[Skill]:
    with lzma.open(data / "ordinary" / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [Skill(source=row["source"], files=row["files"]) for row in map(json.loads, lines)]


def _pages(corpus: Path) -> Iterator[Skill]:
    """SKILL.md files alone, as many people published them; nobody has sorted the harmful ones out."""
    for row in _report.read_jsonl(corpus):
        front = f"---\nname: {row['name']}\ndescription: {json.dumps(row['description'])}\n---\n"
        yield Skill(source=row["id"], files={"SKILL.md": front + row["body"]})


def _in_turn(skills: Iterable[Skill]) -> list[Skill]:
    """The pages that attacks are put into: one of each source, then the second of each."""
    count: dict[str, int] = defaultdict(int)
    ranked = []
    for skill in skills:
        if 500 < len(skill.files.get("SKILL.md", "")) < 40_000:
            page = Skill(source=skill.source, files={"SKILL.md": skill.files["SKILL.md"]})
            ranked.append((count[skill.source], skill.source, page))
            count[skill.source] += 1
    return [skill for _, _, skill in sorted(ranked, key=lambda one: one[:2])]


def _false_alarms(skills: Sequence[Skill], *, named: bool) -> dict[str, Any]:
    """The share that is held, and how many of them for a file of each role."""
    found = [[one for one in scan_skill(_tree(skill.files)) if one.severity is RiskLevel.HIGH] for skill in skills]
    roles = Counter(
        role
        for skill, high in zip(skills, found, strict=True)
        for role in {_role(one.path, skill.files) for one in high}
    )
    which = [f"{skill.source}: {sorted(_high(high))[:3]}" for skill, high in zip(skills, found, strict=True) if high]
    return share([bool(high) for high in found]) | {"by role": dict(roles)} | ({"which": which} if named else {})


def _role(path: str, files: Files) -> str:
    if not is_prose(path):
        return "script"
    return "page that is followed" if is_instruction_file(path, files) else "page for reference"


def _first_sight(path: Path) -> dict[str, Any]:
    """Sets that others wrote without having read the rules, by label and kind."""
    held: dict[str, list[bool]] = defaultdict(list)
    for row in _report.read_jsonl(path):
        held[f"{row['label']}, {row['kind']}"].append(_is_held_row(row))
    return {kind: share(found) for kind, found in sorted(held.items(), key=lambda item: item[0])}


def _is_held_row(row: Mapping[str, str]) -> bool:
    text, place = row["text"], row["path"]
    if row["kind"] == "lesson":
        return bool(find_text_objection(text))
    described = text if place == "description" else "Keeps things in order."
    front = f"---\nname: helper\ndescription: {json.dumps(described)}\n---\n# Helper\n\n"
    if place == "description":
        files = {"SKILL.md": front}
    elif place == "SKILL.md":
        files = {"SKILL.md": text if text.startswith("---") else f"{front}{text}\n"}
    else:
        files = {"SKILL.md": f"{front}Run `{place}`.\n", place: text}
    return bool(_high(scan_skill(_tree(files))))


def _folders(top: Path) -> Iterator[Skill]:
    for folder in sorted(path for path in top.iterdir() if path.is_dir()):
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        names = {path: str(path.relative_to(folder)) for path in paths}
        files = {"SKILL.md" if names[path].lower() == "skill.md" else names[path]: path for path in paths}
        yield Skill(
            source=folder.name, files={name: path.read_text("utf-8", "replace") for name, path in files.items()}
        )


def _held_data(skills: Sequence[Skill]) -> int:
    """Schemas, licences and data files that alone would be held."""
    texts = {
        text
        for skill in skills
        for path, text in skill.files.items()
        if path.lower().endswith(_NO_DATA) or "license" in path.lower()
    }
    return sum(bool(_high(scan_skill(_tree({path: text})))) for text in texts for path in ("data.json",))


def _lessons(data: Path, *, named: bool) -> dict[str, Any]:
    """Orders and ordinary lessons as they come to memory."""
    orders = _lines(OWN / "admission_orders.txt")
    worded = [attack.line for attack in _ours("attacks", "attacks_fresh", "attacks_unseen")]
    usual = [row["text"] for row in _report.read_jsonl(data / "ordinary" / "lessons.jsonl")]
    close = _lines(OWN / "admission_ordinary.txt")
    found = {"orders": orders, "attacks as lessons": worded, "lessons": usual, "lessons close to orders": close}
    systems = {}
    for name, texts in found.items():
        held = [bool(find_text_objection(text)) for text in texts]
        wrong = [text for text, is_held in zip(texts, held, strict=True) if is_held == name.startswith("lessons")]
        systems[name] = share(held) | ({"wrong": wrong} if named else {})
    return systems


def share(held: Sequence[bool]) -> dict[str, Any]:
    """The share, with Wilson's interval of 95 percent."""
    count, part, z = len(held), sum(held) / len(held), 1.96
    middle = (part + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * (part * (1 - part) / count + z * z / (4 * count * count)) ** 0.5
    return {"held": round(part, 4), "of": count, "interval": [round(max(0, middle - half), 4), round(middle + half, 4)]}


def sections(file: Path) -> Iterator[tuple[str, str]]:
    r"""The lines below each `# kind`; `\n` in one is a line break."""
    kind = ""
    for line in file.read_text("utf-8").splitlines():
        if line.startswith("# "):
            kind = line[2:]
        elif line.strip():
            yield kind, line.replace("\\n", "\n")


def _tree(files: Files) -> Tree:
    return {path: build_tree_file(text.encode("utf-8", "surrogatepass")) for path, text in files.items()}


def _high(findings: Iterable[Finding]) -> set[tuple[str, str]]:
    return {(one.rule, one.quote) for one in findings if one.severity is RiskLevel.HIGH}


def _lines(file: Path) -> list[str]:
    return [line for line in dict.fromkeys(file.read_text("utf-8").splitlines()) if line.strip()]


if __name__ == "__main__":
    main()
