"""How well recipes are mined: procedures planted in made-up journals, found again, and tried on runs not seen.

    python benchmarks/mining.py [--journals N] [--turns N] [--large N]

A journal has a few procedures, each done in a few turns of several sessions with new values, among turns of the same
tools without any procedure. Calls that have nothing to do with it come between, calls fail and are repeated, turns
fail. Found: a recipe with the steps of a procedure that also makes the calls of a run which it has not seen (`recall`),
and the share of recipes that are part of a procedure (`precision`). `shuffled` is the same journal with all its calls
dealt out anew: whatever is found there is wrong. The kinds after `shell` were written when those before were found.
`repeats` is a plain miner beside it: sequences of the same tools in three turns. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import string
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from _report import Metrics, progress, show
from habitus.recipes.alignment import align_occurrences_into_recipe
from habitus.recipes.mining import MinedRecipe, mine_recipes
from habitus.recipes.sequences import ComparableToolCall, ObservedTurn

Run = Callable[[random.Random], list[ComparableToolCall]]  # one run of a procedure, with new values
Noise = Callable[[random.Random], ComparableToolCall]


@dataclass(frozen=True, kw_only=True, slots=True)
class Journal:
    turns: list[ObservedTurn]
    planted: list[Run]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--journals", type=int, default=20, help="of each kind")
    parser.add_argument("--turns", type=int, default=150, help="of a journal, without the planted ones")
    parser.add_argument("--large", type=int, default=10_000, help="turns of the journal that is timed")
    args = parser.parse_args()
    ours: Metrics = {}
    theirs: Metrics = {}
    for name, kind in KINDS.items():
        journals = [journal(kind, random.Random(f"{name} {seed}"), args.turns) for seed in range(args.journals)]
        ours[name] = scores(journals, [[*mine_recipes(one.turns)] for one in journals])
        ours[name]["shuffled"] = sum(len(mine_recipes(shuffled(one.turns))) for one in journals)
        theirs[name] = repeats(journals)
        progress(f"{name}: {ours[name]}")
    show("mining", args, {"habitus": {**ours, **timed(args.large)}, "repeats": theirs})


def journal(kind: Callable[[random.Random], tuple[list[Run], Noise]], rng: random.Random, turns: int) -> Journal:
    runs, noise = kind(rng)
    done = [[noise(rng) for _ in range(rng.randint(1, 8))] for _ in range(turns)]
    done += [_disturbed(run(rng), noise, rng) for run in runs for _ in range(rng.randint(4, 9))]
    rng.shuffle(done)
    made = [
        ObservedTurn(session=f"s{number // 4}", turn=f"t{number}", calls=calls, ok=rng.random() > 0.1)
        for number, calls in enumerate(done)
    ]
    return Journal(turns=made, planted=runs)


def _disturbed(calls: Sequence[ComparableToolCall], noise: Noise, rng: random.Random) -> list[ComparableToolCall]:
    """A run with other calls around and between, and here and there a call that had to be made twice."""
    made = [noise(rng) for _ in range(rng.randint(0, 2))]
    for call in calls:
        if rng.random() < 0.1:
            made.append(replace(call, success=False, result="it timed out"))
        made.append(call)
        if rng.random() < 0.15:
            made.append(noise(rng))
    return [*made, *(noise(rng) for _ in range(rng.randint(0, 2)))]


def shuffled(turns: Sequence[ObservedTurn]) -> list[ObservedTurn]:
    rng = random.Random("shuffled")
    calls = [call for turn in turns for call in turn.calls]
    rng.shuffle(calls)
    rest = iter(calls)
    return [replace(turn, calls=list(itertools.islice(rest, len(turn.calls)))) for turn in turns]


# Kinds of journals


def _text(rng: random.Random, length: int = 8) -> str:
    return "".join(rng.choices(string.ascii_lowercase + string.digits, k=length))


def files(rng: random.Random) -> tuple[list[Run], Noise]:
    """Tables: one is loaded, worked on by its handle, and written under a name that has the month in it."""
    folder, column = _text(rng), rng.choice(["price", "amount", "total"])

    def report(rng: random.Random) -> list[ComparableToolCall]:
        month, handle = f"20{rng.randint(10, 29)}-{rng.randint(1, 12):02}", _text(rng)
        loaded = json.dumps({"handle": handle, "rows": rng.randint(1, 900)})
        return [
            ComparableToolCall(name="load_table", arguments={"file": f"{folder}/sales-{month}.csv"}, result=loaded),
            ComparableToolCall(name="add_up", arguments={"table": handle, "column": column}, result='{"sum": 12.5}'),
            ComparableToolCall(
                name="write", arguments={"file": f"report-{month}.md", "style": "short"}, result="written"
            ),
        ]

    def clean(rng: random.Random) -> list[ComparableToolCall]:
        name, handle = _text(rng), _text(rng)
        loaded = json.dumps({"handle": handle, "rows": rng.randint(1, 900)})
        return [
            ComparableToolCall(name="load_table", arguments={"file": f"{name}.csv"}, result=loaded),
            ComparableToolCall(
                name="drop_empty", arguments={"table": handle}, result=json.dumps({"handle": handle + "x"})
            ),
            ComparableToolCall(
                name="save_table", arguments={"table": handle + "x", "file": f"{name}.csv"}, result="ok"
            ),
            ComparableToolCall(
                name="notify", arguments={"channel": "#data", "text": f"{name} is clean"}, result="sent"
            ),
        ]

    def noise(rng: random.Random) -> ComparableToolCall:
        name = rng.choice(["load_table", "add_up", "write", "drop_empty", "save_table", "notify", "look", "plot"])
        arguments = {
            "load_table": {"file": f"{_text(rng, 3)}.csv"},
            "add_up": {"table": _text(rng), "column": rng.choice(["price", "amount", "total"])},
            "write": {"file": f"{_text(rng, 3)}.md", "style": rng.choice(["short", "long"])},
            "save_table": {"table": _text(rng), "file": f"{_text(rng, 3)}.csv"},
            "notify": {"channel": rng.choice(["#data", "#ops"]), "text": _text(rng)},
        }.get(name, {"table": _text(rng)})
        return ComparableToolCall(name=name, arguments=arguments, result=json.dumps({"handle": _text(rng)}))

    return [report, clean], noise


def tickets(rng: random.Random) -> tuple[list[Run], Noise]:
    """Records with numbers: found, changed, commented, all by the number that a search returned."""
    team = rng.choice(["web", "data", "ops"])

    def triage(rng: random.Random) -> list[ComparableToolCall]:
        number, who = rng.randint(1000, 99999), rng.choice(["ann", "bob", "cyd"])
        found = json.dumps({"hits": [{"id": number, "title": _text(rng)}], "more": False})
        return [
            ComparableToolCall(name="find_ticket", arguments={"query": _text(rng, 12), "limit": 1}, result=found),
            ComparableToolCall(
                name="assign", arguments={"id": number, "to": {"team": team, "who": who}}, result="done"
            ),
            ComparableToolCall(name="comment", arguments={"id": number, "text": f"@{who} please look"}, result="done"),
        ]

    def close(rng: random.Random) -> list[ComparableToolCall]:
        number = rng.randint(1000, 99999)
        return [
            ComparableToolCall(name="close", arguments={"id": number, "reason": "fixed"}, result='{"state": "closed"}'),
            ComparableToolCall(name="comment", arguments={"id": number, "text": "Closed, thank you."}, result="done"),
        ]

    def noise(rng: random.Random) -> ComparableToolCall:
        number = rng.randint(1, 99999)
        return rng.choice(
            [
                ComparableToolCall(
                    name="find_ticket",
                    arguments={"query": _text(rng, 5), "limit": rng.randint(1, 3)},
                    result=json.dumps({"hits": [{"id": number, "title": _text(rng)}], "more": True}),
                ),
                ComparableToolCall(name="comment", arguments={"id": number, "text": _text(rng, 30)}, result="done"),
                ComparableToolCall(name="close", arguments={"id": number, "reason": rng.choice(["fixed", "stale"])}),
                ComparableToolCall(
                    name="assign", arguments={"id": number, "to": {"team": rng.choice(["web", "ops"]), "who": "ann"}}
                ),
                ComparableToolCall(name="list_teams", arguments={}, result='["web", "data", "ops"]'),
            ]
        )

    return [triage, close], noise


def shell(rng: random.Random) -> tuple[list[Run], Noise]:
    """Command lines of one tool, which only their programs tell apart."""
    remote = rng.choice(["origin", "backup"])

    def release(rng: random.Random) -> list[ComparableToolCall]:
        version = f"{rng.randint(0, 9)}.{rng.randint(0, 99)}.{rng.randint(0, 9)}"
        lines = [
            "uv run pytest -q",
            f'git commit -am "release {version}"',
            f"git tag v{version}",
            f"git push {remote} v{version}",
        ]
        return [ComparableToolCall(name="Bash", arguments={"command": line}, result=_text(rng, 30)) for line in lines]

    def noise(rng: random.Random) -> ComparableToolCall:
        line = rng.choice(["ls {}", "cat {}.py", "git diff {}", "git push", "uv run pytest {}", "rg {}", "git tag v{}"])
        return ComparableToolCall(name="Bash", arguments={"command": line.format(_text(rng, 4))}, result=_text(rng, 30))

    return [release], noise


def orders(rng: random.Random) -> tuple[list[Run], Noise]:
    """Late: whole objects are handed on, and lists of one or two things are taken apart."""
    currency = rng.choice(["EUR", "USD"])

    def refund(rng: random.Random) -> list[ComparableToolCall]:
        item = {"sku": _text(rng), "price": rng.randint(100, 9999) / 100}
        order = {"number": f"O-{rng.randint(10000, 99999)}", "items": [item], "buyer": {"mail": f"{_text(rng)}@x.org"}}
        return [
            ComparableToolCall(
                name="get_order", arguments={"number": order["number"]}, result=json.dumps({"order": order})
            ),
            ComparableToolCall(
                name="refund",
                arguments={"item": item, "how": {"currency": currency, "partial": False}},
                result=json.dumps({"refund": f"R-{rng.randint(10000, 99999)}"}),
            ),
            ComparableToolCall(
                name="send_mail",
                arguments={"to": [f"{order['buyer']['mail']}"], "subject": f"Refund of {order['number']}"},  # type: ignore[index]  # a mapping
                result="queued",
            ),
        ]

    def noise(rng: random.Random) -> ComparableToolCall:
        name = rng.choice(["get_order", "send_mail", "stock", "ship"])
        arguments: dict[str, object] = {"number": f"O-{rng.randint(10000, 99999)}"}
        if name == "send_mail":
            arguments = {"to": [f"{_text(rng)}@x.org"], "subject": _text(rng)}
        return ComparableToolCall(name=name, arguments=arguments, result=json.dumps({"n": rng.randint(1, 9)}))

    return [refund], noise


def notes(rng: random.Random) -> tuple[list[Run], Noise]:
    """Late: results are plain words, which later calls are given whole or within a sentence."""
    language = rng.choice(["German", "French"])

    def translated(rng: random.Random) -> list[ComparableToolCall]:
        page, words, other = (
            _text(rng),
            " ".join(_text(rng, 5) for _ in range(6)),
            " ".join(_text(rng) for _ in range(6)),
        )
        return [
            ComparableToolCall(name="read_note", arguments={"title": page}, result=words),
            ComparableToolCall(name="translate", arguments={"text": words, "into": language}, result=other),
            ComparableToolCall(
                name="write_note", arguments={"title": f"{page} ({language})", "text": other}, result="ok"
            ),
        ]

    def tidied(rng: random.Random) -> list[ComparableToolCall]:
        page, words = _text(rng), " ".join(_text(rng, 5) for _ in range(6))
        return [
            ComparableToolCall(name="read_note", arguments={"title": page}, result=words),
            ComparableToolCall(name="archive", arguments={"title": page, "reason": "old"}, result="archived"),
            ComparableToolCall(
                name="write_note", arguments={"title": "Index", "text": f"- {page}: {words}"}, result="ok"
            ),
        ]

    def noise(rng: random.Random) -> ComparableToolCall:
        name = rng.choice(["read_note", "search", "archive", "translate"])
        return ComparableToolCall(
            name=name, arguments={"title": _text(rng)}, result=" ".join(_text(rng) for _ in range(5))
        )

    return [translated, tidied], noise


def rhythm(rng: random.Random) -> tuple[list[Run], Noise]:
    """Late: everybody searches, reads and edits in this order all day, which is no procedure; one thing among it is."""
    order = itertools.cycle(["grep", "read", "edit"])

    def bump(rng: random.Random) -> list[ComparableToolCall]:
        package, new = _text(rng, 6), f"{rng.randint(1, 9)}.{rng.randint(0, 20)}.{rng.randint(0, 9)}"
        return [
            ComparableToolCall(name="latest", arguments={"package": package}, result=json.dumps({"version": new})),
            ComparableToolCall(
                name="edit", arguments={"file": "pyproject.toml", "old": package, "new": f"{package}=={new}"}
            ),
            ComparableToolCall(name="lock", arguments={"upgrade": package}, result="locked"),
        ]

    def noise(rng: random.Random) -> ComparableToolCall:
        name = next(order)
        arguments = {
            "grep": {"pattern": _text(rng, 5)},
            "read": {"file": f"src/{_text(rng, 2)}.py"},
            "edit": {"file": f"src/{_text(rng, 2)}.py", "old": _text(rng, 30), "new": _text(rng, 30)},
        }[name]
        return ComparableToolCall(name=name, arguments=arguments, result=_text(rng, 40))

    return [bump], noise


KINDS: dict[str, Callable[[random.Random], tuple[list[Run], Noise]]] = {
    "files": files,
    "tickets": tickets,
    "shell": shell,
    "orders": orders,
    "notes": notes,
    "rhythm": rhythm,
}


# Scores


def scores(journals: Sequence[Journal], found: Sequence[Sequence[MinedRecipe]]) -> Metrics:
    planted = right = recovered = made = 0
    for one, mined in zip(journals, found, strict=True):
        unseen = [[run(random.Random(f"unseen {number}")) for number in range(5)] for run in one.planted]
        planted += len(unseen)
        made += len(mined)
        right += sum(any(_is_part(recipe.labels, runs[0]) for runs in unseen) for recipe in mined)
        recovered += sum(any(_makes(one, recipe, runs) for recipe in mined) for runs in unseen)
    return {"recall": _share(recovered, planted), "precision": _share(right, made), "recipes": made}


def _share(some: int, all: int) -> float | None:
    return round(some / all, 3) if all else None


def _is_part(labels: Sequence[str], run: Sequence[ComparableToolCall]) -> bool:
    rest = iter(call.step_equivalence_key for call in run)
    return all(label in rest for label in labels)


def _makes(journal: Journal, recipe: MinedRecipe, runs: Sequence[list[ComparableToolCall]]) -> bool:
    """Whether the recipe makes the calls of runs that it has not seen: with them it is still the same."""
    if [call.step_equivalence_key for call in runs[0]] != list(recipe.labels):
        return False
    turns = {turn.turn: turn for turn in journal.turns}
    seen = [[turns[one.turn].calls[place] for place in one.places] for one in recipe.occurrences]
    return align_occurrences_into_recipe(recipe.recipe.name, [*seen, *runs]).recipe.steps == recipe.recipe.steps


def repeats(journals: Sequence[Journal]) -> Metrics:
    """Every sequence of three or four tools that is in three turns, without a look at the arguments."""
    planted = right = recovered = made = 0
    for one in journals:
        counts: Counter[tuple[str, ...]] = Counter()
        for turn in one.turns:
            names = [call.action for call in turn.calls if call.success]
            counts.update(
                {tuple(names[at : at + n]) for n in (3, 4) for at in range(len(names) - n + 1)} if turn.ok else ()
            )
        found = [names for names, count in counts.items() if count >= 3]
        runs = [[call.action for call in run(random.Random("any"))] for run in one.planted]
        planted += len(runs)
        made += len(found)
        right += sum(any(list(names) == run[: len(names)] for run in runs) for names in found)
        recovered += sum(tuple(run) in found for run in runs)
    return {"recall": _share(recovered, planted), "precision": _share(right, made), "recipes": made}


def timed(turns: int) -> Metrics:
    large = journal(files, random.Random("large"), turns).turns
    began = time.process_time()
    found = len(mine_recipes(large))
    return {
        "large": {
            "turns": len(large),
            "calls": sum(len(t.calls) for t in large),
            "cpu_s": round(time.process_time() - began, 2),
            "recipes": found,
        }
    }


if __name__ == "__main__":
    main()
