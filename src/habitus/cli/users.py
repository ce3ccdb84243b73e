"""`habitus users …`: who may sign in to the web page, and as what."""

from __future__ import annotations

from typing import Annotated

import typer

from habitus.app.operation.people import People, Role
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
        habitus.refuse_if_read_only()
        refuse_unless_admin(habitus, "let people in")
        invited = People(habitus.settings.home).add(name, role)
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
        found = People(habitus.settings.home).list()
        rows = [(person.name, person.role.value) for person in found]
        empty = "Nobody but you. Let somebody in: habitus users add NAME --role viewer"
        output.listed(as_json, {"users": found}, ("name", "role"), rows, empty=empty)


def remove(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Let somebody in no longer, from their next request on; what they did stays, with their name."""
    with opened(context) as habitus:
        habitus.refuse_if_read_only()
        refuse_unless_admin(habitus, "shut people out")
        People(habitus.settings.home).remove(name)
        output.done(context, as_json, {"removed": name}, f"{name} can no longer sign in.")
