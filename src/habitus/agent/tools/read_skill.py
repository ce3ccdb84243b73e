"""`read_skill`: a skill as data, or one of its other files, page by page."""

from __future__ import annotations

from pydantic import Field

from habitus.agent import prompt
from habitus.agent.other_files import OtherFile, OtherFiles
from habitus.agent.tools.recall_skill import resolved
from habitus.agent.tools.registry import Arguments, Running, Tool, returned
from habitus.agent.view import View
from habitus.errors import ToolFailed
from habitus.events import Image, ToolResult
from habitus.text import block, one_line

PAGE = 16_000  # characters
_LARGEST_PICTURE = 3_500_000  # bytes; encoded it is what providers take


class ReadSkill(Arguments):
    name: str = Field(description="The skill's name, as the list of available skills has it.")
    path: str | None = Field(
        default=None,
        description="One of its other files, such as references/notes.md; a folder of it lists those in it.",
    )
    offset: int = Field(default=0, ge=0, description="With path: where in a long text to begin.")


def read_skill(view: View, files: OtherFiles) -> Tool:
    def run(given: ReadSkill, running: Running) -> ToolResult:
        waiting = view.waiting()
        name, _ = resolved(given.name, {*view.may_load(), *waiting, *view.loaded}, view)
        if given.path is not None:
            return _other_file(view, files, name, given.path, given.offset, running)
        skill = waiting.get(name) or view.load(name)
        view.note_loaded(skill)
        return returned(
            {
                "name": skill.name,
                "title": skill.title,
                "description": skill.description,
                "content": skill.body,
                "tags": list(skill.tags),
                "source": skill.source.value,
                "version": skill.version,
                "files": files.paths(name),
            }
        )

    return Tool(
        name="read_skill",
        description="Read a skill as data: title, description, text, tags, version, other files. Use it before "
        "update_skill. With path, read one of its other files instead.",
        arguments=ReadSkill,
        run=run,
        is_parallel=True,
    )


def _other_file(view: View, files: OtherFiles, name: str, path: str, offset: int, running: Running) -> ToolResult:
    found = files.find(name, path)
    origin = view.unreviewed(name)
    introduction = f"{prompt.introduced(origin)}\n\n" if origin else ""
    if isinstance(found, tuple):
        return ToolResult(content=introduction + _page("\n".join(found), f"Files of {name}", offset))
    what = f"{one_line(found.path)} of {name}"
    if found.picture and running.sees_images and len(found.data) <= _LARGEST_PICTURE:
        image = Image(data=found.data, media_type=found.picture)
        return ToolResult(content=f"{introduction}{what}, a picture:", images=(image,))
    if found.text is None:
        return ToolResult(content=f"{introduction}{_undisplayed(found, what, running)}")
    # What is a secret in it is known only while it is whole.
    text = block(running.redactor.redact(found.text).text)
    return ToolResult(content=introduction + _page(text, what, offset))


def _page(text: str, what: str, offset: int) -> str:
    end = offset + PAGE
    if offset >= max(len(text), 1):
        raise ToolFailed(f"{what} has {len(text):,} characters; there is nothing at offset={offset}.")
    if offset == 0 and end >= len(text):
        return f"{what}:\n\n{text}"
    page = f"{what}, characters {offset:,} to {min(end, len(text)):,} of {len(text):,}:\n\n{text[offset:end]}"
    return page if end >= len(text) else f"{page}\n\n[It goes on at offset={end}.]"


def _undisplayed(file: OtherFile, what: str, running: Running) -> str:
    why = "no text" if not file.picture else "too large to be seen" if running.sees_images else "which you can't see"
    where = f" In the scratchpad it is {file.in_pad}." if file.in_pad else " It is not in the scratchpad."
    return f"{what}: {len(file.data):,} bytes, {file.kind}, {why}.{where}"
