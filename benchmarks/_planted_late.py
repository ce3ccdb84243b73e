"""Kinds of failures that were written after the miner was frozen: how it does on what it was not made for."""

from __future__ import annotations

import random

from _planted import README, STUB, Maker, Plant, before, look, many, pair, run


def _schema(rng: random.Random) -> Plant:
    table = rng.choice(("orders", "users", "items"))
    query, make = f"sqlite3 shop.db 'select count(*) from {table}'", rng.choice(("make schema", "bin/migrate up"))
    create = f"sqlite3 shop.db 'create table {table} (id integer)'"
    return Plant(
        kind="late: no table yet",
        files={**README, "Makefile": f"schema:\n\t@{create}\n", "bin/migrate": f"{STUB}{create}\n"},
        sessions=many(rng, lambda _: (run("rm -f shop.db"), *pair(rng, query, make, query))),
        says=(make,),
    )


def _linker(rng: random.Random) -> Plant:
    name = rng.choice(("main", "curve", "stats"))
    code = "#include <math.h>\n#include <stdlib.h>\nint main(int c, char **v) { return (int) sqrt(atof(v[0]) + c); }\n"
    return Plant(
        kind="late: library not linked",
        files={**README, f"{name}.c": code},
        sessions=many(rng, lambda _: pair(rng, f"gcc {name}.c -o {name}", f"gcc {name}.c -o {name} -lm")),
        says=("-lm",),
    )


def _encoding(rng: random.Random) -> Plant:
    name = rng.choice(("sales", "people"))
    load = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('file')\n"
        "parser.add_argument('--encoding', default='utf-8')\nargs = parser.parse_args()\n"
        "print(len(bytes([77, 252, 108]).decode(args.encoding)))\n"
    )
    line = f"python3 load.py {name}.csv"
    return Plant(
        kind="late: encoding",
        files={**README, "load.py": load, f"{name}.csv": "a,b\n"},
        sessions=many(rng, lambda _: pair(rng, line, f"{line} --encoding latin-1")),
        says=("--encoding latin-1",),
    )


def _identity(rng: random.Random) -> Plant:
    commit = "git commit -q --allow-empty -m start"
    name = 'git config user.email "dev@shop.test" && git config user.name "Dev"'
    return Plant(
        kind="late: git identity",
        files=README,
        sessions=many(rng, lambda _: (run("rm -rf .git && git init -q ."), *pair(rng, commit, name, commit))),
        says=("git config user.email",),
    )


def _shell(rng: random.Random) -> Plant:
    script = rng.choice(("release.sh", "scripts/check.sh"))
    return Plant(
        kind="late: another shell",
        files={**README, script: 'set -e\nlist=(a b)\necho "${list[0]}"\n'},
        sessions=many(rng, lambda _: pair(rng, f"sh {script}", f"bash {script}")),
        says=(f"bash {script}",),
    )


def _edited(rng: random.Random) -> Plant:
    return Plant(
        kind="late decoy: fixed code",
        files={**README, "main.c": "int main(void) { return missing; }\n"},
        sessions=many(
            rng,
            lambda _: (
                *before(rng),
                run("gcc main.c -o main"),
                *look(rng),
                run("sed -i 's/missing/0/' main.c"),
                run("gcc main.c -o main -O2"),
                run("sed -i 's/return 0/return missing/' main.c"),
            ),
        ),
    )


def _unrelated(rng: random.Random) -> Plant:
    fails_once = STUB + 'test -e .t || { touch .t; echo "lease lost" >&2; exit 3; }; rm .t; echo synced\n'
    return Plant(
        kind="late decoy: unrelated work in between",
        files={**README, "bin/lease": fails_once},
        sessions=many(
            rng,
            lambda number: (run("lease sync"), run(f"mkdir -p out{number}"), run("touch out.txt"), run("lease sync")),
        ),
    )


LATE: tuple[Maker, ...] = (_schema, _linker, _encoding, _identity, _shell, _edited, _unrelated)
