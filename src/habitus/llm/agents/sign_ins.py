"""Copies of sign-ins for solver programs: what a run renews goes back to the user's file, even if it was killed."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from habitus.errors import Refused
from habitus.files import open_regular_file, write_atomically
from habitus.llm.agents.program import ProgramRequest, dict_or_empty, read_json_file
from habitus.llm.agents.solvers import SolverProgram
from habitus.locks import hold_lock

_MOST_CREDENTIAL_BYTES = 1 << 20
# Beside the folder that the program may write: it says which file of the user is written.
_RECORD_FILE = "sign-in.json"


class _CopyRecord(BaseModel, frozen=True):
    """Where a copy of a sign-in lies, and the file it was made from."""

    # Below the folder of the run.
    copied_to: str
    file: Path
    provider: str
    # Of what the file said; of several providers, about this one.
    digest: str


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
    signed_in, provider = room / solver.sign_in, solver.find_provider(question)
    before = _read_sign_in(signed_in, provider) if signed_in in links else {}
    if before:
        digest = _compute_digest(before)
        record = _CopyRecord(copied_to=solver.sign_in, file=links[signed_in], provider=provider, digest=digest)
        write_atomically(room.parent / _RECORD_FILE, record.model_dump_json().encode(), mode=0o600)
    for path, real in links.items():
        _copy_linked_file(path, real)
    if provider and signed_in in links:
        signed_in.write_text(json.dumps(before))
    try:
        yield
    finally:
        write_back_sign_in(room)


def has_sign_in_to_write_back(room: Path) -> bool:
    """Return whether a run in this folder has not written back its sign-in: it is under way, or was killed."""
    return (room.parent / _RECORD_FILE).exists()


def write_back_sign_in(room: Path) -> None:
    """Write what a run in this folder renewed of the user's sign-in to the user's file, once.

    The file stays as it is unless it says exactly what the copy was made from, and the copy now has other tokens of
    the same account.
    """
    try:
        record = _CopyRecord.model_validate_json((room.parent / _RECORD_FILE).read_bytes())
    except (FileNotFoundError, ValidationError):
        return
    copy = room.resolve() / record.copied_to
    # Not a link that the program left; `Path.resolve` raises RuntimeError for one that leads to itself.
    if os.path.realpath(copy) == str(copy):
        _write_renewed_tokens(record, _read_sign_in(copy, record.provider))
    (room.parent / _RECORD_FILE).unlink()


def refuse_expiring_sign_in(solver: SolverProgram, question: ProgramRequest, until: datetime) -> None:
    """Raise `Refused` if the sign-in in the request's folder expires before `until`."""
    said = _read_sign_in(question.workspace / solver.sign_in, solver.find_provider(question))
    expiry = _find_sign_in_expiry(said)
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


def _read_sign_in(path: Path, provider: str) -> dict[str, Any]:
    """Return the sign-in in a file, or its entry of the provider in use; empty if there is none."""
    said: dict[str, Any] = {}
    with suppress(ValueError, RecursionError):
        said = dict_or_empty(json.loads(_read_bounded(path) or b""))
    return {key: part for key, part in said.items() if key == provider} if provider else said


def _compute_digest(said: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _write_renewed_tokens(record: _CopyRecord, after: dict[str, Any]) -> None:
    before = _read_sign_in(record.file, record.provider)
    if _compute_digest(before) != record.digest:
        return
    try:
        renewed = _take_renewed_tokens(before, after)
    except _OtherSignInError:
        return
    if renewed == before:
        return
    with hold_lock(record.file.parent):
        if _read_sign_in(record.file, record.provider) == before:
            # The entries of other providers stay as they are now.
            content = json.dumps({**read_json_file(record.file), **renewed}, indent=2)
            write_atomically(record.file, content.encode(), mode=0o600)


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
