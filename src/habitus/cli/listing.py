"""`habitus skills list | show | history | diff | stats`: looking at skills."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from habitus.app import json_of
from habitus.app.library import listing as use_case
from habitus.app.library.listing import Counted, ShownSkill
from habitus.cli import completion, moments, output
from habitus.cli.opening import opened
from habitus.cli.options import AsJson, SkillName, Wide
from habitus.errors import Invalid, did_you_mean
from habitus.skills.fields import EDITABLE
from habitus.skills.lifecycle import is_judged
from habitus.skills.listing import Listed
from habitus.skills.model import Counters, Severity, Skill, State
from habitus.text import one_line


def list_skills(
    context: typer.Context,
    tag: Annotated[str | None, typer.Option(help="Only skills with this tag.")] = None,
    state: Annotated[str | None, typer.Option(help="Only: ok, disabled, gated, held, untrusted or broken.")] = None,
    layer: Annotated[str | None, typer.Option(help="Only skills of this layer.")] = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Every skill with its state, and how often it was used."""
    if state is not None and state not in list(State):
        near = did_you_mean(state, list(State)) or f"Use one of {', '.join(State)}."
        raise typer.BadParameter(f"'{state}' is no state. {near}", param_hint="--state")
    with opened(context) as habitus:
        found = use_case.listing(habitus.skills, habitus.review, tag=tag, state=state, layer=layer)
        counted = use_case.used(habitus.skills, found)
        if as_json:
            output.print_json({"skills": [json_of.skill(habitus.skills, item, counted) for item in found]})
        else:
            _print_listing(found, counted, is_filtered=any((tag, state, layer)), is_wide=wide)


def _print_listing(found: Sequence[Listed], counted: Counted, *, is_filtered: bool, is_wide: bool) -> None:
    if not found:
        output.say("No skill fits." if is_filtered else "There are no skills yet. Write one: habitus skills new NAME")
        return
    columns = {
        "name": [item.name for item in found],
        "state": [item.state for item in found],
        "layer": [item.layer for item in found],
        "version": [f"v{item.summary.version}" if item.summary else "" for item in found],
    }
    counters = [counted.get((item.layer, item.name), Counters()) for item in found]
    if is_wide:
        columns |= {
            "shown": [each.recommended for each in counters],
            "used": [each.used for each in counters],
            "succeeded": [each.succeeded for each in counters],
            "failed": [each.failed for each in counters],
            "last used": [moments.shown(each.last_used) if each.last_used else "" for each in counters],
        }
    elif any(each.used for each in counters):
        columns["used"] = [each.used or "" for each in counters]
    columns["use it"] = [_in_a_line(item) for item in found]
    output.table(tuple(columns), list(zip(*columns.values(), strict=True)), wide="use it", is_cut=not is_wide)


def _in_a_line(item: Listed) -> str:
    """Why it can't be used, or what for, and its triggers; before that, what a person should see."""
    risks = sum(found.severity is Severity.RISK for found in item.diagnostics)
    notes = [f"({output.counted(risks, 'finding')}: see 'skills show')"] if risks else []
    notes += [f"(the copy in {layer} waits for 'habitus trust {item.name}@{layer}')" for layer in item.waiting]
    told = (item.reason if item.state is not State.OK else "") or (item.summary.cue if item.summary else "")
    triggers = item.summary.manifest.triggers if item.summary else ()
    return " ".join([*notes, told, *([f"(triggers: {', '.join(triggers)})"] if triggers else [])])


def show(
    context: typer.Context,
    name: SkillName,
    version: Annotated[int | None, typer.Option("--version", "-v", help="An earlier version.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print SKILL.md as it is stored.")] = False,
    file: Annotated[str | None, typer.Option("--file", help="Print one of its other files as it is.")] = None,
    as_json: AsJson = False,
) -> None:
    """One skill: its fields, its steps, its files and what is odd about them."""
    with opened(context) as habitus:
        if file is not None:
            output.write_file(use_case.file_of(habitus.skills, name, file, version), file)
            return
        shown = use_case.shown(habitus, name, version)
        item, files = shown.item, list(shown.files)
        if not as_json and (raw or version is not None or item.summary is None):
            _print_main_file(shown, version)
        elif not as_json and shown.skill is not None:
            _print_skill(shown, shown.skill)
        elif version is not None:
            output.print_json({"name": item.name, "version": version, "skill": shown.skill, "files": files})
        else:
            output.print_json(json_of.shown_skill(habitus.skills, shown))


def _print_main_file(shown: ShownSkill, version: int | None) -> None:
    for diagnostic in shown.item.diagnostics if version is None else ():
        output.complain(f"{diagnostic.severity}: {diagnostic}")
    if shown.text is None:
        raise Invalid(f"'{shown.item.name}' has no SKILL.md that can be shown.", mend="See 'habitus skills lint'.")
    output.write(shown.text.decode("utf-8", "replace"))


def _print_skill(shown: ShownSkill, skill: Skill) -> None:
    item, files = shown.item, shown.files
    facts = [
        ("name", f"{skill.name}@{item.layer}"),
        ("state", f"{item.state}: {item.reason}" if item.reason else item.state.value),
        *((field.noun, field.text(skill)) for field in EDITABLE),
        ("triggers", ", ".join(skill.manifest.triggers)),
        ("source", skill.source.value),
        ("version", f"{skill.version} of {moments.shown(skill.modified_on)}"),
        ("stages", ", ".join(sorted(skill.stages))),
        ("files", ", ".join(files)),
        ("waits", ", ".join(f"{skill.name}@{layer} (see 'habitus trust')" for layer in item.waiting)),
        ("used", _fared(shown.counters)),
        ("known", " ".join(shown.known)),
        ("told", "; ".join(shown.told)),
        ("lacks", " ".join(shown.lacks)),
        ("hides", ", ".join(f"{skill.name}@{layer}" for layer in item.hidden)),
        ("inert", f"{', '.join(item.inert)}: counts once you run 'habitus trust {skill.name}'" if item.inert else ""),
    ]
    width = max(len(label) for label, _ in facts)
    for label, value in facts:
        if value:
            output.say(f"{label:<{width}}  {one_line(value)}")
    for diagnostic in item.diagnostics:
        output.say(f"{diagnostic.severity.value:<{width}}  {diagnostic}", style="yellow")
    output.say()
    if sys.stdout.isatty():
        from rich.markdown import Markdown  # takes a tenth of the time of a whole command

        output.console().print(Markdown(output.clean(skill.body)))
    else:
        output.say(skill.body)


def _fared(counters: Counters) -> str:
    """How a skill has fared, in words."""
    if counters == Counters():
        return ""
    last = f", last {moments.shown(counters.last_used)}" if counters.last_used else ""
    judged = f"succeeded {counters.succeeded}, failed {counters.failed}" if is_judged(counters) else "not judged yet"
    return f"shown {output.counted(counters.recommended, 'time')}, used {counters.used}: {judged}{last}"


def history(context: typer.Context, name: SkillName, wide: Wide = False, as_json: AsJson = False) -> None:
    """Everything that was done to a skill, also to one in the archive: who did it, when and why."""
    with opened(context) as habitus:
        name, layer, found = use_case.history(habitus.skills, name)
        if as_json:
            output.print_json({"name": name, "layer": layer, "versions": found.versions, "switches": found.switches})
            return
        entries = [(v.made_on, f"v{v.number}", output.who(v.author), str(len(v.paths))) for v in found.versions]
        entries += [(s.made_on, s.action.value, output.who(s.author), "") for s in found.switches]
        entries.sort(key=lambda entry: entry[0], reverse=True)
        rows = [(what, moments.shown(when), by, files) for when, what, by, files in entries]
        output.table(("change", "made", "by", "files"), rows, wide="by", is_cut=not wide)


def diff(
    context: typer.Context,
    name: SkillName,
    a: Annotated[int | None, typer.Argument(help="A version; the one before B by default.")] = None,
    b: Annotated[int | None, typer.Argument(help="Another; the newest by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """What changed between two versions: the last two by default."""
    with opened(context) as habitus:
        if a is None and b is None and len(habitus.skills.history(name)) == 1 and not as_json:
            output.say("There is only version 1.")
            return
        text = habitus.skills.diff(name, a, b)
        if as_json:
            output.print_json({"name": habitus.skills.find(name).name, "diff": text})
        elif not text:
            output.say("There is no difference.")
        elif sys.stdout.isatty():
            from rich.syntax import Syntax  # as above

            output.console().print(Syntax(output.clean(text), "diff", background_color="default"))
        else:
            output.write(text)


def stats(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="One skill.", autocompletion=completion.skill_names)] = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """How often skills were recommended and used, and how that went, per stage."""
    with opened(context) as habitus:
        found = use_case.stats(habitus.skills, name)
        shown = ("recommended",) if wide else ()
        columns = ("name", "layer", "stage", *shown, "used", "succeeded", "failed", "reliability")
        rows = [[*(getattr(row, column) for column in columns[:-1]), _judged(row.reliability)] for row in found]
        empty = "Nothing has been counted yet."
        output.listed(as_json, {"stats": found}, columns, rows, wide="name", is_cut=not wide, empty=empty)


def _judged(reliability: float | None) -> str:
    return "not judged yet" if reliability is None else f"{reliability:g}"
