"""`habitus skills list`, `show`, `history`, `diff` and `stats`: renders what `use_cases/skills.py` returns."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from habitus.app.use_cases import skills
from habitus.app.use_cases.uses import ListUsesResult
from habitus.cli import inputs, output
from habitus.cli.completion import JsonOption, SkillNameArgument, WideOption
from habitus.cli.opening import open_habitus
from habitus.cli.use_case_commands import print_use_case_result
from habitus.errors import Invalid
from habitus.skills.editable_fields import EDITABLE_FIELDS
from habitus.skills.layers.listing import ListedSkill, SkillDetails, SkillListPage
from habitus.skills.model import Severity, Skill, SkillState, Stage
from habitus.text import clean_to_one_line
from habitus.use_counts import UsageCounts

NO_SKILLS_MESSAGE = "No skills yet. Create one: habitus skills new NAME"


def print_result_of_list_skills(
    context: typer.Context, result: SkillListPage, request: skills.ListSkillsRequest, wide: WideOption = False
) -> None:
    is_filtered = any((request.q, request.tag, request.source, request.stage, request.state, request.layer))
    _print_skill_table(result, wide=wide, empty="No matches." if is_filtered else NO_SKILLS_MESSAGE)


def show_skill(
    context: typer.Context,
    name: SkillNameArgument,
    version: Annotated[int | None, typer.Option("--version", "-v", help="An earlier version.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print SKILL.md as it is stored.")] = False,
    file: Annotated[str | None, typer.Option("--file", help="Print another of its files.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a skill: its fields, steps, files and problems."""
    with open_habitus(context) as habitus:
        if file is not None:
            output.print_file_content(skills.read_skill_file(habitus, name, file, version), file)
            return
        shown = skills.show_skill(habitus, name=name, version=version)
        show = partial(_print_skill_or_source, raw=raw, version=version)
        print_use_case_result(context, shown, show, as_json=as_json)


def _print_skill_or_source(context: typer.Context, result: SkillDetails, *, raw: bool, version: int | None) -> None:
    """Print the source of a skill, or its details if it can be loaded and no version was named."""
    if raw or version is not None or result.skill is None:
        _print_skill_md_and_diagnostics(result, version)
    else:
        _print_skill_details(result, result.skill)


def _print_skill_md_and_diagnostics(shown: SkillDetails, version: int | None) -> None:
    """Print SKILL.md as stored, with its diagnostics on standard error."""
    for diagnostic in shown.item.diagnostics if version is None else ():
        output.print_line_to_stderr(f"{diagnostic.severity}: {diagnostic}")
    if shown.text is None:
        raise Invalid(f"'{shown.item.name}' has no SKILL.md that can be shown.", hint="See 'habitus skills lint'.")
    output.write_stdout(shown.text.decode("utf-8", "replace"))


def print_result_of_show_skill_history(
    context: typer.Context, result: skills.SkillHistoryPage, wide: WideOption = False
) -> None:
    entries = [
        (v.made_on, f"v{v.number}", output.format_author_and_reason(v.author), str(len(v.paths)))
        for v in result.versions
    ]
    entries += [(s.made_on, s.action.value, output.format_author_and_reason(s.author), "") for s in result.switches]
    entries.sort(key=lambda entry: entry[0], reverse=True)
    rows = [(what, inputs.format_timestamp(when), by, files) for when, what, by, files in entries]
    output.print_table(("change", "made", "by", "files"), rows, wide="by", is_cut=not wide)
    output.print_paging_hint(len(result.versions), result.total, result.next)


def print_result_of_diff_versions(context: typer.Context, result: skills.SkillVersionDiff, new: int | None) -> None:
    if result.old == result.new and new is None:
        output.print_line("Version 1 is the only version.")
    elif not result.diff:
        output.print_line("No differences.")
    elif sys.stdout.isatty():
        # Imported only for a terminal, because it takes a tenth of a command's time.
        from rich.syntax import Syntax

        output.make_literal_text_console().print(
            Syntax(output.strip_control_characters(result.diff), "diff", background_color="default")
        )
    else:
        output.write_stdout(result.diff)


def print_result_of_show_stats(
    context: typer.Context, result: skills.SkillUsageStatsReport, wide: WideOption = False
) -> None:
    columns = (
        "name",
        "layer",
        "stage",
        "recommended",
        "used",
        "succeeded",
        "failed",
        "no_feedback",
        "weak_failures",
        "reliability",
    )
    rows = [
        [
            *(row.name, row.layer, row.stage.label),
            *(getattr(row, column) for column in columns[3:-1]),
            _describe_reliability(row.reliability),
        ]
        for row in result.stats
    ]
    titles = [{"weak_failures": "corrected"}.get(column, column.replace("_", " ")) for column in columns]
    output.print_table_or_message("No uses yet.", titles, rows, wide="name", is_cut=not wide)
    for arms in result.trials:
        told = f"{arms.item} v{arms.version}: {arms.offered:,} with it, {arms.withheld:,} without."
        output.print_line(f"In trials, which count as no use: {told}")


def print_result_of_list_uses(context: typer.Context, result: ListUsesResult, wide: WideOption = False) -> None:
    rows = [
        (
            inputs.format_timestamp(use.timestamp),
            use.outcome.value.replace("_", " "),
            f"v{use.version} {use.recipe or use.stage.label}",
            use.turn,
            clean_to_one_line(use.request) or ("" if use.user else "by another user"),
        )
        for use in result.uses
    ]
    columns = ("used on", "outcome", "stage", "turn", "request")
    output.print_table_or_message("No uses.", columns, rows, wide="request", is_cut=not wide)
    if result.next:
        output.print_line(f"{len(result.uses)} of {result.total}; go on with --after {result.next}")


def _describe_reliability(reliability: float | None) -> str:
    return "no feedback" if reliability is None else f"{reliability:g}"


def _print_skill_table(page: SkillListPage, *, wide: bool, empty: str = NO_SKILLS_MESSAGE) -> None:
    """Print a page of skills as a table."""
    found = [entry.item for entry in page.skills]
    if not found:
        output.print_line(empty)
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
            "no feedback": [each.no_feedback for each in counters],
            "last used": [inputs.format_timestamp(each.last_used) if each.last_used else "" for each in counters],
        }
    # An empty column would cost the width that the description needs.
    elif any(each.used for each in counters):
        columns["used"] = [each.used or "" for each in counters]
    columns["when to use"] = [_describe_skill_problems_and_use(item) for item in found]
    output.print_table(tuple(columns), list(zip(*columns.values(), strict=True)), wide="when to use", is_cut=not wide)
    output.print_paging_hint(len(found), page.total, page.next)


def _describe_skill_problems_and_use(item: ListedSkill) -> str:
    """Return why a skill can't be used, or when to use it, with its triggers; findings come first."""
    risks = sum(found.severity is Severity.RISK for found in item.diagnostics)
    notes = [f"({output.format_quantity(risks, 'finding')}: see 'skills show')"] if risks else []
    notes += [
        f"(the copy in {layer} is not trusted: 'habitus review trust {item.name}@{layer}')"
        for layer in item.awaiting_trust
    ]
    told = (item.reason if item.state is not SkillState.OK else "") or (
        item.summary.when_to_use_line if item.summary else ""
    )
    triggers = item.summary.manifest.triggers if item.summary else ()
    return " ".join([*notes, told, *([f"(triggers: {', '.join(triggers)})"] if triggers else [])])


def _print_skill_details(shown: SkillDetails, skill: Skill) -> None:
    """Print a skill's fields, diagnostics and body."""
    item, files = shown.item, shown.files
    facts = [
        ("name", f"{skill.name}@{item.layer}"),
        ("state", f"{item.state}: {item.reason}" if item.reason else item.state.value),
        *((field.noun, field.format_value(skill)) for field in EDITABLE_FIELDS),
        ("triggers", ", ".join(skill.manifest.triggers)),
        ("source", skill.source.value),
        ("from", shown.origin),
        ("version", f"{skill.version} of {inputs.format_timestamp(skill.modified_on)}"),
        ("stages", ", ".join(stage.label for stage in Stage if stage in skill.stages)),
        ("files", ", ".join(files)),
        (
            "not trusted",
            ", ".join(f"{skill.name}@{layer} (see 'habitus review trust')" for layer in item.awaiting_trust),
        ),
        ("used", _describe_skill_uses(shown.counters)),
        ("evidence", " ".join(shown.evidence)),
        ("counts of its source", "; ".join(shown.source_counts)),
        ("missing packages", " ".join(shown.missing_packages)),
        ("hides", ", ".join(f"{skill.name}@{layer}" for layer in item.hidden)),
        (
            "inert",
            f"{', '.join(item.inert)}: inactive until you run 'habitus review trust {skill.name}'"
            if item.inert
            else "",
        ),
    ]
    width = output.print_labelled_values([(label, clean_to_one_line(value)) for label, value in facts])
    for diagnostic in item.diagnostics:
        output.print_line(f"{diagnostic.severity.value:<{width}}  {diagnostic}", style="yellow")
    output.print_line()
    if sys.stdout.isatty():
        # Imported only for a terminal, because it takes a tenth of a command's time.
        from rich.markdown import Markdown

        output.make_literal_text_console().print(Markdown(output.strip_control_characters(skill.body)))
    else:
        output.print_line(skill.body)


def _describe_skill_uses(counters: UsageCounts) -> str:
    """Return how often a skill was shown and used, and how often it succeeded."""
    if counters == UsageCounts():
        return ""
    last = f", last {inputs.format_timestamp(counters.last_used)}" if counters.last_used else ""
    parts = [f"succeeded {counters.succeeded}", f"failed {counters.failed}", f"no feedback {counters.no_feedback}"]
    if counters.weak_failures:
        parts.append(f"corrected by the next request {counters.weak_failures}")
    if counters.ran_without_error:
        parts.append(f"ran without error {counters.ran_without_error}")
    return (
        f"shown {output.format_quantity(counters.recommended, 'time')}, used {counters.used}: {', '.join(parts)}{last}"
    )
