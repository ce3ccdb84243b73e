"""One skill: read, edit, files, history, how it did, and whether a request would bring it up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from habitus.agent.explaining import Why
from habitus.app import comparing, explaining, faring, going_back, listing, trusting, writing
from habitus.app.comparing import FileChange
from habitus.app.faring import Fared
from habitus.app.habitus import Habitus
from habitus.app.listing import ShownSkill
from habitus.errors import Stale
from habitus.evidence.findings import Finding
from habitus.journal.model import Place
from habitus.skills.edits import Edit, Operation
from habitus.skills.library import Fields
from habitus.skills.model import Source, Stage, Version
from habitus.tools.model import ToolStatus, asked_for
from habitus.web import words
from habitus.web.api.asking import Opened
from habitus.web.charts import bars, intervals
from habitus.web.diffs import DiffRow, side_by_side
from habitus.web.pages import skills
from habitus.web.rendering import Said, markdown, page

router = APIRouter(include_in_schema=False)

_READABLE = 100_000  # characters of a file that is shown
TABS = (
    ("read", "Read"),
    ("edit", "Edit"),
    ("recipes", "Recipes"),
    ("code", "Tested tool"),
    ("files", "Files"),
    ("history", "History"),
    ("fared", "How it did"),
    ("fits", "Would it be used?"),
    ("trust", "Trust"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """What stands in the form."""

    title: str = ""
    description: str = ""
    when_to_use: str = ""
    tags: tuple[str, ...] = ()
    body: str = ""

    @property
    def fields(self) -> Fields:
        return Fields(title=self.title, description=self.description, when_to_use=self.when_to_use, tags=self.tags)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One file of a comparison, ready to be drawn."""

    path: str
    rows: tuple[DiffRow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """What one version changed."""

    before: int
    after: int
    changes: tuple[Compared, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Whether a request would bring a skill up, in plain words."""

    answer: str
    lines: tuple[str, ...]


@router.get("/skills/{name}")
def show(
    request: Request, habitus: Opened, name: str, tab: str = "read", version: str = "", file: str = ""
) -> HTMLResponse:
    text = request.query_params.get("request", "")[:10_000]
    number = int(version) if version.isdecimal() and len(version) < 9 else 0
    return shown_page(request, habitus, name, tab, version=number, text=text, file=file)


def shown_page(
    request: Request,
    habitus: Habitus,
    name: str,
    tab: str = "read",
    *,
    said: Said | None = None,
    version: int = 0,
    text: str = "",
    file: str = "",
    **values: Any,
) -> HTMLResponse:
    shown = listing.shown(habitus, name)
    tabs = _tabs(shown)
    tab = tab if tab in tabs else "read"
    found = _of_tab(habitus, shown, tab, version, text, file) | values
    return page(request, "skill.html", said=said, shown=shown, tab=tab, tabs=tabs, **found)


def _tabs(shown: ShownSkill) -> dict[str, str]:
    """Those that have something to show."""
    summary = shown.item.summary
    if summary is None:
        return {key: label for key, label in TABS if key in ("read", "files", "history")}
    is_foreign = summary.source is Source.IMPORTED or bool(shown.item.inert)
    has = {
        "recipes": Stage.CHUNKS in summary.stages,
        "code": Stage.CODE in summary.stages,
        "trust": is_foreign or Stage.CODE in summary.stages,
    }
    return {key: label for key, label in TABS if has.get(key, True)}


def _of_tab(habitus: Habitus, shown: ShownSkill, tab: str, version: int, text: str, file: str) -> dict[str, Any]:
    name = shown.item.name
    match tab:
        case "edit":
            return {"draft": _draft(shown), "reason": "", "conflict": ()}
        case "recipes":
            return {"recipes": [recipe for recipe in habitus.recipes.all() if recipe.skill == name]}
        case "code":
            tool = habitus.tools.get(name)
            is_whole = tool.status is not ToolStatus.BROKEN
            code, cases = (habitus.tools.code(name), habitus.tools.cases(name)) if is_whole else ("", ())
            return {"tool": tool, "code": code, "cases": cases, "may": asked_for(tool.permissions)}
        case "files":
            return {"file": file, "text": _text(habitus, shown, file) if file else None}
        case "history":
            kept = habitus.skills.history(name)
            return {"versions": kept[::-1], "compared": _changes(habitus, name, kept, version) if version else None}
        case "fared":
            found = faring.fared(habitus, shown.item)
            return {"charts": _charts(found), "findings": found.findings, "effects": _effects(found.findings)}
        case "trust":
            target = trusting.trustable_skill(habitus, name)
            dangers = trusting.dangers(habitus, target)
            return {"dangers": dangers, "is_trusted": trusting.is_trusted(habitus, target)}
        case "fits":
            why = explaining.why(habitus, name, explaining.request_of(habitus, text)) if text.strip() else None
            return {"why": _verdict(why) if why else None, "request_text": text}
        case _:
            return {}


def _text(habitus: Habitus, shown: ShownSkill, path: str) -> str | None:
    """One of its files to be read; None for what is no text, or too long."""
    try:
        text = listing.file_of(habitus, shown.item.name, path).decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) <= _READABLE and "\0" not in text else None


def _draft(shown: ShownSkill) -> Draft:
    skill = shown.skill
    if skill is None:
        return Draft()
    return Draft(
        title=skill.title,
        description=skill.description,
        when_to_use=skill.when_to_use,
        tags=skill.tags,
        body=skill.body,
    )


def drawn(changes: Sequence[FileChange]) -> tuple[Compared, ...]:
    """Files before and after, side by side; no rows for what is no text."""
    return tuple(
        Compared(path=change.path, rows=side_by_side(change.before or "", change.after or "") if change.is_text else ())
        for change in changes
    )


def _changes(habitus: Habitus, name: str, kept: Sequence[Version], version: int) -> Changes:
    before = max((one.number for one in kept if one.number < version), default=0)
    return Changes(before=before, after=version, changes=drawn(comparing.versions(habitus, name, before, version)))


def _charts(found: Fared) -> dict[str, Markup]:
    """Uses week by week and version by version, as far as there are any."""
    weeks = {f"{week:%b} {week.day}": uses for week, uses in found.weeks}
    versions = {f"v{number}": uses for number, uses in found.versions}
    drawn = {"By week": weeks, "By version": versions}
    return {title: bars(title, of) for title, of in drawn.items() if any(uses.total for uses in of.values())}


def _effects(found: Sequence[Finding]) -> Markup | None:
    """What offering each version changed, as far as anybody said how it went."""
    known = {f"v{one.item.version}": one.estimate.offering for one in reversed(found)}
    drawn = {label: effect for label, effect in known.items() if effect is not None}
    return intervals("Of a hundred conversations", drawn) if drawn else None


def _verdict(why: Why) -> Verdict:
    lines = []
    match why.place:
        case Place.EAGER | Place.STICKY:
            answer = "Yes: the agent reads it in full."
            lines.append(f"Because {words.because(why.reason)}.")
        case Place.MENU | Place.LOADED if why.rank == 1 and why.fits:
            answer = "Very likely: it fits best, and the agent is pointed to it."
        case Place.MENU | Place.LOADED if why.rank is not None and why.rank <= 3 and why.fits:
            answer = "Perhaps: the agent is offered it, and others fit better."
        case Place.MENU | Place.LOADED:
            answer = "Hardly: the agent can open it, and nothing points to it."
        case Place.CUT:
            answer = "Hardly: it fits the rules, and there was no room to offer it."
        case Place.LEFT_OUT:
            answer = "No: it is left out."
            lines.append(f"Because {words.because(why.reason)}.")
    if why.rank is not None:
        lines.append(f"Of all skills it is number {why.rank} for this request.")
    elif why.place is not Place.LEFT_OUT:
        lines.append("Nothing in it matches this request. Say in “When to use it” what somebody would ask.")
    return Verdict(answer=answer, lines=tuple(lines))


@router.post("/preview")
def preview(body: Annotated[str, Form()] = "") -> HTMLResponse:
    return HTMLResponse(str(markdown(body)))


def draft_of(
    title: Annotated[str, Form()] = "",
    description: Annotated[str, Form()] = "",
    when_to_use: Annotated[str, Form()] = "",
    tags: Annotated[str, Form()] = "",
    body: Annotated[str, Form()] = "",
) -> Draft:
    """The form as it was sent; browsers end lines in their own way."""
    parts = tuple(part.strip() for part in tags.split(",") if part.strip())
    text = body.replace("\r\n", "\n")
    return Draft(
        title=title.strip(), description=description.strip(), when_to_use=when_to_use.strip(), tags=parts, body=text
    )


@router.post("/skills/{name}/edit")
def edit(
    request: Request,
    habitus: Opened,
    name: str,
    version: Annotated[int, Form()],
    reason: Annotated[str, Form()] = "",
    title: Annotated[str, Form()] = "",
    description: Annotated[str, Form()] = "",
    when_to_use: Annotated[str, Form()] = "",
    tags: Annotated[str, Form()] = "",
    body: Annotated[str, Form()] = "",
) -> HTMLResponse:
    """Save; whoever comes second keeps their text and sees what differs."""
    draft = draft_of(title, description, when_to_use, tags, body)
    change = Edit(operation=Operation.REPLACE, content=draft.body)
    try:
        done = writing.edit(habitus, name, change, draft.fields, version, reason)
    except Stale:
        theirs = _draft(listing.shown(habitus, name)).body
        differs = FileChange(path="Theirs, and yours", before=theirs, after=draft.body)
        said = Said(text="Somebody else saved this skill first.", is_bad=True)
        return shown_page(
            request, habitus, name, "edit", said=said, draft=draft, reason=reason, conflict=drawn([differs])
        )
    said = Said(text=f"Saved as version {done.version}." if done.undo else "Nothing was changed.", undo=done.undo)
    return shown_page(request, habitus, name, said=said)


@router.post("/skills/{name}/turn")
def turn(request: Request, habitus: Opened, name: str, on: Annotated[bool, Form()]) -> HTMLResponse:
    """Switch it on or off."""
    done = writing.switch(habitus, [name], on=on)
    return shown_page(request, habitus, name, said=Said(text=f"It is {'on' if on else 'off'} now.", undo=done.undo))


@router.post("/skills/{name}/trust")
def trust(request: Request, habitus: Opened, name: str, on: Annotated[bool, Form()]) -> HTMLResponse:
    """Let it act as it is now, or no longer."""
    target = trusting.trustable_skill(habitus, name)
    if on:
        trusting.trust(habitus, target)
    else:
        trusting.revoke(habitus, target)
    told = "You trust it as it is now." if on else "It is no longer trusted."
    return shown_page(request, habitus, name, "trust", said=Said(text=told))


@router.post("/skills/{name}/back")
def back(request: Request, habitus: Opened, name: str, to: Annotated[int, Form()]) -> HTMLResponse:
    """Go back to an earlier version."""
    done = going_back.roll_back(habitus, name, to, "")
    said = Said(text=f"Back to version {to}, as version {done.version}.", undo=done.undo)
    return shown_page(request, habitus, name, "history", said=said)


@router.post("/skills/{name}/away")
def away(request: Request, habitus: Opened, name: str) -> HTMLResponse:
    """Put it away; the list follows."""
    (gone,) = writing.remove(habitus, [name], "").skills
    said = Said(text=f"{gone.item.name} is put away.", undo=gone.undo)
    answer = skills.listed(request, habitus, skills.chosen(), said=said)
    answer.headers["HX-Push-Url"] = "/skills"
    return answer
