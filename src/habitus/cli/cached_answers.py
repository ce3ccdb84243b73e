"""`habitus skills list`, `show` and `search` said from the listing that is kept, before the commands are imported."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from functools import partial

from habitus.cli import output
from habitus.cli.skills.printing import print_found, print_page, print_skill
from habitus.plain_data import plain
from habitus.search.model import results_as_json
from habitus.skills import names
from habitus.skills.choosing.search_cache import read_found
from habitus.skills.layers.listing import FORMS
from habitus.skills.layers.listing_cache import View, read_page, read_shown

_TOLD_MORE = ("HABITUS_LOG", "OTEL_EXPORTER_OTLP_ENDPOINT")  # where these are set, a command says more than its result


def answer(words: Sequence[str]) -> int | None:
    """The exit code where these words were answered; None where the command itself must."""
    gc.disable()  # the process ends when it is said
    say = None if any(map(os.environ.get, _TOLD_MORE)) else _answer_to(words)
    if say is None:
        gc.enable()
        return None
    output.prepare()
    try:
        say()
    except output.Lost as error:
        output.complain(f"habitus: {error}")
        return 1
    except BrokenPipeError:
        output.give_up()
        return 1
    except KeyboardInterrupt:
        output.complain("Stopped.")
        return 130
    return 0


def _answer_to(words: Sequence[str]) -> Callable[[], None] | None:
    given, rest = "", list(words)
    if rest[:1] == ["--home"] and len(rest) > 1:
        given, rest = rest[1], rest[2:]
    view, action, options = View.of_this_process(given), rest[:2], rest[2:]
    if view is None:
        return None
    if action == ["skills", "list"] and options in ([], ["--json"], ["--wide"]):
        page = read_page(view)
        if page is None:
            return None
        if options == ["--json"]:
            return partial(output.print_json, plain(page, FORMS))
        return partial(print_page, page, wide=options == ["--wide"])
    if action == ["skills", "show"] and options[1:] in ([], ["--json"]) and names.is_legal("".join(options[:1])):
        shown = read_shown(view, options[0])
        if shown is None or shown.skill is None:
            return None
        if options[1:]:
            return partial(output.print_json, plain(shown, FORMS))
        return partial(print_skill, shown, shown.skill)
    if action == ["skills", "search"] and (asked := _search_words(options)) is not None:
        query, k, flags = asked
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is there, as for every command
        found = read_found(view, query, k)
        if found is None:
            return None
        if "--json" in flags:
            return partial(output.print_json, results_as_json(found.results))
        return partial(print_found, found.results, found.cues, wide="--wide" in flags)
    return None


def _search_words(options: Sequence[str]) -> tuple[str, int, set[str]] | None:
    """The request, how many are wanted, and flags; None where the words are others."""
    left, k = list(options), 10
    if "-k" in left[:-1]:
        at = left.index("-k")
        number = left[at + 1]
        if not number.isascii() or not number.isdecimal() or not 0 < int(number) < 10_000:
            return None
        k = int(number)
        del left[at : at + 2]
    flags = {word for word in left if word in ("--json", "--wide")}
    query = [word for word in left if word not in flags]
    return (query[0], k, flags) if len(query) == 1 and not query[0].startswith("-") else None
