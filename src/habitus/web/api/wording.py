"""Words the errors of REST: fields of the request instead of options, routes instead of commands."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from habitus.app.use_cases.declaration import UseCase, load_all_use_cases

API_ROOT = "/api/v1"
_OPTION = re.compile(r"--[a-z][a-z-]*(?:/--[a-z][a-z-]*)?")
_COMMAND = re.compile(r"(?P<verb>[Rr]un )?(?P<quote>['`])habitus (?P<words>[^'`]*)(?P=quote)(?! where Habitus runs)")


def replace_options_by_fields(text: str, case: UseCase[..., Any]) -> str:
    """Return the text with the fields of a use case in place of its options."""
    names = {flag: one.name for one in case.input_fields for flag in one.flags}
    return _OPTION.sub(lambda found: f"'{names[found[0]]}'" if found[0] in names else found[0], text)


def replace_commands_by_routes(text: str) -> str:
    """Return the text with the route of each command that has one; `habitus up`, say, stays."""
    return _COMMAND.sub(_replace_match_by_route, text)


def _replace_match_by_route(found: re.Match[str]) -> str:
    route = _find_command_route(found["words"])
    return ("Send " if found["verb"] else "") + route if route else found[0]


def _find_command_route(words: str) -> str:
    """Return method and address of the command that these words begin with; empty if there is none."""
    parts = words.split()
    routes = _map_commands_to_routes()
    commands = (" ".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((routes[command] for command in commands if command in routes), "")


@cache
def _map_commands_to_routes() -> dict[str, str]:
    return {case.command: f"{case.method} {API_ROOT}{case.path}" for case in load_all_use_cases() if case.method}
