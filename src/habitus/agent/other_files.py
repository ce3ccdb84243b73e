"""A skill's other files: listed below its text, read one by one, and put where the session's code finds them."""

from __future__ import annotations

import logging
import mimetypes
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from habitus.agent.view import View
from habitus.errors import NotFound, Refused, did_you_mean
from habitus.files import File, content_of
from habitus.sandbox.given import SKILLS, Given, Placed
from habitus.skills.copies import SkillFiles
from habitus.skills.listing import Snapshot
from habitus.skills.model import Skill
from habitus.text import one_line

log = logging.getLogger(__name__)

_MOST_LINES, _MOST_CHARACTERS = 40, 5_000  # of the list below a skill's text
_LONGEST_LINE, _LONGEST_PATH, _MOST_PATHS = 60, 80, 100
_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherFile:
    """One file with all it holds: `text` is None where it is none; what code calls it is empty where it has it not."""

    path: str
    data: bytes
    text: str | None
    in_pad: str

    @property
    def picture(self) -> str:
        """The kind of picture it is, by what it holds; empty for none."""
        if self.data[:4] == b"RIFF" and self.data[8:12] == b"WEBP":
            return "image/webp"
        return next((kind for mark, kind in _PICTURES.items() if self.data.startswith(mark)), "")

    @property
    def kind(self) -> str:
        return self.picture or mimetypes.guess_type(self.path)[0] or "of a kind nobody knows"


class OtherFiles:
    """Of the skills that a conversation has in view. Every method looks into the database: call it beside the loop."""

    def __init__(
        self, view: View, given: Given | None = None, how_to_call: Callable[[Skill], str] = lambda skill: ""
    ) -> None:
        """Without `given` they are only read: nobody runs code beside them. `how_to_call` tells of a skill's command
        line, where code may call it."""
        self._view = view
        self._given = given
        self._how_to_call = how_to_call
        self._seen: Snapshot | None = None

    def put(self, skill: Skill) -> str:
        """Put a skill's files where code finds them; the lines that tell a model of them, none where there are none."""
        files = self._view.files(skill.name)
        if files is None or not files.others:
            return ""
        placed = self._place(skill.name, files)
        shown = _first(list_files(files.others[:_MOST_LINES], files, placed), _MOST_CHARACTERS)
        lines = [
            self._how_to_call(skill),
            _where(skill.name, placed),
            *shown,
            _rest(skill.name, len(files.others) - len(shown)),
            _withheld(skill.name) if files.untrusted.intersection(files.others) else "",
        ]
        return "\n".join(line for line in lines if line)

    def paths(self, name: str) -> list[str]:
        """The first hundred of them; a folder of `find` has all."""
        files = self._view.files(name)
        return list(files.others[:_MOST_PATHS]) if files else []

    def refresh(self) -> None:
        """A turn begins: what was put follows the library, and goes with the skill or with a person's trust in it."""
        if self._given is None or self._seen is self._view.snapshot:
            return
        self._seen = self._view.snapshot
        for name in self._given.trees():
            files = self._view.files(name)
            if files is not None and files.others:
                self._place(name, files)
            elif files is not None or not self._view.is_in_use(name):  # else the database is away
                self._given.drop_tree(name)

    def find(self, name: str, path: str) -> OtherFile | tuple[str, ...]:
        """A file of a skill, or the lines of those in a folder of it; '.' is all of it."""
        files = self._view.files(name)
        if files is None:
            raise NotFound(f"'{name}' has no files that can be read now.", mend="")
        placed = self._place(name, files) if files.others else None
        wanted = posixpath.normpath(path.removeprefix(f"{placed.path}/") if placed else path)
        if wanted in files.tree:
            in_pad = f"{placed.path}/{wanted}" if placed and _why_not(wanted, files, placed) == "" else ""
            return _read(wanted, files, in_pad)
        below = [one for one in files.others if wanted == "." or one.startswith(f"{wanted}/")]
        if not below:
            mend = did_you_mean(wanted, files.tree) or "Its folder is '.'."
            raise NotFound(f"'{name}' has no file '{one_line(path)[:_LONGEST_PATH]}'.", mend=mend)
        return tuple(list_files(below, files, placed))

    def _place(self, name: str, files: SkillFiles) -> Placed | None:
        if self._given is None:
            return None
        try:
            return self._given.put_tree(name, files.trusted_tree, folders=files.folders)
        except OSError as error:
            log.warning("The files of %s could not be put where code finds them: %s", name, error)
            return Placed(path=self._given.path_of(SKILLS, name), left_out=dict.fromkeys(files.tree, "no room for it"))


def list_files(paths: Sequence[str], files: SkillFiles, placed: Placed | None) -> Iterator[str]:
    """One line a file: its path, its size, its first line, and why code does not have it."""
    for path in paths:
        reason = _why_not(path, files, placed) if placed else ""
        facts = f"{files.tree[path].size:,} bytes" + (f"; not in the scratchpad: {reason}" if reason else "")
        first = _first_line(files.tree[path])
        yield f"- {one_line(path)} ({facts})" + (f": {first}" if first else "")


def _first(lines: Iterable[str], room: int) -> list[str]:
    kept = []
    for line in lines:
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    return kept


def _why_not(path: str, files: SkillFiles, placed: Placed) -> str:
    return "nobody trusts its code" if path in files.untrusted else placed.left_out.get(path, "")


def _where(name: str, placed: Placed | None) -> str:
    found = f" Code finds them in {placed.path}, read-only; paths in the text begin there." if placed else ""
    return f"Other files of this skill.{found} read_skill(name={name!r}, path=…) shows one."


def _rest(name: str, count: int) -> str:
    return f"(and {count:,} more; read_skill(name={name!r}, path='.') lists all)" if count > 0 else ""


def _withheld(name: str) -> str:
    return (
        "The code of this skill comes from outside and no person trusts it as it is, so it can be read and not run. "
        f"Only a person can change that; tell them: 'habitus trust {name}'."
    )


def _first_line(file: File) -> str:
    """The first line of a text that says something."""
    start = (file.content or b"")[:2000]
    if b"\0" in start:
        return ""
    try:
        text = start.decode("utf-8-sig") if len(start) < 2000 else start.decode("utf-8-sig", "ignore")
    except UnicodeDecodeError:
        return ""
    line = next((line for line in text.splitlines() if line.strip()), "")
    return one_line(line)[:_LONGEST_LINE]


def _read(path: str, files: SkillFiles, in_pad: str) -> OtherFile:
    try:
        data = content_of(path, files.tree[path], files.folders.get(path))
    except OSError as error:
        size = files.tree[path].size
        raise Refused(f"'{path}' ({size:,} bytes) can't be read: {error.strerror or error}.") from None
    try:
        text = None if b"\0" in data else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = None
    return OtherFile(path=path, data=data, text=text, in_pad=in_pad)
