"""Families of requests out of a corpus of real skills, for `retrieval.py`: no weight was fitted with them.

    python benchmarks/families.py --corpus C --to DIR

Each request is a text that its author wrote into a skill, taken out of that skill: a phrase quoted in the
description, a prompt quoted in the body, a bullet under "when to use", a sentence of the body; Chinese phrases are a
family of their own. `tasks` are long requests with several right answers: joined texts of two or three related skills
of one author. Skills are related if a body names the other one and their names share a part, or if both name each
other. DIR gets `corpus.jsonl` without these texts, and `phrases.jsonl`, `prompts.jsonl` and so on with the requests.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _report import read_jsonl

MOST = {"phrases": 350, "prompts": 350, "bullets": 350, "sentences": 300, "chinese": 120}
MOST_TASKS, _LARGEST_TASK, _SENTENCES_OF_ONE = 250, 3, 3
_QUOTED = re.compile(r"""["“「]([^"”“」\n]{4,160})["”」]|(?<!\w)'([^'\n]{8,120})'(?!\w)""")
_WHEN = re.compile(r"(?im)^#{1,4}\s*(?:when to (?:use|activate|apply)[^\n]*|use this skill when|trigger guidance)\s*$")
_PROMPTS = re.compile(r"(?im)^#{1,4}\s*[^\n]*(?:example|prompt|usage)[^\n]*$")
_BULLET = re.compile(r"(?m)^\s*(?:[-*•]|\d+[.)])\s+(.{12,200})$")
_HEADING = re.compile(r"(?m)^#{1,4}\s")
_NO_REQUEST = re.compile(r"[{}<>=$\\_]|https?:|^sk-")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_WORD = re.compile(r"[A-Za-z]+|[\u4e00-\u9fff]{2}")
_PLAIN = re.compile(r"[A-Z][a-z]+ [^`|]*")
_LONG_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    args = parser.parse_args()
    skills = {skill["id"]: skill for skill in read_jsonl(args.corpus)}
    families: dict[str, list[dict[str, Any]]] = {name: [] for name in MOST}
    copies = Counter((skill["name"], skill["description"][:80]) for skill in skills.values())
    choose = random.Random(7)
    for id in choose.sample(sorted(skills), len(skills)):
        skill = skills[id]
        if copies[skill["name"], skill["description"][:80]] > 1:
            continue
        offered = [(name, text) for name, text in _texts(skill, choose) if len(families[name]) < MOST[name]]
        if not offered:
            continue
        name, text = min(offered, key=lambda one: len(families[one[0]]) / MOST[one[0]])
        skills[id] = _without(skill, text)
        request = {"id": f"{name}-{len(families[name])}", "text": re.sub("[*`]", "", text), "relevant_ids": [id]}
        families[name].append(request)
    asked = {id for requests in families.values() for request in requests for id in request["relevant_ids"]}
    families["tasks"] = _join_tasks(skills, copies, asked, choose)
    args.to.mkdir(parents=True, exist_ok=True)
    _write(args.to / "corpus.jsonl", [*skills.values()])
    for name, requests in families.items():
        _write(args.to / f"{name}.jsonl", requests)
        print(f"{name}: {len(requests)}")


def _join_tasks(
    skills: dict[str, dict[str, Any]], copies: Counter[tuple[str, str]], asked: set[str], choose: random.Random
) -> list[dict[str, Any]]:
    """Requests for several related skills at once, whose texts are taken out of `skills`."""
    spelled = Counter(skill["name"] for skill in skills.values())
    by_name = {
        skill["name"]: id
        for id, skill in skills.items()
        if spelled[skill["name"]] == 1 and copies[skill["name"], skill["description"][:80]] == 1 and id not in asked
    }
    tasks: list[dict[str, Any]] = []
    for name in choose.sample(sorted(by_name), len(by_name)):
        if name not in by_name or len(tasks) == MOST_TASKS:
            continue
        named = [other for other in sorted(by_name) if other != name and _are_related(skills, by_name, name, other)]
        group = [name, *choose.sample(named, len(named))][:_LARGEST_TASK]
        texts = {one: _task_texts(skills[by_name[one]], choose) for one in group}
        group = [one for one in group if texts[one]]
        if len(group) < 2 or name not in group:
            continue
        ids = [by_name.pop(one) for one in group]
        for one, id in zip(group, ids, strict=True):
            for text in texts[one]:
                skills[id] = _without(skills[id], text)
        said = [re.sub("[*`]", "", text) for one in group for text in texts[one]]
        joined = " ".join(text if text[-1] in ".!?" else f"{text.rstrip(' :;,')}." for text in said)
        tasks.append({"id": f"tasks-{len(tasks)}", "text": joined, "relevant_ids": ids})
    return tasks


def _are_related(skills: dict[str, dict[str, Any]], by_name: dict[str, str], a: str, b: str) -> bool:
    body_of_a = skills[by_name[a]]["body"]
    if b not in body_of_a or b not in _LONG_NAME.findall(body_of_a):
        return False
    return bool(set(a.split("-")) & set(b.split("-"))) or a in _LONG_NAME.findall(skills[by_name[b]]["body"])


def _task_texts(skill: dict[str, Any], choose: random.Random) -> list[str]:
    """A prompt of the skill if it has one, and some sentences; none if it has neither."""
    prompts = [text for name, text in _texts(skill, choose) if name == "prompts"]
    sentences = _sentences(skill["body"])
    return [*prompts, *choose.sample(sentences, min(_SENTENCES_OF_ONE, len(sentences)))]


def _without(skill: dict[str, Any], text: str) -> dict[str, Any]:
    return {**skill, **{part: skill[part].replace(text, " ") for part in ("description", "body")}}


def _texts(skill: dict[str, Any], choose: random.Random) -> Iterator[tuple[str, str]]:
    """One text for each family that the skill has any for, as it stands there."""
    phrases = [text for text in _quoted(skill["description"]) if _words(text) >= 3]
    if len(phrases) >= 2:
        yield _family("phrases", text := choose.choice(phrases)), text
    quoted = _quoted(_section(skill["body"], _PROMPTS))
    prompts = [text for text in quoted if 5 <= _words(text) <= 40 and not _NO_REQUEST.search(text)]
    if prompts:
        yield _family("prompts", text := choose.choice(prompts)), text
    bullets = [text for text in _BULLET.findall(_section(skill["body"], _WHEN)) if 4 <= _words(text) <= 30]
    if len(bullets) >= 3 and not _CHINESE.search(bullets[0]):
        yield "bullets", choose.choice(bullets)
    sentences = _sentences(skill["body"])
    if len(sentences) > 2:
        yield "sentences", choose.choice(sentences)


def _sentences(body: str) -> list[str]:
    pieces = [piece.strip(" #*-`\n") for piece in re.split(r"(?<=[.!?])\s+|\n+", body)]
    return [text for text in pieces if 8 <= len(text.split()) <= 25 and _PLAIN.fullmatch(text)]


def _family(name: str, text: str) -> str:
    return "chinese" if _CHINESE.search(text) else name


def _quoted(text: str) -> list[str]:
    return [(found[1] or found[2]).strip() for found in _QUOTED.finditer(text)]


def _section(body: str, heading: re.Pattern[str]) -> str:
    found = heading.search(body)
    return _HEADING.split(body[found.end() :], maxsplit=1)[0] if found else ""


def _words(text: str) -> int:
    return len(_WORD.findall(text))


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
