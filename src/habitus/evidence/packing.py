"""Running sums as bytes, to be kept between two processes; nothing but numbers and names is read back."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from habitus.evidence.bounds import Game
from habitus.evidence.model import Item, ItemKind
from habitus.evidence.running import NO_GAME, Counts, Running
from habitus.evidence.sums import Period

_FORM = 1  # to be raised with every change of what the sums are sums of
_SIDES = ("explicit", "weak")


def pack(running: Running, about: Mapping[str, Any]) -> bytes:
    """With whatever else has to be known about them, as JSON."""
    items = [feature for feature in running.columns if isinstance(feature, Item)]
    features = [[each.kind, each.name, each.version] if isinstance(each, Item) else each for each in running.columns]
    words = {"form": _FORM, "features": features, "portion": running.portion, "units": running.units, **about}
    days = [running.days[item] for item in items]
    arrays = {
        "words": np.frombuffer(json.dumps(words).encode(), dtype=np.uint8),
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
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def unpack(packed: bytes) -> tuple[Running, dict[str, Any]] | None:
    """None where the bytes are damaged, or of a release that sums otherwise."""
    try:
        with np.load(io.BytesIO(packed), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        words = json.loads(arrays["words"].tobytes())
        return (_running(words, arrays), words) if words["form"] == _FORM else None
    except (ValueError, KeyError, TypeError, IndexError, EOFError, OSError, zipfile.BadZipFile, zlib.error):
        return None


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
