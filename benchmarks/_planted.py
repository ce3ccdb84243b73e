"""Planted sessions for the benchmark of remedies: small projects in which commands fail and work for real.

A `Plant` is a project: its files, what is run in each of its sessions, and the lesson that should come of it, if any.
Tools that may not be installed where the benchmark runs are small stand-ins in the project's `bin`.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Step = tuple[str, object]  # a tool and its arguments; of a shell, its text


@dataclass(frozen=True, kw_only=True)
class Plant:
    kind: str
    files: dict[str, str]
    sessions: tuple[tuple[Step, ...], ...]
    says: tuple[str, ...] = ()  # what its lesson has to say; nothing where there is no lesson to find

    @property
    def is_decoy(self) -> bool:
        return not self.says


Maker = Callable[[random.Random], Plant]


def run(line: str) -> Step:
    return "Bash", line


def look(rng: random.Random) -> list[Step]:
    """What agents do in between: look around, read, and sometimes edit."""
    around = ("ls", "ls -la", "pwd", "git status --short", "cat README.md", "grep -rn TODO . || true", "which python3")
    found: list[Step] = [run(line) for line in rng.sample(around, rng.randint(0, 2))]
    if rng.random() < 0.3:
        found.append(("Read", {"file_path": "README.md"}))
    return found


def before(rng: random.Random) -> list[Step]:
    """Work that has nothing to do with it."""
    return [*look(rng), *([run(rng.choice(("wc -l README.md", "date", "echo start")))] if rng.random() < 0.5 else [])]


def pair(rng: random.Random, wrong: str, *right: str, again: str = "") -> tuple[Step, ...]:
    """A failure, looking around, and what worked; `again` fails in between in another way."""
    middle = [run(again)] if again and rng.random() < 0.4 else []
    first = [run(wrong)] * rng.choice((1, 1, 1, 2))
    if rng.random() < 0.1:  # given up
        return (*before(rng), *first, *look(rng))
    asked: list[Step] = [("say", "go on")] if len(right) == 1 and rng.random() < 0.1 else []
    cut = " 2>&1 | tail -20" if rng.random() < 0.25 else ""
    then = [run(line) for line in (*right[:-1], right[-1] + cut)]
    return (*before(rng), *first, *look(rng), *middle, *asked, *then, *before(rng))


def many(rng: random.Random, episode: Callable[[int], tuple[Step, ...]]) -> tuple[tuple[Step, ...], ...]:
    return tuple(episode(number) for number in range(rng.randint(2, 4)))


STUB = "#!/bin/sh\n"
PASSES = STUB + 'echo "3 passed in 0.12s"\n'
FRESH_REPOSITORY = "rm -rf .git ../remote.git; git init -q --bare ../remote.git; git init -q -b main ."
README = {"README.md": "# Shop\nTODO: say more\n"}


def _runner(rng: random.Random) -> Plant:
    tool = rng.choice(("pytest", "ruff", "mypy", "alembic", "celery"))
    runner = rng.choice(("uv run", "poetry run", "pipenv run", "pdm run"))
    name = runner.split()[0]
    stub = STUB + 'shift; PATH="$PROJECT/.tools:$PATH" exec "$@"\n'
    args = ("", " -q", " src", " tests/test_cart.py", " --version-info")
    return Plant(
        kind="runner",
        files={**README, f"bin/{name}": stub, f".tools/{tool}": PASSES},
        sessions=many(rng, lambda _: pair(rng, f"{tool}{rng.choice(args)}", f"{runner} {tool}{rng.choice(args)}")),
        says=(f"`{runner} {tool}`", f"`{tool}`"),
    )


def _python3(rng: random.Random) -> Plant:
    script = rng.choice(("seed.py", "report.py", "tools/export.py"))
    return Plant(
        kind="python3",
        files={**README, script: "print('done')\n"},
        sessions=many(rng, lambda _: pair(rng, f"python {script}", f"python3 {script}")),
        says=("`python3`", "`python`"),
    )


def _path(rng: random.Random) -> Plant:
    package, script = rng.choice(("shop", "cart", "billing")), rng.choice(("main.py", "tools/check.py"))
    return Plant(
        kind="module by variable",
        files={**README, f"src/{package}/__init__.py": "", script: f"import {package}\nprint('ok')\n"},
        sessions=many(rng, lambda _: pair(rng, f"python3 {script}", f"PYTHONPATH=src python3 {script}")),
        says=("PYTHONPATH=src",),
    )


def _install(rng: random.Random) -> Plant:
    module = rng.choice(("left", "money", "slugs"))
    vendor = {
        f"vendor/{module}/package.json": json.dumps({"name": module, "version": "1.0.0", "main": "i.js"}),
        f"vendor/{module}/i.js": "module.exports = 1;\n",
    }
    clean = run("rm -rf node_modules package-lock.json")
    install = f"npm install --no-audit --no-fund ./vendor/{module}"
    return Plant(
        kind="module by install",
        files={
            **README,
            **vendor,
            "package.json": '{"name": "shop"}',
            "app.js": f"require('{module}'); console.log('up')\n",
        },
        sessions=many(rng, lambda _: (clean, *pair(rng, "node app.js", install, "node app.js"))),
        says=(install, "node app.js"),
    )


def _directory(rng: random.Random) -> Plant:
    place = rng.choice(("web", "services/api", "backend"))
    line = rng.choice(("make check", "npm run --silent check", "python3 manage.py check"))
    files = {
        f"{place}/Makefile": "check:\n\t@echo fine\n",
        f"{place}/package.json": '{"name": "web", "scripts": {"check": "echo fine"}}',
        f"{place}/manage.py": "print('fine')\n",
    }
    return Plant(
        kind="directory",
        files={**README, **files},
        sessions=many(rng, lambda _: pair(rng, line, f"cd {place} && {line}", again="ls nowhere")),
        says=(f"cd {place}",),
    )


def _target(rng: random.Random) -> Plant:
    right, wrong = rng.choice((("test", "tests"), ("lint", "linter"), ("deploy", "deploys"), ("build-all", "buildall")))
    return Plant(
        kind="make target",
        files={**README, "Makefile": f"{right}:\n\t@echo fine\n"},
        sessions=many(rng, lambda _: pair(rng, f"make {wrong}", f"make {right}")),
        says=(f"`make {right}`", f"`make {wrong}`"),
    )


def _script(rng: random.Random) -> Plant:
    right, wrong = rng.choice(
        (("test", "tests"), ("test:unit", "test-unit"), ("build", "builds"), ("type-check", "typecheck"))
    )
    return Plant(
        kind="npm script",
        files={**README, "package.json": json.dumps({"name": "web", "scripts": {right: "echo fine"}})},
        sessions=many(rng, lambda _: pair(rng, f"npm run {wrong}", f"npm run {right}")),
        says=(f"npm run {right}", f"npm run {wrong}"),
    )


TOOL = """import argparse
parser = argparse.ArgumentParser(prog="tool")
parser.add_argument("what")
{options}
parser.parse_args()
print("made")
"""


def _renamed(rng: random.Random) -> Plant:
    wrong, right = rng.choice((("--out", "--target-file"), ("--quiet", "--silent"), ("--parallel", "--jobs")))
    value = rng.choice(("one", "two"))
    tool = TOOL.format(options=f'parser.add_argument("{right}")')
    return Plant(
        kind="option unknown",
        files={**README, "tool.py": tool},
        sessions=many(
            rng, lambda _: pair(rng, f"python3 tool.py go {wrong} {value}", f"python3 tool.py go {right} {value}")
        ),
        says=(right, wrong),
    )


def _required(rng: random.Random) -> Plant:
    option = rng.choice(("--env", "--region", "--profile"))
    tool = TOOL.format(options=f'parser.add_argument("{option}", required=True)')
    verb = rng.choice(("plan", "release"))
    return Plant(
        kind="option required",
        files={**README, "tool.py": tool},
        sessions=many(rng, lambda _: pair(rng, f"python3 tool.py {verb}", f"python3 tool.py {verb} {option} dev")),
        says=(option,),
    )


def _upstream(rng: random.Random) -> Plant:
    start = f"{FRESH_REPOSITORY} && git remote add origin ../remote.git"

    def episode(number: int) -> tuple[Step, ...]:
        branch = f"{rng.choice(('fix', 'feature'))}-{number}-{rng.randint(10, 99)}"
        made = f"git checkout -q -b {branch} && git -c user.name=a -c user.email=b commit -q --allow-empty -m x"
        return (run(start), run(made), *pair(rng, "git push", f"git push --set-upstream origin {branch}"))

    return Plant(kind="upstream", files=README, sessions=many(rng, episode), says=("git push", "--set-upstream"))


def _interpreter(rng: random.Random) -> Plant:
    script, interpreter = rng.choice((("deploy.sh", "bash"), ("scripts/sync.sh", "sh"), ("gen.py", "python3")))
    body = "print('ok')\n" if script.endswith("py") else "echo ok\n"
    return Plant(
        kind="not executable",
        files={**README, script: body},
        sessions=many(rng, lambda _: pair(rng, f"./{script}", f"{interpreter} {script}")),
        says=(f"`{interpreter} {script}`",),
    )


def _service(rng: random.Random) -> Plant:
    port = rng.choice((8123, 8765, 9009))
    start = rng.choice(("bin/services up", "bin/stack start", "make serve"))
    serve = f"python3 -m http.server {port} --bind 127.0.0.1 >/dev/null 2>&1 &\nsleep 0.7\n"
    files = {"bin/services": STUB + serve, "bin/stack": STUB + serve}
    files["Makefile"] = "serve:\n\t@sh bin/stack\n"
    return Plant(
        kind="service",
        files={**README, **files},
        sessions=many(rng, lambda _: pair(rng, f"curl -sS localhost:{port}/", start, f"curl -sS localhost:{port}/")),
        says=(start, "curl"),
    )


def _example(rng: random.Random) -> Plant:
    name = rng.choice((".env", "config.ini", "settings.local.json"))
    line = "python3 app.py"
    return Plant(
        kind="file from example",
        files={**README, f"{name}.example": "MODE=dev\n", "app.py": f"print(open('{name}').read())\n"},
        sessions=many(rng, lambda _: (run(f"rm -f {name}"), *pair(rng, line, f"cp {name}.example {name}", line))),
        says=(f"cp {name}.example {name}",),
    )


def _read_first(rng: random.Random) -> Plant:
    """As an agent's own edit tool has it; it can't be run here."""

    def episode(number: int) -> tuple[Step, ...]:
        edit = {"file_path": f"/srv/shop/src/part{number}.py", "old_string": "a", "new_string": "b"}
        error = "<tool_use_error>File has not been read yet. Read it first before writing to it.</tool_use_error>"
        return (
            *before(rng),
            ("Edit", {**edit, "!": error}),
            ("Read", {"file_path": edit["file_path"]}),
            ("Edit", edit),
        )

    return Plant(kind="read first", files=README, sessions=many(rng, episode), says=("Read", "first", "Edit"))


def _moved(rng: random.Random) -> Plant:
    name = rng.choice(("migrate.py", "seed_data.py", "export.py"))
    wrong, right = rng.choice((("scripts", "tools"), ("bin", "src/jobs"), ("scripts", "ops/scripts")))
    return Plant(
        kind="moved file",
        files={**README, f"{right}/{name}": "print('ok')\n"},
        sessions=many(rng, lambda _: pair(rng, f"python3 {wrong}/{name}", f"python3 {right}/{name}")),
        says=(f"{right}/{name}", f"{wrong}/{name}"),
    )


def _variable(rng: random.Random) -> Plant:
    name, value = rng.choice((("APP_ENV", "dev"), ("DATABASE_URL", "sqlite:x.db"), ("STAGE", "test")))
    line = rng.choice(("python3 manage.py", "python3 worker.py"))
    return Plant(
        kind="variable required",
        files={**README, line.split()[1]: f"import os\nos.environ['{name}']\nprint('up')\n"},
        sessions=many(rng, lambda _: pair(rng, line, f"{name}={value} {line}")),
        says=(f"{name}={value}",),
    )


KINDS: tuple[Maker, ...] = (
    *(_runner, _python3, _path, _install, _directory, _target, _script, _renamed, _required, _upstream),
    *(_interpreter, _service, _example, _read_first, _moved, _variable),
)


# Nothing to learn


def _other_success(rng: random.Random) -> Plant:
    return Plant(
        kind="decoy: another success",
        files=README,
        sessions=many(rng, lambda _: pair(rng, f"cat config{rng.randint(1, 9)}.yml", "cat README.md")),
    )


def _changed_goal(rng: random.Random) -> Plant:
    files = {**README, "package.json": json.dumps({"name": "w", "scripts": {"lint": "echo fine", "docs": "echo ok"}})}
    other = rng.choice(("lint", "docs"))
    return Plant(
        kind="decoy: changed goal",
        files=files,
        sessions=many(
            rng,
            lambda _: (
                run("npm run coverage"),
                *look(rng),
                ("say", "never mind, something else"),
                run(f"npm run {other}"),
            ),
        ),
    )


FLAKY = (
    STUB
    + 'if [ -e .once ]; then rm .once; echo ok; else touch .once; echo "worker crashed: segment lost" >&2; exit 1; fi\n'
)


def _flaky(rng: random.Random) -> Plant:
    return Plant(
        kind="decoy: flaky retry",
        files={**README, "bin/job": FLAKY},
        sessions=many(rng, lambda _: (*before(rng), run("job all"), *look(rng), run("job all"))),
    )


def _flaky_between(rng: random.Random) -> Plant:
    act = rng.choice(("git init -q .", "touch notes.txt", "mkdir -p out"))
    return Plant(
        kind="decoy: flaky, something in between",
        files={**README, "bin/job": FLAKY},
        sessions=many(
            rng,
            lambda number: (
                (run("job all"), run("job all")) if number % 2 else (run("job all"), run(act), run("job all"))
            ),
        ),
    )


def _failing_test(rng: random.Random) -> Plant:
    check = "def test_it():\n    assert total() == 3\n\ndef total():\n    return 2\n\ntest_it()\n"
    other = "print('1 passed')\n"
    return Plant(
        kind="decoy: failing test",
        files={**README, "test_cart.py": check, "test_other.py": other},
        sessions=many(
            rng,
            lambda _: (
                run("python3 test_cart.py"),
                *(
                    (run("python3 test_other.py"),)
                    if rng.random() < 0.5
                    else (run("sed -i 's/return 2/return 3/' test_cart.py"), run("python3 -B test_cart.py"))
                ),
                run("sed -i 's/return 3/return 2/' test_cart.py"),
            ),
        ),
    )


def _transient(rng: random.Random) -> Plant:
    return Plant(
        kind="decoy: transient",
        files=README,
        sessions=many(
            rng, lambda _: pair(rng, "curl -sS https://registry.invalid/x", "curl -sS file:///etc/hostname || true")
        ),
    )


def _help(rng: random.Random) -> Plant:
    tool = TOOL.format(options='parser.add_argument("--env", required=True)')
    return Plant(
        kind="decoy: only help",
        files={**README, "tool.py": tool},
        sessions=many(rng, lambda _: pair(rng, "python3 tool.py plan", "python3 tool.py plan --help")),
    )


def _forced(rng: random.Random) -> Plant:
    more = (
        "git config user.name a; git config user.email b; git commit -q --allow-empty -m 1; "
        "git push -q ../remote.git main; git commit -q --amend --allow-empty -m 2"
    )
    return Plant(
        kind="decoy: forced",
        files=README,
        sessions=many(
            rng,
            lambda _: (
                run(FRESH_REPOSITORY),
                run(more),
                *pair(rng, "git push ../remote.git main", "git push --force ../remote.git main"),
            ),
        ),
    )


def _contradicted(rng: random.Random) -> Plant:
    """It was so once; since then the program is installed."""
    stub = STUB + 'shift; PATH="$PROJECT/.tools:$PATH" exec "$@"\n'
    return Plant(
        kind="decoy: no longer so",
        files={**README, "bin/uv": stub, ".tools/pytest": PASSES},
        sessions=(
            pair(rng, "pytest", "uv run pytest"),
            pair(rng, "pytest -q", "uv run pytest -q"),
            (*before(rng), run("cp .tools/pytest bin/pytest"), run("pytest")),
            (*before(rng), run("cp .tools/pytest bin/pytest; true"), run("pytest -q")),
        ),
    )


def _edited(rng: random.Random) -> Plant:
    return Plant(
        kind="decoy: fixed by an edit",
        files={**README, "job.py": "value = settings\n"},
        sessions=many(
            rng,
            lambda _: (
                run("python3 job.py"),
                ("Edit", {"file_path": "job.py", "old_string": "settings", "new_string": "1"}),
                run("sed -i 's/settings/1/' job.py"),
                run("python3 job.py"),
                run("sed -i 's/= 1/= settings/' job.py"),
            ),
        ),
    )


def _nothing_found(rng: random.Random) -> Plant:
    return Plant(
        kind="decoy: nothing found",
        files=README,
        sessions=many(rng, lambda _: pair(rng, f"grep -rn missing{rng.randint(1, 9)} .", "grep -rn TODO .")),
    )


def _refused(rng: random.Random) -> Plant:
    no = "The user doesn't want to proceed with this tool use. The tool use was rejected"
    return Plant(
        kind="decoy: refused",
        files=README,
        sessions=many(
            rng,
            lambda _: (("Bash", {"command": "rm -r out", "!": no}), run("ls -d ."), run("mkdir -p out && rm -r out")),
        ),
    )


def _clean(rng: random.Random) -> Plant:
    return Plant(
        kind="nothing to find",
        files=README,
        sessions=many(rng, lambda _: (*before(rng), *look(rng), run("wc -c README.md"), *before(rng))),
    )


DECOYS: tuple[Maker, ...] = (
    *(_other_success, _changed_goal, _flaky, _flaky_between, _failing_test, _transient, _help, _forced),
    *(_contradicted, _edited, _nothing_found, _refused, _clean),
)


# Running them

DRIVER = """
import json, os, subprocess, sys
job = json.load(sys.stdin)
here = job["project"]
env = {"PATH": here + "/bin:/usr/bin:/bin", "HOME": here, "PROJECT": here, "LANG": "C.UTF-8"}
results = []
for line in job["lines"]:
    try:
        ran = subprocess.run(["bash", "-c", line], cwd=job["project"], env=env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        results.append([ran.returncode, ran.stdout])
    except subprocess.TimeoutExpired:
        results.append([124, "timed out"])
json.dump(results, sys.stdout)
"""


@dataclass
class World:
    """A throw-away project on disk. Each session runs in a sandbox of its own without a network."""

    folder: Path
    bubblewrap: Path | None
    _written: dict[str, str] = field(default_factory=dict)

    def furnish(self, plant: Plant) -> None:
        for name, text in plant.files.items():
            path = self.folder / "shop" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if text.startswith(STUB):
                path.chmod(0o755)

    def ran(self, steps: Sequence[Step]) -> Iterator[tuple[str, dict[str, object], int, str]]:
        """Each step with its exit code and what it said; what can't be run says what it was given."""
        lines = [args for tool, args in steps if tool == "Bash" and isinstance(args, str)]
        job = json.dumps({"project": str(self.folder / "shop"), "lines": lines})
        done = subprocess.run(
            [*self._walls(), sys.executable, "-I", "-c", DRIVER], input=job, capture_output=True, text=True, check=True
        )
        results = iter(json.loads(done.stdout))
        for tool, args in steps:
            if tool == "Bash" and isinstance(args, str):
                code, said = next(results)
                yield tool, {"command": args}, code, said
            elif isinstance(args, dict):
                shown = {key: value for key, value in args.items() if key != "!"}
                yield tool, shown, int("!" in args), str(args.get("!", "ok"))
            else:
                yield tool, {"words": args}, 0, ""

    def _walls(self) -> list[str]:
        if self.bubblewrap is None:
            return []
        shared = [
            "--ro-bind",
            "/",
            "/",
            "--bind",
            str(self.folder),
            str(self.folder),
            "--dev",
            "/dev",
            "--proc",
            "/proc",
        ]
        return [str(self.bubblewrap), "--unshare-all", "--die-with-parent", *shared]
