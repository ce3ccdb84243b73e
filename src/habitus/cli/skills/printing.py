"""Listings and skills in words."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from habitus.cli import inputs, output
from habitus.search import Results
from habitus.skills.editable_fields import EDITABLE
from habitus.skills.layers.listing import Listed, ShownSkill, SkillPage
from habitus.skills.lifecycle import is_judged
from habitus.skills.model import Counters, Severity, Skill, State
from habitus.text import one_line

NO_SKILLS = "There are no skills yet. Write one: habitus skills new NAME"


def print_found(results: Results, cues: Mapping[str, str], *, wide: bool) -> None:
    """Print the skills found for a request; `cues` say when to use each."""
    if not results.hits:
        output.say("Nothing matches.")
        return
    if not results.fits:
        output.say("Nothing fits well; the nearest:", style="yellow")
    rows = []
    for hit in results.hits:
        made_of = ", ".join(f"{name} {value:+.2f}" for name, value in list(hit.parts.items())[:3])
        rows.append((hit.id, f"{hit.score:.2f}", cues.get(hit.id, ""), made_of))
    columns = ("name", "score", "use it", "made of") if wide else ("name", "score", "use it")
    output.table(columns, [row[: len(columns)] for row in rows], wide="use it", is_cut=not wide)


def print_page(page: SkillPage, *, wide: bool, empty: str = NO_SKILLS) -> None:
    found = [entry.item for entry in page.skills]
    if not found:
        output.say(empty)
        return
    columns = {
        "name": [item.name for item in found],
        "state": [item.state for item in found],
        "layer": [item.layer for item in found],
        "version": [f"v{item.summary.version}" if item.summary else "" for item in found],
    }
    counters = [entry.counters for entry in page.skills]
    if wide:
        columns |= {
            "shown": [each.recommended for each in counters],
            "used": [each.used for each in counters],
            "succeeded": [each.succeeded for each in counters],
            "failed": [each.failed for each in counters],
            "last used": [inputs.show_moment(each.last_used) if each.last_used else "" for each in counters],
        }
    elif any(each.used for each in counters):
        columns["used"] = [each.used or "" for each in counters]
    columns["use it"] = [_in_a_line(item) for item in found]
    output.table(tuple(columns), list(zip(*columns.values(), strict=True)), wide="use it", is_cut=not wide)
    output.say_more(len(found), page.total, page.next)


def _in_a_line(item: Listed) -> str:
    """Why it can't be used, or what for, and its triggers; before that, what a person should see."""
    risks = sum(found.severity is Severity.RISK for found in item.diagnostics)
    notes = [f"({output.count_of(risks, 'finding')}: see 'skills show')"] if risks else []
    notes += [f"(the copy in {layer} waits for 'habitus trust {item.name}@{layer}')" for layer in item.waiting]
    told = (item.reason if item.state is not State.OK else "") or (item.summary.cue if item.summary else "")
    triggers = item.summary.manifest.triggers if item.summary else ()
    return " ".join([*notes, told, *([f"(triggers: {', '.join(triggers)})"] if triggers else [])])


def print_skill(shown: ShownSkill, skill: Skill) -> None:
    item, files = shown.item, shown.files
    facts = [
        ("name", f"{skill.name}@{item.layer}"),
        ("state", f"{item.state}: {item.reason}" if item.reason else item.state.value),
        *((field.noun, field.text(skill)) for field in EDITABLE),
        ("triggers", ", ".join(skill.manifest.triggers)),
        ("source", skill.source.value),
        ("from", shown.origin),
        ("version", f"{skill.version} of {inputs.show_moment(skill.modified_on)}"),
        ("stages", ", ".join(sorted(skill.stages))),
        ("files", ", ".join(files)),
        ("waits", ", ".join(f"{skill.name}@{layer} (see 'habitus trust')" for layer in item.waiting)),
        ("used", _describe_uses(shown.counters)),
        ("known", " ".join(shown.known)),
        ("told", "; ".join(shown.told)),
        ("lacks", " ".join(shown.lacks)),
        ("hides", ", ".join(f"{skill.name}@{layer}" for layer in item.hidden)),
        ("inert", f"{', '.join(item.inert)}: counts once you run 'habitus trust {skill.name}'" if item.inert else ""),
    ]
    width = max(len(label) for label, _ in facts)
    for label, value in facts:
        if value:
            output.say(f"{label:<{width}}  {one_line(value)}")
    for diagnostic in item.diagnostics:
        output.say(f"{diagnostic.severity.value:<{width}}  {diagnostic}", style="yellow")
    output.say()
    if sys.stdout.isatty():
        from rich.markdown import Markdown  # takes a tenth of the time of a whole command

        output.console().print(Markdown(output.clean(skill.body)))
    else:
        output.say(skill.body)


def _describe_uses(counters: Counters) -> str:
    """How a skill has fared, in words."""
    if counters == Counters():
        return ""
    last = f", last {inputs.show_moment(counters.last_used)}" if counters.last_used else ""
    judged = f"succeeded {counters.succeeded}, failed {counters.failed}" if is_judged(counters) else "not judged yet"
    return f"shown {output.count_of(counters.recommended, 'time')}, used {counters.used}: {judged}{last}"
