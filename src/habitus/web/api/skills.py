"""REST for skills: list, read, write, switch, put away, bring back, history and files."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request, Response, UploadFile
from pydantic import Field, create_model

from habitus.agent.background import in_thread
from habitus.app import json_of
from habitus.app.library import browsing, going_back, listing, uploading, writing
from habitus.app.library.browsing import Filters
from habitus.app.library.updating import TakenIn
from habitus.app.operation.once import Attempt, once
from habitus.errors import Refused, Stale
from habitus.files import file_of
from habitus.skills import names
from habitus.skills.edits import Edit, Operation
from habitus.skills.fields import EDITABLE, Fields
from habitus.skills.model import Archived, Source, Stage, State, Switch, Version
from habitus.web.api.answers import ShownSkill, SkillEntry, Undo, answer, page_of
from habitus.web.api.asking import (
    After,
    Body,
    IfMatch,
    Json,
    Limit,
    Line,
    OnceKey,
    Opened,
    Reason,
    Words,
    etag,
    expected,
    paged,
    told,
    uploaded,
)

router = APIRouter(tags=["skills"])


Written = answer("WrittenSkill", name=str, layer=str, version=int, undo=Undo)
Moved = answer("MovedSkill", name=str, layer=str, undo=Undo)
Switches = tuple[Switch, ...]
Switched = answer("SwitchedSkill", name=str, layer=str, state=State, undo=Undo)


if TYPE_CHECKING:
    WithFields = Body
else:
    WithFields = create_model(
        "WithFields",
        __base__=Body,
        **{each.name: (tuple[Line, ...] | None if each.is_list else Line | None, None) for each in EDITABLE},
    )


class NewSkill(WithFields):
    name: Line
    body: Words | None = Field(default=None, description="Markdown; without it, a skeleton to fill in.")
    layer: Line | None = None


class ChangedSkill(WithFields):
    body: Words | None = Field(default=None, description="The new text, whole.")
    reason: Line = ""


class Act(StrEnum):
    ENABLE = "enable"
    DISABLE = "disable"
    REMOVE = "remove"


class Bulk(Reason):
    act: Act
    names: tuple[Line, ...] = Field(min_length=1, max_length=1_000)


class ToVersion(Reason):
    to: int = Field(ge=1, le=2**31)


class NewName(Body):
    name: Line | None = None


@router.get("/skills", response_model=page_of("skills", SkillEntry), response_model_exclude_unset=True)
def list_skills(
    habitus: Opened,
    q: Annotated[str, Query(max_length=1_000, description="What should be done, in your own words.")] = "",
    tag: str = "",
    source: Source | None = None,
    stage: Stage | None = None,
    state: State | None = None,
    layer: str | None = None,
    limit: Limit = 100,
    after: After = "",
) -> Json:
    """Every skill with its state, and how often it was used; with `q` what fits it, the best first."""
    filters = Filters(q=q, tag=tag, source=source, stage=stage, state=state, layer=layer)
    found, _ = browsing.found(habitus, filters, listing.listing(habitus.skills, habitus.review))
    around, page = paged("skills", found, lambda item: f"{item.name}@{item.layer}", limit, after)
    counted = listing.used(habitus.skills, page)
    return {"skills": [told(json_of.skill(habitus.skills, item, counted)) for item in page], **around}


@router.post("/skills", status_code=201, response_model=Written)
def create(habitus: Opened, wanted: NewSkill, response: Response, key: OnceKey = "") -> Json:
    """Write a new skill."""

    def make(attempt: Attempt) -> Json:
        fields = Fields.of(wanted)
        content = None if wanted.body is None else wanted.body.encode("utf-8", "replace")
        name, since = names.checked(wanted.name), attempt.since
        try:
            made = writing.new(habitus, name, fields, wanted.layer, content=content)
        except Stale as error:
            before = writing.made_since(habitus, name, since, wanted.layer) if since else None
            if before is None:
                raise Refused(error.message, mend="Choose another name, or edit the one that is there.") from None
            made = before
        return {"name": made.name, "layer": made.layer, "version": made.version, "undo": made.undo}

    answer = once(habitus, key, ["skills", wanted.model_dump(mode="json")], make)
    response.headers["Location"] = f"/api/v1/skills/{answer['name']}"
    response.headers["ETag"] = etag(answer["version"], answer["layer"])
    return answer


@router.post("/skills/bulk", response_model=answer("BulkDone", names=list[str], undo=list[Undo]))
def bulk(habitus: Opened, wanted: Bulk) -> Json:
    """Switch several on or off, or move them to the archive; an unknown one is said before anything is done."""
    if wanted.act is Act.REMOVE:
        gone = writing.remove(habitus, wanted.names, wanted.reason)
        return {"names": [one.item.name for one in gone.skills], "undo": [gone.undo]}
    done = writing.switch(habitus, wanted.names, on=wanted.act is Act.ENABLE)
    return {"names": [item.name for item in done.after], "undo": [done.undo] if done.undo else []}


@router.get("/skills/{name}", response_model=ShownSkill, response_model_exclude_unset=True)
def show(habitus: Opened, name: str, response: Response) -> Json:
    """One skill whole."""
    shown = listing.shown(habitus, name)
    summary = shown.item.summary
    response.headers["ETag"] = etag(0 if summary is None else summary.version, shown.item.layer)
    answer: Json = told(json_of.shown_skill(habitus.skills, shown))
    return answer


@router.patch("/skills/{name}", response_model=Written)
def edit(habitus: Opened, name: str, wanted: ChangedSkill, response: Response, if_match: IfMatch = None) -> Json:
    """Change its text and fields; 412 where somebody was faster."""
    change = Edit() if wanted.body is None else Edit(operation=Operation.REPLACE, content=wanted.body)
    fields = Fields.of(wanted)
    seen = habitus.skills.snapshot()
    version = expected(if_match, habitus.skills.find(name, at=seen).layer)
    done = writing.edit(habitus, name, change, fields, version, wanted.reason, at=seen)
    response.headers["ETag"] = etag(done.version, done.layer)
    return {"name": done.name, "layer": done.layer, "version": done.version, "undo": done.undo}


@router.delete("/skills/{name}", response_model=Moved)
def remove(habitus: Opened, name: str, reason: Line = "") -> Json:
    """Move it to the archive, from which it can be brought back."""
    (gone,) = writing.remove(habitus, [name], reason).skills
    return {"name": gone.item.name, "layer": gone.item.layer, "undo": gone.undo}


@router.post("/skills/{name}/enable", response_model=Switched)
def enable(habitus: Opened, name: str) -> Json:
    """Switch it on."""
    return _switched(habitus, name, on=True)


@router.post("/skills/{name}/disable", response_model=Switched)
def disable(habitus: Opened, name: str) -> Json:
    """Switch it off: it stays, and no agent sees it."""
    return _switched(habitus, name, on=False)


def _switched(habitus: Opened, name: str, *, on: bool) -> Json:
    done = writing.switch(habitus, [name], on=on)
    (after,) = done.after
    return {"name": after.name, "layer": after.layer, "state": after.state, "undo": done.undo}


@router.get(
    "/skills/{name}/history", response_model=page_of("versions", Version, name=str, layer=str, switches=Switches)
)
def history(habitus: Opened, name: str, limit: Limit = 100, after: After = "") -> Json:
    """Everything that was done to it, oldest first; also of one in the archive."""
    found, layer, done = listing.history(habitus.skills, name)
    around, page = paged("versions", done.versions, lambda version: str(version.number), limit, after)
    return {"name": found, "layer": layer, "versions": told(page), "switches": told(done.switches), **around}


@router.get("/skills/{name}/diff", response_model=answer("Difference", name=str, diff=str))
def diff(
    habitus: Opened,
    name: str,
    before: Annotated[int | None, Query(alias="from", ge=1, le=2**31)] = None,
    after: Annotated[int | None, Query(alias="to", ge=1, le=2**31)] = None,
) -> Json:
    """What changed between two versions; by default between the last two."""
    return {"name": name, "diff": told(habitus.skills.diff(name, before, after))}


@router.post("/skills/{name}/rollback", response_model=going_back.RolledBack)
def rollback(habitus: Opened, name: str, wanted: ToVersion) -> Json:
    """Make an earlier version the current one, as a new version."""
    answer: Json = told(going_back.roll_back(habitus, name, wanted.to, wanted.reason))
    return answer


@router.get("/skills/{name}/files/{path:path}", response_class=Response)
def file(habitus: Opened, name: str, path: str) -> Response:
    """One of its files as it is, to be kept and not to be shown by a browser."""
    content = listing.file_of(habitus.skills, name, path)
    return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": "attachment"})


@router.put("/skills/{name}/files/{path:path}", response_model=answer("WrittenFile", name=str, version=int))
async def put_file(
    habitus: Opened, name: str, path: str, request: Request, if_match: IfMatch = None, reason: Line = ""
) -> Json:
    """Replace one of its files whole by what is sent."""
    content = await request.body()
    return await in_thread(lambda: _put_file(habitus, name, path, content, if_match, reason))


def _put_file(habitus: Opened, name: str, path: str, content: bytes, if_match: str | None, reason: str) -> Json:
    author, version = habitus.person(reason), expected(if_match, habitus.skills.find(name).layer)
    made = habitus.skills.edit_file(name, path, content, author, expected_version=version)
    return {"name": name, "version": made.version}


@router.get("/archive", response_model=page_of("archived", Archived))
def archive(habitus: Opened, limit: Limit = 100, after: After = "") -> Json:
    """What can be brought back, newest first."""
    around, page = paged("the archive", habitus.skills.archived(), lambda one: str(one.id), limit, after)
    return {"archived": told(page), **around}


@router.post("/archive/{id}/restore", response_model=Moved)
def restore(habitus: Opened, id: int, wanted: NewName | None = None) -> Json:
    """Bring a skill back."""
    new_name = None if wanted is None or wanted.name is None else names.checked(wanted.name)
    name, layer = habitus.skills.restore(f"#{id}", habitus.person("restored"), new_name=new_name)
    return {"name": name, "layer": layer, "undo": ("skills", "remove", f"{name}@{layer}")}


@router.post("/uploads", response_model=uploading.Looked | TakenIn)
def upload(habitus: Opened, file: UploadFile, save: bool = False, overwrite: bool = False, key: OnceKey = "") -> Json:
    """What is in a .md, .zip or .tar.gz, and what a scan finds in it; with `save` it is taken in as well."""
    sent = uploaded(file)

    def make(_: Attempt) -> Json:
        taken = uploading.take(habitus, sent, overwrite=overwrite)
        return {"results": told(taken.results), "undo": taken.undo}

    if save:
        return once(habitus, key, ["uploads", told(sent.name), file_of(sent.content).sha256, overwrite], make)
    answer: Json = told(uploading.look(habitus.skills, habitus.screening, sent))
    return answer
