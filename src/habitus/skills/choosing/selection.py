"""Skill selection: one deterministic pass over the summaries for a request, with a reason for each decision.

Eager skills are included in full, the menu has one line for each other eligible skill, and the rest is left out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from habitus.skills import lifecycle, names
from habitus.skills.layers.layer import OWN_LAYERS
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import DEFAULT_MANIFEST, Manifest, SkillSource, SkillState, SkillSummary

# Only in these does a person continue a conversation, so only here are skills sticky.
INTERACTIVE_SOURCES = frozenset({"talk", "email", "repl", "web", "chat"})
STICKY_TURNS = 2
STICKY_FOR = timedelta(minutes=30)


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestUser:
    """The user who made the request."""

    name: str = "local"
    is_admin: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class UserRequest:
    """A request and the circumstances that the selection rules read."""

    text: str
    source_type: str = "repl"
    user: RequestUser = RequestUser()  # frozen
    attachments: tuple[str, ...] = ()  # file names
    paths: tuple[str, ...] = ()  # files that the work is about
    resources: frozenset[str] = frozenset()  # kinds of resources that the user has
    conversation: str = ""
    reply_to: str = ""  # the turn that it directly answers
    features: frozenset[str] = frozenset()
    now: datetime | None = None

    def keep_only_user_and_channel(self) -> UserRequest:
        """Return the request without anything that differs between requests of one user over one channel."""
        return UserRequest(text="", source_type=self.source_type, user=self.user, now=self.now)


@dataclass(frozen=True, kw_only=True, slots=True)
class PriorTurn:
    """An earlier turn, for stickiness: the skills that a rule or the model chose, not those that were kept."""

    id: str
    at: datetime
    succeeded: bool
    skills: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class EagerSkill:
    """A skill included in full, and the reason."""

    summary: SkillSummary
    reason: str
    is_sticky: bool = False  # only here because an earlier turn used it

    @property
    def name(self) -> str:
        return self.summary.name

    @property
    def is_owned_by_user_or_operator(self) -> bool:
        """Whether it belongs to the user or the operator."""
        return self.summary.layer in OWN_LAYERS and self.summary.source is not SkillSource.IMPORTED

    def __str__(self) -> str:
        return f"{self.name}({self.reason})"


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillSelection:
    """The result of the selection: skills in full, skills on the menu, and those left out with the reason."""

    eager: tuple[EagerSkill, ...] = ()
    menu: tuple[SkillSummary, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)  # name → reason

    @property
    def excludes_lessons(self) -> bool:
        """Whether a selected skill excludes lessons."""
        return any(choice.summary.manifest.exclude_memory for choice in self.eager)

    @property
    def excludes_rules_and_profile(self) -> bool:
        """Whether rules and profile are excluded too, which only the user's or operator's skills may ask for."""
        return any(
            choice.is_owned_by_user_or_operator and choice.summary.manifest.exclude_memory for choice in self.eager
        )

    @property
    def excludes_persona(self) -> bool:
        """Whether a skill of the user or operator excludes the persona."""
        return any(
            choice.is_owned_by_user_or_operator and choice.summary.manifest.exclude_persona for choice in self.eager
        )

    def list_eligible_names(self) -> set[str]:
        """Return the names of all skills that the model may use, in full or on demand."""
        return {choice.name for choice in self.eager} | {summary.name for summary in self.menu}

    def __str__(self) -> str:
        chosen = ", ".join(map(str, self.eager)) or "none"
        return f"selection count={len(self.eager)}: {chosen}; skills: eager={len(self.eager)} menu={len(self.menu)}"


def select_skills(
    listing: Sequence[ListedSkill],
    request: UserRequest,
    context: GateContext,
    *,
    prior: Sequence[PriorTurn] = (),
    replied_to: PriorTurn | None = None,
) -> SkillSelection:
    """Select the skills for a request: eager rules in order, then companions, then exclusions; the rest is the
    menu.
    """
    gates = replace(context, is_admin=request.user.is_admin, features=context.features | request.features)
    eligible, left_out = _split_by_gates(listing, gates)
    eager: dict[str, EagerSkill] = {}
    # Most skills have the default manifest and no rule concerns them.
    asking = [summary for summary in eligible.values() if summary.manifest is not DEFAULT_MANIFEST]
    _add_skills_matching_rules(asking, request, eager)
    for name, reason in _find_sticky_skills(request, prior, replied_to).items():
        if name in eligible and name not in eager:
            eager[name] = EagerSkill(summary=eligible[name], reason=reason, is_sticky=True)
    # After stickiness, so a sticky skill brings its companions, too.
    _add_companions(eligible, eager)
    left_out |= _apply_exclusions(eligible, eager)
    left_out |= _list_hidden_from_model(asking, request, eager)
    menu = tuple(eligible[name] for name in eligible if name not in eager and name not in left_out)
    return SkillSelection(eager=tuple(eager.values()), menu=menu, left_out=left_out)


UNUSABLE_STATES = frozenset({SkillState.BROKEN, SkillState.UNTRUSTED, SkillState.HELD})


def _split_by_gates(items: Sequence[ListedSkill], gates: GateContext) -> tuple[dict[str, SkillSummary], dict[str, str]]:
    """Return the skills whose gates are open for this request, and why the others are not."""
    eligible: dict[str, SkillSummary] = {}
    left_out: dict[str, str] = {}
    disabled = gates.disabled
    ok, plain = SkillState.OK, DEFAULT_MANIFEST
    for item in items:
        summary = item.summary
        # The common case first: thousands of plain skills pass with one condition.
        if summary is not None and summary.manifest is plain and item.state is ok and summary.enabled and not disabled:
            eligible[summary.name] = summary
        elif summary is None or item.state in UNUSABLE_STATES:
            left_out.setdefault(item.name, f"{item.state.value}: {item.reason}")
        elif off := lifecycle.explain_disabled(summary, gates):
            left_out[summary.name] = f"disabled: {off}"
        elif closed := lifecycle.list_closed_gates(summary, gates):
            left_out[summary.name] = f"gated: {'; '.join(closed)}"
        else:
            eligible[summary.name] = summary
    return eligible, left_out


def _add_skills_matching_rules(
    asking: Sequence[SkillSummary], request: UserRequest, eager: dict[str, EagerSkill]
) -> None:
    """Apply each rule to all skills before the next rule, so the order of rules decides the reason."""
    endings = {_get_extension(name) for name in request.attachments}
    for rule in ("always_include", "source_types", "file_types", "paths"):
        for summary in [summary for summary in asking if getattr(summary.manifest, rule)]:
            reason = _explain_rule_match(rule, summary.manifest, request, endings)
            if reason and summary.name not in eager:
                eager[summary.name] = EagerSkill(summary=summary, reason=reason)


def _explain_rule_match(rule: str, manifest: Manifest, request: UserRequest, endings: set[str]) -> str:
    """Return why a rule selects a skill; empty if it doesn't."""
    match rule:
        case "always_include":
            return "always_include"
        case "source_types":
            return f"source_type={request.source_type}" if request.source_type in manifest.source_types else ""
        case "file_types":
            kinds = (kind.lower().lstrip(".") for kind in manifest.file_types)
            return next((f"file_type={kind}" for kind in kinds if kind in endings), "")
    paths = [path.removeprefix("./") for path in request.paths]
    found = (pattern for pattern in manifest.paths if any(map(_compile_glob(pattern).fullmatch, paths)))
    return next((f"path={pattern}" for pattern in found), "")


def _get_extension(name: str) -> str:
    _, dot, ending = name.rpartition("/")[-1].rpartition(".")
    return ending.lower() if dot else ""


@functools.lru_cache(maxsize=4096)
def _compile_glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob: `*` stays in one directory, `**` crosses them; a pattern without a slash matches anywhere."""
    pattern = pattern.removeprefix("./")
    if "/" not in pattern:
        pattern = f"**/{pattern}"
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    wild = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(wild.get(part, re.escape(part)) for part in parts), re.DOTALL)


def _find_sticky_skills(
    request: UserRequest, prior: Sequence[PriorTurn], replied_to: PriorTurn | None
) -> dict[str, str]:
    """Return the skills of the last turns of the conversation, and of the turn that is answered, however old."""
    if request.source_type not in INTERACTIVE_SOURCES:
        return {}
    found: dict[str, str] = {}
    recent = sorted(prior, key=lambda turn: turn.at, reverse=True)[:STICKY_TURNS] if request.conversation else []
    for turn in recent:
        age = timedelta(0) if request.now is None else request.now - turn.at
        # A failed turn must not hold on to the skills that may have caused the failure.
        if turn.succeeded and age <= STICKY_FOR:
            for name in turn.skills:
                found.setdefault(names.canonicalize_name(name), f"sticky={turn.id}")
    if replied_to is not None and replied_to.succeeded:
        for name in replied_to.skills:
            found.setdefault(names.canonicalize_name(name), f"sticky_reply={replied_to.id}")
    return found


def _add_companions(eligible: Mapping[str, SkillSummary], eager: dict[str, EagerSkill]) -> None:
    """Add the companions of selected skills, one level deep."""
    for choice in list(eager.values()):
        for name in map(names.canonicalize_name, choice.summary.manifest.companion_skills):
            if name in eligible and name not in eager:
                eager[name] = EagerSkill(summary=eligible[name], reason=f"companion_of={choice.name}")


def _apply_exclusions(eligible: Mapping[str, SkillSummary], eager: dict[str, EagerSkill]) -> dict[str, str]:
    """Remove the skills that selected ones exclude, in order; a companion of a remaining skill is protected."""
    out: dict[str, str] = {}
    for choice in list(eager.values()):
        # A skill that was itself excluded no longer excludes others.
        if choice.name not in eager:
            continue
        protected = {
            names.canonicalize_name(companion)
            for survivor in eager.values()
            for companion in survivor.summary.manifest.companion_skills
        }
        for name in map(names.canonicalize_name, choice.summary.manifest.exclude_skills):
            if name in eligible and name not in protected and name != choice.name:
                eager.pop(name, None)
                out[name] = f"excluded_by={choice.name}"
    return out


def _list_hidden_from_model(
    asking: Sequence[SkillSummary], request: UserRequest, eager: Mapping[str, EagerSkill]
) -> dict[str, str]:
    """Return the eligible skills that the model may not choose, with the reason."""
    out: dict[str, str] = {}
    for summary in asking:
        manifest = summary.manifest
        if summary.name in eager:
            continue
        if manifest.disable_model_invocation:
            out[summary.name] = "only people call it (disable-model-invocation)"
        elif manifest.resource_types and not request.resources.intersection(manifest.resource_types):
            out[summary.name] = f"needs one of the resources {', '.join(manifest.resource_types)}"
    return out


def list_companions(summary: SkillSummary, known: Collection[str]) -> tuple[str, ...]:
    """Return the skills that come along when the model loads this one from the menu."""
    return tuple(name for name in map(names.canonicalize_name, summary.manifest.companion_skills) if name in known)
