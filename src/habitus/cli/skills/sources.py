"""`habitus skills import`, `add`, `update`, `export` and `publish`: renders results and asks the person.

`use_cases/sources.py` does the work.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from habitus.app import Habitus
from habitus.app.conversations import secrets
from habitus.app.home import Home
from habitus.app.library import importing
from habitus.app.library.importing import ExportResult, ImportOptions, ImportResult, UpdateResult
from habitus.app.library.publishing import PublishSkillsResult
from habitus.app.use_cases import sources
from habitus.cli import output
from habitus.cli.opening import open_habitus
from habitus.errors import InvalidOptions
from habitus.skills.sources.discovery import DownloadPolicy
from habitus.skills.sources.importing import (
    ImportOutcome,
    ImportVerdict,
    NameConflictResolution,
    always_hold_name_conflict,
)

# The rule at the end of a finding.
_RULE = re.compile(r"\((\w+)\)(?=;|$)")
TrustOption = Annotated[
    bool, typer.Option("--trust", help="You have reviewed it: import it despite findings, and trust its requests.")
]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Replace a skill of the same name from another source.")]
ProjectOption = Annotated[
    bool, typer.Option("--project", help="Into .agents/skills of this project, locked in skills-lock.json.")
]


def perform_import_skills(
    habitus: Habitus,
    request: sources.ImportSkillsRequest,
    replace: ReplaceOption = False,
    trust: TrustOption = False,
    as_json: bool = False,
) -> ImportResult:
    with _interactive_import_options(request, trust=trust, replace=replace, is_quiet=as_json) as options:
        return sources.import_skills_with_options(habitus, request, options)


def print_result_of_import_skills(context: typer.Context, result: ImportResult) -> None:
    with open_habitus(context) as habitus:
        _print_import_result(habitus, result)


def perform_add_skills(
    habitus: Habitus,
    request: sources.AddSkillsRequest,
    project: ProjectOption = False,
    replace: ReplaceOption = False,
    trust: TrustOption = False,
    as_json: bool = False,
) -> ImportResult:
    """Add skills from any source; a person at the command line may also add them to a project."""
    with _interactive_import_options(request, trust=trust, replace=replace, is_quiet=as_json) as options:
        add = importing.fetch_skills_into_project if project else importing.fetch_and_import_skills
        return add(habitus, request.source, request.only, options)


def print_result_of_add_skills(context: typer.Context, result: ImportResult, project: ProjectOption = False) -> None:
    with open_habitus(context) as habitus:
        # The project's folder may be new, so the home is opened again as seen from there.
        _print_import_result(habitus.with_cwd(habitus.settings.cwd) if project else habitus, result)


def perform_update_skills(
    habitus: Habitus,
    names: tuple[str, ...],
    check: bool,
    overwrite: bool,
    trust: TrustOption = False,
    as_json: bool = False,
) -> UpdateResult:
    with _interactive_import_options(
        sources.ImportSelectionOptions(overwrite=overwrite), trust=trust, is_quiet=as_json
    ) as options:
        return importing.update_skills_from_their_sources(habitus, names, options, is_check=check)


def print_result_of_update_skills(context: typer.Context, result: UpdateResult, check: bool) -> None:
    for note in (*result.notes, *(f"{name} was removed at the source; your copy stays." for name in result.missing)):
        output.print_line_to_stderr(note)
    for change in result.changes:
        output.print_line(change.diff)
    if check:
        count = output.format_quantity(len(result.changes), "skill")
        output.print_line(f"{count} would change." if result.changes else "Everything is up to date.")
    else:
        with open_habitus(context) as habitus:
            _print_import_result(habitus, result.imported)


def perform_export_skills(habitus: Habitus, request: sources.ExportSkillsRequest) -> ExportResult:
    with output.show_progress_counter() as progress:
        return sources.export_skills_with_progress(habitus, request, progress)


def print_result_of_export_skills(
    context: typer.Context, result: ExportResult, request: sources.ExportSkillsRequest
) -> None:
    for left in result.left_out:
        output.print_line(f"left out {left.name}: {left.reason}", style="yellow")
    for less in result.lost:
        output.print_line(f"{less.name} is exported incompletely: {less.reason}", style="yellow")
    wrote = output.format_quantity(result.count, "skill")
    if result.lessons:
        wrote += f" and {output.format_quantity(result.lessons, 'lesson')}"
    output.print_line(f"Wrote {wrote} as '{result.format}' to {request.to}.")


def print_result_of_publish_skills(context: typer.Context, result: PublishSkillsResult, folder: Path) -> None:
    skills = output.format_quantity(len(result.skills), "skill")
    output.print_line(f"{skills} in {folder}: {', '.join(result.skills) or 'none'}.")
    for name, claim in result.claims.items():
        output.print_line(f"{name}: {claim}.")
    if result.skills:
        output.print_line(f"Serve that folder at the root of an address, or: habitus up --publish {folder}")


@contextmanager
def _interactive_import_options(
    request: sources.ImportSelectionOptions, *, trust: bool, replace: bool = False, is_quiet: bool
) -> Iterator[ImportOptions]:
    """Yield import options that ask the person at a terminal, with a counter on standard error."""
    if request.keep_both and replace:
        raise InvalidOptions("Give --keep-both or --replace, not both.")
    is_alone = is_quiet or not sys.stdin.isatty()
    with output.show_progress_counter(is_quiet=is_quiet) as progress:
        yield ImportOptions(
            overwrite=request.overwrite,
            is_trusted=trust,
            keep_both=request.keep_both,
            skip_held=request.all_but_held,
            progress=progress,
            # Without a person to ask, a name conflict is held for review.
            choose=_resolve_name_conflict_by_replacing
            if replace
            else always_hold_name_conflict
            if is_alone
            else _ask_about_name_conflict,
            reach=DownloadPolicy() if is_alone else DownloadPolicy(may_follow=_ask_whether_to_follow_redirect),
        )


def _ask_whether_to_follow_redirect(here: str, there: str) -> bool:
    return typer.confirm(f"{here} redirects to {there}. Follow it there?")


def _resolve_name_conflict_by_replacing(name: str, here: str, there: str) -> NameConflictResolution:
    return NameConflictResolution.REPLACE


def _ask_about_name_conflict(name: str, here: str, there: str) -> NameConflictResolution:
    """Ask how to resolve a name conflict; any other key holds the skill for review."""
    said = typer.prompt(
        f"'{name}' here came from {here}; this one is from {there}. (r)eplace it, (k)eep both, or (w)ait for review?",
        default="w",
    )
    return {"r": NameConflictResolution.REPLACE, "k": NameConflictResolution.KEEP_BOTH}.get(
        said.strip().lower()[:1], NameConflictResolution.HOLD
    )


def _print_import_result(home: Home, taken: ImportResult) -> None:
    """Print the import results, then what needs attention: name conflicts, secrets, similar skills."""
    for result in taken.results:
        # A large import prints only entries that say something.
        if result.reason or result.notes or len(taken.results) <= 30:
            _print_imported_entry(result)
    output.print_line(
        _format_verdict_counts([result for result in taken.results if result.kind == "skill"])
        or "No skills were found."
    )
    held = [result for result in taken.results if result.verdict is ImportVerdict.HELD and result.kind == "skill"]
    if len(held) > 1:
        # Of many, a person decides by what they would do, not one by one.
        output.print_line("Needs review, by what they would do:")
        from habitus.app.library.uploading import (
            group_skills_by_threat,  # brings the scanner, which no other command needs
        )

        for threat, names in group_skills_by_threat(
            (one.name, rule) for one in held for rule in _RULE.findall(one.reason)
        ).items():
            output.print_line(f"  {threat}: {', '.join(names)}", style="yellow")
        output.print_line("To import all but these, say so: --all-but-held.")
    if taken.name_conflict_count:
        left_out = output.format_quantity(taken.name_conflict_count, "skill")
        output.print_line(f"{left_out} skipped: another skill of the same name came first; --keep-both imports both.")
    lessons = [result for result in taken.results if result.kind == "lesson"]
    if lessons:
        output.print_line(
            f"{output.format_quantity(len(lessons), 'lesson')}: {_format_verdict_counts(lessons)}; "
            "see 'habitus lessons list'."
        )
    if asking := secrets.list_skills_asking_for_secrets(home.skills, {result.name for result in taken.results}):
        asks = "asks" if len(asking) == 1 else "ask"
        output.print_line(
            f"{output.format_quantity(len(asking), 'skill')} {asks} for secrets; see 'habitus secrets list'."
        )
    for name, finding in importing.list_near_duplicates(home.skills, home.finder, taken):
        output.print_line(f"note      {name}: {finding}", style="yellow")


def _print_imported_entry(result: ImportOutcome) -> None:
    style = {ImportVerdict.HELD: "yellow", ImportVerdict.REFUSED: "red", ImportVerdict.UNCHANGED: "dim"}.get(
        result.verdict, "green"
    )
    output.print_line(
        f"{result.verdict.value:<9} {result.name}" + (f": {result.reason}" if result.reason else ""), style
    )
    for note in result.notes:
        output.print_line(f"          {note}", style="yellow")


def _format_verdict_counts(results: Sequence[ImportOutcome]) -> str:
    """Return how many entries had each verdict."""
    counts = Counter(result.verdict for result in results)
    return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in ImportVerdict if counts[verdict])
