"""Options and arguments that many commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from habitus.cli import completion
from habitus.skills.fields import EDITABLE, Fields

AllUsers = Annotated[bool, typer.Option("--all-users", help="Of everybody; for admins.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Paths = Annotated[list[str] | None, typer.Option("--path", help="A file the work is about; may be repeated.")]
Resources = Annotated[
    list[str] | None, typer.Option("--resource", help="A kind of resource you have, such as calendar; may be repeated.")
]
Features = Annotated[
    list[str] | None, typer.Option("--feature", help="An experiment to switch on, skill_NAME; may be repeated.")
]
Wide = Annotated[bool, typer.Option("--wide", help="All columns, and their texts whole.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the history.")]
SkillName = Annotated[str, typer.Argument(help="A skill: name, or name@layer.", autocompletion=completion.skill_names)]
SkillNames = Annotated[
    list[str], typer.Argument(help="Skills: name, or name@layer.", autocompletion=completion.skill_names)
]


def with_fields(command: Callable[..., None]) -> Callable[..., None]:
    """An option for every field of a skill that people change, in place of the parameter `fields`."""
    options = {
        field.name: inspect.Parameter(
            field.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=None,
            annotation=Annotated[str | None, typer.Option(*field.options, help=field.help)],
        )
        for field in EDITABLE
    }

    @functools.wraps(command)
    def run(**given: Any) -> None:
        fields = Fields(**{name: given.pop(name) for name in options})
        command(**given, fields=fields)

    own = inspect.signature(command, eval_str=True)
    pairs = [options.values() if name == "fields" else (each,) for name, each in own.parameters.items()]
    parameters = [parameter for pair in pairs for parameter in pair]
    run.__dict__["__signature__"] = own.replace(parameters=parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": None}
    return run
