"""Running sums as bytes, to be kept between two processes; nothing but numbers and names is read back."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from habitus.evidence.bounds import Game
from habitus.evidence.model import Item, ItemKind
from habitus.evidence.running import NO_GAME, Counts, Running
from habitus.evidence.sums import Period

_FORM = 2  # to be raised with every change of what the sums are sums of
_SIDES = ("explicit", "weak")
_FAST = 1  # of zlib: what is read with every question is made anew only now and then


def pack(running: Running, about: Mapping[str, Any]) -> bytes:
    """With whatever else has to be known about them: a line of JSON, then the numbers, eight bytes each."""
    items = [feature for feature in running.columns if isinstance(feature, Item)]
    features = [[each.kind, each.name, each.version] if isinstance(each, Item) else each for each in running.columns]
    days = [running.days[item] for item in items]
    arrays = {
        "counts": np.array([running.counts[item] for item in items]),
        "days": np.concatenate([np.zeros(0), *days]),
        "ends": np.cumsum([len(each) for each in days], dtype=np.int64),
    }
    for each in fields(Game):
        arrays[f"game {each.name}"] = np.array([getattr(running.games.get(i, NO_GAME), each.name) for i in items])
    for side in _SIDES:
        periods = [period.widen(len(running.columns)) for period in getattr(running, side)]
        for each in fields(Period):
            arrays[f"{side} {each.name}"] = np.array([getattr(period, each.name) for period in periods])
    shapes = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    words = {"form": _FORM, "features": features, "portion": running.portion, "units": running.units, "shapes": shapes}
    numbers = b"".join(array.tobytes() for array in arrays.values())
    return zlib.compress(json.dumps({**words, **about}).encode() + b"\n" + numbers, _FAST)


def unpack(packed: bytes) -> tuple[Running, dict[str, Any]] | None:
    """None where the bytes are damaged, or of a release that sums otherwise."""
    try:
        line, _, numbers = zlib.decompress(packed).partition(b"\n")
        words = json.loads(line)
        return (_running(words, _arrays(words["shapes"], numbers)), words) if words["form"] == _FORM else None
    except (ValueError, KeyError, TypeError, IndexError, zlib.error):
        return None


def _arrays(shapes: list[tuple[str, str, list[int]]], numbers: bytes) -> dict[str, Any]:
    arrays, place = {}, 0
    for name, kind, shape in shapes:
        array = np.frombuffer(numbers, kind, int(np.prod(shape)), place).reshape(shape)
        arrays[name], place = array, place + array.nbytes
    return arrays


def _running(words: Mapping[str, Any], arrays: Mapping[str, Any]) -> Running:
    features = [
        each if isinstance(each, int) else Item(kind=ItemKind(each[0]), name=each[1], version=each[2])
        for each in words["features"]
    ]
    items = [each for each in features if isinstance(each, Item)]
    periods = {side: _rows(Period, side, arrays) for side in _SIDES}
    return Running(
        columns={feature: number for number, feature in enumerate(features)},
        explicit=periods["explicit"],
        weak=periods["weak"],
        games=dict(zip(items, _rows(Game, "game", arrays), strict=True)),
        counts={item: Counts(*each) for item, each in zip(items, arrays["counts"], strict=True)},
        days=dict(zip(items, np.split(arrays["days"], arrays["ends"])[:-1], strict=True)),
        portion=words["portion"],
        units=words["units"],
    )


def _rows(kind: Any, prefix: str, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
    columns = {each.name: arrays[f"{prefix} {each.name}"] for each in fields(kind)}
    numbers = range(len(next(iter(columns.values()))))
    return tuple(kind(**{name: values[number] for name, values in columns.items()}) for number in numbers)
