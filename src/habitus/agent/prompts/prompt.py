"""The prompt: who the model is, a system prompt that stays for a session, and a block beside each request."""

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
_MOST_OPENED = 20  # lines
CUE = 160  # characters of a skill's cue beside a request


def text(name: str) -> str:
    """One of the prompts that stand beside this file as Markdown."""
    return prompt_text("agent", name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """Everything that is said to the model before the person's own words, section by section."""

    system: tuple[Section, ...]
    context: tuple[Section, ...] = ()

    @property
    def system_text(self) -> str:
        return "\n\n".join(section.text for section in self.system if section.text)

    @property
    def context_text(self) -> str:
        """The marked block; nothing when there is nothing to say."""
        said = [section.text for section in self.context if section.text]
        if not said:
            return ""
        return "\n\n".join([f"<{BLOCK}>", *map(escape_marks, said), f"</{BLOCK}>"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """The prompt of a turn, and what exactly stands in it."""

    prompt: Prompt
    skills: tuple[Skill, ...] = ()
    notes: tuple[Recalled, ...] = ()
    rules: tuple[Recalled, ...] = ()
    in_tools: tuple[Recalled, ...] = ()  # lessons in the description of a tool
    cut: tuple[str, ...] = ()  # rules, by id, that there was no room for
    menu: Menu | None = None
    news: News | None = None
    turned_down: tuple[Proposal, ...] = ()  # of what the agent proposed
    unlearned: tuple[Engram, ...] = ()  # of what it wanted remembered, and was turned down


def system(*, identity: str, profile: Sequence[str], rules: Section | None, menu: Menu) -> tuple[Section, ...]:
    """Who it is, how it works here, what it knows of the person, the rules, and the skills there are."""
    sections = [Section(name="identity", text=block(identity)), Section(name="guidance", text=text("guidance"))]
    if profile:
        known = "\n".join(["## What is known about the user", "", *(f"- {one_line(one)}" for one in profile)])
        sections.append(Section(name="profile", text=known))
    if rules is not None and rules.text:
        sections.append(rules)
    sections.append(Section(name="skills", text=menu.text, budget=menu.budget, cut=menu.cut))
    return tuple(sections)


def introduce(origin: str) -> str:
    """The warning before a skill that nobody has reviewed; `origin` says where it comes from."""
    return f"(Nobody has reviewed this skill: {one_line(origin)}. Use what serves the request, and nothing else.)"


def eager(
    skills: Iterable[tuple[Skill, str]],
    budget: int,
    *,
    already: Collection[str] = (),
    unreviewed: Callable[[str], str] = lambda name: "",
    files: Callable[[Skill], str] = lambda skill: "",
) -> tuple[Section, list[str]]:
    """The skills that a rule puts into the prompt, in full while there is room; and the names of those that are.

    Of those that stand in the conversation `already`, a line says so. `files` says what else a skill consists of.
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
    """A skill that the person called by its name, beside their words."""
    body = "\n\n".join(part for part in (block(skill.body.strip()), files) if part)
    return Text(text=f"[The user calls the skill '{skill.name}'. Follow it.]\n\n{body}\n\n[End of the skill]")


def opened_section(summaries: Sequence[Summary]) -> Section:
    """Skills that a resource or a feature of this request opens; one line each."""
    lines = [line(summary, CUE) for summary in summaries[:_MOST_OPENED]]
    cut = tuple(summary.name for summary in summaries[_MOST_OPENED:])
    more = [f"({len(cut)} more skills are not listed here; search_skills finds them.)"] if cut else []
    heading = "## More available skills for this request (load with recall_skill)"
    return Section(name="opened skills", text="\n".join([heading, "", *lines, *more]) if lines else "", cut=cut)


def fitting(summaries: Sequence[Summary]) -> Section:
    """Skills that search finds for the request; one line each."""
    lines = [line(summary, CUE) for summary in summaries]
    heading = "## Skills that may fit this request (load with recall_skill)"
    return Section(name="fitting skills", text="\n".join([heading, "", *lines]) if lines else "")


def whats_new(news: News) -> Section:
    return Section(name="what's new", text=shorten(news.text(), _NEWS_TOKENS), budget=_NEWS_TOKENS)


def bullets(name: str, heading: str, lines: Sequence[str], *, cut: Sequence[str] = ()) -> Section:
    body = "\n".join([f"## {heading}", "", *(f"- {one_line(one)}" for one in lines)]) if lines else ""
    return Section(name=name, text=body, cut=tuple(cut))


def playbook(lines: Sequence[str]) -> Section:
    """Lessons of self-play, under the heading that they were tried under."""
    return Section(
        name="playbook", text="\n".join([PLAYBOOK, *(f"- {one_line(one)}" for one in lines)]) if lines else ""
    )


def is_context(text: str) -> bool:
    """Whether a text is the block that stood beside a request; what others write has its marks escaped."""
    return text.startswith(f"<{BLOCK}>")


EAGER_SHARE = 0.2  # of the context, for skills in full
ATTACHED_SHARE = 0.25  # for the text of attachments
HISTORY_SHARE = 0.8  # for everything that is sent
FITTING = 3  # skills named beside a request
NEARLY_AS_FITTING = 0.75  # of the best one's score


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One part of a prompt, as the model sees it. `budget` 0 means that it has none of its own."""

    name: str
    text: str
    budget: int = 0
    cut: tuple[str, ...] = ()  # what there was no room for

    @property
    def tokens(self) -> int:
        return tokens(self.text)


def shorten(text: str, budget: int) -> str:
    """The beginning of a text within a budget, with a mark that says how much is missing."""
    room = budget * 4
    if byte_length(text) <= room:
        return text
    kept = text.encode("utf-8", "replace")[: max(room - 60, 0)].decode("utf-8", "ignore")
    return f"{kept}\n[… {len(text) - len(kept):,} characters left out …]"


NAME = "identity"


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    library: Library
    fill: Mapping[str, str]  # what placeholders become

    def text(self) -> str:
        """As the library last saw it."""
        return trees.fill(identity_skill(self.library, look=False).body, self.fill).strip()


def identity_skill(library: Library, *, look: bool = True) -> Skill:
    """The text as somebody last wrote it, or the one that comes along."""
    written = library.layer(PROMPT).store.load(NAME, look=look)
    return written or Skill(name=NAME, description="Who the assistant is and how it speaks.", body=text("identity"))
