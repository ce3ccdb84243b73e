"""Renders templates, safe Markdown, times, notices and side-by-side diffs."""

from __future__ import annotations

import functools
import hashlib
import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Any

import nh3
from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from habitus.access import Access
from habitus.app.home import open_read_transaction_if_single_database
from habitus.app.library.content import FileChange
from habitus.app.operating import job_kinds
from habitus.app.review.reminding import count_pending_items
from habitus.app.tasks.proposing import describe_months_of_requests
from habitus.comparing import BoundedSequenceMatcher, ComparisonStepBudget
from habitus.skills.editable_fields import EDITABLE_FIELDS
from habitus.skills.model import Stage
from habitus.text import format_dollars, format_quantity, format_seconds, replace_surrogates
from habitus.web import charts, inbox_labels, labels, site_map
from habitus.web.data_changes import get_change_watcher
from habitus.web.home_pool import get_request_home
from habitus.web.static_files import build_static_url

WEB_DIRECTORY = Path(__file__).parent
# A request with this header gets only the live parts of the page, each of which ends with a comment; its value is the
# digest of those that the page has.
_LIVE_PARTS_HEADER = "Live-Parts"
_LIVE_PART = re.compile(r"<(?=[^>]* data-live[ >]).*?<!--live-->", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class FlashMessage:
    """A message about a change that was just made, with the command that undoes it."""

    text: str
    undo: tuple[str, ...] = ()
    is_bad: bool = False


def render_page(
    request: Request,
    template: str,
    *,
    said: FlashMessage | None = None,
    status: int = 200,
    required_access: Access = Access.ADMIN,
    **values: Any,
) -> HTMLResponse:
    """Return a whole page; htmx takes its part out of it. Below `required_access` the page is read-only."""
    habitus, access = get_request_home(request), request.state.access
    with open_read_transaction_if_single_database(habitus):
        waiting, pause = count_pending_items(habitus), habitus.pause.get_last_known_pause()
    around = {
        "path": request.url.path,
        "csrf": request.state.csrf,
        "is_signed_in": access >= Access.VIEWER,
        "who": request.state.person,
        "can_sign_out": bool(request.state.csrf) and request.state.has_session_cookie,
        "has_provider": request.app.state.keys.people.provider is not None,
        "me": habitus.settings.author_name,
        "may_change": access >= required_access,
        "is_admin": access >= Access.ADMIN,
        "is_owner": access is Access.OWNER,
        "said": said,
        "waiting_count": waiting,
        "is_paused": pause is not None,
        "as_of": getattr(request.state, "as_of", None),
        "now": habitus.clock(),
        "commands": site_map.find_palette_entries("", is_admin=access >= Access.ADMIN),
        "status": status,
        "marker": get_change_watcher(request).read_data_change_marker() or "",
    }
    # A lone surrogate in a skill's text would make the whole page fail to encode.
    text = replace_surrogates(_make_template_environment().get_template(template).render(around | values))
    known = request.headers.get(_LIVE_PARTS_HEADER)
    return HTMLResponse(text, status_code=status) if known is None else _render_changed_live_parts(text, known)


def _render_changed_live_parts(text: str, known: str) -> HTMLResponse:
    """Return the live parts of a page, or nothing if the browser has just these."""
    parts = "".join(_LIVE_PART.findall(text))
    digest = hashlib.sha256(parts.encode()).hexdigest()[:16]
    status = HTTPStatus.NO_CONTENT if digest == known else HTTPStatus.OK
    return HTMLResponse("" if digest == known else parts, status_code=status, headers={_LIVE_PARTS_HEADER: digest})


def render_fragment(template: str, **values: Any) -> HTMLResponse:
    """Return a part of a page, for htmx to swap in."""
    return HTMLResponse(render_template(template, **values))


def render_template(template: str, **values: Any) -> str:
    """Return a rendered template as text."""
    return replace_surrogates(
        _make_template_environment().get_template(template).render({"now": datetime.now(UTC)} | values)
    )


def is_htmx_request(request: Request) -> bool:
    """Return whether htmx sent the request and will put the response into an open page."""
    return "hx-request" in request.headers


def make_error_notice(message: str, hint: str, status: HTTPStatus) -> HTMLResponse:
    """Return an error notice for the open page, which stays unchanged."""
    said = FlashMessage(text=f"{message} {hint}".strip(), is_bad=True)
    answer = render_fragment("said.html", said=said)
    answer.status_code = status
    answer.headers.update(
        {"HX-Retarget": "#said", "HX-Reselect": "#said", "HX-Reswap": "outerHTML", "HX-Push-Url": "false"}
    )
    return answer


def render_standalone_problem_page(status: HTTPStatus, what: str, hint: str, sign_in_url: str = "") -> HTMLResponse:
    """Return an error page that needs nothing from the home, with a button if one can sign in at a provider."""
    values = {"status": status, "what": what, "hint": hint, "sign_in_url": sign_in_url}
    text = _make_template_environment().get_template("problem_alone.html").render(values)
    return HTMLResponse(replace_surrogates(text), status_code=status)


@functools.cache
def _make_template_environment() -> Environment:
    made = Environment(
        # StrictUndefined: a misspelt attribute fails in tests instead of showing nothing.
        loader=FileSystemLoader(WEB_DIRECTORY / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "ago": render_relative_time,
        "job_title": job_kinds.get_kind_title,
        "ladder": render_stage_ladder,
        "markdown": render_markdown,
        "timestamp": format_timestamp,
        "counted": format_quantity,
        "dollars": format_dollars,
        "period": describe_months_of_requests,
        "duration": format_seconds,
        "source_word": labels.get_request_source_id_and_label,
        "twice": lambda text: (text, text),
    }
    made.globals |= {
        "labels": labels,
        "inbox_labels": inbox_labels,
        "site_map": site_map,
        "static": build_static_url,
        "comparisons": charts,
        "skill_fields": EDITABLE_FIELDS,
        "version": version("habitus"),
    }
    return made


@functools.cache
def render_stage_ladder(stages: frozenset[Stage]) -> Markup:
    """Return the stages of a skill as steps of a ladder; cached, since there are few combinations."""
    has = ", ".join(label for stage, label in labels.STAGES.items() if stage in stages)
    steps = "".join('<i class="has"></i>' if stage in stages else "<i></i>" for stage in labels.STAGES)
    return Markup(f'<span class="ladder" role="img" aria-label="Has {has}" title="{has}">{steps}</span>')


@functools.cache
def _make_markdown_parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])


_ALLOWED_TAGS = {
    *("a", "blockquote", "br", "code", "del", "em", "hr", "li", "ol", "p", "pre", "s", "strong", "ul"),
    *("h1", "h2", "h3", "h4", "h5", "h6"),
    *("table", "tbody", "td", "th", "thead", "tr"),
}


def render_markdown(text: str) -> Markup:
    """Return Markdown as HTML without scripts, handlers, styles, remote images or unsafe links."""
    rendered = _make_markdown_parser().render(replace_surrogates(text))
    clean = nh3.clean(
        rendered,
        tags=_ALLOWED_TAGS,
        attributes={"a": {"href"}, "ol": {"start"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    # Marked as safe because nh3 has just sanitised it.
    return Markup(clean)


def render_relative_time(then: datetime | None, now: datetime) -> Markup:
    """Return how long ago a time was, with the exact time as tooltip."""
    if then is None:
        return Markup("never")
    seconds = max((now - then).total_seconds(), 0)
    for name, length in (("year", 31_536_000), ("month", 2_592_000), ("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            text = f"{format_quantity(int(seconds // length), name)} ago"
            break
    else:
        text = "just now"
    exact = html.escape(then.isoformat(timespec="seconds"))
    return Markup(f'<time datetime="{exact}" title="{format_timestamp(then)}">{text}</time>')


def format_timestamp(then: datetime | None) -> str:
    """Return a time as local date and minute, or nothing for None."""
    return "" if then is None else f"{then.astimezone():%Y-%m-%d %H:%M}"


# Unchanged lines shown on each side of a change.
_CONTEXT_LINES = 2
# Lines beyond this are not compared: the matcher takes quadratic time.
_MAX_DIFF_LINES = 4000

# Whether the text differs, and the text.
DiffSpan = tuple[bool, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class DiffRow:
    """A line before and after, None where it doesn't exist; `is_gap` marks omitted unchanged lines."""

    before: tuple[DiffSpan, ...] | None = None
    after: tuple[DiffSpan, ...] | None = None
    is_changed: bool = True
    is_gap: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class FileComparison:
    """One file of a comparison; it has no rows if it is not text."""

    path: str
    rows: tuple[DiffRow, ...]


def build_file_comparisons(changes: Iterable[FileChange]) -> tuple[FileComparison, ...]:
    """Return each changed file as rows to show side by side."""
    budget, left = ComparisonStepBudget(), _MAX_DIFF_LINES
    compared: list[FileComparison] = []
    for change in changes:
        is_shown = change.is_text and left > 0
        rows = build_diff_rows(change.before or "", change.after or "", budget) if is_shown else ()
        left -= len(rows)
        compared.append(FileComparison(path=change.path, rows=rows))
    return tuple(compared)


def build_diff_rows(before: str, after: str, budget: ComparisonStepBudget | None = None) -> tuple[DiffRow, ...]:
    """Return the rows of a side-by-side diff, with gaps for unchanged lines."""
    budget = budget or ComparisonStepBudget()
    old, new = before.splitlines()[:_MAX_DIFF_LINES], after.splitlines()[:_MAX_DIFF_LINES]
    rows: list[DiffRow] = []
    groups = BoundedSequenceMatcher(old, new, budget).get_grouped_opcodes(_CONTEXT_LINES)
    end = 0
    for group in groups:
        if group[0][1] > end:
            rows.append(DiffRow(is_gap=True, is_changed=False))
        end = group[-1][2]
        for tag, i1, i2, j1, j2 in group:
            rows += (
                _build_equal_rows(old[i1:i2]) if tag == "equal" else _build_changed_rows(old[i1:i2], new[j1:j2], budget)
            )
    if rows and end < len(old):
        rows.append(DiffRow(is_gap=True, is_changed=False))
    return tuple(rows)


def _build_equal_rows(lines: Sequence[str]) -> Iterator[DiffRow]:
    for line in lines:
        yield DiffRow(before=((False, line),), after=((False, line),), is_changed=False)


def _build_changed_rows(old: Sequence[str], new: Sequence[str], budget: ComparisonStepBudget) -> Iterator[DiffRow]:
    for before, after in zip_longest(old, new):
        if before is None or after is None:
            yield DiffRow(
                before=None if before is None else ((True, before),), after=None if after is None else ((True, after),)
            )
        else:
            yield _build_word_diff_row(before, after, budget)


def _build_word_diff_row(before: str, after: str, budget: ComparisonStepBudget) -> DiffRow:
    """Return a changed line with the words that differ marked."""
    old, new = re.findall(r"\s+|\w+|[^\w\s]", before), re.findall(r"\s+|\w+|[^\w\s]", after)
    left: list[DiffSpan] = []
    right: list[DiffSpan] = []
    for tag, i1, i2, j1, j2 in BoundedSequenceMatcher(old, new, budget).get_opcodes():
        left.append((tag != "equal", "".join(old[i1:i2])))
        right.append((tag != "equal", "".join(new[j1:j2])))
    return DiffRow(before=tuple(piece for piece in left if piece[1]), after=tuple(piece for piece in right if piece[1]))
