"""A conversation's view of the library: the current snapshot, the supporting files of skills, and code's access."""

from __future__ import annotations

import base64
import logging
import mimetypes
import posixpath
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from habitus.agent.background import run_in_thread
from habitus.agent.choosing import ExposureAssigner, make_skill_item
from habitus.agent.history import MessageHistory
from habitus.errors import Invalid, NotFound, Refused, did_you_mean
from habitus.evidence.model import UnitRandomizer
from habitus.evidence.versions import AssignedVersion, LiveComparison, OldOrNewVersion, assign_conversation_version
from habitus.files import TreeFile, read_tree_file
from habitus.redact import Redactor
from habitus.sandbox.files import SKILLS, GivenFolder, TreePlacementResult
from habitus.sandbox.model import MIB
from habitus.skills import names
from habitus.skills.choosing.menu import SkillMenu
from habitus.skills.choosing.selection import RequestUser, SkillSelection
from habitus.skills.layers.copies import SkillFiles
from habitus.skills.layers.listing import LibrarySnapshot
from habitus.skills.library import Library
from habitus.skills.model import Skill, SkillState, SkillSummary
from habitus.skills.review import ReviewQueue
from habitus.sql.outage import OutageGuard
from habitus.text import clean_to_one_line, escape_lines_resembling_prompt_marks

# Longer skills may be truncated in a tool result, so only this much is searched for in the history.
SHOWN_WHOLE = 14_000
# Directories of larger libraries are scanned outside the turn.
LOOKED_AT_ONCE = 1_000


@dataclass(kw_only=True, eq=False)
class ConversationVersionPins:
    """The versions that one conversation gets of the skills that are compared in use."""

    # Reads the comparisons that assign versions.
    load: Callable[[], Sequence[LiveComparison]]
    # Returns when the conversation began, and how it is randomised.
    open_assignment: Callable[[], tuple[datetime, UnitRandomizer]]
    offers: ExposureAssigner
    _opened: tuple[datetime, UnitRandomizer] | None = None
    _seen: LibrarySnapshot | None = None
    _pinned: LibrarySnapshot | None = None
    _assigned: dict[str, AssignedVersion] = field(default_factory=dict)

    def find_assigned_version(self, skill: SkillSummary) -> AssignedVersion | None:
        """Return the assignment of a skill that is compared; None for all others."""
        assigned = self._assigned.get(skill.name)
        return assigned if assigned is not None and assigned.version == skill.version else None

    def pin_versions(self, seen: LibrarySnapshot, library: Library, user: str) -> LibrarySnapshot:
        """Return the snapshot with this conversation's versions; the same object for the same one."""
        # A comparison that begins without a new version of the skill leaves the open conversations alone.
        if self._seen is seen and self._pinned is not None:
            return self._pinned
        found = (
            self._assign_compared_version(one) for one in self.load() if _is_comparison_current(seen, library, one)
        )
        assigned = {one.comparison.skill: one for one in found if one is not None}
        self._assigned = assigned
        for one in assigned.values():
            if one.comparison.is_cue_changed:
                self.offers.record_assigned_version(one)
        old = {name: one.version for name, one in assigned.items() if one.assignment is OldOrNewVersion.OLD}
        self._seen, self._pinned = seen, library.pin_versions(seen, old, user=user) if old else seen
        return self._pinned

    def _assign_compared_version(self, comparison: LiveComparison) -> AssignedVersion | None:
        if self._opened is None:
            self._opened = self.open_assignment()
        began_on, lots = self._opened
        known = self._assigned.get(comparison.skill)
        if known is not None and known.comparison.item == comparison.item:
            return replace(known, comparison=comparison)
        return assign_conversation_version(comparison, lots, began_on)


def _is_comparison_current(seen: LibrarySnapshot, library: Library, one: LiveComparison) -> bool:
    """Whether the changed version is the current one: a later edit, or a rollback, holds for every conversation."""
    item = seen.by_name.get(one.skill)
    if item is None or item.summary is None or (item.layer, item.summary.version) != (one.layer, one.new):
        return False
    return library.get_layer(item.layer).store.key == one.layer_key


@dataclass(kw_only=True, eq=False)
class LibraryView:
    """One snapshot of the library for a whole turn, retaken only if the turn itself changes something.

    Without a history, text shown once counts as still visible; if the reader `forgets`, none does.
    """

    library: Library
    review: ReviewQueue
    outage: OutageGuard
    redactor: Redactor
    conversation: str = ""
    history: MessageHistory | None = None
    forgets: bool = False
    user: RequestUser = field(default_factory=RequestUser)
    offers: ExposureAssigner = field(default_factory=ExposureAssigner)
    # What decides which version of a compared skill this conversation gets; None where none is compared.
    versions: ConversationVersionPins | None = None
    # The latest request.
    request: str = ""
    # Also serves as the fallback while the database is down.
    selection: SkillSelection = field(default_factory=SkillSelection)
    menu: SkillMenu = field(
        default_factory=lambda: SkillMenu(text="", tokens=0, budget=0, shown=())
    )  # the prompt's, if any
    # Skills loaded in this turn.
    loaded: dict[str, Skill] = field(default_factory=dict)
    # The loaded skills that the model itself asked for.
    asked: set[str] = field(default_factory=set)
    # A counter of snapshots; caches beside the snapshot compare it to know that they are stale.
    revision: int = 0
    _snapshot: LibrarySnapshot | None = None
    _waiting: tuple[int, Mapping[str, tuple[int, Skill]]] | None = None  # with the revision it belongs to
    _may_load: tuple[LibrarySnapshot, SkillSelection, frozenset[str]] | None = None
    _shown: dict[str, Skill] = field(default_factory=dict)  # skills whose text was shown in this conversation

    @property
    def snapshot(self) -> LibrarySnapshot:
        """The current snapshot, taken on first use because a large library costs time and memory."""
        if self._snapshot is None:
            now = partial(self.library.snapshot, user=self.user.name)
            last = self.library.last_snapshot.with_user_placeholder_filled(self.user.name)
            self._snapshot = self._pin_versions(self.outage.read_or_default(now, last))
        return self._snapshot

    @property
    def has_snapshot(self) -> bool:
        """Whether a snapshot has been taken."""
        return self._snapshot is not None

    @property
    def is_large(self) -> bool:
        """Whether the library is too large to scan its directories during a turn."""
        return len(self.snapshot.listing) > LOOKED_AT_ONCE

    def reset_loaded_and_take_snapshot(self) -> None:
        """Start a turn: reset the loaded skills and take a new snapshot."""
        self.loaded, self.asked = {}, set()
        self.take_snapshot(scan_directories=not self.is_large)

    def take_snapshot(self, *, scan_directories: bool = False) -> None:
        """Take a new snapshot; manual changes are only found with `scan_directories`."""
        now = partial(self.library.snapshot, check_disk=scan_directories, user=self.user.name)
        self._snapshot = self._pin_versions(self.outage.read_or_default(now, self.snapshot))
        self.revision += 1

    def _pin_versions(self, seen: LibrarySnapshot) -> LibrarySnapshot:
        """Return the snapshot with the versions that this conversation gets of skills that are compared."""
        if self.versions is None:
            return seen
        pin = partial(self.versions.pin_versions, seen.current or seen, self.library, self.user.name)
        return self.outage.read_or_default(pin, seen)

    def retake_snapshot_and_invalidate_caches(self) -> None:
        """Take a new snapshot if there was one, and invalidate caches in any case."""
        if self._snapshot is None:
            self.revision += 1
        else:
            self.take_snapshot()

    def scan_directories_for_manual_changes(self) -> None:
        """Scan the directories of a large library for manual changes, for the next turn."""
        self.outage.try_write(self.library.snapshot, "look at the skill directories")

    def list_loadable_skill_names(self) -> frozenset[str]:
        """Return the names the model may load in this turn: those selected, and those added since."""
        known, now, chosen = self._may_load, self.snapshot, self.selection
        if known is None or known[0] is not now or known[1] is not chosen:
            eligible, left_out = chosen.list_eligible_names(), chosen.left_out
            names = frozenset(
                name for name in list_all_loadable_skill_names(now) if name in eligible or name not in left_out
            )
            self._may_load = known = (now, chosen, names)
        return known[2]

    def can_name_skill_to_model(self, summary: SkillSummary) -> bool:
        """Whether a skill found by search may be named to the model.

        For a reader without our prompt, naming it is the exposure, which is recorded; otherwise only withheld skills
        are hidden.
        """
        if self.forgets:
            return self.offers.assign_whether_to_show_skill_line(summary)
        return not self.offers.is_withheld(make_skill_item(summary), is_sure=summary.manifest.always_include)

    def list_loadable_and_pending_skill_names(self) -> Set[str]:
        """Return the loadable names and those written in this conversation that are pending."""
        waiting = self.get_pending_skills_of_conversation()
        return {*self.list_loadable_skill_names(), *waiting} if waiting else self.list_loadable_skill_names()

    def explain_why_skill_is_unavailable(self, name: str) -> str:
        """Return why a skill is unavailable in this turn; "" if this model or user must not know of it."""
        item = self.snapshot.by_name.get(name)
        if item is None or item.summary is None or item.summary.manifest.disable_model_invocation:
            return ""
        if item.summary.manifest.admin_only and not self.user.is_admin:
            return ""
        return self.selection.left_out.get(name, "")

    def describe_compared_version(self, name: str) -> str:
        """Return which version of a compared skill this conversation has and why, in words; empty if none is."""
        item = self.snapshot.by_name.get(name)
        if self.versions is None or item is None or item.summary is None:
            return ""
        assigned = self.versions.find_assigned_version(item.summary)
        return "" if assigned is None else f"This conversation has {assigned.reason}."

    def get_pending_skills_of_conversation(self) -> Mapping[str, Skill]:
        """Return the skills written in this conversation that are pending review."""
        return {name: skill for name, (_, skill) in self.get_pending_skills_with_proposal_numbers().items()}

    def get_pending_skills_with_proposal_numbers(self) -> Mapping[str, tuple[int, Skill]]:
        """Return the pending skills, each with the number of its proposal."""
        if self._waiting is None or self._waiting[0] != self.revision:
            found = self.outage.read_or_default(lambda: self.review.list_conversation_skills(self.conversation), {})
            self._waiting = (self.revision, found)
        return self._waiting[1]

    def is_only_pending(self, name: str) -> bool:
        """Whether a skill exists only as a pending one. A skill with a pending edit exists in its old form."""
        return name in self.get_pending_skills_of_conversation() and name not in self.snapshot.by_name

    def load_skill(self, name: str) -> Skill:
        """Load a skill as of the snapshot."""
        return self.library.load(name, at=self.snapshot, user=self.user.name)

    def is_enabled_and_valid(self, name: str) -> bool:
        """Whether a skill is enabled and valid."""
        item = self.snapshot.by_name.get(name)
        return item is not None and item.state is SkillState.OK

    def read_skill_files(self, name: str) -> SkillFiles | None:
        """Return all files of a skill in use, or None while they can't be read."""
        if not self.is_enabled_and_valid(name):
            return None
        return self.outage.read_or_default(lambda: self.library.read_files(self.snapshot.by_name[name]), None)

    def describe_unreviewed_origin(self, name: str) -> str:
        """Describe where an unreviewed skill comes from; "" for a reviewed one."""
        if name in self.get_pending_skills_of_conversation():
            return "it was written in this conversation"
        item = self.snapshot.by_name.get(name)
        if item is None:
            return ""
        return self.outage.read_or_default(
            lambda: self.library.describe_unreviewed_origin(item), "its author can't be looked up now"
        )

    def is_skill_text_in_conversation(self, name: str) -> bool:
        """Whether the skill's current text is in the conversation, or about to be."""
        shown = self._shown.get(name)
        if shown is None or self.forgets:
            return False
        item = self.snapshot.by_name.get(name)
        version = shown.version if item is None or item.summary is None else item.summary.version
        return version == shown.version and (name in self.loaded or self._is_skill_text_in_history(shown))

    def _is_skill_text_in_history(self, skill: Skill) -> bool:
        """Whether the text is still in the history: its turn may have been dropped or cancelled."""
        if self.history is None:
            return True
        return self.history.is_text_in_user_or_tool_messages(
            self.redactor.redact(escape_lines_resembling_prompt_marks(skill.body.strip())).text[:SHOWN_WHOLE]
        )

    def has_line_in_history(self, line: str) -> bool:
        """Whether a line is in the history."""
        return self.history is not None and self.history.is_text_in_user_or_tool_messages(line)

    def record_shown_skill(self, skill: Skill) -> None:
        """Note that a skill's text was put into the conversation."""
        self._shown[skill.name] = skill
        if self.versions is not None and (assigned := self.versions.find_assigned_version(skill)) is not None:
            self.offers.record_assigned_version(assigned)

    def record_loaded_skill(self, skill: Skill, *, is_asked: bool = True) -> None:
        """Note that a skill was loaded: because the model asked for it, or otherwise (`is_asked` False)."""
        self.loaded[skill.name] = skill
        if is_asked:
            self.asked.add(skill.name)
        self.record_shown_skill(skill)


def list_all_loadable_skill_names(snapshot: LibrarySnapshot) -> set[str]:
    """Return the names of all skills a model may load, whatever the request."""
    return {
        item.name
        for item in snapshot.listing
        if item.summary is not None
        and item.state is SkillState.OK
        and not item.summary.manifest.disable_model_invocation
    }


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
            elif files is not None or not self._view.is_enabled_and_valid(name):
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


_LARGEST = 8 * MIB


def build_skill_services_for_sandbox(view: LibraryView) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
    """Return the `skills.list(tag)` and `skills.read(name, path)` services, with the model's access rules."""
    files = SupportingFileReaderAndPlacer(view)

    async def list_skills(tag: Any) -> list[dict[str, Any]]:
        allowed = view.list_loadable_skill_names()
        found = [item.summary for item in view.snapshot.listing if item.summary and item.name in allowed]
        return [
            {"name": s.name, "title": s.title, "description": s.description, "tags": list(s.tags)}
            for s in found
            if tag is None or s.has_tag(tag)
        ]

    async def read(argument: Any) -> dict[str, Any]:
        name, path = argument if isinstance(argument, list) and len(argument) == 2 else (argument, None)
        wanted = names.canonicalize_name(str(name))
        if wanted not in view.list_loadable_skill_names():
            raise NotFound(f"No skill '{name}'.")
        if path is not None:
            return await run_in_thread(
                lambda: _encode_file_for_sandbox(files.find_file_or_list_folder(wanted, str(path)), str(path))
            )
        skill, paths = await run_in_thread(lambda: (view.load_skill(wanted), files.list_first_file_paths(wanted)))
        return {
            "name": skill.name,
            "title": skill.title,
            "description": skill.description,
            "content": skill.body,
            "tags": list(skill.tags),
            "files": paths,
        }

    return {"skills.list": list_skills, "skills.read": read}


def _encode_file_for_sandbox(found: SupportingFile | tuple[str, ...], path: str) -> dict[str, str]:
    """Encode a file for transport."""
    if not isinstance(found, SupportingFile):
        raise Invalid(f"'{path}' is a folder.", hint="Read one of its files.")
    if len(found.data) > _LARGEST:
        raise Refused(f"'{path}' has {len(found.data):,} bytes; {_LARGEST // MIB} MiB is the most that is sent.")
    if found.text is not None:
        return {"text": found.text}
    return {"base64": base64.b64encode(found.data).decode()}
