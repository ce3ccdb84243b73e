"""Shared parts of REST requests and responses: dependencies, headers, and response models.

The models are built from the dataclasses that `app` returns, so nothing is described twice.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Annotated, Any, get_type_hints

from fastapi import Depends, Header, UploadFile
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, StringConstraints, create_model

from habitus.app import Habitus
from habitus.app.conversations.chats import UserChatSessions
from habitus.app.library.uploading import UploadedFile
from habitus.app.review.inbox import ReviewInboxItem
from habitus.app.use_cases.declaration import parse_expected_version
from habitus.memory.model import Engram, LessonKind, LessonScope
from habitus.plain_data import convert_to_plain_json
from habitus.skills.layers.listing import ListedSkill, SkillDetails, SkillListItem
from habitus.skills.model import Author, SkillSummary
from habitus.tasks.model import Task
from habitus.text import replace_surrogates, replace_surrogates_in_value
from habitus.use_counts import UsageCounts
from habitus.web.home_pool import get_request_conversations, get_request_home_async
from habitus.web.problems import PreconditionRequired

JsonObject = dict[str, Any]
RequestHome = Annotated[Habitus, Depends(get_request_home_async)]
RequestConversations = Annotated[UserChatSessions, Depends(get_request_conversations)]
IfMatchHeader = Annotated[str | None, Header(alias="If-Match", description="The ETag that the change starts from.")]
IdempotencyKeyHeader = Annotated[
    str,
    Header(
        alias="Idempotency-Key", max_length=200, description="A request repeated with the same key is performed once."
    ),
]
ShortText = Annotated[str, StringConstraints(max_length=2_000)]


def read_upload(file: UploadFile) -> UploadedFile:
    """Return an uploaded file with its content; call it in a thread."""
    return UploadedFile(name=file.filename or "", content=file.file.read())


def to_json_value(data: object) -> Any:
    """Return data as JSON values, without characters that UTF-8 can't encode."""
    return replace_surrogates_in_value(convert_to_plain_json(data))


class SurrogateSafeJsonResponse(JSONResponse):
    """A JSON response that replaces lone surrogates, which JSON can escape but UTF-8 can't encode."""

    def render(self, content: Any) -> bytes:
        # Replacing in the finished text is one pass, instead of a walk through every value.
        return replace_surrogates(
            json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        ).encode()


class UnvalidatedResponseRoute(APIRoute):
    """A route that sends its result unvalidated, exactly as the command line prints it; the model only documents it."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **given: Any) -> None:
        super().__init__(
            path, _wrap_endpoint_to_send_dict_unvalidated(endpoint, given.get("status_code") or 200), **given
        )


def _wrap_endpoint_to_send_dict_unvalidated(endpoint: Callable[..., Any], status: int) -> Callable[..., Any]:
    """Wrap an endpoint to send a dict as JSON without validation."""

    def send(made: Any) -> Any:
        return SurrogateSafeJsonResponse(made, status_code=status) if isinstance(made, dict) else made

    @functools.wraps(endpoint)
    def answer(*args: Any, **given: Any) -> Any:
        return send(endpoint(*args, **given))

    @functools.wraps(endpoint)
    async def answer_later(*args: Any, **given: Any) -> Any:
        return send(await endpoint(*args, **given))

    sending: Callable[..., Any] = answer_later if inspect.iscoroutinefunction(endpoint) else answer
    # FastAPI reads the parameters from the signature, which the wrapper hides.
    sending.__signature__ = inspect.signature(endpoint, eval_str=True)  # type: ignore[attr-defined]  # as above
    return sending


def parse_required_if_match_version(if_match: str | None, layer: str = "") -> int:
    """Return the version from the If-Match header, which must belong to the layer that would change."""
    version = parse_expected_version(if_match, layer)
    if version is None:
        raise PreconditionRequired(
            "The version to change is missing.", hint="Send the ETag you received as 'If-Match'."
        )
    return version


def make_response_model(
    title: str,
    /,
    *parts: type,
    base: type[BaseModel] = BaseModel,
    optional: type | None = None,
    without: Collection[str] = (),
    **more: Any,
) -> Any:
    """Return a model with the fields of these dataclasses and more; `optional` names a dataclass whose fields may be
    missing.
    """
    fields: dict[str, Any] = (
        {} if optional is None else {key: (kind | None, None) for key, kind in get_type_hints(optional).items()}
    )
    for part in parts:
        fields |= {key: (kind, ...) for key, kind in get_type_hints(part).items()}
    kept = {key: kind for key, kind in fields.items() if key not in without}
    added: dict[str, Any] = {key: kind if isinstance(kind, tuple) else (kind, ...) for key, kind in more.items()}
    return create_model(title, __base__=base, **(kept | added))


# The shapes of `json_of`.
_SkillEntryModel = make_response_model(
    "SkillListItem",
    ListedSkill,
    optional=SkillSummary,
    without=("summary", "tree_hash", "fills_placeholders", "pinned_version", "stated"),
    counters=UsageCounts,
    manifest=(dict[str, Any], None),
)
_TEXT_FIELDS: dict[str, Any] = dict.fromkeys(("files", "source_counts", "missing_packages", "evidence"), list[str])
_SkillDetailsModel = make_response_model("SkillDetails", base=_SkillEntryModel, body=(str, None), **_TEXT_FIELDS)
LessonModel = make_response_model("Lesson", Engram, without=("counters",), utility=float)
PendingItemModel = make_response_model(
    "PendingItem",
    state=str,
    action=str,
    reasons=list[str],
    id=int | str,
    name=str,
    by=Author | str,
    made_on=datetime | None,
    layer=(str, None),
    host=(str, None),
    conversation=(str, None),
    decided_on=(datetime | None, None),
    decided_by=(str, None),
    decision=(str, None),
    files=(list[str], None),
    trial=(list[dict[str, str]], None),
    text=(str, None),
    kind=(LessonKind, None),
    scope=(LessonScope, None),
)
TaskModel = make_response_model(
    "Task",
    id=str,
    request=(str | None, None),
    payload=(Any, None),
    files=(dict[str, str] | None, None),
    setup=(str | None, None),
    check=list[dict[str, Any]],
    origin=dict[str, str],
    reviewed_by=(str | None, None),
    domain=(str | None, None),
    reference=(dict[str, Any] | None, None),
    wrong=(dict[str, Any] | None, None),
)
# The schema of each type that has an `as_json` of its own.
RESPONSE_MODELS: dict[Any, Any] = {
    Engram: LessonModel,
    ReviewInboxItem: PendingItemModel,
    SkillListItem: _SkillEntryModel,
    SkillDetails: _SkillDetailsModel,
    Task: TaskModel,
}
