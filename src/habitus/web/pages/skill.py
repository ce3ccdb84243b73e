"""One skill: create, read and edit it; its files, history, effect, improvement and trust."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Form, Request
from fastapi.responses import HTMLResponse

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.conversations import running_code
from habitus.app.learning import insights
from habitus.app.library import content, explaining, trusting
from habitus.app.library.browsing import Uses, rows_of, uses_of
from habitus.app.library.content import FileChange
from habitus.app.library.undoing import of_written
from habitus.app.use_cases import improving, tasks, writing
from habitus.app.use_cases.improving import Improvements
from habitus.app.use_cases.skills import OneSkill, locate, read, read_file
from habitus.app.use_cases.skills import show as show_skill
from habitus.errors import Invalid, Stale
from habitus.skills import names
from habitus.skills.editable_fields import EDITABLE, Fields
from habitus.skills.layers.listing import ShownSkill
from habitus.skills.model import Skill, Source, Stage
from habitus.skills.sources.trust import powers
from habitus.skills.trees import MAIN_FILES
from habitus.text import count_of
from habitus.tools.model import asked_for
from habitus.web import charts, words
from habitus.web.api.requests_and_answers import Opened
from habitus.web.pages import skills
from habitus.web.rendering import Compared, Said, draw_diffs, markdown, page
from habitus.web.routing import Router

router = Router()
# Longer files are offered as a download only.
_READABLE = 100_000
TABS = (
    ("read", "Read"),
    ("edit", "Edit"),
    ("recipes", "Recipes"),
    ("code", "Tested tool"),
    ("files", "Files"),
    ("history", "History"),
    ("fared", "How it did"),
    ("fits", "Would it be used?"),
    ("improve", "Improve"),
    ("trust", "Trust"),
)


@router.get("/skills/{name}", access=Access.OPEN_READING)
def show(
    request: Request, habitus: Opened, name: str, tab: str = "", version: str = "", old: str = "", file: str = ""
) -> HTMLResponse:
    """Show a skill with the requested tab."""
    text = request.query_params.get("request", "")[:10_000]
    return shown_page(request, habitus, name, tab, version=_number(version), old=_number(old), text=text, file=file)


def _number(text: str) -> int:
    """Return a version number from the address, or 0 if it is none."""
    # A longer number would not fit the database's integer.
    return int(text) if text.isdecimal() and len(text) < 9 else 0


def shown_page(
    request: Request,
    habitus: Habitus,
    name: str,
    tab: str = "",
    *,
    said: Said | None = None,
    version: int = 0,
    old: int = 0,
    text: str = "",
    file: str = "",
    **values: Any,
) -> HTMLResponse:
    """Return a skill's page with the given tab, or its first."""
    located = locate(habitus, name)
    with located.reading(habitus):
        shown = read(habitus, located)
        tabs = _tabs(shown)
        tab = tab if tab in tabs else next(iter(tabs))
        uses = uses_of(habitus, shown) if tab == "read" else None
    if tab == "history":
        found = _history(habitus, shown.item.name, old, version)
    elif uses is not None:
        found = _facts(habitus, shown, uses)
    else:
        found = _of_tab(habitus, shown, tab, text, file) | values
    return page(request, "skill.html", said=said, shown=shown, tab=tab, tabs=tabs, **found)


def _history(habitus: Habitus, name: str, old: int, version: int) -> dict[str, Any]:
    """Return all versions and the diff between two of them, by default to the previous one."""
    versions = habitus.skills.history(name)[::-1]
    made = None
    if version and old:
        changes = content.versions(habitus.skills, name, old, version)
        made = content.VersionChange(before=old, after=version, files=changes)
    elif version:
        made = content.made_by(habitus.skills, name, version)
    shown = content.readable(made.files if made else (), is_admin=habitus.settings.is_admin)
    return {"versions": versions, "made": made, "drawn": draw_diffs(shown)}


def _tabs(shown: ShownSkill) -> dict[str, str]:
    """Return the tabs that have something to show; a skill that can't be read gets an editor for its source."""
    summary = shown.item.summary
    if summary is None:
        return {"raw": "Fix", "files": "Files", "history": "History"}
    is_foreign = summary.source is Source.IMPORTED or bool(shown.item.inert)
    has = {
        "recipes": Stage.CHUNKS in summary.stages,
        "code": Stage.CODE in summary.stages,
        "trust": is_foreign or Stage.CODE in summary.stages,
    }
    return {key: label for key, label in TABS if has.get(key, True)}


def _of_tab(habitus: Habitus, shown: ShownSkill, tab: str, text: str, file: str) -> dict[str, Any]:
    """Return the template values of a tab."""
    name = shown.item.name
    match tab:
        case "raw":
            return _raw(habitus, shown)
        case "edit":
            return {"draft": draft_with(shown.skill), "reason": "", "conflict": ()}
        case "recipes":
            return {"recipes": [recipe for recipe in habitus.recipes.all() if recipe.skill == name]}
        case "code":
            whole = running_code.show_tool(habitus, name)
            return {"whole": whole, "tool": whole.tool, "may": asked_for(whole.tool.permissions)}
        case "files":
            return {"file": file, "text": _text(habitus, shown, file) if file else None}
        case "fared":
            found = insights.record_of(habitus, shown.item)
            effects = charts.of_findings(found.items)
            return {"charts": charts.of_uses(found), "findings": found.items, "effects": effects}
        case "improve":
            tried = improving.improvements(habitus, improving.OneSkill(name=name))
            drawn_ones = charts.of_candidates(tried.candidates)
            return {"improvements": tried, "candidates": drawn_ones, "diffs": _diff_of(habitus, name, tried)}
        case "trust":
            target = trusting.trustable_skill(habitus.skills, name)
            dangers = trusting.dangers(habitus.scan, target)
            return {"dangers": dangers, "is_trusted": trusting.is_trusted(habitus.trust, habitus.approvals, target)}
        case "fits":
            why = explaining.why(habitus, name, explaining.request_of(habitus, text)) if text.strip() else None
            return {"why": why, "request_text": text}
        case _:
            return {}


def _facts(habitus: Habitus, shown: ShownSkill, uses: Uses) -> dict[str, Any]:
    """Return the facts beside a skill's text: effect, uses, trust and capabilities."""
    item = shown.item
    (row,) = rows_of(habitus, [item], uses)
    may = {words.power(str(one)) for one in powers(item.name, shown.tree)}
    if "trust" in _tabs(shown):
        target = trusting.trustable_skill(habitus.skills, item.name)
        is_trusted = trusting.is_trusted(habitus.trust, habitus.approvals, target)
    else:
        is_trusted = None
    effect = None if row.effect is None else charts.intervals("Of a hundred conversations", {"": row.effect}, long=230)
    return {
        "row": row,
        "effect": effect,
        "may": sorted(may),
        "is_trusted": is_trusted,
        "line": charts.sparkline(row.days),
    }


def _raw(habitus: Habitus, shown: ShownSkill, text: str | None = None, problem: str = "") -> dict[str, Any]:
    """Return the source of a skill that can't be read, with the lines around the error."""
    problems = [problem] if problem else [str(one) for one in shown.item.diagnostics] or [shown.item.reason]
    found = re.search(r"\(line (\d+)\)", " ".join(problems))
    if text is None:
        text = (shown.text or b"").decode("utf-8", "replace")
    line = int(found[1]) if found else 0
    marked = [(at, one, at == line) for at, one in enumerate(text.splitlines(), 1) if abs(at - line) < 3]
    versions = habitus.skills.history(shown.item.name)
    version = versions[-1].number if versions else 0
    return {"raw": text, "problems": problems, "line": line, "marked": marked if line else (), "newest": version}


@router.post("/skills/{name}/raw", access=Access.ADMIN)
def hint(
    request: Request, habitus: Opened, name: str, text: Annotated[str, Form()], version: Annotated[int, Form()]
) -> HTMLResponse:
    """Save a skill's source; if it still can't be read, nothing is saved and the text stays in the form."""
    shown = show_skill(habitus, OneSkill(name=name))
    text = text.replace("\r\n", "\n")
    path = next((path for path in shown.files if path in MAIN_FILES), MAIN_FILES[0])
    try:
        done = habitus.skills.edit_file(
            name, path, text.encode(), habitus.person("fixed by hand"), expected_version=version or None
        )
    except Invalid as error:
        said = Said(text="It still can't be read; nothing was saved.", is_bad=True)
        values = _raw(habitus, shown, text, error.message)
        return shown_page(request, habitus, name, "raw", said=said, **values)
    said = Said(text=f"Saved as version {done.version}.", undo=of_written(done))
    return shown_page(request, habitus, name, said=said)


def _diff_of(habitus: Habitus, name: str, found: Improvements) -> dict[str, tuple[Compared, ...]]:
    """Return each candidate's changes to its base version; candidates whose base is gone are left out."""
    kept = {version.number for version in habitus.skills.history(name)}
    return {
        one.candidate.id: draw_diffs(content.candidate(habitus.skills, name, one.candidate.base, one.candidate.text))
        for one in found.candidates
        if one.candidate.base in kept
    }


def _text(habitus: Habitus, shown: ShownSkill, path: str) -> str | None:
    """Return the text of a file, or None if it is binary or too long."""
    try:
        text = read_file(habitus, shown.item.name, path).decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) <= _READABLE and "\0" not in text else None


@router.post("/preview", access=Access.VIEWER)
def preview(body: Annotated[str, Form()] = "") -> HTMLResponse:
    return HTMLResponse(str(markdown(body)))


@router.post("/skills/{name}/edit", access=Access.ADMIN)
def edit(
    request: Request,
    habitus: Opened,
    name: str,
    draft: Drafted,
    version: Annotated[int, Form()],
    reason: Annotated[str, Form()] = "",
) -> HTMLResponse:
    """Save the form; if another person saved first, keep the text and show the difference."""
    wanted = writing.SkillEdit(name=name, body=draft.body, expect=str(version), reason=reason, **draft.given_fields)
    try:
        done = writing.edit(habitus, wanted)
    except Stale:
        theirs = draft_with(show_skill(habitus, OneSkill(name=name)).skill).body
        conflict = draw_diffs([FileChange(path="Theirs, and yours", before=theirs, after=draft.body)])
        said = Said(text="Somebody else saved this skill first.", is_bad=True)
        return shown_page(request, habitus, name, "edit", said=said, draft=draft, reason=reason, conflict=conflict)
    said = Said(text=f"Saved as version {done.version}." if done.undo else "Nothing was changed.", undo=done.undo)
    return shown_page(request, habitus, name, said=said)


@router.post("/skills/{name}/improve", access=Access.ADMIN)
def improve(
    request: Request,
    habitus: Opened,
    name: str,
    budget: Annotated[str, Form()] = "",
    shorter: Annotated[bool, Form()] = False,
) -> HTMLResponse:
    """Queue an improvement run."""
    improving.improve(habitus, improving.Improvement(name=name, budget=budget, shorter=shorter))
    said = Said(text="It is left to the next worker that is free; Automation shows how far it is.")
    return shown_page(request, habitus, name, "improve", said=said)


@router.post("/skills/{name}/tasks", access=Access.ADMIN)
def add_task(
    request: Request, habitus: Opened, name: str, asked: Annotated[str, Form()], expect: Annotated[str, Form()]
) -> HTMLResponse:
    """Add a task: a request with what a good answer contains."""
    done = tasks.add(habitus, tasks.NewTask(name=name, request=asked.strip(), expect=(expect.strip(),)))
    return shown_page(request, habitus, name, "improve", said=Said(text="The task is kept.", undo=done.undo))


@router.post("/skills/{name}/tasks/mine", access=Access.ADMIN)
def mine_tasks(request: Request, habitus: Opened, name: str) -> HTMLResponse:
    """Propose tasks from requests that recurred and succeeded."""
    found = tasks.mine(habitus, tasks.TaskMining(skill=name, apply=True)).found
    waits = f"{count_of(len(found), 'task')} found; see the Inbox."
    nothing = "Nothing yet was asked of it again and again, and came to a result that was accepted."
    return shown_page(request, habitus, name, "improve", said=Said(text=waits if found else nothing))


@router.post("/skills/{name}/turn", access=Access.ADMIN)
def turn(request: Request, habitus: Opened, name: str, on: Annotated[bool, Form()]) -> HTMLResponse:
    """Switch a skill on or off."""
    done = writing.switch(habitus, [name], on=on)
    return shown_page(request, habitus, name, said=Said(text=f"It is {'on' if on else 'off'} now.", undo=done.undo))


@router.post("/skills/{name}/trust", access=Access.ADMIN)
def trust(request: Request, habitus: Opened, name: str, on: Annotated[bool, Form()]) -> HTMLResponse:
    """Trust a skill as it is now, or revoke that."""
    target = trusting.trustable_skill(habitus.skills, name)
    if on:
        trusting.trust(habitus, target)
    else:
        trusting.revoke(habitus.trust, habitus.approvals, target)
    told = "You trust it as it is now." if on else "It is no longer trusted."
    return shown_page(request, habitus, name, "trust", said=Said(text=told))


@router.post("/skills/{name}/back", access=Access.ADMIN)
def back(request: Request, habitus: Opened, name: str, to: Annotated[int, Form()]) -> HTMLResponse:
    """Roll back to an earlier version."""
    done = writing.rollback(habitus, writing.EarlierVersion(name=name, to=to))
    said = Said(text=f"Back to version {to}, as version {done.version}.", undo=done.undo)
    return shown_page(request, habitus, name, "history", said=said)


@router.post("/skills/{name}/away", access=Access.ADMIN)
def away(request: Request, habitus: Opened, name: str) -> HTMLResponse:
    """Archive a skill and return to the list."""
    (gone,) = writing.remove(habitus, writing.SkillRemoval(names=(name,))).skills
    said = Said(text=f"{gone.name} is put away.", undo=gone.undo)
    answer = skills.show_list(request, habitus, skills.filters_of(), said=said)
    answer.headers["HX-Push-Url"] = "/skills"
    return answer


_STEPS = """1. Say what to look at first, and how to tell that this fits.
2. Give the steps in order, with the decisions in them.
3. Say how to check the result, and what to do when the check fails.
"""


@router.get("/new", access=Access.VIEWER)
def show_new(request: Request) -> HTMLResponse:
    return page(request, "new.html", draft=Draft(body=_STEPS))


@router.post("/new/write", access=Access.ADMIN)
def write(request: Request, habitus: Opened, draft: Drafted) -> HTMLResponse:
    """Create a skill under a name made from its title."""
    title = draft.texts["title"]
    if not title:
        raise Invalid("The skill has no title.", hint="Say in a few words what it is about.")
    name = names.unique_name(names.slugify(title), habitus.skills.is_taken)
    made = writing.new(habitus, writing.SkillDraft(name=name, body=draft.body, **draft.given_fields))
    answer = shown_page(request, habitus, made.name, said=Said(text="Saved.", undo=made.undo))
    answer.headers["HX-Push-Url"] = f"/skills/{made.name}"
    return answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """The form of a skill: the texts of its fields, and the steps."""

    texts: Mapping[str, str] = field(default_factory=dict)
    body: str = ""

    @property
    def given_fields(self) -> dict[str, Any]:
        """The field values as the use case takes them."""
        return dict(Fields(**self.texts).values)


def draft_with(skill: Skill | None) -> Draft:
    """Return the form filled with a skill's texts; empty for a skill that can't be read."""
    return (
        Draft() if skill is None else Draft(texts={each.name: each.text(skill) for each in EDITABLE}, body=skill.body)
    )


def _read_form(body: Annotated[str, Form()] = "", **texts: str) -> Draft:
    """Return the submitted form with normalised line endings."""
    return Draft(texts={name: text.strip() for name, text in texts.items()}, body=body.replace("\r\n", "\n"))


# FastAPI reads the fields from the signature, which is built from the list of editable fields.
_read_form.__dict__["__signature__"] = inspect.Signature(
    [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default="", annotation=Annotated[str, Form(max_length=most)]
        )
        for name, most in {"body": None, **{each.name: each.longest for each in EDITABLE}}.items()
    ]
)
Drafted = Annotated[Draft, Depends(_read_form)]
