"""Examine another agent: read its skills and transcripts in place, and report each finding with its fix.

Nothing is written, sent or asked of a model, and no home of ours is needed: the search index is in memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from habitus.app.other_agents import agent_skills
from habitus.errors import NotFound, did_you_mean
from habitus.files import Tree
from habitus.hosts.known_agents import STUDIED_AGENTS, ConfigScope, KnownAgent
from habitus.learning.remedies import wording
from habitus.learning.remedies.calls import parse_iso_timestamp
from habitus.learning.remedies.findings import MIN_SESSIONS, RemedyFindings, collect_remedy_findings
from habitus.learning.remedies.recurring_failures import RecurringFailure
from habitus.learning.remedies.session_facts import FailuresAndCorrectionsCollector
from habitus.learning.transcripts import read_pieces
from habitus.redact import Redactor
from habitus.skills import names, trees
from habitus.skills.layers.layer import find_project_root
from habitus.text import format_quantity

UNUSED_AFTER = timedelta(days=30)
# The latest requests matched against the skills.
MAX_REQUESTS = 300
MAX_FAILURES = 10
_PLACEHOLDER = re.compile(r"(?:<(?:str|url|uuid|path|hex|num)>[.:/\\\\]?)+")  # of an error signature
# Sessions in which a test never turned green, or a limit was always hit, before it is worth a person's time.
_MIN_SESSIONS_OF_WORK = 3
_MIN_MINUTES = 1.5


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentAuditReport:
    """The remarks on one agent, and the number of skills, sessions and calls they are based on."""

    agent: str
    label: str
    skills: int
    sessions: int
    calls: int
    remarks: tuple[agent_skills.AgentRemark, ...]


@dataclass(slots=True)
class _AgentHistory:
    """An agent's history, read from its transcripts."""

    found: RemedyFindings | None = None
    # Requests for which no skill was used.
    requests: list[str] = field(default_factory=list)
    uses: Counter[str] = field(default_factory=Counter)
    last_use: dict[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentAuditor:
    """Examines agents.

    `home` is the user's home directory, `environ` may move agents' folders, `cwd` is the project.
    """

    home: Path
    environ: Mapping[str, str]
    cwd: Path
    now: datetime
    redactor: Redactor
    # Returns the high findings in the files of a skill.
    scan: Callable[[Tree], list[str]]
    on_progress: Callable[[int], None] = lambda done: None

    def audit_agents(
        self, agent: str = "", on_sessions: Callable[[Sequence[AgentAuditReport]], None] = lambda reports: None
    ) -> tuple[AgentAuditReport, ...]:
        """Return a report on the named agent, or on all agents on this machine; `NotFound` if there are none.

        `on_sessions` is called with what the sessions say before any skill is scanned.
        """
        if agent and agent not in STUDIED_AGENTS:
            near = did_you_mean(agent, list(STUDIED_AGENTS))
            raise NotFound(f"No agent '{agent}' is known. {near}".strip(), hint=f"Known: {', '.join(STUDIED_AGENTS)}.")
        meant = [
            each
            for name, each in STUDIED_AGENTS.items()
            if name == agent or (not agent and each.has_been_used_on_machine(self.environ, self.home))
        ]
        if not meant:
            raise NotFound(
                "No agent keeps skills or transcripts here.",
                hint=f"Looked for {', '.join(STUDIED_AGENTS)}; try 'habitus tour'.",
            )
        pasts = [(each, self._read_history(each)) for each in meant]
        on_sessions(
            [
                self._make_report(
                    each, past, _remark_on_failures_and_remedies(past.found, self.now) if past.found else ()
                )
                for each, past in pasts
            ]
        )
        return tuple(self._audit_agent(each, past) for each, past in pasts)

    def _audit_agent(self, agent: KnownAgent, past: _AgentHistory) -> AgentAuditReport:
        skills = list(self._read_skills(agent))
        return self._make_report(agent, past, self._make_remarks(agent, skills, past), skills=len(skills))

    def _make_report(
        self, agent: KnownAgent, past: _AgentHistory, found: Iterable[agent_skills.AgentRemark], *, skills: int = 0
    ) -> AgentAuditReport:
        remarks = [
            replace(
                each,
                what=self._redact_text(each.what),
                hint=self._redact_text(each.hint),
                about=self._redact_text(each.about),
            )
            for each in found
        ]
        covered = past.found.coverage if past.found else None
        return AgentAuditReport(
            agent=agent.name,
            label=agent.title,
            skills=skills,
            sessions=covered.sessions if covered else 0,
            calls=covered.calls if covered else 0,
            remarks=tuple(sorted(remarks, key=lambda each: list(agent_skills.RemarkTopic).index(each.topic))),
        )

    def _redact_text(self, text: str) -> str:
        """Redact secrets and write the user's home as `~`."""
        return self.redactor.redact(text.replace(f"{self.home}/", "~/")).text

    def _make_remarks(
        self, agent: KnownAgent, skills: Sequence[agent_skills.AgentSkill], past: _AgentHistory
    ) -> Iterator[agent_skills.AgentRemark]:
        if past.found:
            yield from _remark_on_failures_and_remedies(past.found, self.now)
        # Reversed twice: of several skills with one name the first one wins, and the order stays.
        loadable = list({each.name: each for each in reversed(skills) if each.skill}.values())[::-1]
        same = list(agent_skills.find_skill_copies(loadable))
        yield from agent_skills.remark_on_copied_skills(same)
        yield from self._remark_on_skill_listing(agent, skills)
        yield from agent_skills.remark_on_risky_skills(skills, self.scan)
        yield from agent_skills.remark_on_unreadable_and_hidden_skills(skills)
        yield from agent_skills.remark_on_missing_descriptions(loadable, agent)
        if loadable:
            search = agent_skills.build_skill_search(loadable)
            yield from agent_skills.remark_on_confusable_skills(loadable, search, same)
            yield from agent_skills.remark_on_unused_skills_matching_requests(
                loadable, past.uses, past.requests[-MAX_REQUESTS:], search
            )
        if past.uses:
            yield from self._remark_on_idle_skills(loadable, past)

    def _remark_on_skill_listing(
        self, agent: KnownAgent, skills: Sequence[agent_skills.AgentSkill]
    ) -> Iterator[agent_skills.AgentRemark]:
        """Remark on descriptions that are cut or missing in the listing that the agent shows its model."""
        for each in skills:
            size = len(agent_skills.get_listed_description(each))
            if agent.description_chars and size > agent.description_chars:
                yield agent_skills.AgentRemark(
                    topic=agent_skills.RemarkTopic.LISTING,
                    what=f"The description of '{each.name}' has {size:,} characters; "
                    f"{agent.title} cuts it at {agent.description_chars:,}.",
                    hint=agent_skills.make_skill_edit_command(each),
                )
        if agent.name == "claude-code":
            yield from self._remark_on_lost_descriptions(agent, skills)

    def _remark_on_lost_descriptions(
        self, agent: KnownAgent, skills: Sequence[agent_skills.AgentSkill]
    ) -> Iterator[agent_skills.AgentRemark]:
        environ, home = self.environ, self.home
        first = list({each.path.name: each for each in reversed(skills)}.values())[::-1]
        found = agent_skills.compute_listing_budget(
            sorted(first, key=lambda each: each.path.name),
            agent_skills.find_last_recorded_skill_listing(agent.find_transcripts(environ, home)),
            agent_skills.read_claude_settings(agent, environ, home),
            agent_skills.read_claude_skill_usage(agent, environ, home, self.now),
        )
        if not found.lost:
            return
        shown = ", ".join(found.lost[:3]) + (f" and {len(found.lost) - 3} more" if len(found.lost) > 3 else "")
        yield agent_skills.AgentRemark(
            topic=agent_skills.RemarkTopic.LISTING,
            what=f"{agent.title} lists {found.how_many}{len(found.lost)} of {len(first)} skills without a description "
            f"({shown}).",
            hint=f'set "skillListingBudgetFraction": {found.fraction} in '
            f"{agent.resolve_path('~/.claude/settings.json', environ, home, home)}",
        )

    def _read_skills(self, agent: KnownAgent) -> Iterator[agent_skills.AgentSkill]:
        """Yield the skills in the agent's order of precedence: the first of a name wins."""
        root = find_project_root(self.cwd)
        upwards = [place for place in (self.cwd, *self.cwd.parents) if place == root or root in place.parents]
        folders = [
            agent.resolve_path(folder, self.environ, self.home, root)
            for folder in agent.list_skill_folders(ConfigScope.USER)
        ]
        folders += [
            place / folder
            for place in upwards
            if place != self.home
            for folder in agent.list_skill_folders(ConfigScope.PROJECT)
        ]
        for folder in dict.fromkeys(folders):
            if folder.is_dir():
                yield from agent_skills.read_agent_skills(folder)

    def _read_history(self, agent: KnownAgent) -> _AgentHistory:
        """Read all transcripts of the agent and collect requests, skill uses and findings."""
        past = _AgentHistory()
        readers: dict[tuple[Path, str], FailuresAndCorrectionsCollector] = {}
        for number, path in enumerate(agent.find_transcripts(self.environ, self.home), 1):
            self.on_progress(number)
            try:
                for piece in read_pieces(path, self.redactor):
                    key = path, piece.id
                    reader = readers.setdefault(
                        key, FailuresAndCorrectionsCollector(session=piece.id, project=piece.project, file=path.name)
                    )
                    for turn in piece.turns:
                        reader.add_turn(turn)
                        used = frozenset(
                            _canonicalize_skill_name(use.skill) for use in piece.skill_uses if use.turn == turn.id
                        )
                        at = next((parse_iso_timestamp(said.at) for said in turn.utterances if said.at), None)
                        past.uses.update(used)
                        past.requests += [
                            said.text for said in turn.utterances[:1] if not turn.is_sidechain and not used
                        ]
                        past.last_use |= {name: max(at, past.last_use.get(name, at)) for name in used if at}
            except OSError:
                # The file was removed meanwhile, or is not readable for this user.
                continue
        past.found = collect_remedy_findings(reader.build_facts() for reader in readers.values()) if readers else None
        return past

    def _remark_on_idle_skills(
        self, skills: Sequence[agent_skills.AgentSkill], past: _AgentHistory
    ) -> Iterator[agent_skills.AgentRemark]:
        for each in skills:
            last = past.last_use.get(each.name)
            written_on = (each.path / (trees.find_main_file(each.tree) or "")).stat().st_mtime
            # A new skill had no time to be used.
            is_young = self.now.timestamp() - written_on < UNUSED_AFTER.total_seconds()
            is_used = self.now - last < UNUSED_AFTER if last else past.uses[each.name] > 0
            if is_young or is_used:
                continue
            yield agent_skills.AgentRemark(
                topic=agent_skills.RemarkTopic.UNUSED,
                what=f"'{each.name}' was not used for {UNUSED_AFTER.days} days, and takes room in the listing.",
                hint=agent_skills.make_skill_disable_command(each),
            )


def _canonicalize_skill_name(skill: str) -> str:
    # A plugin's skill is written plugin:name.
    return names.canonicalize_name(skill.rpartition(":")[2])


def _is_costly_unsolved_failure(failure: RecurringFailure) -> bool:
    """Whether it never worked and cost enough: more if it was bypassed, is transient or is about the work."""
    if failure.has_worked_later:
        return False
    if failure.can_have_remedy:
        return failure.is_open or failure.minutes >= _MIN_MINUTES
    return failure.sessions >= _MIN_SESSIONS_OF_WORK or failure.minutes >= 2 * _MIN_MINUTES


def _remark_on_failures_and_remedies(found: RemedyFindings, now: datetime) -> Iterator[agent_skills.AgentRemark]:
    taught = {signature for held in found.lessons for signature in held.signatures}
    for held in found.lessons:
        failed = format_quantity(len(held.rows), "failed call")
        cost = f"{wording.describe_frequency_and_last_seen(held, now)}; {failed}, {held.minutes:.1f} min lost"
        yield agent_skills.AgentRemark(
            topic=agent_skills.RemarkTopic.LESSON,
            what=f"{(lesson := wording.describe_remedy_lesson(held))} ({cost})",
            hint="habitus learn --apply",
            is_urgent=held.has_known_condition
            and not (
                held.is_for_failed_lookup_command
                or held.is_in_error
                or held.has_destructive_step
                or held.corrects_the_work
            ),
            about=lesson,
            rows=held.rows,
        )
    again = [each for each in found.failures if each.sessions >= MIN_SESSIONS and each.signature not in taught]
    urgent = set[str]()
    for each in again[:MAX_FAILURES]:
        called = each.command or each.tool
        so_far = ", and nothing has worked" if each.is_open else ""
        said = _PLACEHOLDER.sub("…", each.signature)
        failed = format_quantity(each.calls, "failed call")
        lost = f", {each.minutes:.1f} min lost" if each.minutes else ""
        # A person can't act on how an agent calls its own tools, nor on a test that is red until it is green. Of one
        # command the costliest error is enough: the others are mostly the same failure in other words.
        is_urgent = (
            bool(each.command)
            and not each.is_probe_command
            and _is_costly_unsolved_failure(each)
            and called not in urgent
        )
        urgent |= {called} if is_urgent else set()
        yield agent_skills.AgentRemark(
            topic=agent_skills.RemarkTopic.FAILING,
            what=f"`{called}` keeps failing{so_far}: {said} ({each.sessions} sessions, {failed}{lost}).",
            hint="habitus lessons add 'what to do instead'",
            is_urgent=is_urgent,
            about=f"{called}: {each.signature}",
            rows=each.rows,
        )
    for rule in found.rules:
        if rule.is_worth_proposing:
            said = wording.describe_frequency_and_last_seen(rule, now)
            yield agent_skills.AgentRemark(
                topic=agent_skills.RemarkTopic.RULE,
                what=f"{rule.correction.text} ({said})",
                hint="habitus learn --apply",
                is_urgent=rule.sessions >= MIN_SESSIONS,
                about=rule.correction.text,
                rows=rule.rows,
            )
