"""Write docs/reference/ and README's table of agents from the code: commands, settings, public names, REST.

`reference.py` writes the pages; `reference.py --check` only says which are out of date, and exits 1 when one is.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import habitus
from habitus.cli.lazy_commands import LazyCommand
from habitus.cli.main import app
from habitus.hosts.known_agents import CONNECTABLE_AGENTS, KNOWN_AGENTS, STUDIED_AGENTS, SYNCED_AGENTS
from habitus.llm.agents.programs import PROGRAMS
from habitus.settings import Settings
from habitus.web.app import build_application_without_home

README = Path(__file__).resolve().parent.parent / "README.md"
DOCS = README.parent / "docs" / "reference"
MADE_BY = "<!-- Written by scripts/reference.py; change the code, then run `make docs`. -->"

Command = Any  # typer brings its own copy of click, whose classes have no public name


def main() -> int:
    pages = {
        DOCS / "cli.md": cli_page(),
        DOCS / "settings.md": settings_page(),
        DOCS / "python.md": python_page(),
        DOCS / "rest.md": rest_page(),
        README: readme(),
    }
    stale = [path for path, text in pages.items() if _read(path) != text]
    DOCS.mkdir(parents=True, exist_ok=True)
    for path in stale:
        name = path.relative_to(README.parent)
        if "--check" in sys.argv[1:]:
            print(f"{name} is out of date. Run 'make docs'.")
        else:
            path.write_text(pages[path], encoding="utf-8")
            print(f"wrote {name}")
    return 1 if stale and "--check" in sys.argv[1:] else 0


def readme() -> str:
    """The README with its table of agents as the code has them."""
    text = README.read_text(encoding="utf-8")
    before, begin, rest = text.partition("<!-- agents: written by scripts/reference.py -->\n")
    _, end, after = rest.partition("<!-- end of agents -->\n")
    return before + begin + _agents() + "\n" + end + after


def _agents() -> str:
    names = {
        **{one.name: one.title for one in KNOWN_AGENTS.values()},
        **{one.name: one.title for one in PROGRAMS.values()},
    }
    names = {name: title for name, title in names.items() if name != "cursor-agent"}
    models = {*PROGRAMS, *(["cursor"] if "cursor-agent" in PROGRAMS else [])}
    rows = [
        (
            title,
            _tick(
                name in CONNECTABLE_AGENTS,
                "MCP and hooks" if CONNECTABLE_AGENTS.get(name) and CONNECTABLE_AGENTS[name].hooks else "MCP",
            ),
            _tick(name in SYNCED_AGENTS),
            _tick(name in STUDIED_AGENTS),
            _tick(name in models),
        )
        for name, title in names.items()
    ]
    return _table(
        (
            "agent",
            "`connect`",
            "`sync` of skills",
            "`check` and `learn` read its sessions",
            "model for learning, not for chat",
        ),
        rows,
    )


def _tick(is_so: bool, word: str = "yes") -> str:
    return word if is_so else ""


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", MADE_BY, *(part for part in parts if part)]) + "\n"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


# Commands


def cli_page() -> str:
    root: Command = typer.main.get_command(app)
    found = list(_commands(root, ("habitus",)))
    index = [(f"[`{' '.join(path)}`](#{'-'.join(path)})", _first(command.help)) for path, command in found[1:]]
    return _page(
        "Command line",
        "Exit codes: 0 done, 1 failed, 2 called wrongly. `--json` prints one JSON object on standard output, also when"
        ' something failed: `{"error", "hint"}`. Options of `habitus` itself stand before the command.',
        _table(("command", "what it does"), index),
        *(_command(path, command) for path, command in found),
    )


def _commands(command: Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Command]]:
    """The command and all below it, in the order in which they were added; groups before what they hold."""
    default = getattr(command, "default", None)
    yield path, default.load() if default else command
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            whole = below.load() if isinstance(below, LazyCommand) else below
            yield from _commands(whole, (*path, name))


def _command(path: tuple[str, ...], command: Command) -> str:
    shown = [param for param in command.params if not param.hidden and param.name != "help"]
    arguments = [param for param in shown if param.param_type_name == "argument"]
    options = [param for param in shown if param.param_type_name == "option"]
    is_group = bool(getattr(command, "commands", None))
    usage = [
        *path,
        *(["[OPTIONS]"] if options else []),
        *map(_argument, arguments),
        *(["COMMAND …"] if is_group else []),
    ]
    parts = [f"## {' '.join(path)}", _flowing(command.help), f"```\n{' '.join(usage)}\n```"]
    if arguments:
        parts.append(_table(("argument", "meaning"), [(f"`{_argument(p)}`", _flowing(p.help)) for p in arguments]))
    if options:
        parts.append(_table(("option", "meaning"), [(_option(p), _flowing(p.help)) for p in options]))
    parts.append(_flowing(command.epilog).replace("Example: ", "Example: `").rstrip() + "`" if command.epilog else "")
    return "\n\n".join(part for part in parts if part)


def _argument(param: Command) -> str:
    name = (param.metavar or param.name).upper() + ("…" if param.nargs != 1 else "")
    return name if param.required else f"[{name}]"


def _option(param: Command) -> str:
    value = "" if param.is_flag else f" {_kind(getattr(param.type_descriptor, 'annotation', None))}"
    spelled = ", ".join(f"`{name}{value}`" for name in (*param.opts, *param.secondary_opts))
    return f"{spelled} (required)" if param.required else spelled


def _kind(annotation: object) -> str:
    return {int: "N", float: "N", Path: "PATH"}.get(annotation, "TEXT") if isinstance(annotation, type) else "TEXT"


def _first(text: str | None) -> str:
    return _flowing(text).split(". ")[0].rstrip(".") + "."


def _flowing(text: str | None) -> str:
    return " ".join((text or "").split())


# Settings

_FOUND_OUT = ("cwd", "user_home", "warnings", "is_claimed", "is_guest")  # fields of Settings that nobody sets
_DEFAULTS = {"home": "`~/.habitus`", "user": "the login name", "editor": "`$VISUAL`, `$EDITOR`, then `vi`"}


def settings_page() -> str:
    rows, sections = [], []
    for key, field in Settings.model_fields.items():
        if key in _FOUND_OUT:
            continue
        section = _section(key, field)
        if section:
            sections += section
        else:
            in_file = f"`{key}`" if key != "home" else "only as a variable"
            is_table = get_origin(field.annotation) is dict
            kind = "table" if is_table else _type(field.annotation)
            default = _DEFAULTS.get(key) or _default(field.get_default(call_default_factory=True))
            named = "only in the file" if is_table else f"`HABITUS_{key.upper()}`"
            rows.append((in_file, named, kind, default, field.description or ""))
    return _page(
        "Settings",
        "Settings are read once at the start: from `HABITUS_*` variables, then from `habitus.toml` in the home, then"
        " from the defaults. The first that says something wins; `habitus --home DIR` wins over `HABITUS_HOME`.",
        "A list of names may be written `a, b` in a variable. An unknown key in the file is named and ignored; a value"
        " that can't be used stops the command.",
        _table(("key in habitus.toml", "variable", "value", "default", "meaning"), rows),
        "These have a section of their own:",
        _table(("key in habitus.toml", "variable", "value", "default", "meaning"), sections),
        '```toml\ndisabled_skills = ["data-summary"]\n\n[users.ana]\nadmin = true\n\n[users.ben]\n'
        'disabled_skills = ["plan-a-risky-change"]\n\n[experimental]\nfeatures = ["skill_my_new_one"]\n```',
        "With no `users` section the one local user is admin.",
        "`HABITUS_DEBUG=1` shows where an unexpected error came from.",
    )


def _section(key: str, field: FieldInfo) -> list[tuple[str, ...]]:
    kind = field.annotation
    name = key
    if get_origin(kind) is dict:
        kind, name = get_args(kind)[1], f"{key}.NAME"
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return []
    return [
        (
            f"`[{name}]` `{below}`",
            f"`HABITUS_{key}_{below}`".upper() if name == key else "only in the file",
            _type(inner.annotation),
            _default(inner.default),
            inner.description or "",
        )
        for below, inner in kind.model_fields.items()
    ]


def _type(annotation: object) -> str:
    if isinstance(annotation, types.UnionType):
        return _type(next(kind for kind in get_args(annotation) if kind is not type(None)))
    if get_origin(annotation) is tuple:
        return "list of names"
    known = {bool: "true or false", str: "text", Path: "path", float: "number", int: "number"}
    return known.get(annotation, "text") if isinstance(annotation, type) else "text"


def _default(value: object) -> str:
    if value in (None, (), "", {}):
        return "none"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


# Public names


def python_page() -> str:
    return _page(
        "Python API",
        "The names that `from habitus import …` gives. What is not here may change at any time.",
        *(_public(name, getattr(habitus, name)) for name in sorted(habitus.__all__, key=str.lower)),
    )


def _public(name: str, thing: Any) -> str:
    parts = [f"## {name}"]
    if not inspect.isclass(thing):
        return "\n\n".join([*parts, f"```python\n{name}{_signature(thing)}\n```", _summary(thing)])
    if not issubclass(thing, BaseModel) and not issubclass(thing, Exception):
        # Read from `__init__`, because a dataclass's own signature spells its types otherwise.
        parts.append(f"```python\nclass {name}\n```" if dataclasses.is_dataclass(thing) else _constructor(name, thing))
    parts.append(_summary(thing))
    if issubclass(thing, BaseModel):
        parts.append("See [settings](settings.md) for its fields.")
    elif dataclasses.is_dataclass(thing):
        rows = [(f"`{field.name}`", f"`{field.type}`") for field in dataclasses.fields(thing)]
        parts.append(_table(("field", "type"), rows))
    if not issubclass(thing, BaseModel):
        parts += _members(thing)
    return "\n\n".join(part for part in parts if part)


def _constructor(name: str, thing: type) -> str:
    return f"```python\n{name}{_signature(thing.__init__, is_method=True)}\n```"  # type: ignore[misc]  # read, not called


def _members(thing: type) -> list[str]:
    rows = []
    for name, member in _declared(thing).items():
        if isinstance(member, property):
            rows.append((f"`{name}`", _summary(member)))
        elif isinstance(member, classmethod):
            rows.append((f"`{name}{_signature(member.__func__, is_method=True)}`", _summary(member.__func__)))
        elif inspect.isfunction(member):
            rows.append((f"`{name}{_signature(member, is_method=True)}`", _summary(member)))
    return [_table(("member", "what it does"), rows)] if rows else []


def _declared(thing: type) -> Mapping[str, Any]:
    """The public members of a class and of the bases that are ours, each once, the bases first."""
    ours = [base for base in reversed(thing.__mro__) if base.__module__.startswith("habitus.")]
    return {name: value for base in ours for name, value in vars(base).items() if not name.startswith("_")}


def _signature(function: Callable[..., Any], *, is_method: bool = False) -> str:
    signature = inspect.signature(function)
    parts: list[str] = []
    seen_star = False
    for param in list(signature.parameters.values())[1 if is_method else 0 :]:
        if param.kind is param.KEYWORD_ONLY and not seen_star:
            parts.append("*")
            seen_star = True
        annotation = "" if param.annotation is param.empty else f": {param.annotation}"
        default = "" if param.default is param.empty else f" = {_shown(param.default)}"
        parts.append(f"{param.name}{annotation}{default}")
    returns = signature.return_annotation
    ending = "" if returns in (signature.empty, "None") else f" -> {returns}"
    return f"({', '.join(parts)}){ending}"


def _shown(default: object) -> str:
    """A default as the code spells it; a function is only hinted at, because its address differs each time."""
    if isinstance(default, Enum):
        return f"{type(default).__name__}.{default.name}"
    if dataclasses.is_dataclass(default) and not isinstance(default, type) and default == type(default)():
        return f"{type(default).__name__}()"
    return "…" if callable(default) else repr(default)


def _summary(thing: object) -> str:
    return _flowing((inspect.getdoc(thing) or "").split("\n\n")[0])


# REST


def rest_page() -> str:
    description = build_application_without_home().openapi()
    found = [
        (path.removeprefix("/api/v1"), method.upper(), told)
        for path, methods in description["paths"].items()
        for method, told in methods.items()
    ]
    rows = [
        (f"`{method} {path}`", _flowing(told.get("description")), _sent(description, told))
        for path, method, told in found
    ]
    return _page(
        "REST",
        "Below `http://127.0.0.1:8765/api/v1`, served by `habitus up`; `GET /openapi.json` there says it to machines."
        " Every request needs `Authorization: Bearer TOKEN` with the token that `habitus up` prints; with"
        " `--open-reading` routes that name nobody can be read without one.",
        "An error is `application/problem+json` with `title` (the problem) and `detail` (the hint): 401 not signed in,"
        " 403 not allowed for your role, 404 not found, 409 refused, 412 changed meanwhile, 413 too large, 422 invalid,"
        " 428 version missing, 503 the database is away.",
        "`GET` of a skill or lesson has an `ETag`; a change sends it back as `If-Match`. A create may have an"
        " `Idempotency-Key`: sent twice, it is done once. Lists come in pages: `limit`, and `after` with what `next`"
        " said. What changes something answers with `undo`, which `POST /undo` takes.",
        _table(("request", "what it does", "takes"), rows),
    )


def _sent(description: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    """The names of what a request takes, without those of its address."""
    names = [f"`{one['name']}`" for one in told.get("parameters", ()) if one["in"] != "path"]
    for content in told.get("requestBody", {}).get("content", {}).values():
        for one in content["schema"].get("anyOf", [content["schema"]]):
            shape = description["components"]["schemas"].get(one.get("$ref", "").rpartition("/")[2], {})
            names += [f"`{name}`" for name in shape.get("properties", {})]
    return ", ".join(names)


if __name__ == "__main__":
    sys.exit(main())
