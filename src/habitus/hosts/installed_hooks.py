"""The hooks of Claude Code that can be installed: what each does for the person, and the command that it runs."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from habitus.hosts import hook
from habitus.hosts.editing import Entry


@dataclass(frozen=True, kw_only=True, slots=True)
class Hook:
    """`event` is Claude Code's name for it; `timeout` is in seconds."""

    event: str
    does: str
    timeout: int


RESIDENT = "hooks"  # the process behind them, by the name of its socket and its lock

# None has a matcher: VS Code runs these, too, and ignores matchers.
HOOKS: tuple[Hook, ...] = (
    Hook(event="SessionStart", does="tells it your rules, what is new and what waits for you", timeout=15),
    Hook(event="UserPromptSubmit", does="names lessons and skills that fit what you ask, in 300 tokens", timeout=5),
    Hook(event="PostToolUseFailure", does="tells it what helped the last time a call failed like that", timeout=5),
    Hook(event="Stop", does="notes where the transcript lies, to learn from later", timeout=2),
    Hook(event="SessionEnd", does="notes that the session is over and can be learned from", timeout=1),
)


def entries(events: Collection[str], python: str, home: Path) -> list[Entry]:
    """The hooks as Claude Code's settings hold them."""
    return [
        Entry(
            path=("hooks", one.event),
            value={"hooks": [{"type": "command", "command": command(one.event, python, home), "timeout": one.timeout}]},
            is_item=True,
        )
        for one in HOOKS
        if one.event in events
    ]


def command(event: str, python: str, home: Path) -> str:
    """Says nothing, and blocks nothing, where Habitus is gone meanwhile: Python's own exit code would."""
    _, script, _ = program(python, home)
    run: Sequence[str] = (python, "-IS", script, event, str(home), python)
    return f"[ -x {shlex.quote(python)} ] && [ -r {shlex.quote(script)} ] && exec {shlex.join(run)}; exit 0"


def program(python: str, home: Path) -> tuple[str, str, str]:
    """Interpreter, script and home: all that running a hook takes."""
    return python, str(Path(hook.__file__)), str(home)
