"""`habitus mcp` where it can't serve."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Cli

ROOT = Path(__file__).parents[2]
WITHOUT_PACKAGES = """
import sys

class Absent:
    @staticmethod
    def find_spec(name, *_):
        if name in ("mcp", "mcp_types"):
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Absent)
from habitus.cli.start import run
run()
"""
HINT = f"Run: uv tool install 'habitus[all] @ {ROOT.as_uri()}', or: pip install 'habitus[mcp] @ {ROOT.as_uri()}'."


@pytest.mark.req("CL-05", "CL-09")
def test_without_its_packages_it_has_no_tools_and_says_what_to_install(installed_cli: Cli) -> None:
    """An agent whose server fails doesn't start it again for some sessions."""
    asked: list[dict[str, object]] = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}}},
        {"method": "notifications/initialized"},
        {"id": "two", "method": "tools/list"},
        {"id": 3, "method": "prompts/list"},
    ]
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKAGES, "mcp"],
        input="".join(json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in asked),
        capture_output=True,
        text=True,
        cwd=installed_cli.cwd,
        env=installed_cli.environ(),
        check=False,
    )
    first, second, third = map(json.loads, ran.stdout.splitlines())
    assert first["result"]["protocolVersion"] == "2025-06-18"
    assert first["result"]["instructions"] == f"Habitus needs the extra 'mcp'. {HINT}"
    assert second == {"jsonrpc": "2.0", "id": "two", "result": {"tools": []}}
    assert (third["id"], third["error"]["code"]) == (3, -32601)
    assert ran.returncode == 1
    assert ran.stderr == f"habitus: 'habitus mcp' needs the extra 'mcp', which is not installed. {HINT}\n"
