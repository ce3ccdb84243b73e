"""What another agent is told through its hooks: at the start of a session, beside a request, beside a failed call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from habitus.agent import prompt
from habitus.agent.choosing import choose, near, unseen
from habitus.agent.memory import SessionMemory
from habitus.agent.offers import Offers
from habitus.agent.outage import Outage
from habitus.agent.prompt import Composed, Note, Prompt
from habitus.app.conversations.sessions import lots
from habitus.app.growth.remedies import remedy_for
from habitus.app.home import Home
from habitus.skills import fingerprint, names
from habitus.skills.gates import GateContext
from habitus.skills.model import Summary
from habitus.skills.selection import Request
from habitus.text import tokens

SOURCE = "claude-code"  # as the journal calls these turns
REQUEST_TOKENS = 300
_MOST_WORDS = 4_000  # characters of a request that are searched for


class Prompter:
    """Habitus as the hooks of one project use it; its methods look into the database."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._user = home.user()
        cortex = home.open_memory()  # of its own: this is another thread than a turn's
        self._memory = SessionMemory(cortex=cortex, user=self._user.name, project=home.project)

    def offers(self, conversation: str) -> Offers:
        """Where it is noted what a session was told, and what chance keeps from it."""
        return Offers(lots(self._home.settings, self._home.journal, conversation, Outage()))

    def at_start(self, offers: Offers, *, is_new: bool = True) -> str:
        """The rules, and in a session that is new also what is new and what waits."""
        rules = [note for note in self._memory.standing().rules if offers.takes_note(note, is_steady=True)]
        parts = [prompt.bullets("rules", "Rules", [note.line for note in rules]).text]
        if is_new:
            parts += [self._news(), self._waiting()]
        return self._home.redact("\n\n".join(part for part in parts if part))

    def beside_request(self, text: str, offers: Offers) -> Composed:
        """Lessons and names of skills that fit, within their budget; most requests get nothing."""
        text = self._home.redact(text[:_MOST_WORDS])
        request = Request(text=text, source_type=SOURCE, user=self._user, now=self._home.clock())
        snapshot = self._home.skills.snapshot(look=False, user=self._user.name)
        chosen = choose(snapshot, request, self._gates(), self._home.journal)
        ruled = [choice.summary for choice in chosen.eager]
        on_menu = {one.name: one for one in chosen.menu}
        search = partial(self._home.finder.search, text, at=snapshot)
        found = [on_menu[hit.id] for hit in near(search, on_menu)]
        lessons = () if chosen.drops_lessons or chosen.drops_memory else self._memory.recall(text).lessons
        return _within(REQUEST_TOKENS, lessons, [*ruled, *found], offers)

    def beside_failure(self, tool: str, arguments: object, error: str) -> str:
        """What is known to help against this error; nothing where nobody met it."""
        remedy = remedy_for(self._home, tool, arguments, error)
        return self._home.redact(prompt.bullets("lessons", "Seen before", [remedy]).text) if remedy else ""

    def _news(self) -> str:
        home, gates = self._home, self._gates()
        snapshot = home.skills.snapshot(user=self._user.name)
        news = unseen(home.journal, self._user.name, snapshot, gates, home.skills.layers)
        if news and not home.is_read_only:
            home.journal.mark_seen(self._user.name, fingerprint.visible(snapshot, gates))
        return prompt.whats_new(news).text

    def _waiting(self) -> str:
        count = self._home.waiting_count()
        waits = "One change waits" if count == 1 else f"{count} changes wait"
        return f"{waits} for the user's decision; they can look with `habitus review list`." if count else ""

    def _gates(self) -> GateContext:
        return replace(self._home.gates(self._user), tools=names.BUILT_IN_TOOLS)


def _within(room: int, lessons: Sequence[Note], skills: Sequence[Summary], offers: Offers) -> Composed:
    """As much as there is room for, of each kind the first longest; then without what chance withholds."""
    while tokens(_compose(lessons, skills).prompt.context_text) > room:
        if len(lessons) > 1 or not skills:
            lessons = lessons[:-1]
        else:
            skills = skills[:-1]
    told = [note for note in lessons if offers.takes_note(note)]
    return _compose(told, [summary for summary in skills if offers.takes_line(summary)])


def _compose(lessons: Sequence[Note], skills: Sequence[Summary]) -> Composed:
    heading = "Lessons from earlier work"
    sections = (prompt.bullets("lessons", heading, [note.line for note in lessons]), prompt.fitting(skills))
    said = Prompt(system=(), context=tuple(section for section in sections if section.text))
    return Composed(prompt=said, notes=tuple(lessons))
