"""The benchmark of the MCP server on a tiny library: every figure is there, beside those of a bare server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "mcp_server.py"


@pytest.mark.full
@pytest.mark.req("PF-01")
def test_the_server_is_measured_beside_a_bare_one() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--skills", "10", "--starts", "1", "--calls", "2"],
        capture_output=True,
        text=True,
        check=True,
    )
    systems = json.loads(done.stdout)["systems"]
    starting = {"initialize_ms_10", "initialize_cpu_ms_10", "tools_list_ms_10"}
    assert systems["echo"].keys() == {"echo_ms_10", *starting}
    ours = systems["habitus"]
    calls = {"first_search_ms_10", "recall_ms_10", "search_ms_10"}
    assert ours.keys() == {
        *starting,
        *calls,
        *("tools_10", "tools_tokens_10", "memory_before_search_mb_10", "memory_after_mb_10"),
    }
    assert ours["tools_10"] == 8
    assert ours["tools_tokens_10"] <= 2000
    assert 0 < ours["memory_before_search_mb_10"] < ours["memory_after_mb_10"] < 250
