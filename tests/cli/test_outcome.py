"""`habitus sessions outcome`: somebody says how a turn went, when it is over for long."""

from __future__ import annotations

import json

import pytest

from habitus.app import Habitus, read_settings
from tests.conftest import Cli


@pytest.fixture
def turn(run_cli: Cli) -> str:
    with (
        Habitus.open(read_settings(run_cli.home, run_cli.environ())) as habitus,
        habitus.turn("build it", conversation="c1", caller_id="ticket-7") as turn,
    ):
        turn.done("built")
    return turn.id


@pytest.mark.req("CL-07")
def test_an_outcome_comes_later_by_the_command_and_is_corrected_by_its_source(run_cli: Cli, turn: str) -> None:
    said = json.loads(
        run_cli("sessions", "outcome", turn, "--failed", "--reason", "two tests fail", "--by", "ci", "--json").out
    )
    assert said["turn"] == turn
    assert (said["outcome"]["kind"], said["outcome"]["reason"]) == ("failed", "two tests fail")
    assert "ok (by ci)" in run_cli("sessions", "outcome", "ticket-7", "--ok", "--by", "ci").out
    shown = run_cli("sessions", "show", "c1", "--all-users", "--json")
    (kept,) = json.loads(shown.out)["turns"]
    assert [(one["source"], one["kind"]) for one in kept["outcomes"]] == [("signal", "ok"), ("ci", "ok")]
    assert turn in run_cli("sessions", "show", "c1", "--all-users").out


@pytest.mark.req("CL-07")
def test_what_can_not_be_judged_is_said_in_a_line(run_cli: Cli, turn: str) -> None:
    unknown = run_cli("sessions", "outcome", "nothing", "--ok")
    assert (unknown.code, unknown.err.startswith("habitus: There is no turn 'nothing'.")) == (1, True)
    neither = run_cli("sessions", "outcome", turn)
    assert (neither.code, "--ok/--failed" in neither.err) == (2, True)
