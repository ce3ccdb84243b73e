"""REST routes built from use case declarations: input from path, query or body, the result as JSON."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import MISSING
from functools import cache
from http import HTTPStatus
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from habitus.app import Habitus, json_shapes
from habitus.app.operating.idempotency import Attempt, once
from habitus.app.use_cases.declaration import InputField, UseCase, all_declared, tag_of
from habitus.plain_data import json_keys, plain
from habitus.web.api.requests_and_answers import SHAPES, IfMatch, JsonAnswer, OnceKey
from habitus.web.homes_by_person import desks_of, habitus_of
from habitus.web.problems import PreconditionRequired
from habitus.web.routing import LARGE, SMALL, Router

API = "/api/v1"


def router() -> Router:
    """Return a router with every declared use case that has a route."""
    made = Router()
    for case in all_declared():
        if case.method:
            _add(made, case)
    return made


def _add(made: Router, case: UseCase[Any, Any]) -> None:
    """Add the route of one use case."""
    in_path = set(re.findall(r"\{(\w+)\}", case.path))
    body = _body(case, in_path)
    parameters = [_parameter(one, in_path) for one in case.fields if one.name in in_path or body is None]
    fields = {one.name: one for one in case.fields}
    rest_defaults = {one.name: one.rest_default for one in case.fields if one.rest_default is not MISSING}

    def endpoint(http_request: Request, **given: Any) -> Response:
        sent: Any = given.pop("body", None)
        once_key: str = given.pop("once_key", "")
        if sent is not None:
            # Only fields that were sent count, so the use case applies its own defaults.
            given |= {name: getattr(sent, name) for name in sent.model_fields_set}
        # A link in the result has to lead back to the address that the client used.
        here = f"{http_request.url.scheme}://{http_request.headers['host']}"
        given = dict.fromkeys((one.name for one in case.fields if one.is_address), here) | given
        given = rest_defaults | given
        wanted = case.input(**{name: _as_field(fields[name], value) for name, value in given.items()})
        _refuse_without_version(case, wanted)
        with desks_of(http_request).changing_settings() if case.changes_settings else nullcontext():
            return _answer(case, habitus_of(http_request), wanted, once_key)

    keyword = inspect.Parameter.KEYWORD_ONLY
    extra = [inspect.Parameter("http_request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Request)]
    if body is not None:
        default = inspect.Parameter.empty if any(one.is_required() for one in body.model_fields.values()) else body()
        extra.append(inspect.Parameter("body", keyword, annotation=body, default=default))
        parameters += [_parameter(one, in_path) for one in case.fields if one.is_version]
    if case.is_once:
        extra.append(inspect.Parameter("once_key", keyword, annotation=OnceKey, default=""))
    # FastAPI builds parameters and documentation from the signature.
    endpoint.__signature__ = inspect.Signature([*extra[:1], *parameters, *extra[1:]])  # type: ignore[attr-defined]  # as above
    endpoint.__annotations__ = {one.name: one.annotation for one in (*parameters, *extra)}
    endpoint.__name__ = case.function.__name__
    made.route(
        case.method,
        case.path,
        access=case.access,
        max_bytes=LARGE if case.takes_files else SMALL,
        status_code=case.status,
        tags=[case.path.split("/")[1]],
        description=case.help,
        response_class=JsonAnswer,
        response_model=None if case.status == HTTPStatus.NO_CONTENT else shape_of(case.result),
    )(endpoint)


def _answer(case: UseCase[Any, Any], home: Habitus, wanted: Any, key: str) -> Response:
    """Run the use case, once per idempotency key, and return its result with ETag and Location."""

    def make(attempt: Attempt) -> dict[str, Any]:
        # A retry after a crash must not create a second one, so an earlier result of this attempt is looked up.
        before = case.made_since(home, wanted, attempt.since) if case.made_since and attempt.since else None
        done = case(home, case.as_attempt(wanted, attempt.id)) if before is None else before
        told = json_shapes.result(done)
        headers = {} if case.version_of is None else {"ETag": tag_of(*case.version_of(done))}
        if case.location:
            headers["Location"] = API + case.location.format(**told)
        return {"told": told, "headers": headers}

    asked = [case.method, case.path, plain(wanted)]
    answer = once(home, key, asked, make) if case.is_once else make(Attempt())
    if case.status == HTTPStatus.NO_CONTENT:
        return Response(status_code=case.status)
    return JsonAnswer(answer["told"], status_code=case.status, headers=answer["headers"])


def _refuse_without_version(case: UseCase[Any, Any], wanted: Any) -> None:
    """Raise `PreconditionRequired` if a change doesn't name the version it is based on."""
    if any(one.is_version and getattr(wanted, one.name) is None for one in case.fields):
        raise PreconditionRequired("Say which version this changes.", hint="Send the ETag you read as 'If-Match'.")


def _as_field(one: InputField, value: Any) -> Any:
    """Convert a value to the field's type: a list in a path is separated by commas."""
    if one.is_many and isinstance(value, str):
        return tuple(part for part in value.split(",") if part)
    return tuple(value) if one.is_many and isinstance(value, list) else value


def _body(case: UseCase[Any, Any], in_path: set[str]) -> type[BaseModel] | None:
    """Return the model of the request body, or None if the whole input is in the address."""
    if case.method in ("GET", "DELETE"):
        return None
    rest = [one for one in case.fields if one.name not in in_path and not one.is_version]
    if not rest:
        return None
    fields: dict[str, Any] = {one.name: (_bounded_type(one), _info(one, Field)) for one in rest}
    # A misspelt key is an error instead of being ignored.
    config = ConfigDict(frozen=True, extra="forbid")
    return create_model(case.input.__name__, __config__=config, **fields)


def _parameter(one: InputField, in_path: set[str]) -> inspect.Parameter:
    """Return the path, query or header parameter of a field."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    if one.is_version:
        return inspect.Parameter(one.name, keyword, annotation=IfMatch, default=None)
    if one.name in in_path:
        kind = str if one.is_many else one.bare
        help = f"{one.help} Several are separated by commas." if one.is_many else one.help
        return inspect.Parameter(one.name, keyword, annotation=Annotated[kind, Path(description=help)])
    kind = list[one.each] if one.is_many else _bounded_type(one)  # type: ignore[name-defined]  # made at run time
    info = Query(description=one.help)
    default = inspect.Parameter.empty if one.is_required else one.default
    return inspect.Parameter(one.name, keyword, annotation=Annotated[kind, info], default=default)


def _bounded_type(one: InputField) -> Any:
    """Return the field's type with its limits."""
    # A length limits strings, a range limits numbers; pydantic rejects one on the other.
    limits = {key: value for key, value in one.limits.items() if (key == "max_length") == (one.each is str)}
    if one.each not in (str, int, float) or not limits:
        return one.type
    each: Any = Annotated[one.each, Field(**limits)]
    whole = tuple[each, ...] if one.is_many else each
    return whole | None if one.type is not one.bare else whole


def _info(one: InputField, make: Callable[..., Any]) -> FieldInfo:
    default = one.default if one.rest_default is MISSING else one.rest_default
    info: FieldInfo = make(... if one.is_required else default, description=one.help)
    return info


@cache
def shape_of(kind: Any) -> Any:
    """Return the response model of a result: its dataclass, or a built model if its JSON differs from that."""
    if kind in SHAPES:
        return SHAPES[kind]
    origin, inner = get_origin(kind), [shape_of(one) for one in get_args(kind)]
    if inner and any(new != old for new, old in zip(inner, get_args(kind), strict=True)):
        return Union[tuple(inner)] if origin in (Union, types.UnionType) else list.__class_getitem__(inner[0])  # noqa: UP007  # made at run time
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return kind
    found = json_types(kind)
    shapes: dict[str, Any] = {name: (shape_of(one), ...) for name, one in found.items()}
    is_same = found.keys() == {one.name for one in dataclasses.fields(kind)}
    is_same = is_same and all(shapes[name][0] == found[name] for name in found)
    return kind if is_same else create_model(kind.__name__, **shapes)


def json_types(kind: type) -> dict[str, Any]:
    """Return the JSON keys of a record with their types."""
    hints, found = get_type_hints(kind), dict[str, Any]()
    for name, is_inline in json_keys(kind) or ():
        own = hints[name] if name in hints else get_type_hints(getattr(kind, name).fget)["return"]
        found |= json_types(own) if is_inline else {name: own}
    return found
