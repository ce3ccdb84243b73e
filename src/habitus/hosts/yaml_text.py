"""YAML edited in place: one entry put in or taken out; comments and everything else stay."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from habitus.errors import Invalid


def data(text: str) -> Any:
    import yaml  # for those who connect an agent whose config is YAML

    try:
        said = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Invalid(" ".join(str(error).split())) from None
    return {} if said is None else said


def put(text: str, path: Sequence[str], value: Any) -> str:
    document = _parse(text)
    holder = document
    for name in path[:-1]:
        if holder.get(name) is None:
            holder[name] = {}
        holder = holder[name]
        if not isinstance(holder, dict):
            raise Invalid(f"'{'.'.join(path[:-1])}' is no mapping")
    holder[path[-1]] = value
    return _write(document)


def take(text: str, path: Sequence[str]) -> str:
    document = _parse(text)
    holder = document
    for name in path[:-1]:
        holder = holder.get(name, {}) if isinstance(holder, dict) else {}
    if isinstance(holder, dict):
        holder.pop(path[-1], None)
    return _write(document) if document else ""


def _editor() -> Any:
    from ruamel.yaml import YAML

    editor = YAML()
    editor.preserve_quotes = True
    editor.width = 1 << 20
    return editor


def _parse(text: str) -> Any:
    try:
        document = _editor().load(text)
    except Exception as error:  # ruamel has no common root for what it raises
        raise Invalid(" ".join(str(error).split())) from None
    if document is None:
        return _editor().map()
    if not isinstance(document, dict):
        raise Invalid("it is no mapping")
    return document


def _write(document: Any) -> str:
    stream = io.StringIO()
    _editor().dump(document, stream)
    return stream.getvalue()
