"""Parts of every request: Habitus behind the application, pages of a list, and versions."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Query, UploadFile
from pydantic import BaseModel, ConfigDict, StringConstraints

from habitus.app import Habitus
from habitus.app.conversations.talking import Talks
from habitus.app.library.uploading import Upload
from habitus.errors import Invalid, Stale
from habitus.plain import plain
from habitus.text import encodable_value
from habitus.web.desks import habitus_of, talks_of
from habitus.web.problems import PreconditionRequired

Json = dict[str, Any]
T = TypeVar("T")


Opened = Annotated[Habitus, Depends(habitus_of)]
Talking = Annotated[Talks, Depends(talks_of)]
Limit = Annotated[int, Query(ge=1, le=500, description="How many at most.")]
After = Annotated[str, Query(description="What 'next' of the page before said.")]
IfMatch = Annotated[str | None, Header(description="The ETag that the change starts from.")]
OnceKey = Annotated[str, Header(alias="Idempotency-Key", max_length=200, description="Sent twice, it is done once.")]
Words = Annotated[str, StringConstraints(max_length=100_000)]
Line = Annotated[str, StringConstraints(max_length=2_000)]


class Body(BaseModel):
    """What a program sends; a field that nobody knows is a mistake worth saying."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Reason(Body):
    reason: Line = ""


def uploaded(file: UploadFile) -> Upload:
    """A file as it was sent; read in a thread."""
    return Upload(name=file.filename or "", content=file.file.read())


def told(data: object) -> Any:
    """As JSON can say it."""
    return encodable_value(plain(data))


def paged(name: str, found: Sequence[T], key: Callable[[T], str], limit: int, after: str) -> tuple[Json, Sequence[T]]:
    """A page of a list: what comes behind `after`, and what to ask for next; the caller says what the entries are."""
    keys = [key(item) for item in found]
    start = keys.index(after) + 1 if after in keys else 0
    if after and not start:
        raise Invalid(f"No page of {name} begins after '{after}'.", mend="Begin anew, without 'after'.")
    page = found[start : start + limit]
    has_more = start + limit < len(found)
    return {"next": keys[start + limit - 1] if has_more else None, "total": len(found)}, page


def etag(version: int, layer: str = "") -> str:
    """The layer as a number: its name may be that of a folder, in any letters."""
    return f'"{version}-{zlib.crc32(layer.encode("utf-8", "replace")):08x}"' if layer else f'"{version}"'


def expected(if_match: str | None, layer: str = "") -> int:
    """The version that a change starts from, which must be one of the layer that would change."""
    if if_match is None:
        raise PreconditionRequired("Say which version this changes.", mend="Send the ETag you read as 'If-Match'.")
    found = re.fullmatch(r'"([0-9]{1,9})(?:-[0-9a-f]{8})?"', if_match)
    if found is None:
        raise Invalid(f"'{if_match}' is no ETag of ours.", mend="Send it as it came, quotes included.")
    if if_match != etag(version := int(found[1]), layer):
        raise Stale("Another layer has it now.", mend="Read it again, and change that.")
    return version
