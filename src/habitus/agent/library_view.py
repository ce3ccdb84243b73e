"""A conversation's view of the library: the current snapshot, the supporting files of skills, and code's access."""

from __future__ import annotations

import base64
import logging
import mimetypes
import posixpath
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from habitus.agent.background import in_thread
from habitus.agent.choosing import Offers, of_skill
from habitus.agent.history import History
from habitus.errors import Invalid, NotFound, Refused, did_you_mean
from habitus.files import File, content_of
from habitus.redact import Redactor
from habitus.sandbox.files import SKILLS, Given, Placed
from habitus.sandbox.model import MIB
from habitus.skills import names
from habitus.skills.choosing.menu import Menu
from habitus.skills.choosing.selection import Selection, User
from habitus.skills.layers.copies import SkillFiles
from habitus.skills.layers.listing import Snapshot
from habitus.skills.library import Library
from habitus.skills.model import Skill, State, Summary
from habitus.skills.review import Review
from habitus.sql.outage import Outage
from habitus.text import block, one_line

# Longer skills may be truncated in a tool result, so only this much is searched for in the history.
SHOWN_WHOLE = 14_000
# Directories of larger libraries are scanned outside the turn.
LOOKED_AT_ONCE = 1_000


@dataclass(kw_only=True, eq=False)
class View:
    """One snapshot of the library for a whole turn, retaken only if the turn itself changes something.

    Without a history, text shown once counts as still visible; if the reader `forgets`, none does.
    """

    library: Library
    review: Review
    outage: Outage
    redactor: Redactor
    conversation: str = ""
    history: History | None = None
    forgets: bool = False
    user: User = field(default_factory=User)
    offers: Offers = field(default_factory=Offers)
    # The latest request.
    request: str = ""
    # Also serves as the fallback while the database is down.
    selection: Selection = field(default_factory=Selection)
    menu: Menu = field(default_factory=lambda: Menu(text="", tokens=0, budget=0, shown=()))  # the prompt's, if any
    # Skills loaded in this turn.
    loaded: dict[str, Skill] = field(default_factory=dict)
    # The loaded skills that the model itself asked for.
    asked: set[str] = field(default_factory=set)
    # A counter of snapshots; caches beside the snapshot compare it to know that they are stale.
    looks: int = 0
    _snapshot: Snapshot | None = None
    _waiting: tuple[int, Mapping[str, Skill]] | None = None  # with the revision it belongs to
    _may_load: tuple[Snapshot, Selection, frozenset[str]] | None = None
    _shown: dict[str, Skill] = field(default_factory=dict)  # skills whose text was shown in this conversation

    @property
    def snapshot(self) -> Snapshot:
        """The current snapshot, taken on first use because a large library costs time and memory."""
        if self._snapshot is None:
            now = partial(self.library.snapshot, user=self.user.name)
            self._snapshot = self.outage.unless_away(now, self.library.last.for_reader(self.user.name))
        return self._snapshot

    @property
    def is_taken(self) -> bool:
        """Whether a snapshot has been taken."""
        return self._snapshot is not None

    @property
    def is_large(self) -> bool:
        """Whether the library is too large to scan its directories during a turn."""
        return len(self.snapshot.listing) > LOOKED_AT_ONCE

    def begin(self) -> None:
        """Start a turn: reset the loaded skills and take a new snapshot."""
        self.loaded, self.asked = {}, set()
        self.look(at_directories=not self.is_large)

    def look(self, *, at_directories: bool = False) -> None:
        """Take a new snapshot; manual changes are only found with `scan_directories`."""
        now = partial(self.library.snapshot, look=at_directories, user=self.user.name)
        self._snapshot = self.outage.unless_away(now, self.snapshot)
        self.looks += 1

    def refresh(self) -> None:
        """Take a new snapshot if there was one, and invalidate caches in any case."""
        if self._snapshot is None:
            self.looks += 1
        else:
            self.look()

    def look_ahead(self) -> None:
        """Scan the directories of a large library for manual changes, for the next turn."""
        self.outage.safely(self.library.snapshot, "look at the skill directories")

    def may_load(self) -> frozenset[str]:
        """Return the names the model may load in this turn: those selected, and those added since."""
        known, now, chosen = self._may_load, self.snapshot, self.selection
        if known is None or known[0] is not now or known[1] is not chosen:
            eligible, left_out = chosen.eligible(), chosen.left_out
            names = frozenset(name for name in loadable(now) if name in eligible or name not in left_out)
            self._may_load = known = (now, chosen, names)
        return known[2]

    def may_name(self, summary: Summary) -> bool:
        """Whether a skill found by search may be named to the model.

        For a reader without our prompt, naming it is the exposure, which is recorded; otherwise only withheld skills
        are hidden.
        """
        if self.forgets:
            return self.offers.takes_line(summary)
        return not self.offers.is_withheld(of_skill(summary), is_sure=summary.manifest.always_include)

    def may_recall(self) -> Set[str]:
        """Return the loadable names and those written in this conversation that are pending."""
        waiting = self.waiting()
        return {*self.may_load(), *waiting} if waiting else self.may_load()

    def why_not(self, name: str) -> str:
        """Return why a skill is unavailable in this turn; "" if this model or user must not know of it."""
        item = self.snapshot.by_name.get(name)
        if item is None or item.summary is None or item.summary.manifest.disable_model_invocation:
            return ""
        if item.summary.manifest.admin_only and not self.user.is_admin:
            return ""
        return self.selection.left_out.get(name, "")

    def waiting(self) -> Mapping[str, Skill]:
        """Return the skills written in this conversation that are pending review."""
        if self._waiting is None or self._waiting[0] != self.looks:
            nothing: Mapping[str, Skill] = {}
            found = self.outage.unless_away(lambda: self.review.in_conversation(self.conversation), nothing)
            self._waiting = (self.looks, found)
        return self._waiting[1]

    def only_waits(self, name: str) -> bool:
        """Whether a skill exists only as a pending one. A skill with a pending edit exists in its old form."""
        return name in self.waiting() and name not in self.snapshot.by_name

    def load(self, name: str) -> Skill:
        """Load a skill as of the snapshot."""
        return self.library.load(name, at=self.snapshot, user=self.user.name)

    def is_in_use(self, name: str) -> bool:
        """Whether a skill is enabled and valid."""
        item = self.snapshot.by_name.get(name)
        return item is not None and item.state is State.OK

    def files(self, name: str) -> SkillFiles | None:
        """Return all files of a skill in use, or None while they can't be read."""
        if not self.is_in_use(name):
            return None
        return self.outage.unless_away(lambda: self.library.files(self.snapshot.by_name[name]), None)

    def unreviewed_origin(self, name: str) -> str:
        """Describe where an unreviewed skill comes from; "" for a reviewed one."""
        if name in self.waiting():
            return "it was written in this conversation"
        item = self.snapshot.by_name.get(name)
        if item is None:
            return ""
        return self.outage.unless_away(
            lambda: self.library.unreviewed_origin(item), "who wrote it can't be looked up now"
        )

    def is_in_view(self, name: str) -> bool:
        """Whether the skill's current text is in the conversation, or about to be."""
        shown = self._shown.get(name)
        if shown is None or self.forgets:
            return False
        item = self.snapshot.by_name.get(name)
        version = shown.version if item is None or item.summary is None else item.summary.version
        return version == shown.version and (name in self.loaded or self._is_there(shown))

    def _is_there(self, skill: Skill) -> bool:
        """Whether the text is still in the history: its turn may have been dropped or cancelled."""
        if self.history is None:
            return True
        return self.history.contains(self.redactor.redact(block(skill.body.strip())).text[:SHOWN_WHOLE])

    def has_said(self, line: str) -> bool:
        """Whether a line is in the history."""
        return self.history is not None and self.history.contains(line)

    def saw(self, skill: Skill) -> None:
        """Note that a skill's text was put into the conversation."""
        self._shown[skill.name] = skill

    def note_loaded(self, skill: Skill, *, is_asked: bool = True) -> None:
        """Note that a skill was loaded: because the model asked for it, or otherwise (`is_asked` False)."""
        self.loaded[skill.name] = skill
        if is_asked:
            self.asked.add(skill.name)
        self.saw(skill)


def loadable(snapshot: Snapshot) -> set[str]:
    """Return the names of all skills a model may load, whatever the request."""
    return {
        item.name
        for item in snapshot.listing
        if item.summary is not None and item.state is State.OK and not item.summary.manifest.disable_model_invocation
    }


log = logging.getLogger(__name__)

# Bounds of the file list below a skill's text.
_MOST_LINES, _MOST_CHARACTERS = 40, 5_000
_LONGEST_LINE, _LONGEST_PATH, _MOST_PATHS = 60, 80, 100
_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherFile:
    """One file with its content: `text` is None for binary data, `sandbox_path` empty if code can't read it."""

    path: str
    data: bytes
    text: str | None
    in_pad: str

    @property
    def picture(self) -> str:
        """The image type according to the content, or empty."""
        if self.data[:4] == b"RIFF" and self.data[8:12] == b"WEBP":
            return "image/webp"
        return next((kind for mark, kind in _PICTURES.items() if self.data.startswith(mark)), "")

    @property
    def kind(self) -> str:
        """The media type by content or name."""
        return self.picture or mimetypes.guess_type(self.path)[0] or "of a kind nobody knows"


class OtherFiles:
    """The supporting files of skills in a conversation. Every method queries the database: call it in a thread."""

    def __init__(
        self, view: View, given: Given | None = None, how_to_call: Callable[[Skill], str] = lambda skill: ""
    ) -> None:
        """Without `given`, files can be read but not used by code. `describe_command_line` says how to call
        a skill's.
        """
        self._view = view
        self._given = given
        self._how_to_call = how_to_call
        self._seen: Snapshot | None = None

    def put(self, skill: Skill) -> str:
        """Place a skill's files where code finds them; return lines that describe them, or ""."""
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
        """Return the paths of the first hundred files; `find_file` on a folder lists all."""
        files = self._view.files(name)
        return list(files.others[:_MOST_PATHS]) if files else []

    def refresh(self) -> None:
        """Bring placed files up to date with the library, removing those of deleted or untrusted skills."""
        if self._given is None or self._seen is self._view.snapshot:
            return
        self._seen = self._view.snapshot
        for name in self._given.trees():
            files = self._view.files(name)
            if files is not None and files.others:
                self._place(name, files)
            # Otherwise the database is down and the files must stay.
            elif files is not None or not self._view.is_in_use(name):
                self._given.drop_tree(name)

    def find(self, name: str, path: str) -> OtherFile | tuple[str, ...]:
        """Return a file of a skill, or the listing of one of its folders; '.' lists all."""
        files = self._view.files(name)
        if files is None:
            raise NotFound(f"'{name}' has no files that can be read now.", hint="")
        placed = self._place(name, files) if files.others else None
        wanted = posixpath.normpath(path.removeprefix(f"{placed.path}/") if placed else path)
        if wanted in files.tree:
            in_pad = f"{placed.path}/{wanted}" if placed and _why_not(wanted, files, placed) == "" else ""
            return _read(wanted, files, in_pad)
        below = [one for one in files.others if wanted == "." or one.startswith(f"{wanted}/")]
        if not below:
            hint = did_you_mean(wanted, files.tree) or "Its folder is '.'."
            raise NotFound(f"'{name}' has no file '{one_line(path)[:_LONGEST_PATH]}'.", hint=hint)
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
    """Yield one line for each file: path, size, first line, and why code does not have it."""
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
    """Return the first line of a text file that is not blank."""
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


_LARGEST = 8 * MIB


def sandbox_services(view: View) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
    """Return the `skills.list(tag)` and `skills.read(name, path)` services, with the model's access rules."""
    files = OtherFiles(view)

    async def list_skills(tag: Any) -> list[dict[str, Any]]:
        allowed = view.may_load()
        found = [item.summary for item in view.snapshot.listing if item.summary and item.name in allowed]
        return [
            {"name": s.name, "title": s.title, "description": s.description, "tags": list(s.tags)}
            for s in found
            if tag is None or tag in s.tags
        ]

    async def read(argument: Any) -> dict[str, Any]:
        name, path = argument if isinstance(argument, list) and len(argument) == 2 else (argument, None)
        wanted = names.canonical(str(name))
        if wanted not in view.may_load():
            raise NotFound(f"No skill '{name}'.")
        if path is not None:
            return await in_thread(lambda: _content(files.find(wanted, str(path)), str(path)))
        skill, paths = await in_thread(lambda: (view.load(wanted), files.paths(wanted)))
        return {
            "name": skill.name,
            "title": skill.title,
            "description": skill.description,
            "content": skill.body,
            "tags": list(skill.tags),
            "files": paths,
        }

    return {"skills.list": list_skills, "skills.read": read}


def _content(found: OtherFile | tuple[str, ...], path: str) -> dict[str, str]:
    """Encode a file for transport."""
    if not isinstance(found, OtherFile):
        raise Invalid(f"'{path}' is a folder.", hint="Read one of its files.")
    if len(found.data) > _LARGEST:
        raise Refused(f"'{path}' has {len(found.data):,} bytes; {_LARGEST // MIB} MiB is the most that is sent.")
    if found.text is not None:
        return {"text": found.text}
    return {"base64": base64.b64encode(found.data).decode()}
