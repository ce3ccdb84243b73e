"""Today: what a person should look at first, of everything there is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from habitus.app.conversations.past_sessions import past_sessions
from habitus.app.home import Home
from habitus.app.review import inbox
from habitus.app.review.inbox import InboxItem
from habitus.evidence.findings import Rollback
from habitus.journal.model import KeptSession
from habitus.memory.model import Engram
from habitus.skills.listing import Listed
from habitus.skills.model import State, Summary
from habitus.tools.model import CodeTool, ToolStatus

_WEEK = timedelta(days=7)


@dataclass(frozen=True, kw_only=True, slots=True)
class Today:
    waiting: tuple[InboxItem, ...]
    new_skills: tuple[Summary, ...]  # made or changed within a week, the newest first
    new_lessons: tuple[Engram, ...]
    broken: tuple[Listed, ...]  # can't be loaded, or something they need is missing
    worse: tuple[Rollback, ...]  # versions that do worse than the one before
    failing: tuple[CodeTool, ...]  # tools that failed again and again
    sessions: tuple[KeptSession, ...]
    skills: int  # how many there are at all
    own_skills: int  # of them the person's, whatever came with Habitus

    @property
    def is_new(self) -> bool:
        """Nothing was made, learned or asked here yet."""
        return not (self.waiting or self.own_skills or self.new_lessons or self.sessions)


def today(home: Home, *, with_contents: bool = True) -> Today:
    """`with_contents` reads the files of what waits, too."""
    listing, now = home.skills.listing(), home.clock()
    summaries = [item.summary for item in listing if item.summary is not None]
    tools = home.tools.all() if home.skills.snapshot().with_code else ()
    return Today(
        waiting=inbox.waiting(home, with_contents=with_contents),
        new_skills=_newest(summaries, now - _WEEK),
        new_lessons=home.memory.list_lessons("week", 100),
        broken=tuple(item for item in listing if item.state in (State.BROKEN, State.GATED)),
        worse=home.evidence.findings().rollbacks,
        failing=tuple(tool for tool in tools if tool.status in (ToolStatus.DEGRADED, ToolStatus.BROKEN)),
        sessions=tuple(past_sessions(home.settings, home.journal, 5)),
        skills=len(summaries),
        own_skills=sum(summary.layer != "bundled" for summary in summaries),
    )


def _newest(summaries: list[Summary], since: datetime) -> tuple[Summary, ...]:
    dated = [(summary.modified_on, summary) for summary in summaries if summary.modified_on is not None]
    recent = [(on, summary) for on, summary in dated if on >= since and summary.layer != "bundled"]
    return tuple(summary for _, summary in sorted(recent, key=lambda each: (each[0], each[1].name), reverse=True))
