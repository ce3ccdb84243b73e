"""Mine the journal: propose recipes and skills for procedures that were repeated.

A sequence of calls becomes a recipe if all its tools are ours, in the skill that its turns used; otherwise it becomes
the steps of a new skill. Similar requests that no skill served become a skill too.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from habitus.agent.history import decode_journal_message
from habitus.app.home import Home, refuse_change_if_unwritable_or_paused
from habitus.app.home_directory import get_encoder_weights_dir
from habitus.app.library import saving
from habitus.app.library.content import describe_near_duplicates
from habitus.errors import HabitusError
from habitus.events import EventKind, OutcomeKind
from habitus.files import Tree, build_tree_file
from habitus.journal.model import SkillPlacementKind, Turn
from habitus.journal.usage import get_deciding_or_heaviest_outcome
from habitus.learning.budget import DEFAULT_PATIENCE_S, RunBudget
from habitus.learning.remedies import calls
from habitus.learning.transcripts.study import StudiedTurn, visit_studied_turns_of_file
from habitus.llm.model import AssistantMessage, ChatMessage, Model, ToolResultMessage
from habitus.recipes.execution import get_recipe_tool_name
from habitus.recipes.mining import (
    MinedRecipe,
    find_index_groups_of_similar_requests,
    mine_recipes,
    render_recipe_as_prose_steps,
)
from habitus.recipes.sequences import MIN_SESSIONS, MIN_TURNS, ComparableToolCall, ObservedTurn
from habitus.redact import MARKER
from habitus.search.index import build_encoder
from habitus.skills import names, trees
from habitus.skills.formats import recipes_md
from habitus.skills.formats.foreign_values import DiagnosticCollector
from habitus.skills.layers.layer import USER_LAYER
from habitus.skills.model import ActorKind, Author, Skill, SkillSource, SkillState
from habitus.skills.review import ProposalAction, ProposalState, SkillChange
from habitus.skills.sources.trust import list_skill_powers
from habitus.text import clean_to_one_line, estimate_tokens, format_quantity

MAX_TURNS = 10_000  # the latest ones
# Outcomes of other agents' turns are unknown, so a procedure must recur in more sessions.
MIN_SESSIONS_ELSEWHERE = 3
# The key under which the details of a proposal name its source.
_MINED_KEY = "mined"
_MAX_SHOWN_RUNS = 3
# Groups of similar requests that become suggestions in one run, the largest first.
_MAX_REQUEST_GROUPS = 5
_MAX_LISTED_REQUESTS = 10
_MAX_DRAFTING_TURNS = 3  # turns shown to a model


class SuggestionKind(StrEnum):
    """Whether a suggestion is a recipe or the steps of a skill."""

    RECIPE = "recipe"
    STEPS = "steps"  # the steps of a skill


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeOrSkillSuggestion:
    """A recipe or skill suggested to the user; `text` is its content, `proposal` its number once proposed."""

    kind: SuggestionKind
    name: str
    skill: str
    evidence: tuple[str, ...]
    turns: tuple[str, ...]
    text: str
    proposal: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcedureMiningReport:
    """The suggestions of a mining run, and why a model stopped drafting."""

    turns: int  # turns examined
    suggestions: tuple[RecipeOrSkillSuggestion, ...]
    stopped: str = ""  # why the model stopped drafting
    spent: str = ""  # tokens and cost, in words


@dataclass(frozen=True, kw_only=True, slots=True)
class _SuggestionWithFiles:
    """A suggestion with the files it would write."""

    suggestion: RecipeOrSkillSuggestion
    layer: str
    tree: Tree
    labels: tuple[str, ...] = ()


class RepeatedProcedureFinder:
    """Finds repeated procedures in the user's journal, or in turns of other agents added with `add_turn`.

    Call `collect_suggestion_drafts`, optionally `draft_skills_with_model` and `propose_all_suggestions`, then
    `make_report`.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._turns: dict[str, Turn] = {}
        self._elsewhere: dict[str, ObservedTurn] = {}
        self._drafts: list[_SuggestionWithFiles] = []
        self._stopped = ""
        self._budget = RunBudget(day=home.spending)
        self._earlier = [
            proposal
            for proposal in home.review.list_proposals_by_state(None, with_contents=False)
            if _MINED_KEY in proposal.change.details and proposal.state is not ProposalState.STALE
        ]
        self._ours = names.BUILT_IN_TOOLS | {tool.callable_name for tool in home.tools.active()}
        self._recipes = home.recipes.list_recipes()
        self._taken = {*self._ours, *(recipe.name for recipe in self._recipes)}

    def add_turns_of_transcripts(self, transcripts: Sequence[Path]) -> None:
        """Add the turns of these transcripts."""
        for path in transcripts:
            visit_studied_turns_of_file(path, self._home.redactor, self.add_turn)

    def add_turn(self, studied: StudiedTurn) -> None:
        """Add a turn of another agent."""
        if len(self._elsewhere) < MAX_TURNS:
            turn, seen = convert_transcript_turn_to_observed(studied, self._home.clock())
            self._turns[turn.id], self._elsewhere[turn.id] = turn, seen

    def collect_suggestion_drafts(self) -> None:
        """Find procedures worth a proposal, without writing anything."""
        done = self._elsewhere or self._convert_journal_turns_to_observed()
        least = MIN_SESSIONS_ELSEWHERE if self._elsewhere else MIN_SESSIONS
        for found in mine_recipes(list(done.values())):
            if (
                len(found.sessions) >= least
                and not self._is_sequence_in_recipe_or_proposed(found)
                and (draft := self._draft_suggestion_from_sequence(found)) is not None
            ):
                self._add_draft_unless_skill_has_one(draft)
        if self._elsewhere:
            # Other agents' transcripts don't say whether a request was served well.
            return
        taken = {turn for draft in self._drafts for turn in draft.suggestion.turns}
        alone = [self._turns[id] for id, one in done.items() if one.ok and one.calls and id not in taken]
        for group in itertools.islice(self._group_recurring_requests_without_skill(alone), _MAX_REQUEST_GROUPS):
            self._add_draft_unless_skill_has_one(self._draft_suggestion_from_requests(group, done))

    def _convert_journal_turns_to_observed(self) -> dict[str, ObservedTurn]:
        recipes = {recipe.name for recipe in self._recipes}
        done: dict[str, ObservedTurn] = {}
        for turn in self._home.journal.iterate_latest_finished_turns(limit=MAX_TURNS, user=self._home.settings.user):
            done[turn.id] = convert_journal_turn_to_observed(turn, without=recipes)
            # Without messages and events: the full text of ten thousand turns would fill the memory.
            self._turns[turn.id] = replace(turn, messages=(), events=())
        return done

    def _add_draft_unless_skill_has_one(self, draft: _SuggestionWithFiles) -> None:
        """Add a draft unless its skill has one: approving the first would make the others stale."""
        waiting = {p.change.name for p in self._earlier if p.state is ProposalState.PENDING}
        if draft.suggestion.skill not in waiting | {other.suggestion.skill for other in self._drafts}:
            self._drafts.append(draft)
            self._taken.add(get_recipe_tool_name(draft.suggestion.name))

    def _is_sequence_in_recipe_or_proposed(self, found: MinedRecipe) -> bool:
        """Whether the sequence is part of a recipe, or was proposed before, with any result."""
        written = [tuple(step.tool for step in recipe.plan.steps) for recipe in self._recipes]
        if any(_contains_sequence(found.tools, tools) for tools in written):
            return True
        return any(
            _contains_sequence(found.labels, one.change.details[_MINED_KEY].get("labels", ())) for one in self._earlier
        )

    def _draft_suggestion_from_sequence(self, found: MinedRecipe) -> _SuggestionWithFiles | None:
        turns = [self._turns[one.turn] for one in found.occurrences]
        used = Counter(name for turn in turns for name in list_skills_chosen_in_turn(turn))
        # A recipe belongs to a skill only if more than half of its turns used that skill.
        skill = next((name for name, count in used.most_common(1) if count * 2 > len(turns)), "")
        evidence = (describe_count_and_dates_of_turns(turns), *_describe_recipe_replays(found))
        if not set(found.tools) <= self._ours:
            if skill:
                return None
            # The tools belong to another agent, so a model has to call them; the skill says which, and with which
            # arguments.
            steps = self._make_skill_from_turns(found.recipe.name, turns, render_recipe_as_prose_steps(found.recipe))
            return _build_skill_suggestion_draft(steps, turns, evidence, found.labels)
        title = found.recipe.name
        names_to_try = itertools.chain([title], (f"{title} {number}" for number in itertools.count(2)))
        name = next(name for name in names_to_try if get_recipe_tool_name(name) not in self._taken)
        recipe = replace(found.recipe, name=name, prose=build_when_to_use_from_requests(turns))
        place = self._find_files_of_own_writable_skill(skill) if skill else None
        layer, before = place or (USER_LAYER, {})
        if place is None:
            made = self._make_skill_from_turns(
                recipe.name,
                turns,
                f"`{get_recipe_tool_name(name)}` does it in one call:\n\n{render_recipe_as_prose_steps(recipe)}",
            )
            skill, before = made.name, trees.update_main_file({}, made)
        chunks = before.get(trees.CHUNKS_FILE)
        written = recipes_md.append_recipe(chunks.content or b"" if chunks is not None else b"", recipe)
        text = recipes_md.render_recipes([recipe]).decode().partition("\n")[2].strip()
        suggestion = RecipeOrSkillSuggestion(
            kind=SuggestionKind.RECIPE,
            name=name,
            skill=skill,
            evidence=evidence,
            turns=tuple(turn.id for turn in turns),
            text=text,
        )
        tree = {**before, trees.CHUNKS_FILE: build_tree_file(written)}
        return _SuggestionWithFiles(suggestion=suggestion, layer=layer, tree=tree, labels=found.labels)

    def _find_files_of_own_writable_skill(self, name: str) -> tuple[str, Tree] | None:
        """Return the layer and files of a skill that can get a recipe.

        None if it is not ours or its recipes are malformed.
        """
        item = self._home.skills.snapshot().by_name.get(names.canonicalize_name(name))
        if item is None or item.summary is None or item.state is not SkillState.OK:
            return None
        is_own = item.summary.source is not SkillSource.IMPORTED and self._home.skills.get_layer(item.layer).can_write
        tree = self._home.skills.read_tree(f"{item.name}@{item.layer}") if is_own else {}
        chunks, notes = tree.get(trees.CHUNKS_FILE), DiagnosticCollector(trees.CHUNKS_FILE)
        recipes_md.parse_recipes(chunks.content or b"" if chunks is not None else b"", notes)
        return (item.layer, tree) if is_own and not notes.diagnostics else None

    def _make_skill_from_turns(self, title: str, turns: Sequence[Turn], body: str) -> Skill:
        waiting = {proposal.change.name for proposal in self._home.review.list_proposals_by_state(with_contents=False)}
        made = {draft.suggestion.skill for draft in self._drafts}
        name = names.make_unique_name(
            title, lambda name: name in waiting | made or self._home.skills.is_name_taken(name)
        )
        described = f"{title[:1].upper()}{title[1:]}, as it was done {len(turns)} times."
        return Skill(
            name=name, title=title, description=described, when_to_use=build_when_to_use_from_requests(turns), body=body
        )

    def _group_recurring_requests_without_skill(self, turns: Sequence[Turn]) -> Iterator[list[Turn]]:
        """Yield groups of similar requests that were often enough served well without a skill."""
        proposed = {turn for one in self._earlier for turn in one.change.details[_MINED_KEY].get("turns", ())}
        without = [turn for turn in turns if turn.request.strip() and not list_skills_chosen_in_turn(turn)]
        for group in find_index_groups_of_similar_requests(
            [turn.request for turn in without],
            build_encoder(self._home.settings.search.encoder, get_encoder_weights_dir(self._home.settings)),
        ):
            members = [without[number] for number in group]
            is_habit = len(members) >= MIN_TURNS and len({turn.session for turn in members}) >= MIN_SESSIONS
            if is_habit and proposed.isdisjoint(turn.id for turn in members):
                yield members

    def _draft_suggestion_from_requests(
        self, turns: Sequence[Turn], done: dict[str, ObservedTurn]
    ) -> _SuggestionWithFiles:
        tools = Counter(tuple(dict.fromkeys(call.name for call in done[turn.id].calls)) for turn in turns)
        ((usual, _),) = tools.most_common(1)
        asked = list(dict.fromkeys(f"- {quote_request(turn)}" for turn in reversed(turns)))[:_MAX_LISTED_REQUESTS]
        used = [f"{number}. `{tool}`" for number, tool in enumerate(usual, 1)]
        body = "\n".join(["Asked for again and again:", "", *asked, "", "What was called, as a rule:", "", *used, ""])
        title = " ".join(clean_to_one_line(turns[-1].request).split()[:6])
        return _build_skill_suggestion_draft(
            self._make_skill_from_turns(title, turns, body),
            turns,
            (describe_count_and_dates_of_turns(turns), "no skill was used"),
        )

    def list_recipe_suggestions_for_skill(self, skill: str) -> list[RecipeOrSkillSuggestion]:
        """Return the recipes found for an existing skill."""
        found = (draft.suggestion for draft in self._drafts)
        return [one for one in found if one.kind is SuggestionKind.RECIPE and one.skill == skill]

    @property
    def suggestions_from_requests(self) -> list[RecipeOrSkillSuggestion]:
        """The suggestions from requests, whose text a model would write better."""
        return [draft.suggestion for draft in self._drafts if not draft.labels]

    @property
    def estimated_tokens_to_send(self) -> int:
        """Roughly the tokens that `draft_skills_with_model` would send."""
        texts = (
            str(m.content) for one in self.suggestions_from_requests for m in self._read_messages_of_turns(one.turns)
        )
        return sum(map(estimate_tokens, texts))

    def _read_messages_of_turns(self, turns: Sequence[str]) -> list[Any]:
        return [kept for id in turns[-_MAX_DRAFTING_TURNS:] for kept in self._home.journal.get_turn(id).messages]

    async def draft_skills_with_model(self, model: Model) -> None:
        """Let a model write the skills found in requests, within the token budget of the day."""
        paid = self._budget.wrap_model(model)
        for number, draft in enumerate(self._drafts):
            if draft.labels or self._stopped:
                continue
            kept = (decode_journal_message(message) for message in self._read_messages_of_turns(draft.suggestion.turns))
            messages: list[ChatMessage] = [message for message in kept if message is not None]
            asked = [quote_request(self._turns[id]) for id in draft.suggestion.turns[-_MAX_LISTED_REQUESTS:]]
            hint = f"How to serve requests like these: {'; '.join(asked)}"
            try:
                skill = await saving.draft_skill_from_messages(
                    self._home, paid, messages, hint, timeout_s=DEFAULT_PATIENCE_S
                )
            except (TimeoutError, HabitusError) as error:
                self._stopped = str(error) or f"{model.name} took too long"
                continue
            turns = [self._turns[id] for id in draft.suggestion.turns]
            evidence = (*draft.suggestion.evidence, f"drafted by {model.name}")
            self._drafts[number] = _build_skill_suggestion_draft(skill, turns, evidence)

    def propose_all_suggestions(self) -> None:
        """Propose everything found to the user."""
        author = Author(actor=ActorKind.JOB, name="mining", reason="recurring procedure")
        refuse_change_if_unwritable_or_paused(self._home, author)
        asked = [replace(draft, suggestion=_add_keep_question(draft.suggestion)) for draft in self._drafts]
        self._drafts = [replace(draft, suggestion=self._propose_draft(draft, author)) for draft in asked]

    def propose_first_recipe_for_skill(self, skill: str, author: Author) -> RecipeOrSkillSuggestion:
        """Propose the first recipe found for a skill, with the author's reason first."""
        draft = next(
            draft for draft in self._drafts if draft.suggestion in self.list_recipe_suggestions_for_skill(skill)
        )
        evidence = (author.reason, *draft.suggestion.evidence)
        return self._propose_draft(replace(draft, suggestion=replace(draft.suggestion, evidence=evidence)), author)

    def _propose_draft(self, draft: _SuggestionWithFiles, author: Author) -> RecipeOrSkillSuggestion:
        name = draft.suggestion.skill
        change = SkillChange(
            action=ProposalAction.WRITE,
            name=name,
            layer=draft.layer,
            tree=draft.tree,
            details={_MINED_KEY: {"labels": draft.labels, "turns": draft.suggestion.turns}},
        )
        new = sorted(str(power) for power in list_skill_powers(name, draft.tree))
        like = describe_near_duplicates(self._home.finder, name, draft.tree)
        reasons = [*draft.suggestion.evidence, *new, *self._home.scan_tree(draft.tree), *like]
        return replace(draft.suggestion, proposal=self._home.review.propose(change, author, reasons).id)

    def make_report(self) -> ProcedureMiningReport:
        """Return the suggestions found so far and the spending."""
        found = tuple(draft.suggestion for draft in self._drafts)
        spent = self._budget.summary if self._budget.requests else ""
        return ProcedureMiningReport(turns=len(self._turns), suggestions=found, stopped=self._stopped, spent=spent)


def _add_keep_question(suggestion: RecipeOrSkillSuggestion) -> RecipeOrSkillSuggestion:
    question = f"you did this {len(suggestion.turns)} times; keep it as a skill?"
    return replace(suggestion, evidence=(question, *suggestion.evidence))


def _build_skill_suggestion_draft(
    skill: Skill, turns: Sequence[Turn], evidence: tuple[str, ...], labels: tuple[str, ...] = ()
) -> _SuggestionWithFiles:
    suggestion = RecipeOrSkillSuggestion(
        kind=SuggestionKind.STEPS,
        name=skill.title or skill.name,
        skill=skill.name,
        evidence=evidence,
        turns=tuple(turn.id for turn in turns),
        text=skill.body,
    )
    return _SuggestionWithFiles(
        suggestion=suggestion, layer=USER_LAYER, tree=trees.update_main_file({}, skill), labels=labels
    )


def _contains_sequence(some: Sequence[str], all: Sequence[str]) -> bool:
    """Whether the first sequence is a contiguous part of the second."""
    return any(tuple(all[at : at + len(some)]) == tuple(some) for at in range(len(all) - len(some) + 1))


def _describe_recipe_replays(found: MinedRecipe) -> list[str]:
    """Describe the latest turns that the recipe was replayed on, with their arguments."""
    runs = []
    for one in found.occurrences[-_MAX_SHOWN_RUNS:]:
        told = {name: value for name, value in one.params.items() if not MARKER.search(str(value))}
        given = clean_to_one_line(json.dumps(told, ensure_ascii=False))[:200]
        runs.append(f"turn {one.turn} with {given}" if told else f"turn {one.turn}")
    return [f"it makes the very calls of all {len(found.occurrences)} again, such as {'; '.join(runs)}"]


# Arguments in which a call describes itself; they differ each time without meaning.
_SELF_DESCRIPTIONS = ("one_line_description", "estimated_execution_time_seconds")
_MAX_SHOWN_REQUESTS, _MAX_REQUEST_CHARS = 3, 100


def convert_journal_turn_to_observed(turn: Turn, *, without: Collection[str] = ()) -> ObservedTurn:
    """Return a turn of the journal as mining sees it, without calls that only look up skills."""
    messages = [message for kept in turn.messages if (message := decode_journal_message(kept)) is not None]
    results = {message.call: message for message in messages if isinstance(message, ToolResultMessage)}
    went_well = {
        str(event.detail.get("id"))
        for event in turn.events
        if event.kind is EventKind.TOOL_RESULT and event.detail.get("success") is True
    }
    done = []
    for call in (call for message in messages if isinstance(message, AssistantMessage) for call in message.calls):
        arguments = _parse_arguments_without_self_descriptions(call.arguments)
        if arguments is None or call.name in names.SKILL_MANAGEMENT_TOOLS or call.name in without:
            continue
        came = results.get(call.id)
        ok, result = (call.id in went_well, came.content) if came is not None else (False, "")
        done.append(ComparableToolCall(name=call.name, arguments=arguments, result=result, success=ok))
    judged = get_deciding_or_heaviest_outcome(turn.outcomes)
    is_good = judged is not None and judged.kind is OutcomeKind.OK
    return ObservedTurn(session=turn.session, turn=turn.id, calls=done, ok=is_good)


def convert_transcript_turn_to_observed(studied: StudiedTurn, now: datetime) -> tuple[Turn, ObservedTurn]:
    """Return a turn of another agent's transcript, both as a journal turn and as mining sees it."""
    turn, made = studied.turn, calls.pair_calls_with_results(studied.turn.events, project=studied.project)
    done = [
        ComparableToolCall(
            name=call.name,
            arguments={"command": call.command} if call.command else call.unshortened_arguments,
            success=call.has_worked and not (call.command or call.arguments_summary).endswith(calls.CUT_MARK),
        )
        for call in made
    ]
    session, id = f"{studied.file.stem} {studied.transcript}", studied.trace
    asked = turn.utterances[0].text if turn.utterances else ""
    kept = Turn(id=id, session=session, request=asked, started_on=calls.parse_iso_timestamp(studied.started_at) or now)
    return kept, ObservedTurn(session=session, turn=id, calls=done, ok=bool(done) and done[-1].success is True)


def _parse_arguments_without_self_descriptions(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return {key: item for key, item in value.items() if key not in _SELF_DESCRIPTIONS}


def list_skills_chosen_in_turn(turn: Turn) -> set[str]:
    """Return the skills that a turn used because of its request."""
    return {
        one.name
        for one in turn.selected
        if one.place is SkillPlacementKind.LOADED
        or (one.place is SkillPlacementKind.EAGER and one.reason != "always_include")
    }


def describe_count_and_dates_of_turns(turns: Sequence[Turn]) -> str:
    """Describe in how many turns and sessions, and when; for example "done in 3 turns of 2 sessions, on 2026-01-05"."""
    days: list[datetime] = sorted(turn.started_on for turn in turns)
    first, last = (f"{day:%Y-%m-%d}" for day in (days[0], days[-1]))
    sessions = format_quantity(len({turn.session for turn in turns}), "session")
    span = f"on {first}" if first == last else f"from {first} to {last}"
    return f"done in {format_quantity(len(turns), 'turn')} of {sessions}, {span}"


def build_when_to_use_from_requests(turns: Sequence[Turn]) -> str:
    """Return a when-to-use text that quotes the latest requests; empty if there are none."""
    said = dict.fromkeys(quote_request(turn) for turn in reversed(turns) if turn.request.strip())
    return f"Requests such as {'; '.join(list(said)[:_MAX_SHOWN_REQUESTS])}." if said else ""


def quote_request(turn: Turn) -> str:
    """Return the request of a turn in quotation marks, shortened."""
    text = clean_to_one_line(turn.request)
    return f"“{text if len(text) <= _MAX_REQUEST_CHARS else text[: _MAX_REQUEST_CHARS - 1] + '…'}”"
