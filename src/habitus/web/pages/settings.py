"""Settings: what is set and where, changing what may be changed from here, and whose skills are trusted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse

from habitus.app import Habitus
from habitus.app.library import trusting
from habitus.app.operation import configuring
from habitus.app.operation.configuring import Origin
from habitus.skills.trust import APPROVED, IMPORTED
from habitus.web.api.asking import Opened
from habitus.web.desks import desks_of, habitus_of
from habitus.web.rendering import Said, page

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A setting as it is called and explained here; `choices` are its values with their words."""

    label: str
    hint: str = ""
    choices: Mapping[str, str] | None = None


GROUPS: Mapping[str, Mapping[str, Setting]] = {
    "Models": {
        "model": Setting(
            label="The model that answers", hint="Written as provider:model. Its key stays in the environment."
        ),
        "cheap_model": Setting(label="The model that drafts and draws lessons", hint="Without one, the same."),
    },
    "Learning": {
        "memory": Setting(
            label="What agents learn",
            choices={
                "autopilot": "is kept at once",
                "copilot": "is kept when it is sure; else you are asked",
                "off": "is not kept",
            },
        ),
        "acc_mode": Setting(
            label="What goes wrong while an agent works",
            choices={
                "passive": "becomes a lesson",
                "active": "becomes a lesson, and the agent is told at once",
                "off": "is not looked at",
            },
        ),
        "learning_tokens": Setting(
            label="The most that learning may spend a day", hint="Counted about as words; 0 is nothing."
        ),
    },
    "Review": {
        "review.auto": Setting(
            label="Harmless text of agents",
            choices={"false": "waits for you", "true": "is used at once"},
            hint="Code, new powers and deletions always wait.",
        ),
    },
    "What helps": {
        "evidence.withhold": Setting(
            label="Share of offers held back at random",
            hint="From 0 to 0.5. With 0.1 you learn what helps; 0 is off.",
        ),
        "reliable": Setting(
            label="How sure a tool must be before it is tried first",
            hint="From 0 to 1.",
        ),
    },
    "Skills": {
        "layers": Setting(
            label="Offer only the skills of these places", hint="Their names with commas between; none means all."
        ),
        "disabled_skills": Setting(label="Skills that are off for everybody", hint="Their names with commas between."),
        "search.encoder": Setting(label="Search", choices={"static": "quick", "minilm": "understands more, slower"}),
        "bot_name": Setting(label="What the agent is called"),
    },
    "How long things are kept": {
        "retention.turn_days": Setting(label="Days that conversations are kept"),
        "retention.lessons": Setting(label="Lessons in one place"),
        "retention.degraded_tool_days": Setting(label="Days until a tool that fails is put away"),
    },
}
_ORIGINS = {Origin.DEFAULT: "", Origin.FILE: "set here", Origin.ENVIRONMENT: "set by the environment"}
_ROOTS = {IMPORTED: "Skills that were brought in", APPROVED: "Code of your own skills"}


@router.get("/settings")
def show(request: Request, habitus: Opened) -> HTMLResponse:
    return _show_page(request, habitus)


def _show_page(request: Request, habitus: Habitus, said: Said | None = None) -> HTMLResponse:
    values = {one.key: one for one in configuring.values(habitus.settings, os.environ)}
    known = {key for settings in GROUPS.values() for key in settings}
    trusted = [(_ROOTS.get(one.root, one.root), one) for one in trusting.list_trusted(habitus)]
    return page(
        request,
        "settings.html",
        said=said,
        groups=GROUPS,
        values=values,
        others=[one for key, one in values.items() if key not in known],
        origins=_ORIGINS,
        trusted=trusted,
        file=habitus.settings.home / "habitus.toml",
    )


@router.post("/settings/value")
def put(
    request: Request, habitus: Opened, key: Annotated[str, Form()], value: Annotated[str, Form()] = ""
) -> HTMLResponse:
    """Change one; an empty field goes back to what holds without it."""
    done = desks_of(request).put(habitus, key, value.strip() or None)
    told = "Saved." if done.is_changed else "Nothing was changed."
    if done.is_overruled:
        told = "It is written down; the environment has another value, which wins."
    return _show_page(request, habitus_of(request), Said(text=told, undo=done.undo))
