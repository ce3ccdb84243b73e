"""`habitus users …`: who may sign in to the web page, and as what."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from habitus.app.operation.people import Role, open_people
from habitus.app.whose import refuse_unless_admin
from habitus.cli import output
from habitus.cli.opening import opened
from habitus.cli.options import AsJson

Name = Annotated[str, typer.Argument(help="What they are called; every change names them.")]


def add(
    context: typer.Context,
    name: Name,
    role: Annotated[Role, typer.Option("--role", help="viewer looks, reviewer decides, admin changes everything.")],
    at: Annotated[str, typer.Option("--at", help="Where they reach the page.")] = "http://127.0.0.1:8765",
    as_json: AsJson = False,
) -> None:
    """Let somebody sign in; for one who is known, a new role, link and token."""
    with opened(context) as habitus:
        habitus.refuse_unless_kept()
        refuse_unless_admin(habitus, "let people in")
        invited = open_people(habitus).add(name, role)
        link = f"{at.rstrip('/')}/enter?key={invited.link}"
        data = {"name": name, "role": role, "link": link, "token": invited.token}
        lines = [
            f"{name} may sign in as {role.value}, with this link, which works once: {link}",
            f"Their programs send 'Authorization: Bearer {invited.token}'. Neither is shown again.",
        ]
        output.done(context, as_json, data, *lines, undo=("users", "remove", name))


def list_users(context: typer.Context, as_json: AsJson = False) -> None:
    """Who may sign in."""
    with opened(context) as habitus:
        people = open_people(habitus)
        found, left = people.list(), people.left_in_file()
        rows = [(person.name, person.role.value) for person in found]
        empty = "Nobody but you. Let somebody in: habitus users add NAME --role viewer"
        data = {"users": found, "left_in_file": left}
        output.listed(as_json, data, ("name", "role"), rows, empty=empty)
        if left and not as_json:
            output.say(describe_left(people.file.path, left))


def remove(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Let somebody in no longer, from their next request on; what they did stays, with their name."""
    with opened(context) as habitus:
        habitus.refuse_unless_kept()
        refuse_unless_admin(habitus, "shut people out")
        open_people(habitus).remove(name)
        output.done(context, as_json, {"removed": name}, f"{name} can no longer sign in.")


def describe_left(file: Path, left: Mapping[str, str]) -> str:
    """A line for the people of a home that was not the first to bring its own into a shared database."""
    names = ", ".join(f"{name} ({role})" for name, role in left.items())
    return (
        f"Not taken over from {file}, because another host came first: {names}. "
        "Let them in with 'habitus users add NAME --role ROLE', or drop them with 'habitus users remove NAME'."
    )
