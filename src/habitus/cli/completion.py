"""Tab completion of names, and options that many commands share."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from habitus.errors import HabitusError

if TYPE_CHECKING:
    from habitus.app import Habitus

_MAX_RESULTS = 200


def complete_skill_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the skill names with this prefix; none if the home can't be read."""
    prefix = incomplete.replace("_", "-").lower()
    with _open_home_for_completion(context) as habitus:
        names = {item.name for item in habitus.skills.list_skills()} if habitus else set()
    return sorted(name for name in names if name.startswith(prefix))[:_MAX_RESULTS]


def complete_lesson_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the lesson ids with this prefix, each with the start of its text; none if the home can't be read."""
    with _open_home_for_completion(context) as habitus:
        found = habitus.memory.list_lessons() if habitus else ()
    return sorted((one.id, one.text[:60]) for one in found if one.id.startswith(incomplete.lower()))[:_MAX_RESULTS]


@contextmanager
def _open_home_for_completion(context: typer.Context) -> Iterator[Habitus | None]:
    """Open the home of this command line; None if there is none yet or it can't be read."""
    # Only a Tab press needs it here; the options below are imported by every command.
    app = importlib.import_module("habitus.app")
    try:
        settings = app.read_settings(context.find_root().params.get("home"))
        # A key press creates nothing.
        if not settings.home.is_dir():
            yield None
            return
        with app.Habitus.open(settings) as habitus:
            yield habitus
    except HabitusError:
        yield None


# Options shared by many commands; they live here because importing this module is cheap.
AllUsersOption = Annotated[bool, typer.Option("--all-users", help="All users; for admins only.")]
# Eager, so that an option that answers instead of the command knows how.
JsonOption = Annotated[bool, typer.Option("--json", is_eager=True, help="Print JSON.")]
PathsOption = Annotated[
    list[str] | None, typer.Option("--path", help="A file that the request is about; may be repeated.")
]
ResourcesOption = Annotated[
    list[str] | None,
    typer.Option("--resource", help="An available kind of resource, such as calendar; may be repeated."),
]
FeaturesOption = Annotated[
    list[str] | None, typer.Option("--feature", help="An experimental feature to enable, skill_NAME; may be repeated.")
]
WideOption = Annotated[bool, typer.Option("--wide", help="Show all columns with full texts.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")]
SkillNameArgument = Annotated[
    str, typer.Argument(help="A skill: name, or name@layer.", autocompletion=complete_skill_names)
]
