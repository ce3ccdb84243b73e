"""The `skills` module that sandboxed code can use: it forwards questions to the host.

`skills.list(tag)` and `skills.read(name, path)` only read; `skills.run(name, *arguments)` has the host run a skill's
command line.
"""

from __future__ import annotations

import binascii
import sys
import types

# Only for the type checker: these scripts start with every sandboxed process, and `typing` is slow to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from . import wire


def install_skills_module(module: types.ModuleType, ask: Callable[[str, object], wire.Message]) -> None:
    """Make `skills` available as a global of the code's module and as an importable module."""

    def answer(what: str, argument: object) -> object:
        said = ask(what, argument)
        if "error" in said:
            raise LookupError(said["error"])
        return said["answer"]

    def read(name: str, path: str | None = None) -> object:
        """A skill, or one of its files: text, or bytes where it is none."""
        if path is None:
            return answer("skills.read", name)
        found = answer("skills.read", [name, path])
        assert isinstance(found, dict)
        return found["text"] if "text" in found else binascii.a2b_base64(found["base64"])

    def run(name: str, *arguments: str, stdin: str = "") -> types.SimpleNamespace:
        """What a skill's command line came to: its stdout, stderr and code. It runs elsewhere, not here."""
        said = answer("skills.run", {"skill": name, "arguments": list(arguments), "stdin": stdin})
        assert isinstance(said, dict)
        return types.SimpleNamespace(**said)

    skills = types.ModuleType("skills", "The skills the agent has: their texts, and their command lines.")
    skills.__dict__["run"] = run
    skills.__dict__["list"] = lambda tag=None: answer("skills.list", tag)
    skills.__dict__["read"] = read
    sys.modules["skills"] = skills
    module.__dict__["skills"] = skills
