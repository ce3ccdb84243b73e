"""`habitus config list | get | set | unset`: what is set, where that comes from, and changing it."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from habitus.app import read_settings
from habitus.app.operation import configuring
from habitus.app.operation.configuring import Configured
from habitus.cli import output
from habitus.cli.options import AsJson

Key = Annotated[str, typer.Argument(help="A setting, such as model or retention.lessons.")]


def list_values(context: typer.Context, as_json: AsJson = False) -> None:
    """Every setting with its value, and whether that comes from a default, the file or the environment."""
    found = configuring.values(read_settings(context.find_root().obj), os.environ)
    rows = [(one.key, one.shown, one.origin.value) for one in found]
    output.listed(as_json, {"settings": found}, ("key", "value", "from"), rows, wide="value", empty="")


def get(context: typer.Context, key: Key, as_json: AsJson = False) -> None:
    """The value of one setting."""
    found = configuring.get(read_settings(context.find_root().obj), os.environ, key)
    output.done(context, as_json, found, found.shown)


def put(
    context: typer.Context,
    key: Key,
    value: Annotated[str, typer.Argument(help="The value; of a list, the parts with commas between.")],
    as_json: AsJson = False,
) -> None:
    """Set a value in habitus.toml; a wrong one is refused, and the comments of the file stay."""
    done = configuring.put(read_settings(context.find_root().obj), os.environ, key, value)
    _print_done(context, done, f"{done.now.key} is set to {done.now.shown}.", as_json)


def unset(context: typer.Context, key: Key, as_json: AsJson = False) -> None:
    """Take a value out of habitus.toml, so that the default holds again."""
    done = configuring.put(read_settings(context.find_root().obj), os.environ, key, None)
    said = f"{done.now.key} is {done.now.shown or 'empty'} again, from {done.now.origin.value}."
    _print_done(context, done, said, as_json)


def _print_done(context: typer.Context, done: Configured, said: str, as_json: bool) -> None:
    lines = [said if done.is_changed else "Nothing was changed."]
    if done.is_overruled:
        lines = [f"{done.now.key} is written down; the environment has another value, which wins."]
    output.done(context, as_json, done, *lines, undo=done.undo)
