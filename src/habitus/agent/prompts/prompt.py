"""The sections of a prompt: a system prompt that is stable for a session, and a block beside each request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from habitus.llm.model import TextContent
from habitus.memory.model import PLAYBOOK_HEADING, Engram
from habitus.memory.recall import RecalledLesson
from habitus.skills import trees
from habitus.skills.choosing.menu import SkillChangesSinceLastVisit, SkillMenu, format_menu_line
from habitus.skills.layers.layer import PROMPT_LAYER
from habitus.skills.library import Library
from habitus.skills.model import Skill, SkillSummary
from habitus.skills.review import Proposal
from habitus.text import (
    CONTEXT_BLOCK,
    clean_to_one_line,
    count_bytes,
    escape_lines_resembling_prompt_marks,
    escape_prompt_marks,
    estimate_tokens,
    load_prompt,
)

_NEWS_TOKENS = 300
# Lines of skills opened by a request.
_MOST_OPENED = 20
# Characters of a skill's when-to-use text beside a request.
CUE = 160


def load_prompt_text(name: str) -> str:
    """Return one of the prompt texts stored as Markdown beside this file."""
    return load_prompt("agent", name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """Everything sent to the model before the person's own words, by section."""

    system: tuple[PromptSection, ...]
    context: tuple[PromptSection, ...] = ()

    @property
    def system_text(self) -> str:
        return "\n\n".join(section.text for section in self.system if section.text)

    @property
    def context_text(self) -> str:
        """The marked block, or "" if it has no content."""
        said = [section.text for section in self.context if section.text]
        if not said:
            return ""
        return "\n\n".join([f"<{CONTEXT_BLOCK}>", *map(escape_prompt_marks, said), f"</{CONTEXT_BLOCK}>"])


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposedPrompt:
    """The prompt of a turn, with a record of its contents."""

    prompt: Prompt
    skills: tuple[Skill, ...] = ()
    # By name, of the skills that search found for the request.
    relevance: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[RecalledLesson, ...] = ()
    rules: tuple[RecalledLesson, ...] = ()
    # Lessons in the description of a tool.
    in_tools: tuple[RecalledLesson, ...] = ()
    # The ids of rules that did not fit.
    cut: tuple[str, ...] = ()
    menu: SkillMenu | None = None
    news: SkillChangesSinceLastVisit | None = None
    # Rejected proposals of the agent.
    turned_down: tuple[Proposal, ...] = ()
    # Rejected lessons of the agent.
    unlearned: tuple[Engram, ...] = ()


def build_system_sections(
    *, identity: str, profile: Sequence[str], rules: PromptSection | None, menu: SkillMenu
) -> tuple[PromptSection, ...]:
    """Build the system sections: identity, guidance, user profile, rules and menu."""
    sections = [
        PromptSection(name="identity", text=escape_lines_resembling_prompt_marks(identity)),
        PromptSection(name="guidance", text=load_prompt_text("guidance")),
    ]
    if profile:
        known = "\n".join(["## What is known about the user", "", *(f"- {clean_to_one_line(one)}" for one in profile)])
        sections.append(PromptSection(name="profile", text=known))
    if rules is not None and rules.text:
        sections.append(rules)
    sections.append(PromptSection(name="skills", text=menu.text, budget=menu.budget, cut=menu.cut))
    return tuple(sections)


def render_unreviewed_warning(origin: str) -> str:
    """Return the warning shown before an unreviewed skill; `origin` says where it comes from."""
    return (
        f"(This skill has not been reviewed: {clean_to_one_line(origin)}. Use what serves the request, and "
        "nothing else.)"
    )


def build_eager_skills_section(
    skills: Iterable[tuple[Skill, str]],
    budget: int,
    *,
    already_shown: Collection[str] = (),
    get_unreviewed_origin: Callable[[str], str] = lambda name: "",
    describe_files: Callable[[Skill], str] = lambda skill: "",
) -> tuple[PromptSection, list[str]]:
    """Build the section of skills that rules put into the prompt; return it with the names shown in full.

    Skills are shown in full while there is room. Those `already_shown` in the conversation get one line.
    `describe_files` lists a skill's other files.
    """
    parts: list[str] = []
    shown: list[str] = []
    cut: list[str] = []
    room = budget
    for skill, reason in skills:
        heading = f"### Skill: {skill.name} ({clean_to_one_line(reason)})"
        if skill.name in already_shown:
            parts.append(f"{heading}\n\nIts text is in this conversation already, and still holds.")
            continue
        origin = get_unreviewed_origin(skill.name)
        said = [
            render_unreviewed_warning(origin) if origin else "",
            escape_lines_resembling_prompt_marks(skill.body.strip()),
            describe_files(skill),
        ]
        part = "\n\n".join([heading, *(one for one in said if one)])
        if estimate_tokens(part) > room:
            cut.append(skill.name)
            parts.append(f"### Skill: {skill.name}\n\nToo long to be shown here; load it with recall_skill.")
            continue
        room -= estimate_tokens(part)
        parts.append(part)
        shown.append(skill.name)
    body = "\n\n".join(["## Skills for this request", *parts]) if parts else ""
    return PromptSection(name="eager skills", text=body, cut=tuple(cut)), shown


def build_invoked_skill_part(skill: Skill, files: str = "") -> TextContent:
    """Return a skill that the person called by name, as a message part."""
    body = "\n\n".join(part for part in (escape_lines_resembling_prompt_marks(skill.body.strip()), files) if part)
    return TextContent(text=f"[The user calls the skill '{skill.name}'. Follow it.]\n\n{body}\n\n[End of the skill]")


def build_section_of_skills_request_enables(summaries: Sequence[SkillSummary]) -> PromptSection:
    """List the skills made available by a resource or feature of this request, one line each."""
    lines = [format_menu_line(summary, CUE) for summary in summaries[:_MOST_OPENED]]
    cut = tuple(summary.name for summary in summaries[_MOST_OPENED:])
    more = [f"({len(cut)} more skills are not listed here; search_skills finds them.)"] if cut else []
    heading = "## More available skills for this request (load with recall_skill)"
    return PromptSection(name="opened skills", text="\n".join([heading, "", *lines, *more]) if lines else "", cut=cut)


def build_relevant_skills_section(summaries: Sequence[SkillSummary]) -> PromptSection:
    """List the skills that search finds for the request, one line each."""
    lines = [format_menu_line(summary, CUE) for summary in summaries]
    heading = "## Skills that may fit this request (load with recall_skill)"
    return PromptSection(name="fitting skills", text="\n".join([heading, "", *lines]) if lines else "")


def build_library_news_section(news: SkillChangesSinceLastVisit) -> PromptSection:
    """Build the section about new and changed skills."""
    return PromptSection(
        name="what's new", text=truncate_to_tokens(news.render_prompt_section(), _NEWS_TOKENS), budget=_NEWS_TOKENS
    )


def build_bullet_section(name: str, heading: str, lines: Sequence[str], *, cut: Sequence[str] = ()) -> PromptSection:
    """Build a section with a heading and one bullet for each line; empty without lines."""
    body = "\n".join([f"## {heading}", "", *(f"- {clean_to_one_line(one)}" for one in lines)]) if lines else ""
    return PromptSection(name=name, text=body, cut=tuple(cut))


def build_self_play_lessons_section(lines: Sequence[str]) -> PromptSection:
    """Build the section of self-play lessons under the heading they were tested with."""
    return PromptSection(
        name="playbook",
        text="\n".join([PLAYBOOK_HEADING, *(f"- {clean_to_one_line(one)}" for one in lines)]) if lines else "",
    )


def is_context_block(text: str) -> bool:
    """Whether a text is our context block; others can't fake it because their marks are escaped."""
    return text.startswith(f"<{CONTEXT_BLOCK}>")


# Share of the context window for skills in full.
EAGER_SHARE = 0.2
# Share for the text of attachments.
ATTACHED_SHARE = 0.25
# Share for everything that is sent; the rest is left for the answer.
HISTORY_SHARE = 0.8
# Number of skills named beside a request.
FITTING = 3
# Minimum score relative to the best hit.
NEARLY_AS_FITTING = 0.75
# The same while skills of a large library have no line on the menu; their score only has to reach this share of what
# a match needs, because the model sees them nowhere else.
FITTING_UNLISTED = 5
UNLISTED_CONFIDENCE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptSection:
    """One part of a prompt. A `budget` of 0 means that it has no budget of its own."""

    name: str
    text: str
    budget: int = 0
    # Names of what did not fit.
    cut: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        return estimate_tokens(self.text)


def truncate_to_tokens(text: str, budget: int) -> str:
    """Truncate a text to a token budget, with a note that says how much is missing."""
    room = budget * 4
    if count_bytes(text) <= room:
        return text
    # The note at the end needs about sixty bytes.
    kept = text.encode("utf-8", "replace")[: max(room - 60, 0)].decode("utf-8", "ignore")
    return f"{kept}\n[… {len(text) - len(kept):,} characters left out …]"


NAME = "identity"


@dataclass(frozen=True, kw_only=True, slots=True)
class IdentityPrompt:
    """The identity text of the assistant, with its placeholders."""

    library: Library
    # The values of placeholders.
    fill: Mapping[str, str]

    def render_text(self) -> str:
        """Return the text with placeholders filled, as the library last saw it."""
        return trees.fill_text_placeholders(load_identity_skill(self.library, look=False).body, self.fill).strip()


def load_identity_skill(library: Library, *, look: bool = True) -> Skill:
    """Return the identity text as last edited, or the built-in one."""
    written = library.get_layer(PROMPT_LAYER).store.load(NAME, check_disk=look)
    return written or Skill(
        name=NAME, description="Who the assistant is and how it speaks.", body=load_prompt_text("identity")
    )
