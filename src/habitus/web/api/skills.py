"""REST for skill files and uploads; `app/use_cases` declares the other routes about skills."""

from __future__ import annotations

from fastapi import Request, Response, UploadFile

from habitus.access import Access
from habitus.agent.background import in_thread
from habitus.app import json_shapes
from habitus.app.library import uploading
from habitus.app.library.updating import TakenIn
from habitus.app.operating.idempotency import Attempt, once
from habitus.app.use_cases.skills import read_file
from habitus.errors import Refused
from habitus.files import file_of
from habitus.jobs.model import Job
from habitus.skills.trees import runs_unasked
from habitus.web.api.requests_and_answers import (
    AsMade,
    IfMatch,
    Json,
    Line,
    OnceKey,
    Opened,
    answer,
    as_json,
    expected_version,
    read_upload,
)
from habitus.web.api.use_case_routes import shape_of
from habitus.web.routing import LARGE, Router

router = Router(tags=["skills"], route_class_override=AsMade)

Taken = shape_of(TakenIn)


@router.get("/skills/{name}/files/{path:path}", access=Access.OPEN_READING, response_class=Response)
def file(habitus: Opened, name: str, path: str) -> Response:
    """Return one of the skill's files as a download."""
    # Sent as an attachment: a skill's HTML shown by the browser could act in the page's name.
    content = read_file(habitus, name, path)
    return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": "attachment"})


@router.put(
    "/skills/{name}/files/{path:path}", access=Access.ADMIN, response_model=answer("WrittenFile", name=str, version=int)
)
async def put_file(
    habitus: Opened, name: str, path: str, request: Request, if_match: IfMatch = None, reason: Line = ""
) -> Json:
    """Replace one of the skill's files with the request body."""
    content = await request.body()
    return await in_thread(lambda: _put_file(habitus, name, path, content, if_match, reason))


def _put_file(habitus: Opened, name: str, path: str, content: bytes, if_match: str | None, reason: str) -> Json:
    """Write the file at the expected version; raise `Refused` for a file that tools run unasked, unless
    the owner asks.
    """
    if habitus.settings.is_guest and runs_unasked(path):
        hint = "Tools run it unasked, so only the owner of this home changes it."
        raise Refused(f"'{path}' is not for you to change.", hint=hint)
    author, version = habitus.person(reason), expected_version(if_match, habitus.skills.find(name).layer)
    made = habitus.skills.edit_file(name, path, content, author, expected_version=version)
    return {"name": name, "version": made.version}


@router.post("/uploads", access=Access.ADMIN, max_bytes=LARGE, response_model=uploading.Looked | Taken | Job)
def upload(habitus: Opened, file: UploadFile, save: bool = False, overwrite: bool = False, key: OnceKey = "") -> Json:
    """Preview the skills in a .md, .zip or .tar.gz with the findings of a scan; with `save`, import them, a large file
    as a job.
    """
    sent = read_upload(file)

    def make(attempt: Attempt) -> Json:
        taken = uploading.take(habitus, sent, overwrite=overwrite, id=attempt.id)
        answer: Json = as_json(json_shapes.result(taken))
        return answer

    if save:
        return once(habitus, key, ["uploads", as_json(sent.name), file_of(sent.content).sha256, overwrite], make)
    answer: Json = as_json(uploading.look(habitus.skills, habitus.screening, sent))
    return answer
