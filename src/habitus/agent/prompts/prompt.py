"""The sections of a prompt: a system prompt that is stable for a session, and a block beside each request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from habitus.llm.model import Text
from habitus.memory.model import PLAYBOOK, Engram
from habitus.memory.recall import Recalled
from habitus.skills import trees
from habitus.skills.choosing.menu import Menu, News, line
from habitus.skills.layers.layer import PROMPT
from habitus.skills.library import Library
from habitus.skills.model import Skill, Summary
from habitus.skills.review import Proposal
from habitus.text import BLOCK, block, byte_length, escape_marks, one_line, prompt_text, tokens

_NEWS_TOKENS = 300
# Lines of skills opened by a request.
_MOST_OPENED = 20
# Characters of a skill's when-to-use text beside a request.
CUE = 160


def text(name: str) -> str:
    """Return one of the prompt texts stored as Markdown beside this file."""
    return prompt_text("agent", name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """Everything sent to the model before the person's own words, by section."""

    system: tuple[Section, ...]
    context: tuple[Section, ...] = ()

    @property
    def system_text(self) -> str:
        return "\n\n".join(section.text for section in self.system if section.text)

    @property
    def context_text(self) -> str:
        """The marked block, or "" if it has no content."""
        said = [section.text for section in self.context if section.text]
        if not said:
            return ""
        return "\n\n".join([f"<{BLOCK}>", *map(escape_marks, said), f"</{BLOCK}>"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """The prompt of a turn, with a record of its contents."""

    prompt: Prompt
    skills: tuple[Skill, ...] = ()
    notes: tuple[Recalled, ...] = ()
    rules: tuple[Recalled, ...] = ()
    # Lessons in the description of a tool.
    in_tools: tuple[Recalled, ...] = ()
    # The ids of rules that did not fit.
    cut: tuple[str, ...] = ()
    menu: Menu | None = None
    news: News | None = None
    # Rejected proposals of the agent.
    turned_down: tuple[Proposal, ...] = ()
    # Rejected lessons of the agent.
    unlearned: tuple[Engram, ...] = ()


def system(*, identity: str, profile: Sequence[str], rules: Section | None, menu: Menu) -> tuple[Section, ...]:
    """Build the system sections: identity, guidance, user profile, rules and menu."""
    sections = [Section(name="identity", text=block(identity)), Section(name="guidance", text=text("guidance"))]
    if profile:
        known = "\n".join(["## What is known about the user", "", *(f"- {one_line(one)}" for one in profile)])
        sections.append(Section(name="profile", text=known))
    if rules is not None and rules.text:
        sections.append(rules)
    sections.append(Section(name="skills", text=menu.text, budget=menu.budget, cut=menu.cut))
    return tuple(sections)


def introduce(origin: str) -> str:
    """Return the warning shown before an unreviewed skill; `origin` says where it comes from."""
    return f"(Nobody has reviewed this skill: {one_line(origin)}. Use what serves the request, and nothing else.)"


def eager(
    skills: Iterable[tuple[Skill, str]],
    budget: int,
    *,
    already: Collection[str] = (),
    unreviewed: Callable[[str], str] = lambda name: "",
    files: Callable[[Skill], str] = lambda skill: "",
) -> tuple[Section, list[str]]:
    """Build the section of skills that rules put into the prompt; return it with the names shown in full.

    Skills are shown in full while there is room. Those `already_shown` in the conversation get one line.
    `describe_files` lists a skill's other files.
    """
    parts: list[str] = []
    shown: list[str] = []
    cut: list[str] = []
    room = budget
    for skill, reason in skills:
        heading = f"### Skill: {skill.name} ({one_line(reason)})"
        if skill.name in already:
            parts.append(f"{heading}\n\nIts text is in this conversation already, and still holds.")
            continue
        origin = unreviewed(skill.name)
        said = [introduce(origin) if origin else "", block(skill.body.strip()), files(skill)]
        part = "\n\n".join([heading, *(one for one in said if one)])
        if tokens(part) > room:
            cut.append(skill.name)
            parts.append(f"### Skill: {skill.name}\n\nToo long to be shown here; load it with recall_skill.")
            continue
        room -= tokens(part)
        parts.append(part)
        shown.append(skill.name)
    body = "\n\n".join(["## Skills for this request", *parts]) if parts else ""
    return Section(name="eager skills", text=body, cut=tuple(cut)), shown


def invoked_skill(skill: Skill, files: str = "") -> Text:
    """Return a skill that the person called by name, as a message part."""
    body = "\n\n".join(part for part in (block(skill.body.strip()), files) if part)
    return Text(text=f"[The user calls the skill '{skill.name}'. Follow it.]\n\n{body}\n\n[End of the skill]")


def opened_section(summaries: Sequence[Summary]) -> Section:
    """List the skills made available by a resource or feature of this request, one line each."""
    lines = [line(summary, CUE) for summary in summaries[:_MOST_OPENED]]
    cut = tuple(summary.name for summary in summaries[_MOST_OPENED:])
    more = [f"({len(cut)} more skills are not listed here; search_skills finds them.)"] if cut else []
    heading = "## More available skills for this request (load with recall_skill)"
    return Section(name="opened skills", text="\n".join([heading, "", *lines, *more]) if lines else "", cut=cut)


def fitting(summaries: Sequence[Summary]) -> Section:
    """List the skills that search finds for the request, one line each."""
    lines = [line(summary, CUE) for summary in summaries]
    heading = "## Skills that may fit this request (load with recall_skill)"
    return Section(name="fitting skills", text="\n".join([heading, "", *lines]) if lines else "")


def whats_new(news: News) -> Section:
    """Build the section about new and changed skills."""
    return Section(name="what's new", text=shorten(news.text(), _NEWS_TOKENS), budget=_NEWS_TOKENS)


def bullets(name: str, heading: str, lines: Sequence[str], *, cut: Sequence[str] = ()) -> Section:
    """Build a section with a heading and one bullet for each line; empty without lines."""
    body = "\n".join([f"## {heading}", "", *(f"- {one_line(one)}" for one in lines)]) if lines else ""
    return Section(name=name, text=body, cut=tuple(cut))


def playbook(lines: Sequence[str]) -> Section:
    """Build the section of self-play lessons under the heading they were tested with."""
    return Section(
        name="playbook", text="\n".join([PLAYBOOK, *(f"- {one_line(one)}" for one in lines)]) if lines else ""
    )


def is_context(text: str) -> bool:
    """Whether a text is our context block; others can't fake it because their marks are escaped."""
    return text.startswith(f"<{BLOCK}>")


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One part of a prompt. A `budget` of 0 means that it has no budget of its own."""

    name: str
    text: str
    budget: int = 0
    # Names of what did not fit.
    cut: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        return tokens(self.text)


def shorten(text: str, budget: int) -> str:
    """Truncate a text to a token budget, with a note that says how much is missing."""
    room = budget * 4
    if byte_length(text) <= room:
        return text
    # The note at the end needs about sixty bytes.
    kept = text.encode("utf-8", "replace")[: max(room - 60, 0)].decode("utf-8", "ignore")
    return f"{kept}\n[… {len(text) - len(kept):,} characters left out …]"


NAME = "identity"


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """The identity text of the assistant, with its placeholders."""

    library: Library
    # The values of placeholders.
    fill: Mapping[str, str]

    def text(self) -> str:
        """Return the text with placeholders filled, as the library last saw it."""
        return trees.fill(identity_skill(self.library, look=False).body, self.fill).strip()


def identity_skill(library: Library, *, look: bool = True) -> Skill:
    """Return the identity text as last edited, or the built-in one."""
    written = library.layer(PROMPT).store.load(NAME, look=look)
    return written or Skill(name=NAME, description="Who the assistant is and how it speaks.", body=text("identity"))
