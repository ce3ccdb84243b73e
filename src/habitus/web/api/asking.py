"""Parts of every request: Habitus behind the application, pages of a list, and versions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Header, Query, UploadFile
from pydantic import BaseModel, ConfigDict, StringConstraints

from habitus.app import Habitus
from habitus.app.conversations.talking import Talks
from habitus.app.declaring import version_in
from habitus.app.library.uploading import Upload
from habitus.plain_data import plain
from habitus.text import encodable_value
from habitus.web.desks import habitus_of, talks_of
from habitus.web.problems import PreconditionRequired

Json = dict[str, Any]


Opened = Annotated[Habitus, Depends(habitus_of)]
Talking = Annotated[Talks, Depends(talks_of)]
Limit = Annotated[int, Query(ge=1, le=500, description="How many at most.")]
After = Annotated[str, Query(description="What 'next' of the page before said.")]
IfMatch = Annotated[str | None, Header(alias="If-Match", description="The ETag that the change starts from.")]
OnceKey = Annotated[str, Header(alias="Idempotency-Key", max_length=200, description="Sent twice, it is done once.")]
Words = Annotated[str, StringConstraints(max_length=100_000)]
Line = Annotated[str, StringConstraints(max_length=2_000)]


class Body(BaseModel):
    """What a program sends; a field that nobody knows is a mistake worth saying."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def read_upload(file: UploadFile) -> Upload:
    """A file as it was sent; read in a thread."""
    return Upload(name=file.filename or "", content=file.file.read())


def as_json(data: object) -> Any:
    """As JSON can say it."""
    return encodable_value(plain(data))


def expected_version(if_match: str | None, layer: str = "") -> int:
    """The version that a change starts from, which must be one of the layer that would change."""
    version = version_in(if_match, layer)
    if version is None:
        raise PreconditionRequired("Say which version this changes.", mend="Send the ETag you read as 'If-Match'.")
    return version
