"""What a solver program may reach: its box, the copy of its sign-in, and the refusal where there is no box."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from habitus.errors import NotFound, Refused
from habitus.files import write_atomically
from habitus.llm.agents.program import ProgramRequest, dict_or_empty, read_json_file
from habitus.llm.agents.solvers import SolverProgram
from habitus.llm.model import ProviderError
from habitus.locks import hold_lock
from habitus.sandbox.machine import probe_machine
from habitus.sandbox.program_box import ProgramBox
from habitus.skills.library import Library

_MOST_CREDENTIAL_BYTES = 1 << 20


def is_box_available() -> bool:
    """Return whether this machine has a box for solver programs."""
    return probe_machine().bubblewrap is not None


def describe_box_access(solver: SolverProgram) -> str:
    """Describe what the solver can reach on this machine."""
    if not is_box_available():
        return (
            "There is no bubblewrap here to hold it: it can read your files, reach the network and start programs, so "
            "it solves only with skills of your own"
        )
    return (
        "It runs in a box: it sees the system's programs, that folder and a copy of its sign-in, no other file of "
        f"yours, no task and no other process, and reaches only {', '.join(solver.hosts)}"
    )


def open_solver_box(solver: SolverProgram, question: ProgramRequest, work: Path) -> ProgramBox | None:
    """Return the box for one run, with the provider that the person has configured; None if there is none here."""
    if not question.is_boxed:
        return None
    room = question.workspace
    own = [value for key, value in question.environ.items() if key.endswith("_BASE_URL")]
    for path in (*room.rglob("*.json"), *room.rglob("*.toml")):
        # What a skill or a task brings along must not name a host.
        if path.is_file() and not path.is_relative_to(room / solver.skills) and not path.is_relative_to(work):
            own += _ADDRESS.findall(path.read_text("utf-8", "replace"))
    hosts = filter(None, (urlsplit(address).netloc.rpartition("@")[2] for address in own))
    return ProgramBox(machine=probe_machine(), writable=(room, work), hosts=(*solver.hosts, *hosts))


_ADDRESS = re.compile(r"""base_?url"?\s*[:=]\s*"(https?://[^"]+)""", re.IGNORECASE)


def require_box_for_foreign_text(library: Library, skill: str, solver: SolverProgram) -> None:
    """Raise `Refused` if the solver would run without a box on the text of somebody else."""
    if is_box_available():
        return
    with suppress(NotFound):
        if origin := library.describe_unreviewed_origin(library.find(skill)):
            raise Refused(
                f"{solver.program.title} can't be held on this machine, and '{skill}' is not yours: {origin}.",
                hint="Install bubblewrap, or review the skill first.",
            )


@contextmanager
def copy_sign_in_into_box(solver: SolverProgram, room: Path, now: datetime, lasts: timedelta) -> Iterator[None]:
    """Replace the links to the person's sign-in with copies, and write a renewed one back at the end.

    A sign-in that would have to be renewed during the run is refused: two renewals at once end both.
    """
    links = {path: path.resolve() for path in room.rglob("*") if path.is_symlink()}
    before = {path: _copy_linked_file(path, real) for path, real in links.items()}
    rotating = room / solver.rotating_credentials if solver.rotating_credentials else None
    expiry = _find_sign_in_expiry(read_json_file(rotating)) if rotating is not None else None
    if expiry is not None and expiry < (now + lasts).timestamp():
        raise ProviderError(
            f"The sign-in of {solver.program.title} expires during the run. Renew it first: start "
            f"'{solver.program.command}' once, then try again."
        )
    try:
        yield
    finally:
        if rotating is not None and rotating in links:
            _write_back_sign_in(rotating, links[rotating], before[rotating])


def _copy_linked_file(link: Path, real: Path) -> bytes:
    link.unlink()
    try:
        content = real.read_bytes() if real.is_file() and real.stat().st_size <= _MOST_CREDENTIAL_BYTES else None
    except OSError:
        content = None
    if content is not None:
        link.write_bytes(content)
        link.chmod(0o600)
    return content or b""


def _write_back_sign_in(copy: Path, real: Path, before: bytes) -> None:
    """Write a renewed sign-in to the person's file, unless that was renewed meanwhile."""
    if copy.is_symlink() or not copy.is_file() or copy.stat().st_size > _MOST_CREDENTIAL_BYTES:
        return
    after = copy.read_bytes()
    if not before or after == before or not _is_sign_in_renewal(before, after):
        return
    with hold_lock(real.parent):
        if real.read_bytes() == before:
            write_atomically(real, after, mode=0o600)


def _is_sign_in_renewal(before: bytes, after: bytes) -> bool:
    """Return whether only texts and times differ: a program in the box may have written anything."""
    try:
        return bool(_outline_json_types(json.loads(before)) == _outline_json_types(json.loads(after)))
    except (ValueError, RecursionError):
        return False


def _outline_json_types(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _outline_json_types(part) for key, part in value.items()}
    return [*map(_outline_json_types, value)] if isinstance(value, list) else type(value).__name__


def _find_sign_in_expiry(said: Mapping[str, Any]) -> float | None:
    """Return the Unix time at which a sign-in expires; None if it does not say, or needs no renewal."""
    oauth = dict_or_empty(said.get("claudeAiOauth"))
    if isinstance(oauth.get("expiresAt"), int):
        return float(oauth["expiresAt"]) / 1000
    token = dict_or_empty(said.get("tokens")).get("access_token")
    if not isinstance(token, str) or token.count(".") != 2:
        return None
    body = token.split(".")[1]
    with suppress(ValueError):
        claims = dict_or_empty(json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))))
        return float(claims["exp"]) if isinstance(claims.get("exp"), int) else None
    return None
