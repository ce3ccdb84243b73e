"""The prompts of a session: what stays the same from turn to turn, and what is chosen for one request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from habitus.agent import budget, prompt
from habitus.agent.budget import Section
from habitus.agent.history import History
from habitus.agent.outage import Outage
from habitus.agent.parts import Parts
from habitus.agent.prompt import Composed, Note, Prompt, Remembered
from habitus.agent.tools.recall_skill import loadable
from habitus.errors import HabitusError
from habitus.skills import fingerprint, menu
from habitus.skills.model import Skill, Summary
from habitus.skills.selection import INTERACTIVE, Request, Selection

SHOWN_WHOLE = 14_000  # characters of a skill that no result cuts


@dataclass(frozen=True, kw_only=True, slots=True)
class _Steady:
    """What stays the same while nobody changes anything."""

    identity: str
    standing: Remembered
    menu: menu.Menu
    hashes: Mapping[str, str]


class Composer:
    def __init__(self, parts: Parts, outage: Outage, history: History) -> None:
        self._parts = parts
        self._outage = outage
        self._history = history
        self._in_view: dict[str, Skill] = {}  # those whose text was put into this conversation
        self._selection: Selection  # the last one, also for when the database is away
        self._steady = self._settle()

    def select(self, request: Request) -> Selection:
        self._selection = self._outage.unless_away(lambda: self._parts.select(request), self._selection)
        return self._selection

    def compose(self, request: Request, selection: Selection, remembered: Remembered) -> Composed:
        """The prompt of one turn: the steady part, and a block of what was chosen for this request."""
        if selection.drops_memory:
            remembered = Remembered()
        chosen = [(skill, choice.reason) for choice in selection.eager if (skill := self._load(choice.name))]
        eager, shown = prompt.eager(chosen, int(self._parts.context_tokens * budget.EAGER_SHARE))
        skills = tuple(skill for skill, _ in chosen if skill.name in shown)
        for skill in skills:
            self.saw(skill)
        known = {note.id for note in self._steady.standing.rules}
        rules = tuple(note for note in remembered.rules if note.id not in known)
        news = self._news(request)
        context = (
            eager,
            prompt.bullets("rules", "Rules for this request", [note.line for note in rules]),
            prompt.bullets("lessons", "Lessons from earlier work", [note.line for note in remembered.lessons]),
            prompt.fitting(self._outage.unless_away(lambda: self._fitting(request, selection, shown), [])),
            prompt.whats_new(news),
        )
        standing = () if selection.drops_memory else self._steady.standing.rules
        return Composed(
            prompt=Prompt(system=self.system(selection), context=tuple(part for part in context if part.text)),
            skills=skills,
            notes=remembered.lessons,
            rules=(*standing, *rules),
            cut=() if selection.drops_memory else self._cut(remembered, rules),
            menu=self._steady.menu,
            news=news,
        )

    def system(self, selection: Selection | None = None) -> tuple[Section, ...]:
        """The steady sections, without what a selected skill drops for its turn."""
        steady = self._steady
        drops_memory = selection is not None and selection.drops_memory
        standing = Remembered() if drops_memory else steady.standing
        return prompt.system(
            identity="" if selection is not None and selection.drops_persona else steady.identity,
            profile=[note.text for note in standing.profile],
            rules=prompt.bullets("rules", "Rules", [note.line for note in standing.rules], cut=standing.cut),
            menu=steady.menu,
        )

    # What the model may load, and what it has before its eyes

    def may_load(self) -> set[str]:
        """The skills the model may have in this turn: what selection let through, and what has come since."""
        now = loadable(self._parts.library.listing())
        eligible = self._selection.eligible()
        return {name for name in now if name in eligible or name not in self._selection.left_out}

    def in_view(self, loaded: Collection[str] = ()) -> set[str]:
        """The skills whose text, as it is now, stands in the conversation; `loaded` are on their way into it."""
        versions = {item.name: item.summary.version for item in self._parts.library.listing() if item.summary}
        return {
            name
            for name, skill in self._in_view.items()
            if versions.get(name, skill.version) == skill.version and (name in loaded or self._is_there(skill))
        }

    def _is_there(self, skill: Skill) -> bool:
        """Its turn may have left the conversation since, or was cancelled before the text came in."""
        return self._history.contains(self._parts.redactor.redact(skill.body).text.strip()[:SHOWN_WHOLE])

    def saw(self, skill: Skill) -> None:
        self._in_view[skill.name] = skill

    # The parts for one request

    def _load(self, name: str) -> Skill | None:
        try:
            return self._outage.unless_away(lambda: self._parts.library.load(name), None)
        except HabitusError:
            return None  # somebody removed it a moment ago

    def _cut(self, remembered: Remembered, rules: Sequence[Note]) -> tuple[str, ...]:
        """The rules that found room neither in the system prompt nor beside the request."""
        shown = {note.id for note in (*self._steady.standing.rules, *rules)}
        return tuple(id for id in remembered.cut if id not in shown)

    def _fitting(self, request: Request, selection: Selection, shown: Sequence[str]) -> list[Summary]:
        """What search finds on the menu, while something really fits."""
        on_menu = {summary.name: summary for summary in selection.menu}
        if not on_menu:
            return []
        results = self._parts.finder.search(request.text, k=budget.FITTING, among=set(on_menu))
        if not results.fits:
            return []
        near = [hit.id for hit in results.hits if hit.score >= results.hits[0].score * budget.NEARLY_AS_FITTING]
        return [on_menu[name] for name in near if name not in shown]

    def _news(self, request: Request) -> fingerprint.News:
        """What this user has not seen of the library, where somebody is there to be told."""
        parts, nothing = self._parts, fingerprint.News()
        if request.source_type not in INTERACTIVE:
            return nothing

        def look() -> fingerprint.News:
            return fingerprint.news(parts.journal.seen(parts.user.name), parts.library.tree_hashes(), parts.changelog())

        return self._outage.unless_away(look, nothing)

    # What stays the same

    def refresh(self) -> None:
        """A person's change is told to the model at once; the agent's own must not unsettle its prompt."""
        self._outage.unless_away(self._refresh, None)

    def _refresh(self) -> None:
        hashes, known = self._parts.library.tree_hashes(), self._steady.hashes
        if hashes == known and self._parts.identity() == self._steady.identity:
            return
        changed = [name for name in {*hashes, *known} if hashes.get(name) != known.get(name)]
        if changed and all(self._is_own_change(name) for name in changed):
            self._steady = replace(self._steady, hashes=hashes)
        else:
            self._steady = self._settle()

    def _is_own_change(self, name: str) -> bool:
        try:
            return self._parts.library.history(name)[-1].author.is_automatic
        except (HabitusError, IndexError):
            return False  # it is gone

    def _settle(self) -> _Steady:
        parts = self._parts
        neutral = Request(text="", source_type=parts.source_type, user=parts.user, now=parts.clock())
        self._selection = selection = parts.select(neutral)
        return _Steady(
            identity=parts.identity(),
            standing=parts.memory.standing(),
            menu=menu.offered(selection, parts.library.all_counters(), parts.context_tokens),
            hashes=parts.library.tree_hashes(),
        )
