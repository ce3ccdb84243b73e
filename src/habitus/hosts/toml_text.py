"""TOML edited in place: one table put in or taken out; comments and everything else stay."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from habitus.errors import Invalid


def data(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise Invalid(str(error)) from None


def put(text: str, path: Sequence[str], value: Any) -> str:
    import tomlkit  # for those who connect an agent whose config is TOML

    document = tomlkit.parse(text)
    holder: Any = document
    for name in path[:-1]:
        if name not in holder:
            holder[name] = tomlkit.table(is_super_table=True)
        holder = holder[name]
    if not isinstance(holder, dict):
        raise Invalid(f"'{'.'.join(path[:-1])}' is no table")
    holder[path[-1]] = value
    return tomlkit.dumps(document)


def take(text: str, path: Sequence[str]) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    holder: Any = document
    for name in path[:-1]:
        holder = holder.get(name, {}) if isinstance(holder, dict) else {}
    if isinstance(holder, dict) and path[-1] in holder:
        del holder[path[-1]]
    return tomlkit.dumps(document)
