"""Copies of sign-ins for solver programs. They can be used and not renewed: a renewal replaces the user's own token."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from habitus.errors import Refused
from habitus.files import open_regular_file
from habitus.llm.agents.program import AgentProgramPrompt, dict_or_empty
from habitus.llm.agents.running import is_variable_passed_into_sandbox
from habitus.llm.agents.solvers import SolverProgram

_MOST_CREDENTIAL_BYTES = 1 << 20
# Programs renew a token that is valid for less than this.
_RENEWED_BEFORE_END = timedelta(minutes=5)


def copy_sign_in_without_refresh_token(
    solver: SolverProgram, question: AgentProgramPrompt, now: datetime, lasts: timedelta
) -> None:
    """Replace the links to the user's sign-in with copies, without other providers and without its refresh token.

    A provider that replaces refresh tokens ends the sign-in of whoever uses an old one: a run that is killed, or a
    second one. A sign-in that expires during the run is therefore refused.
    """
    refuse_expiring_sign_in(solver, question, now + lasts)
    signed_in = question.workspace / solver.sign_in
    said = _read_sign_in(solver, question) if signed_in.is_symlink() else {}
    for path in [path for path in question.workspace.rglob("*") if path.is_symlink()]:
        content = _read_small_file(path.resolve())
        path.unlink()
        if path == signed_in:
            content = json.dumps(_remove_refresh_tokens(said, solver.reuses_refresh_token(question), now)).encode()
        elif path.name == ".env" and content is not None:
            content = _filter_lines_of_allowed_variables(content, solver)
        if content is not None:
            path.write_bytes(content)
            path.chmod(0o600)


def refuse_expiring_sign_in(solver: SolverProgram, question: AgentProgramPrompt, until: datetime) -> None:
    """Raise `Refused` if the sign-in in the request's folder expires before `until`, or would be renewed."""
    said = _read_sign_in(solver, question)
    if solver.reuses_refresh_token(question) and _has_refresh_token(said):
        return
    expiry = _find_sign_in_expiry(said)
    if expiry is not None and expiry < (until + _RENEWED_BEFORE_END).timestamp():
        what = f"The sign-in of {solver.program.title} expires during the run."
        raise Refused(what, hint=f"Renew it first: start '{solver.program.command}' once, then try again.")


def _read_sign_in(solver: SolverProgram, question: AgentProgramPrompt) -> dict[str, Any]:
    """Return the sign-in, or the entry that is used of a file with several; empty if there is none."""
    said: dict[str, Any] = {}
    with suppress(ValueError, RecursionError):
        said = dict_or_empty(json.loads(_read_small_file(question.workspace / solver.sign_in) or b""))
    used = solver.sign_in_entry or solver.find_provider(question)
    return {key: part for key, part in said.items() if key == used} if used else said


def _read_small_file(path: Path) -> bytes | None:
    with suppress(OSError, RuntimeError), open_regular_file(path.resolve()) as file:
        content = file.read(_MOST_CREDENTIAL_BYTES + 1)
        return content if len(content) <= _MOST_CREDENTIAL_BYTES else None
    return None


_REFRESH_TOKENS = ("refreshToken", "refresh_token", "refresh")


def _has_refresh_token(said: Mapping[str, Any]) -> bool:
    parts = (said, *(part for part in said.values() if isinstance(part, dict)))
    return any(part.get(key) for part in parts for key in _REFRESH_TOKENS)


def _remove_refresh_tokens(said: Mapping[str, Any], keeps_refresh_token: bool, now: datetime) -> dict[str, Any]:
    """Return a sign-in with empty refresh tokens. Codex renews what was last renewed days ago."""
    made: dict[str, Any] = {}
    for key, value in said.items():
        if isinstance(value, dict):
            made[key] = _remove_refresh_tokens(value, keeps_refresh_token, now)
        elif key == "last_refresh":
            made[key] = now.astimezone(UTC).isoformat().replace("+00:00", "Z")
        else:
            made[key] = "" if key in _REFRESH_TOKENS and not keeps_refresh_token else value
    return made


def _filter_lines_of_allowed_variables(content: bytes, solver: SolverProgram) -> bytes:
    """Return the lines of a file of variables that a program may have in its box."""
    lines = {
        one: one.partition("=")[0].removeprefix("export ").strip()
        for one in content.decode("utf-8", "replace").splitlines()
    }
    return "\n".join(
        line for line, name in lines.items() if is_variable_passed_into_sandbox(solver.program, name)
    ).encode()


def _decode_jwt_claims(token: str) -> dict[str, Any]:
    with suppress(ValueError, RecursionError, IndexError):
        body = token.split(".")[1]
        return dict_or_empty(json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))))
    return {}


def _find_sign_in_expiry(said: Mapping[str, Any]) -> float | None:
    """Return the Unix time at which a sign-in expires; None if it does not say."""
    match said:
        case {"claudeAiOauth": {"expiresAt": int(milliseconds)}}:
            return milliseconds / 1000
        case {"tokens": {"access_token": str(token)}}:
            expiry = _decode_jwt_claims(token).get("exp")
            return float(expiry) if isinstance(expiry, int | float) else None
        case {"expiry_date": int(milliseconds)}:
            return milliseconds / 1000
        case _:
            entries = [part for part in said.values() if isinstance(part, dict) and part.get("type") == "oauth"]
            return min(
                (part["expires"] / 1000 for part in entries if isinstance(part.get("expires"), int | float)),
                default=None,
            )
