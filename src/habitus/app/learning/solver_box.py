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
from habitus.files import open_regular_file, write_atomically
from habitus.llm.agents.program import ProgramRequest, dict_or_empty, read_json_file
from habitus.llm.agents.solvers import SolverProgram
from habitus.locks import hold_lock
from habitus.sandbox.machine import probe_machine
from habitus.sandbox.program_box import ProgramBox
from habitus.skills.library import Library

_MOST_CREDENTIAL_BYTES = 1 << 20


def is_box_available() -> bool:
    """Return whether this machine has a box for solver programs."""
    return probe_machine().bubblewrap is not None


def describe_box_access(solver: SolverProgram, question: ProgramRequest) -> str:
    """Describe what the solver can reach on this machine."""
    if not is_box_available():
        return (
            "There is no bubblewrap here to hold it: it can read your files, reach the network and start programs, so "
            "it solves only with skills of your own"
        )
    hosts = ", ".join(solver.find_hosts(question)) or "the address that you have configured"
    return (
        "It runs in a box: it sees the system's programs, that folder and a copy of its sign-in, no other file of "
        f"yours, no task and no other process, and reaches only {hosts}"
    )


def open_solver_box(solver: SolverProgram, question: ProgramRequest, work: Path) -> ProgramBox | None:
    """Return the box for one run, with the provider that the person has configured; None if there is none here."""
    if not question.is_boxed:
        return None
    room = question.workspace
    own = solver.list_given_addresses(question)
    for path in (*room.rglob("*.json"), *room.rglob("*.toml")):
        # What a skill or a task brings along must not name a host.
        if path.is_file() and not path.is_relative_to(room / solver.skills) and not path.is_relative_to(work):
            own += _ADDRESS.findall(path.read_text("utf-8", "replace"))
    configured = filter(None, (urlsplit(address).netloc.rpartition("@")[2] for address in own))
    if not (hosts := (*solver.find_hosts(question), *configured)):
        what = f"The address of '{solver.find_provider(question)}' is not known here."
        raise Refused(what, hint=f"Set its base URL in your settings of {solver.program.title}.")
    return ProgramBox(machine=probe_machine(), writable=(room, work), hosts=hosts)


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
def copy_sign_in_into_box(
    solver: SolverProgram, question: ProgramRequest, now: datetime, lasts: timedelta
) -> Iterator[None]:
    """Replace the links to the person's sign-in with copies, and write a renewed one back at the end.

    Of a sign-in at several providers only that of the one in use is copied. One that would have to be renewed during
    the run is refused: two renewals at once end both.
    """
    room = question.workspace
    refuse_expiring_sign_in(solver, question, now + lasts)
    links = {path: path.resolve() for path in room.rglob("*") if path.is_symlink()}
    signed_in = room / solver.sign_in
    before = _read_sign_in(solver, question, signed_in) if signed_in in links else {}
    for path, real in links.items():
        _copy_linked_file(path, real)
    if solver.find_provider(question) and signed_in in links:
        signed_in.write_text(json.dumps(before))
    try:
        yield
    finally:
        # Not a link that the program left.
        if before and signed_in.resolve() == room.resolve() / solver.sign_in:
            after = _read_sign_in(solver, question, signed_in)
            _write_back_sign_in(solver, question, links[signed_in], before, after)


def refuse_expiring_sign_in(solver: SolverProgram, question: ProgramRequest, until: datetime) -> None:
    """Raise `Refused` if the sign-in in the request's folder expires before `until`."""
    expiry = _find_sign_in_expiry(_read_sign_in(solver, question, question.workspace / solver.sign_in))
    if expiry is not None and expiry < until.timestamp():
        what = f"The sign-in of {solver.program.title} expires during the run."
        raise Refused(what, hint=f"Renew it first: start '{solver.program.command}' once, then try again.")


def _copy_linked_file(link: Path, real: Path) -> None:
    link.unlink()
    if (content := _read_bounded(real)) is not None:
        link.write_bytes(content)
        link.chmod(0o600)


def _read_bounded(path: Path) -> bytes | None:
    with suppress(OSError), open_regular_file(path) as file:
        content = file.read(_MOST_CREDENTIAL_BYTES + 1)
        return content if len(content) <= _MOST_CREDENTIAL_BYTES else None
    return None


def _read_sign_in(solver: SolverProgram, question: ProgramRequest, path: Path) -> dict[str, Any]:
    """Return the sign-in in a file, or its entry of the provider in use; empty if there is none."""
    said: dict[str, Any] = {}
    with suppress(ValueError, RecursionError):
        said = dict_or_empty(json.loads(_read_bounded(path) or b""))
    provider = solver.find_provider(question)
    return {key: part for key, part in said.items() if key == provider} if provider else said


def _write_back_sign_in(
    solver: SolverProgram, question: ProgramRequest, real: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Write a renewed sign-in to the person's file, unless that was renewed meanwhile."""
    try:
        renewed = _take_renewed_tokens(before, after)
    except _OtherSignInError:
        return
    if renewed == before:
        return
    with hold_lock(real.parent):
        if _read_sign_in(solver, question, real) == before:
            # The entries of other providers stay as they are now.
            write_atomically(real, json.dumps({**read_json_file(real), **renewed}, indent=2).encode(), mode=0o600)


class _OtherSignInError(Exception):
    """A sign-in is no renewal of the one before."""


# What a renewal replaces.
_TOKENS = frozenset(
    {
        *("access", "refresh", "expires", "accessToken", "refreshToken", "expiresAt", "refreshTokenExpiresAt"),
        *("access_token", "refresh_token", "id_token", "expiry_date", "last_refresh"),
    }
)
# What the provider may say otherwise of the same account; what was said before stays.
_DESCRIPTIONS = frozenset({"scope", "scopes", "subscriptionType", "rateLimitTier"})
_MAY_APPEAR = _TOKENS | _DESCRIPTIONS | {"accountId"}
# Claims of a token that say whose it is, without case and separators.
_IDENTITY = frozenset(
    {
        *("iss", "sub", "email", "accountid", "accountuuid", "chatgptaccountid", "chatgptuserid", "userid"),
        *("organizationid", "organizationuuid", "orgid", "tenantid", "tid", "oid"),
    }
)


def _take_renewed_tokens(before: dict[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sign-in with new tokens of the same account; raise `_OtherSignInError` for anything else.

    A program in the box may have written anything.
    """
    if not before.keys() <= after.keys() or not after.keys() - before.keys() <= _MAY_APPEAR:
        raise _OtherSignInError
    made: dict[str, Any] = {}
    for key, old in before.items():
        new = after[key]
        if isinstance(old, dict) and isinstance(new, dict):
            made[key] = _take_renewed_tokens(old, new)
        elif key in _TOKENS and type(old) is type(new) and _find_identity(old) == _find_identity(new):
            made[key] = new
        elif old == new or key in _DESCRIPTIONS:
            made[key] = old
        else:
            raise _OtherSignInError
    return made


def _find_identity(token: object) -> Mapping[str, Any] | None:
    """Return the claims of a token that say whose it is; None if nobody can read them from it."""
    if (claims := _decode_claims(token)) is None:
        return None
    nested = [claims, *(part for part in claims.values() if isinstance(part, dict))]
    found = [(re.sub(r"[_-]", "", key).lower(), value) for part in nested for key, value in part.items()]
    return {key: value for key, value in found if key in _IDENTITY}


def _decode_claims(token: object) -> dict[str, Any] | None:
    if not isinstance(token, str) or token.count(".") != 2:
        return None
    body = token.split(".")[1]
    with suppress(ValueError, RecursionError):
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return claims if isinstance(claims, dict) else None
    return None


def _find_sign_in_expiry(said: Mapping[str, Any]) -> float | None:
    """Return the Unix time at which a sign-in expires; None if it does not say, or is renewed without a new secret."""
    match said:
        case {"claudeAiOauth": {"expiresAt": int(milliseconds)}}:
            return milliseconds / 1000
        case {"tokens": {"access_token": str(token)}}:
            expiry = (_decode_claims(token) or {}).get("exp")
            return float(expiry) if isinstance(expiry, int | float) else None
        case {"refresh_token": str()}:
            # Google's stays as it is.
            return None
        case {"expiry_date": int(milliseconds)}:
            return milliseconds / 1000
        case _:
            entries = [part for part in said.values() if isinstance(part, dict) and part.get("type") == "oauth"]
            # 0 stands for never.
            times = [part["expires"] / 1000 for part in entries if isinstance(part.get("expires"), int | float)]
            return min(filter(None, times), default=None)
