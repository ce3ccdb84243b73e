"""`habitus tour`: a short guided run on a throw-away home, with everything in it real."""

from __future__ import annotations

import io
import tempfile
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from habitus.cli import output

if TYPE_CHECKING:
    from habitus.app import Habitus

_MARK = "▸ "


def tour(
    context: typer.Context,
    home: Annotated[Path | None, typer.Option("--home", help="Keep what the tour makes in this home.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """See Habitus at work in a few seconds: no server, no key, no network."""
    home = home or context.find_root().obj
    if not as_json:
        _show(home)
        return
    with redirect_stdout(io.StringIO()) as said:
        _show(home)
    steps = [step.partition("\n") for step in said.getvalue().split(f"\n{_MARK}")[1:]]
    output.print_json({"steps": [{"title": title, "output": shown.strip("\n")} for title, _, shown in steps]})


def _show(home: Path | None) -> None:
    from habitus.app import Habitus, read_settings

    with tempfile.TemporaryDirectory(prefix="habitus-tour-") as scratch:
        settings = read_settings(home or Path(scratch) / "home")
        settings = settings.model_copy(update={"user_home": Path(scratch), "cwd": Path(scratch), "look_every": 0.0})
        output.say("Habitus: skills that an agent learns, proves and keeps.", style="bold")
        output.say(f"This tour works in {settings.home}" + ("" if home else ", which is removed at the end."))
        with Habitus.open(settings) as habitus:
            _walk(habitus)
    output.say()
    output.say("That was real, all of it. Your own home is ~/.habitus; begin with:", style="bold")
    output.say("  habitus skills new my-first-skill --description 'What it does' --when 'When to use it'")
    output.say("  habitus skills --help")


def _walk(habitus: Habitus) -> None:
    from habitus.skills.edits import Edit, Operation
    from habitus.skills.library import Fields
    from habitus.skills.model import Actor, Author, Skill

    library, me = habitus.skills, habitus.person()
    agent = Author(actor=Actor.AGENT, name="tour", reason="corrected by the user")

    _step("Some skills come along. Each is one line in a prompt until it is needed.")
    rows = [(item.name, item.layer, item.summary.cue) for item in library.listing() if item.summary]
    output.table(("name", "layer", "use it"), rows, wide="use it")

    _step("A procedure that worked is kept as a skill: a standard SKILL.md folder.")
    name = "monthly-report"
    if library.is_taken(name):
        library.remove(name, replace(me, reason="makes room for the tour"))
    library.create(
        Skill(
            name=name,
            description="Builds the monthly sales report from the raw export.",
            when_to_use="Somebody asks for the monthly numbers",
            body="1. Load the export.\n2. Sum revenue per region.\n3. Write the summary sheet.",
        ),
        replace(me, reason="worked out today"),
    )
    output.say((library.directory(name) or Path()).joinpath("SKILL.md").read_text())

    _step("The agent is corrected, so it edits the skill: one surgical operation, one new version.")
    change = Edit(operation=Operation.FIND_REPLACE, find="Sum revenue", replace="Convert to EUR, then sum revenue")
    library.edit(name, change, agent, fields=Fields(tags=("reports",)))
    output.say(library.diff(name))

    _step("Somebody edits the file by hand and breaks it. That is noticed, said, and hides nothing else.")
    path = (library.directory(name) or Path()) / "SKILL.md"
    path.write_text("---\nname: monthly-report\ndescription: oops\n(no closing line)\n")
    item = library.find(name)
    output.say(f"{item.name}: {item.state}. {item.diagnostics[-1]}", style="yellow")

    _step("Every version is still there, with who made it. Going back is a new version.")
    for version in library.history(name):
        output.say(f"  v{version.number}  {version.author.actor.value:<6} {version.author.reason}")
    library.rollback(name, 2, replace(me, reason="the file was broken"))
    output.say(f"{name} is back as version {library.load(name).version}: {library.load(name).body.splitlines()[1]}")

    _step("Removing is moving to an archive.")
    library.remove(name, me)
    output.say(f"In view: {library.is_taken(name)}. In the archive: {library.archived()[0].name}.")
    library.restore(name, me)
    output.say(f"Restored: {library.load(name).name}, version {library.load(name).version}, history and all.")


def _step(text: str) -> None:
    output.say()
    output.say(f"{_MARK}{text}", style="bold cyan")
