"""Options and arguments that many commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from habitus.cli import completion

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
