"""Skills as MCP resources: plain ones for every client, and the skills extension with manifests and digests."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import mimetypes
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as types
import yaml

from habitus.app.library.publishing import Published, Publisher
from habitus.errors import Invalid, NotFound
from habitus.mcp.offered_tools import within
from habitus.skills.formats import frontmatter
from habitus.skills.model import Summary, Unreadable

MAIN = "SKILL.md"
# Limits of one skill, set by the extension.
MOST_FILES, MOST_BYTES = 512, 16 * 1024 * 1024
# Limit set by the protocol.
MOST_COMPLETIONS = 100
# Page sizes: names are cheap, while a manifest reads every file of its skill.
PAGE, MANIFESTS = 200, 50

_SCHEME = "skill://"
_FRESH = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}


class SkillResources:
    """Serves the skills that this user may see."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def resources(self, cursor: str | None) -> types.ListResourcesResult:
        """Return a page of skills as resources."""
        page, more = _page(await asyncio.to_thread(self._publisher.summaries), cursor, PAGE)
        return types.ListResourcesResult(resources=[_resource(skill) for skill in page], next_cursor=more)

    async def read(self, uri: str) -> types.ReadResourceResult:
        """Return a file of a skill; raise `NotFound` if it doesn't exist."""
        name, path = _parse_uri(uri)
        published = await self._skill(name, uri)
        content = published.files.get(path)
        if content is None:
            raise NotFound(f"The skill '{name}' has no file '{path}'.", hint="skills/get lists its files.")
        return types.ReadResourceResult(contents=[_contents(uri, path, content)])

    async def entries(self, cursor: str | None) -> dict[str, Any]:
        """Return a page of manifests."""

        def manifests() -> dict[str, Any]:
            page, more = _page(self._publisher.summaries(), cursor, MANIFESTS)
            found = [entry for skill in page if (entry := self._entry_if_any(skill.name)) is not None]
            return {"skills": found, **({"nextCursor": more} if more else {}), **_FRESH}

        return await asyncio.to_thread(manifests)

    async def entry(self, uri: str) -> dict[str, Any]:
        """Return the manifest of one skill."""
        name, path = _parse_uri(uri)
        if path != MAIN:
            raise Invalid(f"'{uri}' is not the {MAIN} of a skill.", hint=f"Ask for {_SCHEME}NAME/{MAIN}.")
        return {"skill": manifest(await self._skill(name, uri)), **_FRESH}

    async def directory(self, uri: str) -> dict[str, Any]:
        """Return the files and folders in a directory of a skill."""
        name, path = _parse_uri(uri)
        published = await self._skill(name, uri)
        inside = [file.removeprefix(f"{path}/") for file in published.files if not path or file.startswith(f"{path}/")]
        if not inside:
            raise Invalid(f"'{uri}' is not a directory of a skill.", hint="")
        found = {part.partition("/")[0]: "/" in part for part in inside}
        root = f"{_SCHEME}{name}" + (f"/{quote(path)}" if path else "")
        listed = [
            {
                "uri": f"{root}/{quote(child)}",
                "name": child,
                "mimeType": "inode/directory" if is_folder else _mime(child),
            }
            for child, is_folder in sorted(found.items())
        ]
        return {"resources": listed, **_FRESH}

    async def complete(self, blank: str, begun: str, skill: str) -> types.CompleteResult:
        """Return skill names, or file paths of one skill, that start with the prefix, then those that contain it."""

        def look() -> list[str]:
            if blank == "name":
                return [one.name for one in self._publisher.summaries()]
            try:
                return list(self._publisher.skill(skill).files) if blank == "path" else []
            except NotFound:
                return []

        fitting = [one for one in await asyncio.to_thread(look) if begun.casefold() in one.casefold()]
        fitting.sort(key=lambda one: not one.casefold().startswith(begun.casefold()))
        shown = fitting[:MOST_COMPLETIONS]
        return types.CompleteResult(
            completion=types.Completion(values=shown, total=len(fitting), has_more=len(shown) < len(fitting))
        )

    async def _skill(self, name: str, uri: str) -> Published:
        try:
            return await asyncio.to_thread(self._publisher.skill, name)
        except NotFound as error:
            raise NotFound(f"Nothing is served at {uri}.", hint=error.hint) from None

    def _entry_if_any(self, name: str) -> dict[str, Any] | None:
        """Return a skill's manifest, or None if the skill is gone or a client would have to reject it."""
        try:
            return manifest(self._publisher.skill(name))
        # One invalid entry would make a strict client reject the whole list.
        except (NotFound, Invalid):
            return None


def manifest(skill: Published) -> dict[str, Any]:
    """Return a skill's entry: its front matter as written, and each file with digest and size."""
    name, files = skill.summary.name, skill.files
    if len(files) > MOST_FILES or sum(map(len, files.values())) > MOST_BYTES:
        raise Invalid(f"The skill '{name}' is too large to be served whole.", hint="Read its files one by one.")
    return {
        "uri": _uri(name, MAIN),
        "frontmatter": _front_matter(name, files.get(MAIN, b"")),
        "resources": [
            {"uri": _uri(name, path), "digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}
            for path, content in files.items()
        ],
    }


class _Loader(yaml.CSafeLoader):
    """A YAML loader that keeps dates as written, since JSON has no dates."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def _front_matter(name: str, content: bytes) -> dict[str, Any]:
    try:
        written = frontmatter.split(content.decode("utf-8-sig"), MAIN).front
        fields = yaml.load(written or "", Loader=_Loader)
    except (UnicodeDecodeError, Unreadable, yaml.YAMLError):
        fields = None
    if not isinstance(fields, dict) or not _is_standard(name, fields):
        raise Invalid(f"The head of '{name}' does not follow the Agent Skills standard.", hint="See 'skills lint'.")
    return fields


def _is_standard(name: str, fields: Mapping[Any, Any]) -> bool:
    """Return whether a client that validates the front matter would accept it."""
    description, compatibility = fields.get("description"), fields.get("compatibility", "any")
    metadata = fields.get("metadata", {})
    return (
        fields.get("name") == name
        and isinstance(description, str)
        and description.strip() != ""
        and len(description) <= 1024
        and isinstance(compatibility, str)
        and 0 < len(compatibility) <= 500
        and all(isinstance(fields.get(key, ""), str) for key in ("license", "allowed-tools"))
        and isinstance(metadata, dict)
        and all(isinstance(text, str) for item in metadata.items() for text in item)
        and _is_json(fields)
    )


def _is_json(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(below) for key, below in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    # NaN and infinity minus themselves are not 0, and JSON has neither.
    return value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and value - value == 0)


def _resource(skill: Summary) -> types.Resource:
    return types.Resource(
        uri=_uri(skill.name, MAIN),
        name=skill.name,
        title=skill.title or None,
        description=within(skill.cue),
        mime_type="text/markdown",
    )


def _contents(uri: str, path: str, content: bytes) -> types.TextResourceContents | types.BlobResourceContents:
    try:
        return types.TextResourceContents(uri=uri, mime_type=_mime(path), text=content.decode())
    except UnicodeDecodeError:
        blob = base64.b64encode(content).decode()
        return types.BlobResourceContents(uri=uri, mime_type=_mime(path), blob=blob)


def _mime(path: str) -> str:
    if path.endswith(".md"):
        return "text/markdown"
    return mimetypes.guess_type(path)[0] or "application/octet-stream"


def _uri(name: str, path: str) -> str:
    return f"{_SCHEME}{name}/{quote(path)}"


def _parse_uri(uri: str) -> tuple[str, str]:
    """Return the skill's name and the path in it; the path of its root is empty."""
    if not uri.startswith(_SCHEME):
        raise Invalid(f"'{uri[:200]}' is no address of a skill.", hint=f"Write {_SCHEME}NAME/{MAIN}.")
    name, _, path = uri.removeprefix(_SCHEME).partition("/")
    return unquote(name), unquote(path)


def _page(items: Sequence[Summary], cursor: str | None, size: int) -> tuple[Sequence[Summary], str | None]:
    """Return the items after the name in the cursor, and the next cursor."""
    # A name, unlike an offset, stays right when skills are added or removed between two pages.
    rest = [item for item in items if cursor is None or item.name > cursor]
    page = rest[:size]
    return page, page[-1].name if len(rest) > size else None
