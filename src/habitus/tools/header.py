"""The PEP 723 header of a tool's file: with it, `uv run scripts/tool.py` works outside Habitus too."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable

from habitus.errors import ToolFailed

_BLOCK = re.compile(r"(?m)^# /// script[ \t]*\n((?:^#(?:| .*)\n)+?)^# ///[ \t]*\n?")
_FIRST = re.compile(r"\A(#!.*\n)")
_CODING = re.compile(r"\A((?:#.*\n)?)[ \t\f]*#.*?coding[:=][ \t]*[-\w.]+.*\n")


def dependencies_of(code: str) -> tuple[str, ...]:
    """What the header asks for; nothing when there is none."""
    found = _BLOCK.search(code)
    if found is None:
        return ()
    text = "".join(line.removeprefix("#").removeprefix(" ") for line in found[1].splitlines(keepends=True))
    try:
        wanted = tomllib.loads(text).get("dependencies", [])
    except tomllib.TOMLDecodeError as error:
        raise ToolFailed(f"The script header of the code is not valid TOML: {error}.") from None
    if not isinstance(wanted, list) or not all(isinstance(item, str) for item in wanted):
        raise ToolFailed("The dependencies in the script header of the code are not a list of strings.")
    return tuple(wanted)


def with_header(code: str, dependencies: Iterable[str]) -> str:
    """The code under a header of ours, which replaces any it had. The file is UTF-8, whatever it said it was."""
    code = _CODING.sub(r"\1", _BLOCK.sub("", code.removeprefix("\ufeff"), count=1))
    first = _FIRST.match(code)
    shebang = first[1] if first else ""
    listed = "".join(f"#     {_quoted(item)},\n" for item in dependencies)
    block = f"# dependencies = [\n{listed}# ]\n" if listed else "# dependencies = []\n"
    python = f'# requires-python = ">={sys.version_info[0]}.{sys.version_info[1]}"\n'
    rest = code.removeprefix(shebang)
    return f"{shebang}# /// script\n{python}{block}# ///\n{rest}" + ("" if rest.endswith("\n") else "\n")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
