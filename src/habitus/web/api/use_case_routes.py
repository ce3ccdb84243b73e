"""REST routes built from use case declarations: input from path, query or body, the result as JSON."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, partial
from http import HTTPStatus
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from habitus.app import Habitus
from habitus.app.operating.idempotency import RequestAttempt, answer_request_once_per_key
from habitus.app.use_cases.declaration import (
    REQUIRED,
    InputField,
    UseCase,
    call_with_known_keywords,
    format_etag,
    load_all_use_cases,
)
from habitus.errors import UserError
from habitus.plain_data import convert_to_plain_json, list_dataclass_json_attributes
from habitus.web.api.schemas import RESPONSE_MODELS, IdempotencyKeyHeader, IfMatchHeader, SurrogateSafeJsonResponse
from habitus.web.api.wording import API_ROOT, replace_options_by_fields
from habitus.web.home_pool import get_home_pool, get_public_address, get_request_home
from habitus.web.problems import PreconditionRequired
from habitus.web.routing import LARGE_BODY_BYTES, SMALL_BODY_BYTES, AccessRouter


def build_router(*, is_description: bool) -> AccessRouter:
    """Return a router with every declared use case that has a route; models of results are for a description only."""
    made = AccessRouter()
    for case in load_all_use_cases():
        if case.method:
            made.register_deferred_route(
                case.method,
                case.path,
                partial(_build_endpoint, case),
                access=case.access,
                max_bytes=LARGE_BODY_BYTES if case.takes_files else SMALL_BODY_BYTES,
                name=case.name,
                status_code=case.status,
                tags=[case.path.split("/")[1]],
                description=case.help,
                response_class=SurrogateSafeJsonResponse,
                response_model=get_response_model(case.result_type)
                if is_description and case.status != HTTPStatus.NO_CONTENT
                else None,
            )
    return made


def _build_endpoint(case: UseCase[..., Any]) -> Callable[..., Response]:
    """Return the function that answers requests for a use case, with the parameters that FastAPI reads."""
    in_path = set(re.findall(r"\{(\w+)\}", case.path))
    body = _build_body_model(case, in_path)
    parameters = [
        _build_route_parameter(one, in_path) for one in case.input_fields if one.name in in_path or body is None
    ]
    fields = {one.name: one for one in case.input_fields}
    rest_defaults = {one.name: one.rest_default for one in case.input_fields if one.rest_default is not REQUIRED}

    def endpoint(http_request: Request, **given: Any) -> Response:
        sent: Any = given.pop("body", None)
        once_key: str = given.pop("once_key", "")
        if sent is not None:
            # Only fields that were sent count, so the use case applies its own defaults.
            given |= {name: getattr(sent, name) for name in sent.model_fields_set}
        # A link in the result has to lead back to this server.
        here = get_public_address(http_request)
        given = dict.fromkeys((one.name for one in case.input_fields if one.is_address), here) | given
        given = {
            name: _convert_list_value_to_tuple(fields[name], value) for name, value in (rest_defaults | given).items()
        }
        wanted = case.fill_defaults(given) | case.rest_fixed_values
        _require_version_for_change(case, wanted)
        with (
            get_home_pool(http_request).reopen_home_with_settings_changed_in_block()
            if case.changes_settings
            else nullcontext()
        ):
            try:
                return _perform_use_case_once_per_key(case, get_request_home(http_request), wanted, once_key)
            except UserError as error:
                error.message, error.hint = (
                    replace_options_by_fields(error.message, case),
                    replace_options_by_fields(error.hint, case),
                )
                raise

    keyword = inspect.Parameter.KEYWORD_ONLY
    extra = [inspect.Parameter("http_request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Request)]
    if body is not None:
        default = inspect.Parameter.empty if any(one.is_required() for one in body.model_fields.values()) else body()
        extra.append(inspect.Parameter("body", keyword, annotation=body, default=default))
        parameters += [_build_route_parameter(one, in_path) for one in case.input_fields if one.is_version]
    if case.accepts_idempotency_key:
        extra.append(inspect.Parameter("once_key", keyword, annotation=IdempotencyKeyHeader, default=""))
    # FastAPI builds parameters and documentation from the signature.
    endpoint.__signature__ = inspect.Signature([*extra[:1], *parameters, *extra[1:]])  # type: ignore[attr-defined]  # as above
    endpoint.__annotations__ = {one.name: one.annotation for one in (*parameters, *extra)}
    endpoint.__name__ = case.name
    return endpoint


def _perform_use_case_once_per_key(
    case: UseCase[..., Any], home: Habitus, wanted: dict[str, Any], key: str
) -> Response:
    """Run the use case, once per idempotency key, and return its result with ETag and Location."""

    def make(attempt: RequestAttempt) -> dict[str, Any]:
        # A retry after a crash must not create a second one, so an earlier result of this attempt is looked up.
        recover, since = case.recover_result, attempt.since
        before = (
            call_with_known_keywords(recover, home, since, **{**wanted, **case.bind_arguments(wanted)})
            if recover is not None and since
            else None
        )
        done = case(home, **case.bind_arguments(wanted, attempt.id)) if before is None else before
        told = convert_to_plain_json(done, shaped=True)
        headers = {} if case.get_version is None else {"ETag": format_etag(*case.get_version(done))}
        if case.location:
            headers["Location"] = API_ROOT + quote(case.location.format(**told))
        return {"told": told, "headers": headers}

    asked = [case.method, case.path, convert_to_plain_json(wanted)]
    answer = (
        answer_request_once_per_key(home, key, asked, make) if case.accepts_idempotency_key else make(RequestAttempt())
    )
    if case.status == HTTPStatus.NO_CONTENT:
        return Response(status_code=case.status)
    return SurrogateSafeJsonResponse(answer["told"], status_code=case.status, headers=answer["headers"])


def _require_version_for_change(case: UseCase[..., Any], wanted: dict[str, Any]) -> None:
    """Raise `PreconditionRequired` if a change doesn't name the version it is based on."""
    if any(one.is_version and wanted[one.name] is None for one in case.input_fields):
        raise PreconditionRequired(
            "The version to change is missing.", hint="Send the ETag you received as 'If-Match'."
        )


def _convert_list_value_to_tuple(one: InputField, value: Any) -> Any:
    """Convert a value to the field's type: a list in a path is separated by commas."""
    if one.is_list and isinstance(value, str):
        return tuple(part for part in value.split(",") if part)
    return tuple(value) if one.is_list and isinstance(value, list) else value


def _build_body_model(case: UseCase[..., Any], in_path: set[str]) -> type[BaseModel] | None:
    """Return the model of the request body, or None if the whole input is in the address."""
    if case.method in ("GET", "DELETE"):
        return None
    rest = [one for one in case.input_fields if one.name not in in_path and not one.is_version]
    if not rest:
        return None
    fields: dict[str, Any] = {one.name: (_get_bounded_type(one), _build_field_info(one, Field)) for one in rest}
    # A misspelt key is an error instead of being ignored.
    config = ConfigDict(frozen=True, extra="forbid")
    return create_model(f"{case.name.title().replace('_', '')}Request", __config__=config, **fields)


def _build_route_parameter(one: InputField, in_path: set[str]) -> inspect.Parameter:
    """Return the path, query or header parameter of a field."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    if one.is_version:
        return inspect.Parameter(one.name, keyword, annotation=IfMatchHeader, default=None)
    if one.name in in_path:
        kind = str if one.is_list else one.type_without_none
        help = f"{one.help} Several are separated by commas." if one.is_list else one.help
        return inspect.Parameter(one.name, keyword, annotation=Annotated[kind, Path(description=help)])
    kind = list[one.item_type] if one.is_list else _get_bounded_type(one)  # type: ignore[name-defined]  # made at run time
    info = Query(description=one.help)
    default = inspect.Parameter.empty if one.is_required else one.default
    return inspect.Parameter(one.name, keyword, annotation=Annotated[kind, info], default=default)


def _get_bounded_type(one: InputField) -> Any:
    """Return the field's type with its limits."""
    # A length limits strings, a range limits numbers; pydantic rejects one on the other.
    limits = {key: value for key, value in one.limits.items() if (key == "max_length") == (one.item_type is str)}
    if one.item_type not in (str, int, float) or not limits:
        return one.type
    each: Any = Annotated[one.item_type, Field(**limits)]
    whole = tuple[each, ...] if one.is_list else each
    return whole | None if one.type is not one.type_without_none else whole


def _build_field_info(one: InputField, make: Callable[..., Any]) -> FieldInfo:
    default = one.default if one.rest_default is REQUIRED else one.rest_default
    info: FieldInfo = make(... if default is REQUIRED else default, description=one.help)
    return info


@cache
def get_response_model(kind: Any) -> Any:
    """Return the response model of a result: its dataclass, or a built model if its JSON differs from that."""
    if kind in RESPONSE_MODELS:
        return RESPONSE_MODELS[kind]
    origin, inner = get_origin(kind), [get_response_model(one) for one in get_args(kind)]
    if inner and any(new != old for new, old in zip(inner, get_args(kind), strict=True)):
        if origin is tuple and Ellipsis not in inner:
            return tuple.__class_getitem__(tuple(inner))
        return Union[tuple(inner)] if origin in (Union, types.UnionType) else list.__class_getitem__(inner[0])  # noqa: UP007  # made at run time
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return kind
    found = get_types_of_json_keys(kind)
    shapes: dict[str, Any] = {name: (get_response_model(one), ...) for name, one in found.items()}
    is_same = found.keys() == {one.name for one in dataclasses.fields(kind)}
    is_same = is_same and all(shapes[name][0] == found[name] for name in found)
    return kind if is_same else create_model(kind.__name__, **shapes)


def get_types_of_json_keys(kind: type) -> dict[str, Any]:
    """Return the JSON keys of a record with their types."""
    hints, found = get_type_hints(kind), dict[str, Any]()
    for name, is_inline in list_dataclass_json_attributes(kind) or ():
        own = hints[name] if name in hints else get_type_hints(getattr(kind, name).fget)["return"]
        found |= get_types_of_json_keys(own) if is_inline else {name: own}
    return found
