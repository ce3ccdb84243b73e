"""Renders templates, safe Markdown, times, notices and side-by-side diffs."""

from __future__ import annotations

import difflib
import functools
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
from habitus.app.library.content import FileChange
from habitus.app.operating import job_kinds
from habitus.skills.editable_fields import EDITABLE
from habitus.skills.model import Stage
from habitus.text import count_of, encodable
from habitus.web import charts, inbox_words, site_map, words
from habitus.web.homes_by_person import habitus_of

HERE = Path(__file__).parent
STATIC = HERE / "static"


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """A message about a change that was just made, with the command that undoes it."""

    text: str
    undo: tuple[str, ...] = ()
    is_bad: bool = False


def page(
    request: Request,
    template: str,
    *,
    said: Said | None = None,
    status: int = 200,
    acts: Access = Access.ADMIN,
    **values: Any,
) -> HTMLResponse:
    """Return a whole page; htmx takes its part out of it. Below `required_access` the page is read-only."""
    habitus, access = habitus_of(request), request.state.access
    with habitus.reading():
        waiting, pause = habitus.waiting_count(), habitus.pause.last_known()
    around = {
        "path": request.url.path,
        "csrf": request.state.csrf,
        "is_signed_in": access >= Access.VIEWER,
        "who": request.state.person,
        "me": habitus.settings.signature,
        "may_change": access >= acts,
        "is_admin": access >= Access.ADMIN,
        "said": said,
        "waiting_count": waiting,
        "is_paused": pause is not None,
        "as_of": getattr(request.state, "as_of", None),
        "now": habitus.clock(),
        "commands": site_map.commands("", is_admin=access >= Access.ADMIN),
        "status": status,
    }
    # A lone surrogate in a skill's text would make the whole page fail to encode.
    text = encodable(_templates().get_template(template).render(around | values))
    return HTMLResponse(text, status_code=status)


def fragment(template: str, **values: Any) -> HTMLResponse:
    """Return a part of a page, for htmx to swap in."""
    return HTMLResponse(part(template, **values))


def part(template: str, **values: Any) -> str:
    """Return a rendered template as text."""
    return encodable(_templates().get_template(template).render({"now": datetime.now(UTC)} | values))


def is_swap(request: Request) -> bool:
    """Return whether htmx sent the request and will put the response into an open page."""
    return "hx-request" in request.headers


def notice(what: str, hint: str, status: HTTPStatus) -> HTMLResponse:
    """Return an error notice for the open page, which stays unchanged."""
    said = Said(text=f"{what} {hint}".strip(), is_bad=True)
    answer = fragment("said.html", said=said)
    answer.status_code = status
    answer.headers.update(
        {"HX-Retarget": "#said", "HX-Reselect": "#said", "HX-Reswap": "outerHTML", "HX-Push-Url": "false"}
    )
    return answer


def page_of_problem(status: HTTPStatus, what: str, hint: str) -> HTMLResponse:
    """Return an error page that needs nothing from the home."""
    text = _templates().get_template("problem_alone.html").render(status=status, what=what, hint=hint)
    return HTMLResponse(encodable(text), status_code=status)


@functools.cache
def _templates() -> Environment:
    made = Environment(
        # StrictUndefined: a misspelt attribute fails in tests instead of showing nothing.
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters |= {
        "ago": ago,
        "job_title": job_kinds.title_of,
        "ladder": ladder,
        "markdown": markdown,
        "timestamp": format_timestamp,
        "counted": count_of,
        "source_word": words.source,
        "twice": lambda text: (text, text),
    }
    made.globals |= {
        "words": words,
        "inbox_words": inbox_words,
        "site_map": site_map,
        "comparisons": charts,
        "skill_fields": EDITABLE,
        "version": version("habitus"),
    }
    return made


@functools.cache
def ladder(stages: frozenset[Stage]) -> Markup:
    """Return the stages of a skill as steps of a ladder; cached, since there are few combinations."""
    has = ", ".join(label for stage, label in words.STAGES.items() if stage in stages)
    steps = "".join('<i class="has"></i>' if stage in stages else "<i></i>" for stage in words.STAGES)
    return Markup(f'<span class="ladder" role="img" aria-label="Has {has}" title="{has}">{steps}</span>')


@functools.cache
def _reader() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])


_TAGS = {
    *("a", "blockquote", "br", "code", "del", "em", "hr", "li", "ol", "p", "pre", "s", "strong", "ul"),
    *("h1", "h2", "h3", "h4", "h5", "h6"),
    *("table", "tbody", "td", "th", "thead", "tr"),
}


def markdown(text: str) -> Markup:
    """Return Markdown as HTML without scripts, handlers, styles, remote images or unsafe links."""
    rendered = _reader().render(encodable(text))
    clean = nh3.clean(
        rendered,
        tags=_TAGS,
        attributes={"a": {"href"}, "ol": {"start"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    # Marked as safe because nh3 has just sanitised it.
    return Markup(clean)


def ago(then: datetime | None, now: datetime) -> Markup:
    """Return how long ago a time was, with the exact time as tooltip."""
    if then is None:
        return Markup("never")
    seconds = max((now - then).total_seconds(), 0)
    for name, length in (("year", 31_536_000), ("month", 2_592_000), ("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            text = f"{count_of(int(seconds // length), name)} ago"
            break
    else:
        text = "just now"
    exact = html.escape(then.isoformat(timespec="seconds"))
    return Markup(f'<time datetime="{exact}" title="{format_timestamp(then)}">{text}</time>')


def format_timestamp(then: datetime | None) -> str:
    """Return a time as local date and minute, or nothing for None."""
    return "" if then is None else f"{then.astimezone():%Y-%m-%d %H:%M}"


# Unchanged lines shown on each side of a change.
_AROUND = 2
# Lines beyond this are not compared: the matcher takes quadratic time.
_LONGEST = 4000

# Whether the text differs, and the text.
Piece = tuple[bool, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class DiffRow:
    """A line before and after, None where it doesn't exist; `is_gap` marks omitted unchanged lines."""

    before: tuple[Piece, ...] | None = None
    after: tuple[Piece, ...] | None = None
    is_changed: bool = True
    is_gap: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One file of a comparison; it has no rows if it is not text."""

    path: str
    rows: tuple[DiffRow, ...]


def draw_diffs(changes: Iterable[FileChange]) -> tuple[Compared, ...]:
    """Return each changed file as rows to show side by side."""
    return tuple(
        Compared(path=change.path, rows=side_by_side(change.before or "", change.after or "") if change.is_text else ())
        for change in changes
    )


def side_by_side(before: str, after: str) -> tuple[DiffRow, ...]:
    """Return the rows of a side-by-side diff, with gaps for unchanged lines."""
    old, new = before.splitlines()[:_LONGEST], after.splitlines()[:_LONGEST]
    rows: list[DiffRow] = []
    groups = difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_AROUND)
    end = 0
    for group in groups:
        if group[0][1] > end:
            rows.append(DiffRow(is_gap=True, is_changed=False))
        end = group[-1][2]
        for tag, i1, i2, j1, j2 in group:
            rows += _equal(old[i1:i2]) if tag == "equal" else _changed_rows(old[i1:i2], new[j1:j2])
    if rows and end < len(old):
        rows.append(DiffRow(is_gap=True, is_changed=False))
    return tuple(rows)


def _equal(lines: Sequence[str]) -> Iterator[DiffRow]:
    for line in lines:
        yield DiffRow(before=((False, line),), after=((False, line),), is_changed=False)


def _changed_rows(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffRow]:
    for before, after in zip_longest(old, new):
        if before is None or after is None:
            yield DiffRow(
                before=None if before is None else ((True, before),), after=None if after is None else ((True, after),)
            )
        else:
            yield _by_word(before, after)


def _by_word(before: str, after: str) -> DiffRow:
    """Return a changed line with the words that differ marked."""
    old, new = re.findall(r"\s+|\w+|[^\w\s]", before), re.findall(r"\s+|\w+|[^\w\s]", after)
    left: list[Piece] = []
    right: list[Piece] = []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        left.append((tag != "equal", "".join(old[i1:i2])))
        right.append((tag != "equal", "".join(new[j1:j2])))
    return DiffRow(before=tuple(piece for piece in left if piece[1]), after=tuple(piece for piece in right if piece[1]))
