"""`habitus skills list`, `show`, `history`, `diff` and `stats`: renders what `use_cases/skills.py` returns."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from habitus.app.use_cases import skills
from habitus.app.use_cases.skills import (
    Difference,
    HistoryOf,
    OneSkill,
    SkillHistory,
    SkillList,
    SkillStats,
    StatsOf,
    TwoVersions,
)
from habitus.cli import inputs, output
from habitus.cli.completion import AsJson, SkillName, Wide
from habitus.cli.opening import open_habitus
from habitus.cli.use_case_commands import finish
from habitus.errors import Invalid
from habitus.skills.editable_fields import EDITABLE
from habitus.skills.layers.listing import Listed, ShownSkill, SkillPage
from habitus.skills.lifecycle import is_judged
from habitus.skills.model import Counters, Severity, Skill, State
from habitus.text import one_line

NO_SKILLS = "There are no skills yet. Write one: habitus skills new NAME"


def list_skills(context: typer.Context, wanted: SkillList, done: SkillPage, wide: Wide = False) -> None:
    is_filtered = any((wanted.q, wanted.tag, wanted.source, wanted.stage, wanted.state, wanted.layer))
    _print_page(done, wide=wide, empty="No skill fits." if is_filtered else NO_SKILLS)


def show(
    context: typer.Context,
    name: SkillName,
    version: Annotated[int | None, typer.Option("--version", "-v", help="An earlier version.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print SKILL.md as it is stored.")] = False,
    file: Annotated[str | None, typer.Option("--file", help="Print one of its other files as it is.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a skill: its fields, steps, files and problems."""
    with open_habitus(context) as habitus:
        if file is not None:
            output.write_file(skills.read_file(habitus, name, file, version), file)
            return
        wanted = OneSkill(name=name, version=version)
        finish(context, wanted, skills.show(habitus, wanted), partial(_print_shown, raw=raw), as_json=as_json)


def _print_shown(context: typer.Context, wanted: OneSkill, done: ShownSkill, raw: bool) -> None:
    """Print the source of a skill, or its details if it can be loaded and no version was named."""
    if raw or wanted.version is not None or done.skill is None:
        _print_main_file(done, wanted.version)
    else:
        _print_skill(done, done.skill)


def _print_main_file(shown: ShownSkill, version: int | None) -> None:
    """Print SKILL.md as stored, with its diagnostics on standard error."""
    for diagnostic in shown.item.diagnostics if version is None else ():
        output.complain(f"{diagnostic.severity}: {diagnostic}")
    if shown.text is None:
        raise Invalid(f"'{shown.item.name}' has no SKILL.md that can be shown.", hint="See 'habitus skills lint'.")
    output.write(shown.text.decode("utf-8", "replace"))


def history(context: typer.Context, wanted: HistoryOf, done: SkillHistory, wide: Wide = False) -> None:
    entries = [(v.made_on, f"v{v.number}", output.who(v.author), str(len(v.paths))) for v in done.versions]
    entries += [(s.made_on, s.action.value, output.who(s.author), "") for s in done.switches]
    entries.sort(key=lambda entry: entry[0], reverse=True)
    rows = [(what, inputs.format_timestamp(when), by, files) for when, what, by, files in entries]
    output.table(("change", "made", "by", "files"), rows, wide="by", is_cut=not wide)
    output.say_more(len(done.versions), done.total, done.next)


def diff(context: typer.Context, wanted: TwoVersions, done: Difference) -> None:
    if done.old == done.new and wanted.new is None:
        output.say("There is only version 1.")
    elif not done.diff:
        output.say("There is no difference.")
    elif sys.stdout.isatty():
        # Imported only for a terminal, because it takes a tenth of a command's time.
        from rich.syntax import Syntax

        output.console().print(Syntax(output.clean(done.diff), "diff", background_color="default"))
    else:
        output.write(done.diff)


def stats(context: typer.Context, wanted: StatsOf, done: SkillStats, wide: Wide = False) -> None:
    columns = ("name", "layer", "stage", "recommended", "used", "succeeded", "failed", "reliability")
    rows = [
        [*(getattr(row, column) for column in columns[:-1]), _describe_reliability(row.reliability)]
        for row in done.stats
    ]
    output.rows_or("Nothing has been counted yet.", columns, rows, wide="name", is_cut=not wide)
    for row in done.stats:
        if row.by_presence_until is not None:
            told = f"Until {row.by_presence_until:%Y-%m-%d} a text that only stood in the prompt counted as used"
            output.say(f"{row.name} ({row.stage.value}): {told}; 'habitus curate --apply' counts anew what it can.")
    for arms in done.trials:
        told = f"{arms.item} v{arms.version}: {arms.offered:,} with it, {arms.withheld:,} without."
        output.say(f"In trials, which count as no use: {told}")


def _describe_reliability(reliability: float | None) -> str:
    return "not judged yet" if reliability is None else f"{reliability:g}"


def _print_page(page: SkillPage, *, wide: bool, empty: str = NO_SKILLS) -> None:
    """Print a page of skills as a table."""
    found = [entry.item for entry in page.skills]
    if not found:
        output.say(empty)
        return
    columns = {
        "name": [item.name for item in found],
        "state": [item.state for item in found],
        "layer": [item.layer for item in found],
        "version": [f"v{item.summary.version}" if item.summary else "" for item in found],
    }
    counters = [entry.counters for entry in page.skills]
    if wide:
        columns |= {
            "shown": [each.recommended for each in counters],
            "used": [each.used for each in counters],
            "succeeded": [each.succeeded for each in counters],
            "failed": [each.failed for each in counters],
            "last used": [inputs.format_timestamp(each.last_used) if each.last_used else "" for each in counters],
        }
    # An empty column would cost the width that the description needs.
    elif any(each.used for each in counters):
        columns["used"] = [each.used or "" for each in counters]
    columns["use it"] = [_in_a_line(item) for item in found]
    output.table(tuple(columns), list(zip(*columns.values(), strict=True)), wide="use it", is_cut=not wide)
    output.say_more(len(found), page.total, page.next)


def _in_a_line(item: Listed) -> str:
    """Return why a skill can't be used, or when to use it, with its triggers; findings come first."""
    risks = sum(found.severity is Severity.RISK for found in item.diagnostics)
    notes = [f"({output.count_of(risks, 'finding')}: see 'skills show')"] if risks else []
    notes += [f"(the copy in {layer} waits for 'habitus trust {item.name}@{layer}')" for layer in item.waiting]
    told = (item.reason if item.state is not State.OK else "") or (item.summary.cue if item.summary else "")
    triggers = item.summary.manifest.triggers if item.summary else ()
    return " ".join([*notes, told, *([f"(triggers: {', '.join(triggers)})"] if triggers else [])])


def _print_skill(shown: ShownSkill, skill: Skill) -> None:
    """Print a skill's fields, diagnostics and body."""
    item, files = shown.item, shown.files
    facts = [
        ("name", f"{skill.name}@{item.layer}"),
        ("state", f"{item.state}: {item.reason}" if item.reason else item.state.value),
        *((field.noun, field.text(skill)) for field in EDITABLE),
        ("triggers", ", ".join(skill.manifest.triggers)),
        ("source", skill.source.value),
        ("from", shown.origin),
        ("version", f"{skill.version} of {inputs.format_timestamp(skill.modified_on)}"),
        ("stages", ", ".join(sorted(skill.stages))),
        ("files", ", ".join(files)),
        ("waits", ", ".join(f"{skill.name}@{layer} (see 'habitus trust')" for layer in item.waiting)),
        ("used", _describe_uses(shown.counters)),
        ("known", " ".join(shown.known)),
        ("told", "; ".join(shown.told)),
        ("lacks", " ".join(shown.lacks)),
        ("hides", ", ".join(f"{skill.name}@{layer}" for layer in item.hidden)),
        ("inert", f"{', '.join(item.inert)}: counts once you run 'habitus trust {skill.name}'" if item.inert else ""),
    ]
    width = output.say_facts([(label, one_line(value)) for label, value in facts])
    for diagnostic in item.diagnostics:
        output.say(f"{diagnostic.severity.value:<{width}}  {diagnostic}", style="yellow")
    output.say()
    if sys.stdout.isatty():
        # Imported only for a terminal, because it takes a tenth of a command's time.
        from rich.markdown import Markdown

        output.console().print(Markdown(output.clean(skill.body)))
    else:
        output.say(skill.body)


def _describe_uses(counters: Counters) -> str:
    """Return how often a skill was shown and used, and how often it succeeded."""
    if counters == Counters():
        return ""
    last = f", last {inputs.format_timestamp(counters.last_used)}" if counters.last_used else ""
    judged = f"succeeded {counters.succeeded}, failed {counters.failed}" if is_judged(counters) else "not judged yet"
    return f"shown {output.count_of(counters.recommended, 'time')}, used {counters.used}: {judged}{last}"
