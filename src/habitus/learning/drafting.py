"""Draft a skill from the work of a conversation, its code from recorded uses, or tasks from its text, with a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic import BaseModel, Field

from habitus.errors import Invalid
from habitus.learning.budget import BudgetedModel, ask_for_structured_answer
from habitus.llm.model import AssistantMessage, ChatMessage, PersonMessage, TextContent, ToolResultMessage
from habitus.redact import PATTERNS_ONLY, Redactor
from habitus.sandbox.model import Cell
from habitus.skills import names
from habitus.skills.model import Skill
from habitus.text import load_prompt

# Only the latest ones are shown to the model.
CELLS, MESSAGES = 20, 30
_CELL_CHARS, _MESSAGE_CHARS = 24_000, 24_000
# Tokens of an answer.
_MAX_ANSWER_TOKENS = 4_000
# Characters of one cell or message.
_MAX_PART_CHARS = 4_000


class SkillDraftAnswer(BaseModel):
    """The model's draft of a skill; the field descriptions are its instructions."""

    label: str = Field(description="A handle for the skill in snake_case: two to four words that say what it does.")
    name: str = Field(description="Its name as a person would write it in a list.")
    description: str = Field(default="", description="What the skill does, in one sentence.")
    when_to_use: str = Field(
        description="When it applies, in one sentence. This line alone decides whether an agent with a new request "
        "finds the skill, so use the words such a request would have."
    )
    declarative_md: str = Field(
        description="The procedure in Markdown: numbered steps with the decisions in them, as instructions to whoever "
        "does it next, not as a report of what was done. Empty if there is no procedure to keep."
    )


async def draft_skill(
    model: BudgetedModel,
    *,
    cells: Sequence[Cell],
    messages: Sequence[ChatMessage],
    hint: str = "",
    is_taken: Callable[[str], bool],
    redactor: Redactor = PATTERNS_ONLY,
    patience_s: float | None = None,
) -> Skill:
    """Draft a skill under a free name, without saving it; `Invalid` if there is no work to draft from."""
    # Redacted before it is sent, and the draft again afterwards, because a model may repeat a secret.
    material = redactor.redact(_render_session_material(cells, messages)).text
    if not material:
        raise Invalid("There is nothing to save yet.", hint="Do some work first, then save how it is done.")
    if hint.strip():
        material += f"\n\n# What the person wants kept\n\n{redactor.redact(hint.strip()).text}"
    draft = await ask_for_structured_answer(
        model,
        SkillDraftAnswer,
        system=load_prompt("learning", "draft-skill"),
        record=material,
        max_tokens=_MAX_ANSWER_TOKENS,
        patience_s=patience_s,
    )
    return _build_redacted_skill_from_draft(draft, is_taken, redactor)


def _build_redacted_skill_from_draft(
    draft: SkillDraftAnswer, is_taken: Callable[[str], bool], redactor: Redactor
) -> Skill:
    body = redactor.redact(draft.declarative_md).text.strip()
    if not body:
        raise Invalid("The draft has no steps.", hint="Say what to keep: /skill save HINT.")
    label, title, description, when_to_use = (
        _collapse_whitespace(redactor.redact(text).text)
        for text in (draft.label, draft.name, draft.description, draft.when_to_use)
    )
    return Skill(
        name=names.make_unique_name(label or title, is_taken),
        title=title,
        description=description or f"{title}.",
        when_to_use=when_to_use,
        body=f"{body}\n",
    )


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())


def _render_session_material(cells: Sequence[Cell], messages: Sequence[ChatMessage]) -> str:
    run = _keep_newest_texts_that_fit([_render_cell(cell) for cell in cells[-CELLS:]], _CELL_CHARS)
    said = _keep_newest_texts_that_fit(
        [text for message in messages[-MESSAGES:] if (text := _render_message(message))], _MESSAGE_CHARS
    )
    parts = [("# Cells that were run", run), ("# Conversation", said)]
    return "\n\n".join("\n\n".join([heading, *texts]) for heading, texts in parts if texts)


def _keep_newest_texts_that_fit(texts: Sequence[str], room: int) -> list[str]:
    """Return the latest texts that fit, in order; the last one always, even if it is too long."""
    kept: list[str] = []
    for text in reversed(texts):
        room -= len(text)
        if room < 0 and kept:
            break
        kept.insert(0, text)
    return kept


def _render_cell(cell: Cell) -> str:
    came_of_it = cell.error or cell.stdout
    lines = [f"## {cell.description}" if cell.description else "## A cell", "```python", cell.code.strip(), "```"]
    if came_of_it.strip():
        lines += ["came to:" if cell.error is None else "failed with:", "```", came_of_it.strip(), "```"]
    return _shorten_middle("\n".join(lines))


def _render_message(message: ChatMessage) -> str:
    match message:
        case PersonMessage(parts=parts):
            return _render_speaker_text("Person", (part.text for part in parts if isinstance(part, TextContent)))
        case AssistantMessage(text=text):
            return _render_speaker_text("Agent", [text])
        case ToolResultMessage(tool=tool, content=content):
            return _render_speaker_text(f"Result of {tool}", [content])


def _render_speaker_text(who: str, texts: Iterable[str]) -> str:
    said = "\n\n".join(text.strip() for text in texts if text.strip())
    return _shorten_middle(f"{who}: {said}") if said else ""


def _shorten_middle(text: str) -> str:
    if len(text) <= _MAX_PART_CHARS:
        return text
    half = _MAX_PART_CHARS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


class CodeDraft(BaseModel):
    """The model's draft of a program; the field descriptions are its instructions."""

    description: str = Field(default="", description="What it does and when to call it, in one sentence.")
    parameters: dict[str, Any] = Field(
        default_factory=lambda: {"type": "object"}, description="JSON Schema (type object) of its arguments."
    )
    # Required: without it, an answer with other field names would pass for one that has no program.
    code: str = Field(description="The whole Python program; empty if no program can do it alone.")
    payload: dict[str, Any] = Field(
        default_factory=dict, description="Arguments of one recorded use, which the program is tried with."
    )
    dependencies: list[str] = Field(
        default_factory=list, description="Packages it needs beside the standard library; none is best."
    )


async def draft_code(model: BudgetedModel, material: str, *, refused: str = "", redactor: Redactor) -> CodeDraft:
    """Draft a program from the material; `refused` says why an earlier draft failed its trial.

    Raises the errors of `ask_for_structured_answer`.
    """
    again = f"\n\n# An earlier draft was not accepted\n\n{refused}" if refused else ""
    record = redactor.redact(f"{material}{again}").text
    return await ask_for_structured_answer(
        model, CodeDraft, system=load_prompt("learning", "draft-code"), record=record, max_tokens=_MAX_ANSWER_TOKENS
    )


# Twenty tasks with files and solutions take a few hundred tokens each, and a program that drafts takes its time.
_TASKS_TOKENS, _TASKS_PATIENCE_S = 12_000, 600.0


class TaskDraftFile(BaseModel):
    path: str
    text: str


class TaskDraft(BaseModel):
    """One drafted task; the prompt describes the fields."""

    request: str
    files: list[TaskDraftFile] = Field(default_factory=list)
    expect: list[str] = Field(default_factory=list)
    matches: str = ""
    validator: str = ""
    reply: str = ""
    code: str = ""
    wrong: str = ""

    @property
    def task_file_row(self) -> dict[str, Any]:
        """The row of a task file."""
        named = {name: getattr(self, name) for name in ("request", "expect", "matches", "validator")}
        solutions = {"reference": {"reply": self.reply, "code": self.code}, "wrong": {"reply": self.wrong}}
        return {
            **{name: value for name, value in named.items() if value},
            **{
                name: one
                for name, row in solutions.items()
                if (one := {key: text for key, text in row.items() if text})
            },
            "files": {file.path: file.text for file in self.files},
        }


class TaskDraftsAnswer(BaseModel):
    tasks: list[TaskDraft]


async def draft_task_rows_for_skill(
    model: BudgetedModel, material: str, count: int, *, redactor: Redactor = PATTERNS_ONLY
) -> list[dict[str, Any]]:
    """Return task rows for a skill, drafted from its text. Raises the errors of `ask_for_structured_answer`."""
    drafted = await ask_for_structured_answer(
        model,
        TaskDraftsAnswer,
        system=load_prompt("learning", "draft-tasks"),
        record=redactor.redact(f"Draft {count} tasks.\n\n{material}").text,
        max_tokens=_TASKS_TOKENS,
        patience_s=_TASKS_PATIENCE_S,
    )
    return [one.task_file_row for one in drafted.tasks[:count]]
