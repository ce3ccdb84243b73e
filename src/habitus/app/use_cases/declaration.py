"""Declare a use case once: its request, result, required access, command, route and one example.

Commands, REST routes, their reference pages and the access check are generated from the declaration. A declaration
holds plain dataclasses; the surface that serves it builds its own models from them.
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

HomeOrSettings = TypeVar("HomeOrSettings", Home, Settings)
RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")

# One module per group, imported when one of its commands is called or when a server starts.
USE_CASE_GROUPS = (
    *("agents", "evidence", "finding", "identity", "improving", "jobs", "lessons", "overview", "pads", "pausing"),
    *("recipes", "review", "secrets", "sessions", "settings", "skills", "sources", "storage", "tasks", "tools"),
    *("trusting", "undoing", "users", "writing"),
)


@dataclass(frozen=True)
class UseCase(Generic[RequestT, ResultT]):
    """A declared function, called like the original: a home and the request in, the result out.

    A function whose first parameter is typed `Settings` also works where the home can't be opened. Calling it with a
    home is fine, too.
    """

    function: Callable[[Any, RequestT], ResultT]
    # The words after `habitus`; empty if there is no command.
    command: str
    method: str
    # The route's path below /api/v1, with {fields} of the request.
    path: str
    # The lowest role that may call it.
    access: Access
    example: RequestT
    # The command that undoes it, as shown in the reference.
    undo: str
    # The HTTP status of a successful response.
    status: int
    # The Location header of a created resource, with {keys} of the result's JSON.
    location: str
    # Whether an idempotency key makes repeated requests run only once.
    accepts_idempotency_key: bool
    # Whether a request body may be as large as an upload.
    takes_files: bool
    # Whether a server must reload its settings afterwards.
    changes_settings: bool
    # Finds the result that a killed process had already produced.
    recover_result: Callable[[Home, RequestT, datetime], ResultT | None] | None
    # Returns version and layer of the result, which form its ETag.
    get_version: Callable[[ResultT], tuple[int, str]] | None

    def __call__(self, home: Home | Settings, request: RequestT) -> ResultT:
        return self.function(home.settings if self.takes_settings and isinstance(home, Home) else home, request)

    @property
    def help(self) -> str:
        """Return the docstring of the function, which is the help text on every surface."""
        return inspect.getdoc(self.function) or ""

    @cached_property
    def input(self) -> type[RequestT]:
        """Return the type of the request."""
        # The request is found by its parameter name, so every use case has to call it the same.
        found: type[RequestT] = self._hints["request"]
        return found

    @cached_property
    def result(self) -> Any:
        """Return the type of the result."""
        return self._hints["return"]

    @cached_property
    def takes_settings(self) -> bool:
        """Whether it needs only the settings, not an open home."""
        return next(iter(self._hints.values())) is Settings

    @cached_property
    def _hints(self) -> Mapping[str, Any]:
        return get_type_hints(self.function)

    @cached_property
    def fields(self) -> Sequence[InputField]:
        """Return the fields of the request that a caller can set."""
        hints = get_type_hints(self.input)
        given = [one for one in dataclasses.fields(self.input) if not one.metadata.get("is_attempt")]  # type: ignore[arg-type]  # an input is a dataclass
        return [InputField(name=one.name, type=hints[one.name], field=one) for one in given]

    def with_attempt_id(self, request: RequestT, id: str) -> RequestT:
        """Return the request with the attempt's id filled in, which makes a retry recognisable."""
        marked = [one.name for one in dataclasses.fields(self.input) if one.metadata.get("is_attempt")]  # type: ignore[arg-type]  # an input is a dataclass
        return dataclasses.replace(request, **dict.fromkeys(marked, id))  # type: ignore[type-var]  # the same


@dataclass(frozen=True, kw_only=True)
class InputField:
    """One field of a request, with its metadata."""

    name: str
    type: Any
    field: Field[Any]

    @property
    def help(self) -> str:
        """Return the help text of the field."""
        return str(self.field.metadata.get("help", ""))

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the spellings of the option; empty for an argument."""
        given: tuple[str, ...] = self.field.metadata.get("flags", ())
        if any(flag.startswith("--") for flag in given) or self.is_argument:
            return given
        return (f"--{self.name.replace('_', '-')}", *given)

    @property
    def is_argument(self) -> bool:
        """Whether it is a positional argument on the command line."""
        return bool(self.field.metadata.get("is_argument"))

    @property
    def metavar(self) -> str | None:
        """Return the name of an argument in help texts, if it differs from the name of the field."""
        found: str | None = self.field.metadata.get("metavar")
        return found

    @property
    def read_as(self) -> str:
        """Return `json` or `text` if the command line reads the value from a file or standard input."""
        return str(self.field.metadata.get("reads", ""))

    @property
    def is_version(self) -> bool:
        """Whether it is the version that a change is based on, which REST reads from If-Match."""
        return bool(self.field.metadata.get("is_version"))

    @property
    def is_address(self) -> bool:
        """Whether it is the address of the pages, which REST takes from the request by default."""
        return bool(self.field.metadata.get("is_address"))

    @property
    def rest_default(self) -> Any:
        """Return the default over REST if it differs from the command line's, else MISSING."""
        return self.field.metadata.get("rest_default", MISSING)

    @property
    def limits(self) -> Mapping[str, Any]:
        """Return the limits: `ge` and `le` of numbers, `max_length` of texts."""
        given: Mapping[str, Any] = self.field.metadata.get("limits", {})
        return given

    @property
    def completion_kind(self) -> str:
        """Return which names the Tab key completes: `skills`, `lessons` or nothing."""
        return str(self.field.metadata.get("completes", ""))

    @property
    def is_required(self) -> bool:
        """Whether the field has no default."""
        return self.field.default is MISSING and self.field.default_factory is MISSING

    @property
    def default(self) -> Any:
        """Return the default value; only valid if the field is not required."""
        return self.field.default if self.field.default_factory is MISSING else self.field.default_factory()

    @property
    def is_list(self) -> bool:
        """Whether the field takes several values."""
        return get_origin(self.type_without_none) is tuple

    @property
    def type_without_none(self) -> Any:
        """Return the type without None."""
        rest = [one for one in get_args(self.type) if one is not NoneType]
        return rest[0] if len(rest) == 1 and NoneType in get_args(self.type) else self.type

    @property
    def item_type(self) -> Any:
        """Return the type of a single value."""
        return get_args(self.type_without_none)[0] if self.is_list else self.type_without_none


@dataclass(frozen=True)
class EmptyPayload:
    """The payload of a use case that takes, or returns, nothing."""


# The longest values accepted, in characters: a paragraph, and a whole document.
MAX_LINE_CHARS, MAX_TEXT_CHARS = 2_000, 100_000


def argument(
    help: str,
    *,
    default: Any = MISSING,
    rest_default: Any = MISSING,
    completes: str = "",
    metavar: str | None = None,
    **limits: float,
) -> Any:
    """Declare a field that is a positional argument on the command line; for the rest see `option`."""
    return _declare_field(
        default,
        help=help,
        is_argument=True,
        rest_default=rest_default,
        limits=_build_limits(**limits),
        completes=completes,
        metavar=metavar,
    )


def option(help: str, *flags: str, default: Any = None, rest_default: Any = MISSING, **limits: float) -> Any:
    """Declare a field that is an option on the command line, spelled like the field or as `flags` say.

    `rest_default` is the default over REST if it differs. `limits` are `least` and `most` for a number, `longest` for a
    text.
    """
    return _declare_field(default, help=help, flags=flags, rest_default=rest_default, limits=_build_limits(**limits))


def _build_limits(
    least: float | None = None, most: float | None = None, longest: float = MAX_LINE_CHARS
) -> dict[str, float]:
    limits = {"ge": least, "le": most, "max_length": longest}
    return {key: one for key, one in limits.items() if one is not None}


def json_argument(help: str, *, metavar: str | None = None) -> Any:
    """Declare an argument that takes any JSON, a file with JSON, or `-`; the default is an empty object."""
    return dataclasses.field(
        default_factory=dict, metadata={"help": help, "is_argument": True, "reads": "json", "metavar": metavar}
    )


def json_option(help: str, *flags: str, default: Any) -> Any:
    """Declare an option that takes any JSON, a file with JSON, or `-`."""
    return dataclasses.field(default_factory=lambda: default, metadata={"help": help, "flags": flags, "reads": "json"})


def text_option(help: str, *flags: str, default: Any = None) -> Any:
    """Declare a text option that the command line reads from a file; `-` is standard input."""
    return _declare_field(default, help=help, flags=flags, limits=_build_limits(longest=MAX_TEXT_CHARS), reads="text")


def reason_option() -> Any:
    """Declare the option for the reason that is kept in the history."""
    return option("Reason, for the history.", default="")


def expected_version_option() -> Any:
    """Declare the version that a change is based on: `--expect` on the command line, If-Match over REST."""
    return _declare_field(None, help="Fail unless this is its current version.", flags=("--expect",), is_version=True)


def page_address_option(help: str) -> Any:
    """Declare the address of the pages; over REST it defaults to the address of the request."""
    return _declare_field("http://127.0.0.1:8765", help=help, flags=(), limits=_build_limits(), is_address=True)


def attempt_id_field() -> Any:
    """Declare the id of an attempt. Callers never set it: REST repeats the same id for each retry of a request."""
    return _declare_field("", is_attempt=True)


def _declare_field(default: Any, **metadata: Any) -> Any:
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class ResultPage(Generic[RequestT]):
    """One page of a list; `next` is the cursor of the following page, None on the last."""

    items: Sequence[RequestT]
    next: str | None
    total: int


def paginate_items(
    name: str, items: Sequence[RequestT], key: Callable[[RequestT], str], *, limit: int | None, after: str
) -> ResultPage[RequestT]:
    """Return the items after the one whose key is `after`, at most `limit` of them.

    Raises `Invalid` if no item has that key.
    """
    start = next((at for at, item in enumerate(items, 1) if key(item) == after), 0) if after else 0
    if after and not start:
        raise Invalid(f"No page of {name} begins after '{after}'.", hint="Start again without 'after'.")
    end = len(items) if limit is None else start + limit
    return ResultPage(items=items[start:end], next=key(items[end - 1]) if end < len(items) else None, total=len(items))


def limit_option(default: int | None = 100, *, rest_default: Any = MISSING) -> Any:
    """Declare the option for the page size; without a default, all items are returned."""
    help = "How many at most; all without it." if default is None else "How many at most."
    return option(help, "-n", default=default, rest_default=rest_default, least=1, most=500)


def after_option() -> Any:
    """Declare the option for the cursor of a page."""
    return option("Start after this item: the 'next' of the previous page.", default="")


def format_etag(version: int, layer: str = "") -> str:
    """Return a version as an ETag."""
    # The layer's name may be any folder name, and headers are ASCII: hence a checksum.
    return f'"{version}-{zlib.crc32(layer.encode("utf-8", "replace")):08x}"' if layer else f'"{version}"'


def parse_expected_version(expected: str | None, layer: str = "") -> int | None:
    """Parse the version that a change is based on: a number, or an ETag of the layer that would change.

    Returns None if no version is expected. Raises `Stale` if the tag belongs to another layer.
    """
    if expected is None:
        return None
    found = re.fullmatch(r'("?)([0-9]{1,9})(-[0-9a-f]{8})?\1', expected)
    if found is None or (found[3] and not found[1]):
        raise Invalid(
            f"'{expected}' is not a version.", hint="Give its number, or the ETag as received, including quotes."
        )
    if found[3] and expected != format_etag(int(found[2]), layer):
        raise Stale("Another layer provides it now.", hint="Read it again, then change it there.")
    return int(found[2])


def use_case(
    command: str,
    *,
    route: str = "",
    access: Access,
    example: RequestT,
    undo: str = "",
    status: int = 200,
    location: str = "",
    accepts_idempotency_key: bool = False,
    takes_files: bool = False,
    changes_settings: bool = False,
    recover_result: Callable[[Home, Any, datetime], Any] | None = None,
    get_version: Callable[[Any], tuple[int, str]] | None = None,
) -> Callable[[Callable[[HomeOrSettings, RequestT], ResultT]], UseCase[RequestT, ResultT]]:
    """Declare a function of a home, or of its settings, and a request; `route` is a method and a path."""
    method, _, path = route.partition(" ")

    def declare(function: Callable[[HomeOrSettings, RequestT], ResultT]) -> UseCase[RequestT, ResultT]:
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
            accepts_idempotency_key=accepts_idempotency_key,
            takes_files=takes_files,
            changes_settings=changes_settings,
            recover_result=recover_result,
            get_version=get_version,
        )

    return declare


def load_use_cases(group: str) -> Iterator[UseCase[Any, Any]]:
    """Import a group and return its use cases, in the order of its module."""
    module = importlib.import_module(f"habitus.app.use_cases.{group}")
    return (one for one in vars(module).values() if isinstance(one, UseCase))


def load_all_use_cases() -> Iterator[UseCase[Any, Any]]:
    """Import every group and return all use cases."""
    for group in USE_CASE_GROUPS:
        yield from load_use_cases(group)
