"""`habitus users …` in words: who may sign in to the web page, and as what."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import typer

from habitus.app.declaring import Nothing
from habitus.app.operation.people import FILE
from habitus.app.use_cases.users import Invitation, InvitedUser, Members, OneUser, RemovedUser
from habitus.cli import output


def add(context: typer.Context, wanted: Invitation, done: InvitedUser) -> None:
    output.say(f"{done.name} may sign in as {done.role.value}, with this link, which works once: {done.link}")
    output.say(f"Their programs send 'Authorization: Bearer {done.token}'. Neither is shown again.")


def list_users(context: typer.Context, wanted: Nothing, done: Members) -> None:
    rows = [(one.name, one.role.value, f"{one.seen_on:%Y-%m-%d %H:%M}" if one.seen_on else "") for one in done.users]
    empty = "Nobody but you. Let somebody in: habitus users add NAME --role viewer"
    output.say_list(False, {}, ("name", "role", "last seen"), rows, empty=empty)
    if done.left_in_file:
        output.say(describe_left(Path(FILE), done.left_in_file))


def remove(context: typer.Context, wanted: OneUser, done: RemovedUser) -> None:
    output.say(f"{done.removed} can no longer sign in.")


def describe_left(file: Path, left: Mapping[str, str]) -> str:
    """A line for the people of a home that was not the first to bring its own into a shared database."""
    names = ", ".join(f"{name} ({role})" for name, role in left.items())
    return (
        f"Not taken over from {file}, because another host came first: {names}. "
        "Let them in with 'habitus users add NAME --role ROLE', or drop them with 'habitus users remove NAME'."
    )
