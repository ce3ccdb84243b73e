"""What a conversation has before it: the library at this moment, what the model may load, and what it has seen."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import partial

from habitus.agent.history import History
from habitus.agent.offers import Offers, of_skill
from habitus.agent.outage import Outage
from habitus.redact import Redactor
from habitus.skills.copies import SkillFiles
from habitus.skills.library import Library
from habitus.skills.listing import Snapshot
from habitus.skills.menu import Menu
from habitus.skills.model import Skill, State, Summary
from habitus.skills.review import Review
from habitus.skills.selection import Selection, User
from habitus.text import block

SHOWN_WHOLE = 14_000  # characters of a skill that no result cuts
LOOKED_AT_ONCE = 1_000  # skills; the directories of more are looked at beside the turn


class View:
    """One snapshot serves a whole turn, unless the turn itself changes something and looks again.

    Without a history, what was shown once counts as being there still; where the reader `forgets`, nothing does.
    """

    def __init__(
        self,
        library: Library,
        review: Review,
        outage: Outage,
        redactor: Redactor,
        *,
        conversation: str,
        history: History | None = None,
        forgets: bool = False,
        user: User = User(),  # noqa: B008  # frozen
        offers: Offers | None = None,
    ) -> None:
        self.library = library
        self.conversation = conversation
        self.request = ""  # what was asked last
        self.selection = Selection()  # the last one, also for when the database is away
        self.menu = Menu(text="", tokens=0, budget=0, shown=())  # of the prompt, where there is one
        self.loaded: dict[str, Skill] = {}  # brought up in this turn
        self.asked: set[str] = set()  # of those, the ones that the model itself asked for
        self.offers = offers or Offers()
        self.looks = 0  # how often it was looked at; whoever keeps something beside the snapshot looks again, too
        self._review = review
        self._outage = outage
        self._redactor = redactor
        self._history = history
        self._forgets = forgets
        self._user = user
        self._snapshot: Snapshot | None = None
        self._waiting: tuple[int, Mapping[str, Skill]] | None = None  # with the look it belongs to
        self._may_load: tuple[Snapshot, Selection, frozenset[str]] | None = None
        self._shown: dict[str, Skill] = {}  # those whose text was put into this conversation

    @property
    def snapshot(self) -> Snapshot:
        """Taken when it is first needed: of a large library it takes time and room."""
        if self._snapshot is None:
            now = partial(self.library.snapshot, user=self._user.name)
            self._snapshot = self._outage.unless_away(now, self.library.last.for_reader(self._user.name))
        return self._snapshot

    @property
    def is_taken(self) -> bool:
        """Whether the library has been looked at."""
        return self._snapshot is not None

    @property
    def is_large(self) -> bool:
        return len(self.snapshot.listing) > LOOKED_AT_ONCE

    def begin(self) -> None:
        """A turn begins: nothing is loaded yet, and the library is what it is now."""
        self.loaded, self.asked = {}, set()
        self.look(at_directories=not self.is_large)

    def look(self, *, at_directories: bool = False) -> None:
        """See what has changed; what somebody changed by hand only with a look at the directories."""
        now = partial(self.library.snapshot, look=at_directories, user=self._user.name)
        self._snapshot = self._outage.unless_away(now, self.snapshot)
        self.looks += 1

    def refresh(self) -> None:
        """See what has changed, where anything was seen yet; whoever keeps something beside it looks again anyway."""
        if self._snapshot is None:
            self.looks += 1
        else:
            self.look()

    def look_ahead(self) -> None:
        """Notice what was changed by hand in a large library; the next turn sees it."""
        self._outage.safely(self.library.snapshot, "look at the skill directories")

    def may_load(self) -> frozenset[str]:
        """The skills the model may have in this turn: what selection let through, and what has come since."""
        known, now, chosen = self._may_load, self.snapshot, self.selection
        if known is None or known[0] is not now or known[1] is not chosen:
            eligible, left_out = chosen.eligible(), chosen.left_out
            names = frozenset(name for name in loadable(now) if name in eligible or name not in left_out)
            self._may_load = known = (now, chosen, names)
        return known[2]

    def may_name(self, summary: Summary) -> bool:
        """Whether a skill that the model looks for may be named. To a reader without our prompt that is the offer; to
        one that has it, what it looks for depends on what it was offered, so it is none."""
        if self._forgets:
            return self.offers.takes_line(summary)
        return not self.offers.is_withheld(of_skill(summary), is_sure=summary.manifest.always_include)

    def may_recall(self) -> Set[str]:
        """Those, and what was written in this conversation and waits."""
        waiting = self.waiting()
        return {*self.may_load(), *waiting} if waiting else self.may_load()

    def why_not(self, name: str) -> str:
        """Why a skill is not to be had in this turn; nothing for one that this model or this user must not know of."""
        item = self.snapshot.by_name.get(name)
        if item is None or item.summary is None or item.summary.manifest.disable_model_invocation:
            return ""
        if item.summary.manifest.admin_only and not self._user.is_admin:
            return ""
        return self.selection.left_out.get(name, "")

    def waiting(self) -> Mapping[str, Skill]:
        """The skills that were written in this conversation and wait for a person."""
        if self._waiting is None or self._waiting[0] != self.looks:
            nothing: Mapping[str, Skill] = {}
            found = self._outage.unless_away(lambda: self._review.in_conversation(self.conversation), nothing)
            self._waiting = (self.looks, found)
        return self._waiting[1]

    def load(self, name: str) -> Skill:
        return self.library.load(name, at=self.snapshot, user=self._user.name)

    def is_in_use(self, name: str) -> bool:
        item = self.snapshot.by_name.get(name)
        return item is not None and item.state is State.OK

    def files(self, name: str) -> SkillFiles | None:
        """All files of a skill that is in use, as they are now; none while they can't be read."""
        if not self.is_in_use(name):
            return None
        return self._outage.unless_away(lambda: self.library.files(self.snapshot.by_name[name]), None)

    def unreviewed_origin(self, name: str) -> str:
        """Where a skill comes from that nobody has looked at, in words; nothing for the others."""
        if name in self.waiting():
            return "it was written in this conversation"
        item = self.snapshot.by_name.get(name)
        if item is None:
            return ""
        return self._outage.unless_away(
            lambda: self.library.unreviewed_origin(item), "who wrote it can't be looked up now"
        )

    def is_in_view(self, name: str) -> bool:
        """Whether a skill's text, as it is now, stands in the conversation or is on its way into it."""
        shown = self._shown.get(name)
        if shown is None or self._forgets:
            return False
        item = self.snapshot.by_name.get(name)
        version = shown.version if item is None or item.summary is None else item.summary.version
        return version == shown.version and (name in self.loaded or self._is_there(shown))

    def _is_there(self, skill: Skill) -> bool:
        """Its turn may have left the conversation since, or was cancelled before the text came in."""
        if self._history is None:
            return True
        return self._history.contains(self._redactor.redact(block(skill.body.strip())).text[:SHOWN_WHOLE])

    def has_said(self, line: str) -> bool:
        """Whether a line stands in the conversation."""
        return self._history is not None and self._history.contains(line)

    def saw(self, skill: Skill) -> None:
        """Its text was put into the conversation."""
        self._shown[skill.name] = skill

    def note_loaded(self, skill: Skill, *, is_asked: bool = True) -> None:
        """The model has asked for a skill and has it, or it came along: by the person's wish, or with another."""
        self.loaded[skill.name] = skill
        if is_asked:
            self.asked.add(skill.name)
        self.saw(skill)


def loadable(snapshot: Snapshot) -> set[str]:
    """Every skill that a model may load, whatever the request."""
    return {
        item.name
        for item in snapshot.listing
        if item.summary is not None and item.state is State.OK and not item.summary.manifest.disable_model_invocation
    }
