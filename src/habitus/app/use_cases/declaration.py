"""Declare a use case once: a function with typed parameters, its required access, command, route and one example.

Commands, REST routes, their reference pages and the access check are generated from the declaration. The parameters
after the home are the inputs, described by `argument` or `option` in their annotation; the surface that serves a use
case builds its own models from them.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from types import NoneType
from typing import Annotated, Any, Concatenate, Generic, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.host_access import make_host_permissions
from habitus.errors import Invalid, Stale
from habitus.settings import Settings

# The default of an input that has none.
REQUIRED: Any = inspect.Parameter.empty
HomeOrSettings = TypeVar("HomeOrSettings", Home, Settings)
Inputs = ParamSpec("Inputs")
ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")

# One module per group, imported when one of its commands is called or when a server starts.
USE_CASE_GROUPS = (
    *("agents", "evidence", "finding", "identity", "improving", "jobs", "lessons", "overview", "pads", "pausing"),
    *("recipes", "review", "secrets", "sessions", "settings", "skills", "sources", "storage", "tasks", "tools"),
    *("trusting", "undoing", "users", "uses", "writing"),
)


@dataclass(frozen=True, kw_only=True)
class UseCase(Generic[Inputs, ResultT]):
    """A declared function, called like the original: a home and the inputs in, the result out.

    A function whose first parameter is typed `Settings` also works where the home can't be opened. Calling it with a
    home is fine, too.
    """

    function: Callable[Concatenate[Any, Inputs], ResultT]
    # The words after `habitus`; empty if there is no command.
    command: str
    # A method and a path below /api/v1, with {names} of inputs; empty if there is no route.
    route: str = ""
    # The lowest role that may call it.
    access: Access
    # Inputs by name; the others have their default.
    example: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # The command that undoes it, as shown in the reference.
    undo: str = ""
    # The HTTP status of a successful response.
    status: int = 200
    # The Location header of a created resource, with {keys} of the result's JSON.
    location: str = ""
    # Whether an idempotency key makes repeated requests run only once.
    accepts_idempotency_key: bool = False
    # Whether a request body may be as large as an upload.
    takes_files: bool = False
    # Whether a server must reload its settings afterwards.
    changes_settings: bool = False
    # Finds the result that a killed process had already produced: takes home, timestamp and some of the inputs.
    recover_result: Callable[..., ResultT | None] | None = None
    # Returns version and layer of the result, which form its ETag.
    get_version: Callable[[ResultT], tuple[int, str]] | None = None

    def __call__(self, home: Home | Settings, /, *args: Inputs.args, **given: Inputs.kwargs) -> ResultT:
        settings = home.settings if isinstance(home, Home) else home
        # Such a use case reads files and starts programs that the caller names.
        if self.access is Access.OWNER:
            make_host_permissions(settings).files.require_access(f"about '{self.command or self.path}'")
        subject = settings if self.takes_settings else home
        return self.function(subject, *args, **given)

    @property
    def method(self) -> str:
        """Return the method of the route; empty if there is none."""
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        """Return the path of the route."""
        return self.route.partition(" ")[2]

    @property
    def name(self) -> str:
        """Return the name of the function."""
        return self.function.__name__

    @property
    def help(self) -> str:
        """Return the docstring of the function, which is the help text on every surface."""
        return inspect.getdoc(self.function) or ""

    @cached_property
    def result_type(self) -> Any:
        """Return the type of the result."""
        return self._type_hints["return"]

    @cached_property
    def takes_settings(self) -> bool:
        """Whether it needs only the settings, not an open home."""
        return next(iter(self._type_hints.values())) is Settings

    @cached_property
    def _type_hints(self) -> Mapping[str, Any]:
        return get_type_hints(self.function, include_extras=True)

    @cached_property
    def _inputs_by_parameter(self) -> Mapping[str, Sequence[InputField]]:
        """Return the fields of each parameter: one, or those of a dataclass that groups several."""
        _, *given = inspect.signature(self.function).parameters.values()
        found: dict[str, Sequence[InputField]] = {}
        for one in given:
            kind = self._type_hints[one.name]
            if dataclasses.is_dataclass(kind):
                hints = get_type_hints(kind, include_extras=True)
                found[one.name] = [
                    _complete_input_field(hints[each.name], each.name, _get_default(each))
                    for each in dataclasses.fields(kind)
                ]
            else:
                found[one.name] = [_complete_input_field(kind, one.name, one.default)]
        return found

    @cached_property
    def input_fields(self) -> Sequence[InputField]:
        """Return the inputs that a caller can set."""
        return [
            one
            for fields in self._inputs_by_parameter.values()
            for one in fields
            if not (one.is_attempt or one.is_door)
        ]

    @cached_property
    def rest_fixed_values(self) -> dict[str, Any]:
        """Return the inputs that REST sets itself."""
        return {
            one.name: one.rest_default for fields in self._inputs_by_parameter.values() for one in fields if one.is_door
        }

    @property
    def input_names(self) -> set[str]:
        """Return the names of all inputs, and of the parameters that group some."""
        return {*self._inputs_by_parameter, *(one.name for one in self.input_fields)}

    def fill_defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of every input."""
        return {one.name: given.get(one.name, one.default) for one in self.input_fields}

    def bind_arguments(self, given: Mapping[str, Any], attempt_id: str = "") -> dict[str, Any]:
        """Return the arguments of the function. The attempt's id makes a retry recognisable."""
        arguments: dict[str, Any] = {}
        for name, fields in self._inputs_by_parameter.items():
            values = {
                one.name: attempt_id if one.is_attempt else given[one.name]
                for one in fields
                if one.is_attempt or one.name in given
            }
            arguments |= (
                {name: self._type_hints[name](**values)} if dataclasses.is_dataclass(self._type_hints[name]) else values
            )
        return arguments


def call_with_known_keywords(function: Callable[..., Any], *args: Any, **given: Any) -> Any:
    """Call a function with those of the keywords that it has parameters for."""
    return function(*args, **{name: given[name] for name in inspect.signature(function).parameters if name in given})


@dataclass(frozen=True, kw_only=True)
class InputField:
    """One input of a use case: what surfaces say about it, and from the signature its name, type and default."""

    help: str = ""
    # The given spellings of the option.
    given_flags: tuple[str, ...] = ()
    # Whether it is a positional argument on the command line.
    is_argument: bool = False
    # The name of an argument in help texts, if it differs from the name of the field.
    metavar: str | None = None
    # `json` or `text` if the command line reads the value from a file or standard input.
    read_as: str = ""
    # Whether it is the version that a change is based on, which REST reads from If-Match.
    is_version: bool = False
    # Whether it is the address of the pages, which REST takes from the request by default.
    is_address: bool = False
    # Whether it is the id of an attempt, which no caller sets.
    is_attempt: bool = False
    # Whether it says through which door a request came: REST sets `rest_default`, and no caller sets it.
    is_door: bool = False
    # The default over REST if it differs from the command line's.
    rest_default: Any = REQUIRED
    # `ge` and `le` of numbers, `max_length` of texts.
    limits: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Which names the Tab key completes: `skills`, `lessons` or nothing.
    completes: str = ""
    name: str = ""
    type: Any = None
    default: Any = REQUIRED

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the spellings of the option; empty for an argument."""
        if any(flag.startswith("--") for flag in self.given_flags) or self.is_argument:
            return self.given_flags
        return (f"--{self.name.replace('_', '-')}", *self.given_flags)

    @property
    def is_required(self) -> bool:
        """Whether the input has no default."""
        return self.default is REQUIRED

    @property
    def is_list(self) -> bool:
        """Whether the input takes several values."""
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


def _complete_input_field(hint: Any, name: str, default: Any) -> InputField:
    described: InputField = hint.__metadata__[0]
    return replace(described, name=name, type=hint.__origin__, default=default)


def _get_default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return REQUIRED if field.default is dataclasses.MISSING else field.default


# The longest values accepted, in characters: a paragraph, and a whole document.
MAX_LINE_CHARS, MAX_TEXT_CHARS = 2_000, 100_000


def argument(
    help: str, *, rest_default: Any = REQUIRED, completes: str = "", metavar: str | None = None, **limits: float
) -> InputField:
    """Describe a positional argument of the command line; for the rest see `option`."""
    found = InputField(help=help, is_argument=True, completes=completes, metavar=metavar)
    return replace(found, rest_default=rest_default, limits=_build_input_limits(**limits))


def option(help: str, *flags: str, rest_default: Any = REQUIRED, **limits: float) -> InputField:
    """Describe an option of the command line, spelled like the parameter or as `flags` say.

    `rest_default` is the default over REST if it differs. `limits` are `least` and `most` for a number, `longest` for a
    text.
    """
    return InputField(help=help, given_flags=flags, rest_default=rest_default, limits=_build_input_limits(**limits))


def _build_input_limits(
    least: float | None = None, most: float | None = None, longest: float = MAX_LINE_CHARS
) -> dict[str, float]:
    limits = {"ge": least, "le": most, "max_length": longest}
    return {key: one for key, one in limits.items() if one is not None}


def json_argument(help: str, *, metavar: str | None = None) -> InputField:
    """Describe an argument that takes any JSON, a file with JSON, or `-`."""
    return InputField(help=help, is_argument=True, read_as="json", metavar=metavar)


def json_option(help: str, *flags: str) -> InputField:
    """Describe an option that takes any JSON, a file with JSON, or `-`."""
    return InputField(help=help, given_flags=flags, read_as="json")


def text_option(help: str, *flags: str) -> InputField:
    """Describe a text option that the command line reads from a file; `-` is standard input."""
    return InputField(help=help, given_flags=flags, limits=_build_input_limits(longest=MAX_TEXT_CHARS), read_as="text")


def page_limit_option(help: str = "How many at most.", *, rest_default: Any = REQUIRED) -> InputField:
    """Describe the option for the page size."""
    return option(help, "-n", rest_default=rest_default, least=1, most=500)


_ALL_WITHOUT = "How many at most; all without it."
PageLimit = Annotated[int, page_limit_option()]
OptionalLimit = Annotated[int | None, page_limit_option(_ALL_WITHOUT)]
# All on the command line, a page over REST.
RestPageLimit = Annotated[int | None, page_limit_option(_ALL_WITHOUT, rest_default=100)]
PageCursor = Annotated[str, option("Start after this item: the 'next' of the previous page.")]
AllUsers = Annotated[bool, option("All users; for admins only.")]
SkillName = Annotated[str, argument("A skill: name, or name@layer.", completes="skills")]
Reason = Annotated[str, option("Reason, for the history.")]
FirstDay = Annotated[str, option("The first day, as YYYY-MM-DD in UTC.")]
LastDay = Annotated[str, option("The last day, as YYYY-MM-DD in UTC.")]
# The version that a change is based on: `--expect` on the command line, If-Match over REST.
ExpectedVersion = Annotated[
    str | None, InputField(help="Fail unless this is its current version.", given_flags=("--expect",), is_version=True)
]
# Over REST it defaults to the address under which people reach the server.
DEFAULT_PAGE_ADDRESS = "http://127.0.0.1:8765"
PageAddress = Annotated[
    str,
    InputField(
        help=f"Where they reach the page; web.address by default, else {DEFAULT_PAGE_ADDRESS}.",
        limits=_build_input_limits(),
        is_address=True,
    ),
]
# REST repeats the same id for each retry of a request.
AttemptId = Annotated[str, InputField(is_attempt=True)]


@dataclass(frozen=True, kw_only=True)
class ResultPage(Generic[ItemT]):
    """One page of a list; `next` is the cursor of the following page, None on the last."""

    items: Sequence[ItemT]
    next: str | None
    total: int


def paginate_items(
    name: str, items: Sequence[ItemT], key: Callable[[ItemT], str], *, limit: int | None, after: str
) -> ResultPage[ItemT]:
    """Return the items after the one whose key is `after`, at most `limit` of them.

    Raises `Invalid` if no item has that key.
    """
    start = next((at for at, item in enumerate(items, 1) if key(item) == after), 0) if after else 0
    if after and not start:
        raise Invalid(f"No page of {name} begins after '{after}'.", hint="Start again without 'after'.")
    end = len(items) if limit is None else start + limit
    return ResultPage(items=items[start:end], next=key(items[end - 1]) if end < len(items) else None, total=len(items))


def parse_day(text: str, *, days: int = 0) -> datetime | None:
    """Return the beginning of a day in UTC, or of one some days later; None for an empty text."""
    try:
        return datetime.combine(date.fromisoformat(text), time(), tzinfo=UTC) + timedelta(days=days) if text else None
    except (ValueError, OverflowError):
        raise Invalid(f"'{text}' is not a day.", hint="Write it as YYYY-MM-DD.") from None


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
    command: str, *, access: Access, **details: Any
) -> Callable[[Callable[Concatenate[HomeOrSettings, Inputs], ResultT]], UseCase[Inputs, ResultT]]:
    """Declare a function of a home, or of its settings, and further inputs; `details` are fields of `UseCase`."""

    def declare(function: Callable[Concatenate[HomeOrSettings, Inputs], ResultT]) -> UseCase[Inputs, ResultT]:
        return UseCase(function=function, command=command, access=access, **details)

    return declare


def load_use_cases_of_group(group: str) -> Iterator[UseCase[..., Any]]:
    """Import a group and return its use cases, in the order of its module."""
    module = importlib.import_module(f"habitus.app.use_cases.{group}")
    return (one for one in vars(module).values() if isinstance(one, UseCase))


def load_all_use_cases() -> Iterator[UseCase[..., Any]]:
    """Import every group and return all use cases."""
    for group in USE_CASE_GROUPS:
        yield from load_use_cases_of_group(group)
