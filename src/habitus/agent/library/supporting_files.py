"""The supporting files of skills: listed, read, and placed where the conversation's code finds them."""

from __future__ import annotations

import logging
import mimetypes
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from habitus.agent.library.view import LibraryView
from habitus.errors import NotFound, Refused, did_you_mean
from habitus.files import TreeFile, read_tree_file
from habitus.sandbox.files import SKILLS, GivenFolder, TreePlacementResult
from habitus.skills.layers.copies import SkillFiles
from habitus.skills.layers.listing import LibrarySnapshot
from habitus.skills.model import Skill
from habitus.text import clean_to_one_line

log = logging.getLogger(__name__)

# Bounds of the file list below a skill's text.
_MOST_LINES, _MOST_CHARACTERS = 40, 5_000
_LONGEST_LINE, _LONGEST_PATH, _MOST_PATHS = 60, 80, 100
_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SupportingFile:
    """One file with its content: `text` is None for binary data, `sandbox_path` empty if code can't read it."""

    path: str
    data: bytes
    text: str | None
    sandbox_path: str

    @property
    def image_type(self) -> str:
        """The image type according to the content, or empty."""
        if self.data[:4] == b"RIFF" and self.data[8:12] == b"WEBP":
            return "image/webp"
        return next((kind for mark, kind in _PICTURES.items() if self.data.startswith(mark)), "")

    @property
    def media_type(self) -> str:
        """The media type by content or name."""
        return self.image_type or mimetypes.guess_type(self.path)[0] or "of an unknown kind"


class SupportingFileReaderAndPlacer:
    """The supporting files of skills in a conversation. Every method queries the database: call it in a thread."""

    def __init__(
        self,
        view: LibraryView,
        given: GivenFolder | None = None,
        describe_command_line: Callable[[Skill], str] = lambda skill: "",
    ) -> None:
        """Without `given`, files can be read but not used by code. `describe_command_line` says how to call
        a skill's.
        """
        self._view = view
        self._given = given
        self._how_to_call = describe_command_line
        self._seen: LibrarySnapshot | None = None

    def place_and_describe_files(self, skill: Skill) -> str:
        """Place a skill's files where code finds them; return lines that describe them, or ""."""
        files = self._view.read_skill_files(skill.name)
        if files is None or not files.supporting_files:
            return ""
        placed = self._place_skill_files_for_code(skill.name, files)
        shown = _take_lines_that_fit(
            describe_supporting_files(files.supporting_files[:_MOST_LINES], files, placed), _MOST_CHARACTERS
        )
        lines = [
            self._how_to_call(skill),
            _describe_files_location(skill.name, placed),
            *shown,
            _describe_unlisted_files(skill.name, len(files.supporting_files) - len(shown)),
            _describe_untrusted_files(skill.name) if files.untrusted.intersection(files.supporting_files) else "",
        ]
        return "\n".join(line for line in lines if line)

    def list_first_file_paths(self, name: str) -> list[str]:
        """Return the paths of the first hundred files; `find_file_or_list_folder` on a folder lists all."""
        files = self._view.read_skill_files(name)
        return list(files.supporting_files[:_MOST_PATHS]) if files else []

    def refresh_placed_files(self) -> None:
        """Bring placed files up to date with the library, removing those of deleted or untrusted skills."""
        if self._given is None or self._seen is self._view.snapshot:
            return
        self._seen = self._view.snapshot
        for name in self._given.list_placed_skill_names():
            files = self._view.read_skill_files(name)
            if files is not None and files.supporting_files:
                self._place_skill_files_for_code(name, files)
            # Otherwise the database is down and the files must stay.
            elif files is not None or not self._view.is_skill_enabled_and_valid(name):
                self._given.remove_skill_files(name)

    def find_file_or_list_folder(self, name: str, path: str) -> SupportingFile | tuple[str, ...]:
        """Return a file of a skill, or the listing of one of its folders; '.' lists all."""
        files = self._view.read_skill_files(name)
        if files is None:
            raise NotFound(f"'{name}' has no files that can be read now.", hint="")
        placed = self._place_skill_files_for_code(name, files) if files.supporting_files else None
        wanted = posixpath.normpath(path.removeprefix(f"{placed.path}/") if placed else path)
        if wanted in files.tree:
            in_pad = f"{placed.path}/{wanted}" if placed and _explain_unplaced_file(wanted, files, placed) == "" else ""
            return _load_supporting_file(wanted, files, in_pad)
        below = [one for one in files.supporting_files if wanted == "." or one.startswith(f"{wanted}/")]
        if not below:
            hint = did_you_mean(wanted, files.tree) or "Its folder is '.'."
            raise NotFound(f"'{name}' has no file '{clean_to_one_line(path)[:_LONGEST_PATH]}'.", hint=hint)
        return tuple(describe_supporting_files(below, files, placed))

    def _place_skill_files_for_code(self, name: str, files: SkillFiles) -> TreePlacementResult | None:
        if self._given is None:
            return None
        try:
            return self._given.replace_skill_files(name, files.trusted_tree, folders=files.folders)
        except OSError as error:
            log.warning("The files of %s could not be put where code finds them: %s", name, error)
            return TreePlacementResult(
                path=self._given.get_visible_path(SKILLS, name), left_out=dict.fromkeys(files.tree, "no room for it")
            )


def describe_supporting_files(
    paths: Sequence[str], files: SkillFiles, placed: TreePlacementResult | None
) -> Iterator[str]:
    """Yield one line for each file: path, size, first line, and why code does not have it."""
    for path in paths:
        reason = _explain_unplaced_file(path, files, placed) if placed else ""
        facts = f"{files.tree[path].size:,} bytes" + (f"; not in the scratchpad: {reason}" if reason else "")
        first = _read_first_nonblank_line(files.tree[path])
        yield f"- {clean_to_one_line(path)} ({facts})" + (f": {first}" if first else "")


def _take_lines_that_fit(lines: Iterable[str], room: int) -> list[str]:
    kept = []
    for line in lines:
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    return kept


def _explain_unplaced_file(path: str, files: SkillFiles, placed: TreePlacementResult) -> str:
    return "its code is not trusted" if path in files.untrusted else placed.left_out.get(path, "")


def _describe_files_location(name: str, placed: TreePlacementResult | None) -> str:
    found = f" Code finds them in {placed.path}, read-only; paths in the text begin there." if placed else ""
    return f"Other files of this skill.{found} read_skill(name={name!r}, path=…) shows one."


def _describe_unlisted_files(name: str, count: int) -> str:
    return f"(and {count:,} more; read_skill(name={name!r}, path='.') lists all)" if count > 0 else ""


def _describe_untrusted_files(name: str) -> str:
    return (
        "The code of this skill comes from outside and no person trusts it as it is, so it can be read and not run. "
        f"Only a person can change that; tell them: 'habitus review trust {name}'."
    )


def _read_first_nonblank_line(file: TreeFile) -> str:
    """Return the first line of a text file that is not blank."""
    start = (file.content or b"")[:2000]
    if b"\0" in start:
        return ""
    try:
        text = start.decode("utf-8-sig") if len(start) < 2000 else start.decode("utf-8-sig", "ignore")
    except UnicodeDecodeError:
        return ""
    line = next((line for line in text.splitlines() if line.strip()), "")
    return clean_to_one_line(line)[:_LONGEST_LINE]


def _load_supporting_file(path: str, files: SkillFiles, in_pad: str) -> SupportingFile:
    try:
        data = read_tree_file(path, files.tree[path], files.folders.get(path))
    except OSError as error:
        size = files.tree[path].size
        raise Refused(f"'{path}' ({size:,} bytes) can't be read: {error.strerror or error}.") from None
    try:
        text = None if b"\0" in data else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = None
    return SupportingFile(path=path, data=data, text=text, sandbox_path=in_pad)
