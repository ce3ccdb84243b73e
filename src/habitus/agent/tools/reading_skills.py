"""Tools that read skills: recall one to follow it, search, list, and read one as data or file by file."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import Field

from habitus.access import Access
from habitus.agent.library.supporting_files import SupportingFile, SupportingFileReaderAndPlacer
from habitus.agent.library.view import LibraryView
from habitus.agent.prompts import prompt
from habitus.agent.tools.registry import Tool, ToolArguments, ToolCallContext, ToolEffectReach, build_json_result
from habitus.agent.tools.stage_tools import SkillStageAdvisor
from habitus.errors import ToolFailed
from habitus.events import Image, ToolResult
from habitus.search.texts.words import extract_content_words
from habitus.skills import names
from habitus.skills.choosing.menu import format_menu_line
from habitus.skills.choosing.selection import list_companions
from habitus.skills.choosing.skill_finder import SkillFinder
from habitus.skills.layers.listing import sum_counters_over_stages
from habitus.skills.model import Skill, SkillState, SkillSummary
from habitus.text import clean_to_one_line, escape_lines_resembling_prompt_marks
from habitus.use_counts import COUNT_NAMES, UsageCounts


def build_reading_tools(
    view: LibraryView, files: SupportingFileReaderAndPlacer, ladder: SkillStageAdvisor, finder: SkillFinder
) -> list[Tool]:
    """Build the tools that read skills."""
    return [
        build_recall_skill_tool(view, files, ladder),
        build_search_skills_tool(finder, view),
        build_list_skills_tool(view),
        build_read_skill_tool(view, files),
    ]


class RecallSkillArguments(ToolArguments):
    """Load the procedure of a skill from the list of available skills, to follow it in this conversation. Do this
    before starting work that a skill is for."""

    name: str = Field(description="The skill's name, as the list of available skills has it.")


def build_recall_skill_tool(view: LibraryView, files: SupportingFileReaderAndPlacer, ladder: SkillStageAdvisor) -> Tool:
    """Build the tool that loads a skill."""

    def run(given: RecallSkillArguments, running: ToolCallContext) -> ToolResult:
        waiting = view.get_pending_skills_of_conversation()
        name, warning = correct_skill_name_with_warning(given.name, view.list_loadable_and_pending_skill_names(), view)
        if view.is_skill_text_in_conversation(name):
            return ToolResult(content=f"{warning}The skill '{name}' is in view already; follow it from there.")
        skill = waiting.get(name) or view.load_skill(name)
        parts = [warning + _render_skill(view, files, ladder, skill)]
        view.record_loaded_skill(skill)
        for companion in list_companions(skill, view.list_loadable_skill_names()):
            if not view.is_skill_text_in_conversation(companion):
                other = view.load_skill(companion)
                parts.append(_render_skill(view, files, ladder, other))
                view.record_loaded_skill(other, is_asked=False)
        return ToolResult(content="\n\n".join(parts))

    return Tool(
        arguments=RecallSkillArguments,
        run=run,
        access=Access.VIEWER,
        is_parallel=True,
        reach=ToolEffectReach.NOTHING,
        is_default=True,
        is_pinned=True,
    )


def correct_skill_name_with_warning(wanted: str, known: Collection[str], view: LibraryView) -> tuple[str, str]:
    """Return the name that is meant, with a warning if it was corrected; `ToolFailed` if none is close."""
    name = names.canonicalize_name(wanted)
    if name in known:
        return name, ""
    if reason := view.explain_why_skill_is_unavailable(name):
        raise ToolFailed(f"The skill '{name}' can't be loaded now: {reason}.")
    if not known:
        raise ToolFailed(
            "There are no skills yet. Work it out, and save it with create_skill when it is worth keeping."
        )
    near = names.find_closest_name(wanted, known)
    if near is None:
        shown = ", ".join(sorted(known)[:50])
        more = f" and {len(known) - 50} more (search_skills finds them)" if len(known) > 50 else ""
        raise ToolFailed(f"There is no skill '{wanted}'. Available: {shown}{more}.")
    return near, f"(There is no skill '{clean_to_one_line(wanted)}'; showing the closest, '{near}'.)\n\n"


def _render_skill(
    view: LibraryView, files: SupportingFileReaderAndPlacer, ladder: SkillStageAdvisor, skill: Skill
) -> str:
    lines = [f"# Skill: {skill.name}" + (f" ({clean_to_one_line(skill.title)})" if skill.title else "")]
    if origin := view.describe_unreviewed_origin(skill.name):
        lines.append(prompt.render_unreviewed_warning(origin))
    if skill.when_to_use_line:
        lines.append(f"When: {clean_to_one_line(skill.when_to_use_line)}")
    lines += ladder.build_stage_recommendation_lines(skill)
    lines += ["", escape_lines_resembling_prompt_marks(skill.body.strip()) or "(It has no steps.)"]
    if others := files.place_and_describe_files(skill):
        lines += ["", others]
    return "\n".join(lines)


class SearchSkillsArguments(ToolArguments):
    """Search all skills by what is to be done. Use it when the list of available skills has nothing that fits, or says
    that more are not shown."""

    query: str = Field(description="The task, in one sentence.")
    limit: int | None = Field(default=None, ge=1, le=20, description="How many at most; 5 without.")


def build_search_skills_tool(finder: SkillFinder, view: LibraryView) -> Tool:
    """Build the tool that searches skills."""

    def run(given: SearchSkillsArguments, running: ToolCallContext) -> ToolResult:
        if not given.query.strip():
            raise ToolFailed("The query is empty. Describe the task in one sentence.")
        seen = view.snapshot
        results = finder.search(given.query, k=given.limit or 5, among=view.list_loadable_skill_names(), at=seen)
        waiting = _list_matching_pending_skill_lines(given.query, view)
        if not results.hits and not waiting:
            return ToolResult(content="No skill matches. Work it out, and save it with create_skill if it is worth it.")
        head = "Load one with recall_skill:" if results.fits or waiting else "No good match; closest:"
        known = [skill for hit in results.hits if (skill := seen.by_name[hit.id].summary) is not None]
        found = [
            format_menu_line(skill)
            for skill in known
            if view.can_name_skill_to_model(skill) and skill.name not in waiting
        ]
        return ToolResult(content="\n".join([head, *waiting.values(), *found]))

    return Tool(
        arguments=SearchSkillsArguments,
        run=run,
        access=Access.VIEWER,
        is_parallel=True,
        reach=ToolEffectReach.NOTHING,
        is_default=True,
        is_pinned=True,
    )


def _list_matching_pending_skill_lines(query: str, view: LibraryView) -> dict[str, str]:
    """Return lines for pending skills that share a word with the query, since the index does not contain them."""
    wanted = set(extract_content_words(query))
    return {
        name: f"{format_menu_line(skill)} (needs review)"
        for name, skill in view.get_pending_skills_of_conversation().items()
        if wanted & set(extract_content_words(f"{name} {skill.title} {skill.when_to_use_line}"))
    }


class ListSkillsArguments(ToolArguments):
    """List the skills there are, with title, description and tags."""

    tag: str | None = Field(default=None, description="Only the skills with this tag.")
    include_disabled: bool | None = Field(default=None, description="Include disabled skills.")


def build_list_skills_tool(view: LibraryView) -> Tool:
    """Build the tool that lists skills."""

    def run(given: ListSkillsArguments, running: ToolCallContext) -> ToolResult:
        allowed = view.list_loadable_skill_names()
        others = {SkillState.GATED, *([SkillState.DISABLED] if given.include_disabled else [])}
        found = [
            item.summary
            for item in view.snapshot.listing
            if item.summary is not None
            and item.name not in view.get_pending_skills_of_conversation()
            and (item.name in allowed or (item.state in others and not item.summary.manifest.admin_only))
        ]
        used = {
            address: usage
            for address, stages in view.library.read_all_counters().items()
            if (usage := sum_counters_over_stages(stages)).used
        }
        # A pending skill has no layer of its own yet; the uses are of the skill as it is.
        layers = {name: item.layer for name, item in view.snapshot.by_name.items()}
        return build_json_result(
            {
                "skills": [
                    _build_skill_fields(view, skill, used.get((layers.get(skill.name, skill.layer), skill.name)))
                    for skill in (*found, *view.get_pending_skills_of_conversation().values())
                    if (given.tag is None or skill.has_tag(given.tag)) and not skill.manifest.disable_model_invocation
                ]
            }
        )

    return Tool(
        arguments=ListSkillsArguments, run=run, access=Access.VIEWER, is_parallel=True, reach=ToolEffectReach.NOTHING
    )


def _build_skill_fields(view: LibraryView, skill: SkillSummary, usage: UsageCounts | None = None) -> dict[str, object]:
    """Return a skill as data, with its counts if it was used; a pending change of this conversation is marked."""
    counts = () if usage is None else (*COUNT_NAMES, "no_feedback")
    return {
        "name": skill.name,
        "title": skill.title,
        "description": skill.description,
        "tags": list(skill.tags),
        "source": skill.source.value,
        **build_version_and_pending_fields(view, skill.name),
        **({"usage": {name: getattr(usage, name) for name in counts}} if counts else {}),
    }


def build_version_and_pending_fields(view: LibraryView, name: str) -> dict[str, object]:
    """Return the version of a skill as it is, None if there is none yet, and its pending change beside it."""
    item, pending = view.snapshot.by_name.get(name), view.get_pending_skills_with_proposal_numbers().get(name)
    version = item.summary.version if item is not None and item.summary is not None else None
    return {"version": version, **({} if pending is None else {"status": "pending", "proposal": pending[0]})}


# In characters; a page must fit into one tool result.
PAGE = 16_000
# In bytes; base64-encoded it is the most that providers accept.
_LARGEST_PICTURE = 3_500_000


class ReadSkillArguments(ToolArguments):
    """Read a skill as data: title, description, text, tags, version, other files. Use it before update_skill. With
    path, read one of its other files instead."""

    name: str = Field(description="The skill's name, as the list of available skills has it.")
    path: str | None = Field(
        default=None,
        description="One of its other files, such as references/notes.md; a folder of it lists those in it.",
    )
    offset: int = Field(default=0, ge=0, description="With path: where in a long text to begin.")


def build_read_skill_tool(view: LibraryView, files: SupportingFileReaderAndPlacer) -> Tool:
    """Build the tool that reads a skill or one of its files."""

    def run(given: ReadSkillArguments, running: ToolCallContext) -> ToolResult:
        waiting = view.get_pending_skills_of_conversation()
        name, _ = correct_skill_name_with_warning(
            given.name, {*view.list_loadable_skill_names(), *waiting, *view.loaded}, view
        )
        if given.path is not None:
            return _build_supporting_file_result(view, files, name, given.path, given.offset, running)
        skill = waiting.get(name) or view.load_skill(name)
        view.record_loaded_skill(skill)
        return build_json_result(
            {**_build_skill_fields(view, skill), "content": skill.body, "files": files.list_first_file_paths(name)}
        )

    return Tool(
        arguments=ReadSkillArguments, run=run, access=Access.VIEWER, is_parallel=True, reach=ToolEffectReach.NOTHING
    )


def _build_supporting_file_result(
    view: LibraryView, files: SupportingFileReaderAndPlacer, name: str, path: str, offset: int, running: ToolCallContext
) -> ToolResult:
    found = files.find_file_or_list_folder(name, path)
    origin = view.describe_unreviewed_origin(name)
    introduction = f"{prompt.render_unreviewed_warning(origin)}\n\n" if origin else ""
    if isinstance(found, tuple):
        return ToolResult(content=introduction + _render_text_page("\n".join(found), f"Files of {name}", offset))
    what = f"{clean_to_one_line(found.path)} of {name}"
    if found.image_type and running.sees_images and len(found.data) <= _LARGEST_PICTURE:
        image = Image(data=found.data, media_type=found.image_type)
        return ToolResult(content=f"{introduction}{what}, a picture:", images=(image,))
    if found.text is None:
        return ToolResult(content=f"{introduction}{_describe_file_that_cannot_be_shown(found, what, running)}")
    # Redact before paging: a secret cut in two would no longer be recognized.
    text = escape_lines_resembling_prompt_marks(running.redactor.redact(found.text).text)
    return ToolResult(content=introduction + _render_text_page(text, what, offset))


def _render_text_page(text: str, what: str, offset: int) -> str:
    end = offset + PAGE
    if offset >= max(len(text), 1):
        raise ToolFailed(f"{what} has {len(text):,} characters; there is nothing at offset={offset}.")
    if offset == 0 and end >= len(text):
        return f"{what}:\n\n{text}"
    page = f"{what}, characters {offset:,} to {min(end, len(text)):,} of {len(text):,}:\n\n{text[offset:end]}"
    return page if end >= len(text) else f"{page}\n\n[It goes on at offset={end}.]"


def _describe_file_that_cannot_be_shown(file: SupportingFile, what: str, running: ToolCallContext) -> str:
    why = "no text" if not file.image_type else "too large to be seen" if running.sees_images else "which you can't see"
    where = f" In the scratchpad it is {file.sandbox_path}." if file.sandbox_path else " It is not in the scratchpad."
    return f"{what}: {len(file.data):,} bytes, {file.media_type}, {why}.{where}"
