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

from habitus.app.library.publishing import LoadableSkillReader, RedactedSkillFiles
from habitus.errors import Invalid, NotFound
from habitus.mcp.offered_tools import truncate_text_to_client_limit
from habitus.skills.formats import frontmatter
from habitus.skills.model import MalformedFileError, SkillSummary

MAIN_FILE = "SKILL.md"
# Limits of one skill, set by the extension.
MAX_FILES, MAX_BYTES = 512, 16 * 1024 * 1024
# Limit set by the protocol.
MAX_COMPLETIONS = 100
# Page sizes: names are cheap, while a manifest reads every file of its skill.
PAGE_SIZE, MANIFEST_PAGE_SIZE = 200, 50

_SCHEME = "skill://"
_UNCACHED_RESULT = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}


class McpSkillResources:
    """Serves the skills that this user may see."""

    def __init__(self, publisher: LoadableSkillReader) -> None:
        self._publisher = publisher

    async def list_resources(self, cursor: str | None) -> types.ListResourcesResult:
        """Return a page of skills as resources."""
        page, more = _paginate_by_name(await asyncio.to_thread(self._publisher.list_summaries), cursor, PAGE_SIZE)
        return types.ListResourcesResult(resources=[_make_resource(skill) for skill in page], next_cursor=more)

    async def read_resource(self, uri: str) -> types.ReadResourceResult:
        """Return a file of a skill; raise `NotFound` if it doesn't exist."""
        name, path = _parse_uri(uri)
        published = await self._get_redacted_skill_files(name, uri)
        content = published.files.get(path)
        if content is None:
            raise NotFound(f"The skill '{name}' has no file '{path}'.", hint="skills/get lists its files.")
        return types.ReadResourceResult(contents=[_make_resource_contents(uri, path, content)])

    async def compute_skill_file_digest(self, uri: str) -> str:
        """Return a digest of a file of a skill; empty if it doesn't exist."""
        try:
            name, path = _parse_uri(uri)
            content = (await self._get_redacted_skill_files(name, uri)).files.get(path)
        except (NotFound, Invalid):
            return ""
        return "" if content is None else hashlib.sha256(content).hexdigest()

    async def list_manifests(self, cursor: str | None) -> dict[str, Any]:
        """Return a page of manifests."""

        def manifests() -> dict[str, Any]:
            page, more = _paginate_by_name(self._publisher.list_summaries(), cursor, MANIFEST_PAGE_SIZE)
            found = [entry for skill in page if (entry := self._get_manifest_or_none(skill.name)) is not None]
            return {"skills": found, **({"nextCursor": more} if more else {}), **_UNCACHED_RESULT}

        return await asyncio.to_thread(manifests)

    async def get_manifest(self, uri: str) -> dict[str, Any]:
        """Return the manifest of one skill."""
        name, path = _parse_uri(uri)
        if path != MAIN_FILE:
            raise Invalid(f"'{uri}' is not the {MAIN_FILE} of a skill.", hint=f"Ask for {_SCHEME}NAME/{MAIN_FILE}.")
        return {"skill": build_skill_manifest(await self._get_redacted_skill_files(name, uri)), **_UNCACHED_RESULT}

    async def list_directory(self, uri: str) -> dict[str, Any]:
        """Return the files and folders in a directory of a skill."""
        name, path = _parse_uri(uri)
        published = await self._get_redacted_skill_files(name, uri)
        inside = [file.removeprefix(f"{path}/") for file in published.files if not path or file.startswith(f"{path}/")]
        if not inside:
            raise Invalid(f"'{uri}' is not a directory of a skill.", hint="")
        found = {part.partition("/")[0]: "/" in part for part in inside}
        root = f"{_SCHEME}{quote(name)}" + (f"/{quote(path)}" if path else "")
        listed = [
            {
                "uri": f"{root}/{quote(child)}",
                "name": child,
                "mimeType": "inode/directory" if is_folder else _guess_mime_type(child),
            }
            for child, is_folder in sorted(found.items())
        ]
        return {"resources": listed, **_UNCACHED_RESULT}

    async def complete_argument(self, argument: str, prefix: str, skill: str) -> types.CompleteResult:
        """Return skill names, or file paths of one skill, that start with the prefix, then those that contain it."""

        def look() -> list[str]:
            if argument == "name":
                return [one.name for one in self._publisher.list_summaries()]
            try:
                return list(self._publisher.get_skill(skill).files) if argument == "path" else []
            except NotFound:
                return []

        fitting = [one for one in await asyncio.to_thread(look) if prefix.casefold() in one.casefold()]
        fitting.sort(key=lambda one: not one.casefold().startswith(prefix.casefold()))
        shown = fitting[:MAX_COMPLETIONS]
        return types.CompleteResult(
            completion=types.Completion(values=shown, total=len(fitting), has_more=len(shown) < len(fitting))
        )

    async def _get_redacted_skill_files(self, name: str, uri: str) -> RedactedSkillFiles:
        try:
            return await asyncio.to_thread(self._publisher.get_skill, name)
        except NotFound as error:
            raise NotFound(f"Nothing found at {uri}.", hint=error.hint) from None

    def _get_manifest_or_none(self, name: str) -> dict[str, Any] | None:
        """Return a skill's manifest, or None if the skill is gone or a client would have to reject it."""
        try:
            return build_skill_manifest(self._publisher.get_skill(name))
        # One invalid entry would make a strict client reject the whole list.
        except (NotFound, Invalid):
            return None


def build_skill_manifest(skill: RedactedSkillFiles) -> dict[str, Any]:
    """Return a skill's entry: its front matter as written, and each file with digest and size."""
    name, files = skill.summary.name, skill.files
    if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_BYTES:
        raise Invalid(f"The skill '{name}' is too large to serve as a whole.", hint="Read its files one by one.")
    return {
        "uri": _build_skill_uri(name, MAIN_FILE),
        "frontmatter": _parse_front_matter(name, files.get(MAIN_FILE, b"")),
        "resources": [
            {
                "uri": _build_skill_uri(name, path),
                "digest": f"sha256:{hashlib.sha256(content).hexdigest()}",
                "size": len(content),
            }
            for path, content in files.items()
        ],
    }


class _FrontMatterYamlLoader(yaml.CSafeLoader):
    """A YAML loader that keeps dates as written, since JSON has no dates."""


_FrontMatterYamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def _parse_front_matter(name: str, content: bytes) -> dict[str, Any]:
    try:
        written = frontmatter.split_front_matter(content.decode("utf-8-sig"), MAIN_FILE).front
        fields = yaml.load(written or "", Loader=_FrontMatterYamlLoader)
    except (UnicodeDecodeError, MalformedFileError, yaml.YAMLError):
        fields = None
    if not isinstance(fields, dict) or not _has_standard_front_matter(name, fields):
        raise Invalid(
            f"The front matter of '{name}' does not follow the Agent Skills standard.", hint="See 'skills lint'."
        )
    return fields


def _has_standard_front_matter(name: str, fields: Mapping[Any, Any]) -> bool:
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
        and _is_json_value(fields)
    )


def _is_json_value(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json_value(below) for key, below in value.items())
    if isinstance(value, list):
        return all(map(_is_json_value, value))
    # NaN and infinity minus themselves are not 0, and JSON has neither.
    return value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and value - value == 0)


def _make_resource(skill: SkillSummary) -> types.Resource:
    return types.Resource(
        uri=_build_skill_uri(skill.name, MAIN_FILE),
        name=skill.name,
        title=skill.title or None,
        description=truncate_text_to_client_limit(skill.when_to_use_line),
        mime_type="text/markdown",
    )


def _make_resource_contents(
    uri: str, path: str, content: bytes
) -> types.TextResourceContents | types.BlobResourceContents:
    try:
        return types.TextResourceContents(uri=uri, mime_type=_guess_mime_type(path), text=content.decode())
    except UnicodeDecodeError:
        blob = base64.b64encode(content).decode()
        return types.BlobResourceContents(uri=uri, mime_type=_guess_mime_type(path), blob=blob)


def _guess_mime_type(path: str) -> str:
    if path.endswith(".md"):
        return "text/markdown"
    return mimetypes.guess_type(path)[0] or "application/octet-stream"


def _build_skill_uri(name: str, path: str) -> str:
    return f"{_SCHEME}{quote(name)}/{quote(path)}"


def _parse_uri(uri: str) -> tuple[str, str]:
    """Return the skill's name and the path in it; the path of its root is empty."""
    if not uri.startswith(_SCHEME):
        raise Invalid(f"'{uri[:200]}' is not a skill URI.", hint=f"Write {_SCHEME}NAME/{MAIN_FILE}.")
    name, _, path = uri.removeprefix(_SCHEME).partition("/")
    return unquote(name), unquote(path)


def _paginate_by_name(
    items: Sequence[SkillSummary], cursor: str | None, size: int
) -> tuple[Sequence[SkillSummary], str | None]:
    """Return the items after the name in the cursor, and the next cursor."""
    # A name, unlike an offset, stays right when skills are added or removed between two pages.
    rest = [item for item in items if cursor is None or item.name > cursor]
    page = rest[:size]
    return page, page[-1].name if len(rest) > size else None
