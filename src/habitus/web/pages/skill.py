"""One skill: create, read and edit it; its files, history, effect, improvement and trust."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Form, Request
from fastapi.responses import HTMLResponse

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.conversations import running_code
from habitus.app.learning import insights
from habitus.app.library import content, explaining, trusting
from habitus.app.library.browsing import SkillsUsageSummary, build_skill_rows, read_usage_of_one_skill
from habitus.app.library.undoing import build_write_undo_command
from habitus.app.tasks.proposing import list_pending_tasks
from habitus.app.use_cases import improving, writing
from habitus.app.use_cases.skills import (
    ListSkillsRequest,
    find_skill_and_refresh_from_disk,
    read_skill_details,
    read_skill_file,
)
from habitus.app.use_cases.skills import show_skill as show_skill
from habitus.app.use_cases.uses import list_uses
from habitus.errors import Invalid, Stale
from habitus.journal.usage import UseVerdict
from habitus.skills import names
from habitus.skills.editable_fields import EDITABLE_FIELDS, FieldChanges
from habitus.skills.layers.listing import SkillDetails
from habitus.skills.model import Skill, SkillSource, Stage
from habitus.skills.sources.trust import list_skill_powers
from habitus.skills.trees import MAIN_FILES
from habitus.tools.model import describe_permissions
from habitus.web import charts, labels
from habitus.web.api.schemas import RequestHome
from habitus.web.pages import skills
from habitus.web.rendering import FileComparison, FlashMessage, build_file_comparisons, render_markdown, render_page
from habitus.web.routing import AccessRouter

router = AccessRouter()
# Longer files are offered as a download only.
_MAX_SHOWN_CHARS = 100_000
TABS = (
    ("read", "Read"),
    ("edit", "Edit"),
    ("recipes", "Recipes"),
    ("code", "Tested tool"),
    ("files", "Files"),
    ("history", "History"),
    ("results", "Results"),
    ("fits", "Try a request"),
    ("improve", "Improve"),
    ("trust", "Trust"),
)


@router.get("/skills/{name}", access=Access.OPEN_READING)
def show_skill_page(
    request: Request, habitus: RequestHome, name: str, tab: str = "", version: str = "", old: str = "", file: str = ""
) -> HTMLResponse:
    """Show a skill with the requested tab."""
    text = request.query_params.get("request", "")[:10_000]
    return render_skill_page(
        request,
        habitus,
        name,
        tab,
        version=_parse_version_number(version),
        old=_parse_version_number(old),
        text=text,
        file=file,
    )


@router.get("/skills/{name}/uses", access=Access.VIEWER)
def show_skill_uses(
    request: Request,
    habitus: RequestHome,
    name: str,
    outcome: str = "",
    recommended: bool = False,
    stage: str = "",
    recipe: str = "",
    version: str = "",
    since: str = "",
    until: str = "",
    own: bool = False,
    user: str = "",
    after: str = "",
) -> HTMLResponse:
    """Show the uses of a skill that a count counts."""
    known, is_everybody = UseVerdict(outcome) if outcome in list(UseVerdict) else None, user == "*"
    found = list_uses(
        habitus,
        name,
        outcome=known,
        recommended=recommended,
        stage=Stage(stage) if stage in list(Stage) else None,
        recipe=recipe,
        version=_parse_version_number(version) or None,
        since=since,
        until=until,
        own=own,
        all_users=is_everybody,
        after=after,
    )
    shown = show_skill(habitus, name)
    return render_page(
        request,
        "skill.html",
        shown=shown,
        tab="uses",
        tabs=_list_tabs(shown),
        found=found,
        outcome=known,
        recommended=recommended,
        is_everybody=is_everybody,
        query=urlencode([(key, value) for key, value in request.query_params.items() if key != "after"]),
        can_switch=habitus.settings.is_admin,
    )


def _parse_version_number(text: str) -> int:
    """Return a version number from the address, or 0 if it is none."""
    # A longer number would not fit the database's integer.
    return int(text) if text.isdecimal() and len(text) < 9 else 0


def render_skill_page(
    request: Request,
    habitus: Habitus,
    name: str,
    tab: str = "",
    *,
    said: FlashMessage | None = None,
    version: int = 0,
    old: int = 0,
    text: str = "",
    file: str = "",
    **values: Any,
) -> HTMLResponse:
    """Return a skill's page with the given tab, or its first."""
    located = find_skill_and_refresh_from_disk(habitus, name)
    with located.open_skill_read_transaction(habitus):
        shown = read_skill_details(habitus, located)
        tabs = _list_tabs(shown)
        tab = tab if tab in tabs else next(iter(tabs))
        uses = read_usage_of_one_skill(habitus, shown) if tab == "read" else None
    if tab == "history":
        found = _load_history_tab_values(habitus, shown.item.name, old, version)
    elif uses is not None:
        found = _load_sidebar_facts(habitus, shown, uses)
    else:
        found = _load_tab_template_values(habitus, shown, tab, text, file) | values
    return render_page(request, "skill.html", said=said, shown=shown, tab=tab, tabs=tabs, **found)


def _load_history_tab_values(habitus: Habitus, name: str, old: int, version: int) -> dict[str, Any]:
    """Return all versions and the diff between two of them, by default to the previous one."""
    versions = habitus.skills.list_versions(name)[::-1]
    made = None
    if version and old:
        changes = content.list_file_changes_between_versions(habitus.skills, name, old, version)
        made = content.SkillVersionChanges(before=old, after=version, files=changes)
    elif version:
        made = content.get_file_changes_of_version(habitus.skills, name, version)
    shown = content.filter_changes_user_may_read(made.files if made else (), is_admin=habitus.settings.is_admin)
    return {"versions": versions, "made": made, "drawn": build_file_comparisons(shown)}


def _list_tabs(shown: SkillDetails) -> dict[str, str]:
    """Return the tabs that have something to show; a skill that can't be read gets an editor for its source."""
    summary = shown.item.summary
    if summary is None:
        return {"raw": "Fix", "files": "Files", "history": "History"}
    is_foreign = summary.source is SkillSource.IMPORTED or bool(shown.item.inert)
    has = {
        "recipes": Stage.CHUNKS in summary.stages,
        "code": Stage.CODE in summary.stages,
        "trust": is_foreign or Stage.CODE in summary.stages,
    }
    return {key: label for key, label in TABS if has.get(key, True)}


def _load_tab_template_values(habitus: Habitus, shown: SkillDetails, tab: str, text: str, file: str) -> dict[str, Any]:
    """Return the template values of a tab."""
    name = shown.item.name
    match tab:
        case "raw":
            return _load_raw_source_tab_values(habitus, shown)
        case "edit":
            return {"draft": make_skill_form(shown.skill), "reason": "", "conflict": ()}
        case "recipes":
            return {"recipes": [recipe for recipe in habitus.recipes.list_recipes() if recipe.skill == name]}
        case "code":
            whole = running_code.get_tool_details(habitus, name)
            return {"whole": whole, "tool": whole.tool, "may": describe_permissions(whole.tool.permissions)}
        case "files":
            return {"file": file, "text": _read_text_file(habitus, shown, file) if file else None}
        case "results":
            found = insights.read_skill_usage_history(habitus, shown.item)
            effects = charts.render_version_effects(found.items)
            exams = charts.render_exam_effects(improving.list_improvements(habitus, name=name).candidates)
            drawn = charts.render_usage_charts(found)
            return {"charts": drawn, "findings": found.items, "effects": effects, "exams": exams}
        case "improve":
            tried = improving.list_improvements(habitus, name=name)
            drawn_ones = charts.render_candidate_effects(tried.candidates)
            # Only admins read what a skill is examined by.
            pending = list_pending_tasks(habitus, name) if habitus.settings.is_admin else []
            return {
                "improvements": tried,
                "mined": (),
                "pending": pending,
                "candidates": drawn_ones,
                "diffs": _build_candidate_diffs(habitus, name, tried),
            }
        case "trust":
            target = trusting.resolve_trust_target_of_skill(habitus, name)
            dangers = trusting.list_skill_risks(habitus.scan_tree, target)
            is_admin = habitus.settings.is_admin
            return {
                "dangers": dangers,
                "is_admin": is_admin,
                "is_trusted": trusting.is_whole_target_trusted(habitus.trust, habitus.approvals, target),
            }
        case "fits":
            why = (
                explaining.explain_skill_selection(habitus, name, explaining.build_request_of_user(habitus, text))
                if text.strip()
                else None
            )
            return {"why": why, "request_text": text}
        case _:
            return {}


def _load_sidebar_facts(habitus: Habitus, shown: SkillDetails, uses: SkillsUsageSummary) -> dict[str, Any]:
    """Return the facts beside a skill's text: effect, uses, trust and capabilities."""
    item = shown.item
    (row,) = build_skill_rows(habitus, [item], uses)
    may = {labels.remove_fingerprint_from_capability(str(one)) for one in list_skill_powers(item.name, shown.tree)}
    if "trust" in _list_tabs(shown):
        target = trusting.resolve_trust_target_of_skill(habitus, item.name)
        is_trusted = trusting.is_whole_target_trusted(habitus.trust, habitus.approvals, target)
    else:
        is_trusted = None
    effect = (
        None if row.effect is None else charts.render_confidence_intervals("Per 100 conversations", {"": row.effect})
    )
    return {
        "row": row,
        "effect": effect,
        "may": sorted(may),
        "is_trusted": is_trusted,
        "line": charts.render_sparkline(row.days),
    }


def _load_raw_source_tab_values(
    habitus: Habitus, shown: SkillDetails, text: str | None = None, problem: str = ""
) -> dict[str, Any]:
    """Return the source of a skill that can't be read, with the lines around the error."""
    problems = [problem] if problem else [str(one) for one in shown.item.diagnostics] or [shown.item.reason]
    found = re.search(r"\(line (\d+)\)", " ".join(problems))
    if text is None:
        text = (shown.text or b"").decode("utf-8", "replace")
    line = int(found[1]) if found else 0
    marked = [(at, one, at == line) for at, one in enumerate(text.splitlines(), 1) if abs(at - line) < 3]
    versions = habitus.skills.list_versions(shown.item.name)
    version = versions[-1].number if versions else 0
    return {"raw": text, "problems": problems, "line": line, "marked": marked if line else (), "newest": version}


@router.post("/skills/{name}/raw", access=Access.ADMIN)
def save_raw_file(
    request: Request, habitus: RequestHome, name: str, text: Annotated[str, Form()], version: Annotated[int, Form()]
) -> HTMLResponse:
    """Save a skill's source; if it still can't be read, nothing is saved and the text stays in the form."""
    shown = show_skill(habitus, name=name)
    text = text.replace("\r\n", "\n")
    path = next((path for path in shown.files if path in MAIN_FILES), MAIN_FILES[0])
    try:
        done = habitus.skills.edit_file(
            name, path, text.encode(), habitus.build_author("fixed by hand"), expected_version=version or None
        )
    except Invalid as error:
        said = FlashMessage(text="The file still can't be read; nothing was saved.", is_bad=True)
        values = _load_raw_source_tab_values(habitus, shown, text, error.message)
        return render_skill_page(request, habitus, name, "raw", said=said, **values)
    said = FlashMessage(text=f"Saved as version {done.version}.", undo=build_write_undo_command(done))
    return render_skill_page(request, habitus, name, said=said)


def _build_candidate_diffs(
    habitus: Habitus, name: str, found: improving.ListImprovementsResult
) -> dict[str, tuple[FileComparison, ...]]:
    """Return each candidate's changes to its base version; candidates whose base is gone are left out."""
    kept = {version.number for version in habitus.skills.list_versions(name)}
    return {
        one.candidate.id: build_file_comparisons(
            content.list_file_changes_of_new_main_text(habitus.skills, name, one.candidate.base, one.candidate.text)
        )
        for one in found.candidates
        if one.candidate.base in kept
    }


def _read_text_file(habitus: Habitus, shown: SkillDetails, path: str) -> str | None:
    """Return the text of a file, or None if it is binary or too long."""
    try:
        text = read_skill_file(habitus, shown.item.name, path).decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) <= _MAX_SHOWN_CHARS and "\0" not in text else None


@router.post("/preview", access=Access.VIEWER)
def preview_markdown(body: Annotated[str, Form()] = "") -> HTMLResponse:
    return HTMLResponse(str(render_markdown(body)))


@router.post("/skills/{name}/edit", access=Access.ADMIN)
def save_skill_form(
    request: Request,
    habitus: RequestHome,
    name: str,
    draft: SubmittedSkillForm,
    version: Annotated[int, Form()],
    reason: Annotated[str, Form()] = "",
) -> HTMLResponse:
    """Save the form; if another person saved first, keep the text and show the difference."""
    wanted = writing.EditSkillRequest(
        name=name, body=draft.body, expect=str(version), reason=reason, **draft.field_values_for_use_case
    )
    try:
        done = writing.edit_skill(habitus, wanted)
    except Stale:
        theirs = make_skill_form(show_skill(habitus, name=name).skill).body
        conflict = build_file_comparisons(
            [content.FileChange(path="Theirs, and yours", before=theirs, after=draft.body)]
        )
        said = FlashMessage(text="Another person saved this skill meanwhile.", is_bad=True)
        return render_skill_page(
            request, habitus, name, "edit", said=said, draft=draft, reason=reason, conflict=conflict
        )
    said = FlashMessage(
        text=f"Saved as version {done.version}." if done.undo else "Nothing was changed.", undo=done.undo
    )
    return render_skill_page(request, habitus, name, said=said)


@router.post("/skills/{name}/improve", access=Access.ADMIN)
def start_improvement(
    request: Request,
    habitus: RequestHome,
    name: str,
    budget: Annotated[str, Form()] = "",
    shorter: Annotated[bool, Form()] = False,
) -> HTMLResponse:
    """Queue an improvement run."""
    improving.start_improvement(habitus, improving.StartImprovementRequest(name=name, budget=budget, shorter=shorter))
    said = FlashMessage(text="Queued for the next free worker; see Automation for its progress.")
    return render_skill_page(request, habitus, name, "improve", said=said)


@router.post("/skills/{name}/turn", access=Access.ADMIN)
def switch_skill(request: Request, habitus: RequestHome, name: str, on: Annotated[bool, Form()]) -> HTMLResponse:
    """Switch a skill on or off."""
    done = writing.enable_or_disable_skills(habitus, [name], on=on)
    return render_skill_page(
        request, habitus, name, said=FlashMessage(text=f"It is {'on' if on else 'off'} now.", undo=done.undo)
    )


@router.post("/skills/{name}/trust", access=Access.ADMIN)
def set_skill_trust(request: Request, habitus: RequestHome, name: str, on: Annotated[bool, Form()]) -> HTMLResponse:
    """Trust a skill as it is now, or revoke that."""
    target = trusting.resolve_trust_target_of_skill(habitus, name)
    if on:
        trusting.store_trust(habitus, target)
    else:
        trusting.remove_trust(habitus.trust, habitus.approvals, target)
    told = "Trusted as it is now." if on else "No longer trusted."
    return render_skill_page(request, habitus, name, "trust", said=FlashMessage(text=told))


@router.post("/skills/{name}/back", access=Access.ADMIN)
def rollback_skill(request: Request, habitus: RequestHome, name: str, to: Annotated[int, Form()]) -> HTMLResponse:
    """Roll back to an earlier version."""
    done = writing.rollback_skill(habitus, name=name, to=to)
    said = FlashMessage(text=f"Rolled back to version {to}, saved as version {done.version}.", undo=done.undo)
    return render_skill_page(request, habitus, name, "history", said=said)


@router.post("/skills/{name}/away", access=Access.ADMIN)
def archive_skill(request: Request, habitus: RequestHome, name: str) -> HTMLResponse:
    """Archive a skill and return to the list."""
    (gone,) = writing.remove_skills(habitus, names=(name,)).skills
    said = FlashMessage(text=f"{gone.name} was archived.", undo=gone.undo)
    answer = skills.render_list_page(request, habitus, ListSkillsRequest(), said=said)
    answer.headers["HX-Push-Url"] = "/skills"
    return answer


_STEPS_TEMPLATE = """1. Say what to look at first, and how to tell that this fits.
2. Give the steps in order, with the decisions in them.
3. Say how to check the result, and what to do when the check fails.
"""


@router.get("/new", access=Access.VIEWER)
def show_new_skill_form(request: Request) -> HTMLResponse:
    return render_page(request, "new.html", draft=SkillForm(body=_STEPS_TEMPLATE))


@router.post("/new/write", access=Access.ADMIN)
def create_skill(request: Request, habitus: RequestHome, draft: SubmittedSkillForm) -> HTMLResponse:
    """Create a skill under a name made from its title."""
    title = draft.field_texts["title"]
    if not title:
        raise Invalid("The skill has no title.", hint="Enter a short title.")
    name = names.make_unique_name(names.slugify(title), habitus.skills.is_name_taken)
    made = writing.create_skill(
        habitus, writing.CreateSkillRequest(name=name, body=draft.body, **draft.field_values_for_use_case)
    )
    answer = render_skill_page(request, habitus, made.name, said=FlashMessage(text="Saved.", undo=made.undo))
    answer.headers["HX-Push-Url"] = f"/skills/{made.name}"
    return answer


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillForm:
    """The form of a skill: the texts of its fields, and the steps."""

    field_texts: Mapping[str, str] = field(default_factory=dict)
    body: str = ""

    @property
    def field_values_for_use_case(self) -> dict[str, Any]:
        """The field values as the use case takes them."""
        return dict(FieldChanges(**self.field_texts).values)


def make_skill_form(skill: Skill | None) -> SkillForm:
    """Return the form filled with a skill's texts; empty for a skill that can't be read."""
    return (
        SkillForm()
        if skill is None
        else SkillForm(field_texts={each.name: each.format_value(skill) for each in EDITABLE_FIELDS}, body=skill.body)
    )


def _read_submitted_skill_form(body: Annotated[str, Form()] = "", **texts: str) -> SkillForm:
    """Return the submitted form with normalised line endings."""
    return SkillForm(field_texts={name: text.strip() for name, text in texts.items()}, body=body.replace("\r\n", "\n"))


# FastAPI reads the fields from the signature, which is built from the list of editable fields.
_read_submitted_skill_form.__dict__["__signature__"] = inspect.Signature(
    [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default="", annotation=Annotated[str, Form(max_length=most)]
        )
        for name, most in {"body": None, **{each.name: each.max_length for each in EDITABLE_FIELDS}}.items()
    ]
)
SubmittedSkillForm = Annotated[SkillForm, Depends(_read_submitted_skill_form)]
