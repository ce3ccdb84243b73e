"""Rendering: templates, Markdown that can do no harm, moments and counts in words, notices, and
differences side by side."""

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
    """Word of a change that was just made, and the command that takes it back."""

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
    """A whole page; a request of htmx takes what it wants out of it. Who has less access than `acts` only reads it."""
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
    text = encodable(_templates().get_template(template).render(around | values))
    return HTMLResponse(text, status_code=status)


def fragment(template: str, **values: Any) -> HTMLResponse:
    """A part of a page, for htmx to put in its place."""
    return HTMLResponse(part(template, **values))


def part(template: str, **values: Any) -> str:
    return encodable(_templates().get_template(template).render({"now": datetime.now(UTC)} | values))


def is_swap(request: Request) -> bool:
    """Whether htmx asks, and so puts the answer into a page that is open."""
    return "hx-request" in request.headers


def notice(what: str, mend: str, status: HTTPStatus) -> HTMLResponse:
    """A notice of an error on the open page, which stays as it is."""
    said = Said(text=f"{what} {mend}".strip(), is_bad=True)
    answer = fragment("said.html", said=said)
    answer.status_code = status
    answer.headers.update(
        {"HX-Retarget": "#said", "HX-Reselect": "#said", "HX-Reswap": "outerHTML", "HX-Push-Url": "false"}
    )
    return answer


def page_of_problem(status: HTTPStatus, what: str, mend: str) -> HTMLResponse:
    """A page that says what went wrong and needs nothing of Habitus to do so."""
    text = _templates().get_template("problem_alone.html").render(status=status, what=what, mend=mend)
    return HTMLResponse(encodable(text), status_code=status)


@functools.cache
def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters |= {
        "ago": ago,
        "job_title": job_kinds.title_of,
        "ladder": ladder,
        "markdown": markdown,
        "moment": moment,
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
    """The stages that a skill has, as steps of a ladder; there are only a few sets of them."""
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
    """As HTML without scripts, handlers, styles, images from elsewhere, or links that are none."""
    rendered = _reader().render(encodable(text))
    clean = nh3.clean(
        rendered,
        tags=_TAGS,
        attributes={"a": {"href"}, "ol": {"start"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    return Markup(clean)  # nh3 has just made it safe


def ago(then: datetime | None, now: datetime) -> Markup:
    """How long ago, with the moment itself for whoever points at it."""
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
    return Markup(f'<time datetime="{exact}" title="{moment(then)}">{text}</time>')


def moment(then: datetime | None) -> str:
    return "" if then is None else f"{then.astimezone():%Y-%m-%d %H:%M}"


_AROUND = 2  # equal lines that are shown beside a change
_LONGEST = 4000  # lines of a text; a longer one is compared as a whole

Piece = tuple[bool, str]  # whether it differs, and the text


@dataclass(frozen=True, kw_only=True, slots=True)
class DiffRow:
    """A line before and after; None where there is none. `is_gap` stands for equal lines that are left out."""

    before: tuple[Piece, ...] | None = None
    after: tuple[Piece, ...] | None = None
    is_changed: bool = True
    is_gap: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One file of a comparison, ready to be drawn; no rows for what is not text."""

    path: str
    rows: tuple[DiffRow, ...]


def draw_diffs(changes: Iterable[FileChange]) -> tuple[Compared, ...]:
    """Files before and after, side by side."""
    return tuple(
        Compared(path=change.path, rows=side_by_side(change.before or "", change.after or "") if change.is_text else ())
        for change in changes
    )


def side_by_side(before: str, after: str) -> tuple[DiffRow, ...]:
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
    old, new = re.findall(r"\s+|\w+|[^\w\s]", before), re.findall(r"\s+|\w+|[^\w\s]", after)
    left: list[Piece] = []
    right: list[Piece] = []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        left.append((tag != "equal", "".join(old[i1:i2])))
        right.append((tag != "equal", "".join(new[j1:j2])))
    return DiffRow(before=tuple(piece for piece in left if piece[1]), after=tuple(piece for piece in right if piece[1]))
