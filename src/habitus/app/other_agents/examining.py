"""Examine another agent: read its skills and transcripts in place, and report each finding with its fix.

Nothing is written, sent or asked of a model, and no home of ours is needed: the search index is in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from habitus.app.other_agents import agent_skills
from habitus.app.other_agents.agent_skills import (
    AgentSkill,
    Remark,
    Topic,
    about_copies,
    about_files,
    confusable,
    copies,
    edit,
    never_fired,
    put_aside,
    read_skills,
    risky,
    searching,
)
from habitus.errors import NotFound, did_you_mean
from habitus.hosts.known_agents import STUDIED, Host, Scope
from habitus.learning.remedies import wording
from habitus.learning.remedies.calls import parse_iso_timestamp
from habitus.learning.remedies.findings import ENOUGH, Findings, findings
from habitus.learning.remedies.sessions import SessionReader
from habitus.learning.transcripts import pieces
from habitus.redact import Redactor
from habitus.screening.findings import Policy
from habitus.skills import names, trees
from habitus.skills.layers.layer import project_root

UNUSED = timedelta(days=30)
# The latest requests matched against the skills.
MOST_REQUESTS = 300
MOST_FAILURES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentReport:
    """The remarks on one agent, and the number of skills, sessions and calls they are based on."""

    agent: str
    label: str
    skills: int
    sessions: int
    calls: int
    remarks: tuple[Remark, ...]


@dataclass(slots=True)
class _Past:
    """An agent's history, read from its transcripts."""

    found: Findings | None = None
    # Requests for which no skill was used.
    requests: list[str] = field(default_factory=list)
    uses: Counter[str] = field(default_factory=Counter)
    last_use: dict[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Examiner:
    """Examines agents.

    `home` is the user's home directory, `environ` may move agents' folders, `cwd` is the project.
    """

    home: Path
    environ: Mapping[str, str]
    cwd: Path
    now: datetime
    redactor: Redactor
    policy: Policy
    progress: Callable[[int], None] = lambda done: None

    def examine(self, wanted: str = "") -> tuple[AgentReport, ...]:
        """Return a report on the named agent, or on all agents on this machine; `NotFound` if there are none."""
        if wanted and wanted not in STUDIED:
            near = did_you_mean(wanted, list(STUDIED))
            raise NotFound(f"No agent '{wanted}' is known. {near}".strip(), hint=f"Known: {', '.join(STUDIED)}.")
        meant = [
            each
            for name, each in STUDIED.items()
            if name == wanted or (not wanted and each.is_used(self.environ, self.home))
        ]
        if not meant:
            raise NotFound(
                "No agent keeps skills or transcripts here.",
                hint=f"Looked for {', '.join(STUDIED)}; try 'habitus tour'.",
            )
        return tuple(map(self._report, meant))

    def _report(self, agent: Host) -> AgentReport:
        skills, past = list(self._skills(agent)), self._past(agent)
        remarks = [
            Remark(topic=each.topic, what=self._clean(each.what), hint=self._clean(each.hint))
            for each in self._remarks(agent, skills, past)
        ]
        covered = past.found.coverage if past.found else None
        return AgentReport(
            agent=agent.name,
            label=agent.title,
            skills=len(skills),
            sessions=covered.sessions if covered else 0,
            calls=covered.calls if covered else 0,
            remarks=tuple(sorted(remarks, key=lambda each: list(Topic).index(each.topic))),
        )

    def _clean(self, text: str) -> str:
        """Redact secrets and write the user's home as `~`."""
        return self.redactor.redact(text.replace(f"{self.home}/", "~/")).text

    def _remarks(self, agent: Host, skills: Sequence[AgentSkill], past: _Past) -> Iterator[Remark]:
        if past.found:
            yield from _about_failures(past.found, self.now)
        # Reversed twice: of several skills with one name the first one wins, and the order stays.
        loadable = list({each.name: each for each in reversed(skills) if each.skill}.values())[::-1]
        same = list(copies(loadable))
        yield from about_copies(same)
        yield from self._about_listing(agent, skills)
        yield from risky(skills, self.policy)
        yield from about_files(skills)
        if loadable:
            search = searching(loadable)
            yield from confusable(loadable, search, same)
            yield from never_fired(loadable, past.uses, past.requests[-MOST_REQUESTS:], search)
        if past.uses:
            yield from self._unused_skills(loadable, past)

    def _about_listing(self, agent: Host, skills: Sequence[AgentSkill]) -> Iterator[Remark]:
        """Remark on descriptions that are cut or missing in the listing that the agent shows its model."""
        for each in skills:
            size = len(agent_skills.listed_description(each))
            if agent.description_chars and size > agent.description_chars:
                yield Remark(
                    topic=Topic.LISTING,
                    what=f"The description of '{each.name}' has {size:,} characters; "
                    f"{agent.title} cuts it at {agent.description_chars:,}.",
                    hint=edit(each),
                )
        if agent.name == "claude-code":
            yield from self._lost(agent, skills)

    def _lost(self, agent: Host, skills: Sequence[AgentSkill]) -> Iterator[Remark]:
        environ, home = self.environ, self.home
        first = list({each.path.name: each for each in reversed(skills)}.values())[::-1]
        found = agent_skills.make_listing(
            sorted(first, key=lambda each: each.path.name),
            agent_skills.last_listing(agent.transcripts(environ, home)),
            agent_skills.read_settings(agent, environ, home),
            agent_skills.read_usage(agent, environ, home, self.now),
        )
        if not found.lost:
            return
        shown = ", ".join(found.lost[:3]) + (f" and {len(found.lost) - 3} more" if len(found.lost) > 3 else "")
        yield Remark(
            topic=Topic.LISTING,
            what=f"{agent.title} lists {found.how_many}{len(found.lost)} of {len(first)} skills without a description "
            f"({shown}).",
            hint=f'set "skillListingBudgetFraction": {found.fraction} in '
            f"{agent.path('~/.claude/settings.json', environ, home, home)}",
        )

    def _skills(self, agent: Host) -> Iterator[AgentSkill]:
        """Yield the skills in the agent's order of precedence: the first of a name wins."""
        root = project_root(self.cwd)
        upwards = [place for place in (self.cwd, *self.cwd.parents) if place == root or root in place.parents]
        folders = [agent.path(folder, self.environ, self.home, root) for folder in agent.folders(Scope.USER)]
        folders += [
            place / folder for place in upwards if place != self.home for folder in agent.folders(Scope.PROJECT)
        ]
        for folder in dict.fromkeys(folders):
            if folder.is_dir():
                yield from read_skills(folder)

    def _past(self, agent: Host) -> _Past:
        """Read all transcripts of the agent and collect requests, skill uses and findings."""
        past = _Past()
        readers: dict[tuple[Path, str], SessionReader] = {}
        for number, path in enumerate(agent.transcripts(self.environ, self.home), 1):
            self.progress(number)
            try:
                for piece in pieces(path, self.redactor):
                    key = path, piece.id
                    reader = readers.setdefault(
                        key, SessionReader(session=piece.id, project=piece.project, file=path.name)
                    )
                    for turn in piece.turns:
                        reader.take(turn)
                        used = frozenset(_own(use.skill) for use in piece.skill_uses if use.turn == turn.id)
                        at = next((parse_iso_timestamp(said.at) for said in turn.said if said.at), None)
                        past.uses.update(used)
                        past.requests += [said.words for said in turn.said[:1] if not turn.is_sidechain and not used]
                        past.last_use |= {name: max(at, past.last_use.get(name, at)) for name in used if at}
            except OSError:
                # The file was removed meanwhile, or is not readable for this user.
                continue
        past.found = findings(reader.facts() for reader in readers.values()) if readers else None
        return past

    def _unused_skills(self, skills: Sequence[AgentSkill], past: _Past) -> Iterator[Remark]:
        for each in skills:
            last = past.last_use.get(each.name)
            written_on = (each.path / (trees.main_file(each.tree) or "")).stat().st_mtime
            # A new skill had no time to be used.
            is_young = self.now.timestamp() - written_on < UNUSED.total_seconds()
            is_used = self.now - last < UNUSED if last else past.uses[each.name] > 0
            if is_young or is_used:
                continue
            yield Remark(
                topic=Topic.UNUSED,
                what=f"'{each.name}' was not used for {UNUSED.days} days, and takes room in the listing.",
                hint=put_aside(each),
            )


def _own(skill: str) -> str:
    # A plugin's skill is written plugin:name.
    return names.canonical(skill.rpartition(":")[2])


def _about_failures(found: Findings, now: datetime) -> Iterator[Remark]:
    taught = {signature for held in found.lessons for signature in held.signatures}
    for held in found.lessons:
        cost = f"{wording.evidence(held, now)}; {held.calls} calls and {held.seconds / 60:.1f} min lost"
        yield Remark(topic=Topic.LESSON, what=f"{wording.lesson(held)} ({cost})", hint="habitus learn --apply")
    again = [each for each in found.failures if each.sessions >= ENOUGH and each.signature not in taught]
    for each in again[:MOST_FAILURES]:
        called = each.command or each.tool
        so_far = ", and nothing has worked" if each.is_open else ""
        yield Remark(
            topic=Topic.FAILING,
            what=f"`{called}` fails again and again{so_far}: {each.signature} "
            f"({each.sessions} sessions, {each.calls} calls).",
            hint="habitus lessons add 'what to do instead'",
        )
    for rule in found.rules:
        if rule.is_lesson:
            said = wording.rule_evidence(rule, now)
            yield Remark(topic=Topic.RULE, what=f"{rule.correction.text} ({said})", hint="habitus learn --apply")
