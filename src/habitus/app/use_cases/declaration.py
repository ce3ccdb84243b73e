"""Declarations: a use case says once what it takes, what it gives, who may do it, how it is called, and one example.

Commands, REST, their descriptions and the role check are made from that. A declaration is plain: whoever serves builds
its models from the dataclasses.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass
from datetime import datetime
from functools import cached_property
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from habitus.access import Access
from habitus.app.home import Home
from habitus.errors import Invalid, Stale
from habitus.settings import Settings

Place = TypeVar("Place", Home, Settings)
Wanted = TypeVar("Wanted")
Done = TypeVar("Done")

# One module a group. A group is imported when one of its commands is called, or when a server is started.
GROUPS = (
    *("agents", "evidence", "finding", "identity", "improving", "jobs", "lessons", "overview", "pads", "pausing"),
    *("recipes", "review", "secrets", "sessions", "settings", "skills", "sources", "storage", "tasks", "tools"),
    *("trusting", "undoing", "users", "writing"),
)


@dataclass(frozen=True)
class UseCase(Generic[Wanted, Done]):
    """Called as the function it was made of: a home and the input in, the result out.

    A function whose first parameter is of type `Settings` works where the home can't be opened; a home does, too.
    """

    function: Callable[[Any, Wanted], Done]
    command: str  # its words behind `habitus`
    method: str
    path: str  # of its route below /api/v1, with {fields} of the input
    access: Access  # the least that a caller has to be
    example: Wanted
    undo: str  # what takes it back, for the reader of its reference
    status: int  # of an answer that went well
    location: str  # of what was made, with {keys} of the result's JSON
    is_once: bool  # whether a key makes it happen once
    takes_files: bool  # whether a request may be as large as an upload
    changes_settings: bool  # whether a server works on with settings that it changed
    made_since: Callable[[Home, Wanted, datetime], Done | None] | None  # its result where a killed process had made it
    version_of: Callable[[Done], tuple[int, str]] | None  # version and layer of the result, which make its ETag

    def __call__(self, home: Home | Settings, wanted: Wanted) -> Done:
        return self.function(home.settings if self.takes_settings and isinstance(home, Home) else home, wanted)

    @property
    def help(self) -> str:
        return inspect.getdoc(self.function) or ""

    @cached_property
    def input(self) -> type[Wanted]:
        found: type[Wanted] = self._hints["wanted"]
        return found

    @cached_property
    def result(self) -> Any:
        return self._hints["return"]

    @cached_property
    def takes_settings(self) -> bool:
        """Whether it works on the settings alone, without an open home."""
        return next(iter(self._hints.values())) is Settings

    @cached_property
    def _hints(self) -> Mapping[str, Any]:
        return get_type_hints(self.function)

    @cached_property
    def fields(self) -> Sequence[InputField]:
        hints = get_type_hints(self.input)
        given = [one for one in dataclasses.fields(self.input) if not one.metadata.get("is_attempt")]  # type: ignore[arg-type]  # an input is a dataclass
        return [InputField(name=one.name, type=hints[one.name], field=one) for one in given]

    def as_attempt(self, wanted: Wanted, id: str) -> Wanted:
        """The input of a request that may be sent again, which is always called `id`."""
        marked = [one.name for one in dataclasses.fields(self.input) if one.metadata.get("is_attempt")]  # type: ignore[arg-type]  # an input is a dataclass
        return dataclasses.replace(wanted, **dict.fromkeys(marked, id))  # type: ignore[type-var]  # the same


@dataclass(frozen=True, kw_only=True)
class InputField:
    """One field of an input: what its metadata says of it."""

    name: str
    type: Any
    field: Field[Any]

    @property
    def help(self) -> str:
        return str(self.field.metadata.get("help", ""))

    @property
    def flags(self) -> tuple[str, ...]:
        """How the option is spelled; an argument has none."""
        given: tuple[str, ...] = self.field.metadata.get("flags", ())
        if any(flag.startswith("--") for flag in given) or self.is_argument:
            return given
        return (f"--{self.name.replace('_', '-')}", *given)

    @property
    def is_argument(self) -> bool:
        return bool(self.field.metadata.get("is_argument"))

    @property
    def metavar(self) -> str | None:
        """How help calls an argument whose name over REST says less."""
        found: str | None = self.field.metadata.get("metavar")
        return found

    @property
    def reads(self) -> str:
        """`json` or `text` where the command line reads the value from a file or standard input."""
        return str(self.field.metadata.get("reads", ""))

    @property
    def is_version(self) -> bool:
        """Whether it is the version that a change starts from, which REST takes from If-Match."""
        return bool(self.field.metadata.get("is_version"))

    @property
    def is_address(self) -> bool:
        """Whether it is where the pages are reached, which REST takes from the request unless it is said."""
        return bool(self.field.metadata.get("is_address"))

    @property
    def rest_default(self) -> Any:
        """The value over REST unless one is sent, where it differs from that of the command line; MISSING elsewhere."""
        return self.field.metadata.get("rest_default", MISSING)

    @property
    def limits(self) -> Mapping[str, Any]:
        """`ge` and `le` of numbers, `max_length` of texts."""
        given: Mapping[str, Any] = self.field.metadata.get("limits", {})
        return given

    @property
    def completes(self) -> str:
        """The kind of names that the Tab key offers: skills or lessons."""
        return str(self.field.metadata.get("completes", ""))

    @property
    def is_required(self) -> bool:
        return self.field.default is MISSING and self.field.default_factory is MISSING

    @property
    def default(self) -> Any:
        return self.field.default if self.field.default_factory is MISSING else self.field.default_factory()

    @property
    def is_many(self) -> bool:
        return get_origin(self.bare) is tuple

    @property
    def bare(self) -> Any:
        """The type without None."""
        rest = [one for one in get_args(self.type) if one is not NoneType]
        return rest[0] if len(rest) == 1 and NoneType in get_args(self.type) else self.type

    @property
    def each(self) -> Any:
        """The type of one value."""
        return get_args(self.bare)[0] if self.is_many else self.bare


@dataclass(frozen=True)
class Nothing:
    """The input of a use case that takes none."""


LINE, TEXT = 2_000, 100_000  # the longest that is taken


def argument(
    help: str, *, default: Any = MISSING, completes: str = "", metavar: str | None = None, **limits: float
) -> Any:
    """A field that is an argument on the command line; for `limits` see `option`."""
    return _field(default, help=help, is_argument=True, limits=_limits(**limits), completes=completes, metavar=metavar)


def option(help: str, *flags: str, default: Any = None, rest_default: Any = MISSING, **limits: float) -> Any:
    """A field that is an option on the command line: spelled as it is called, or as `flags` say.

    `rest_default` is the default over REST where that is another; `limits` are `least` and `most` of a number,
    `longest` of a text.
    """
    return _field(default, help=help, flags=flags, rest_default=rest_default, limits=_limits(**limits))


def _limits(least: float | None = None, most: float | None = None, longest: float = LINE) -> dict[str, float]:
    limits = {"ge": least, "le": most, "max_length": longest}
    return {key: one for key, one in limits.items() if one is not None}


def json_argument(help: str, *, metavar: str | None = None) -> Any:
    """A field with any JSON, by default an empty object: as an argument it is JSON, a file with it, or `-`."""
    return dataclasses.field(
        default_factory=dict, metadata={"help": help, "is_argument": True, "reads": "json", "metavar": metavar}
    )


def json_option(help: str, *flags: str, default: Any) -> Any:
    """The same as an option."""
    return dataclasses.field(default_factory=lambda: default, metadata={"help": help, "flags": flags, "reads": "json"})


def text_option(help: str, *flags: str, default: Any = None) -> Any:
    """A field with a text, which the command line reads from a file; `-` is standard input."""
    return _field(default, help=help, flags=flags, limits=_limits(longest=TEXT), reads="text")


def reason_option() -> Any:
    return option("Why, for the history.", default="")


def starting_version() -> Any:
    """A field with the version that a change starts from: `--expect` on the command line, If-Match over REST."""
    return _field(None, help="Refuse unless it is at this version.", flags=("--expect",), is_version=True)


def page_address(help: str) -> Any:
    """A field with where the pages are reached: over REST, unless it is said, where the request was sent."""
    return _field("http://127.0.0.1:8765", help=help, flags=(), limits=_limits(), is_address=True)


def attempt_id() -> Any:
    """A field with the id of the attempt, which nobody gives: REST has the same one each time a request is sent."""
    return _field("", is_attempt=True)


def _field(default: Any, **metadata: Any) -> Any:
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Page(Generic[Wanted]):
    """Some of a list: `next` is what the following page begins after."""

    items: Sequence[Wanted]
    next: str | None
    total: int


def page_of(
    name: str, found: Sequence[Wanted], key: Callable[[Wanted], str], *, limit: int | None, after: str
) -> Page[Wanted]:
    """Those that come behind `after`, which is the key of one of them; all without a limit."""
    start = next((at for at, item in enumerate(found, 1) if key(item) == after), 0) if after else 0
    if after and not start:
        raise Invalid(f"No page of {name} begins after '{after}'.", mend="Begin anew, without 'after'.")
    end = len(found) if limit is None else start + limit
    return Page(items=found[start:end], next=key(found[end - 1]) if end < len(found) else None, total=len(found))


def limit_option(default: int | None = 100, *, rest_default: Any = MISSING) -> Any:
    help = "How many at most; all without it." if default is None else "How many at most."
    return option(help, "-n", default=default, rest_default=rest_default, least=1, most=500)


def after_option() -> Any:
    return option("Begin behind this one: the 'next' of the page before.", default="")


def tag_of(version: int, layer: str = "") -> str:
    """A version as REST says it. The layer is a number in it: its name may be that of a folder, in any letters."""
    return f'"{version}-{zlib.crc32(layer.encode("utf-8", "replace")):08x}"' if layer else f'"{version}"'


def version_in(expected: str | None, layer: str = "") -> int | None:
    """The version that a change starts from: a number, or a tag, which must be one of the layer that would change."""
    if expected is None:
        return None
    found = re.fullmatch(r'("?)([0-9]{1,9})(-[0-9a-f]{8})?\1', expected)
    if found is None or (found[3] and not found[1]):
        raise Invalid(f"'{expected}' is not a version.", mend="Give its number; an ETag as it came, quotes included.")
    if found[1] and expected != tag_of(int(found[2]), layer):
        raise Stale("Another layer has it now.", mend="Read it again, and change that.")
    return int(found[2])


def use_case(
    command: str,
    *,
    route: str = "",
    access: Access,
    example: Wanted,
    undo: str = "",
    status: int = 200,
    location: str = "",
    is_once: bool = False,
    takes_files: bool = False,
    changes_settings: bool = False,
    made_since: Callable[[Home, Any, datetime], Any] | None = None,
    version_of: Callable[[Any], tuple[int, str]] | None = None,
) -> Callable[[Callable[[Place, Wanted], Done]], UseCase[Wanted, Done]]:
    """Declare a function of a home, or of its settings, and `wanted`, its input; `route` is a method and a path."""
    method, _, path = route.partition(" ")

    def declare(function: Callable[[Place, Wanted], Done]) -> UseCase[Wanted, Done]:
        return UseCase(
            function=function,
            command=command,
            method=method,
            path=path,
            access=access,
            example=example,
            undo=undo,
            status=status,
            location=location,
            is_once=is_once,
            takes_files=takes_files,
            changes_settings=changes_settings,
            made_since=made_since,
            version_of=version_of,
        )

    return declare


def use_cases_of(group: str) -> Iterator[UseCase[Any, Any]]:
    """The use cases of a group, in the order of its module."""
    module = importlib.import_module(f"habitus.app.use_cases.{group}")
    return (one for one in vars(module).values() if isinstance(one, UseCase))


def all_declared() -> Iterator[UseCase[Any, Any]]:
    for group in GROUPS:
        yield from use_cases_of(group)
