"""Reading what a skill declares under `env`: one variable each, in our words or in those of the layout it came in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from habitus.sandbox.credentials.model import ComesFrom, EnvSpec

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# What decides how a process runs, and for whom, is not for a skill to choose.
_RESERVED = re.compile(r"(?i)PATH|HOME|SHELL|USER|IFS|ENV|BASH_ENV|TMPDIR|(?:LD|DYLD|PYTHON|HABITUS)_?\w*|\w*_PROXY")
_OTHER_WORDS = {"user_id": ComesFrom.USER, "setup_env": ComesFrom.SETUP}


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    specs: tuple[EnvSpec, ...]
    problems: tuple[str, ...]  # what makes no sense, one sentence each


def read(declared: Iterable[Mapping[str, Any]]) -> Declared:
    specs: dict[str, EnvSpec] = {}
    problems = []
    for one in declared:
        spec = _spec(one)
        if isinstance(spec, str):
            problems.append(spec)
        else:
            specs.setdefault(spec.var, spec)
    return Declared(specs=tuple(specs.values()), problems=tuple(problems))


def _spec(one: Mapping[str, Any]) -> EnvSpec | str:
    """One variable, or what is wrong with its declaration."""
    var, said = str(one.get("var", "")), str(one.get("from", ""))
    if not _VARIABLE.fullmatch(var):
        return f"'{var[:40]}' is no name of a variable."
    if _RESERVED.fullmatch(var):
        return f"{var} is not for a skill to set."
    try:
        source = _OTHER_WORDS.get(said) or ComesFrom(said)
    except ValueError:
        return f"{var} comes from '{said[:40]}'; there are: {', '.join(ComesFrom)}."
    return EnvSpec(
        var=var,
        source=source,
        name="" if source is ComesFrom.USER else _name(one) or var,
        when=_texts(one.get("when")),
        sensitive=str(one.get("sensitive") or "false").lower() not in ("false", "no", "off", "0"),
        fallback=str(one.get("fallback") or one.get("fallback_var") or ""),
    )


def _name(one: Mapping[str, Any]) -> str:
    if one.get("service") and one.get("key"):
        return f"{one['service']}.{one['key']}"
    return next((str(one[key]) for key in ("name", "config_path", "template") if one.get(key)), "")


def _texts(value: object) -> tuple[str, ...]:
    if not value:
        return ()
    return tuple(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else (str(value),)
