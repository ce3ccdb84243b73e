"""REST for the files of skills, and for files that bring skills along; `app/use_cases` declares the rest."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response, UploadFile
from pydantic import BaseModel, Field

from habitus.agent.background import in_thread
from habitus.app import json_of
from habitus.app.library import updating, uploading
from habitus.app.library.updating import TakenIn
from habitus.app.operation.once import Attempt, once
from habitus.app.use_cases.skills import file_of as file_of_skill
from habitus.errors import Refused
from habitus.files import file_of, is_examination
from habitus.jobs.model import Job
from habitus.web.api.asking import IfMatch, Json, Line, OnceKey, Opened, answer, as_json, expected_version, read_upload

router = APIRouter(tags=["skills"])


@router.get("/skills/{name}/files/{path:path}", response_class=Response)
def file(habitus: Opened, name: str, path: str) -> Response:
    """One of its files as it is, to be kept and not to be shown by a browser."""
    if is_examination(path) and not habitus.settings.is_admin:
        raise Refused(f"'{path}' says what the skill is examined by, which only admins read.", mend="Ask one of them.")
    content = file_of_skill(habitus.skills, name, path)
    return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": "attachment"})


@router.put("/skills/{name}/files/{path:path}", response_model=answer("WrittenFile", name=str, version=int))
async def put_file(
    habitus: Opened, name: str, path: str, request: Request, if_match: IfMatch = None, reason: Line = ""
) -> Json:
    """Replace one of its files whole by what is sent."""
    content = await request.body()
    return await in_thread(lambda: _put_file(habitus, name, path, content, if_match, reason))


def _put_file(habitus: Opened, name: str, path: str, content: bytes, if_match: str | None, reason: str) -> Json:
    author, version = habitus.person(reason), expected_version(if_match, habitus.skills.find(name).layer)
    made = habitus.skills.edit_file(name, path, content, author, expected_version=version)
    return {"name": name, "version": made.version}


@router.post("/uploads", response_model=uploading.Looked | TakenIn | Job)
def upload(habitus: Opened, file: UploadFile, save: bool = False, overwrite: bool = False, key: OnceKey = "") -> Json:
    """What is in a .md, .zip or .tar.gz, and what a scan finds in it; with `save` it is taken in as well, what is large
    by a job."""
    sent = read_upload(file)

    def make(attempt: Attempt) -> Json:
        taken = uploading.take(habitus, sent, overwrite=overwrite, id=attempt.id)
        answer: Json = as_json(json_of.result(taken))
        return answer

    if save:
        return once(habitus, key, ["uploads", as_json(sent.name), file_of(sent.content).sha256, overwrite], make)
    answer: Json = as_json(uploading.look(habitus.skills, habitus.screening, sent))
    return answer


class Addition(BaseModel):
    source: str = Field(max_length=2_000, description="https://…, or OWNER/REPO[/FOLDER].")
    overwrite: bool = False


@router.post("/additions", response_model=TakenIn)
def add(habitus: Opened, wanted: Addition, key: OnceKey = "") -> Json:
    """Fetch skills from a site, an archive or a repository on the public internet, and take them in."""

    def make(attempt: Attempt) -> Json:
        taken = updating.add_from_web(habitus, wanted.source, overwrite=wanted.overwrite)
        answer: Json = as_json(json_of.result(taken))
        return answer

    return once(habitus, key, ["additions", as_json(wanted.source), wanted.overwrite], make)
