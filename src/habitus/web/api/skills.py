"""REST for skill files and uploads; `app/use_cases` declares the other routes about skills."""

from __future__ import annotations

from fastapi import Request, Response, UploadFile

from habitus.access import Access
from habitus.agent.background import run_in_thread
from habitus.app.library import uploading
from habitus.app.library.importing import ImportResult
from habitus.app.operating.idempotency import RequestAttempt, answer_request_once_per_key
from habitus.app.use_cases.skills import read_skill_file
from habitus.files import build_tree_file
from habitus.jobs.model import Job
from habitus.plain_data import convert_to_plain_json
from habitus.skills.auto_executed import is_auto_executed
from habitus.web.api import schemas
from habitus.web.api.use_case_routes import get_response_model
from habitus.web.routing import LARGE_BODY_BYTES, AccessRouter

router = AccessRouter(tags=["skills"], route_class_override=schemas.UnvalidatedResponseRoute)

ImportResultModel = get_response_model(ImportResult)


@router.get("/skills/{name}/files/{path:path}", access=Access.OPEN_READING, response_class=Response)
def download_skill_file(habitus: schemas.RequestHome, name: str, path: str) -> Response:
    """Return one of the skill's files as a download."""
    # Sent as an attachment: a skill's HTML shown by the browser could act in the page's name.
    content = read_skill_file(habitus, name, path)
    return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": "attachment"})


@router.put(
    "/skills/{name}/files/{path:path}",
    access=Access.ADMIN,
    response_model=schemas.make_response_model("WrittenFile", name=str, version=int),
)
async def replace_skill_file(
    habitus: schemas.RequestHome,
    name: str,
    path: str,
    request: Request,
    if_match: schemas.IfMatchHeader = None,
    reason: schemas.ShortText = "",
) -> schemas.JsonObject:
    """Replace one of the skill's files with the request body."""
    content = await request.body()
    return await run_in_thread(lambda: _write_skill_file(habitus, name, path, content, if_match, reason))


def _write_skill_file(
    habitus: schemas.RequestHome, name: str, path: str, content: bytes, if_match: str | None, reason: str
) -> schemas.JsonObject:
    """Write the file at the expected version; raise `Refused` for a file that tools run unasked, unless
    the owner asks.
    """
    if is_unasked := is_auto_executed(path):
        habitus.host.files.require_access(f"about '{path}', which other tools run unasked")
    author, version = (
        habitus.build_author(reason),
        schemas.parse_required_if_match_version(if_match, habitus.skills.find(name).layer),
    )
    made = habitus.skills.edit_file(
        name, path, content, author, expected_version=version, may_change_unasked=is_unasked
    )
    return {"name": name, "version": made.version}


@router.post(
    "/uploads",
    access=Access.ADMIN,
    max_bytes=LARGE_BODY_BYTES,
    response_model=uploading.ImportPreview | ImportResultModel | Job,
)
def upload_skills(
    habitus: schemas.RequestHome,
    file: UploadFile,
    save: bool = False,
    overwrite: bool = False,
    key: schemas.IdempotencyKeyHeader = "",
) -> schemas.JsonObject:
    """Preview the skills in a .md, .zip or .tar.gz with the findings of a scan; with `save`, import them, a large file
    as a job.
    """
    sent = schemas.read_upload(file)

    def make(attempt: RequestAttempt) -> schemas.JsonObject:
        taken = uploading.import_upload(habitus, sent, overwrite=overwrite, id=attempt.id)
        answer: schemas.JsonObject = schemas.to_json_value(convert_to_plain_json(taken, shaped=True))
        return answer

    if save:
        return answer_request_once_per_key(
            habitus,
            key,
            ["uploads", schemas.to_json_value(sent.name), build_tree_file(sent.content).sha256, overwrite],
            make,
        )
    answer: schemas.JsonObject = schemas.to_json_value(
        uploading.preview_upload(habitus.skills, habitus.screening, sent)
    )
    return answer
