"""How jobs lie in the engine: its database, the words it uses for states, and JSON for what it keeps."""

from __future__ import annotations

import json
import logging
from typing import Any

from dbos import Serializer

from habitus.jobs.model import JobState

logging.getLogger("dbos").addHandler(logging.NullHandler())  # else it writes to the terminal

APPLICATION = "habitus"
FORMAT = "1"  # of jobs: workers of another format leave them alone
WAITING = "jobs"  # the queue in which they wait; nobody listens to it
OWN = "worker:"  # what the queues of workers begin with, each one's own
WORKFLOW = "job"
PLAN = "plan"  # the name of the first step; the others are called by their parts' keys

STATES = {
    "ENQUEUED": JobState.WAITING,
    "DELAYED": JobState.WAITING,
    "PENDING": JobState.RUNNING,
    "SUCCESS": JobState.DONE,
    "ERROR": JobState.FAILED,
    "CANCELLED": JobState.CANCELLED,
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": JobState.PARKED,
}


def own_queue(worker: str) -> str:
    return f"{OWN}{worker}"


class Failure(Exception):
    """An error of a part, as it is kept."""


class Json(Serializer):
    """The engine would pickle: whoever can write its database could then run code here."""

    def serialize(self, data: Any) -> str:
        return json.dumps(data, default=_kept)

    def deserialize(self, serialized_data: str) -> Any:
        return json.loads(serialized_data, object_hook=_found)

    def name(self) -> str:
        return "habitus-json"


def _kept(value: Any) -> Any:
    if isinstance(value, BaseException):
        return {"__failure__": str(value) or type(value).__name__}
    raise TypeError(f"A job can't keep {type(value).__name__}: it is not JSON.")


def _found(value: dict[str, Any]) -> Any:
    return Failure(value["__failure__"]) if value.keys() == {"__failure__"} else value
