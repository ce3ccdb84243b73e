"""Labels and phrases of the web page for states, sources, outcomes and results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from habitus.agent.choosing.placement_explanation import SkillPlacementExplanation
from habitus.agent.stream import Consent
from habitus.app.conversations.past_sessions import TurnDetails
from habitus.events import OutcomeKind
from habitus.evidence.findings import ItemFinding, ItemVerdict, WithholdingForecast
from habitus.evidence.model import EffectEstimate
from habitus.jobs.model import Job, JobState
from habitus.journal.model import SelectedSkill, SkillPlacementKind, Turn
from habitus.journal.usage import UseVerdict, decide_use_verdict
from habitus.memory.model import Engram, LessonKind, LessonProducer, LessonScope, TrustLevel
from habitus.recipes.catalogue import RecipeStatus
from habitus.recipes.execution import RecipeParameter
from habitus.settings import DAYS, SCHEDULE_PATTERN
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.model import ActorKind, Author, SkillSource, SkillState, Stage
from habitus.skills.proposals import AGENT_INITIATED
from habitus.skills.review import ProposalAction
from habitus.skills.sources.importing import ImportVerdict as ImportVerdict
from habitus.text import format_dollars, format_quantity
from habitus.tools.model import ToolStatus
from habitus.use_counts import UsageCounts
from habitus.web.site_map import remove_cli_commands

STATES = {
    SkillState.OK: "on",
    SkillState.DISABLED: "off",
    SkillState.GATED: "requirements not met",
    SkillState.HELD: "needs review",
    SkillState.UNTRUSTED: "not trusted yet",
    SkillState.BROKEN: "broken",
}
SOURCES = {
    SkillSource.USER: "yours",
    SkillSource.AGENT: "learned",
    SkillSource.BUNDLED: "came with Habitus",
    SkillSource.OPERATOR: "from your operator",
    SkillSource.IMPORTED: "imported",
}
STAGES = {Stage.STEPS: "steps", Stage.CHUNKS: "recipes", Stage.CODE: "tested tool"}
KINDS = {kind: kind.label for kind in LessonKind}
SCOPES = {
    LessonScope.USER: "for you",
    LessonScope.PROJECT: "for one project",
    LessonScope.WORKSPACE: "for this place",
    LessonScope.GLOBAL: "for all users",
}
PRODUCERS = {
    LessonProducer.USER: "added by you",
    LessonProducer.MODEL: "added by an agent",
    LessonProducer.DETECTOR: "detected while an agent worked",
    LessonProducer.CEREBELLUM: "learned from an error",
    LessonProducer.DREAM: "learned in self-play",
    LessonProducer.IMPORT: "imported",
    LessonProducer.TRANSCRIPTS: "learned from past conversations",
}
TRUSTS = {
    TrustLevel.USER: "confirmed by you",
    TrustLevel.VERIFIED: "verified: a trial showed that it helps",
    TrustLevel.AUTOMATIC: "not checked",
}
OUTCOMES = {OutcomeKind.OK: "succeeded", OutcomeKind.FAILED: "failed", OutcomeKind.INFRA: "interrupted"}
FEEDBACK = {
    UseVerdict.SUCCEEDED: "succeeded",
    UseVerdict.FAILED: "failed",
    UseVerdict.NO_FEEDBACK: "no feedback",
    UseVerdict.WEAK_FAILURE: "corrected by the next request",
    UseVerdict.RAN_WITHOUT_ERROR: "ran without error",
}
# What suggests how a use went, and decides nothing.
UNDECIDED = (UseVerdict.WEAK_FAILURE, UseVerdict.RAN_WITHOUT_ERROR)
ROLES = {
    "viewer": "viewer: can view",
    "reviewer": "reviewer: can view and review",
    "admin": "admin: can change everything",
}
AGENTS = {
    "repl": "chat in a terminal",
    "web": "chat on this page",
    "mcp": "an agent over MCP",
    "api": "a program",
    "claude-code": "Claude Code",
    "cli": "the command line",
}
PLACES = {
    SkillPlacementKind.EAGER: "was read in full",
    SkillPlacementKind.STICKY: "was kept from the previous turn",
    SkillPlacementKind.MENU: "was offered by name",
    SkillPlacementKind.CUT: "was left to the search",
    SkillPlacementKind.LEFT_OUT: "was left out",
    SkillPlacementKind.LOADED: "was opened by the agent",
    SkillPlacementKind.WITHHELD: "was withheld at random, to measure whether it helps",
}
CONSENTS = {
    Consent.YES: "Yes",
    Consent.NO: "No",
    Consent.LATER: "Later, in the Inbox",
    Consent.ALWAYS: "Always for this project",
}
IMPORTED = {
    ImportVerdict.IMPORTED: ("imported", "good"),
    ImportVerdict.UPDATED: ("updated", "good"),
    ImportVerdict.UNCHANGED: ("already here", ""),
    ImportVerdict.HELD: ("needs review", "warn"),
    ImportVerdict.REFUSED: ("refused", "bad"),
}
JOB_STATES = {
    JobState.PENDING: ("pending", ""),
    JobState.RUNNING: ("running", "good"),
    JobState.DONE: ("done", "good"),
    JobState.FAILED: ("failed", "bad"),
    JobState.CANCELLED: ("cancelled", "warn"),
    JobState.DEAD_LETTERED: ("needs attention: failed too often", "bad"),
}
TOOL_STATES = {
    ToolStatus.ACTIVE: ("ready", "good"),
    ToolStatus.DEGRADED: ("failed three times", "bad"),
    ToolStatus.UNAPPROVED: ("needs review", "warn"),
    ToolStatus.OFF: ("off", ""),
    ToolStatus.BROKEN: ("broken", "bad"),
}
RECIPE_STATES = {
    RecipeStatus.ACTIVE: "ready",
    RecipeStatus.BROKEN: "broken",
    RecipeStatus.INERT: "not trusted yet",
    RecipeStatus.OFF: "off",
    RecipeStatus.TAKEN: "its name is taken",
    RecipeStatus.ARCHIVED: "archived: replaced by better ones",
}
PLACES_OF_SKILLS = {
    "user": "Your own",
    "project": "The project Habitus was started in",
    "bundled": "Came with Habitus",
    "operator": "Your operator’s",
    "claude": "Claude’s folder in your home",
    "codex": "Codex’s folder in your home",
    "agents": "The folder that agents share in your home",
}
CHECKS = {
    "command lines": "Skills with a command line",
    "database": "Database",
    "disk": "Disk space",
    "evidence": "Evidence",
    "git": "Git (skills from repositories)",
    "home": "Home directory",
    "jobs": "Background jobs",
    "learning": "Learning",
    "learning tokens": "Tokens spent on learning",
    "memory": "Lessons",
    "model": "Model",
    "search": "Search",
    "settings": "Settings",
    "user": "You",
    "vault": "Secrets",
}
CHECK_PAGES = {
    "jobs": "/automation",
    "layer user": "/skills?state=broken",
    "learning": "/settings",
    "learning tokens": "/settings#learning_tokens",
    "memory": "/lessons",
    "model": "/model",
    "settings": "/settings",
    "vault": "/secrets",
}
VERDICTS = {
    ItemVerdict.PROMOTE: ("helps", "good"),
    ItemVerdict.KEEP: ("does no harm", ""),
    ItemVerdict.DEGRADE: ("doesn't help enough", "warn"),
    ItemVerdict.RETIRE: ("hurts", "bad"),
    ItemVerdict.UNKNOWN: ("not known yet", ""),
}
ACTIONS = {
    ProposalAction.WRITE: "change",
    ProposalAction.REMOVE: "archive",
    ProposalAction.ENABLE: "switch on",
    ProposalAction.DISABLE: "switch off",
    ProposalAction.TASKS: "add tasks for",
}


def get_request_source_id_and_label(source_type: str) -> tuple[str, str]:
    """Return the id and the label of the place where a request came from."""
    return source_type, AGENTS.get(source_type, source_type)


REPORT_ROWS = {
    "metered": "Requests whose tokens are known",
    "priced": "Requests whose price is known",
    "unmetered": "Requests whose cost is not known",
    "without_text": "Requests past their retention",
    "learning": "What learning took",
    "paid": "What learning was paid for",
    "budget": "Daily budget of lessons and scheduled drafts",
}


def describe_turn_tokens_and_cost(usage: Mapping[str, float]) -> str:
    """Return the tokens and the cost of a turn; empty if the agent did not report them."""
    tokens = [(usage.get(f"{name}_tokens"), label) for name, label in (("input", "in"), ("output", "out"))]
    parts = [f"{int(count):,} tokens {label}" for count, label in tokens if count]
    if parts and (cached := usage.get("cached_tokens")):
        parts[0] += f" ({int(cached):,} cached)"
    if (cost := usage.get("cost")) is not None:
        parts.append(format_dollars(cost))
    return ", ".join(parts)


def measure_turn_seconds(view: TurnDetails) -> float | None:
    """Return how many seconds a turn took, or None while it runs."""
    turn = view.turn
    return None if turn.ended_on is None else max((turn.ended_on - turn.started_on).total_seconds(), 0.0)


def get_turn_outcome_label_and_css_class(turn: Turn) -> tuple[str, str]:
    """Return what is known about a turn as label and CSS class."""
    verdict = decide_use_verdict(turn.outcomes)
    if verdict is UseVerdict.NO_FEEDBACK and any(one.kind is OutcomeKind.INFRA for one in turn.outcomes):
        return OUTCOMES[OutcomeKind.INFRA], "warn"
    return FEEDBACK[verdict], {UseVerdict.SUCCEEDED: "good", UseVerdict.FAILED: "bad"}.get(verdict, "")


def describe_offer_effect(effect: EffectEstimate) -> str:
    """Return the effect of offering an item as a sentence."""
    value, low, high = (_format_signed_share_of_100(each) for each in (effect.value, effect.low, effect.high))
    return f"{value} per 100 conversations ({low} to {high}): {get_effect_label_and_css_class(effect)[0]}"


def get_effect_label_and_css_class(effect: EffectEstimate) -> tuple[str, str]:
    """Return what is known about an effect as label and CSS class: a direction only if the whole interval agrees."""
    return (
        ("helps so far", "good")
        if effect.low > 0
        else ("hurts so far", "bad")
        if effect.high < 0
        else ("not known yet", "")
    )


def _format_signed_share_of_100(share: float) -> str:
    """Return a share with its sign, as whole numbers; with a decimal where the sign would be lost."""
    return f"{100 * share:+.0f}" if round(100 * share) else f"{100 * share:+.1f}"


_DURATIONS = (("day", 86_400), ("hour", 3_600), ("minute", 60))


def describe_job_time_left(job: Job) -> str:
    """Return about how long a job still takes; empty until its worker has finished a part."""
    # Only parts of the current run count: earlier ones may have run on another machine.
    done = job.parts_done - job.parts_done_at_start
    if not (job.parts_total and done > 0 and job.begun_on and job.changed_on and job.state is JobState.RUNNING):
        return ""
    seconds = (job.changed_on - job.begun_on).total_seconds() / done * (job.parts_total - job.parts_done)
    name, length = next(((name, length) for name, length in _DURATIONS if seconds >= length), ("minute", 60))
    return f"about {format_quantity(max(1, round(seconds / length)), name)} left"


def split_schedule_into_form_values(when: str) -> tuple[str, str]:
    """Return a schedule as form values: off, hourly, daily or a weekday, and the time."""
    found = re.fullmatch(SCHEDULE_PATTERN, when)
    at = f"{int(found['hour'] or 0):02}:{int(found['minute'] or 0):02}" if found and found["hour"] else "03:00"
    if when.startswith("weekly"):
        return (found["day"] if found and found["day"] else DAYS[0]), at
    return when.partition(" ")[0], at


def get_doctor_check_label(name: str) -> str:
    """Return the label of a doctor check; parts of the sandbox keep their names."""
    kind, _, part = name.partition(" ")
    match kind:
        case "layer":
            return f"Skills: {PLACES_OF_SKILLS.get(part, part).lower()}"
        case "sandbox:":
            return f"Sandbox: {part}"
    return CHECKS.get(name, name.capitalize())


def describe_job_result(result: object) -> str:
    """Return a job's result in words."""
    if not isinstance(result, Mapping):
        return str(result)
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in result.items())


def describe_author(author: Author) -> str:
    """Return who made a change."""
    match author.actor:
        case ActorKind.DISK:
            return "changed on disk"
        case ActorKind.USER:
            return author.name or "you"
        case ActorKind.AGENT:
            return f"an agent ({author.name})" if author.name else "an agent"
        case ActorKind.JOB:
            return f"Habitus ({author.name})" if author.name else "Habitus"


def describe_skill_uses(counters: UsageCounts) -> str:
    """Return how often a skill was used and how often it succeeded."""
    return "".join(text for text, _ in list_parts_of_use_sentence(counters))


def list_parts_of_use_sentence(counters: UsageCounts) -> list[tuple[str, str]]:
    """Return the parts of the sentence about the uses of a skill, each with the name of the count that it states."""
    if not counters.used:
        return [("not used yet", "")]
    parts = [("used ", ""), (format_quantity(counters.used, "time"), "used")]
    for name in (UseVerdict.SUCCEEDED, UseVerdict.FAILED, UseVerdict.NO_FEEDBACK):
        if count := getattr(counters, name):
            parts += [(": " if len(parts) == 2 else ", ", ""), (f"{count:,} {FEEDBACK[name]}", name.value)]
    # Part of no feedback; they decide nothing.
    signs = [name for name in UNDECIDED if getattr(counters, name)]
    for name in signs:
        before = " (" if name is signs[0] else ", "
        parts += [(before, ""), (f"{getattr(counters, name):,} {FEEDBACK[name]}", name.value)]
    return [*parts, (")", "")] if signs else parts


def describe_effect_interval(effect: EffectEstimate) -> str:
    """Return a skill's effect with its confidence interval as a sentence."""
    value, low, high = (_format_difference_per_hundred(share) for share in (effect.value, effect.low, effect.high))
    return f"Of 100 conversations, {value} succeed with it (between {low} and {high})"


def _format_difference_per_hundred(share: float) -> str:
    return f"{abs(100 * share):.0f} {'fewer' if share < 0 else 'more'}"


def describe_finding_with_link(found: ItemFinding) -> Markup:
    """Return what is known about an item, without its token cost; the number of conversations is a link to them."""
    sentence = re.sub(r" Costs [\d,.]+ tokens a turn\.", "", found.sentence)
    address = found.links.get("sentence", "").replace("/evidence/rows", "/insights/evidence", 1)
    before, number, after = (
        re.split(r"([\d,]+ conversations?)", sentence, maxsplit=1) if address else (sentence, "", "")
    )
    return Markup('{}<a href="{}">{}</a>{}').format(before, address, number, after)


def remove_fingerprint_from_capability(told: str) -> str:
    """Return a capability without the fingerprint of its file."""
    return re.sub(r" \([0-9a-f]{16}\)$", "", told)


def describe_time_to_known_effect(plan: WithholdingForecast) -> str:
    """Return how long it takes until an item's effect is known."""
    if plan.missing is None:
        return "The effect can't be measured while every conversation gets it. Withhold some offers in Settings."
    if plan.days is not None and not plan.is_waiting_time_practical:
        return (
            f"Withholding can't answer this at this pace; 'habitus skills trial' can, for about "
            f"{format_quantity(plan.trials, 'trial')}."
        )
    about = f"About {format_quantity(plan.missing, 'more conversation')} with feedback are needed"
    return (
        f"{about}."
        if plan.days is None
        else f"{about}, some {format_quantity(max(1, round(plan.days)), 'day')} at this rate."
    )


def describe_recipe_runs(counts: UsageCounts) -> Markup:
    """Return how often a recipe ran and succeeded, as a phrase with links to the runs."""
    run, succeeded = (
        Markup('<a href="{}">{}</a>').format(counts.links[name], text)
        for name, text in (
            ("used", format_quantity(counts.used, "time")),
            ("succeeded", f"{counts.succeeded} succeeded"),
        )
    )
    return Markup("run {}, {}").format(run, succeeded)


def make_recipe_argument_template(parameters: Sequence[RecipeParameter]) -> dict[str, object]:
    """Return a recipe's parameters as arguments to fill in."""
    return {one.name: "" if one.default is None else one.default for one in parameters}


def describe_when_to_use_or_problem(item: ListedSkill) -> str:
    """Return when to use a skill, or why it can't be used."""
    if item.state in (SkillState.OK, SkillState.DISABLED) and item.summary is not None:
        return item.summary.when_to_use_line
    return describe_pending_reason(remove_cli_commands(item.reason))


def capitalise_first(text: str) -> str:
    """Return a text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def describe_lesson_scope(engram: Engram) -> str:
    """Return who a lesson applies to."""
    owner = f" ({engram.owner})" if engram.owner and engram.scope is LessonScope.PROJECT else ""
    return SCOPES[engram.scope] + owner


def describe_selection_reason(reason: str) -> str:
    """Return why a skill was selected, with selection rules in words."""
    kind, _, value = reason.partition("=")
    said = {
        "always_include": "it is always included",
        "source_type": f"the request comes from {value}",
        "file_type": f"a .{value} file is attached",
        "path": f"the work is about {value}",
        "sticky": "it was used in the previous turn",
        "sticky_reply": "it was used in the turn being answered",
        "companion_of": f"{value} includes it",
        "excluded_by": f"{value} excludes it",
    }
    return said.get(kind, reason)


def describe_skill_placement(selected: SelectedSkill) -> str:
    """Return where a turn placed a skill and why; of one that was opened, how relevant search found it."""
    place, reason = PLACES[selected.place], describe_selection_reason(selected.reason)
    why = reason.partition("; ")[2] if selected.place is SkillPlacementKind.LOADED else reason
    return f"{place}{', ' if selected.place is SkillPlacementKind.LOADED else ': '}{why}" if why else place


def list_placement_explanation_sentences(why: SkillPlacementExplanation) -> list[str]:
    """Return whether a request would select a skill, and why, one sentence each."""
    lines = [_summarise_use_likelihood(why)]
    if why.place in (SkillPlacementKind.EAGER, SkillPlacementKind.STICKY, SkillPlacementKind.LEFT_OUT):
        lines.append(f"Because {describe_selection_reason(why.reason)}.")
    if why.rank is not None:
        lines.append(f"It ranks number {why.rank} of all skills for this request.")
    elif why.place is not SkillPlacementKind.LEFT_OUT:
        lines.append("Nothing in it matches this request. Describe such requests under “When to use it”.")
    return lines


def _summarise_use_likelihood(why: SkillPlacementExplanation) -> str:
    """Return in one sentence how likely the agent uses the skill."""
    match why.place:
        case SkillPlacementKind.EAGER | SkillPlacementKind.STICKY:
            return "Yes: the agent reads it in full."
        case SkillPlacementKind.LEFT_OUT | SkillPlacementKind.WITHHELD:
            return "No: it is left out."
        case SkillPlacementKind.CUT:
            return "Possibly: it is not on the menu, but search finds it."
        case SkillPlacementKind.MENU | SkillPlacementKind.LOADED if why.rank == 1 and why.fits:
            return "Very likely: it is the best match, and the agent is told so."
        case SkillPlacementKind.MENU | SkillPlacementKind.LOADED if why.rank is not None and why.rank <= 3 and why.fits:
            return "Possibly: it is offered, but others match better."
        case SkillPlacementKind.MENU | SkillPlacementKind.LOADED:
            return "Unlikely: it is on the menu, but doesn't match the request."


def describe_pending_reason(reason: str) -> str:
    """Return why an item is pending, with internal reasons in words."""
    if reason == AGENT_INITIATED:
        return "the agent suggested this unasked"
    near = reason.removeprefix("near-duplicate of ")
    return reason if near == reason else f"very similar to {near.partition(' ')[0]}"
