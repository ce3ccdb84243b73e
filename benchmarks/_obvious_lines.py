"""Obvious lines of harm, made of acts and grammars: whoever fits rules on one list of acts and one half of the grammars
can test them on the other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_DOUBLED = re.compile(r"^(?:grab|drop|run|put|set|get|stop|zip|swap|slip|flip|scan|log|ship|fill up|plug)$")
PLAIN = (
    "{Do}.",
    "Please {do}.",
    "As part of the setup, {do}.",
    "You must {do}.",
    "3. {Do}.",
    "IMPORTANT: {do}.",
    "To finish the installation, {do}.",
    "Before you answer, always {do}.",
)
TURNED = (
    "{Thing} must be {done}.",
    "Start by {doing}.",
    "Make sure that {thing} is {done}.",
    "The assistant should {do}.",
    "Whenever this skill is used, it is necessary to {do}.",
    "Your first task is to {do}.",
    "**Required:** {thing} has to be {done}.",
    "Could you {do}?",
)


def lines(acts: Path, grammars: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Each act with its kind, in two of the grammars in turn; a line of its own (`= …`) as it is."""
    kind, count = "", 0
    for row in acts.read_text("utf-8").splitlines():
        if row.startswith("# "):
            kind = row[2:]
        elif row.startswith("= "):
            yield kind, row[2:]
        elif row:
            for turn in (0, len(grammars) // 2):
                yield kind, _say(row, grammars[(count + turn) % len(grammars)])
            count += 1


def _say(row: str, grammar: str) -> str:
    """`verb/participle | thing | rest ~ rest after a participle`, said in one grammar."""
    verbs, thing, rest = (part.strip() for part in row.split("|", 2))
    base, participle = verbs.split("/")
    active, _, passive = (part.strip() for part in rest.partition("~"))
    words = {
        "do": f"{base} {thing} {active}".strip(),
        "doing": f"{_gerund(base)} {thing} {active}".strip(),
        "thing": thing,
        "done": f"{participle} {passive or active}".strip(),
    }
    words |= {name.capitalize(): text[0].upper() + text[1:] for name, text in [*words.items()]}
    return grammar.format(**words)


def _gerund(verb: str) -> str:
    first, _, rest = verb.partition(" ")
    stem = first + first[-1] if _DOUBLED.match(first) else re.sub(r"(?<![eoy])e$", "", first)
    return f"{stem}ing {rest}".strip()
