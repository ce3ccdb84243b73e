"""Static files under an address that contains a hash of their content, so that browsers keep them for good."""

from __future__ import annotations

import functools
import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path, PurePosixPath

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

STATIC_DIRECTORY = Path(__file__).parent / "static"
_HASH_LENGTH = 12
_KEPT_FOR_GOOD = "public, max-age=31536000, immutable"


@dataclass(frozen=True, kw_only=True, slots=True)
class StaticFile:
    """A file as it is sent, with and without compression."""

    content: bytes
    compressed: bytes
    hash: str
    media_type: str


@functools.cache
def _load_files() -> dict[str, StaticFile]:
    return {
        path.relative_to(STATIC_DIRECTORY).as_posix(): _load_file(path)
        for path in STATIC_DIRECTORY.rglob("*")
        if path.suffix in (".js", ".css", ".svg")
    }


def _load_file(path: Path) -> StaticFile:
    content = path.read_bytes()
    return StaticFile(
        content=content,
        compressed=gzip.compress(content, mtime=0),
        hash=hashlib.sha256(content).hexdigest()[:_HASH_LENGTH],
        media_type=mimetypes.guess_type(path.name)[0] or "application/octet-stream",
    )


def build_static_url(name: str) -> str:
    """Return the address of a static file, which changes with its content."""
    return f"/static/{_load_files()[name].hash}/{name}"


class StaticFileApp:
    """Serves the static files; an address without the current hash gets the current file, which is not kept."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "GET, HEAD"})
        name = scope["path"].removeprefix(scope.get("root_path", "")).lstrip("/")
        given, _, rest = name.partition("/")
        has_hash = len(given) == _HASH_LENGTH and not PurePosixPath(given).suffix
        file = _load_files().get(rest if has_hash else name)
        if file is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        headers = {
            "Cache-Control": _KEPT_FOR_GOOD if has_hash and given == file.hash else "no-cache",
            "ETag": f'W/"{file.hash}"',
            "Vary": "Accept-Encoding",
        }
        asked = Headers(scope=scope)
        if headers["ETag"] in asked.get("if-none-match", ""):
            answer = Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        elif "gzip" in asked.get("accept-encoding", ""):
            answer = Response(
                file.compressed, headers=headers | {"Content-Encoding": "gzip"}, media_type=file.media_type
            )
        else:
            answer = Response(file.content, headers=headers, media_type=file.media_type)
        await answer(scope, receive, send)
