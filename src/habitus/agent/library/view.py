"""A conversation's view of the library: the current snapshot, what the model may load, and what it has seen."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import partial

from habitus.agent.choosing.exposures import ExposureAssigner, make_skill_evidence_item
from habitus.agent.history import MessageHistory
from habitus.agent.library.version_pins import ConversationVersionPins
from habitus.redact import Redactor
from habitus.skills.choosing.menu import SkillMenu
from habitus.skills.choosing.selection import RequestUser, SkillSelection
from habitus.skills.layers.copies import SkillFiles
from habitus.skills.layers.listing import LibrarySnapshot
from habitus.skills.library import Library
from habitus.skills.model import Skill, SkillState, SkillSummary
from habitus.skills.review import ReviewQueue
from habitus.sql.outage import OutageGuard
from habitus.text import escape_lines_resembling_prompt_marks

# Longer skills may be truncated in a tool result, so only this much is searched for in the history.
SHOWN_WHOLE = 14_000
# Directories of larger libraries are scanned outside the turn.
LOOKED_AT_ONCE = 1_000


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
            self._snapshot = self._apply_version_pins_to_snapshot(self.outage.read_or_default(now, last))
        return self._snapshot

    @property
    def has_snapshot(self) -> bool:
        """Whether a snapshot has been taken."""
        return self._snapshot is not None

    @property
    def is_library_too_large_to_scan(self) -> bool:
        """Whether the library is too large to scan its directories during a turn."""
        return len(self.snapshot.listing) > LOOKED_AT_ONCE

    def reset_loaded_and_take_snapshot(self) -> None:
        """Start a turn: reset the loaded skills and take a new snapshot."""
        self.loaded, self.asked = {}, set()
        self.take_snapshot(scan_directories=not self.is_library_too_large_to_scan)

    def take_snapshot(self, *, scan_directories: bool = False) -> None:
        """Take a new snapshot; manual changes are only found with `scan_directories`."""
        now = partial(self.library.snapshot, check_disk=scan_directories, user=self.user.name)
        self._snapshot = self._apply_version_pins_to_snapshot(self.outage.read_or_default(now, self.snapshot))
        self.revision += 1

    def _apply_version_pins_to_snapshot(self, seen: LibrarySnapshot) -> LibrarySnapshot:
        """Return the snapshot with the versions that this conversation gets of skills that are compared."""
        if self.versions is None:
            return seen
        pin = partial(self.versions.apply_pins_to_snapshot, seen.current or seen, self.library, self.user.name)
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
        return not self.offers.is_withheld(make_skill_evidence_item(summary), is_sure=summary.manifest.always_include)

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
            found = self.outage.read_or_default(
                lambda: self.review.list_pending_skills_of_conversation(self.conversation), {}
            )
            self._waiting = (self.revision, found)
        return self._waiting[1]

    def is_skill_only_pending(self, name: str) -> bool:
        """Whether a skill exists only as a pending one. A skill with a pending edit exists in its old form."""
        return name in self.get_pending_skills_of_conversation() and name not in self.snapshot.by_name

    def load_skill(self, name: str) -> Skill:
        """Load a skill as of the snapshot."""
        return self.library.load(name, at=self.snapshot, user=self.user.name)

    def is_skill_enabled_and_valid(self, name: str) -> bool:
        """Whether a skill is enabled and valid."""
        item = self.snapshot.by_name.get(name)
        return item is not None and item.state is SkillState.OK

    def read_skill_files(self, name: str) -> SkillFiles | None:
        """Return all files of a skill in use, or None while they can't be read."""
        if not self.is_skill_enabled_and_valid(name):
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
