"""`habitus review …` and `habitus review trust`: renders results, opens the editor, and asks before trusting skills.

`app/use_cases/review.py` does the work.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from habitus.app.library import trusting
from habitus.app.use_cases import review
from habitus.cli import completion, inputs, output
from habitus.cli.opening import open_habitus
from habitus.cli.use_case_commands import edit_in_editor, print_use_case_result
from habitus.memory.model import Engram
from habitus.skills.proposals import TRIAL_COLUMNS


def print_result_of_list_pending(
    context: typer.Context, result: review.ReviewInboxPage, wide: completion.WideOption = False
) -> None:
    rows = [(one.id, one.state, one.action, one.title, one.by, "; ".join(one.reasons)) for one in result.proposals]
    columns = ("id", "state", "action", "what", "by", "needs review because")
    output.print_table_or_message(
        "Nothing pending review.", columns, rows, wide="needs review because", is_cut=not wide
    )
    output.print_paging_hint(len(rows), result.total, result.next)


def print_result_of_show_inbox_item(context: typer.Context, result: review.PendingItemDetails) -> None:
    item, subject = result.item, result.item.subject
    if isinstance(subject, Engram):
        output.print_line(
            f"Lesson {subject.id}: {subject.kind.value}, for {subject.scope.value} {subject.owner}".rstrip()
        )
        output.print_line(f"by {item.by} ({subject.source}), {item.state}")
    else:
        output.print_line(f"Proposal {item.id}: {item.action} {item.title} ({item.state})")
        output.print_line(
            f"by {item.by}, {inputs.format_timestamp(subject.made_on)}: {subject.author.reason or 'no reason given'}"
        )
        if subject.decided_by:
            output.print_line(f"{item.state} by {subject.decided_by}: {subject.decision or 'no reason given'}")
    for reason in filter(None, item.reasons):
        output.print_line(f"needs review because: {reason}", style="yellow")
    if result.comparison:
        output.print_line(result.comparison)
    output.print_line()
    if not isinstance(subject, Engram) and subject.trial:
        output.print_table(TRIAL_COLUMNS, [[row.get(name, "") for name in TRIAL_COLUMNS] for row in subject.trial])
        output.print_line()
    output.print_line(result.diff.rstrip("\n") if isinstance(subject, Engram) else result.diff)


def print_result_of_diff_inbox_item(context: typer.Context, result: review.InboxItemDiff) -> None:
    output.write_stdout(output.strip_control_characters(result.diff))


def print_result_of_approve_items(context: typer.Context, result: review.ApproveItemsResult) -> None:
    for one in result.approved:
        _print_approved_item(context, one)


def _print_approved_item(context: typer.Context, result: review.ReviewDecisionResult) -> None:
    """Print an approved item with its undo command."""
    item = result.item
    if isinstance(item.subject, Engram):
        output.print_line(f"Approved: {item.action} {item.id}  {item.title}")
    else:
        became = f", now version {result.version}." if result.version else "."
        output.print_line(
            f"Approved: {item.action} {item.title}" + ("; that host applies it." if result.pending_host else became)
        )
        if result.comparison:
            output.print_line(result.comparison)
    output.print_and_register_undo_command(context, *result.undo)


def print_result_of_reject_items(context: typer.Context, result: review.RejectItemsResult) -> None:
    for one in result.rejected:
        subject = one.item.subject
        output.print_line(
            f"Rejected: {one.item.action} {subject.id if isinstance(subject, Engram) else subject.change.name}."
        )
        output.print_and_register_undo_command(context, *one.undo)


def print_result_of_reopen_proposals(context: typer.Context, result: review.ReopenProposalsResult) -> None:
    for item in result.reopened:
        output.print_line(f"Pending review again: {item.action} {item.title}.")


def edit_proposal(
    context: typer.Context,
    item: Annotated[str, typer.Argument(help="The number of a proposal, or the id of a lesson.")],
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the new SKILL.md from this file.")] = None,
    as_json: completion.JsonOption = False,
) -> None:
    """Edit the text of a proposal before you approve it, in your editor or from a file."""
    with open_habitus(context) as habitus:
        before, name = review.get_editable_text_and_file_name(habitus, item)
        by_hand = edit_in_editor(habitus.settings.editor, before, name, instead="give the text with --file")
        # The edit is saved inside the block: if it is rejected, the editor's text is not lost.
        with by_hand if file is None else nullcontext(inputs.read_bytes_of_file_or_stdin(str(file))) as content:
            done = review.edit_proposal_text(habitus, id=item, text=content.decode("utf-8", "replace"))
            print_use_case_result(context, done, partial(_print_edited_proposal, id=item), as_json=as_json)


def _print_edited_proposal(context: typer.Context, result: review.EditProposalTextResult, id: str) -> None:
    output.print_line(f"Proposal {id} is changed." if result.changed else "Nothing was changed.")


# The most skill names of one root in a list.
_MAX_NAMES = 4


def trust_skills(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            help="A project directory (this one by default), a skill (imported, or with code), or a package.",
            autocompletion=completion.complete_skill_names,
        ),
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show what is trusted.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke trust.")] = False,
    yes: completion.YesOption = False,
    as_json: completion.JsonOption = False,
) -> None:
    """Trust imported or project skills as they are now. Later changes are trusted only if they are harmless."""
    with open_habitus(context) as habitus:
        if show_list:
            known = trusting.list_all_trusted_content(habitus)
            rows = [
                (t.root, _join_first_names(t.names), inputs.format_timestamp(t.trusted_on), t.trusted_by) for t in known
            ]
            columns, empty = ("root", "what", "since", "by"), "Nothing is trusted yet."
            output.print_json_or_table(as_json, {"trusted": known}, columns, rows, wide="root", empty=empty)
            return
        found = trusting.resolve_trust_target(habitus, target)
        if revoke:
            now = trusting.revoke_trust(habitus, found, target)
            said = f"No longer trusted: {', '.join(now.revoked)}." if now.revoked else "It was not trusted."
            output.print_command_result(context, as_json, now, said, undo=now.undo)
            return
        if not as_json:
            _print_abilities_and_risks_of_skills(trusting.list_skill_risks(habitus.scan_tree, found))
        if not yes:
            _confirm_trust(_describe_counts_to_trust(found), as_json)
        now = trusting.grant_trust(habitus, found, target)
        said = f"Trusted {_describe_counts_to_trust(found)}."
        output.print_command_result(context, as_json, now, said, undo=now.undo)


def _join_first_names(names: Sequence[str]) -> str:
    """Join names and cut the list after the first few."""
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(names[:_MAX_NAMES])}{more}"


def _describe_counts_to_trust(found: trusting.TrustTarget) -> str:
    parts = [output.format_quantity(found.skill_count, "skill")] if found.skill_count or not found.task_count else []
    parts += [output.format_quantity(found.task_count, "task")] if found.task_count else []
    return " and ".join(parts)


def _confirm_trust(what: str, as_json: bool) -> None:
    """Ask whether to trust the skills; refuse if there is no terminal."""
    if as_json or not sys.stdin.isatty():
        raise typer.BadParameter("There is no terminal to ask at; add --yes once you have reviewed them.")
    if not typer.confirm(f"Trust {what} as they are now?"):
        raise typer.Abort


def _print_abilities_and_risks_of_skills(found: tuple[trusting.SkillRiskReport, ...]) -> None:
    """Print what each skill can do and what the scan found, before the person decides."""
    for root, skills in itertools.groupby(found, lambda skill: skill.root):
        output.print_line(root, style="bold")
        for skill in skills:
            output.print_line(f"  {skill.name}")
            for power in skill.powers:
                output.print_line(f"    {power}", style="yellow")
            for finding in skill.findings:
                output.print_line(f"    {finding}", style="red")
            for line in skill.text.splitlines():
                output.print_line(f"    {line}", style="dim")
