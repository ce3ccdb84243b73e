"""`habitus config …` and `habitus users …`: renders settings with their origin, and the people who may sign in."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import typer

from habitus.app.operating import configuring
from habitus.app.operating.configuring import Configured, Value
from habitus.app.operating.people import FILE
from habitus.app.use_cases import settings as use_case
from habitus.app.use_cases.declaration import Nothing
from habitus.app.use_cases.settings import NewValue, OneSetting, SettingValues
from habitus.app.use_cases.users import Invitation, InvitedUser, Members, OneUser, RemovedUser
from habitus.cli import output
from habitus.settings import Settings


def list_values(context: typer.Context, wanted: Nothing, done: SettingValues) -> None:
    output.table(
        ("key", "value", "from"), [(one.key, one.shown, one.origin.value) for one in done.settings], wide="value"
    )


def get(context: typer.Context, wanted: OneSetting, done: Value) -> None:
    output.say(done.shown)


def perform_put(settings: Settings, wanted: NewValue) -> Configured:
    """Change a setting; ask before downloading model weights for it."""
    # Without a terminal the download needs an explicit --yes.
    is_asked = wanted.is_minilm and wanted.copy is None and not wanted.yes and sys.stdin.isatty()
    if is_asked and not configuring.has_weights(settings):
        asked = f"Fetch {configuring.MEGABYTES} MB of weights into {settings.home}?"
        wanted = replace(wanted, yes=typer.confirm(asked, default=True, abort=True))
    return use_case.put(settings, wanted)


def put(context: typer.Context, wanted: NewValue, done: Configured) -> None:
    _say_configured(done, f"{done.now.key} is set to {done.now.shown}.")


def unset(context: typer.Context, wanted: OneSetting, done: Configured) -> None:
    _say_configured(done, f"{done.now.key} is {done.now.shown or 'empty'} again, from {done.now.origin.value}.")


def _say_configured(done: Configured, said: str) -> None:
    """Print what was set, unless an environment variable overrides it."""
    if done.is_overruled:
        said = f"{done.now.key} is written down; the environment has another value, which wins."
    output.say(said if done.is_changed or done.is_overruled else "Nothing was changed.")
    if done.note:
        output.say(done.note)


def add(context: typer.Context, wanted: Invitation, done: InvitedUser) -> None:
    output.say(f"{done.name} may sign in as {done.role.value}, with this link, which works once: {done.link}")
    output.say(f"Their programs send 'Authorization: Bearer {done.token}'. Neither is shown again.")


def list_users(context: typer.Context, wanted: Nothing, done: Members) -> None:
    rows = [(one.name, one.role.value, f"{one.seen_on:%Y-%m-%d %H:%M}" if one.seen_on else "") for one in done.users]
    empty = "Nobody but you. Let somebody in: habitus users add NAME --role viewer"
    output.rows_or(empty, ("name", "role", "last seen"), rows)
    if done.left_in_file:
        output.say(describe_left(Path(FILE), done.left_in_file))


def remove(context: typer.Context, wanted: OneUser, done: RemovedUser) -> None:
    output.say(f"{done.removed} can no longer sign in.")


def describe_left(file: Path, left: Mapping[str, str]) -> str:
    """Return a line about users in a local file that a shared database did not take over."""
    names = ", ".join(f"{name} ({role})" for name, role in left.items())
    return (
        f"Not taken over from {file}, because another host came first: {names}. "
        "Let them in with 'habitus users add NAME --role ROLE', or drop them with 'habitus users remove NAME'."
    )
