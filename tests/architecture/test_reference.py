"""docs/reference is written from the code, so it can't be allowed to lag behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_reference_is_up_to_date() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
